//! Owns locking that outlives a panicking thread, and the one signal that ends every wait.
//!
//! A test that panics while it holds a lock must not hide its own message behind a poisoned mutex.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Locks, also after another thread panicked with the lock held.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A flag that every delay, drip and hang waits on, so that shutting down is prompt.
#[derive(Default)]
pub struct Stop {
    raised: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    /// Ends all waits, present and coming.
    pub fn raise(&self) {
        *lock(&self.raised) = true;
        self.changed.notify_all();
    }

    /// Allows waits again; only for a server that has no threads left.
    pub fn reset(&self) {
        *lock(&self.raised) = false;
    }

    /// True once raised.
    pub fn is_raised(&self) -> bool {
        *lock(&self.raised)
    }

    /// Waits for `pause`; true when the wait was ended by `raise`.
    pub fn wait(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        let mut raised = lock(&self.raised);
        while !*raised {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let (guard, _) = self
                .changed
                .wait_timeout(raised, left)
                .unwrap_or_else(PoisonError::into_inner);
            raised = guard;
        }
        true
    }

    /// Waits until `raise`.
    pub fn wait_for_ever(&self) {
        let mut raised = lock(&self.raised);
        while !*raised {
            raised = self
                .changed
                .wait(raised)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}
