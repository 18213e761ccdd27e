// SPDX-License-Identifier: GPL-2.0-only
//! What the engine (a kernel with `CONFIG_NUKSM`) adds to KSM's files.

use crate::control::DIR;
use nuksm_sysroot::{Result, Root};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::str::FromStr;

/// Settings and counters of the engine, named as their files in sysfs are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Engine {
    /// The order of pages inside a tree.
    pub index: Choice,
    /// KiB of memory per tree; 0 for one tree, whatever the memory.
    pub kib_per_tree: Option<u32>,
    /// Trees of each kind.
    pub trees: Option<u64>,
    /// What decides on which node a page stays when it is merged.
    pub placement: Option<Choice>,
    /// Merged pages in memory, by the node they are on.
    pub pages_shared_by_node: Option<PagesByNode>,
    /// Further places that use them, by the node the page is on.
    pub pages_sharing_by_node: Option<PagesByNode>,
    /// Decisions for the node of the hotter copy.
    pub placed_hot: Option<u64>,
    /// Decisions that spread pages evenly.
    pub placed_spread: Option<u64>,
    /// Decisions by nice value.
    pub placed_priority: Option<u64>,
    /// Decisions in which a node without room could not win.
    pub placed_no_room: Option<u64>,
    /// Merged pages that the kernel moved to another node.
    pub migrated: Option<u64>,
    /// Attempts to do so that failed.
    pub migrate_refused: Option<u64>,
    /// Of a thousand parts of a CPU's time, those for looking at merged pages.
    pub look_cpu_permille: Option<u32>,
    /// How often the kernel looked at merged pages.
    pub looks: Option<u64>,
    /// CPU time of these looks, in microseconds.
    pub look_cpu_us: Option<u64>,
    /// How long the last round of looks at all merged pages took, in milliseconds.
    pub look_round_ms: Option<u64>,
    /// Mappings that looks saw used, whose page was on their process's node.
    pub used_local: Option<u64>,
    /// Those whose page was on another node.
    pub used_remote: Option<u64>,
    /// Of what merging saves, the part that replicas may take.
    pub replica_percent: Option<u32>,
    /// Copies of merged pages for those who use them on another node, by their node.
    pub replicas_by_node: Option<PagesByNode>,
    /// Copies made so far.
    pub replicas_made: Option<u64>,
    /// Copies whose sharers went back to another page.
    pub replicas_folded: Option<u64>,
    /// Pages hot enough for a copy that got none in the last round of looks: the budget is spent.
    pub replicas_refused: Option<u64>,
    /// To be hot enough, a page has to be used within so many milliseconds; 0: within a look.
    pub replica_glance_ms: Option<u64>,
    /// Pages un-merged since their process left the merge domain that they were merged in.
    pub domain_unmerged: Option<u64>,
    /// Levels of a tree passed by comparing two checksums.
    pub checksum_compares: Option<u64>,
    /// Levels of a tree at which two pages were compared.
    pub content_compares: Option<u64>,
    /// Bytes read by comparing pages.
    pub compared_bytes: Option<u64>,
    /// Pages of equal checksum that differed.
    pub collisions: Option<u64>,
    /// Pages gone or rewritten whose place in the unstable tree was taken.
    pub replaced: Option<u64>,
    /// Pages read to make their checksums; others were scanned, and left unread.
    pub summed: Option<u64>,
    /// How long the last full scan took, in milliseconds.
    pub last_scan_ms: Option<u64>,
    /// CPU time of ksmd in that scan, in milliseconds.
    pub last_scan_cpu_ms: Option<u64>,
}

impl Engine {
    /// Reads all of it; `None` when this kernel has no engine. Counters that are for
    /// root are unknown to others.
    pub fn read(root: &Root) -> Result<Option<Self>> {
        let choice = |setting: Setting| root.value(setting.path(), "words, one of them in [brackets]");
        let number = |name: &str| for_root(root.value::<u64>(format!("{DIR}/{name}"), "a number"));
        let by_node = |name: &str| for_root(root.value(format!("{DIR}/{name}"), "pages by node: N0=1 N1=2"));
        let Some(index) = choice(Setting::Index)? else {
            return Ok(None);
        };
        Ok(Some(Self {
            index,
            kib_per_tree: root.value(Setting::KibPerTree.path(), "a number below 2^32")?,
            trees: number("trees")?,
            placement: choice(Setting::Placement)?,
            pages_shared_by_node: by_node("pages_shared_by_node")?,
            pages_sharing_by_node: by_node("pages_sharing_by_node")?,
            placed_hot: number("placed_hot")?,
            placed_spread: number("placed_spread")?,
            placed_priority: number("placed_priority")?,
            placed_no_room: number("placed_no_room")?,
            migrated: number("migrated")?,
            migrate_refused: number("migrate_refused")?,
            look_cpu_permille: root.value(Setting::LookCpuPermille.path(), "a number up to 1000")?,
            looks: number("looks")?,
            look_cpu_us: number("look_cpu_us")?,
            look_round_ms: number("look_round_ms")?,
            used_local: number("used_local")?,
            used_remote: number("used_remote")?,
            replica_percent: root.value(Setting::ReplicaPercent.path(), "a number up to 100")?,
            replicas_by_node: by_node("replicas_by_node")?,
            replicas_made: number("replicas_made")?,
            replicas_folded: number("replicas_folded")?,
            replicas_refused: number("replicas_refused")?,
            replica_glance_ms: number("replica_glance_ms")?,
            domain_unmerged: number("domain_unmerged")?,
            checksum_compares: number("checksum_compares")?,
            content_compares: number("content_compares")?,
            compared_bytes: number("compared_bytes")?,
            collisions: number("collisions")?,
            replaced: number("replaced")?,
            summed: number("summed")?,
            last_scan_ms: number("last_scan_ms")?,
            last_scan_cpu_ms: number("last_scan_cpu_ms")?,
        }))
    }

