//! The reports of a supervisor.

use crate::membership::{Instance, InstanceId, Level};
use core::fmt;
use core::time::Duration;
use std::process::ExitStatus;

/// An observation or action of a supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The id of the supervised thread or process.
    pub id: InstanceId,
    /// Whether the child is a thread or a process.
    pub level: Level,
    /// The event that the supervisor has observed or caused.
    pub what: What,
}

/// An event of a supervised thread or process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// The thread or process was started. It is a member once it has joined.
    Started {
        /// The number of earlier starts by this supervisor.
        attempt: u32,
        /// The host on which it was started.
        host: InstanceId,
    },
    /// The process was live already, started by an earlier supervisor or by hand. It is watched
    /// from now on.
    Adopted {
        /// The incarnation that was found.
        instance: Instance,
        /// The host on which it lives.
        host: InstanceId,
    },
    /// The thread or process failed, and will be started again.
    Failed {
        /// The kind of failure.
        how: Failure,
        /// The wait before its restart, which also waits until its state has been recovered.
        wait: Duration,
    },
    /// Its host failed, and another was found for it.
    Moved {
        /// The host that failed.
        from: InstanceId,
        /// The host on which it will be started.
        to: InstanceId,
    },
    /// The thread or process ended and reported that it was finished.
    Finished,
    /// The thread or process is not started again. If it is started from elsewhere, it is adopted.
    GaveUp {
        /// The last failure.
        how: Failure,
        /// The reason for giving up.
        why: GaveUp,
    },
}

/// The kind of failure of a supervised thread or process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// The thread or process died: its generation was raised.
    Died {
        /// Its exit status, if the supervisor is its parent.
        status: Option<ExitStatus>,
    },
    /// The process left the pod in good order, but its exit status reports a failure.
    Exited {
        /// The exit status.
        status: ExitStatus,
    },
    /// The thread panicked. It left the pod in good order while it unwound.
    Panicked {
        /// The panic message.
        message: String,
    },
    /// The thread's body returned without being finished.
    Unfinished,
    /// The thread or process could not be started, or could not join.
    NotStarted {
        /// The reason.
        why: String,
    },
}

/// The reason why a supervisor gave up on a thread or process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GaveUp {
    /// The thread or process was restarted as often as the policy allows.
    Limit {
        /// The number of restarts within the policy's window.
        restarts: u32,
    },
    /// No restart can help.
    Hopeless,
}

/// The state of a supervised thread or process when its supervisor ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// The thread or process is finished.
    Finished,
    /// The supervisor gave up on the thread or process.
    GaveUp,
    /// The supervisor was stopped before the thread or process was finished or given up.
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
            Self::Unfinished => f.write_str("ended without being finished"),
            Self::NotStarted { why } => write!(f, "could not be started ({why})"),
        }
    }
}

impl fmt::Display for GaveUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit { restarts } => {
                write!(
                    f,
                    "gave up after {restarts} restarts within the window of the policy"
                )
            }
            Self::Hopeless => f.write_str("gave up, because no restart can help"),
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
            What::Moved { from, to } => write!(f, "moves from the failed host {from} to host {to}"),
            What::Finished => f.write_str("finished"),
            What::GaveUp { how, why } => write!(f, "{how}; {why}"),
        }
    }
}

/// The receiver of reports.
pub(super) type OnReport = Box<dyn FnMut(&Report) + Send>;

/// Writes a report to the log.
pub(super) fn log(report: &Report) {
    match report.what {
        What::GaveUp { .. } => tracing::error!("{report}"),
        What::Failed { .. } | What::Moved { .. } => tracing::warn!("{report}"),
        _ => tracing::info!("{report}"),
    }
}
