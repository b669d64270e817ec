//! Child processes of a study: this program, started again.
//!
//! The role of a child is in its environment. A child dies with the thread that started it, and is
//! killed when its handle is dropped, so an interrupted study leaves no process behind.

use crate::StudyError;
use crate::{crowd, guests, hosts, lupin_restart, notify, pandora, stage, store_peers};
use outlive_run::driver::die_with;
use rustix::process::{Pid, Signal, kill_process};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

/// The environment variable that holds the role of a process.
const PART: &str = "OUTLIVE_STUDY_PART";
/// The environment variable that holds the process id of its parent.
const PARENT: &str = "OUTLIVE_STUDY_PARENT";

/// Starts a study's own program again. A program that is started so calls [`play`].
#[derive(Clone, Debug)]
pub struct Launcher {
    program: PathBuf,
    arguments: Vec<OsString>,
}

/// The role of a child process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Part {
    /// Executes the study's commands until it is killed.
    Worker(stage::Worker),
    /// Waits until it is killed.
    Victim(notify::Victim),
    /// Waits for the death of another member.
    Watcher(notify::Watcher),
    /// Works, dies and is restarted.
    Phoenix(lupin_restart::Phoenix),
    /// Has threads that die and are restarted.
    Mortals(lupin_restart::Mortals),
    /// Joins as a member and waits for events.
    Idler(crowd::Idler),
    /// Is a host of a driver's run: counts words, or ranks.
    Host,
    /// Runs a part of the study `guests` inside a guest.
    Guest(guests::InGuest),
    /// Serves memory to a store.
    StoreMemory(store_peers::MemoryServer),
    /// Executes transactions on a store.
    StoreClient(store_peers::Client),
    /// Is a compute server whose coordinators log a transaction each and stop.
    Armed(pandora::Armed),
    /// Is a memory server of a store.
    PandoraMemory(pandora::Memory),
    /// Is a compute server that executes transactions of a benchmark.
    StoreCompute(pandora::Compute),
    /// Is a compute server of a store that latches an object.
    Latcher(pandora::Latcher),
    /// Reports that it has started.
    Bare,
}

impl Part {
    /// Returns the environment variable that gives a program this role, and its value.
    pub fn in_environment(&self) -> (&'static str, String) {
        let part = serde_json::to_string(self).expect("a part is plain data");
        (PART, part)
    }
}

