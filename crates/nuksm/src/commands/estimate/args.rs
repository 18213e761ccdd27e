// SPDX-License-Identifier: GPL-2.0-only
//! What can be asked of `estimate`.

use crate::shared::options::Size;
use clap::Args;
use std::path::PathBuf;
use std::str::FromStr;

/// Estimate what merging would save, before anyone turns it on.
///
/// Looks at all anonymous pages that are in memory, as if all of them were
/// marked mergeable (of a process that marks some, as QEMU marks its guest's
/// memory, at those only): of processes (--pid, or by default those with 64 MiB or
/// more that this user may read), of raw memory images, of ELF cores. Nothing
/// is stopped, changed or merged. KSM's records are subtracted, 64 bytes per
/// page; zero pages stand apart; `max_page_sharing` is this machine's.
///
/// Savings are given for merging across nodes and within nodes, and with the
/// former the part of each tenant's merged pages that would be remote: as the
/// kernel leaves them (`first`: by the order of its scan, which nobody knows
/// before, so for the order shown and for the worst case), spread evenly over
/// the sharers' nodes (`fair`), or by nice values (`priority`).
///
/// 16 bytes per different page are kept. Above --memory contents are sampled,
/// in all tenants alike, and figures get 95 % bounds. --dump writes one row per
/// page for SQL engines; given as FILE, such files are read again, those of
/// several hosts as if all ran on one.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  nuksm estimate\n  nuksm estimate --pid 4711 --pid 4712 --json\n  nuksm estimate --all --domains=/etc/nuksm.toml\n  nuksm estimate web.core@0 db.core@1 --dump host1.parquet"
)]
pub struct EstimateArgs {
    /// Raw memory images, ELF cores, or files that --dump wrote; @NODE says to
    /// which node an image or core belongs.
    #[arg(value_name = "FILE[@NODE]")]
    pub files: Vec<FileArg>,
    /// Look at process PID; may be repeated.
    #[arg(long, value_name = "PID")]
    pub pid: Vec<u32>,
    /// Look at every process this user may read, however small.
    #[arg(long, conflicts_with_all = ["pid", "files"])]
    pub all: bool,
    /// Memory for fingerprints; what does not fit is sampled.
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    pub memory: Size,
    /// Sample one content in N from the beginning on; N is a power of two.
    #[arg(long, value_name = "1/N", default_value = "1/1")]
    pub sample: Sample,
    /// Say what replicas would buy that may take so much of what merging saves, in
    /// percent: with no PERCENT, 2,5,10,20.
    ///
    /// They are the engine's copies of merged pages that are hot on several nodes. Use is
    /// watched for some seconds first, in eight windows of a tenth of a second each, by the
    /// kernel's idle page tracking; that takes root. Whose use it is of frames that several
    /// tenants share already, nobody tells: ask before merging is on.
    #[arg(
        long,
        value_name = "PERCENT,...",
        num_args = 0..=1,
        default_missing_value = "2,5,10,20",
        conflicts_with = "files"
    )]
    pub replicas: Option<Percents>,
    /// Say what is saved where tenants are in merge domains, and what borders cost: as the
    /// rules in section [domains] of FILE want it, or, with no FILE, as it is now.
    ///
    /// With a FILE any kernel will do: so a partition has a price before it is rolled out.
    #[arg(long, value_name = "FILE.toml", num_args = 0..=1, default_missing_value = "", require_equals = true, conflicts_with = "files")]
    pub domains: Option<Borders>,
    /// Write the fingerprints of all pages looked at, sampled or not, to FILE.
    #[arg(long, value_name = "FILE.parquet")]
    pub dump: Option<PathBuf>,
    /// Print JSON instead of tables.
    #[arg(long)]
    pub json: bool,
}

/// A file and the node its memory belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileArg {
    pub path: PathBuf,
    pub node: Option<u32>,
}

impl FromStr for FileArg {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let split = text.rsplit_once('@').and_then(|(path, node)| Some((path, node.parse().ok()?)));
        Ok(match split {
            Some((path, node)) => Self { path: path.into(), node: Some(node) },
            None => Self { path: text.into(), node: None },
        })
    }
}

/// One content in 2^n.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample(pub u32);

impl FromStr for Sample {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.strip_prefix("1/").and_then(|parts| parts.parse::<u64>().ok());
        match parts {
            Some(parts) if parts.is_power_of_two() => Ok(Self(parts.trailing_zeros())),
            _ => Err(format!("{text:?} is no sample: write 1/N with a power of two (1/16)")),
        }
    }
}

/// Who says which merge domain a tenant is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Borders {
    /// The kernel, of how it is now.
    Now,
    /// The rules in this file.
    Rules(PathBuf),
}

impl FromStr for Borders {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(if text.is_empty() { Self::Now } else { Self::Rules(text.into()) })
    }
}

/// Budgets of replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Percents(pub Vec<u32>);

impl FromStr for Percents {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let percent = |word: &str| word.parse().ok().filter(|percent| *percent <= 100);
        let percents: Option<Vec<u32>> = text.split(',').map(percent).collect();
        percents
            .map(Self)
            .ok_or_else(|| format!("{text:?} is no list of percents: write 5, or 2,5,10, each up to 100"))
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: EstimateArgs,
    }

    /// As they are given behind `nuksm estimate`.
    pub fn args(line: &str) -> EstimateArgs {
        Line::parse_from(["estimate"].into_iter().chain(line.split_whitespace())).args
    }

    #[test]
    fn samples_and_files_as_people_write_them() {
        assert_eq!(("1/1".parse(), "1/16".parse()), (Ok(Sample(0)), Ok(Sample(4))));
        for bad in ["1/0", "1/3", "2/4", "16", "0.5"] {
            assert!(bad.parse::<Sample>().unwrap_err().contains("is no sample"), "{bad}");
        }
        assert_eq!("2,100,0".parse(), Ok(Percents(vec![2, 100, 0])));
        for bad in ["", "2,", "101", "-1", "2 5", "5%", "web.core"] {
            assert!(bad.parse::<Percents>().unwrap_err().contains("is no list of percents"), "{bad}");
        }
        let budgets = |line| args(line).replicas.map(|percents| percents.0);
        assert_eq!((budgets("--pid 7"), budgets("--replicas 3 --pid 7")), (None, Some(vec![3])));
        assert_eq!(budgets("--replicas --pid 7"), Some(vec![2, 5, 10, 20]));
        assert!(Line::try_parse_from(["estimate", "--replicas", "5", "web.core"]).is_err());
        let domains = |line| args(line).domains;
        assert_eq!((domains(""), domains("--domains --pid 7")), (None, Some(Borders::Now)));
        assert_eq!(domains("--domains=a.toml"), Some(Borders::Rules("a.toml".into())));
        let file = |text: &str| text.parse::<FileArg>().unwrap();
        assert_eq!(file("web.core@1"), FileArg { path: "web.core".into(), node: Some(1) });
        assert_eq!(file("a@b.core"), FileArg { path: "a@b.core".into(), node: None });
    }
}
