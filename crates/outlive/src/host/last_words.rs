//! The end of a process that must not store to shared memory any more.

use core::time::Duration;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, getpid, kill_process};

/// Writes `message` to standard error, if that is possible without waiting, and kills this process.
///
/// SIGKILL, since an abort runs the program's handler, and the program's other threads would
/// continue during it. For the same reason, nothing here waits: a full pipe loses the message.
pub(crate) fn end_this_process(message: &str) -> ! {
    let errors = std::io::stderr();
    let mut fds = [PollFd::new(&errors, PollFlags::OUT)];
    if poll(&mut fds, Some(&Timespec::default())) == Ok(1) && fds[0].revents() == PollFlags::OUT {
        // Not by the standard library, whose lock another thread may hold. A pipe that is ready has
        // space for a message of this length.
        let _ = rustix::io::write(&errors, message.as_bytes());
    }
    loop {
        let _ = kill_process(getpid(), Signal::KILL);
        // Until the signal arrives.
        std::thread::sleep(Duration::from_millis(1));
    }
}
