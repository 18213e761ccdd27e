// SPDX-License-Identifier: GPL-2.0-only
//! `nuksm sharing`: who shares with whom.

use crate::shared::domains::Border;
use crate::shared::output::{self, Table, known, percent};
use crate::shared::pairs::Sharing;
use crate::shared::privilege;
use crate::shared::view::{self, View};
use anyhow::Result;
use clap::Args;
use nuksm_sysroot::Root;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::process::ExitCode;

/// Show which tenants share merged pages with which, and over which nodes.
#[derive(Debug, Args)]
#[command(after_help = "Example: nuksm sharing --json | jq '.pairs[] | select(.pages > 1000)'")]
pub struct SharingArgs {
    /// Print JSON instead of tables.
    #[arg(long)]
    pub json: bool,
}

/// Tenants that fit into a terminal's matrix; --json has all.
const MATRIX: usize = 10;

#[derive(Debug, Serialize)]
struct Report {
    merged_pages: u64,
    /// Those of them that went while they were looked at, or whose process is silent.
    pages_of_unknown_node: u64,
    tenants: Vec<TenantRow>,
    /// Each two tenants that share anything, in the order of `tenants`.
    pairs: Sharing,
    nodes: Vec<NodeRow>,
    /// Merged pages by the number of nodes whose tenants use them.
    pages_by_node_count: BTreeMap<usize, u64>,
    /// What crosses borders of merge domains; `None` where there are none, or they are not
    /// to be known.
    border: Option<Border>,
}

#[derive(Debug, Serialize)]
struct TenantRow {
    pid: u32,
    name: String,
    node: Option<u32>,
    /// Its merge domain; `None` as for `border`.
    domain: Option<u64>,
    /// Distinct merged pages it uses.
    pages: u64,
    /// Those, by the node they are on, where that is known.
    pages_on_node: BTreeMap<u32, u64>,
}

#[derive(Debug, Serialize)]
struct NodeRow {
    node: u32,
    /// Merged pages that are here.
    pages: u64,
    /// Merged pages that tenants of this node use.
    used_pages: u64,
    /// Those of them that tenants of another node use as well, by that node.
    used_together_with: BTreeMap<u32, u64>,
}

/// Prints the report.
pub fn run(root: &Root, args: &SharingArgs) -> Result<ExitCode> {
    view::require_ksm(root)?;
    privilege::require(root, "seeing who shares which page", false)?;
    let view = View::collect(root, &|| false)?;
    view.warn();
    let report = Report::new(&view);
    output::print_report(args.json, &report, Report::text)?;
    Ok(ExitCode::SUCCESS)
}

impl Report {
    fn new(view: &View) -> Self {
        let pages_per_node = view.pages_per_node();
        let tenants = pages_by_node(view, &pages_per_node);
        let tenants = view.tenants.iter().zip(tenants).map(|(tenant, (pages, pages_on_node))| TenantRow {
            pid: tenant.pid,
            name: tenant.name.clone(),
            node: tenant.node,
            domain: tenant.ksm.domain,
            pages,
            pages_on_node,
        });

        let homes: Vec<Option<u32>> = view.tenants.iter().map(|tenant| tenant.node).collect();
        let mut used = BTreeMap::<u32, u64>::new();
        let mut together = BTreeMap::<(u32, u32), u64>::new();
        let mut pages_by_node_count = BTreeMap::new();
        for (set, pages) in view.sets.iter().zip(view.pages_per_set()) {
            let nodes: BTreeSet<u32> = set.iter().filter_map(|&tenant| homes[tenant as usize]).collect();
            *pages_by_node_count.entry(nodes.len()).or_default() += pages;
            for &node in &nodes {
                *used.entry(node).or_default() += pages;
                for &other in nodes.iter().filter(|&&other| other != node) {
                    *together.entry((node, other)).or_default() += pages;
                }
            }
        }
        let nodes = pages_per_node.iter().map(|(&node, &pages)| NodeRow {
            node,
            pages,
            used_pages: used.get(&node).copied().unwrap_or(0),
            used_together_with: together
                .range((node, 0)..=(node, u32::MAX))
                .map(|(&(_, other), &pages)| (other, pages))
                .collect(),
        });
        Self {
            merged_pages: view.pages.len() as u64,
            pages_of_unknown_node: view.pages_of_unknown_node(),
            pairs: Sharing::new(view),
            nodes: nodes.collect(),
            pages_by_node_count,
            border: view.tenants.iter().any(|tenant| tenant.ksm.domain.is_some()).then(|| Border::new(view)),
            tenants: tenants.collect(),
        }
    }

