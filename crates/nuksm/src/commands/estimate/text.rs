// SPDX-License-Identifier: GPL-2.0-only
//! The report for people.

use super::report::{Borders, BudgetRow, Count, DomainRow, Remote, Replicas, Report, SavingRow, TenantRow};
use crate::shared::output::{Table, bytes, known};
use nuksm_model::estimate::Figure;

/// Tenants and pairs that fit on a screen; --json has all.
const ROWS: usize = 20;

/// The report's text.
pub fn text(report: &Report) -> String {
    let totals = &report.totals;
    let switch = u8::from(report.use_zero_pages);
    let mut text = format!(
        "If all {} of anonymous memory were merged (max_page_sharing {}, use_zero_pages {switch})\n",
        size(totals.pages * report.page_size),
        report.max_page_sharing,
    );
    if report.sampled < 1.0 {
        text += &format!("  from a sample of one content in {:.0}; ± is for 95 %\n", 1.0 / report.sampled);
    }

    text += "\nSaved\n";
    text += &savings(report);
    if let Some(already) = totals.already_shared_pages.filter(|already| already.high > 0) {
        let already = scaled(already, report.page_size);
        text += &format!("  {} of that is shared already: merged before, or since a fork\n", amount(already));
    }

    text += "\nTenants: their pages, and their part of what is saved\n";
    let mut rows: Vec<&TenantRow> = report.tenants.iter().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.saved_pages.value));
    let shown = &rows[..rows.len().min(ROWS)];
    let more = if rows.len() > shown.len() {
        format!("  … and {} more tenants: --json shows all\n", rows.len() - shown.len())
    } else {
        String::new()
    };
    let mut table = Table::new(2, ["tenant", "source", "node", "pages", "zero", "unique", "saved"]);
    for row in shown {
        table.row([
            row.name.clone(),
            row.source.clone(),
            known(row.node),
            row.pages.to_string(),
            row.zero_pages.to_string(),
            count(row.unique_pages),
            count(row.saved_pages),
        ]);
    }
    text += &table.render();
    text += &more;
    if totals.within_nodes.is_some() {
        text += &remote(shown);
        text += &more;
    }
    text += &report.domains.as_ref().map(|of| borders(of, report.page_size)).unwrap_or_default();
    text += &report.replicas.as_ref().map(replicas).unwrap_or_default();
    text += &pairs(report);
    if totals.vanished_pages > 0 {
        text += &format!("\nNote: {} pages were gone before they could be read\n", totals.vanished_pages);
    }
    for note in &report.notes {
        text += &format!("\nNote: {note}\n");
    }
    text
}

fn savings(report: &Report) -> String {
    let across = &report.totals.across_nodes;
    let within = report.totals.within_nodes.as_ref();
    let page_size = report.page_size;
    let mut table = Table::new(1, ["", "across nodes", "within nodes"]);
    let mut row = |name: &str, cell: &dyn Fn(&SavingRow) -> String| {
        table.row([name.into(), cell(across), known(within.map(cell))]);
    };
    row("merged", &|saving| amount(scaled(saving.saved_pages, page_size)));
    row("zero pages", &|saving| size(saving.zero_pages * page_size));
    row("KSM's records", &|saving| bytes(0_i64.saturating_sub_unsigned(saving.metadata_bytes)));
    row("net", &|saving| amount(saving.net_saved_bytes));
    table.render()
}

fn remote(tenants: &[&TenantRow]) -> String {
    let mut text =
        String::from("\nRemote part of its merged pages, in percent, by placement (across nodes)\n");
    let mut table = Table::new(
        2,
        ["tenant", "source", "node", "merged pages", "first, this order", "first, worst", "fair", "priority"],
    );
    for row in tenants {
        let shares: [fn(&Remote) -> Figure; 4] = [|r| r.first, |r| r.first_worst, |r| r.fair, |r| r.priority];
        let mut cells =
            vec![row.name.clone(), row.source.clone(), known(row.node), count(row.merged_mappings)];
        cells.extend(
            shares.map(|share| row.remote.as_ref().map_or_else(|| "-".into(), |r| percent(share(r)))),
        );
        table.row(cells);
    }
    text += &table.render();
    text += "  first: the kernel leaves it to the order of its scan; within nodes all of it is local\n";
    text
}

