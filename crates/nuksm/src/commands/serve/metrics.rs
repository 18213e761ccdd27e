// SPDX-License-Identifier: GPL-2.0-only
//! The metrics' names, units and help, in Prometheus' text format.
//!
//! Written by hand: the format is three kinds of lines, and series here come and
//! go with tenants, which a registry of long-lived metrics makes harder.

use super::look::Shared;
use crate::shared::cost;
use crate::shared::sample::{Sample, TenantRow};
use nuksm_sysroot::Root;
use std::collections::BTreeMap;
use std::fmt::Display;

/// The name under which all tenants but the biggest are summed.
const OTHERS: &str = "other";

/// A domain's name may be the path of a cgroup: so many characters of it.
const LONGEST_NAME: usize = 128;

/// A page of metrics under construction.
#[derive(Debug, Default)]
struct Page {
    text: String,
}

impl Page {
    /// Starts a metric; without a sample, it is left out.
    fn metric<V: Display>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Vec<(&'static str, String)>, V)>,
    ) {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return;
        }
        self.text += &format!("# HELP nuksm_{name} {help}\n# TYPE nuksm_{name} {kind}\n");
        for (labels, value) in samples {
            let labels: Vec<String> =
                labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escape(value))).collect();
            let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
            self.text += &format!("nuksm_{name}{labels} {value}\n");
        }
    }

    fn gauge<V: Display>(&mut self, name: &str, help: &str, value: Option<V>) {
        self.metric(name, "gauge", help, value.map(|value| (Vec::new(), value)));
    }

    fn counter<V: Display>(&mut self, name: &str, help: &str, value: Option<V>) {
        self.metric(name, "counter", help, value.map(|value| (Vec::new(), value)));
    }
}

/// A label's value may hold anything, a tenant's name does.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// All metrics.
pub fn page(root: &Root, sample: &Sample, shared: &Shared, max_tenants: usize) -> String {
    let mut page = Page::default();
    ksm(&mut page, sample);
    places(&mut page, root, shared, max_tenants);
    domains(&mut page, shared, max_tenants);
    work(&mut page, shared);
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let labels = vec![("version", version), ("kernel", sample.kernel.clone())];
    page.metric("build_info", "gauge", "The program's version and the kernel's release.", [(labels, 1)]);
    page.counter("cpu_seconds_total", "CPU time of nuksm itself.", Some(cost::process_cpu_seconds()));
    page.text
}

/// KSM's settings and counters.
fn ksm(page: &mut Page, sample: &Sample) {
    let (ksm, savings) = (&sample.ksm, &sample.savings);
    let bytes = |pages: Option<u64>| pages.map(|pages| pages * nuksm_pagemap::page_size());
    page.gauge("ksm_run", "0 stopped, 1 merging, 2 un-merged.", ksm.run);
    page.gauge("ksm_pages_to_scan", "Pages ksmd looks at before it sleeps.", ksm.pages_to_scan);
    let sleep = ksm.sleep_millisecs.map(|time| time as f64 / 1000.0);
    page.gauge("ksm_sleep_seconds", "How long ksmd then sleeps.", sleep);
    page.gauge("merged_bytes", "Memory of merged pages, once for all their users.", bytes(ksm.pages_shared));
    page.gauge("saved_bytes", "Memory freed by merging, zero pages apart.", Some(savings.saved_bytes));
    page.gauge(
        "zero_page_saved_bytes",
        "Memory freed by the kernel's page of zeroes.",
        Some(savings.zero_page_saved_bytes),
    );
    page.gauge("metadata_bytes", "Memory of KSM's own records.", savings.metadata_bytes);
    page.gauge(
        "net_saved_bytes",
        "Memory freed less KSM's own; negative for a loss.",
        savings.net_saved_bytes,
    );
    page.gauge("unshared_bytes", "Memory scanned that is unique.", bytes(ksm.pages_unshared));
    page.gauge("volatile_bytes", "Memory scanned that changes too fast.", bytes(ksm.pages_volatile));
    page.counter("scanned_pages_total", "Pages ksmd looked at.", ksm.pages_scanned);
    page.counter("skipped_pages_total", "Pages smart_scan skipped.", ksm.pages_skipped);
    page.counter("full_scans_total", "Times all mergeable memory was scanned.", ksm.full_scans);
    page.counter("ksmd_cpu_seconds_total", "CPU time of ksmd.", sample.ksmd_cpu_seconds);
    let Some(engine) = &sample.engine else {
        return;
    };
    let placed = [
        ("hot", engine.placed_hot),
        ("spread", engine.placed_spread),
        ("priority", engine.placed_priority),
        ("no_room", engine.placed_no_room),
    ];
    let placed = placed.into_iter().filter_map(|(by, count)| Some((vec![("by", by.to_owned())], count?)));
    page.metric("engine_placed_pages_total", "counter", "Decisions of the kernel's engine.", placed);
    page.counter("engine_migrated_pages_total", "Pages the engine moved.", engine.migrated);
    page.counter("engine_refused_pages_total", "Pages the engine could not move.", engine.migrate_refused);
    let seconds = engine.look_cpu_us.map(|us| us as f64 / 1e6);
    page.counter("engine_look_cpu_seconds_total", "CPU time of looking at merged pages.", seconds);
    let used = [("local", engine.used_local), ("remote", engine.used_remote)];
    let used =
        used.into_iter().filter_map(|(access, count)| Some((vec![("access", access.to_owned())], count?)));
    page.metric("engine_used_mappings_total", "counter", "Mappings that looks saw used.", used);
    let replicas = engine.replicas_by_node.iter().flat_map(|pages| &pages.0);
    let replicas =
        replicas.map(|(node, pages)| (vec![("node", node.to_string())], pages * nuksm_pagemap::page_size()));
    page.metric("engine_replica_bytes", "gauge", "Copies of merged pages for this node.", replicas);
    page.counter("engine_made_replicas_total", "Copies the engine made.", engine.replicas_made);
    page.counter("engine_folded_replicas_total", "Copies the engine gave up.", engine.replicas_folded);
    page.counter(
        "engine_domain_unmerged_pages_total",
        "Pages un-merged since their process left a merge domain.",
        engine.domain_unmerged,
    );
    page.gauge(
        "engine_refused_replicas",
        "Pages hot enough for a copy that have none.",
        engine.replicas_refused,
    );
}

