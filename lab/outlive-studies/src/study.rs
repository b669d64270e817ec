//! A study, the plan that it is run with, and its progress.

use crate::children::Launcher;
use crate::machine::Ticks;
use crate::row::{How, Row};
use outlive::host::OsError;
use outlive::membership::{JoinError, StillMembers};
use outlive::pod::PodError;
use outlive_store::protocol::TransactionError;
use outlive_store::servers::StoreError;
use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A study: a table or a figure that is measured here.
pub struct Study {
    /// Its name, as on the command line.
    pub name: &'static str,
    /// The question that it answers, in one line.
    pub about: &'static str,
    pub(crate) body: fn(&mut Run<'_>) -> Result<(), StudyError>,
}

/// The amount of work that a study does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    /// The least that goes through all of its code. The numbers mean nothing.
    Tiny,
    /// A first look, in less than a minute.
    Quick,
    /// As many rounds as a claim needs.
    Full,
}

/// The parameters with which a study is run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The amount of work.
    pub effort: Effort,
    /// Starts the study's child processes.
    pub launcher: Launcher,
    /// The command `outlive-lab`, for studies of the commands, if this process is that command.
    pub lab: Option<PathBuf>,
    /// The scale of generated graphs, which have 2^scale rows; by default the effort decides.
    pub scale: Option<u32>,
    /// Whether simulations are as long as in their paper, which takes hours; by default the effort
    /// decides.
    pub full_length: bool,
    /// Set this to end the study early; it then removes everything that it has created.
    pub stop: Arc<AtomicBool>,
}