    /// Copies of merged pages for other nodes that there are now.
    #[must_use]
    pub fn replicas(&self) -> Option<u64> {
        self.replicas_by_node.as_ref().map(PagesByNode::sum)
    }
}

/// What only root may read is unknown to others.
fn for_root<T>(read: Result<Option<T>>) -> Result<Option<T>> {
    match read {
        Err(error) if error.is_permission() => Ok(None),
        read => read,
    }
}

/// What of the engine can be set. Those that need an idle KSM come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Setting {
    /// [`Engine::index`].
    Index,
    /// [`Engine::kib_per_tree`].
    KibPerTree,
    /// [`Engine::look_cpu_permille`].
    LookCpuPermille,
    /// [`Engine::replica_percent`].
    ReplicaPercent,
    /// [`Engine::placement`].
    Placement,
}

impl Setting {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Index, Self::KibPerTree, Self::LookCpuPermille, Self::ReplicaPercent, Self::Placement];

    /// The name of its file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Index => "index",
            Self::KibPerTree => "kib_per_tree",
            Self::LookCpuPermille => "look_cpu_permille",
            Self::ReplicaPercent => "replica_percent",
            Self::Placement => "placement",
        }
    }

    /// Does the kernel answer that it is busy while KSM tracks any page?
    #[must_use]
    pub fn needs_idle(self) -> bool {
        match self {
            Self::Index | Self::KibPerTree => true,
            Self::LookCpuPermille | Self::ReplicaPercent | Self::Placement => false,
        }
    }

    /// Sets it to `value`.
    pub fn write(self, root: &Root, value: &str) -> Result<()> {
        root.write(self.path(), &format!("{value}\n"))
    }

    fn path(self) -> String {
        format!("{DIR}/{}", self.name())
    }
}

/// A setting that is one of several words; serialized as that word.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choice {
    /// The one that holds.
    pub current: String,
    /// All that this kernel offers.
    pub offered: Vec<String>,
}

/// `first [fair] priority`: the one in brackets holds.
impl FromStr for Choice {
    type Err = ();

    fn from_str(text: &str) -> std::result::Result<Self, ()> {
        let mut choice = Self::default();
        for word in text.split_whitespace() {
            let held = word.strip_prefix('[').and_then(|word| word.strip_suffix(']'));
            let name = held.unwrap_or(word);
            if name.is_empty() || name.contains(['[', ']']) || held.is_some() && !choice.current.is_empty() {
                return Err(());
            }
            if held.is_some() {
                name.clone_into(&mut choice.current);
            }
            choice.offered.push(name.to_owned());
        }
        if choice.current.is_empty() { Err(()) } else { Ok(choice) }
    }
}

impl Serialize for Choice {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.current)
    }
}

/// What was offered is not written, so that it is not known when read again.
impl<'de> Deserialize<'de> for Choice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        Ok(Self { current: String::deserialize(deserializer)?, offered: Vec::new() })
    }
}

/// Pages on each node that has any.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PagesByNode(pub BTreeMap<u32, u64>);

impl PagesByNode {
    /// Of all nodes.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.0.values().copied().fold(0, u64::saturating_add)
    }
}

/// `N0=123 N2=456`; empty when no node has any.
impl FromStr for PagesByNode {
    type Err = ();