/// Where pages are, as last seen; who exited since is not there any more.
fn places(page: &mut Page, root: &Root, shared: &Shared, max_tenants: usize) {
    let look = shared.look();
    let Some(look) = look.as_ref() else {
        return;
    };
    let size = nuksm_pagemap::page_size();
    let node = |node: u32| ("node", node.to_string());
    let access = |kind: &str| ("access", kind.to_owned());
    let rows = || look.nodes.iter();
    let merged = rows().map(|row| (vec![node(row.node)], row.merged_pages * size));
    page.metric("node_merged_bytes", "gauge", "Memory of merged pages with several users here.", merged);
    let free = rows().map(|row| (vec![node(row.node)], row.free_bytes));
    page.metric("node_free_bytes", "gauge", "Free memory.", free);
    let mappings = rows().flat_map(|row| {
        let label = |kind| vec![node(row.node), access(kind)];
        [(label("local"), row.local_mappings), (label("remote"), row.remote_mappings)]
    });
    let help = "Places that map merged pages of this node, by whether their tenant runs there.";
    page.metric("node_mappings", "gauge", help, mappings);

    let tenants = biggest(look.living(root), max_tenants);
    let of = |row: &TenantRow| {
        let pid = if row.pid == 0 { String::new() } else { row.pid.to_string() };
        vec![("tenant", row.name.clone()), ("pid", pid)]
    };
    let mapped = tenants.iter().flat_map(|row| {
        let label = |kind| [of(row), vec![access(kind)]].concat();
        [(label("local"), row.local_mappings), (label("remote"), row.remote_mappings)]
    });
    page.metric(
        "tenant_mappings",
        "gauge",
        "Places in its memory that map merged pages, on its node or another.",
        mapped,
    );
    let saved = tenants.iter().map(|row| (of(row), row.saved_bytes));
    page.metric("tenant_saved_bytes", "gauge", "The tenant's part of what merging saves.", saved);
    let tracked = tenants.iter().filter_map(|row| Some((of(row), row.tracked_pages?)));
    let help = "Pages that ksmd looks at for the tenant, merged or not.";
    page.metric("tenant_tracked_pages", "gauge", help, tracked);
    page.gauge("look_cpu_seconds", "CPU time of the last look at all merged pages.", Some(look.cpu_seconds));
    page.gauge("look_age_seconds", "Time since that look.", Some(look.at.elapsed().as_secs_f64()));
    page.gauge(
        "look_notes",
        "Things that the last look could not tell; see nuksm status.",
        Some(look.notes.len()),
    );
}