    fn text(&self) -> String {
        let mut text = format!("Merged pages with several users: {}\n", self.merged_pages);
        for (count, pages) in &self.pages_by_node_count {
            let nodes = if *count == 1 { "node" } else { "nodes" };
            text +=
                &format!("  used from {count} {nodes}: {pages} ({} %)\n", percent(*pages, self.merged_pages));
        }
        if self.pages_of_unknown_node > 0 {
            text += &format!(
                "  on an unknown node: {} ({} %), gone while they were looked at\n",
                self.pages_of_unknown_node,
                percent(self.pages_of_unknown_node, self.merged_pages)
            );
        }
        if let Some(Border { leaving_pages, crossing_pages }) = self.border {
            text += &format!(
                "  used from several merge domains: {crossing_pages}{}\n",
                if crossing_pages == 0 { "" } else { ": THERE SHOULD BE NONE" }
            );
            if leaving_pages > 0 {
                text += &format!(
                    "  used from several by who is leaving one: {leaving_pages}, for two scans at most\n"
                );
            }
        }
        if self.merged_pages == 0 {
            text += "  (none yet: `nuksm doctor` says why)\n";
            return text;
        }

        text += "\nMerged pages by node\n";
        let all_nodes = self.nodes.iter().map(|row| row.node);
        let mut heading = vec!["node".into(), "pages there".into(), "used by its tenants".into()];
        heading.extend(all_nodes.clone().map(|node| format!("and by node {node}")));
        let mut table = Table::with_heading(1, heading);
        for row in &self.nodes {
            let mut cells = vec![row.node.to_string(), row.pages.to_string(), row.used_pages.to_string()];
            let others = all_nodes.clone().map(|other| {
                if other == row.node {
                    "-".into()
                } else {
                    row.used_together_with.get(&other).unwrap_or(&0).to_string()
                }
            });
            cells.extend(others);
            table.row(cells);
        }
        text += &table.render();

        text += "\nMerged pages by tenant: where they are, and shared with whom\n";
        let mut rows: Vec<&TenantRow> = self.tenants.iter().filter(|row| row.pages > 0).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.pages));
        let shown = &rows[..rows.len().min(MATRIX)];
        let mut heading: Vec<String> = ["tenant", "pid", "runs on", "pages"].map(Into::into).into();
        heading.extend(all_nodes.clone().map(|node| format!("on node {node}")));
        heading.extend(shown.iter().map(|row| format!("with {}", row.pid)));
        let mut table = Table::with_heading(1, heading);
        for row in shown {
            let partners = self.pairs.partners(row.pid);
            let with: HashMap<u32, u64> = partners.into_iter().map(|(pid, _, pages)| (pid, pages)).collect();
            let mut cells =
                vec![row.name.clone(), row.pid.to_string(), known(row.node), row.pages.to_string()];
            cells.extend(row.pages_on_node.values().map(ToString::to_string));
            cells.extend(shown.iter().map(|other| {
                if other.pid == row.pid { "-".into() } else { with.get(&other.pid).unwrap_or(&0).to_string() }
            }));
            table.row(cells);
        }
        text += &table.render();
        if rows.len() > shown.len() {
            text += &format!("  … and {} more tenants: --json shows all\n", rows.len() - shown.len());
        }
        text
    }
}

