// SPDX-License-Identifier: GPL-2.0-only
//! Which pages are used, as the kernel's idle page tracking sees it.
//!
//! In each of some windows of time the frames of all tenants are marked as idle, and those
//! that are not idle at its end were used. Frames, not places: nobody tells which of several
//! tenants that share one used it.

use super::args::Percents;
use super::inputs::Input;
use super::progress;
use crate::shared::stop::Stop;
use crate::shared::{privilege, tenants};
use anyhow::Result;
use nuksm_fingerprint::Page;
use nuksm_model::estimate::Contents;
use nuksm_pagemap::{IDLE_FRAMES, IdlePages, Pagemap, anonymous_areas};
use nuksm_sysroot::{Root, Wanted, patiently};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// As many windows as the engine keeps looks of a page.
pub const WINDOWS: u8 = 8;

/// A page that was used in so many of them is hot, as it is for the engine.
pub const HOT: u8 = 4;

/// How long a window is, as a look of the engine.
pub const LENGTH: Duration = Duration::from_millis(100);

/// From the beginning of one window to the next, at least.
const PACE: Duration = Duration::from_secs(1);

/// Words of the bitmap that are read or written at once.
const WORDS: usize = 512;

/// Runs of words that are watched at once, 1 GiB at the most: to mark frames takes time, too,
/// and no window should be much longer than [`LENGTH`] because of that.
const RUNS: usize = 8;

/// What was seen of use, if anything.
pub enum Watched {
    Frames(Watch),
    /// Why nothing can be seen.
    Unknown(String),
    Interrupted,
}

/// How often frames were used.
#[derive(Debug, Default)]
pub struct Watch {
    /// Ascending.
    runs: Vec<Run>,
}

/// Words of the bitmap that follow each other.
#[derive(Debug)]
struct Run {
    first: u64,
    words: Vec<Word>,
}

#[derive(Debug)]
struct Word {
    /// Frames of tenants.
    wanted: u64,
    /// Those that the kernel can mark: not, for example, the inside of huge pages.
    marked: u64,
    /// In how many windows each was used.
    used: [u8; u64::BITS as usize],
}

/// Watches the frames of `inputs`, for some seconds.
pub fn watch(root: &Root, inputs: &[Input], stop: &Stop) -> Result<Watched> {
    let missing = privilege::missing(root, false)?;
    if !missing.is_empty() {
        let names: Vec<&str> = missing.iter().map(|(name, _)| *name).collect();
        return Ok(Watched::Unknown(format!("{} needed, {}", names.join(", "), privilege::remedy(root)?)));
    }
    let pages = match IdlePages::open(root) {
        Ok(Some(pages)) => pages,
        Ok(None) => {
            return Ok(Watched::Unknown(
                "this kernel has no idle page tracking (CONFIG_IDLE_PAGE_TRACKING), by which use is seen"
                    .into(),
            ));
        }
        Err(error) => return Ok(Watched::Unknown(tenants::with_cause(&error))),
    };
    let Some(mut watch) = Watch::of(root, inputs, &|| stop.is_requested()) else {
        return Ok(Watched::Interrupted);
    };
    let goes_on = watch.windows(&pages, |time| stop.wait(time))?;
    Ok(if goes_on { Watched::Frames(watch) } else { Watched::Interrupted })
}

impl Watch {
    /// The frames of these; `None` when stopped. Who cannot be read is named when its memory
    /// is read.
    fn of(root: &Root, inputs: &[Input], stop: &dyn Fn() -> bool) -> Option<Self> {
        let tasks = inputs.iter().filter_map(|input| match input {
            Input::Process(candidate) => Some((candidate.task, candidate.task)),
            _ => None,
        });
        let there = root.clone();
        let mut all = BTreeMap::<u64, u64>::new();
        let walk = move |task, wanted: &Wanted| frames_of(&there, task, wanted);
        patiently(tasks, walk, stop, |_, words| {
            for (index, frames) in words.into_iter().flat_map(Result::unwrap_or_default) {
                *all.entry(index).or_default() |= frames;
            }
        })
        .ok()?;
        Some(Self::new(all))
    }

    /// Words by their place in the bitmap.
    fn new(words: BTreeMap<u64, u64>) -> Self {
        let mut runs: Vec<Run> = Vec::new();
        for (index, wanted) in words {
            let word = Word { wanted, marked: 0, used: [0; u64::BITS as usize] };
            match runs.last_mut() {
                Some(run) if run.words.len() < WORDS && run.end() == index => run.words.push(word),
                _ => runs.push(Run { first: index, words: vec![word] }),
            }
        }
        Self { runs }
    }

