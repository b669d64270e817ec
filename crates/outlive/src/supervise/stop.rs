//! Stops a supervisor.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A handle to stop a supervisor; clones stop the same one. May be used in a signal handler.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    stopped: Arc<AtomicBool>,
}

impl Stop {
    /// Asks the supervisor to end. It ends within 20 ms, unless it has to wait for threads.
    pub fn stop(&self) {
        // Relaxed: a request, which publishes nothing.
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Returns whether the supervisor has been asked to end.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}
