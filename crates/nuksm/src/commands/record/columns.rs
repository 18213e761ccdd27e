// SPDX-License-Identifier: GPL-2.0-only
//! The columns of a recording in CSV.

use crate::shared::recording::Header;
use crate::shared::sample::Sample;

/// All columns of a sample: name and value, which is empty for what is unknown.
///
/// Each row says whose it is, so that the file is a plain table and tables of
/// several hosts can be joined. KSM's counters are named as their files in sysfs.
pub fn columns(header: &Header, sample: &Sample) -> Vec<(String, String)> {
    let mut columns = Columns::default();
    columns.add("host", Some(&header.host));
    columns.add("kernel", Some(&header.kernel));
    columns.add("page_bytes", Some(header.page_bytes));
    columns.add("start_unix_seconds", Some(header.start_unix_time));
    columns.add("unix_seconds", Some(sample.unix_time));

    let ksm = &sample.ksm;
    columns.add("run", ksm.run);
    columns.add("pages_to_scan", ksm.pages_to_scan);
    columns.add("sleep_millisecs", ksm.sleep_millisecs);
    columns.add("pages_shared", ksm.pages_shared);
    columns.add("pages_sharing", ksm.pages_sharing);
    columns.add("pages_unshared", ksm.pages_unshared);
    columns.add("pages_volatile", ksm.pages_volatile);
    columns.add("pages_scanned", ksm.pages_scanned);
    columns.add("pages_skipped", ksm.pages_skipped);
    columns.add("full_scans", ksm.full_scans);
    columns.add("ksm_zero_pages", ksm.ksm_zero_pages);
    columns.add("saved_bytes", Some(sample.savings.saved_bytes));
    columns.add("zero_page_saved_bytes", Some(sample.savings.zero_page_saved_bytes));
    columns.add("metadata_bytes", sample.savings.metadata_bytes);
    columns.add("net_saved_bytes", sample.savings.net_saved_bytes);
    columns.add("ksmd_cpu_seconds", sample.ksmd_cpu_seconds);

    // On a stock kernel nobody expects them.
    if let Some(engine) = &sample.engine {
        columns.add("used_local", engine.used_local);
        columns.add("used_remote", engine.used_remote);
        columns.add("replicas", engine.replicas());
        columns.add("replica_bytes", sample.replica_bytes);
    }

    let load = &sample.load;
    columns.add("cpu_busy_seconds", load.cpu_busy_seconds);
    columns.add("cpu_total_seconds", load.cpu_total_seconds);
    columns.add("memory_used_bytes", load.memory_used_bytes);
    columns.add("memory_total_bytes", load.memory_total_bytes);

    for row in sample.nodes.iter().flatten() {
        let node = row.node;
        columns.add(&format!("node{node}_merged_pages"), Some(row.merged_pages));
        columns.add(&format!("node{node}_local_mappings"), Some(row.local_mappings));
        columns.add(&format!("node{node}_remote_mappings"), Some(row.remote_mappings));
        columns.add(&format!("node{node}_free_bytes"), Some(row.free_bytes));
    }
    columns.0
}

#[derive(Default)]
struct Columns(Vec<(String, String)>);

impl Columns {
    fn add(&mut self, name: &str, value: Option<impl ToString>) {
        self.0.push((name.to_owned(), value.map(|value| value.to_string()).unwrap_or_default()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::recording::header::tests::header;
    use crate::shared::sample::tests::sample;

    #[test]
    fn one_quantity_has_one_name_here_and_in_json() {
        let columns = columns(&header(), &sample());
        for (name, value) in serde_json::to_value(sample().savings).unwrap().as_object().unwrap() {
            assert!(columns.contains(&(name.clone(), value.to_string())), "{name} {value}: {columns:?}");
        }
    }

    #[test]
    fn the_unknown_is_an_empty_cell_and_nodes_have_columns_of_their_own() {
        let mut sample = sample();
        let cell = |sample: &Sample, name: &str| {
            let found = columns(&header(), sample).into_iter().find(|(column, _)| column == name);
            found.map(|(_, value)| value)
        };
        assert_eq!(cell(&sample, "host").unwrap(), "big,host");
        assert_eq!(cell(&sample, "pages_sharing").unwrap(), "4");
        assert_eq!(cell(&sample, "pages_skipped").unwrap(), "", "not a zero");
        assert_eq!(cell(&sample, "node0_merged_pages"), None);
        sample.place(&crate::shared::view::tests::view());
        assert_eq!(cell(&sample, "node1_remote_mappings").unwrap(), "2");
    }

    #[test]
    fn the_engine_has_columns_where_there_is_one() {
        let of_engine = |sample: &Sample| {
            let names = ["used_local", "used_remote", "replicas", "replica_bytes"];
            let found =
                columns(&header(), sample).into_iter().filter(|(name, _)| names.contains(&name.as_str()));
            found.map(|(_, value)| value).collect::<Vec<_>>()
        };
        let mut sample = sample();
        assert_eq!(of_engine(&sample), [""; 0]);
        sample.engine = Some(crate::shared::sample::tests::engine());
        sample.replica_bytes = Some(81_920);
        assert_eq!(of_engine(&sample), ["9000", "1000", "20", "81920"]);
        (sample.engine, sample.replica_bytes) = (Some(nuksm_ksmfs::Engine::default()), None);
        assert_eq!(of_engine(&sample), [""; 4], "for root only");
    }
}
