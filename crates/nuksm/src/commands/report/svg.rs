// SPDX-License-Identifier: GPL-2.0-only
//! Lines over time as SVG. Colours come from a style sheet, so that the same
//! picture serves light and dark pages; dashes tell lines apart without colour.

use super::axis::Axis;
use super::figures::Line;

/// Width of a picture.
pub const WIDTH: f64 = 560.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 10.0;
const PLOT: f64 = 220.0;
const ROW: f64 = 18.0;
/// Points of one line; of more, each stretch shows its least and its most.
const POINTS: usize = 600;
/// Width of a letter, about.
const LETTER: f64 = 7.3;

/// Kinds of lines that can be told apart.
pub const KINDS: usize = 8;
/// Their colours on light and on dark ground.
const COLOURS: [(&str, &str); KINDS] = [
    ("#0062a8", "#6cb6ff"),
    ("#c2500a", "#ff9d5c"),
    ("#00795a", "#3fcf9f"),
    ("#a8457e", "#f29ac9"),
    ("#7a6400", "#e0c341"),
    ("#5b4bb5", "#b3a5ff"),
    ("#59636e", "#aab4be"),
    ("#a3222c", "#ff8a8a"),
];
const DASHES: [&str; KINDS] = ["", "7 3", "2 3", "10 3 2 3", "14 4", "4 2 1 2", "1 4", "9 2 1 2 1 2"];

/// Rules for pictures on light ground, or on dark.
pub fn style(dark: bool) -> String {
    let (text, grid) = if dark { ("#e6e6e6", "#4a4f55") } else { ("#1c1e21", "#d0d4d8") };
    let mut style = format!(
        "text{{font:12px 'DejaVu Sans',Verdana,sans-serif;fill:{text}}}\
         .grid{{stroke:{grid};stroke-width:1}}.axis{{stroke:{text};stroke-width:1}}"
    );
    for (kind, (light, on_dark)) in COLOURS.iter().enumerate() {
        let colour = if dark { on_dark } else { light };
        style +=
            &format!(".line{kind}{{stroke:{colour};stroke-width:2;fill:none}}.dot{kind}{{fill:{colour}}}");
    }
    style
}

/// Text with the characters that markup would take for its own replaced.
pub fn escaped(text: &str) -> String {
    // A recording's names are whoever wrote it's; XML has no way to write some.
    nuksm_sysroot::printable(text)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// Draws named lines in the frame of these axes. `title` is what a screen reader
/// says of the picture; `style` makes it stand alone.
pub fn draw(
    title: &str,
    names: &[String],
    lines: &[Line],
    x: &Axis,
    y: &Axis,
    style: Option<&str>,
) -> String {
    let legend = Legend::new(names);
    let height = TOP + PLOT + 2.0 * ROW + 8.0 + legend.rows as f64 * ROW + 6.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"{}\">",
        escaped(title)
    );
    if let Some(style) = style {
        svg +=
            &format!("<style>{style}</style><rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>");
    }
    svg += &frame(x, y);
    for (kind, (line, name)) in lines.iter().zip(names).enumerate() {
        for piece in &line.pieces {
            let points = thin(piece).into_iter().map(|(at, value)| (across(x, at), up(y, value)));
            let points: Vec<String> = points.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            svg += &match points.as_slice() {
                [point] => {
                    let (x, y) = point.split_once(',').unwrap_or_default();
                    format!("<circle class=\"dot{kind}\" cx=\"{x}\" cy=\"{y}\" r=\"3\"/>")
                }
                _ => format!(
                    "<polyline class=\"line{kind}\" stroke-dasharray=\"{}\" points=\"{}\"><title>{}</title></polyline>",
                    DASHES[kind],
                    points.join(" "),
                    escaped(name)
                ),
            };
        }
    }
    if lines.iter().all(|line| line.pieces.is_empty()) {
        svg += &text(
            LEFT + (WIDTH - LEFT - RIGHT) / 2.0,
            TOP + PLOT / 2.0,
            "middle",
            "nothing in this recording",
        );
    }
    svg += &legend.draw(names, TOP + PLOT + 2.0 * ROW + 8.0);
    svg + "</svg>"
}

fn across(axis: &Axis, value: f64) -> f64 {
    LEFT + axis.at(value) * (WIDTH - LEFT - RIGHT)
}

fn up(axis: &Axis, value: f64) -> f64 {
    TOP + (1.0 - axis.at(value)) * PLOT
}

fn text(x: f64, y: f64, anchor: &str, words: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>", escaped(words))
}

fn rule(class: &str, [x1, y1, x2, y2]: [f64; 4]) -> String {
    format!("<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>")
}

