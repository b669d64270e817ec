//! A child process that answers each line on its standard input with a line on its standard output.

use super::protocol::MAX_LINE;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A child process in its own process group. Dropping it kills the group.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
    /// The bytes that were read and are not yet returned.
    buffer: Vec<u8>,
    limit: Duration,
}

impl Process {
    /// Starts `command` in a shell. Each of its answers arrives within `limit`, or is an error.
    pub fn start(command: &str, limit: Duration) -> Result<Self, String> {
        let child = Command::new("sh")
            .args(["-c", command])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn();
        let mut child = child.map_err(|error| format!("`sh` cannot be started: {error}"))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both are pipes");
        };
        let process = Self {
            child,
            input,
            output,
            buffer: Vec::new(),
            limit: limit.min(Duration::from_secs(24 * 60 * 60)),
        };
        // The child has another description of the pipe, which remains blocking.
        let unblocked = fcntl_getfl(&process.input)
            .and_then(|flags| fcntl_setfl(&process.input, flags | OFlags::NONBLOCK));
        unblocked.map_err(|error| format!("its standard input cannot be set up: {error}"))?;
        Ok(process)
    }

    /// Writes `line`, which ends with a newline, and returns the line that answers it, without the
    /// newline.
    ///
    /// # Errors
    /// The problem, as a sentence. The process cannot be used after an error.
    pub fn ask(&mut self, line: &[u8]) -> Result<Vec<u8>, String> {
        let answer = self.ask_within(line, self.limit)?;
        answer.ok_or_else(|| self.is_late())
    }

    /// Does the same as [`ask`](Self::ask), with a limit of its own. Returns `None` if the answer
    /// does not arrive within it; `line` has then been written.
    pub fn ask_within(&mut self, line: &[u8], limit: Duration) -> Result<Option<Vec<u8>>, String> {
        let end = Instant::now() + limit;
        let is_early =
            !self.buffer.is_empty() || self.wait(Side::Output, Instant::now())? && self.fill()?;
        if is_early {
            let text = shown(&self.buffer);
            return Err(format!("it printed {text} before it received a request"));
        }
        self.write(line, Instant::now() + self.limit)?;
        loop {
            if let Some(at) = self.buffer.iter().position(|it| *it == b'\n') {
                let rest = self.buffer.split_off(at + 1);
                let mut line = std::mem::replace(&mut self.buffer, rest);
                line.pop();
                return Ok(Some(line));
            }
            if self.buffer.len() > MAX_LINE {
                let start = shown(&self.buffer);
                return Err(format!(
                    "it printed a line of more than {MAX_LINE} bytes: {start}"
                ));
            }
            if !self.wait(Side::Output, end)? {
                return Ok(None);
            }
            if !self.fill()? {
                return Err(self.ended());
            }
        }
    }

    fn write(&mut self, mut line: &[u8], end: Instant) -> Result<(), String> {
        while !line.is_empty() {
            match self.input.write(line) {
                Ok(written) => line = &line[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !self.wait(Side::Input, end)? {
                        return Err(self.is_late());
                    }
                }
                Err(_) => return Err(self.ended()),
            }
        }
        Ok(())
    }

    /// Reads the bytes that are available. Returns `false` at the end of the output.
    fn fill(&mut self) -> Result<bool, String> {
        let mut bytes = [0; 4096];
        loop {
            match self.output.read(&mut bytes) {
                Ok(number) => {
                    self.buffer.extend_from_slice(&bytes[..number]);
                    return Ok(number > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(format!("its output cannot be read: {error}")),
            }
        }
    }

    /// Waits until a pipe is ready, or broken. Returns `false` if it is not ready at `end`.
    fn wait(&self, side: Side, end: Instant) -> Result<bool, String> {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).expect("a day at most");
            let mut pipe = match side {
                Side::Input => [PollFd::new(&self.input, PollFlags::OUT)],
                Side::Output => [PollFd::new(&self.output, PollFlags::IN)],
            };
            match poll(&mut pipe, Some(&left)) {
                Ok(number) => return Ok(number > 0),
                Err(Errno::INTR) => {}
                Err(error) => return Err(format!("its pipes cannot be polled: {error}")),
            }
        }
    }

    fn is_late(&self) -> String {
        format!("it did not answer within {:?}", self.limit)
    }

    /// Returns the sentence that says how the child ended.
    fn ended(&self) -> String {
        // A child closes its output a moment before its end. It is not reaped, so that its process
        // group keeps its id until it is killed.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let pid = Pid::from_child(&self.child);
        for _ in 0..100 {
            if let Ok(Some(status)) = waitid(WaitId::Pid(pid), options) {
                return match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => format!("it exited with code {code}"),
                    (_, Some(signal)) => format!("it was killed by signal {signal}"),
                    _ => "it ended".into(),
                };
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        "it closed its standard output, or its standard input".into()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The child is not reaped yet, so its process id is still that of its group.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

/// A pipe of the child.
#[derive(Clone, Copy, Debug)]
enum Side {
    Input,
    Output,
}

/// Returns the start of `bytes`, as text for a message.
pub(super) fn shown(bytes: &[u8]) -> String {
    const MOST: usize = 80;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MOST)]);
    let more = if bytes.len() > MOST { "…" } else { "" };
    format!("{text:?}{more}")
}
