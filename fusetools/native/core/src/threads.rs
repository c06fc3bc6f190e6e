//! The threads that read and pack records: one for each CPU, or the caller's own where no other can be started (RLIMIT_NPROC, a cgroup's
//! limit of tasks).

use std::sync::OnceLock;

use rayon::{Scope, ThreadPool, ThreadPoolBuilder};

/// rayon's global pool would panic where a thread cannot be started.
static POOL: OnceLock<Option<ThreadPool>> = OnceLock::new();

/// None: the caller's thread does all work. RAYON_NUM_THREADS=1 asks for that.
pub(crate) fn pool() -> Option<&'static ThreadPool> {
    let pool = POOL.get_or_init(|| match std::env::var("RAYON_NUM_THREADS").as_deref() {
        Ok("1") => None,
        _ => ThreadPoolBuilder::new().build().ok(),
    });
    pool.as_ref()
}

/// How much work to begin ahead of what is used.
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

/// Returns when all pieces of work that `work` spawns are done.
pub(crate) fn scoped<'scope, R>(work: impl FnOnce(&Workers<'_, 'scope>) -> R) -> R {
    match pool() {
        Some(pool) => pool.in_place_scope(|scope| work(&Workers::Pool(scope))),
        None => work(&Workers::Caller),
    }
}