/// The reason why a study has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StudyError {
    /// A pod for the measurement could not be created or opened.
    #[error(transparent)]
    Pod(#[from] PodError),
    /// A member could not join the pod.
    #[error("a study's member could not join its pod: {0}")]
    Join(#[from] JoinError),
    /// A process could not leave the pod.
    #[error("a study's process could not leave its pod: {0}")]
    Leave(#[from] StillMembers),
    /// A store for the measurement could not be created, opened or joined.
    #[error(transparent)]
    Store(Box<StoreError>),
    /// A transaction of the measurement failed.
    #[error("a transaction of the measurement failed: {0}")]
    Transaction(#[from] TransactionError),
    /// The operating system refused a request.
    #[error(transparent)]
    Os(#[from] OsError),
    /// An operation on a file or a process failed.
    #[error("{doing}: {source}")]
    Io {
        /// The operation.
        doing: String,
        /// The cause.
        source: io::Error,
    },
    /// The measured program did not work as it should.
    #[error("the measurement is void: {what}")]
    Void {
        /// The fault.
        what: String,
    },
    /// A part of the study in another process ended early.
    #[error("a part of the study in another process has failed: {what}")]
    Part {
        /// Its error message, or its exit status.
        what: String,
    },
    /// A requirement of the study is missing.
    #[error("it needs {what}")]
    Missing {
        /// The missing requirement, and how to install it.
        what: String,
    },
    /// The study was told to stop.
    #[error("stopped before the end")]
    Stopped,
}

impl From<StoreError> for StudyError {
    fn from(error: StoreError) -> Self {
        Self::Store(Box::new(error))
    }
}

impl StudyError {
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }

    pub(crate) fn void(what: impl Into<String>) -> Self {
        Self::Void { what: what.into() }
    }

    pub(crate) fn void_of(error: impl std::fmt::Display) -> Self {
        Self::void(error.to_string())
    }
}

impl Effort {
    /// Returns one of three values.
    pub fn of<T>(self, tiny: T, quick: T, full: T) -> T {
        match self {
            Self::Tiny => tiny,
            Self::Quick => quick,
            Self::Full => full,
        }
    }
}

impl Plan {
    /// Returns a plan whose `stop` is never set by others.
    pub fn new(effort: Effort, launcher: Launcher) -> Self {
        Self {
            effort,
            launcher,
            lab: None,
            scale: None,
            full_length: false,
            stop: Arc::default(),
        }
    }
}

/// The case of rows about the machine, which are not results.
pub(crate) const MACHINE: &str = "the machine, during the study";

impl Study {
    /// Returns whether the study uses a plan's scale.
    pub fn has_scale(&self) -> bool {
        crate::modc::SCALED.contains(&self.name)
    }

    /// Runs the study. `progress` is called with the current measurement and with each result.
    ///
    /// # Errors
    /// If something could not be measured, or the plan's stop was set; the error contains the rows
    /// that were measured before. Nothing is left behind in that case either.
    pub fn run(
        &self,
        plan: &Plan,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Vec<Row>, Unfinished> {
        let before = Ticks::now();
        let mut run = Run {
            plan,
            progress: RefCell::new(progress),
            rows: Vec::new(),
        };
        let ended = (self.body)(&mut run);
        let mut rows = run.rows;
        // Simulated numbers do not depend on the machine's load.
        let is_simulated = |row: &Row| matches!(row.how, None | Some(How::Simulated));
        if !rows.iter().all(is_simulated)
            && let (Some(before), Some(now)) = (before, Ticks::now())
        {
            let stolen = now.stolen_since(before);
            rows.push(Row::new(MACHINE, "time stolen by the hypervisor", "%").ours(stolen));
        }
        for row in &mut rows {
            self.name.clone_into(&mut row.study);
            row.round();
        }
        match ended {
            Ok(()) => Ok(rows),
            Err(error) => Err(Unfinished { rows, error }),
        }
    }
}

/// The progress of a study.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// The measurement that begins.
    Begins(&'a str),
    /// A finished row. (The name of the study is filled in at the end.)
    Measured(&'a Row),
}

/// The end of a study that could not be finished.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Unfinished {
    /// The rows that were measured before.
    pub rows: Vec<Row>,
    /// The reason.
    #[source]
    pub error: StudyError,
}

/// A study that is running.
pub struct Run<'a> {
    plan: &'a Plan,
    progress: RefCell<&'a mut dyn FnMut(Progress<'_>)>,
    rows: Vec<Row>,
}

impl Run<'_> {
    /// Returns the amount of work to do.
    pub fn effort(&self) -> Effort {
        self.plan.effort
    }

    /// Returns the requested scale.
    pub fn scale(&self) -> Option<u32> {
        self.plan.scale
    }

    /// Returns whether simulations are to be as long as in their paper.
    pub fn at_full_length(&self) -> bool {
        self.plan.full_length
    }

    /// Returns the launcher of the study's child processes.
    pub fn launcher(&self) -> &Launcher {
        &self.plan.launcher
    }

    /// Returns the path of the command `outlive-lab`, if this process is that command.
    pub fn lab(&self) -> Option<&Path> {
        self.plan.lab.as_deref()
    }

    /// Reports the measurement that begins.
    pub fn begin(&self, what: &str) {
        (self.progress.borrow_mut())(Progress::Begins(what));
    }

    /// Fails if the study was told to stop.
    ///
    /// # Errors
    /// [`StudyError::Stopped`].
    pub fn go_on(&self) -> Result<(), StudyError> {
        // Relaxed: the flag publishes no other data.
        match self.plan.stop.load(Ordering::Relaxed) {
            true => Err(StudyError::Stopped),
            false => Ok(()),
        }
    }

    /// Adds rows to the answer.
    pub fn answer(&mut self, rows: impl IntoIterator<Item = Row>) {
        for row in rows {
            (self.progress.borrow_mut())(Progress::Measured(&row));
            self.rows.push(row);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: Study = Study {
        name: "half",
        about: "a study whose second part fails",
        body: |run| {
            run.answer([Row::new("the first part", "time", "s").ours(3.317_220_000_000_000_4)]);
            Err(StudyError::void("there is no second part"))
        },
    };

    #[test]
    fn what_was_measured_before_a_failure_is_told() {
        let launcher = Launcher::this_program([]).unwrap();
        let plan = Plan::new(Effort::Tiny, launcher);
        let mut finished = Vec::new();
        let Unfinished { rows, error } = HALF
            .run(&plan, &mut |progress| {
                if let Progress::Measured(row) = progress {
                    finished.push(row.case.clone());
                }
            })
            .unwrap_err();
        assert_eq!(finished, ["the first part"]);
        assert_eq!(
            (rows[0].study.as_str(), rows[0].ours),
            ("half", Some(3.31722))
        );
        assert!(error.to_string().contains("there is no second part"));
    }
}
