// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's list format for CPUs and nodes: `0-3,8`.

use std::str::FromStr;

/// A set of CPUs (or nodes), as inclusive ranges.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuList(Vec<(u32, u32)>);

impl CpuList {
    /// Is `cpu` in the list?
    #[must_use]
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.iter().any(|&(first, last)| (first..=last).contains(&cpu))
    }

    /// The only member, if there is just one.
    #[must_use]
    pub fn only(&self) -> Option<u32> {
        match self.0.as_slice() {
            &[(first, last)] if first == last => Some(first),
            _ => None,
        }
    }

    /// Do the two lists have a CPU in common?
    #[must_use]
    pub fn intersects(&self, other: &Self) -> bool {
        self.0.iter().any(|&(first, last)| other.0.iter().any(|&(from, to)| first <= to && from <= last))
    }
}

impl FromStr for CpuList {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.trim()
            .split(',')
            .filter(|part| !part.is_empty())
            .map(|part| {
                let (first, last) = part.split_once('-').unwrap_or((part, part));
                Ok((first.parse()?, last.parse()?))
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_as_the_kernel_writes_them() {
        let list: CpuList = "0-3,8\n".parse().unwrap();
        assert!(list.contains(0) && list.contains(3) && list.contains(8));
        assert!(!list.contains(4) && !list.contains(9));
        assert!(list.intersects(&"7-9".parse().unwrap()));
        assert!(!list.intersects(&"4-7".parse().unwrap()));
        assert!(!"\n".parse::<CpuList>().unwrap().contains(0), "a node without CPUs");
        assert_eq!("7\n".parse::<CpuList>().unwrap().only(), Some(7));
        assert_eq!(list.only(), None);
        assert!("0-x".parse::<CpuList>().is_err());
    }
}
