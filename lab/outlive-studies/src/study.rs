//! A study, what it is run with, and what it says while it runs.

use crate::children::Launcher;
use crate::machine::Ticks;
use crate::row::{How, Row};
use outlive::host::OsError;
use outlive::membership::{JoinError, StillMembers};
use outlive::pod::PodError;
use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A table or a figure, measured anew.
pub struct Study {
    /// Its name, as on the command line.
    pub name: &'static str,
    /// What it answers, in a line.
    pub about: &'static str,
    pub(crate) body: fn(&mut Run<'_>) -> Result<(), StudyError>,
}

/// How much work a study makes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    /// As little as goes through all of its code. The numbers mean nothing.
    Tiny,
    /// A first look, in less than a minute.
    Quick,
    /// As many rounds as a claim needs.
    Full,
}

/// What a study is run with.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How much work to make of it.
    pub effort: Effort,
    /// How its parts in other processes are started.
    pub launcher: Launcher,
    /// The command `outlive-lab`, for studies of the commands, if this process is that command.
    pub lab: Option<PathBuf>,
    /// The scale of generated graphs, which have 2^scale rows; by default what the effort allows.
    pub scale: Option<u32>,
    /// Whether what is simulated is as long as in its paper, which takes hours; by default as long as the effort allows.
    pub full_length: bool,
    /// Set by whoever wants the study to end early; what it had begun is cleared away.
    pub stop: Arc<AtomicBool>,
}

/// Why a study has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StudyError {
    /// A pod for the measurement could not be had.
    #[error(transparent)]
    Pod(#[from] PodError),
    /// It could not be joined.
    #[error("a study's member could not join its pod: {0}")]
    Join(#[from] JoinError),
    /// It could not be left.
    #[error("a study's process could not leave its pod: {0}")]
    Leave(#[from] StillMembers),
    /// The operating system refused something.
    #[error(transparent)]
    Os(#[from] OsError),
    /// A file or a process was refused.
    #[error("{doing}: {source}")]
    Io {
        /// What was tried.
        doing: String,
        /// Why it failed.
        source: io::Error,
    },
    /// What was measured did not do what it should.
    #[error("the measurement is void: {what}")]
    Void {
        /// What was wrong.
        what: String,
    },
    /// A part of the study in another process ended early.
    #[error("a part of the study in another process has failed: {what}")]
    Part {
        /// What it said, or how it ended.
        what: String,
    },
    /// A requirement of the study is missing.
    #[error("it needs {what}")]
    Missing {
        /// The missing requirement, and how to install it.
        what: String,
    },
    /// The study was told to stop.
    #[error("stopped before it was done")]
    Stopped,
}

impl StudyError {
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }

    pub(crate) fn void(what: impl Into<String>) -> Self {
        Self::Void { what: what.into() }
    }
}

impl Effort {
    /// One of three numbers.
    pub fn of<T>(self, tiny: T, quick: T, full: T) -> T {
        match self {
            Self::Tiny => tiny,
            Self::Quick => quick,
            Self::Full => full,
        }
    }
}

impl Plan {
    /// A plan that nobody stops.
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
    /// Whether a plan's scale means anything to it.
    pub fn has_scale(&self) -> bool {
        crate::modc::SCALED.contains(&self.name)
    }

    /// Runs it. `progress` hears what is being measured, and what has been.
    ///
    /// # Errors
    /// If something could not be measured, or the plan's stop was set; what was measured before comes with it. Nothing is left
    /// behind then either.
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
        // What is simulated is the same whatever the machine does meanwhile.
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

/// How far a study is.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// This is being measured.
    Begins(&'a str),
    /// This row is finished. (That it is this study's is written into it in the end.)
    Measured(&'a Row),
}

/// A study that did not come to its end.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Unfinished {
    /// What had been measured by then.
    pub rows: Vec<Row>,
    /// Why it ended.
    #[source]
    pub error: StudyError,
}

/// A study that is being run.
pub struct Run<'a> {
    plan: &'a Plan,
    progress: RefCell<&'a mut dyn FnMut(Progress<'_>)>,
    rows: Vec<Row>,
}

impl Run<'_> {
    /// How much work to make of it.
    pub fn effort(&self) -> Effort {
        self.plan.effort
    }

    /// The scale that was asked for.
    pub fn scale(&self) -> Option<u32> {
        self.plan.scale
    }

    /// Whether what is simulated is to be as long as in its paper.
    pub fn at_full_length(&self) -> bool {
        self.plan.full_length
    }

    /// How its parts are started.
    pub fn launcher(&self) -> &Launcher {
        &self.plan.launcher
    }

    /// The command `outlive-lab`, if this process is that command.
    pub fn lab(&self) -> Option<&Path> {
        self.plan.lab.as_deref()
    }

    /// Says what is being measured.
    pub fn begin(&self, what: &str) {
        (self.progress.borrow_mut())(Progress::Begins(what));
    }

    /// Fails if the study was told to stop.
    ///
    /// # Errors
    /// [`StudyError::Stopped`].
    pub fn go_on(&self) -> Result<(), StudyError> {
        // Relaxed: nothing comes with it.
        match self.plan.stop.load(Ordering::Relaxed) {
            true => Err(StudyError::Stopped),
            false => Ok(()),
        }
    }

    /// Adds to the answer.
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
