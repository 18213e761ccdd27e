// SPDX-License-Identifier: GPL-2.0-only
//! Reading what others can hold up.
//!
//! Most files of a process in `/proc` take the lock of its memory map. A process that
//! has a file system of its own in user space can keep that lock for as long as it
//! likes, and whoever reads waits, deaf to signals but SIGKILL. So such reading is done
//! on other threads, and left to them when it takes no turn.

use rustix::thread::gettid;
use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;

/// How often it is looked at whether a thread runs or sleeps.
const TICK: Duration = Duration::from_millis(10);

/// Ticks of sleep after which another thread goes on with what is left to do.
const ASIDE: u32 = 3;

/// Ticks of sleep, of all threads at once, after which nothing more is waited for:
/// two seconds in which none of them lacked a CPU.
const GIVE_UP: u32 = 200;

/// A thread that reads needs no deep stack, and there may be many that are held up.
const STACK: usize = 256 << 10;

/// Somebody asked for an end.
#[derive(Debug, PartialEq, Eq)]
pub struct Stopped;

/// Whether what a thread does is still wanted. Long work asks now and then.
#[derive(Debug, Default)]
pub struct Wanted(AtomicBool);

impl Wanted {
    /// True when nobody waits for the work any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What is known of a thread.
#[derive(Debug, Default)]
struct Lane {
    tid: AtomicI32,
    /// It takes no further job.
    aside: AtomicBool,
}

impl Lane {
    /// Has the thread ended, which had this for its own?
    fn is_over(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) == 1
    }

    /// Does it wait for anything but a CPU?
    fn sleeps(&self) -> bool {
        let path = format!("/proc/self/task/{}/stat", self.tid.load(Ordering::Relaxed));
        let stat = std::fs::read_to_string(path).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, rest)| !rest.starts_with('R'))
    }
}

/// Threads that were held up when they were last waited for, by process.
static HELD: Mutex<BTreeMap<u32, Arc<Lane>>> = Mutex::new(BTreeMap::new());

fn held() -> MutexGuard<'static, BTreeMap<u32, Arc<Lane>>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    static BORROWED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// CPU time that other threads took so far for what this one had them do.
#[must_use]
pub fn borrowed_cpu_time() -> Duration {
    BORROWED.get()
}

fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// What is to be done, and what is being done, by number; of which process.
struct Jobs<J> {
    queue: VecDeque<(usize, u32, J)>,
    begun: BTreeMap<usize, (u32, Arc<Lane>)>,
}

type Work<J, T> = dyn Fn(J, &Wanted) -> T + Send + Sync;

