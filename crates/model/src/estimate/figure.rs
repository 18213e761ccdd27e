// SPDX-License-Identifier: GPL-2.0-only
//! Figures from a sample of contents, and how far they may be off.
//!
//! Each content is in the sample with the same probability, the rate, whatever
//! the others do. What is summed over contents is therefore known within
//! bounds that shrink with the number of contents in the sample; at rate 1
//! nothing is estimated and the bounds meet.

use serde::Serialize;

/// Square of the normal distribution's two-sided 95 % quantile.
const Z_SQUARED: f64 = 3.841_458_820_694_124;

/// A figure and the bounds between which it is with a probability of 95 %.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Figure {
    /// The estimate; exact when the bounds are the same.
    pub value: f64,
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

impl Figure {
    /// A figure that is known.
    #[must_use]
    pub fn exact(value: f64) -> Self {
        Self { value, low: value, high: value }
    }

    /// What is left of `whole`, which is known, without this part of it.
    #[must_use]
    pub fn rest_of(self, whole: u64) -> Self {
        let rest = |part: f64| (whole as f64 - part).clamp(0.0, whole as f64);
        Self { value: rest(self.value), low: rest(self.high), high: rest(self.low) }
    }

    /// The figure in another unit: times `factor` (positive), less `less`.
    #[must_use]
    pub fn scaled(self, factor: f64, less: f64) -> Self {
        let scale = |value: f64| value * factor - less;
        Self { value: scale(self.value), low: scale(self.low), high: scale(self.high) }
    }
}

/// A sum over the contents in the sample.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sum {
    weight: f64,
    squares: f64,
}

impl Sum {
    /// Adds one content.
    pub fn add(&mut self, weight: f64) {
        self.add_times(weight, 1);
    }

    /// Adds `contents` contents of the same weight.
    pub fn add_times(&mut self, weight: f64, contents: u64) {
        self.weight += weight * contents as f64;
        self.squares += weight * weight * contents as f64;
    }

    /// The sum over all contents, if this one is over a sample.
    ///
    /// The bounds are the score interval of a count `k` drawn with probability
    /// `rate`: the `m` with (k - m)² = z² (1 - rate) m. Unlike k ± z √k it says
    /// something sensible of a count of 0. A sum of weights is treated as the
    /// count that varies as much.
    #[must_use]
    pub fn total(&self, rate: f64) -> Figure {
        if rate >= 1.0 {
            // Rounding must not make bounds of what is known.
            return Figure::exact(self.weight);
        }
        let unit = if self.weight > 0.0 { self.squares / self.weight } else { 1.0 };
        let count = self.weight / unit;
        let spread = Z_SQUARED * (1.0 - rate);
        let (middle, half) = (count + spread / 2.0, (spread * count + spread * spread / 4.0).sqrt());
        let scale = unit / rate;
        Figure {
            value: self.weight / rate,
            low: (middle - half).max(0.0) * scale,
            high: (middle + half) * scale,
        }
    }

    /// The mean weight, each at most 1, of `contents` contents; `None` without
    /// any. The bounds are Wilson's score interval, as if each weight were 0 or
    /// 1, which varies most.
    #[must_use]
    pub fn mean(&self, contents: u64, rate: f64) -> Option<Figure> {
        if contents == 0 {
            return None;
        }
        let count = contents as f64;
        let mean = (self.weight / count).clamp(0.0, 1.0);
        let spread = Z_SQUARED * (1.0 - rate) / count;
        let middle = mean + spread / 2.0;
        let half = (spread * mean * (1.0 - mean) + spread * spread / 4.0).sqrt();
        let bound = |value: f64| (value / (1.0 + spread)).clamp(0.0, 1.0);
        // Rounding must not push a bound beyond the figure itself.
        Some(Figure {
            value: mean,
            low: bound(middle - half).min(mean),
            high: bound(middle + half).max(mean),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As good as random: splitmix64 of `number`.
    fn hash(number: u64) -> u64 {
        let mut z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    #[test]
    fn a_whole_population_has_no_bounds_to_speak_of() {
        let mut sum = Sum::default();
        sum.add_times(1.0, 7);
        sum.add(2.5);
        assert_eq!(sum.total(1.0), Figure::exact(9.5));
        assert_eq!(Sum::default().total(1.0), Figure::exact(0.0));
        assert_eq!(sum.total(1.0).rest_of(10), Figure::exact(0.5));
        let mut halves = Sum::default();
        halves.add_times(0.5, 4);
        assert_eq!(halves.mean(4, 1.0), Some(Figure::exact(0.5)));
        assert_eq!(halves.mean(0, 1.0), None);
    }

    #[test]
    fn nothing_in_the_sample_is_not_nothing_at_all() {
        let none = Sum::default().total(1.0 / 16.0);
        assert!(none.value == 0.0 && none.low == 0.0, "{none:?}");
        assert!((50.0..70.0).contains(&none.high), "about 3.84 x 15/16 x 16: {none:?}");
    }

    /// How many of 400 populations' true figures lie within the bounds that a
    /// sample of one in eight gives.
    fn covered(contents: u64, weight: impl Fn(u64) -> f64) -> u64 {
        let inside = (0..400).filter(|seed| {
            let (mut sum, mut truth) = (Sum::default(), 0.0);
            for content in 0..contents {
                truth += weight(content);
                if hash(seed * 1_000_003 + content) >> 61 == 0 {
                    sum.add(weight(content));
                }
            }
            let figure = sum.total(0.125);
            figure.low <= truth && truth <= figure.high
        });
        inside.count() as u64
    }

    #[test]
    fn bounds_hold_as_often_as_they_claim() {
        for (contents, uneven) in [(5, false), (40, false), (1000, false), (1000, true)] {
            let weight = |content: u64| if uneven { 0.1 + (content % 10) as f64 / 10.0 } else { 1.0 };
            let inside = covered(contents, weight);
            assert!(inside >= 370, "{inside} of 400 with {contents} contents, uneven: {uneven}");
            assert!(contents < 40 || inside < 400, "bounds that always hold are too wide");
        }
    }

    #[test]
    fn means_keep_their_bounds_as_well() {
        let inside = (0..400).filter(|seed| {
            let (mut sum, mut contents) = (Sum::default(), 0);
            for content in 0..1000_u64 {
                if hash(seed * 1_000_003 + content) >> 61 == 0 {
                    sum.add(if content % 5 == 0 { 1.0 } else { 0.0 });
                    contents += 1;
                }
            }
            let figure = sum.mean(contents, 0.125).unwrap();
            figure.low <= 0.2 && 0.2 <= figure.high
        });
        let inside = inside.count();
        assert!((370..400).contains(&inside), "{inside} of 400");
    }
}