fn borders(borders: &Borders, page_size: u64) -> String {
    let mut text =
        String::from("\nSaved where tenants of different merge domains never share (across nodes)\n");
    let mut table = Table::new(1, ["domain", "tenants", "pages", "saved"]);
    let mut rows: Vec<&DomainRow> = borders.domains.iter().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.saved_pages.value));
    let memory = |pages| amount(scaled(pages, page_size));
    for row in rows.iter().take(ROWS) {
        table.row([
            row.name.clone(),
            row.tenants.to_string(),
            row.pages.to_string(),
            memory(row.saved_pages),
        ]);
    }
    let mut sum = |name: &str, pages| {
        table.row([name.to_owned(), String::new(), String::new(), memory(pages)]);
    };
    sum("all together", borders.saved_pages);
    sum("borders cost", borders.border_pages);
    text += &table.render();
    if borders.border_zero_pages > 0 {
        let zero = i64::try_from(borders.border_zero_pages).unwrap_or(i64::MAX);
        let zero = Count { value: zero, low: zero, high: zero };
        text += &format!("  and {} of zeroes: use_zero_pages would save those\n", memory(zero));
    }
    if rows.len() > ROWS {
        text += &format!("  … and {} more domains: --json shows all\n", rows.len() - ROWS);
    }
    text
}

fn replicas(replicas: &Replicas) -> String {
    let mut text = String::from("\nWhat replicas would buy, by their part of what is saved (across nodes)\n");
    let mut table = Table::new(1, ["", "replicas", "memory", "local part of uses, %"]);
    let mut row = |name: String, row: &BudgetRow| {
        let local = row.local.map(|part| format!("{:.1}", part * 100.0));
        table.row([name, row.replica_pages.to_string(), size(row.replica_bytes), known(local)]);
    };
    row("none".into(), &replicas.one_copy);
    for budget in &replicas.budgets {
        row(format!("{} %", known(budget.percent)), budget);
    }
    row("as hot pages want".into(), &replicas.all);
    text += &table.render();
    text += &format!(
        "  of {} uses, seen in {} windows of {} ms; hot: used in {} of them or more\n",
        replicas.uses, replicas.windows, replicas.window_ms, replicas.hot_windows
    );
    text += "  without what stays in a CPU's TLB all the time: the kernel does not see it\n";
    if replicas.used_by_unknown_pages > 0 {
        text += &format!(
            "  without {} pages that are in use and share a frame with others already: whose use that is, \
             nobody tells\n",
            replicas.used_by_unknown_pages
        );
    }
    if replicas.unseen_pages > 0 {
        text += &format!(
            "  without {} pages whose use cannot be seen, as inside of huge pages\n",
            replicas.unseen_pages
        );
    }
    text
}

fn pairs(report: &Report) -> String {
    let mut text = String::from("\nMerged pages that two tenants would share\n");
    if report.pairs.is_empty() {
        text += "  none: no two tenants have a page in common\n";
        return text;
    }
    let mut table = Table::new(4, ["tenant", "source", "with tenant", "source", "pages"]);
    for pair in report.pairs.iter().take(ROWS) {
        let [left, right] = pair.tenants.map(|tenant| &report.tenants[tenant as usize]);
        table.row([
            left.name.clone(),
            left.source.clone(),
            right.name.clone(),
            right.source.clone(),
            count(pair.pages),
        ]);
    }
    text += &table.render();
    if report.pairs.len() > ROWS {
        text += &format!("  … and {} more pairs: --json shows all\n", report.pairs.len() - ROWS);
    }
    text
}

fn size(value: u64) -> String {
    bytes(i64::try_from(value).unwrap_or(i64::MAX))
}

