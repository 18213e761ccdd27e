// SPDX-License-Identifier: GPL-2.0-only
//! The report as one HTML page, which needs nothing else.

use super::axis::grouped;
use super::figures::{Figures, Line, Picture, Unit};
use super::svg::{self, escaped};
use crate::shared::output::{bytes, date};
use crate::shared::recording::Recording;

const STYLE: &str = "\
:root{color-scheme:light dark;--ground:#ffffff;--text:#1c1e21;--quiet:#57606a;--rule:#d0d4d8;--head:#f3f5f7}
body{margin:0 auto;padding:1.5rem;max-width:1240px;background:var(--ground);color:var(--text);\
font:16px/1.5 system-ui,'DejaVu Sans',Verdana,sans-serif}
h1{font-size:1.7rem;margin:0}h2{font-size:1.25rem;margin:2rem 0 .25rem}p{margin:.25rem 0 .75rem;max-width:48rem}
.quiet{color:var(--quiet)}.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{padding:.3rem .7rem;border-bottom:1px solid var(--rule);text-align:left;white-space:nowrap}
thead th{background:var(--head)}td.number,th.number{text-align:right}th.group{text-align:center}
.first{border-left:1px solid var(--rule)}
.panels{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(440px,100%),1fr));gap:1rem}
figure{margin:0;max-width:720px}figcaption{font-weight:600;font-size:.9rem}svg{display:block;width:100%;height:auto}
";
const DARK: &str = ":root{--ground:#16181b;--text:#e6e6e6;--quiet:#9aa4ae;--rule:#3a3f45;--head:#22262a}";

/// The whole page.
pub fn render(recordings: &[Recording], figures: &Figures, pictures: &[Picture]) -> String {
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <title>Merged memory: {}</title>\n<style>\n{STYLE}{}\n\
         @media (prefers-color-scheme:dark){{{DARK}{}}}\n</style>\n</head>\n<body>\n",
        escaped(&names(recordings)),
        svg::style(false),
        svg::style(true)
    );
    page += "<h1>Merged memory</h1>\n";
    page += &format!(
        "<p class=\"quiet\">Measured by nuksm; made by nuksm {} from {}.</p>\n",
        env!("CARGO_PKG_VERSION"),
        escaped(&names(recordings))
    );
    page += &recorded(recordings);
    page += &problems(recordings);
    page += "<h2>Averages</h2>\n<p>Of all samples of a recording; with their least and most.</p>\n";
    page += &figures_table(recordings, figures.host.iter().map(|(name, unit, lines)| (name, *unit, lines)));
    for picture in pictures {
        page += &section(picture, recordings);
    }
    let nodes = figures.nodes.iter().flat_map(|(id, [merged, local])| {
        [
            (format!("node {id}: merged pages"), Unit::Pages, merged),
            (format!("node {id}: used locally"), Unit::Percent, local),
        ]
    });
    page += &table_section("Nodes", recordings, nodes);
    let tenants = figures.tenants.iter().flat_map(|(name, [merged, remote, saved])| {
        [
            (format!("{name}: mappings"), Unit::Pages, merged),
            (format!("{name}: remote part of them"), Unit::Percent, remote),
            (format!("{name}: its part of the savings"), Unit::Bytes, saved),
        ]
    });
    page += &table_section("Tenants", recordings, tenants);
    page + "</body>\n</html>\n"
}

fn names(recordings: &[Recording]) -> String {
    let names: Vec<&str> = recordings.iter().map(|recording| recording.name.as_str()).collect();
    names.join(", ")
}

/// Which host, which kernel, when.
fn recorded(recordings: &[Recording]) -> String {
    let mut table = "<h2>Recordings</h2>\n<div class=\"wide\"><table id=\"recordings\">\n<thead><tr>\
         <th scope=\"col\">recording</th><th scope=\"col\">host</th><th scope=\"col\">kernel</th>\
         <th scope=\"col\">from (UTC)</th><th scope=\"col\">to (UTC)</th>\
         <th scope=\"col\" class=\"number\">samples</th></tr></thead>\n<tbody>\n"
        .to_owned();
    for recording in recordings {
        for run in &recording.runs {
            let (Some(first), Some(last)) = (run.samples.first(), run.samples.last()) else { continue };
            let host = run.header.as_ref().map_or("unknown", |header| &header.host);
            table += &format!(
                "<tr><th scope=\"row\">{}</th><td>{}</td><td>Linux {}</td><td>{}</td><td>{}</td>\
                 <td class=\"number\">{}</td></tr>\n",
                escaped(&recording.name),
                escaped(host),
                escaped(&first.kernel),
                date(first.unix_time),
                date(last.unix_time),
                run.samples.len()
            );
        }
    }
    table + "</tbody></table></div>\n"
}

/// What could not be read, and what could not be recorded.
fn problems(recordings: &[Recording]) -> String {
    let mut items = String::new();
    for recording in recordings {
        let mut notes: Vec<&String> = recording.samples().flat_map(|sample| &sample.notes).collect();
        notes.sort_unstable();
        notes.dedup();
        for problem in recording.problems.iter().chain(notes) {
            items += &format!("<li>{}: {}</li>\n", escaped(&recording.name), escaped(problem));
        }
    }
    if items.is_empty() {
        return String::new();
    }
    format!("<h2>To be known</h2>\n<ul id=\"problems\">\n{items}</ul>\n")
}

