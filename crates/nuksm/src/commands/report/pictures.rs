// SPDX-License-Identifier: GPL-2.0-only
//! Which pictures a report has.

use super::axis::Axis;
use super::figures::{Figures, Line, Picture, Row, Unit};
use super::svg;
use crate::shared::recording::Recording;

/// The pictures there is anything to show in.
pub fn all(recordings: &[Recording], figures: &Figures) -> Vec<Picture> {
    let mut pictures = of_the_host(recordings.len(), &figures.host);
    pictures.extend(of_places(recordings.len(), figures));
    pictures.retain(|picture| picture.panels.iter().flatten().any(|line| !line.pieces.is_empty()));
    pictures
}

/// Lines by recording, with their names.
type Lines = (Vec<String>, Vec<Vec<Line>>);

fn picture(
    id: &'static str,
    title: &'static str,
    about: &'static str,
    unit: Unit,
    of: &'static str,
    (names, panels): Lines,
) -> Picture {
    let with_zero = id != "memory";
    Picture { id, title, about, unit, of, with_zero, names, panels }
}

fn of_the_host(recordings: usize, host: &[Row]) -> Vec<Picture> {
    let rows = |names: &[&str]| {
        let found: Vec<&Row> = host.iter().filter(|(name, ..)| names.contains(&name.as_str())).collect();
        let lines = turned(recordings, found.iter().map(|(.., lines)| lines));
        (found.iter().map(|(name, ..)| name.clone()).collect(), lines)
    };
    vec![
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
            "used",
            "Use of merged pages, as looks saw it",
            "Of the use of merged pages that the kernel's looks saw since the sample before, the local part: of \
             accesses seen, not of pages.",
            Unit::Percent,
            " of uses",
            rows(&["uses seen by looks that are local"]),
        ),
        picture(
            "replicas",
            "Replicas",
            "Memory of the copies that the kernel keeps of merged pages for the nodes that use them: merging \
             would save as much more without.",
            Unit::Bytes,
            "",
            rows(&["replicas"]),
        ),
    ]
}

fn of_places(recordings: usize, figures: &Figures) -> Vec<Picture> {
    let nodes = &figures.nodes[..figures.nodes.len().min(svg::KINDS)];
    let tenants = &figures.tenants[..figures.tenants.len().min(svg::KINDS)];
    let node_names = || nodes.iter().map(|(id, _)| format!("node {id}")).collect::<Vec<_>>();
    let tenant_names = || tenants.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let of_nodes = |kind: usize| turned(recordings, nodes.iter().map(|(_, lines)| &lines[kind]));
    let of_tenants = |kind: usize| turned(recordings, tenants.iter().map(|(_, lines)| &lines[kind]));
    vec![
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
    ]
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
    fn replicas_and_use_are_shown_where_there_is_an_engine() {
        let mut with = recording(false, 1);
        for (sample, used) in with.runs[0].samples.iter_mut().zip([0, 500]) {
            let engine = crate::shared::sample::tests::engine();
            let used_local = engine.used_local.map(|before| before + used);
            sample.engine = Some(nuksm_ksmfs::Engine { used_local, ..engine });
            sample.replica_bytes = Some(81_920);
        }
        let pictures = all(&[recording(false, 1), with]);
        let ids: Vec<_> = pictures.iter().map(|picture| picture.id).collect();
        assert_eq!(ids, ["savings", "states", "ksmd", "used", "replicas"]);
        assert!(pictures[3].draw(0, "r", None).contains("nothing in this recording"));
        assert!(pictures[4].draw(1, "r", None).contains("KiB"));
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
