//! The guard against the end of a thread that has leaked its store: it aborts the process.
//!
//! The kernel reports the end of a thread, and a survivor gives back its leases. If the store was
//! leaked, references to bytes under these leases may live on in other threads. So the process ends
//! before the thread does. (A main thread that returns ends the process in any case.)

use core::cell::Cell;
use std::io::Write;

/// The number of stores that are open in a thread.
struct OpenStores(Cell<usize>);

thread_local! {
    static OPEN: OpenStores = const { OpenStores(Cell::new(0)) };
}

impl Drop for OpenStores {
    fn drop(&mut self) {
        let is_main = rustix::thread::gettid() == rustix::process::getpid();
        if self.0.get() > 0 && !is_main {
            let message =
                b"outlive: a thread ends with leases of a pool's objects that were leaked\n";
            let _ = std::io::stderr().write_all(message);
            std::process::abort();
        }
    }
}

/// The mark of an open store in its thread.
#[derive(Debug)]
pub(super) struct OpenStore(());

impl OpenStore {
    pub fn new() -> Self {
        OPEN.with(|open| open.0.set(open.0.get() + 1));
        Self(())
    }
}

impl Drop for OpenStore {
    fn drop(&mut self) {
        // A store in another thread-local variable may be dropped after `OPEN`. In this case the
        // thread had an open store when `OPEN` was dropped, and the process was aborted.
        let _ = OPEN.try_with(|open| open.0.set(open.0.get() - 1));
    }
}
