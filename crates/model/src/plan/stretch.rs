// SPDX-License-Identifier: GPL-2.0-only
//! Stretches of memory: neighbouring pages of a sharing set.

use super::counts::Counts;
use std::ops::Range;

/// A merged page: where it is and who shares it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// The node that holds it.
    pub node: u32,
    /// Index of its sharing set.
    pub set: u32,
    /// Its place in the memory of its first sharer: neighbours there have
    /// neighbouring numbers.
    pub place: u64,
}

/// Pages of memory in a stretch: 256 KiB, where pages have 4 KiB.
const STRETCH: u64 = 64;

/// A set and one of its stretches.
pub(super) type StretchId = (u32, u64);

impl Page {
    pub(super) fn stretch(&self) -> StretchId {
        (self.set, self.place / STRETCH)
    }
}

/// Pages of a stretch that follow each other in the order of frames.
pub struct Run {
    stretch: StretchId,
    pages: Range<u32>,
}

impl Run {
    /// Are both of one stretch?
    pub fn is_beside(&self, other: &Self) -> bool {
        self.stretch == other.stretch
    }
}

/// All runs, by stretch. There are few: neighbouring frames mostly have
/// neighbouring places.
pub fn runs(pages: &[Page]) -> Vec<Run> {
    let mut next = 0_u32;
    let run = |neighbours: &[Page]| {
        let first = next;
        next += u32::try_from(neighbours.len()).unwrap_or(0);
        Run { stretch: neighbours[0].stretch(), pages: first..next }
    };
    let neighbours = pages.chunk_by(|left, right| left.stretch() == right.stretch());
    let mut runs: Vec<Run> = neighbours.map(run).collect();
    runs.sort_unstable_by_key(|run| run.stretch);
    runs
}

/// A set's pages in a stretch of its first tenant's memory.
pub struct Stretch<'a> {
    runs: &'a [Run],
    pub counts: Counts,
}

impl<'a> Stretch<'a> {
    pub fn new(runs: &'a [Run], pages: &[Page]) -> Self {
        let mut counts = Counts::default();
        for index in runs.iter().flat_map(|run| run.pages.clone()) {
            counts.add(pages[index as usize].node, 1);
        }
        Self { runs, counts }
    }

    pub fn set(&self) -> usize {
        self.runs[0].stretch.0 as usize
    }

    pub fn first_place(&self) -> u64 {
        self.runs[0].stretch.1 * STRETCH
    }

    /// Indexes of its pages, by their places.
    pub fn by_place(&self, pages: &[Page]) -> Vec<u32> {
        let mut indexes: Vec<u32> = self.runs.iter().flat_map(|run| run.pages.clone()).collect();
        indexes.sort_unstable_by_key(|&index| pages[index as usize].place);
        indexes
    }
}