    fn from_str(text: &str) -> std::result::Result<Self, ()> {
        let entry = |word: &str| {
            let (node, pages) = word.strip_prefix('N')?.split_once('=')?;
            Some((node.parse().ok()?, pages.parse().ok()?))
        };
        let entries: Option<_> = text.split_whitespace().map(entry).collect();
        entries.map(Self).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::root;

    #[test]
    fn a_stock_kernel_has_none() {
        let (_dir, root) = root(&[("run", "1\n"), ("pages_shared", "3\n")]);
        assert_eq!(Engine::read(&root).unwrap(), None);
    }

    #[test]
    fn every_file_is_read() {
        let (_dir, root) = root(&[
            ("index", "content [checksum]\n"),
            ("kib_per_tree", "256\n"),
            ("trees", "7\n"),
            ("placement", "first [fair] priority\n"),
            ("pages_shared_by_node", "N0=123 N2=456\n"),
            ("pages_sharing_by_node", "\n"),
            ("placed_hot", "11\n"),
            ("placed_spread", "12\n"),
            ("placed_priority", "13\n"),
            ("placed_no_room", "14\n"),
            ("migrated", "15\n"),
            ("migrate_refused", "16\n"),
            ("look_cpu_permille", "5\n"),
            ("looks", "25\n"),
            ("look_cpu_us", "26\n"),
            ("look_round_ms", "27\n"),
            ("used_local", "28\n"),
            ("used_remote", "29\n"),
            ("replica_percent", "10\n"),
            ("replicas_by_node", "N1=30\n"),
            ("replicas_made", "31\n"),
            ("replicas_folded", "32\n"),
            ("replicas_refused", "33\n"),
            ("replica_glance_ms", "8\n"),
            ("domain_unmerged", "34\n"),
            ("checksum_compares", "17\n"),
            ("content_compares", "18\n"),
            ("compared_bytes", "19\n"),
            ("collisions", "20\n"),
            ("replaced", "21\n"),
            ("summed", "24\n"),
            ("last_scan_ms", "22\n"),
            ("last_scan_cpu_ms", "23\n"),
        ]);
        let json = serde_json::to_value(Engine::read(&root).unwrap()).unwrap();
        let expected = serde_json::json!({
            "index": "checksum", "kib_per_tree": 256, "trees": 7, "placement": "fair",
            "pages_shared_by_node": {"0": 123, "2": 456}, "pages_sharing_by_node": {},
            "placed_hot": 11, "placed_spread": 12, "placed_priority": 13, "placed_no_room": 14,
            "migrated": 15, "migrate_refused": 16,
            "look_cpu_permille": 5, "looks": 25, "look_cpu_us": 26, "look_round_ms": 27,
            "used_local": 28, "used_remote": 29,
            "replica_percent": 10, "replicas_by_node": {"1": 30},
            "replicas_made": 31, "replicas_folded": 32, "replicas_refused": 33, "replica_glance_ms": 8,
            "domain_unmerged": 34,
            "checksum_compares": 17, "content_compares": 18, "compared_bytes": 19,
            "collisions": 20, "replaced": 21, "summed": 24, "last_scan_ms": 22, "last_scan_cpu_ms": 23,
        });
        assert_eq!(json, expected);
    }

    #[test]
    fn files_that_an_engine_lacks_are_none_not_zero() {
        let (_dir, root) = root(&[("index", "[content] checksum\n"), ("migrated", "0\n")]);
        let engine = Engine::read(&root).unwrap().unwrap();
        assert_eq!(engine.index.current, "content");
        assert_eq!((engine.migrated, engine.placement, engine.trees), (Some(0), None, None));
    }

    #[test]
    fn choices_as_the_kernel_writes_them() {
        let choice: Choice = "first [fair] priority".parse().unwrap();
        assert_eq!(choice.current, "fair");
        assert_eq!(choice.offered, ["first", "fair", "priority"]);
        for bad in ["", "fair", "[]", "[fair", "fair]", "[[fair]]", "[first] [fair]"] {
            assert_eq!(bad.parse::<Choice>(), Err(()), "{bad:?}");
        }
    }

    #[test]
    fn bad_content_names_the_file() {
        for (name, text, expected) in [
            ("index", "checksum\n", "index: expected words, one of them in [brackets], found \"checksum\""),
            ("placement", "\n", "placement: expected words, one of them in [brackets], found \"\""),
            ("kib_per_tree", "-1\n", "kib_per_tree: expected a number below 2^32, found \"-1\""),
            ("collisions", "some\n", "collisions: expected a number, found \"some\""),
            ("pages_shared_by_node", "N0=1 1=2\n", "pages_shared_by_node: expected pages by node: N0=1"),
            ("pages_shared_by_node", "N0=\n", "pages_shared_by_node: expected pages by node: N0=1"),
        ] {
            let (_dir, root) = root(&[("index", "[content] checksum\n"), (name, text)]);
            let message = Engine::read(&root).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn settings_are_written_to_their_files() {
        let (_dir, root) = root(&Setting::ALL.map(|setting| (setting.name(), "\n")));
        for setting in Setting::ALL {
            setting.write(&root, "new").unwrap();
            assert_eq!(root.text(format!("{DIR}/{}", setting.name())).unwrap().as_deref(), Some("new\n"));
        }
    }
}