/// Grid, marks and labels.
fn frame(x: &Axis, y: &Axis) -> String {
    let (right, bottom) = (WIDTH - RIGHT, TOP + PLOT);
    let mut svg = String::new();
    for (value, word) in &y.marks {
        let at = up(y, *value);
        let class = if *value == 0.0 { "axis" } else { "grid" };
        svg += &rule(class, [LEFT, at, right, at]);
        svg += &text(LEFT - 6.0, at + 4.0, "end", word);
    }
    for (value, word) in &x.marks {
        let at = across(x, *value);
        svg += &rule("axis", [at, bottom, at, bottom + 4.0]);
        svg += &text(at, bottom + ROW, "middle", word);
    }
    svg += &text(LEFT + (right - LEFT) / 2.0, bottom + 2.0 * ROW, "middle", &x.label);
    let middle = TOP + PLOT / 2.0;
    svg += &format!(
        "<text x=\"14\" y=\"{middle}\" text-anchor=\"middle\" transform=\"rotate(-90 14 {middle})\">{}</text>",
        escaped(&y.label)
    );
    svg
}

/// At most [`POINTS`] points that show the same line: of each stretch its least
/// and its most, so that no peak is lost.
fn thin(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= POINTS {
        return points.to_vec();
    }
    let stretch = points.len().div_ceil(POINTS / 2);
    let by_value = |left: &&(f64, f64), right: &&(f64, f64)| left.1.total_cmp(&right.1);
    let mut thinned = Vec::new();
    for part in points.chunks(stretch) {
        let ends = part.iter().min_by(by_value).zip(part.iter().max_by(by_value));
        let Some((&least, &most)) = ends else { continue };
        thinned.extend(if least.0 <= most.0 { [least, most] } else { [most, least] });
    }
    thinned
}

/// Names of lines below the picture, as many in a row as fit.
struct Legend {
    /// Where each name begins: x, and the row.
    places: Vec<(f64, usize)>,
    rows: usize,
}

impl Legend {
    fn new(names: &[String]) -> Self {
        let (mut x, mut row) = (LEFT, 0);
        let mut places = Vec::new();
        for name in names {
            let width = 44.0 + name.chars().count() as f64 * LETTER + 14.0;
            if x > LEFT && x + width > WIDTH {
                (x, row) = (LEFT, row + 1);
            }
            places.push((x, row));
            x += width;
        }
        Self { places, rows: row + 1 }
    }

    fn draw(&self, names: &[String], top: f64) -> String {
        let mut svg = String::new();
        for (kind, (name, (x, row))) in names.iter().zip(&self.places).enumerate() {
            let y = top + (*row as f64 + 0.75) * ROW;
            svg += &format!(
                "<line class=\"line{kind}\" stroke-dasharray=\"{}\" x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
                DASHES[kind],
                y - 4.0,
                x + 36.0,
                y - 4.0
            );
            svg += &text(x + 44.0, y, "start", name);
        }
        svg
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::report::figures::Unit;

    fn picture(names: &[&str], lines: &[Line]) -> String {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let axis = Axis::values(Unit::Percent, " of a CPU", true, lines.iter());
        draw("CPU <of> ksmd", &names, lines, &Axis::time(lines.iter()), &axis, None)
    }

    #[test]
    fn a_line_goes_from_corner_to_corner_and_what_is_named_is_escaped() {
        let line = Line { pieces: vec![vec![(0.0, 0.0), (100.0, 10.0)], vec![(50.0, 5.0)]] };
        let svg = picture(&["a & b"], &[line]);
        assert!(svg.contains("points=\"84.0,230.0 546.0,10.0\"><title>a &amp; b</title>"), "{svg}");
        assert!(
            svg.contains("<circle class=\"dot0\" cx=\"315.0\" cy=\"120.0\""),
            "a single point shows: {svg}"
        );
        assert!(svg.contains("aria-label=\"CPU &lt;of&gt; ksmd\""), "{svg}");
        assert!(
            svg.contains(">% of a CPU</text>") && svg.contains(">time since the start, seconds</text>"),
            "{svg}"
        );
    }

    #[test]
    fn no_name_makes_a_picture_unreadable() {
        let svg = picture(&["a\u{1b}[2J\u{0}\u{ffff}<"], &[Line::default()]);
        assert!(!svg.contains(['\u{1b}', '\u{0}', '\u{ffff}']), "{svg:?}");
        #[cfg(feature = "png")]
        resvg::usvg::Tree::from_str(&svg, &resvg::usvg::Options::default()).unwrap();
    }

    #[test]
    fn what_was_not_recorded_is_said_to_be_missing() {
        assert!(picture(&["a"], &[Line::default()]).contains("nothing in this recording"));
    }

    #[test]
    fn a_long_line_keeps_its_peaks() {
        let points: Vec<(f64, f64)> =
            (0..100_000).map(|at| (f64::from(at), if at == 77_777 { 9.0 } else { 1.0 })).collect();
        let thinned = thin(&points);
        assert!(thinned.len() <= POINTS, "{}", thinned.len());
        assert!(thinned.contains(&(77_777.0, 9.0)));
        assert!(thinned.is_sorted_by(|left, right| left.0 <= right.0));
    }

    #[test]
    fn a_legend_that_is_too_long_takes_another_row() {
        let names: Vec<String> = (0..8).map(|index| format!("virtual-machine-{index}")).collect();
        let legend = Legend::new(&names);
        assert_eq!(legend.rows, 4);
        assert!(legend.places.iter().all(|(x, _)| *x < WIDTH - 100.0));
    }
}
