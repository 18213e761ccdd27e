// SPDX-License-Identifier: GPL-2.0-only
//! What the engine did so far: a section of `nuksm status`.

use crate::shared::output::{bytes, known, line};
use crate::shared::sample::Sample;
use nuksm_ksmfs::Engine;

/// A heading, and lines of figures, each with what it counts; with `before`, use since then.
pub fn report(engine: &Engine, status: &Sample, before: Option<&Sample>) -> String {
    let trees = match engine.kib_per_tree {
        Some(0) => "one tree of each kind".into(),
        kib => format!("{} trees of each kind, one per {} KiB of memory", known(engine.trees), known(kib)),
    };
    let placement = known(engine.placement.as_ref().map(|placement| &placement.current));
    let comparisons = engine.content_compares.filter(|&pages| pages > 0);
    let bytes_each = engine
        .compared_bytes
        .zip(comparisons)
        .map(|(bytes, comparisons)| format!("{:.0}", bytes as f64 / comparisons as f64));
    let by_content =
        format!("comparing two pages did, reading {} bytes of each on average", known(bytes_each));
    let unread = format!("pages to sum them up, of {} that were scanned", known(status.ksm.pages_scanned));
    let looks = engine
        .looks
        .zip(engine.look_cpu_us)
        .map(|(looks, us)| format!("{looks} looks, which took {:.2} s of CPU time", us as f64 / 1e6));
    let used = engine.used_local.zip(engine.used_remote).map(|(local, remote)| (local, local + remote));
    let local = used
        .filter(|&(_, all)| all > 0)
        .map(|(local, all)| format!("{:.1} %", 100.0 * local as f64 / all as f64));
    let of_used = format!("of use was local, in {}", known(looks));
    let since = before.and_then(|before| status.used_locally(before)).map(|part| {
        line("used locally", format!("{:.1} %", 100.0 * part), "of use since the last view was local")
    });
    let size = status.replica_bytes.map(|size| bytes(i64::try_from(size).unwrap_or(i64::MAX)));
    let of_replicas = format!(
        "copies of merged pages for another node, which take {}; {} made, {} given up, {} refused",
        known(size),
        known(engine.replicas_made),
        known(engine.replicas_folded),
        known(engine.replicas_refused)
    );
    let seconds = |ms: Option<u64>| known(ms.map(|ms| format!("{:.2} s", ms as f64 / 1000.0)));
    let scan_cpu = format!("of which ksmd was on a CPU for {}", seconds(engine.last_scan_cpu_ms));
    [
        "Engine\n".into(),
        line("index", &engine.index.current, &trees),
        line("placement", placement, "of new merges; `nuksm engine` explains"),
        line("placed: hot", known(engine.placed_hot), "on the node of the hotter copy"),
        line("placed: spread", known(engine.placed_spread), "evenly over the sharers' nodes"),
        line("placed: priority", known(engine.placed_priority), "by the sharers' nice values"),
        line("placed: no room", known(engine.placed_no_room), "times that a node without room could not win"),
        line("moved", known(engine.migrated), "merged pages, by the kernel, to place them"),
        line("not moved", known(engine.migrate_refused), "attempts to move one that failed"),
        line("used locally", known(local), &of_used),
        since.unwrap_or_default(),
        line("replicas", known(engine.replicas()), &of_replicas),
        line(
            "by checksum",
            known(engine.checksum_compares),
            "levels of a tree that comparing integers decided",
        ),
        line("by content", known(engine.content_compares), &by_content),
        line("collisions", known(engine.collisions), "pages of equal checksum that differed"),
        line("read", known(engine.summed), &unread),
        line("last full scan", seconds(engine.last_scan_ms), &scan_cpu),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::sample::tests::{engine, sample};

    #[test]
    fn the_text_as_users_see_it() {
        let expected = "\
Engine
  index               checksum  16384 trees of each kind, one per 16 KiB of memory
  placement               fair  of new merges; `nuksm engine` explains
  placed: hot               12  on the node of the hotter copy
  placed: spread          1200  evenly over the sharers' nodes
  placed: priority           0  by the sharers' nice values
  placed: no room            3  times that a node without room could not win
  moved                     50  merged pages, by the kernel, to place them
  not moved                  2  attempts to move one that failed
  used locally          90.0 %  of use was local, in 300 looks, which took 1.20 s of CPU time
  replicas                  20  copies of merged pages for another node, which take 80.0 KiB; 30 made, 10 given up, 5 refused
  by checksum          1234567  levels of a tree that comparing integers decided
  by content              2000  comparing two pages did, reading 3000 bytes of each on average
  collisions                 1  pages of equal checksum that differed
  read                    4000  pages to sum them up, of 90000 that were scanned
  last full scan        1.25 s  of which ksmd was on a CPU for 0.80 s
";
        let mut status = Sample { replica_bytes: Some(20 * 4096), ..sample() };
        status.ksm.pages_scanned = Some(90_000);
        assert_eq!(report(&engine(), &status, None), expected);

        let before = Sample { engine: Some(engine()), ..sample() };
        let engine = Engine { used_local: Some(9_030), used_remote: Some(1_010), ..engine() };
        status.engine = Some(engine.clone());
        let since = report(&engine, &status, Some(&before));
        assert!(
            since.contains("\n  used locally          75.0 %  of use since the last view was local\n"),
            "{since}"
        );
    }

    #[test]
    fn what_an_engine_does_not_count_is_a_dash_and_nothing_is_divided_by_zero() {
        let index_only = Engine {
            index: engine().index,
            content_compares: Some(0),
            compared_bytes: Some(0),
            ..Engine::default()
        };
        let mut status = sample();
        status.ksm.pages_scanned = None;
        let text = report(&index_only, &status, None);
        assert!(text.contains("  placement                  -  of new"), "{text}");
        assert!(text.contains("  placed: hot                -  on"), "{text}");
        assert!(text.contains("  used locally               -  of use was local, in -"), "{text}");
        assert!(
            text.contains("  by content                 0  comparing two pages did, reading - bytes"),
            "{text}"
        );
        assert!(text.contains("  read                       -  pages to sum them up, of - that"), "{text}");
        assert!(text.contains("  replicas                   -  copies of merged pages for another node, which take -; - made"), "{text}");
        assert!(text.contains("  last full scan             -  of which ksmd was on a CPU for -"), "{text}");
        let one_tree = Engine { kib_per_tree: Some(0), trees: Some(1), ..index_only };
        assert!(report(&one_tree, &status, None).contains("  one tree of each kind\n"));
    }
}
