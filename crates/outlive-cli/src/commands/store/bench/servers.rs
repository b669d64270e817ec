//! The processes of a benchmark.

use super::super::compute::{Message, monotonic};
use super::{PATIENCE, stopped};
use crate::failure::Failure;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::time::{Duration, Instant};

/// A server process. It is killed when it is dropped.
pub struct Server {
    /// The role, for messages.
    role: &'static str,
    child: Child,
    /// The server ends when the pipe closes.
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    /// The process id of a compute server, or the number of a memory server.
    pub id: u16,
    /// Whether the server has reported that it is ready.
    pub is_ready: bool,
    /// The messages of a compute server.
    pub messages: Vec<Message>,
    /// The other lines since the server was ready.
    pub text: Vec<String>,
    is_killed: bool,
}

/// The time in which a server ends whose output has ended.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// The period in which a wait checks whether the run is interrupted.
const INTERRUPTION_POLL_INTERVAL: Duration = Duration::from_millis(100);

impl Server {
    /// Starts a memory server.
    pub fn memory(path: &Path, bytes: u64) -> Result<Self, Failure> {
        Self::start(
            path,
            ("memory", "memory server"),
            &[
                "--until-end-of-input".into(),
                "--size".into(),
                bytes.to_string(),
            ],
        )
    }

    /// Starts a compute server.
    pub fn compute(path: &Path, arguments: &[String]) -> Result<Self, Failure> {
        Self::start(path, ("bench-compute", "compute server"), arguments)
    }

    /// Starts a restorer of lost replicas.
    pub fn restorer(path: &Path) -> Result<Self, Failure> {
        Self::start(path, ("restore", "restorer"), &["--json".into()])
    }

    fn start(
        path: &Path,
        (command, role): (&str, &'static str),
        arguments: &[String],
    ) -> Result<Self, Failure> {
        let failed = |error| Failure::new(format_args!("a server cannot be started: {error}"));
        let program = std::env::current_exe().map_err(failed)?;
        let mut server = Command::new(program);
        server.args(["store", command]).arg(path).args(arguments);
        server.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = server.spawn().map_err(failed)?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (sender, lines) = channel();
        let server = Self {
            role,
            child,
            input,
            lines,
            id: 0,
            is_ready: false,
            messages: Vec::new(),
            text: Vec::new(),
            is_killed: false,
        };
        let reader = BufReader::new(output.expect("standard output is a pipe"));
        let reading = std::thread::Builder::new().spawn(move || {
            let lines = reader.lines().map_while(Result::ok);
            lines
                .take_while(|line| sender.send(line.clone()).is_ok())
                .count();
        });
        reading.map_err(Failure::no_thread)?;
        Ok(server)
    }

    /// Returns the next line, or `None` at the end of the output.
    fn line(&self, stop: &AtomicBool) -> Result<Option<String>, Failure> {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(INTERRUPTION_POLL_INTERVAL) {
                Ok(line) => return Ok(Some(line)),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => {
                    return Err(stopped());
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() > end => {
                    return Err(Failure::new("a server of the benchmark does not answer"));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Returns the failure of a run whose server has ended, although no kill was planned.
    pub fn ended(&mut self) -> Failure {
        // A server ends when its input closes.
        drop(self.input.take());
        let end = Instant::now() + END_TIMEOUT;
        let status = loop {
            match self.child.try_wait() {
                Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(1)),
                status => break status.ok().flatten(),
            }
        };
        let how = match status.map(|status| status.signal()) {
            Some(Some(signal)) => format!("was killed by signal {signal}"),
            Some(None) => "has ended; its message is above".into(),
            None => "has closed its output".into(),
        };
        let (role, process) = (self.role, self.child.id());
        Failure::new(format_args!(
            "the {role} in process {process}, which is part of the benchmark, {how}"
        ))
    }

    /// Waits until the server is ready.
    pub fn wait_until_ready(&mut self, stop: &AtomicBool) -> Result<(), Failure> {
        let line = self.line(stop)?.ok_or_else(|| self.ended())?;
        self.take(line);
        Ok(())
    }

    /// Takes a line of the server's output.
    fn take(&mut self, line: String) {
        let number = line.strip_prefix("memory server ");
        let number = number.and_then(|it| it.split(' ').next()?.parse().ok());
        // The last line of a killed server may be cut.
        match serde_json::from_str(&line) {
            Ok(Message::Ready { server }) => (self.id, self.is_ready) = (server, true),
            Ok(message) => self.messages.push(message),
            Err(_) => match number.filter(|_| !self.is_ready) {
                Some(number) => (self.id, self.is_ready) = (number, true),
                None => self.text.push(line),
            },
        }
    }

    /// Takes the lines that the server has printed by now. Returns whether its output has ended.
    pub fn poll(&mut self) -> bool {
        loop {
            match self.lines.try_recv() {
                Ok(line) => self.take(line),
                Err(TryRecvError::Empty) => return false,
                Err(TryRecvError::Disconnected) => return true,
            }
        }
    }

    /// Returns whether the messages of a compute server are complete.
    pub fn is_complete(&self) -> bool {
        matches!(self.messages.last(), Some(Message::Final { .. }))
    }

    /// Waits for the end of a server whose output has ended. Returns whether it succeeded.
    pub fn has_succeeded(&mut self) -> bool {
        self.child.wait().is_ok_and(|status| status.success())
    }

    /// Lets a compute server begin, and work for `duration`.
    pub fn begin(&mut self, duration: Duration) -> Result<(), Failure> {
        let input = self.input.as_mut();
        let line = format!("{}\n", duration.as_millis());
        let written = input.map_or(Ok(()), |input| input.write_all(line.as_bytes()));
        written.map_err(|_| self.ended())
    }

    /// Kills the server. Returns the time of the kill.
    pub fn kill(&mut self) -> Result<u64, Failure> {
        let at = monotonic();
        self.is_killed = true;
        let killed = self.child.kill();
        killed.map_err(|error| Failure::new(format_args!("a server cannot be killed: {error}")))?;
        Ok(at)
    }

    /// Collects the messages of a compute server until its end.
    pub fn wait_for_end(&mut self, stop: &AtomicBool) -> Result<(), Failure> {
        while let Some(line) = self.line(stop)? {
            self.take(line);
        }
        match self.is_complete() || self.is_killed {
            true => Ok(()),
            false => Err(self.ended()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