    /// Watches; false when `wait`, which is called with a time to wait for, says to stop.
    fn windows(&mut self, pages: &IdlePages, wait: impl Fn(Duration) -> bool) -> nuksm_pagemap::Result<bool> {
        for window in 0..WINDOWS {
            let began = Instant::now();
            progress::say(&format!("watching use, {} of {WINDOWS}", window + 1));
            for runs in self.runs.chunks_mut(RUNS) {
                for run in &mut *runs {
                    run.begin(pages)?;
                }
                if wait(LENGTH) {
                    return Ok(false);
                }
                for run in runs {
                    run.count(pages)?;
                }
            }
            if window + 1 < WINDOWS && wait(PACE.saturating_sub(began.elapsed())) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// In how many windows a frame was used; `None` when nobody knows.
    fn used(&self, frame: u64) -> Option<u8> {
        let (index, bit) = (frame / IDLE_FRAMES, frame % IDLE_FRAMES);
        let run = &self.runs[self.runs.partition_point(|run| run.first <= index).checked_sub(1)?];
        let word = run.words.get(usize::try_from(index - run.first).ok()?)?;
        (word.wanted & word.marked & (1 << bit) != 0).then(|| word.used[usize::try_from(bit).unwrap_or(0)])
    }
}

impl Run {
    /// The index behind the last word's.
    fn end(&self) -> u64 {
        self.first + self.words.len() as u64
    }

    /// A window begins.
    fn begin(&mut self, pages: &IdlePages) -> nuksm_pagemap::Result<()> {
        let known = |word: &Word| word.marked == word.wanted;
        let wanted: Vec<u64> =
            self.words.iter().map(|word| if known(word) { word.wanted } else { 0 }).collect();
        pages.mark(self.first, &wanted)?;
        // What is not idle right after it was marked cannot be, or was used already: the next
        // window may tell. The hottest pages would not be seen if that came any later.
        for (index, word) in (self.first..).zip(&mut self.words).filter(|(_, word)| !known(word)) {
            pages.mark(index, &[word.wanted])?;
            word.marked |= word.wanted & pages.idle(index, 1)?.first().unwrap_or(&0);
        }
        Ok(())
    }

    /// A window ends.
    fn count(&mut self, pages: &IdlePages) -> nuksm_pagemap::Result<()> {
        let idle = pages.idle(self.first, self.words.len())?;
        for (word, idle) in self.words.iter_mut().zip(idle) {
            for (bit, used) in word.used.iter_mut().enumerate() {
                *used += u8::from(word.wanted & !idle & (1 << bit) != 0);
            }
        }
        Ok(())
    }
}

/// Words of the bitmap with the frames that a process has, by their place in it.
fn frames_of(root: &Root, task: u32, wanted: &Wanted) -> nuksm_pagemap::Result<Vec<(u64, u64)>> {
    let mut words: Vec<(u64, u64)> = Vec::new();
    let (Some(areas), Some(pagemap)) =
        (anonymous_areas(root, task)?, Pagemap::open(root, &task.to_string())?)
    else {
        return Ok(words);
    };
    for area in areas {
        pagemap.walk(area, &|| wanted.is_over(), |_, entry| {
            let (index, bit) = (entry.pfn() / IDLE_FRAMES, 1 << (entry.pfn() % IDLE_FRAMES));
            match words.last_mut() {
                Some((last, frames)) if *last == index => *frames |= bit,
                _ => words.push((index, bit)),
            }
        })?;
    }
    Ok(words)
}

/// Uses of contents.
pub struct Used {
    watch: Watch,
    /// For which replicas are asked for.
    pub percents: Percents,
    /// Of pages that were used in so many windows as make one hot.
    pub hot: Contents,
    /// Of those that were used in fewer.
    pub others: Contents,
    /// Pages whose frames could not be watched.
    pub unseen: u64,
    /// Pages in frames that several places share, and that somebody used.
    pub by_whom: u64,
}

impl Used {
    /// With so many bytes of contents, of which one in 2^`zero_bits` is kept.
    pub fn new(watch: Watch, percents: Percents, bytes: u64, zero_bits: u32) -> Self {
        let contents = || Contents::new(bytes / 2, zero_bits);
        Self { watch, percents, hot: contents(), others: contents(), unseen: 0, by_whom: 0 }
    }

    /// A page of a tenant.
    pub fn add(&mut self, tenant: u32, page: &Page) {
        match page.frame.and_then(|frame| self.watch.used(frame)) {
            None => self.unseen += 1,
            Some(0) => {}
            Some(_) if page.is_shared => self.by_whom += 1,
            Some(windows) => {
                let uses = if windows < HOT { &mut self.others } else { &mut self.hot };
                uses.add_times(tenant, page.fingerprint, windows.into());
            }
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::shared::tree::tree;
    use std::cell::Cell;
    use std::fs;

    const BITMAP: &str = "sys/kernel/mm/page_idle/bitmap";

    /// What was seen of frames, in how many windows each was used.
    pub fn seen(frames: &[(u64, u8)]) -> Watch {
        let mut words = BTreeMap::<u64, u64>::new();
        for (frame, _) in frames {
            *words.entry(frame / IDLE_FRAMES).or_default() |= 1 << (frame % IDLE_FRAMES);
        }
        let mut watch = Watch::new(words);
        for (frame, used) in frames {
            let run = watch.runs.iter_mut().rfind(|run| run.first <= frame / IDLE_FRAMES).unwrap();
            let word = &mut run.words[usize::try_from(frame / IDLE_FRAMES - run.first).unwrap()];
            word.marked = word.wanted;
            word.used[usize::try_from(frame % IDLE_FRAMES).unwrap()] = *used;
        }
        watch
    }

    #[test]
    fn frames_that_are_not_idle_at_the_end_of_a_window_were_used() {
        let (_dir, root) = tree(&[(BITMAP, &"\0".repeat(8 * 1030))]);
        let pages = IdlePages::open(&root).unwrap().unwrap();
        let words = [(0, 0b1011), (1, 1 << 63), (1025, 1), (1026, 0), (5000, 1)];
        let mut watch = Watch::new(words.into());
        assert_eq!(watch.runs.iter().map(|run| run.words.len()).collect::<Vec<_>>(), [2, 2, 1]);
        let (windows, waits) = (Cell::new(0_u64), Cell::new(0));
        let goes_on = watch.windows(&pages, |time| {
            waits.set(waits.get() + 1);
            if time == LENGTH {
                // Frame 0 is used in each, frame 127 in two.
                let mut bitmap = fs::read(root.path(BITMAP)).unwrap();
                assert_eq!((bitmap[0] & 0b100, bitmap[8 * 1025]), (0, 1), "only what is wanted is marked");
                bitmap[0] &= 0b1110;
                if windows.get() < 2 {
                    bitmap[15] = 0;
                }
                fs::write(root.path(BITMAP), bitmap).unwrap();
                windows.set(windows.get() + 1);
            }
            false
        });
        assert!(goes_on.unwrap());
        assert_eq!((windows.get(), waits.get()), (8, 15));
        let used = |frame| watch.used(frame);
        assert_eq!([0, 1, 3, 127, 1025 * 64].map(used), [Some(8), Some(0), Some(0), Some(2), Some(0)]);
        assert_eq!(used(5000 * 64), Some(0));
        assert_eq!([2, 64, 128, 1026 * 64, 5001 * 64, u64::MAX].map(used), [None; 6]);
    }

    #[test]
    fn what_cannot_be_marked_is_not_called_used() {
        // A file in which nothing stays, as the inside of a huge page has none.
        let (_dir, root) = tree(&[(BITMAP, "")]);
        std::os::unix::fs::symlink("/dev/zero", root.path("sys/kernel/mm/page_idle/zero")).unwrap();
        fs::rename(root.path("sys/kernel/mm/page_idle/zero"), root.path(BITMAP)).unwrap();
        let pages = IdlePages::open(&root).unwrap().unwrap();
        let mut watch = Watch::new([(0, u64::MAX)].into());
        assert!(watch.windows(&pages, |_| false).unwrap());
        assert_eq!(watch.used(5), None);
        assert!(!watch.windows(&pages, |_| true).unwrap(), "it was stopped");
    }

    #[test]
    fn uses_are_those_of_the_tenant_that_has_the_frame_alone() {
        let page = |frame: u64, is_shared| Page {
            address: 0,
            fingerprint: 70 + frame,
            is_zero: false,
            frame: Some(frame),
            is_shared,
        };
        let watch = seen(&[(1, 8), (2, 4), (3, 3), (4, 0), (5, 1)]);
        let mut used = Used::new(watch, "5".parse().unwrap(), 1 << 20, 0);
        for (tenant, frame, is_shared) in
            [(0, 1, false), (1, 2, false), (0, 3, false), (0, 4, true), (1, 5, true), (1, 6, false)]
        {
            used.add(tenant, &page(frame, is_shared));
        }
        used.add(0, &Page { frame: None, ..page(1, false) });
        assert_eq!((used.unseen, used.by_whom), (2, 1));
        let of = |contents: Contents| {
            contents.finish().0.iter().map(|r| (r.fingerprint, r.tenant, r.count)).collect::<Vec<_>>()
        };
        assert_eq!(of(used.hot), [(71, 0, 8), (72, 1, 4)]);
        assert_eq!(of(used.others), [(73, 0, 3)]);
    }

    #[test]
    fn a_plain_user_and_a_kernel_without_it_learn_why() {
        let why = |files: &[(&str, &str)]| {
            let (_dir, root) = tree(files);
            let (_stopper, stop) = Stop::by_hand();
            match watch(&root, &[], &stop).unwrap() {
                Watched::Unknown(why) => why,
                _ => String::new(),
            }
        };
        assert!(
            why(&[("proc/self/status", "CapEff:\t0\n")]).ends_with("CAP_SYS_ADMIN needed, run it as root")
        );
        let root = ("proc/self/status", "CapEff:\t000001ffffffffff\n");
        assert!(why(&[root]).contains("no idle page tracking"), "{}", why(&[root]));
        let is_directory = format!("{BITMAP}/file");
        assert!(why(&[root, (&is_directory, "")]).contains("page_idle/bitmap: Is a directory"));
    }
}
