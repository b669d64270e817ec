//! What a supervisor tells.

use crate::membership::{Instance, InstanceId, Level};
use core::fmt;
use core::time::Duration;
use std::process::ExitStatus;

/// Something that a supervisor saw or did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The id of the supervised thread or process.
    pub id: InstanceId,
    /// Which of the two it is.
    pub level: Level,
    /// What happened.
    pub what: What,
}

/// What happened to a supervised thread or process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// It was started. It is a member once it has joined.
    Started {
        /// How often this supervisor had started it before.
        attempt: u32,
        /// The host on which it was started.
        host: InstanceId,
    },
    /// It lived when the supervisor looked, started by somebody else (an earlier supervisor, or by hand);
    /// it is watched from here on.
    Adopted {
        /// The incarnation that was found.
        instance: Instance,
        /// The host on which it lives.
        host: InstanceId,
    },
    /// It failed, and will be started again.
    Failed {
        /// How.
        how: Failure,
        /// How long its restart waits; it also waits until what it held has been recovered.
        wait: Duration,
    },
    /// Its host failed, and another was found for it.
    Moved {
        /// The host that failed.
        from: InstanceId,
        /// The host on which it will be started.
        to: InstanceId,
    },
    /// It ended and said that it was finished.
    Finished,
    /// It is not started again, unless somebody else does: then it is adopted.
    GaveUp {
        /// How it failed the last time.
        how: Failure,
        /// Why that was the last time.
        why: GaveUp,
    },
}

/// How a supervised thread or process failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// It died: its generation was raised.
    Died {
        /// With what status it ended, if the supervisor is its parent.
        status: Option<ExitStatus>,
    },
    /// It ended in good order as far as the pod can tell, with a status that says it failed.
    Exited {
        /// The status.
        status: ExitStatus,
    },
    /// The thread panicked. It left the pod in good order while it unwound.
    Panicked {
        /// What it said.
        message: String,
    },
    /// The thread's body returned without being finished.
    Unfinished,
    /// It could not be started, or could not join.
    NotStarted {
        /// Why.
        why: String,
    },
}

/// Why a supervisor gave up on something.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GaveUp {
    /// It was restarted as often as the policy allows.
    Limit {
        /// How often, within the policy's window.
        restarts: u32,
    },
    /// No restart can help.
    Hopeless,
}

/// What has become of a supervised thread or process when its supervisor ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// It is finished.
    Finished,
    /// The supervisor gave up on it.
    GaveUp,
    /// The supervisor was stopped before.
    Unsettled,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Died {
                status: Some(status),
            } => write!(f, "died ({status})"),
            Self::Died { status: None } => f.write_str("died"),
            Self::Exited { status } => write!(f, "failed ({status})"),
            Self::Panicked { message } => write!(f, "panicked ({message})"),
            Self::Unfinished => f.write_str("ended unfinished"),
            Self::NotStarted { why } => write!(f, "could not be started ({why})"),
        }
    }
}

impl fmt::Display for GaveUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit { restarts } => {
                write!(f, "gave up, having restarted it {restarts} times lately")
            }
            Self::Hopeless => f.write_str("gave up, since no restart can help"),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.level.name(), self.id)?;
        match &self.what {
            What::Started { attempt: 0, host } => write!(f, "started on host {host}"),
            What::Started { attempt, host } => {
                write!(f, "started again on host {host} (restart {attempt})")
            }
            What::Adopted { instance, host } => {
                write!(f, "lives as {instance} on host {host}; adopted")
            }
            What::Failed { how, wait } if wait.is_zero() => write!(f, "{how}"),
            What::Failed { how, wait } => write!(f, "{how}; waiting {wait:?}"),
            What::Moved { from, to } => write!(f, "moves from host {from}, which failed, to {to}"),
            What::Finished => f.write_str("finished"),
            What::GaveUp { how, why } => write!(f, "{how}; {why}"),
        }
    }
}

/// What is done with reports.
pub(super) type OnReport = Box<dyn FnMut(&Report) + Send>;

/// Reports go to the log as well.
pub(super) fn log(report: &Report) {
    match report.what {
        What::GaveUp { .. } => tracing::error!("{report}"),
        What::Failed { .. } | What::Moved { .. } => tracing::warn!("{report}"),
        _ => tracing::info!("{report}"),
    }
}