/// The pages that each tenant uses: all, and by the node they are on. Plain tables, a
/// column per node and one for no known node: of many sets and tenants, maps take more
/// time than the rest of the report.
fn pages_by_node(view: &View, nodes: &BTreeMap<u32, u64>) -> Vec<(u64, BTreeMap<u32, u64>)> {
    let nodes: Vec<u32> = nodes.keys().copied().collect();
    let width = nodes.len() + 1;
    let mut of_sets = vec![0; view.sets.len() * width];
    for page in &view.pages {
        let column = nodes.partition_point(|&node| node < page.node);
        of_sets[page.set as usize * width + column] += 1;
    }
    let mut of_tenants = vec![0; view.tenants.len() * width];
    for (set, of_set) in view.sets.iter().zip(of_sets.chunks(width)) {
        for &tenant in set {
            for (pages, more) in of_tenants[tenant as usize * width..].iter_mut().zip(of_set) {
                *pages += more;
            }
        }
    }
    let row =
        |pages: &[u64]| (pages.iter().sum(), nodes.iter().copied().zip(pages.iter().copied()).collect());
    of_tenants.chunks(width).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::cost::tests::least_cpu_seconds;
    use crate::shared::pairs::tests::ADDITIONS;
    use crate::shared::view::tests::crowd;
    use std::fs::File;
    use std::hint::black_box;

    #[test]
    fn pairs_nodes_and_tenants_are_counted_by_page() {
        let report = Report::new(&crate::shared::view::tests::view());
        let pairs: Vec<_> = report.pairs.pairs().map(|pair| (pair.pids, pair.pages)).collect();
        assert_eq!(pairs, [([10, 11], 2), ([10, 12], 1)]);
        assert_eq!(report.tenants[0].pages, 3, "a page mapped twice by a tenant counts once");
        assert_eq!(report.pages_by_node_count, BTreeMap::from([(2, 3)]));
        assert_eq!((report.nodes[0].pages, report.nodes[0].used_pages), (2, 3));
        assert_eq!(report.nodes[1].used_together_with, BTreeMap::from([(0, 3)]));
    }

    #[test]
    fn pages_of_an_unknown_node_are_on_no_node_and_told() {
        let mut view = crate::shared::view::tests::view();
        view.pages[0].node = view::UNKNOWN_NODE;
        let report = Report::new(&view);
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!((&json["pages_of_unknown_node"], &json["tenants"][0]["pages"]), (&1.into(), &3.into()));
        assert_eq!(json["tenants"][0]["pages_on_node"], serde_json::json!({"0": 1, "1": 1}));
        assert!(!json.to_string().contains("4294967295"), "{json}");
        let text = report.text();
        assert!(
            !text.contains("4294967295") && text.contains("  on an unknown node: 1 (33.3 %), "),
            "{text}"
        );
        let places = crate::shared::sample::Places::new(&view);
        assert!(places.notes.iter().any(|note| note.starts_with("1 merged pages are on an unknown node")));
    }

    #[test]
    fn the_text_as_users_see_it() {
        let text = Report::new(&crate::shared::view::tests::view()).text();
        let expected = "\
Merged pages with several users: 3
  used from 2 nodes: 3 (100.0 %)

Merged pages by node
  node  pages there  used by its tenants  and by node 0  and by node 1
  0               2                    3              -              3
  1               1                    3              3              -

Merged pages by tenant: where they are, and shared with whom
  tenant  pid  runs on  pages  on node 0  on node 1  with 10  with 11  with 12
  t10      10        0      3          2          1        -        2        1
  t11      11        1      2          2          0        2        -        0
  t12      12        1      1          0          1        1        0        -
";
        assert_eq!(text, expected);
    }

    #[test]
    fn that_nothing_crosses_borders_is_said_where_there_are_any() {
        let mut view = crate::shared::view::tests::view();
        for tenant in &mut view.tenants {
            tenant.ksm.domain = Some(7);
        }
        let text = Report::new(&view).text();
        assert!(text.contains("  used from several merge domains: 0\n"), "{text}");
        view.tenants[0].ksm.domain = Some(8);
        let text = Report::new(&view).text();
        assert!(text.contains("  used from several merge domains: 3: THERE SHOULD BE NONE\n"), "{text}");
        view.tenants[0].ksm.domain_left = Some(7);
        let report = Report::new(&view);
        assert!(report.text().contains("by who is leaving one: 3,"), "{}", report.text());
        assert_eq!(serde_json::to_value(&report).unwrap()["tenants"][0]["domain"], 8);
    }

    #[test]
    fn json_lists_each_two_that_share() {
        let json = serde_json::to_value(Report::new(&crate::shared::view::tests::view())).unwrap();
        let pairs = serde_json::json!([
            {"pids": [10, 11], "names": ["t10", "t11"], "pages": 2},
            {"pids": [10, 12], "names": ["t10", "t12"], "pages": 1}
        ]);
        assert_eq!(json["pairs"], pairs);
    }

    #[test]
    fn tables_ask_only_for_those_they_show() {
        let sets = 20_000;
        let report = Report::new(&crowd(200, 2, sets));
        let before = ADDITIONS.get();
        assert!(report.text().contains("… and 190 more tenants"));
        let additions = ADDITIONS.get() - before;
        assert!((1..sets as usize / 2).contains(&additions), "{additions}");
    }

    /// `cargo test --release --package nuksm measure_sharing -- --ignored --nocapture`
    #[test]
    #[ignore = "a measurement: it takes a minute"]
    #[allow(clippy::print_stdout)]
    fn measure_sharing_over_tenants() {
        println!(
            "tenants sharers    sets    pairs  ms: pairs  --json  tables  top   ns a pair: pairs  --json"
        );
        for (tenants, sharers, sets) in
            [(64, 64, 16_000), (1_000, 4, 16_000), (4_000, 4, 64_000), (16_000, 4, 256_000)]
        {
            let view = crowd(tenants, sharers, sets);
            let sharing = Sharing::new(&view);
            let pairs = sharing.pairs().count();
            let listing = least_cpu_seconds(|| {
                black_box(sharing.pairs().map(black_box).count());
            });
            let json = least_cpu_seconds(|| {
                let out = File::create("/dev/null").unwrap();
                output::write_json(&Report::new(&view), out).unwrap();
            });
            let tables = least_cpu_seconds(|| drop(black_box(Report::new(&view).text())));
            let top = least_cpu_seconds(|| drop(black_box(sharing.partners(100))));
            let ns = |seconds: f64| seconds * 1e9 / pairs as f64;
            println!(
                "{tenants:7} {sharers:7} {sets:7} {pairs:8} {:10.1} {:7.1} {:7.1} {:4.1} {:18.1} {:7.1}",
                listing * 1e3,
                json * 1e3,
                tables * 1e3,
                top * 1e3,
                ns(listing),
                ns(json)
            );
        }
    }
}
