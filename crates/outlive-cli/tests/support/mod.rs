//! Runs the command with a time limit, and removes its remnants.

#![allow(dead_code, reason = "each test uses what it needs")]

pub mod edge;
pub mod explained;
pub mod filter;
pub mod powerless;
pub mod programs;
pub mod run;

use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// The time limit of every wait.
const LIMIT: Duration = Duration::from_secs(60);

/// A path in /dev/shm for one test's pod. Drop removes the file there, with its side files.
pub struct Place {
    path: String,
}

impl Place {
    pub fn new(name: &str) -> Self {
        Self {
            path: format!("/dev/shm/outlive-cli-test-{}-{name}", std::process::id()),
        }
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    /// Removes the side files of the pod `uuid`.
    pub fn remove_side_files(&self, uuid: &str) {
        for file in std::fs::read_dir("/dev/shm").unwrap().flatten() {
            if file.file_name().to_string_lossy().contains(uuid) {
                let _ = std::fs::remove_file(file.path());
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = outlive::pod::Pod::destroy_forcibly(&self.path);
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The tested program: that of the package of the test.
const PROGRAM: &str = match option_env!("CARGO_BIN_EXE_outlive") {
    Some(program) => program,
    None => match option_env!("CARGO_BIN_EXE_outlive-lab") {
        Some(program) => program,
        None => panic!("it is not a test of a program"),
    },
};

/// Returns the command with `arguments`.
pub fn command(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .env_remove("RUST_LOG")
        // A process that panics on purpose must end at once, without resolving symbols.
        .env("RUST_BACKTRACE", "0");
    command
}

/// The end of a command.
pub struct Ended {
    pub shown: String,
    pub code: Option<i32>,
    pub output: String,
    pub errors: String,
}

/// Runs the command to its end.
pub fn outlive<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Ended {
    outlive_reading(arguments, Stdio::null())
}

/// Runs the command to its end with `input` as its standard input.
pub fn outlive_reading<'a>(
    arguments: impl IntoIterator<Item = &'a str>,
    input: impl Into<Stdio>,
) -> Ended {
    let arguments: Vec<_> = arguments.into_iter().collect();
    let shown = arguments.join(" ");
    let child = command(&arguments)
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let id = child.id();
    let (done, finished) = channel();
    let waiter = std::thread::spawn(move || {
        let output = child.wait_with_output();
        let _ = done.send(());
        output
    });
    if finished.recv_timeout(LIMIT).is_err() {
        send(id, Signal::KILL);
        let _ = waiter.join();
        panic!("`outlive {shown}` has not ended after {LIMIT:?}");
    }
    let output = waiter.join().unwrap().unwrap();
    Ended {
        shown,
        code: output.status.code(),
        output: String::from_utf8(output.stdout).unwrap(),
        errors: String::from_utf8(output.stderr).unwrap(),
    }
}

impl Ended {
    /// Requires success. Returns the output.
    #[track_caller]
    pub fn succeeds(self) -> String {
        self.says(0)
    }

    /// Requires this exit code. Returns the output.
    #[track_caller]
    pub fn says(self, code: i32) -> String {
        let Self {
            shown,
            code: ended,
            output,
            errors,
        } = self;
        assert_eq!(ended, Some(code), "`outlive {shown}`: {output}{errors}");
        output
    }

    /// Demands this exit code and these words on standard error, and that it did not panic.
    #[track_caller]
    pub fn fails(self, code: i32, why: &str) {
        let Self {
            shown,
            code: ended,
            output,
            errors,
        } = self;
        assert_eq!(ended, Some(code), "`outlive {shown}`: {output}{errors}");
        assert!(
            errors.contains(why),
            "`outlive {shown}` does not say {why:?}: {errors}"
        );
        assert!(!errors.trim().is_empty(), "`outlive {shown}` says nothing");
        assert!(!errors.contains("panicked"), "`outlive {shown}`: {errors}");
        if code == 1 {
            assert_eq!(
                errors.trim().lines().count(),
                1,
                "more than a paragraph: {errors}"
            );
        }
    }
}

/// A command that runs until it is told to end.
pub struct Running {
    child: Child,
    lines: Option<Receiver<String>>,
    seen: String,
}

impl Running {
    pub fn start<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Self {
        Self::of(command(arguments))
    }

    /// Starts a command that was created elsewhere.
    pub fn of(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let (tell, lines) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // Read to the end, whether or not the test still receives.
                let _ = tell.send(line);
            }
        });
        Self {
            child,
            lines: Some(lines),
            seen: String::new(),
        }
    }

    /// Starts it, reads one line and closes the pipe.
    pub fn start_and_stop_reading<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Self {
        let mut child = command(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let (tell, line) = channel();
        let reader = std::thread::spawn(move || {
            let mut first = String::new();
            let _ = output.read_line(&mut first);
            let _ = tell.send(first);
        });
        let running = Self {
            child,
            lines: None,
            seen: line.recv_timeout(LIMIT).expect("a line in time"),
        };
        reader.join().unwrap();
        running
    }

    /// Waits until all of `words` have been printed. Returns the output so far.
    #[track_caller]
    pub fn wait_for(&mut self, words: &[&str]) -> String {
        let until = Instant::now() + LIMIT;
        let lines = self.lines.as_ref().expect("it is still read");
        while !words.iter().all(|word| self.seen.contains(word)) {
            let left = until.saturating_duration_since(Instant::now());
            match lines.recv_timeout(left) {
                Ok(line) => self.seen += &(line + "\n"),
                Err(why) => panic!("{words:?} did not come ({why}): {}", self.seen),
            }
        }
        self.seen.clone()
    }

    /// Returns its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, number: Signal) {
        send(self.child.id(), number);
    }

    /// Interrupts it as Ctrl-C does.
    pub fn interrupt(&self) {
        send(self.child.id(), Signal::INT);
    }

    /// Kills it and waits for its end.
    pub fn kill(&mut self) {
        send(self.child.id(), Signal::KILL);
        self.child.wait().unwrap();
    }

    /// Waits until it has ended, with or without success.
    #[track_caller]
    pub fn wait_gone(&mut self) {
        let until = Instant::now() + LIMIT;
        while matches!(self.child.try_wait(), Ok(None)) {
            assert!(Instant::now() < until, "it has not ended after {LIMIT:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until it ends with exit code 0. Returns all its output.
    #[track_caller]
    pub fn ends(&mut self) -> String {
        self.ends_with(0)
    }

    /// Waits until it ends with this exit code. Returns all its output.
    #[track_caller]
    pub fn ends_with(&mut self, code: i32) -> String {
        self.ends_within(LIMIT, code)
    }

    /// Waits until it ends with this exit code, at most for `limit`. Returns all its output.
    #[track_caller]
    pub fn ends_within(&mut self, limit: Duration, code: i32) -> String {
        let until = Instant::now() + limit;
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
                None => panic!("it has not ended after {limit:?}: {}", self.seen),
            }
        };
        for line in self.lines.iter().flatten() {
            self.seen += &(line + "\n");
        }
        assert_eq!(status.code(), Some(code), "{}", self.seen);
        self.seen.clone()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Sends a signal to a child that has not been waited for.
pub fn send(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid as i32).expect("a pid");
    // No caller has reaped the child, so the pid is still its own.
    kill_process(pid, signal).expect("a child may be signalled");
}