/// A picture of each recording.
fn section(picture: &Picture, recordings: &[Recording]) -> String {
    let mut section = format!(
        "<section id=\"{}\">\n<h2>{}</h2>\n<p>{}</p>\n<div class=\"panels\">\n",
        picture.id,
        escaped(picture.title),
        escaped(picture.about)
    );
    for (index, recording) in recordings.iter().enumerate() {
        let name = escaped(&recording.name);
        let drawing = picture.draw(index, &recording.name, None);
        section += &format!("<figure><figcaption>{name}</figcaption>{drawing}</figure>\n");
    }
    section + "</div>\n</section>\n"
}

fn table_section<'a>(
    title: &str,
    recordings: &[Recording],
    rows: impl Iterator<Item = (String, Unit, &'a Vec<Line>)>,
) -> String {
    let mut rows = rows.peekable();
    if rows.peek().is_none() {
        return String::new();
    }
    format!("<h2>{title}</h2>\n{}", figures_table(recordings, rows))
}

/// Average, least and most of each figure in each recording; of two recordings
/// also the difference of the averages.
fn figures_table<'a>(
    recordings: &[Recording],
    rows: impl Iterator<Item = (impl AsRef<str>, Unit, &'a Vec<Line>)>,
) -> String {
    let mut groups = String::new();
    let mut columns = String::new();
    for recording in recordings {
        groups += &format!(
            "<th scope=\"colgroup\" colspan=\"3\" class=\"group first\">{}</th>",
            escaped(&recording.name)
        );
        columns += "<th scope=\"col\" class=\"number first\">average</th><th scope=\"col\" class=\"number\">least</th>\
                    <th scope=\"col\" class=\"number\">most</th>";
    }
    if let [first, second] = recordings {
        groups += &format!(
            "<th scope=\"col\" rowspan=\"2\" class=\"number first\">{} less {},<br>averages</th>",
            escaped(&second.name),
            escaped(&first.name)
        );
    }
    let mut table = format!(
        "<div class=\"wide\"><table>\n<thead><tr><th scope=\"col\" rowspan=\"2\">figure</th>{groups}</tr>\n\
         <tr>{columns}</tr></thead>\n<tbody>\n"
    );
    for (name, unit, lines) in rows {
        let summaries: Vec<_> = lines.iter().map(Line::summary).collect();
        if summaries.iter().all(Option::is_none) {
            continue;
        }
        table += &format!("<tr><th scope=\"row\">{}</th>", escaped(name.as_ref()));
        let cell = |class: &str, value: Option<f64>| {
            let text = value.map_or_else(|| "-".into(), |value| shown(unit, value));
            format!("<td class=\"number{class}\">{text}</td>")
        };
        for summary in &summaries {
            table += &cell(" first", summary.map(|all| all.average));
            table += &cell("", summary.map(|all| all.min));
            table += &cell("", summary.map(|all| all.max));
        }
        if let [first, second] = summaries.as_slice() {
            table +=
                &cell(" first", first.zip(*second).map(|(first, second)| second.average - first.average));
        }
        table += "</tr>\n";
    }
    table + "</tbody></table></div>\n"
}

/// A figure with its unit.
fn shown(unit: Unit, value: f64) -> String {
    match unit {
        // Far from the limits of either type.
        #[allow(clippy::cast_possible_truncation)]
        Unit::Bytes => bytes(value.round() as i64),
        Unit::Pages => grouped(value, 0),
        Unit::PagesPerSecond => format!("{}/s", grouped(value, 0)),
        Unit::Percent => format!("{} %", grouped(value, 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::report::pictures;
    use crate::shared::recording::Header;
    use crate::shared::recording::read::tests::read;
    use crate::shared::sample::tests::sample;

    fn recording(name: &str, sharing: u64) -> Recording {
        let head = serde_json::to_string(&Header {
            host: "<a&b>".into(),
            ..crate::shared::recording::header::tests::header()
        });
        let line = |seconds: f64| {
            let mut sample = sample();
            sample.unix_time = 1_764_000_000.0 + seconds;
            sample.ksm.pages_sharing = Some(sharing);
            serde_json::to_string(&sample).unwrap()
        };
        let lines = [head.unwrap(), line(0.0), "torn".into(), line(10.0)];
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        Recording { name: name.into(), ..read(&lines) }
    }

    fn page(recordings: &[Recording]) -> String {
        let figures = Figures::of(recordings);
        render(recordings, &figures, &pictures::all(recordings, &figures))
    }

    #[test]
    fn the_page_says_which_host_which_kernel_and_when() {
        let page = page(&[recording("ksm", 4)]);
        assert!(
            page.contains(
                "<th scope=\"row\">ksm</th><td>&lt;a&amp;b&gt;</td><td>Linux 6.12.0</td>\
                 <td>2025-11-24 16:00:00</td><td>2025-11-24 16:00:10</td><td class=\"number\">2</td>"
            ),
            "{page}"
        );
        assert!(page.contains("<li>ksm: line 3 is passed over: "), "{page}");
    }

    #[test]
    fn two_recordings_have_a_difference_and_one_has_none() {
        let both = page(&[recording("without", 0), recording("with", 4000)]);
        let cells = ["0", "0", "0", "4,000", "4,000", "4,000", "4,000"];
        let row = both.lines().find(|line| line.contains("<th scope=\"row\">pages sharing</th>")).unwrap();
        let found: Vec<&str> =
            row.split("<td").skip(1).map(|cell| cell.split(['>', '<']).nth(1).unwrap()).collect();
        assert_eq!(found, cells);
        assert!(both.contains("with less without"));
        assert!(!page(&[recording("alone", 4)]).contains(" less "));
    }

    #[test]
    fn nothing_is_fetched_and_nothing_runs() {
        let page = page(&[recording("ksm", 4)]);
        for word in ["<script", "src=", "href=", "url(", "@import"] {
            assert!(!page.contains(word), "{word}");
        }
    }
}