struct Crew<J, T> {
    jobs: Arc<Mutex<Jobs<J>>>,
    work: Arc<Work<J, T>>,
    wanted: Arc<Wanted>,
    /// The job's number, what came of it, and the CPU time it took.
    answers: Sender<(usize, T, Duration)>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<J: Send + 'static, T: Send + 'static> Crew<J, T> {
    /// Another thread that takes jobs until there are none.
    fn hire(&self) -> io::Result<Arc<Lane>> {
        let lane = Arc::new(Lane::default());
        let (mine, jobs) = (Arc::clone(&lane), Arc::clone(&self.jobs));
        let (work, wanted, answers) =
            (Arc::clone(&self.work), Arc::clone(&self.wanted), self.answers.clone());
        let take = move || {
            let mut jobs = locked(&jobs);
            let (number, pid, job) = jobs.queue.pop_front()?;
            jobs.begun.insert(number, (pid, Arc::clone(&mine)));
            Some((number, job))
        };
        let (mine, jobs) = (Arc::clone(&lane), Arc::clone(&self.jobs));
        Builder::new().name("patient".into()).stack_size(STACK).spawn(move || {
            mine.tid.store(gettid().as_raw_nonzero().get(), Ordering::Relaxed);
            while !mine.aside.load(Ordering::Relaxed) && !wanted.is_over() {
                let Some((number, job)) = take() else { return };
                let began = cpu_time();
                let answer = work(job, &wanted);
                locked(&jobs).begun.remove(&number);
                if answers.send((number, answer, cpu_time().saturating_sub(began))).is_err() {
                    return;
                }
            }
        })?;
        Ok(lane)
    }
}

/// Does `work` for each of `jobs`, which are about a process each, on another thread,
/// and calls `done` with the number of each job and what came of it: in their order, but
/// that what is held up comes later. `None` when a process did not answer, now or since
/// it was last asked.
///
/// `stop` is asked a hundred times a second at least; once it says true, nothing more is
/// waited for. What `work` does must not matter by then.
pub fn patiently<J: Send + 'static, T: Send + 'static>(
    jobs: impl IntoIterator<Item = (u32, J)>,
    work: impl Fn(J, &Wanted) -> T + Send + Sync + 'static,
    stop: &dyn Fn() -> bool,
    mut done: impl FnMut(usize, Option<T>),
) -> Result<(), Stopped> {
    held().retain(|_, lane| !lane.is_over());
    let (answers, incoming) = channel();
    let mut queue = VecDeque::new();
    for (number, (pid, job)) in jobs.into_iter().enumerate() {
        if held().contains_key(&pid) {
            done(number, None);
        } else {
            queue.push_back((number, pid, job));
        }
    }
    let mut left = queue.len();
    let jobs = Arc::new(Mutex::new(Jobs { queue, begun: BTreeMap::new() }));
    let crew = Crew { jobs, work: Arc::new(work), wanted: Arc::default(), answers };
    let mut hired = crew.hire();
    let mut asleep = 0;
    while left > 0 {
        if stop() {
            crew.wanted.0.store(true, Ordering::Relaxed);
            return Err(Stopped);
        }
        if let Ok((number, answer, cpu)) = incoming.recv_timeout(TICK) {
            BORROWED.set(BORROWED.get() + cpu);
            left -= 1;
            asleep = 0;
            done(number, Some(answer));
            continue;
        }
        let mut jobs = locked(&crew.jobs);
        if jobs.begun.values().any(|(_, lane)| !lane.sleeps()) {
            continue;
        }
        asleep += 1;
        if let (Ok(lane), false, true) = (&hired, jobs.queue.is_empty(), asleep >= ASIDE) {
            drop(jobs);
            lane.aside.store(true, Ordering::Relaxed);
            hired = crew.hire();
            asleep = 0;
        } else if hired.is_err() || asleep >= GIVE_UP {
            crew.wanted.0.store(true, Ordering::Relaxed);
            let begun = std::mem::take(&mut jobs.begun);
            // For those in the queue there is no thread.
            let unbegun: Vec<usize> =
                std::mem::take(&mut jobs.queue).into_iter().map(|(number, ..)| number).collect();
            drop(jobs);
            let unanswered: Vec<usize> = [begun.keys().copied().collect(), unbegun].concat();
            held().extend(begun.into_values());
            left -= unanswered.len();
            for number in unanswered {
                done(number, None);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
    use std::time::Instant;

    type Waiting = Vec<(u32, Option<Receiver<()>>)>;

    /// Jobs of processes from `first` on: what they wait for, if anything.
    fn jobs(first: u32, waiting: &[bool]) -> (Waiting, Vec<SyncSender<()>>) {
        let mut senders = Vec::new();
        let jobs = (first..).zip(waiting).map(|(pid, &waits)| {
            let job = waits.then(|| {
                let (sender, receiver) = sync_channel(1);
                senders.push(sender);
                receiver
            });
            (pid, job)
        });
        (jobs.collect(), senders)
    }

    fn wait(job: Option<Receiver<()>>, _: &Wanted) -> u8 {
        job.is_some_and(|receiver| receiver.recv().is_ok()).into()
    }

    /// What was answered, by number.
    fn ask(jobs: Waiting) -> Vec<Option<u8>> {
        let mut answers = vec![None; jobs.len()];
        patiently(jobs, wait, &|| false, |number, answer| answers[number] = answer).unwrap();
        answers
    }

    #[test]
    fn who_does_not_answer_holds_up_nobody_and_is_asked_again_when_free() {
        let (held_up, senders) = jobs(1000, &[false, true, false, true, false]);
        assert_eq!(ask(held_up), [Some(0), None, Some(0), None, Some(0)]);
        // As long as they are held up, they are not waited for.
        let began = Instant::now();
        let (again, _senders) = jobs(1000, &[false; 5]);
        assert_eq!(ask(again), [Some(0), None, Some(0), None, Some(0)]);
        assert!(began.elapsed() < TICK * GIVE_UP, "two seconds were waited");
        drop(senders);
        while held().range(1000..1005).any(|(_, lane)| !lane.is_over()) {
            std::thread::yield_now();
        }
        assert_eq!(ask(jobs(1000, &[false; 5]).0), [Some(0); 5]);
    }

    #[test]
    fn who_is_late_is_waited_for() {
        let (late, senders) = jobs(2000, &[true, false]);
        let answers = std::thread::spawn(|| ask(late));
        // The second job is done by another thread by then.
        std::thread::sleep(TICK * ASIDE * 4);
        senders[0].send(()).unwrap();
        assert_eq!(answers.join().unwrap(), [Some(1), Some(0)]);
    }

    #[test]
    fn work_of_any_length_is_waited_for() {
        let mut answer = None;
        let spin = |seconds: u64, _: &Wanted| {
            let began = Instant::now();
            while began.elapsed() < Duration::from_secs(seconds) {}
            seconds
        };
        patiently([(3000, 3)], spin, &|| false, |_, seconds| answer = seconds).unwrap();
        assert_eq!(answer, Some(3));
        assert!(borrowed_cpu_time() > Duration::from_millis(100), "{:?}", borrowed_cpu_time());
    }

    #[test]
    fn an_end_is_at_once_and_is_told() {
        let (told, over) = channel();
        let work = move |(), wanted: &Wanted| {
            while !wanted.is_over() {
                std::thread::yield_now();
            }
            told.send(()).unwrap();
        };
        let ended = patiently([(4000, ())], work, &|| true, |_, _| panic!("nothing was answered"));
        assert_eq!(ended, Err(Stopped));
        // Either it was never begun, or it was told.
        assert!(matches!(over.recv(), Ok(()) | Err(_)));
    }

    #[test]
    fn nothing_to_do_is_done() {
        assert_eq!(ask(Vec::new()), []);
    }
}
