// SPDX-License-Identifier: GPL-2.0-only
//! Which pictures a report has.

use super::axis::Axis;
use super::figures::{Figures, Line, Picture, Row, Unit};
use super::svg;
use crate::shared::recording::Recording;

/// The pictures there is anything to show in.
pub fn all(recordings: &[Recording], figures: &Figures) -> Vec<Picture> {
    let Figures { host, nodes, tenants } = figures;
    let tenants = &tenants[..tenants.len().min(svg::KINDS)];
    let nodes = &nodes[..nodes.len().min(svg::KINDS)];
    let node_names = || nodes.iter().map(|(id, _)| format!("node {id}")).collect::<Vec<_>>();
    let tenant_names = || tenants.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let rows = |names: &[&str]| {
        let found: Vec<&Row> = host.iter().filter(|(name, ..)| names.contains(&name.as_str())).collect();
        let lines = turned(recordings.len(), found.iter().map(|(.., lines)| lines));
        (found.iter().map(|(name, ..)| name.clone()).collect(), lines)
    };
    let of_nodes = |kind: usize| turned(recordings.len(), nodes.iter().map(|(_, lines)| &lines[kind]));
    let of_tenants = |kind: usize| turned(recordings.len(), tenants.iter().map(|(_, lines)| &lines[kind]));
    let picture = |id, title, about, unit, of, (names, panels)| {
        let with_zero = id != "memory";
        Picture { id, title, about, unit, of, with_zero, names, panels }
    };
    let mut pictures = vec![
        picture(
            "savings",
            "Savings",
            "Memory that merging frees, and what is left of it after KSM's own records.",
            Unit::Bytes,
            "",
            rows(&["saved, net", "saved, by merging", "KSM's records"]),
        ),
        picture(
            "memory",
            "Memory of the host",
            "Memory in use on the whole host: all that could not be had without swapping. The axis does not \
             begin at zero.",
            Unit::Bytes,
            " in use",
            rows(&["memory used"]),
        ),
        picture(
            "states",
            "Pages by state",
            "Shared: merged pages in memory. Sharing: further places that use them, the pages saved. Unshared: \
             unique so far. Volatile: changing too fast to be merged.",
            Unit::Pages,
            "",
            rows(&["pages shared", "pages sharing", "pages unshared", "pages volatile"]),
        ),
        picture(
            "ksmd",
            "CPU time of ksmd",
            "What the kernel's thread that looks for equal pages used, of one CPU.",
            Unit::Percent,
            " of one CPU",
            rows(&["CPU of ksmd, of one CPU"]),
        ),
        picture(
            "cpu",
            "CPU time of the host",
            "What everything on the host used, of all CPUs.",
            Unit::Percent,
            " of all CPUs",
            rows(&["CPU of the host, of all CPUs"]),
        ),
        picture(
            "nodes",
            "Merged pages by node",
            "On which node the merged pages are.",
            Unit::Pages,
            "",
            (node_names(), of_nodes(0)),
        ),
        picture(
            "local",
            "Local use by node",
            "Of the places that map a node's merged pages, those of tenants that run on that node.",
            Unit::Percent,
            " of uses",
            (node_names(), of_nodes(1)),
        ),
        picture(
            "tenants",
            "Merged pages by tenant",
            "Places in each tenant's memory that map a merged page; the tenants with most of them.",
            Unit::Pages,
            "",
            (tenant_names(), of_tenants(0)),
        ),
        picture(
            "remote",
            "Remote pages by tenant",
            "Of each tenant's merged pages, those on another node than the tenant's.",
            Unit::Percent,
            " of its merged pages",
            (tenant_names(), of_tenants(1)),
        ),
    ];
    pictures.retain(|picture| picture.panels.iter().flatten().any(|line| !line.pieces.is_empty()));
    pictures
}

/// Lines by name and recording, turned to lines by recording and name.
fn turned<'a>(recordings: usize, rows: impl Iterator<Item = &'a Vec<Line>>) -> Vec<Vec<Line>> {
    let rows: Vec<&Vec<Line>> = rows.collect();
    (0..recordings).map(|index| rows.iter().map(|lines| lines[index].clone()).collect()).collect()
}

impl Picture {
    /// Draws the lines of one recording, in the frame that fits all.
    pub fn draw(&self, index: usize, recording: &str, style: Option<&str>) -> String {
        let lines = || self.panels.iter().flatten();
        let y = Axis::values(self.unit, self.of, self.with_zero, lines());
        let title = format!("{}: {recording}", self.title);
        svg::draw(&title, &self.names, &self.panels[index], &Axis::time(lines()), &y, style)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::recording::read::Run;
    use crate::shared::sample::tests::sample;

    fn recording(nodes: bool, scale: u64) -> Recording {
        let samples = (0..2).map(|second| {
            let mut sample = sample();
            if nodes {
                sample.place(&crate::shared::view::tests::view());
            }
            sample.unix_time += f64::from(second);
            sample.ksm.pages_unshared = Some(scale);
            sample
        });
        Recording {
            name: "r".into(),
            runs: vec![Run { header: None, samples: samples.collect() }],
            problems: vec![],
        }
    }

    fn all(recordings: &[Recording]) -> Vec<Picture> {
        super::all(recordings, &Figures::of(recordings))
    }

    #[test]
    fn only_what_some_recording_has_is_shown() {
        let ids =
            |recordings: &[Recording]| all(recordings).iter().map(|picture| picture.id).collect::<Vec<_>>();
        assert_eq!(ids(&[recording(false, 1)]), ["savings", "states", "ksmd"]);
        let both = [recording(false, 1), recording(true, 1)];
        assert_eq!(ids(&both), ["savings", "states", "ksmd", "nodes", "local", "tenants", "remote"]);
        let nodes = all(&both).into_iter().find(|picture| picture.id == "nodes").unwrap();
        assert!(nodes.draw(0, "r", None).contains("nothing in this recording"));
        assert!(nodes.draw(1, "r", None).contains(">node 1</text>"));
    }

    #[test]
    fn each_picture_of_the_host_has_all_its_lines() {
        let counts: Vec<_> =
            all(&[recording(true, 1)]).into_iter().map(|picture| (picture.id, picture.names.len())).collect();
        for expected in [("savings", 3), ("states", 4), ("ksmd", 1)] {
            assert!(counts.contains(&expected), "{counts:?}");
        }
    }

    #[test]
    fn side_by_side_means_on_the_same_axes() {
        let pictures = all(&[recording(false, 10), recording(false, 900)]);
        let states = pictures.iter().find(|picture| picture.id == "states").unwrap();
        for index in [0, 1] {
            assert!(states.draw(index, "r", None).contains(">1,000</text>"), "recording {index}");
        }
    }
}
