//! The end of a thread that has leaked its store.
//!
//! The kernel reports the end of a thread, and a survivor gives back its leases. If the store was
//! leaked, references to bytes under these leases may live on in other threads. So the process ends
//! before the thread does.
//!
//! The number of open stores of a thread is the value of a key of POSIX threads. At the end of a
//! thread, the destructor of the key runs after those of all thread-local variables, which may have
//! stores, and before the kernel reports the end. It does not run when the process exits.

use core::ffi::c_void;
use core::ptr;
use std::io::Write;
use std::sync::OnceLock;

/// Returns the key; `None` if the process has all keys that there can be.
fn key() -> Option<libc::pthread_key_t> {
    static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();
    *KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: the key is written to a variable of this thread; the destructor takes any value.
        let created = unsafe { libc::pthread_key_create(&mut key, Some(at_end_of_thread)) };
        (created == 0).then_some(key)
    })
}

/// Ends the process: the thread ends with `stores` open stores, which are not zero.
extern "C" fn at_end_of_thread(_stores: *mut c_void) {
    let message = b"outlive: a thread ends with leases of a pool's objects that were leaked\n";
    let _ = std::io::stderr().write_all(message);
    std::process::abort();
}

/// Adds `change` to the number of open stores of this thread.
fn count(key: libc::pthread_key_t, change: isize) {
    // SAFETY: the key was created, and is never deleted. Its values are numbers, which nothing
    // follows.
    unsafe {
        let stores = libc::pthread_getspecific(key).addr();
        let stores = ptr::without_provenance_mut::<c_void>(stores.wrapping_add_signed(change));
        libc::pthread_setspecific(key, stores);
    }
}

/// The mark of an open store in its thread.
#[derive(Debug)]
pub(super) struct OpenStore(Option<libc::pthread_key_t>);

impl OpenStore {
    pub fn new() -> Self {
        let key = key();
        if let Some(key) = key {
            count(key, 1);
        }
        Self(key)
    }
}

impl Drop for OpenStore {
    fn drop(&mut self) {
        if let Some(key) = self.0 {
            count(key, -1);
        }
    }
}
