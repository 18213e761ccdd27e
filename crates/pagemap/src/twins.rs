// SPDX-License-Identifier: GPL-2.0-only
//! Processes that share one memory, not only pages of it: after `vfork(2)`, or
//! `clone(2)` with `CLONE_VM` and without `CLONE_THREAD`. All that one of them maps, each
//! of the others maps, too, and it is there once.

use std::cmp::Ordering;
use std::io;

/// For each of `tasks`, the first of them that has the same memory: itself, mostly. An
/// error when the kernel cannot compare (`CONFIG_KCMP`).
///
/// Who ended, or whom this user may not look into, is taken to be alone.
pub fn first_of_memory(tasks: &[u32]) -> io::Result<Vec<u32>> {
    first_by(tasks, compare)
}

/// `kcmp(2)` puts memories in an order, so that each is found among those known by
/// comparing with a few of them.
fn first_by(tasks: &[u32], compare: impl Fn(u32, u32) -> io::Result<Ordering>) -> io::Result<Vec<u32>> {
    let mut known = Vec::<u32>::new();
    let mut firsts = Vec::with_capacity(tasks.len());
    'tasks: for &task in tasks {
        let (mut low, mut high) = (0, known.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            match compare(known[middle], task) {
                Ok(Ordering::Less) => low = middle + 1,
                Ok(Ordering::Greater) => high = middle,
                Ok(Ordering::Equal) => {
                    firsts.push(known[middle]);
                    continue 'tasks;
                }
                Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => return Err(error),
                // Which of the two cannot be compared?
                Err(_) if compare(task, task).is_err() => {
                    firsts.push(task);
                    continue 'tasks;
                }
                Err(_) => {
                    known.remove(middle);
                    high -= 1;
                }
            }
        }
        known.insert(low, task);
        firsts.push(task);
    }
    Ok(firsts)
}

/// From the kernel's uapi header kcmp.h.
const KCMP_VM: libc::c_int = 1;

fn compare(left: u32, right: u32) -> io::Result<Ordering> {
    // SAFETY: takes numbers only.
    match unsafe { libc::syscall(libc::SYS_kcmp, left, right, KCMP_VM, 0, 0) } {
        0 => Ok(Ordering::Equal),
        1 => Ok(Ordering::Less),
        2 => Ok(Ordering::Greater),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(errno: i32) -> io::Error {
        io::Error::from_raw_os_error(errno)
    }

    #[test]
    fn each_memory_has_the_first_that_was_named() {
        // Tasks that end with the same digit have one memory; 40 to 49 are gone.
        let compare = |left: u32, right: u32| {
            if [left, right].iter().any(|task| task / 10 == 4) {
                return Err(error(libc::ESRCH));
            }
            Ok((left % 10).cmp(&(right % 10)))
        };
        let firsts = |tasks: &[u32]| first_by(tasks, compare).unwrap();
        assert_eq!(firsts(&[17, 12, 22, 11, 27, 37, 13]), [17, 12, 12, 11, 17, 17, 13]);
        assert_eq!(firsts(&[43, 12, 42, 22, 53, 63]), [43, 12, 42, 12, 53, 53], "who is gone hides nobody");
        assert_eq!(firsts(&[]), []);
    }

    #[test]
    fn who_ends_meanwhile_hides_nobody() {
        let calls = std::cell::Cell::new(0);
        // Task 5 is there for the first comparison, and gone for all others.
        let compare = |left: u32, right: u32| {
            calls.set(calls.get() + 1);
            if calls.get() > 1 && [left, right].contains(&5) {
                Err(error(libc::ESRCH))
            } else {
                Ok((left % 3).cmp(&(right % 3)))
            }
        };
        assert_eq!(first_by(&[5, 7, 4, 8, 11], compare).unwrap(), [5, 7, 7, 8, 8]);
    }

    #[test]
    fn a_kernel_that_cannot_compare_says_so() {
        let compare = |_, _| Err(error(libc::ENOSYS));
        assert_eq!(first_by(&[1, 2], compare).unwrap_err().raw_os_error(), Some(libc::ENOSYS));
    }

    #[test]
    fn another_process_has_another_memory() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let tasks = [std::process::id(), child.id()];
        let firsts = first_of_memory(&tasks);
        child.kill().unwrap();
        child.wait().unwrap();
        // Without CONFIG_KCMP there is nothing to test.
        assert!(firsts.map_or(true, |firsts| firsts == tasks));
    }
}