/// Merge domains, as last seen: the biggest, and the others as one.
fn domains(page: &mut Page, shared: &Shared, max_domains: usize) {
    let look = shared.look();
    let Some(domains) = look.as_ref().and_then(|look| look.domains.as_ref()) else {
        return;
    };
    // Two may have one name: a series is there once.
    let mut named = BTreeMap::<String, (u64, u64)>::new();
    for row in &domains.domains {
        let (saved, tenants) = named.entry(row.name.chars().take(LONGEST_NAME).collect()).or_default();
        *saved += row.saved_bytes;
        *tenants += row.tenants.len() as u64;
    }
    let mut rows: Vec<(String, u64, u64)> =
        named.into_iter().map(|(name, (saved, tenants))| (name, saved, tenants)).collect();
    rows.sort_by_key(|(name, saved, _)| (std::cmp::Reverse(*saved), name.clone()));
    let rest = rows.split_off(rows.len().min(max_domains));
    if !rest.is_empty() {
        let sum = |of: fn(&(String, u64, u64)) -> u64| rest.iter().map(of).sum();
        rows.push((OTHERS.into(), sum(|row| row.1), sum(|row| row.2)));
    }
    let of = |name: &str| vec![("domain", name.to_owned())];
    let saved = rows.iter().map(|(name, saved, _)| (of(name), *saved));
    page.metric("domain_saved_bytes", "gauge", "What merging saves in the domain.", saved);
    let tenants = rows.iter().map(|(name, _, tenants)| (of(name), *tenants));
    page.metric("domain_tenants", "gauge", "Processes in the domain.", tenants);
    page.gauge(
        "domains_leaving_tenants",
        "Processes that may still share in a domain that they left.",
        Some(domains.leaving()),
    );
    page.gauge(
        "domains_crossing_pages",
        "Merged pages that several domains map, but for those of who is leaving: none, if all is well.",
        Some(domains.border.crossing_pages),
    );
}

/// What `[domains]`, `[place]` and `[tune]` do.
fn work(page: &mut Page, shared: &Shared) {
    if let Some(divided) = shared.divided().as_ref() {
        page.counter("domains_passes_total", "Passes over all cgroups.", Some(divided.passes));
        page.counter("domains_failed_passes_total", "Passes that ended in an error.", Some(divided.failed));
        page.counter("domains_given_total", "Cgroups that were given another domain.", Some(divided.changes));
        page.gauge(
            "domains_refused_cgroups",
            "Cgroups that a rule names and that could not be given their domain.",
            Some(divided.refused),
        );
    }
    if let Some(placed) = shared.placed().as_ref() {
        page.counter("place_passes_total", "Passes over all merged pages.", Some(placed.passes));
        page.counter("place_failed_passes_total", "Passes that ended in an error.", Some(placed.failed));
        page.counter("place_moved_pages_total", "Pages moved.", Some(placed.moved));
        let refused =
            placed.refused.iter().map(|(reason, pages)| (vec![("reason", (*reason).to_owned())], *pages));
        page.metric("place_refused_pages_total", "counter", "Pages not moved, by reason.", refused);
        let help = "Pages that stayed in the last pass since their node is full.";
        page.gauge("place_waiting_pages", help, Some(placed.no_room));
    }
    page.counter("tune_changes_total", "Changes of ksmd's speed.", *shared.tuned());
}

