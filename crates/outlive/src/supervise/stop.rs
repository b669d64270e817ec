//! Telling a supervisor to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Tells a supervisor to end; clones tell the same one. May be used in a signal handler.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    stopped: Arc<AtomicBool>,
}

impl Stop {
    /// Asks it to end. It does within 20 ms, if it need not wait for threads.
    pub fn stop(&self) {
        // Relaxed: a request, which publishes nothing.
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Whether it has been asked to end.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}