impl Launcher {
    /// Returns a launcher of this program with `arguments`.
    ///
    /// # Errors
    /// If the path of this program is not known.
    pub fn this_program(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, StudyError> {
        let program = std::env::current_exe();
        Ok(Self {
            program: program.map_err(StudyError::io("finding this program"))?,
            arguments: arguments.into_iter().collect(),
        })
    }

    /// Returns a command that starts a process with the role `part`.
    pub(crate) fn command(&self, part: &Part) -> Command {
        let (variable, part) = part.in_environment();
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .env(variable, part)
            .env(PARENT, std::process::id().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command
    }

    /// Starts a process with the role `part`.
    pub(crate) fn start(&self, part: &Part) -> Result<Playing, StudyError> {
        self.start_command(self.command(part).stdout(Stdio::piped()))
    }

    /// Starts a command from [`command`](Self::command). Its standard output must be a pipe if the
    /// caller [waits](Playing::await_ready) for it.
    pub(crate) fn start_command(&self, command: &mut Command) -> Result<Playing, StudyError> {
        // A process group of its own: Ctrl-C interrupts only the study, which ends its children.
        let child = command.process_group(0).spawn();
        let program = command.get_program().display();
        let child = child.map_err(StudyError::io(format!("starting {program}")))?;
        Ok(Playing { child })
    }
}

/// A child process. A drop kills it.
#[derive(Debug)]
pub(crate) struct Playing {
    child: Child,
}

impl Playing {
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Takes the pipes of a process whose command has both: its standard input and output.
    pub fn take_pipes(&mut self) -> Option<(ChildStdin, ChildStdout)> {
        self.child.stdin.take().zip(self.child.stdout.take())
    }

    /// Waits until the process reports that it is ready, by one byte.
    pub fn await_ready(&mut self) -> Result<(), StudyError> {
        let mut ready = [0];
        let stdout = self.child.stdout.as_mut().expect("a pipe");
        match stdout.read_exact(&mut ready) {
            Ok(()) => Ok(()),
            Err(_) => Err(self.lost()),
        }
    }

    /// Returns what the process [says](say) next.
    pub fn hear<T: DeserializeOwned>(&mut self) -> Result<T, StudyError> {
        let line = self.line()?;
        serde_json::from_str(&line).map_err(|error| StudyError::Part {
            what: format!("it wrote `{line}`: {error}"),
        })
    }

    /// Returns the next line that the process writes.
    fn line(&mut self) -> Result<String, StudyError> {
        let mut line = Vec::new();
        let mut byte = [0];
        let stdout = self.child.stdout.as_mut().expect("a pipe");
        while stdout.read_exact(&mut byte).is_ok() {
            match byte[0] {
                b'\n' => return Ok(String::from_utf8_lossy(&line).into_owned()),
                byte => line.push(byte),
            }
        }
        Err(self.lost())
    }

    pub fn signal(&self, signal: Signal) -> Result<(), StudyError> {
        kill_process(self.pid(), signal)
            .map_err(|errno| StudyError::io("signalling a part of the study")(errno.into()))
    }

    /// Returns the exit status, if the process has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits until the process ends.
    pub fn wait(&mut self) -> Result<ExitStatus, StudyError> {
        let status = self.child.wait();
        status.map_err(StudyError::io("waiting for a part of the study"))
    }

    /// Returns the error for a process that ended although it should be running.
    pub fn lost(&mut self) -> StudyError {
        let what = match self.child.try_wait() {
            Ok(Some(status)) => format!("it ended with {status}"),
            _ => "it closed its pipe".to_owned(),
        };
        StudyError::Part { what }
    }
}

impl Drop for Playing {
    fn drop(&mut self) {
        // Fails only if the process was reaped already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Executes the role that this process was started for. Returns `None` if it has none.
///
/// A program whose studies start it again calls this before anything else.
pub fn play() -> Option<Result<(), StudyError>> {
    let part = std::env::var(PART).ok()?;
    Some(play_named(&part))
}

fn play_named(part: &str) -> Result<(), StudyError> {
    // In a guest, the parent is no process of the study.
    if let Some(parent) = std::env::var(PARENT).ok().and_then(|it| it.parse().ok()) {
        die_with(parent).map_err(StudyError::io(
            "requesting a signal at the death of the study",
        ))?;
    }
    let part = serde_json::from_str(part).map_err(|error| StudyError::Part {
        what: format!("it cannot read its instructions: {error}"),
    })?;
    match part {
        Part::Worker(worker) => worker.play(),
        Part::Victim(victim) => victim.play(),
        Part::Watcher(watcher) => watcher.play(),
        Part::Phoenix(phoenix) => phoenix.play(),
        Part::Mortals(mortals) => mortals.play(),
        Part::Idler(idler) => idler.play(),
        Part::Host => hosts::play(),
        Part::Guest(guest) => guest.play(),
        Part::StoreMemory(server) => server.play(),
        Part::StoreClient(client) => client.play(),
        Part::Armed(armed) => armed.play(),
        Part::Latcher(latcher) => latcher.play(),
        Part::PandoraMemory(memory) => memory.play(),
        Part::StoreCompute(compute) => compute.play(),
        Part::Bare => {
            ready();
            sleep_for_ever()
        }
    }
}

/// Writes a line with `message` for the study, which [hears](Playing::hear) it.
pub(crate) fn say(message: &impl Serialize) {
    use std::io::Write;
    let mut line = serde_json::to_string(message).expect("a message is plain data");
    line.push('\n');
    let mut out = std::io::stdout();
    // If the pipe has no reader any more, this process is about to be killed.
    let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
}

/// Reports that this process is ready.
pub(crate) fn ready() {
    use std::io::Write;
    let mut out = std::io::stdout();
    // If the pipe has no reader any more, this process is about to be killed.
    let _ = out.write_all(b"r").and_then(|()| out.flush());
}

/// Waits until another process kills this one.
pub(crate) fn sleep_for_ever() -> ! {
    loop {
        std::thread::sleep(std::time::Duration::from_secs(3600));
    }
}
