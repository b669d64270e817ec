//! `pod clean` beside a pod that is being created: it removes nothing that is or will be in use.

use super::support::edge::create;
use super::support::{Place, Running, command};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};

/// The number of moments of a cleaning at which a pod is created.
const MOMENTS: u32 = 24;

/// A cleaning that is traced from system call to system call. It is killed on drop.
struct Cleaning(Child);

enum State {
    Stopped,
    Ended(i32),
}

impl Cleaning {
    fn begin() -> io::Result<Self> {
        let mut command = command(["pod", "clean", "--remove"]);
        // SAFETY: a system call only, without pointers.
        unsafe {
            command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            })
        };
        let cleaning = Self(command.stdout(Stdio::null()).spawn()?);
        // It stops at its first instruction.
        cleaning.state();
        Ok(cleaning)
    }

    /// Waits for its next stop, or its end.
    fn state(&self) -> State {
        let mut status = 0;
        // SAFETY: our own child; the status is a local.
        unsafe { libc::waitpid(self.0.id() as i32, &raw mut status, 0) };
        match libc::WIFSTOPPED(status) {
            true => State::Stopped,
            false => State::Ended(status),
        }
    }

    fn go(&self, how: libc::c_uint) {
        // SAFETY: a request without pointers, of our own child, which is stopped.
        unsafe { libc::ptrace(how, self.0.id() as libc::pid_t, 0, 0) };
    }

    /// Returns whether it reaches its `stops`-th entry into or return from a system call.
    fn comes_to(&self, stops: u32) -> bool {
        for _ in 0..stops {
            self.go(libc::PTRACE_SYSCALL);
            if let State::Ended(status) = self.state() {
                assert_eq!(status, 0);
                return false;
            }
        }
        true
    }
}

impl Drop for Cleaning {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_pod_that_is_made_during_a_cleaning_keeps_its_side_file() {
    let mut stops = 0;
    match Cleaning::begin() {
        Ok(cleaning) => {
            while cleaning.comes_to(1) {
                stops += 1;
            }
        }
        Err(error) => return println!("skipped: ptrace is forbidden here ({error})"),
    }
    // The first half of the program's calls load it.
    assert!(stops > 100, "{stops} stops");
    for moment in 0..MOMENTS {
        let at = stops / 2 + stops / 2 * moment / MOMENTS;
        let cleaning = Cleaning::begin().unwrap();
        if !cleaning.comes_to(at) {
            continue;
        }
        let place = Place::new(&format!("cleaning-{moment}"));
        let uuid = create(place.path());
        let mut host = Running::start(["pod", "host", place.path(), "--host", "0"]);
        host.wait_for(&["joined"]);
        host.kill();
        cleaning.go(libc::PTRACE_DETACH);
        match cleaning.state() {
            State::Ended(status) => assert_eq!(status, 0),
            State::Stopped => panic!("it was detached"),
        }
        let names = std::fs::read_dir("/dev/shm").unwrap().flatten();
        let is_there = |name: String| name.contains(&uuid) && !name.contains("cord");
        let kept = names.map(|file| file.file_name().to_string_lossy().into_owned());
        assert!(
            kept.into_iter().any(is_there),
            "removed at stop {at} of {stops}"
        );
    }
}
