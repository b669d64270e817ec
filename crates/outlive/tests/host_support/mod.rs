//! Real processes for tests: a harness of one thread (so that forking is safe), children that are
//! always killed and reaped, and words that they share.

#![allow(dead_code, reason = "each test program uses a part")]

use outlive::host::{Access, Linux, Os, PodFile, ProcessIdentity, ThreadIdentity};
use outlive::segment::Segment;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

/// No test and no child lives longer, in seconds.
const LIMIT: u32 = 120;

/// Runs the tests whose names contain the first argument that is not an option.
pub fn run(tests: &[(&str, fn())]) -> ExitCode {
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let mut failures = 0;
    for (name, test) in tests {
        if filter.as_ref().is_some_and(|filter| !name.contains(filter)) {
            continue;
        }
        more_time();
        let failed = catch_unwind(AssertUnwindSafe(test)).is_err();
        println!("test {name} ... {}", if failed { "FAILED" } else { "ok" });
        failures += u8::from(failed);
    }
    println!("{failures} failed");
    ExitCode::from(failures.min(1))
}

/// Starts the time limit again.
pub fn more_time() {
    // SAFETY: the alarm's only effect is to end this process.
    unsafe { libc::alarm(LIMIT) };
}

/// A pod of one test; its side file is removed at the end.
pub struct TestPod {
    pub id: u128,
    pub slots: u32,
    /// Anonymous memory; forked children reach it by the descriptor that they inherit.
    segment: Segment,
}

impl TestPod {
    pub fn new() -> Self {
        Self::of(16)
    }

    pub fn of(slots: u32) -> Self {
        let id = uuid::Uuid::new_v4().as_u128();
        let segment = Segment::builder().size(1 << 20).create("memfd:test");
        Self {
            id,
            slots,
            segment: segment.unwrap(),
        }
    }

    pub fn file(&self) -> PodFile {
        let segment = self.segment;
        PodFile::new(segment.file(), segment.path(), segment.granule())
    }

    pub fn file_of_segment(&self) -> std::sync::Arc<std::fs::File> {
        self.segment.file()
    }

    pub fn attach(&self) -> &'static Linux {
        Linux::attach(self.id, self.slots, Access::default(), self.file(), true).unwrap()
    }
}

impl Drop for TestPod {
    fn drop(&mut self) {
        // With any access that a test has given them.
        for cord in Linux::cords().unwrap_or_default() {
            if cord.pod == self.id {
                let _ = std::fs::remove_file(cord.path);
            }
        }
        if let Err(error) = Linux::remove_side_file(self.id) {
            println!("cleaning up: {error}");
            for file in Linux::side_files().unwrap_or_default() {
                if file.pod == self.id {
                    let _ = std::fs::remove_file(file.path);
                }
            }
        }
    }
}

/// A forked child.
pub struct Child {
    pub pid: u32,
    reaped: bool,
}

impl Child {
    /// Forks a child that runs `body` and exits with 0, or 101 if it panics.
    pub fn run(body: impl FnOnce()) -> Self {
        // SAFETY: this process has one thread when a test forks, so the child may do anything.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: ends the child should the test forget it, or its parent die.
                unsafe {
                    libc::alarm(LIMIT);
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                }
                let panicked = catch_unwind(AssertUnwindSafe(body)).is_err();
                // SAFETY: no destructors or exit handlers of the parent's are to run here.
                unsafe { libc::_exit(if panicked { 101 } else { 0 }) }
            }
            pid => {
                assert!(pid > 0, "fork failed");
                Self {
                    pid: pid as u32,
                    reaped: false,
                }
            }
        }
    }

    pub fn identity(&self) -> ProcessIdentity {
        ProcessIdentity {
            pid: self.pid,
            start_time: start_time(self.pid, self.pid),
        }
    }

    /// Its leader thread.
    pub fn thread(&self) -> ThreadIdentity {
        let process = self.identity();
        ThreadIdentity {
            process,
            tid: self.pid,
            start_time: process.start_time,
        }
    }

    pub fn kill(&self) {
        // SAFETY: it has not been reaped, so the pid is its own.
        unsafe { libc::kill(self.pid as i32, libc::SIGKILL) };
    }

    /// Waits for its end and returns the raw status.
    pub fn reap(&mut self) -> i32 {
        let mut status = 0;
        // SAFETY: our own child, reaped once.
        let pid = unsafe { libc::waitpid(self.pid as i32, &mut status, 0) };
        assert_eq!(pid, self.pid as i32);
        self.reaped = true;
        status
    }

    /// Waits until it has ended, without reaping it.
    pub fn wait_zombie(&self) {
        // SAFETY: the structure is plain data; our own child.
        unsafe {
            let mut info: libc::siginfo_t = core::mem::zeroed();
            let flags = libc::WEXITED | libc::WNOWAIT;
            libc::waitid(libc::P_PID, self.pid, &mut info, flags);
        }
    }

    /// Records that it was reaped by other means.
    pub fn forget(&mut self) {
        self.reaped = true;
    }

    pub fn succeed(mut self) {
        assert_eq!(self.reap(), 0, "the child failed");
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.reaped {
            self.kill();
            self.reap();
        }
    }
}

/// Words that a test and its children share.
#[derive(Clone, Copy)]
pub struct Shared(&'static [AtomicU32; 1024]);

impl Shared {
    pub fn new() -> Self {
        // SAFETY: a fresh anonymous mapping; checked.
        let page = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                4096,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(page, libc::MAP_FAILED);
        // SAFETY: the page is zeroed, aligned, never unmapped, and accessed as these words only
        // (or, by their addresses, as C mutexes).
        Self(unsafe { &*page.cast() })
    }

    pub fn at(&self, index: usize) -> &'static AtomicU32 {
        &self.0[index]
    }

    /// Waits until word `index` is at least `value`.
    pub fn wait(&self, index: usize, value: u32) -> u32 {
        loop {
            let now = self.at(index).load(SeqCst);
            if now >= value {
                return now;
            }
            nap();
        }
    }
}

pub fn nap() {
    std::thread::sleep(Duration::from_micros(200));
}

pub fn until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        nap();
    }
}

/// Sleeps until killed.
pub fn sleep_for_ever() -> ! {
    loop {
        // SAFETY: returns after a signal only.
        unsafe { libc::pause() };
    }
}

/// The start time of a thread, by a parser of the test's own.
pub fn start_time(pid: u32, tid: u32) -> u64 {
    let line = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).unwrap();
    let (_, tail) = line.rsplit_once(')').unwrap();
    tail.split_whitespace().nth(19).unwrap().parse().unwrap()
}

/// The calling thread's id.
pub fn tid() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}

/// Holds an obituary that must be vacant.
pub fn hold(os: &Linux, slot: u32) {
    os.hold_obituary(slot).unwrap().unwrap();
}

/// Where in the side file of a pod with `slots` obituaries the pages with their words begin.
pub fn words_at(slots: u32) -> u64 {
    (4096 + 1024 * 64 + u64::from(slots) * 16).next_multiple_of(4096)
}
