// SPDX-License-Identifier: GPL-2.0-only
//! Axes: round figures in a fitting unit.

use super::figures::{Line, Unit};

/// One axis of a picture.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// What it shows, with the unit.
    pub label: String,
    /// The figure at its beginning, as the lines have it.
    pub min: f64,
    /// The figure at its end.
    pub max: f64,
    /// Where the marks are, and what stands there.
    pub marks: Vec<(f64, String)>,
}

impl Axis {
    /// The time since a recording began, for all of these lines.
    pub fn time<'a>(lines: impl Iterator<Item = &'a Line>) -> Self {
        let end = lines.flat_map(Line::points).map(|(seconds, _)| seconds).fold(0.0, f64::max);
        let (unit, name) = match end {
            ..=180.0 => (1.0, "seconds"),
            ..=10_800.0 => (60.0, "minutes"),
            ..=259_200.0 => (3_600.0, "hours"),
            _ => (86_400.0, "days"),
        };
        let mut axis = Self::new(format!("time since the start, {name}"), unit, [0.0, end], 6.0);
        // The lines reach to the end; a mark need not stand there.
        axis.max = if end > 0.0 { end } else { axis.max };
        axis.marks.retain(|(at, _)| *at <= axis.max * 1.001);
        axis
    }

    /// The values of all of these lines, in a unit `of` something; with zero, or
    /// just as far as they reach.
    pub fn values<'a>(unit: Unit, of: &str, with_zero: bool, lines: impl Iterator<Item = &'a Line>) -> Self {
        let values: Vec<f64> = lines.flat_map(Line::points).map(|(_, value)| value).collect();
        let first = if with_zero { 0.0 } else { values.first().copied().unwrap_or(0.0) };
        let min = values.iter().copied().fold(first, f64::min);
        let max = values.iter().copied().fold(first, f64::max);
        let (scale, name) = match unit {
            Unit::Bytes if min.abs().max(max) >= 1_073_741_824.0 => (1_073_741_824.0, "GiB"),
            Unit::Bytes if min.abs().max(max) >= 1_048_576.0 => (1_048_576.0, "MiB"),
            Unit::Bytes => (1024.0, "KiB"),
            Unit::Pages => (1.0, "pages"),
            Unit::PagesPerSecond => (1.0, "pages/s"),
            Unit::Percent => (1.0, "%"),
        };
        Self::new(format!("{name}{of}"), scale, [min, max], 5.0)
    }

    /// From `min` to `max`, widened to round figures of a unit `scale` large, in
    /// about so many `parts`.
    fn new(label: String, scale: f64, [min, max]: [f64; 2], parts: f64) -> Self {
        let low = min / scale;
        let high = if max > min { max / scale } else { low + 1.0 };
        // Nearer to each other, marks could not be told apart, nor counted.
        let high = high.max(low + low.abs() * 1e-9);
        let step = round_step((high - low) / parts);
        let (first, last) = ((low / step).floor(), (high / step - 1e-9).ceil());
        let decimals = if step < 0.1 { 2 } else { usize::from(step < 1.0) };
        let indexes = std::iter::successors(Some(first), |index| Some(index + 1.0));
        let marks = indexes
            .take_while(|index| *index <= last)
            .map(|index| (index * step * scale, grouped(index * step, decimals)))
            .collect();
        Self { label, min: first * step * scale, max: last * step * scale, marks }
    }

    /// Where `value` is on it, 0 to 1.
    pub fn at(&self, value: f64) -> f64 {
        (value - self.min) / (self.max - self.min)
    }
}

/// The least of 1, 2 and 5 times a power of ten that is not below `least`.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= least * 0.999)
        .unwrap_or(10.0 * power)
}

/// A figure with commas between the thousands.
pub fn grouped(value: f64, decimals: usize) -> String {
    let text = format!("{:.decimals$}", value.abs());
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let is_zero = text.chars().all(|char| matches!(char, '0' | '.'));
    format!("{}{grouped}{rest}", if value < 0.0 && !is_zero { "-" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(points: &[(f64, f64)]) -> Line {
        Line { pieces: vec![points.to_vec()] }
    }

    fn words(axis: &Axis) -> Vec<&str> {
        axis.marks.iter().map(|(_, word)| word.as_str()).collect()
    }

    #[test]
    fn marks_are_round_and_reach_over_all_values() {
        let axis = Axis::values(Unit::Pages, "", true, [line(&[(0.0, 930.0), (1.0, 1_348_844.0)])].iter());
        assert_eq!(words(&axis), ["0", "500,000", "1,000,000", "1,500,000"]);
        assert_eq!((axis.label.as_str(), axis.max), ("pages", 1_500_000.0));
        assert!((axis.at(750_000.0) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn a_loss_is_below_zero() {
        let mib = 1_048_576.0;
        let axis = Axis::values(Unit::Bytes, "", true, [line(&[(0.0, -0.2 * mib), (1.0, 1.5 * mib)])].iter());
        assert_eq!(words(&axis), ["-0.5", "0.0", "0.5", "1.0", "1.5"]);
        assert_eq!(axis.label, "MiB");
    }

    #[test]
    fn small_changes_of_a_large_figure_can_be_seen() {
        let gib = 1_073_741_824.0;
        let axis =
            Axis::values(Unit::Bytes, " used", false, [line(&[(0.0, 5.93 * gib), (1.0, 6.07 * gib)])].iter());
        assert_eq!(words(&axis), ["5.90", "5.95", "6.00", "6.05", "6.10"]);
        assert_eq!(axis.label, "GiB used");
    }

    #[test]
    fn figures_beyond_all_reason_have_a_few_marks_too() {
        let most = u64::MAX as f64;
        for values in [[most, most - 2048.0], [most, most], [-most, -most], [-most, most], [1e15, 1e15 + 0.5]]
        {
            for unit in [Unit::Bytes, Unit::Pages] {
                let points = values.map(|value| (value, value));
                let line = line(&points);
                for axis in
                    [Axis::values(unit, "", false, [&line].into_iter()), Axis::time([&line].into_iter())]
                {
                    assert!((1..20).contains(&axis.marks.len()), "{values:?}: {axis:?}");
                    assert!(axis.at(values[0]).is_finite(), "{values:?}: {axis:?}");
                }
            }
        }
    }

    #[test]
    fn nothing_at_all_has_an_axis_too() {
        let axis = Axis::values(Unit::Percent, "", true, [line(&[(0.0, 0.0)])].iter());
        assert_eq!((axis.min, axis.max), (0.0, 1.0));
        let axis = Axis::time([line(&[(0.0, 7.0)])].iter());
        assert_eq!((axis.min, axis.max), (0.0, 1.0));
    }

    #[test]
    fn time_is_in_a_unit_a_person_would_choose_and_ends_with_the_lines() {
        let axis = Axis::time([line(&[(0.0, 1.0), (5_400.0, 1.0)])].iter());
        assert_eq!((axis.label.as_str(), axis.max), ("time since the start, minutes", 5_400.0));
        assert_eq!(words(&axis), ["0", "20", "40", "60", "80"]);
        let axis = Axis::time([line(&[(0.0, 1.0), (90_000.0, 1.0)])].iter());
        assert_eq!(words(&axis), ["0", "5", "10", "15", "20", "25"]);
    }

    #[test]
    fn thousands_are_grouped() {
        assert_eq!((grouped(1_348_844.0, 0), grouped(999.0, 0)), ("1,348,844".into(), "999".into()));
        assert_eq!((grouped(-1_234.56, 1), grouped(-0.001, 1)), ("-1,234.6".into(), "0.0".into()));
    }
}
