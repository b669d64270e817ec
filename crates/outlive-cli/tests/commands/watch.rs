//! The live view ends with its terminal, and on a signal.

use crate::support;
use crate::support::{Place, command, outlive};
use rustix::process::Signal;
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::FromRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

/// Creates a pseudo-terminal. Returns the side of the terminal's program, and the command's side.
fn terminal() -> (File, File) {
    // SAFETY: calls on a new descriptor; the name is copied before another call changes it.
    unsafe {
        let master = libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC);
        assert!(master >= 0, "{}", io::Error::last_os_error());
        let master = File::from_raw_fd(master);
        let fd = std::os::fd::AsRawFd::as_raw_fd(&master);
        assert!(libc::grantpt(fd) == 0 && libc::unlockpt(fd) == 0);
        let mut name = [0; 64];
        assert_eq!(libc::ptsname_r(fd, name.as_mut_ptr(), name.len()), 0);
        let slave = libc::open(
            name.as_ptr(),
            libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC,
        );
        assert!(slave >= 0, "{:?}", CStr::from_ptr(name.as_ptr()));
        (master, File::from_raw_fd(slave))
    }
}

/// Starts `outlive pod watch` on a terminal, and waits until it has drawn something. With
/// `is_controlling` the terminal also sends it SIGHUP.
fn watch(path: &str, is_controlling: bool) -> (Child, File) {
    let (mut master, slave) = terminal();
    let mut watch: Command = command(["pod", "watch", path]);
    watch
        .stdin(slave.try_clone().unwrap())
        .stdout(slave.try_clone().unwrap())
        .stderr(slave);
    let prepare = move || {
        // SAFETY: system calls only.
        let done = unsafe {
            libc::setsid() >= 0 && (!is_controlling || libc::ioctl(0, libc::TIOCSCTTY, 0) == 0)
        };
        if done {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    };
    // SAFETY: `prepare` makes system calls only.
    unsafe { watch.pre_exec(prepare) };
    let child = watch.spawn().unwrap();
    // This closes the slave side, whose descriptors `watch` holds.
    drop(watch);
    assert!(master.read(&mut [0; 64]).unwrap() > 0);
    (child, master)
}

#[track_caller]
fn ends(mut child: Child) {
    let until = Instant::now() + LIMIT;
    loop {
        match child.try_wait().unwrap() {
            Some(status) => return assert!(status.success(), "{status}"),
            None if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
            None => {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("it has not ended after {LIMIT:?}");
            }
        }
    }
}

#[test]
fn the_live_view_ends_when_its_terminal_is_closed() {
    let place = Place::new("terminal");
    outlive(["pod", "create", place.path(), "--size", "4M", "--ids", "16"]).succeeds();
    for (is_controlling, has_frame) in [(false, false), (true, false), (false, true), (true, true)]
    {
        let (child, mut master) = watch(place.path(), is_controlling);
        let mut shown = Vec::new();
        // The cursor is hidden at the end of a frame.
        while has_frame && !shown.ends_with(b"\x1b[?25l") {
            let mut byte = [0];
            master.read_exact(&mut byte).unwrap();
            shown.extend(byte);
        }
        drop(master);
        ends(child);
    }
}

#[test]
fn the_live_view_ends_when_it_is_told_to() {
    let place = Place::new("told");
    outlive(["pod", "create", place.path(), "--size", "4M", "--ids", "16"]).succeeds();
    let (child, mut master) = watch(place.path(), false);
    // Its output is read, so that it does not wait for a reader.
    std::thread::spawn(move || while matches!(master.read(&mut [0; 4096]), Ok(1..)) {});
    // The signal comes when the library reads keys: the handlers are installed before the first
    // frame.
    support::send(child.id(), Signal::TERM);
    ends(child);
}
