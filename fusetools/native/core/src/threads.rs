//! The threads that read and pack records: one for each CPU, or the caller's own where no other can be started (RLIMIT_NPROC, a cgroup's
//! limit of tasks).

use std::sync::{Mutex, PoisonError};

use rayon::{Scope, ThreadPool, ThreadPoolBuilder};

/// The pool, and the process that started it: a forked child has none of its threads. rayon's global pool would panic
/// where a thread cannot be started.
static POOL: Mutex<Option<(u32, Option<&'static ThreadPool>)>> = Mutex::new(None);

/// Return the pool. None: the caller's thread does all work, as with RAYON_NUM_THREADS=1.
pub(crate) fn pool() -> Option<&'static ThreadPool> {
    let own = std::process::id();
    let mut known = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    match *known {
        Some((process, pool)) if process == own => pool,
        _ => {
            let pool = match std::env::var("RAYON_NUM_THREADS").as_deref() {
                Ok("1") => None,
                _ => ThreadPoolBuilder::new().build().ok(),
            };
            // Kept until the process ends; so is that of the parent, whose threads cannot be joined here.
            let pool = pool.map(|pool| &*Box::leak(Box::new(pool)));
            *known = Some((own, pool));
            pool
        }
    }
}

/// Return how much work to begin ahead of what is used.
pub(crate) fn ahead() -> usize {
    pool().map_or(1, |pool| 2 * pool.current_num_threads() + 1)
}

/// Runs pieces of work: beside the caller, or immediately.
pub(crate) enum Workers<'a, 'scope> {
    Pool(&'a Scope<'scope>),
    Caller,
}

impl<'scope> Workers<'_, 'scope> {
    pub(crate) fn spawn(&self, work: impl FnOnce() + Send + 'scope) {
        match self {
            Workers::Pool(scope) => scope.spawn(move |_| work()),
            Workers::Caller => work(),
        }
    }
}

/// Return when all pieces of work that `work` spawns are done.
pub(crate) fn scoped<'scope, R>(work: impl FnOnce(&Workers<'_, 'scope>) -> R) -> R {
    match pool() {
        Some(pool) => pool.in_place_scope(|scope| work(&Workers::Pool(scope))),
        None => work(&Workers::Caller),
    }
}
