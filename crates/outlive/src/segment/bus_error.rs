//! Reports on standard error that a process dies because a mapping has lost its memory.
//!
//! When another process truncates a file, or a page of memory fails, the next access to the mapping
//! raises SIGBUS, and the process ends without a message. A handler can name the file. A library
//! does not install signal handlers on its own: a program that wants the line calls
//! [`report_bus_errors`], as the `outlive` command does.
//!
//! The mappings are those of the table in the module `mapped`, which the handler reads without
//! locks.
//!
//! Tests: tests/segment_bus_error.rs.

use super::mapped::{Slot, find};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering};
use libc::{c_int, c_void, siginfo_t};
use std::io;
use std::sync::OnceLock;

/// The size of the line: a path's end and the text.
const LINE: usize = 512;

/// The disposition that was replaced. It is not changed after the handler has been installed.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();
/// Whether the handler has been installed.
static INSTALLED: AtomicBool = AtomicBool::new(false);
/// The text that is written after the line, if it is not null. A text is never freed.
static MORE: AtomicPtr<String> = AtomicPtr::new(null_mut());
/// The state of the report: 0 before it, 1 while a thread writes it, 2 afterwards. Of several
/// threads that fault at the same time, one reports.
static REPORT: AtomicU8 = AtomicU8::new(0);
/// The number of times that a thread that faults yields to the thread that reports, before it ends
/// the process.
const MOST_YIELDS: u32 = 10_000;

/// Installs a handler of SIGBUS that names the file whose mapping has lost its memory, on standard
/// error, before the process dies as it would without the handler.
///
/// The handler is async-signal-safe. After its line it restores the disposition that was there
/// before and returns, so that the access is repeated and handled by it: the process dies, or the
/// earlier handler runs. A fault at any other address goes to the earlier handler. Install handlers
/// of your own before this, or call the one that they replace. Calling this again does nothing.
///
/// # Errors
/// If the handler cannot be installed.
pub fn report_bus_errors() -> io::Result<()> {
    if INSTALLED.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    install().inspect_err(|_| INSTALLED.store(false, Ordering::Relaxed))
}

fn install() -> io::Result<()> {
    // SAFETY: zeros are a valid `sigaction`, which the calls read and write; the handler is
    // async-signal-safe.
    unsafe {
        let mut before: libc::sigaction = core::mem::zeroed();
        if libc::sigaction(libc::SIGBUS, core::ptr::null(), &raw mut before) != 0 {
            return Err(io::Error::last_os_error());
        }
        // Set before the handler can run; it keeps the value of an attempt that failed.
        BEFORE.get_or_init(|| before);
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = on_bus_error as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        if libc::sigaction(libc::SIGBUS, &raw const action, null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Sets the text that is written after the line of [`report_bus_errors`]: the resources that the
/// process leaves behind, and how to remove them.
pub fn say_after_bus_error(text: &str) {
    // Leaked: the handler may be reading an earlier text. Release: the handler sees the bytes.
    MORE.store(Box::into_raw(Box::new(text.to_owned())), Ordering::Release);
}

extern "C" fn on_bus_error(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let Some(before) = BEFORE.get() else {
        return;
    };
    // SAFETY: the kernel gives a valid `siginfo_t`; a fault's has an address.
    let (code, at) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    // Codes above zero are the kernel's: a fault.
    let slot = if code > 0 { find(at) } else { None };
    if let Some(slot) = slot {
        report_once(slot, code);
        restore(signal, before);
        return;
    }
    match before.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => {
            restore(signal, before);
            if code <= 0 {
                // A process sent the signal: it is not raised again by itself.
                // SAFETY: async-signal-safe; blocked until this returns.
                unsafe { libc::raise(signal) };
            }
        }
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: the program has installed this address as a handler of this kind.
            let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
                unsafe { core::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: as above.
            let handler: extern "C" fn(c_int) = unsafe { core::mem::transmute(handler) };
            handler(signal);
        }
    }
}

fn restore(signal: c_int, before: &libc::sigaction) {
    // SAFETY: async-signal-safe; `before` came from the kernel.
    unsafe { libc::sigaction(signal, before, null_mut()) };
}

fn report_once(slot: &Slot, code: c_int) {
    // Relaxed: only the line itself matters, which the kernel has once `report` returns.
    let (order, failure) = (Ordering::Relaxed, Ordering::Relaxed);
    if REPORT.compare_exchange(0, 1, order, failure).is_ok() {
        report(slot, code);
        REPORT.store(2, order);
        return;
    }
    for _ in 0..MOST_YIELDS {
        if REPORT.load(order) == 2 {
            return;
        }
        // SAFETY: a system call without arguments.
        unsafe { libc::sched_yield() };
    }
}

/// Writes the line. Called in a signal handler: nothing here allocates, locks or panics.
fn report(slot: &Slot, code: c_int) {
    /// `BUS_MCEERR_AR`, the first of the codes of failed memory.
    const MEMORY_FAILED: c_int = 4;
    let mut line = [0; LINE];
    let mut len = 0;
    let text: &[u8] = if code >= MEMORY_FAILED {
        b" has lost a page: its memory failed; this process ends by SIGBUS\n"
    } else {
        b" has lost pages that were mapped: another program truncated it, or its device failed; \
          this process ends by SIGBUS\n"
    };
    let bytes = b"outlive: ".iter().copied().chain(slot.path());
    for (cell, byte) in line.iter_mut().zip(bytes.chain(text.iter().copied())) {
        *cell = byte;
        len += 1;
    }
    write(line.get(..len).unwrap_or_default());
    // SAFETY: null, or a leaked text that is not changed.
    if let Some(more) = unsafe { MORE.load(Ordering::Acquire).as_ref() } {
        write(more.as_bytes());
    }
}

fn write(bytes: &[u8]) {
    // SAFETY: async-signal-safe; bytes that are not written are lost.
    let _ = unsafe { libc::write(libc::STDERR_FILENO, bytes.as_ptr().cast(), bytes.len()) };
}
