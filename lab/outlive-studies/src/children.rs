//! Parts of a study in processes of their own: this program, started again.
//!
//! What a part is to do stands in its environment. It dies with the thread that started it, and is killed when
//! its handle is dropped, so that a study which is interrupted leaves no process behind.

use crate::StudyError;
use crate::{crowd, guests, hosts, lupin_restart, notify, stage};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

/// The environment variable that says which part a process plays.
const PART: &str = "OUTLIVE_STUDY_PART";

/// How a study starts its own program again. The program calls [`play`] when it is started so.
#[derive(Clone, Debug)]
pub struct Launcher {
    program: PathBuf,
    arguments: Vec<OsString>,
}

/// What a part does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Part {
    /// Does what it is told, again and again.
    Worker(stage::Worker),
    /// Waits for its death.
    Victim(notify::Victim),
    /// Waits for another's.
    Watcher(notify::Watcher),
    /// Works, dies and is started again.
    Phoenix(lupin_restart::Phoenix),
    /// Has threads that die and are started again.
    Mortals(lupin_restart::Mortals),
    /// Joins as a member and waits for events.
    Idler(crowd::Idler),
    /// Does what a driver's host does: counts words, or ranks.
    Host,
    /// Runs a part of the study `guests` in a guest.
    Guest(guests::InGuest),
    /// Says that it is there.
    Bare,
}

impl Part {
    /// Returns the environment variable that makes a program play this part, and its value.
    pub fn in_environment(&self) -> (&'static str, String) {
        let part = serde_json::to_string(self).expect("a part is plain data");
        (PART, part)
    }
}

impl Launcher {
    /// This program, with `arguments`.
    ///
    /// # Errors
    /// If it is not known where it is.
    pub fn this_program(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, StudyError> {
        let program = std::env::current_exe();
        Ok(Self {
            program: program.map_err(StudyError::io("finding this program"))?,
            arguments: arguments.into_iter().collect(),
        })
    }

    /// A command that plays `part`.
    pub(crate) fn command(&self, part: &Part) -> Command {
        let (variable, part) = part.in_environment();
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .env(variable, part)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command
    }

    /// Starts `part`.
    pub(crate) fn start(&self, part: &Part) -> Result<Playing, StudyError> {
        self.start_command(self.command(part).stdout(Stdio::piped()))
    }

    /// Starts a command from [`command`](Self::command). Its standard output must be a pipe if the
    /// caller [waits](Playing::await_ready) for it.
    pub(crate) fn start_command(&self, command: &mut Command) -> Result<Playing, StudyError> {
        // A group of its own: Ctrl-C is for the study, which ends its parts in good order.
        let child = command.process_group(0).spawn();
        let child = child.map_err(StudyError::io(format!(
            "starting {}",
            self.program.display()
        )))?;
        Ok(Playing { child })
    }
}

/// A part that was started. Dropped, it is killed.
#[derive(Debug)]
pub(crate) struct Playing {
    child: Child,
}

impl Playing {
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Waits until it says that it is ready, which is one byte.
    pub fn await_ready(&mut self) -> Result<(), StudyError> {
        let mut ready = [0];
        let stdout = self.child.stdout.as_mut().expect("a pipe");
        match stdout.read_exact(&mut ready) {
            Ok(()) => Ok(()),
            Err(_) => Err(self.lost()),
        }
    }

    pub fn signal(&self, signal: Signal) -> Result<(), StudyError> {
        kill_process(self.pid(), signal)
            .map_err(|errno| StudyError::io("signalling a part of the study")(errno.into()))
    }

    /// Its status, if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> Result<ExitStatus, StudyError> {
        let status = self.child.wait();
        status.map_err(StudyError::io("waiting for a part of the study"))
    }

    /// Its end, where it should be running.
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
        // Fails only if it was waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Plays the part that this process was started for; `None` if it was not.
///
/// A program whose studies start it again calls this first of all.
pub fn play() -> Option<Result<(), StudyError>> {
    let part = std::env::var(PART).ok()?;
    Some(play_named(&part))
}

fn play_named(part: &str) -> Result<(), StudyError> {
    // Whoever started us is gone, or will take us along.
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|errno| StudyError::io("asking to die with the study")(errno.into()))?;
    let part = serde_json::from_str(part).map_err(|error| StudyError::Part {
        what: format!("it does not understand what it was told: {error}"),
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
        Part::Bare => {
            ready();
            sleep_for_ever()
        }
    }
}

/// Says that this part is ready.
pub(crate) fn ready() {
    use std::io::Write;
    let mut out = std::io::stdout();
    // If nobody listens any more, death is near.
    let _ = out.write_all(b"r").and_then(|()| out.flush());
}

/// Waits for a death that somebody else sees to.
pub(crate) fn sleep_for_ever() -> ! {
    loop {
        std::thread::sleep(std::time::Duration::from_secs(3600));
    }
}