/// The biggest tenants; the rest as one, with pid 0.
fn biggest(mut rows: Vec<TenantRow>, max_tenants: usize) -> Vec<TenantRow> {
    rows.sort_by_key(|row| (std::cmp::Reverse(row.merged_mappings), row.pid));
    let mut rest = rows.split_off(rows.len().min(max_tenants)).into_iter();
    if let Some(first) = rest.next() {
        let sum = TenantRow { name: OTHERS.into(), pid: 0, ..first };
        rows.push(rest.fold(sum, |sum, row| TenantRow {
            merged_mappings: sum.merged_mappings + row.merged_mappings,
            local_mappings: sum.local_mappings + row.local_mappings,
            remote_mappings: sum.remote_mappings + row.remote_mappings,
            saved_bytes: sum.saved_bytes + row.saved_bytes,
            tracked_pages: sum.tracked_pages.zip(row.tracked_pages).map(|(sum, pages)| sum + pages),
            ..sum
        }));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::super::look::{Divided, Look, Placed};
    use super::*;
    use crate::shared::sample::tests::sample;

    /// The machine of the view's tests, with all its tenants alive.
    fn shared() -> (tempfile::TempDir, Root, Shared) {
        let dir = tempfile::tempdir().unwrap();
        for pid in [10, 11, 12] {
            let proc = dir.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(&proc).unwrap();
            let stat = format!("{pid} (t) S {} 0 {}", vec!["0"; 15].join(" "), vec!["0"; 30].join(" "));
            std::fs::write(proc.join("stat"), stat).unwrap();
        }
        let mut view = crate::shared::view::tests::view();
        view.tenants[0].name = "a\"b\\c\nd".into();
        view.tenants[1].ksm.rmap_items = Some(9);
        let shared = Shared::default();
        let root = Root::at(dir.path());
        *shared.look() = Some(Look::new(&root, &view, 0.5));
        (dir, root, shared)
    }

    #[test]
    fn the_biggest_domains_have_series_of_their_own() {
        let (_dir, root, shared) = shared();
        let text = |most| page(&root, &sample(), &shared, most);
        assert!(!text(64).contains("nuksm_domain"), "this kernel has none");
        shared.look().as_mut().unwrap().domains = Some(crate::shared::domains::tests::domains());
        *shared.divided() = Some(Divided { passes: 4, changes: 2, ..Divided::default() });
        for line in [
            "nuksm_domain_saved_bytes{domain=\"acme\"} 9216",
            "nuksm_domain_tenants{domain=\"shared\"} 1",
            "nuksm_domains_leaving_tenants 1",
            "nuksm_domains_crossing_pages 0",
            "nuksm_domains_given_total 2",
        ] {
            assert!(text(64).lines().any(|other| other == line), "{line}");
        }
        assert!(text(1).contains("nuksm_domain_saved_bytes{domain=\"other\"} 3072\n"), "{}", text(1));
    }

    #[test]
    fn every_metric_has_help_a_type_and_a_unit_of_prometheus() {
        let (_dir, root, shared) = shared();
        *shared.placed() = Some(Placed { moved: 7, ..Placed::default() });
        *shared.tuned() = Some(3);
        let text = page(&root, &sample(), &shared, 64);
        let size = nuksm_pagemap::page_size();
        for line in [
            "# TYPE nuksm_merged_bytes gauge".to_owned(),
            format!("nuksm_merged_bytes {}", 3 * size),
            "nuksm_scanned_pages_total 5000".into(),
            "nuksm_ksm_sleep_seconds 0.02".into(),
            format!("nuksm_node_merged_bytes{{node=\"0\"}} {}", 2 * size),
            "nuksm_node_mappings{node=\"1\",access=\"remote\"} 2".into(),
            "nuksm_tenant_mappings{tenant=\"a\\\"b\\\\c\\nd\",pid=\"10\",access=\"local\"} 2".into(),
            "nuksm_tenant_tracked_pages{tenant=\"t11\",pid=\"11\"} 9".into(),
            format!("nuksm_tenant_saved_bytes{{tenant=\"t11\",pid=\"11\"}} {size}"),
            "nuksm_place_moved_pages_total 7".into(),
            "nuksm_tune_changes_total 3".into(),
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\nnot in\n{text}");
        }
        for line in text.lines().filter(|line| line.starts_with("# TYPE")) {
            let mut words = line.split(' ').skip(2);
            let (name, kind) = (words.next().unwrap(), words.next().unwrap());
            assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
        }
    }

    #[test]
    fn one_quantity_has_one_name_here_and_in_json() {
        let (_dir, root, shared) = shared();
        let sample = sample();
        let text = page(&root, &sample, &shared, 64);
        for (name, value) in serde_json::to_value(sample.savings).unwrap().as_object().unwrap() {
            let line = format!("nuksm_{name} {value}");
            assert!(text.lines().any(|found| found == line), "{line}\nnot in\n{text}");
        }
    }

    #[test]
    fn what_this_kernel_does_not_count_has_no_metric() {
        let (_dir, root, _) = shared();
        let text = page(&root, &sample(), &Shared::default(), 64);
        for absent in ["skipped", "engine", "node", "tenant", "place", "tune"] {
            assert!(!text.contains(&format!("nuksm_{absent}")), "{absent}\n{text}");
        }
    }

    #[test]
    fn the_dashboard_and_the_alerts_ask_for_metrics_that_exist() {
        let dashboard = include_str!("../../../../../packaging/grafana/nuksm.json");
        let alerts = include_str!("../../../../../packaging/prometheus/alerts.yml");
        let _: serde_json::Value = serde_json::from_str(dashboard).unwrap();
        let (_dir, root, shared) = shared();
        let refused = std::collections::BTreeMap::from([("busy", 1)]);
        *shared.placed() = Some(Placed { refused, ..Placed::default() });
        let mut sample = sample();
        sample.ksm.pages_skipped = Some(1);
        sample.engine = Some(crate::shared::sample::tests::engine());
        let text = page(&root, &sample, &shared, 64);
        for (file, least) in [(dashboard, 10), (alerts, 5)] {
            let mut asked = 0;
            for part in file.split("nuksm_").skip(1) {
                let name: String = part.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
                assert!(text.contains(&format!("# TYPE nuksm_{name} ")), "{name}");
                asked += 1;
            }
            assert!(asked > least, "{asked}");
        }
    }

    #[test]
    fn beyond_the_biggest_tenants_are_one() {
        let (_dir, root, shared) = shared();
        let text = page(&root, &sample(), &shared, 1);
        assert_eq!(text.matches("nuksm_tenant_mappings{").count(), 2 * 2);
        let others = |access, mappings| {
            format!("nuksm_tenant_mappings{{tenant=\"other\",pid=\"\",access=\"{access}\"}} {mappings}\n")
        };
        assert!(text.contains(&others("local", 1)) && text.contains(&others("remote", 2)), "{text}");
    }
}
