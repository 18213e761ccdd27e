// SPDX-License-Identifier: GPL-2.0-only
//! Reading what others can hold up.
//!
//! Most files of a process in `/proc` take the lock of its memory map. A process that
//! has a file system of its own in user space can keep that lock for as long as it
//! likes, and whoever reads waits, deaf to signals but SIGKILL. So such reading is done
//! on other threads, and left to them when it takes no turn. So is what changes pages of
//! another process, which takes the same lock.

use rustix::thread::gettid;
use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;

/// How often it is looked at whether a thread runs or sleeps.
const TICK: Duration = Duration::from_millis(10);

/// Ticks of sleep after which another thread goes on with what is left to do.
const ASIDE: u32 = 3;

/// Ticks of sleep, of all threads at once, after which nothing more is waited for:
/// five seconds in which none of them had, or lacked, a CPU. Where memory is short, who
/// makes copies or reads back what was swapped out may sleep for seconds.
const GIVE_UP: u32 = 500;

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

    /// Does it wait for anything but a CPU? One that was never run yet does not.
    fn sleeps(&self) -> bool {
        let tid = self.tid.load(Ordering::Relaxed);
        let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap_or_default();
        tid != 0 && stat.rsplit_once(") ").is_none_or(|(_, rest)| !rest.starts_with('R'))
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
    let mut open: BTreeSet<usize> = queue.iter().map(|(number, ..)| *number).collect();
    let jobs = Arc::new(Mutex::new(Jobs { queue, begun: BTreeMap::new() }));
    let crew = Crew { jobs, work: Arc::new(work), wanted: Arc::default(), answers };
    let mut hired = crew.hire();
    let mut asleep = 0;
    while !open.is_empty() {
        if stop() {
            crew.wanted.0.store(true, Ordering::Relaxed);
            // The others end soon.
            let begun = std::mem::take(&mut locked(&crew.jobs).begun);
            held().extend(begun.into_values().filter(|(_, lane)| lane.sleeps()));
            return Err(Stopped);
        }
        if let Ok((number, answer, cpu)) = incoming.recv_timeout(TICK) {
            BORROWED.set(BORROWED.get() + cpu);
            asleep = 0;
            // Who was given up may answer after all.
            if open.remove(&number) {
                done(number, Some(answer));
            }
            continue;
        }
        let mut jobs = locked(&crew.jobs);
        let mut at_work = jobs.begun.values().map(|(_, lane)| lane).chain(&hired);
        if at_work.any(|lane| !lane.sleeps()) {
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
            for number in unanswered {
                open.remove(&number);
                done(number, None);
            }
        }
    }
    Ok(())
}

/// Does `work` about process `pid` on another thread; `None` when the process does not
/// answer. `work` may be in the midst of anything then, and may still come to its end.
pub fn ask<T: Send + 'static>(pid: u32, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let mut told = None;
    // Nobody stops it.
    let _ = patiently([(pid, work)], |work, _| work(), &|| false, |_, answer| told = answer);
    told
}

/// Does `work`, which is long, on another thread: once `stop`, which is asked a hundred
/// times a second, says true, the thread is left to itself.
pub fn unless_stopped<T: Send + 'static, W: FnOnce() -> T + Send + 'static>(
    work: W,
    stop: &dyn Fn() -> bool,
) -> Result<T, Stopped> {
    let (order, orders) = channel::<W>();
    let (answer, answers) = channel();
    let thread = Builder::new().name("aside".into()).spawn(move || {
        if let Ok(work) = orders.recv() {
            // Nobody waits for it when it was stopped.
            let _ = answer.send((work(), cpu_time()));
        }
    });
    let Ok(thread) = thread else {
        return Ok(work());
    };
    // It waits for this, and for nothing else.
    let _ = order.send(work);
    while !stop() {
        match answers.recv_timeout(TICK) {
            Ok((told, cpu)) => {
                BORROWED.set(BORROWED.get() + cpu);
                return Ok(told);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                if let Err(panic) = thread.join() {
                    std::panic::resume_unwind(panic);
                }
                return Err(Stopped);
            }
        }
    }
    Err(Stopped)
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
    fn answers(jobs: Waiting) -> Vec<Option<u8>> {
        let mut answers = vec![None; jobs.len()];
        patiently(jobs, wait, &|| false, |number, answer| answers[number] = answer).unwrap();
        answers
    }

    #[test]
    fn who_does_not_answer_holds_up_nobody_and_is_asked_again_when_free() {
        let (held_up, senders) = jobs(1000, &[false, true, false, true, false]);
        assert_eq!(answers(held_up), [Some(0), None, Some(0), None, Some(0)]);
        // As long as they are held up, it is said of them before anybody is asked.
        let (again, _senders) = jobs(1000, &[false; 5]);
        let mut told = Vec::new();
        patiently(again, wait, &|| false, |number, answer| told.push((number, answer))).unwrap();
        assert_eq!(told[..2], [(1, None), (3, None)]);
        assert_eq!(told.len(), 5);
        drop(senders);
        while held().range(1000..1005).any(|(_, lane)| !lane.is_over()) {
            std::thread::yield_now();
        }
        assert_eq!(answers(jobs(1000, &[false; 5]).0), [Some(0); 5]);
    }

    #[test]
    fn who_is_late_is_waited_for() {
        let (late, senders) = jobs(2000, &[true, false]);
        let told = std::thread::spawn(|| answers(late));
        // The second job is done by another thread by then.
        std::thread::sleep(TICK * ASIDE * 4);
        senders[0].send(()).unwrap();
        assert_eq!(told.join().unwrap(), [Some(1), Some(0)]);
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
    fn a_thread_that_was_not_run_yet_is_not_taken_for_one_that_sleeps() {
        assert!(!Lane::default().sleeps());
    }

    #[test]
    fn one_question_has_one_answer_or_none() {
        assert_eq!(ask(5000, || 7), Some(7));
        let (_sender, receiver) = sync_channel::<()>(1);
        assert_eq!(ask(5000, move || receiver.recv().is_ok()), None);
    }

    #[test]
    fn long_work_is_done_unless_it_is_stopped() {
        assert_eq!(unless_stopped(|| 7, &|| false), Ok(7));
        let (_sender, receiver) = sync_channel::<()>(1);
        let asked = Cell::new(0);
        let stop = || asked.replace(asked.get() + 1) == 3;
        assert_eq!(unless_stopped(move || receiver.recv().is_ok(), &stop), Err(Stopped));
        let failing = || unless_stopped(|| assert!(std::env::args().len() == 0, "fails"), &|| false);
        assert!(std::panic::catch_unwind(failing).is_err(), "what fails there fails here");
    }

    #[test]
    fn who_was_asleep_when_it_was_stopped_is_not_asked_again() {
        let (held_up, _senders) = jobs(6000, &[true]);
        let asked = Cell::new(0);
        let stop = || asked.replace(asked.get() + 1) == 50;
        assert_eq!(patiently(held_up, wait, &stop, |_, _| ()), Err(Stopped));
        assert_eq!(ask(6000, || ()), None);
    }

    #[test]
    fn nothing_to_do_is_done() {
        assert_eq!(answers(Vec::new()), []);
    }
}