fn scaled(pages: Count, page_size: u64) -> Count {
    let scale = |pages: i64| pages.saturating_mul(i64::try_from(page_size).unwrap_or(i64::MAX));
    Count { value: scale(pages.value), low: scale(pages.low), high: scale(pages.high) }
}

/// A number, and how far it may be off.
fn count(count: Count) -> String {
    with_error(count.value.to_string(), (count.error() > 0).then(|| count.error().to_string()))
}

/// An amount of bytes, likewise.
fn amount(count: Count) -> String {
    with_error(bytes(count.value), (count.error() > 0).then(|| bytes(count.error())))
}

fn percent(part: Figure) -> String {
    let error = (part.high - part.value).max(part.value - part.low);
    with_error(format!("{:.1}", part.value * 100.0), (error > 0.0).then(|| format!("{:.1}", error * 100.0)))
}

fn with_error(value: String, error: Option<String>) -> String {
    match error {
        Some(error) => format!("{value} ±{error}"),
        None => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::estimate::gather::Gathered;
    use crate::commands::estimate::uses::{Used, Watch};
    use nuksm_fingerprint::Label;
    use nuksm_model::estimate::{Contents, Settings, Tenant};

    /// Two tenants of 1000 pages and 24 zero pages each, that have 500 contents
    /// in common; 30 frames are shared already.
    fn gathered(zero_bits: u32) -> Gathered {
        let mut contents = Contents::new(1 << 20, zero_bits);
        let mut frames = Contents::new(1 << 20, zero_bits);
        for page in 1..=1000_u64 {
            for tenant in 0..2_u32 {
                let number = if page <= 500 { page } else { page + 1000 * u64::from(tenant) };
                contents.add(tenant, number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                if page <= 30 {
                    frames.add(tenant, page.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                }
            }
        }
        let label = |name: &str, node| Label {
            tenant: name.into(),
            source: format!("pid 10{node}"),
            node: Some(node),
            nice: 0,
        };
        let tenant = |node| Tenant { node: Some(node), nice: 0, pages: 1000, zero_pages: 24 };
        Gathered {
            labels: vec![(label("web", 0), Some(100)), (label("db", 1), Some(101))],
            tenants: vec![tenant(0), tenant(1)],
            contents,
            frames,
            shared_places: 60,
            cut_short: Vec::new(),
            frames_known: true,
            vanished: 3,
            unread: Vec::new(),
            domains: None,
            used: None,
            use_unknown: None,
            zero_already: 0,
        }
    }

    const SETTINGS: Settings = Settings { max_page_sharing: 256, use_zero_pages: true, page_size: 4096 };

    fn report(zero_bits: u32) -> Report {
        Report::new(gathered(zero_bits), SETTINGS, vec!["something else".into()])
    }

    #[test]
    fn the_text_as_users_see_it() {
        let expected = "\
If all 8.0 MiB of anonymous memory were merged (max_page_sharing 256, use_zero_pages 1)

Saved
                 across nodes  within nodes
  merged              2.0 MiB       0.0 KiB
  zero pages        192.0 KiB     192.0 KiB
  KSM's records    -125.0 KiB    -125.0 KiB
  net                 2.0 MiB      67.0 KiB
  120.0 KiB of that is shared already: merged before, or since a fork

Tenants: their pages, and their part of what is saved
  tenant  source   node  pages  zero  unique  saved
  web     pid 100     0   1024    24     500    250
  db      pid 101     1   1024    24     500    250

Remote part of its merged pages, in percent, by placement (across nodes)
  tenant  source   node  merged pages  first, this order  first, worst  fair  priority
  web     pid 100     0           500              100.0         100.0  50.0      50.0
  db      pid 101     1           500                0.0         100.0  50.0      50.0
  first: the kernel leaves it to the order of its scan; within nodes all of it is local

Merged pages that two tenants would share
  tenant  source   with tenant  source   pages
  web     pid 100  db           pid 101    500

Note: 3 pages were gone before they could be read

Note: something else
";
        assert_eq!(text(&report(0)), expected);
    }

    #[test]
    fn what_merge_domains_cost_as_users_see_it() {
        let with = |domains: [&str; 2]| {
            let domains = Some(domains.map(Into::into).into());
            text(&Report::new(Gathered { domains, ..gathered(0) }, SETTINGS, Vec::new()))
        };
        let expected = "
Saved where tenants of different merge domains never share (across nodes)
  domain        tenants  pages    saved
  acme                1   1000  0.0 KiB
  shared              1   1000  0.0 KiB
  all together                  0.0 KiB
  borders cost                  2.0 MiB
";
        let shown = with(["shared", "acme"]);
        assert!(shown.contains(expected), "{shown}");
        let shown = with(["acme", "acme"]);
        assert!(shown.contains("  acme                2   2000  2.0 MiB\n"), "{shown}");
        assert!(shown.contains("  borders cost                  0.0 KiB\n"), "{shown}");
    }

    /// The same two tenants, of which both use the first 100 of their common contents, web all
    /// the time and db half of it.
    fn with_use(used: impl FnOnce(&mut Used)) -> Report {
        let mut contents = Contents::new(1 << 20, 0);
        let mut of_both = Used::new(Watch::default(), "2,10".parse().unwrap(), 1 << 20, 0);
        for page in 1..=500_u64 {
            for tenant in 0..2_u32 {
                contents.add(tenant, page);
                if page <= 100 {
                    of_both.hot.add_times(tenant, page, 8 - 4 * tenant);
                }
            }
        }
        used(&mut of_both);
        let gathered = Gathered { contents, used: Some(of_both), ..gathered(0) };
        Report::new(gathered, SETTINGS, Vec::new())
    }

    #[test]
    fn what_replicas_would_buy_as_users_see_it() {
        let expected = "
What replicas would buy, by their part of what is saved (across nodes)
                     replicas     memory  local part of uses, %
  none                      0    0.0 KiB                   50.0
  2 %                      10   40.0 KiB                   55.0
  10 %                     50  200.0 KiB                   75.0
  as hot pages want       100  400.0 KiB                  100.0
  of 1200 uses, seen in 8 windows of 100 ms; hot: used in 4 of them or more
  without what stays in a CPU's TLB all the time: the kernel does not see it

Merged pages that two tenants would share
";
        let shown = text(&with_use(|_| {}));
        assert!(shown.contains(expected), "{shown}");
        let shown = text(&with_use(|used| (used.unseen, used.by_whom) = (7, 9)));
        assert!(
            shown.contains("\n  without 9 pages that are in use and share a frame with others already"),
            "{shown}"
        );
        assert!(shown.contains("\n  without 7 pages whose use cannot be seen"), "{shown}");
        let shown = text(&with_use(|used| used.hot = Contents::new(0, 0)));
        assert!(
            shown.contains("  as hot pages want         0  0.0 KiB                      -\n  of 0 uses"),
            "{shown}"
        );
        let json = serde_json::to_value(with_use(|_| {})).unwrap();
        let budget = serde_json::json!({
            "percent": 2, "replica_pages": 10, "replica_bytes": 40_960, "local": 0.55
        });
        assert_eq!(
            (&json["replicas"]["budgets"][0], &json["replicas"]["all"]["percent"]),
            (&budget, &serde_json::Value::Null)
        );
        assert!(serde_json::to_value(report(0)).unwrap()["replicas"].is_null(), "nobody asked");
    }

    #[test]
    fn samples_have_their_bounds_beside_them() {
        let text = text(&report(2));
        assert!(text.contains("one content in 4; ± is for 95 %"), "{text}");
        let merged = text.lines().find(|line| line.contains("merged  ")).unwrap();
        assert!(merged.contains(" ±"), "{merged}");
        assert!(text.contains("1024    24"), "pages are counted: {text}");
    }
}
