//! Work that is divided among the CPUs, its results used in order by the caller's thread.
//!
//! The caller works, too: while the next result is not there, it does a piece of work itself. So it sleeps only if
//! nothing is left to begin. Where no thread can be started (RLIMIT_NPROC, a cgroup's limit of tasks), it does all work.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Environment variable: 1 makes the caller's thread do all work.
const THREADS: &str = "FUSETOOLS_THREADS";

/// Return the number of threads that work, with the caller's: one for each CPU that this process may use.
fn count() -> usize {
    match std::env::var(THREADS).as_deref() {
        Ok("1") => 1,
        _ => thread::available_parallelism().map_or(1, usize::from),
    }
}

/// Return how many pieces of work to begin before the first of them is used.
fn ahead(threads: usize) -> usize {
    match threads {
        1 => 1,
        threads => 8 + 2 * threads,
    }
}

struct Queue<J, R> {
    todo: VecDeque<(usize, J)>,
    /// Results by number, from `first` on. None: not there yet.
    done: VecDeque<Option<thread::Result<R>>>,
    first: usize,
    /// The caller waits for the result `first`.
    awaited: bool,
    closed: bool,
}

struct Shared<J, R> {
    queue: Mutex<Queue<J, R>>,
    /// Signals that there is work, or that none will come.
    work: Condvar,
    /// Signals that the awaited result is there.
    result: Condvar,
}

impl<J, R> Shared<J, R> {
    fn queue(&self) -> MutexGuard<'_, Queue<J, R>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, number: usize, result: thread::Result<R>) {
        let mut queue = self.queue();
        let at = number - queue.first;
        queue.done[at] = Some(result);
        if at == 0 && queue.awaited {
            self.result.notify_one();
        }
    }

    /// Do pieces of work until none will come.
    fn serve(&self, work: impl Fn(J) -> R) {
        let mut queue = self.queue();
        while !queue.closed {
            let Some((number, job)) = queue.todo.pop_front() else {
                queue = self
                    .work
                    .wait(queue)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(queue);
            self.put(number, catch_unwind(AssertUnwindSafe(|| work(job))));
            queue = self.queue();
        }
    }
}

/// Ends the threads, also if the caller panics.
struct Close<'a, J, R>(&'a Shared<J, R>);

impl<J, R> Drop for Close<'_, J, R> {
    fn drop(&mut self) {
        self.0.queue().closed = true;
        self.0.work.notify_all();
    }
}

/// Do `work` on all `jobs`, several at a time, and pass each result to `take` in the jobs' order, until it breaks.
/// `jobs` and `take` run in the caller's thread; at the end jobs may have been begun whose results are not used. Return
/// whether all results were taken.
pub(crate) fn in_order<J: Send, R: Send>(
    mut jobs: impl FnMut() -> Option<J>,
    work: impl Fn(J) -> R + Sync,
    mut take: impl FnMut(R) -> ControlFlow<()>,
) -> bool {
    let threads = count();
    let ahead = ahead(threads);
    let shared = Shared {
        queue: Mutex::new(Queue {
            todo: VecDeque::new(),
            done: VecDeque::new(),
            first: 0,
            awaited: false,
            closed: false,
        }),
        work: Condvar::new(),
        result: Condvar::new(),
    };
    let (shared, work) = (&shared, &work);
    thread::scope(|scope| {
        let _close = Close(shared);
        let (mut begun, mut taken) = (0, 0);
        let mut others = 0;
        loop {
            // Several at a time: waking a thread for each piece would cost more than many pieces do.
            if begun - taken <= ahead / 2 {
                let new: Vec<J> = std::iter::from_fn(&mut jobs)
                    .take(ahead - (begun - taken))
                    .collect();
                let many = new.len();
                let mut queue = shared.queue();
                for job in new {
                    queue.todo.push_back((begun, job));
                    queue.done.push_back(None);
                    begun += 1;
                }
                drop(queue);
                if many > 1 {
                    shared.work.notify_all();
                }
            }
            while others + 1 < threads.min(begun) {
                let worker = thread::Builder::new();
                match worker.spawn_scoped(scope, move || shared.serve(work)) {
                    Ok(_) => others += 1,
                    Err(_) => others = threads,
                }
            }
            if taken == begun {
                return true;
            }
            let result = loop {
                let mut queue = shared.queue();
                if let Some(result) = queue.done.front_mut().and_then(Option::take) {
                    queue.done.pop_front();
                    queue.first += 1;
                    break result;
                }
                let Some((number, job)) = queue.todo.pop_front() else {
                    queue.awaited = true;
                    let mut queue = shared
                        .result
                        .wait(queue)
                        .unwrap_or_else(PoisonError::into_inner);
                    queue.awaited = false;
                    continue;
                };
                drop(queue);
                shared.put(number, Ok(work(job)));
            };
            taken += 1;
            let result = result.unwrap_or_else(|panic| resume_unwind(panic));
            if take(result).is_break() {
                return false;
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn results_come_in_order_and_each_once() {
        for many in [0, 1, 2, 5, 1000] {
            let mut jobs = 0..many;
            let mut found = Vec::new();
            let work = |job: u64| {
                thread::sleep(Duration::from_micros(job * 7 % 50));
                job * job
            };
            let all = in_order(
                || jobs.next(),
                work,
                |result| {
                    found.push(result);
                    ControlFlow::Continue(())
                },
            );
            assert!(all);
            assert!(found.into_iter().eq((0..many).map(|job| job * job)));
        }
    }

    #[test]
    fn the_taker_ends_the_work() {
        let mut jobs = 0..;
        let mut found = 0;
        let all = in_order(
            || jobs.next(),
            |job: u64| job,
            |result| {
                found = result;
                match result {
                    10 => ControlFlow::Break(()),
                    _ => ControlFlow::Continue(()),
                }
            },
        );
        assert!(!all);
        assert_eq!(found, 10);
    }

    #[test]
    fn a_panic_is_passed_on() {
        let one = |of_taker: bool| {
            let mut jobs = 0..100;
            let result = catch_unwind(AssertUnwindSafe(|| {
                in_order(
                    || jobs.next(),
                    |job: u64| assert!(of_taker || job != 50),
                    |()| {
                        assert!(!of_taker);
                        ControlFlow::Continue(())
                    },
                )
            }));
            assert!(result.is_err());
        };
        one(true);
        one(false);
    }
}
