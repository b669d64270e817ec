//! Decides the next step for one child process: pure logic over observations.
//!
//! There are two sources about a child. The *table of generations* says whether its id lives, died
//! or left, regardless of the process that started it, and is always right. The *parent's* view
//! (the handle to the launched program) knows of a program that ended before it joined, and its
//! status, but only for programs that this supervisor launched itself. The rules:
//!
//! * Only the table says that a child lives. So a supervisor that was itself restarted finds the
//!   children of its predecessor, and a live child is never started a second time: a start is
//!   requested only when the table shows that the id is not in use and no program launched here is
//!   still on its way. (The one gap is a child that a former supervisor launched and that has not
//!   joined yet; of the two that race then, the join refuses one, and the other is adopted.)
//! * Only a failure that the table proves, or the end of a launched program, is a failure. Silence
//!   is not.
//! * A dead child is started again when it has been recovered, so a new incarnation never meets
//!   state that its predecessor held.
//! * A child is finished if it left the pod in good order and, where its status is known, ended
//!   with success. Exit status 0 without having left is a death like any other.
//!
//! Nothing here is stored: a supervisor's knowledge is private and dies with it, and its successor
//! learns the relevant facts from the table. Only the number of recent restarts is forgotten, and
//! the restarts of the supervisor itself are limited separately.

use super::{Failure, GaveUp, Outlook, RestartPolicy, Restarts, Verdict, What};
use crate::membership::{Instance, InstanceId, Level, State, Status};
use core::time::Duration;
use std::process::ExitStatus;

/// The state of a child's id in the pod's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InPod {
    /// The id is not in use, and can be joined.
    Absent {
        /// The last generation.
        generation: u32,
        /// Whether the last incarnation died.
        died: bool,
    },
    /// It died, and is not recovered yet.
    Unrecovered {
        /// The generation that its death was raised to.
        generation: u32,
    },
    /// A process lives under the id, or is joining.
    Lives {
        /// The incarnation that lives.
        instance: Instance,
        /// Its host.
        host: InstanceId,
    },
    /// No process can ever live under this id, or none while a host or thread has it.
    Unusable(&'static str),
}

impl InPod {
    /// Returns the meaning of `state`, the state of `id`, for a child process.
    pub(super) fn of(id: InstanceId, state: State) -> Self {
        let generation = state.generation;
        match state.status {
            Status::Retired => Self::Unusable("its id has used all its generations"),
            Status::Free | Status::Left => Self::Absent {
                generation,
                died: false,
            },
            Status::Recovered => Self::Absent {
                generation,
                died: true,
            },
            Status::Dead => Self::Unrecovered { generation },
            Status::Joining | Status::Live | Status::Fencing => match state.level {
                Some(Level::Process) => Self::Lives {
                    instance: Instance::new(id, generation),
                    host: state.host.into(),
                },
                _ => Self::Unusable("its id belongs to a host or a thread"),
            },
        }
    }
}

/// The parent's view of the program that it launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AsParent {
    /// It runs.
    Runs,
    /// It has ended, with this status if known. (Not evaluated where nothing was launched.)
    Ended(Option<ExitStatus>),
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Choose a host and start it; then call [`Plan::started`], [`Plan::not_started`], or neither
    /// if no host is available now.
    Start,
    /// Report this, then look again.
    Tell(What),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Not running; to be started at this time.
    Absent {
        from: Duration,
    },
    /// Launched here, when the id's generation was `before`.
    Launched {
        before: u32,
    },
    /// Lives, and there is no handle to it, or no longer.
    Watched {
        instance: Instance,
        /// The exit status of the program that this supervisor launched for it.
        ended: Option<ExitStatus>,
    },
    Finished,
    GivenUp,
}

/// The progress of one child through its life.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    phase: Phase,
    restarts: Restarts,
}

impl Plan {
    /// Returns the plan of a child that is to run from now on.
    pub(super) fn new(policy: RestartPolicy) -> Self {
        Self {
            phase: Phase::Absent {
                from: Duration::ZERO,
            },
            restarts: Restarts::new(policy),
        }
    }

    /// Returns the next step, given the observations at time `now`, if there is one.
    ///
    /// An end in the parent's view must have been seen *before* the table was read: then the table
    /// shows whether the program that ended had ever joined. `same` says whether the live
    /// incarnation is the program that was launched here.
    pub(super) fn look(
        &mut self,
        now: Duration,
        in_pod: InPod,
        parent: AsParent,
        same: bool,
    ) -> Option<Step> {
        match (self.phase, in_pod) {
            (Phase::Launched { .. }, InPod::Lives { instance, host }) => {
                let AsParent::Ended(status) = parent else {
                    return None;
                };
                // Its death or leaving is yet to be seen; or the launched program only started it
                // and ended; or the program was refused because the id is in use.
                let ended = if same { status } else { None };
                self.phase = Phase::Watched { instance, ended };
                (!same).then_some(Step::Tell(What::Adopted { instance, host }))
            }
            (Phase::Launched { before }, _) => {
                let died = self.shows_death(in_pod);
                let joined =
                    !matches!(in_pod, InPod::Absent { generation, .. } if generation == before);
                match parent {
                    // The program that still runs is not the child: it only launched it.
                    AsParent::Runs => died.then(|| self.ended(now, true, None)),
                    AsParent::Ended(None) if !joined => {
                        let why = "it ended before it had joined".into();
                        Some(Step::Tell(self.failed(now, Failure::NotStarted { why })))
                    }
                    AsParent::Ended(status) => Some(self.ended(now, died, status)),
                }
            }
            (Phase::Watched { instance: was, .. }, InPod::Lives { instance, host }) => {
                // Another incarnation: the child ended and was started elsewhere, between two
                // looks.
                (instance != was).then(|| self.adopt(instance, host))
            }
            (Phase::Watched { ended, .. }, _) => {
                let died = self.shows_death(in_pod);
                Some(self.ended(now, died, ended))
            }
            (Phase::Absent { .. }, InPod::Lives { instance, host }) => {
                Some(self.adopt(instance, host))
            }
            (Phase::Absent { from }, InPod::Absent { .. }) => (now >= from).then_some(Step::Start),
            (Phase::Absent { .. }, InPod::Unrecovered { .. }) => None,
            (Phase::Absent { .. }, InPod::Unusable(why)) => {
                self.phase = Phase::GivenUp;
                Some(Step::Tell(What::GaveUp {
                    how: Failure::NotStarted { why: why.into() },
                    why: GaveUp::Hopeless,
                }))
            }
            // It was started by hand: it is watched again, and its failures count from now on.
            (Phase::Finished | Phase::GivenUp, InPod::Lives { instance, host }) => {
                self.restarts.forget();
                Some(self.adopt(instance, host))
            }
            (Phase::Finished | Phase::GivenUp, _) => None,
        }
    }

    /// Returns whether `in_pod` shows the death of the incarnation of this plan.
    pub(super) fn shows_death(&self, in_pod: InPod) -> bool {
        let (generation, died) = match in_pod {
            InPod::Absent { generation, died } => (generation, died),
            InPod::Unrecovered { generation } => (generation, true),
            InPod::Lives { .. } | InPod::Unusable(_) => return false,
        };
        match self.phase {
            // The death of the previous incarnation is not that of this one.
            Phase::Launched { before } => died && generation != before,
            Phase::Watched { .. } => died,
            _ => false,
        }
    }

    /// Returns whether the program launched here has been in the pod and, by `in_pod`, has gone.
    pub(super) fn is_ending(&self, in_pod: InPod) -> bool {
        let now = match in_pod {
            InPod::Absent { generation, .. } | InPod::Unrecovered { generation } => generation,
            InPod::Lives { .. } | InPod::Unusable(_) => return false,
        };
        matches!(self.phase, Phase::Launched { before } if before != now)
    }

    /// Records that it was launched when the table said `in_pod`.
    pub(super) fn started(&mut self, in_pod: InPod) {
        let before = match in_pod {
            InPod::Absent { generation, .. } => generation,
            _ => unreachable!("a process is started only for an id without a member"),
        };
        self.phase = Phase::Launched { before };
    }

    /// Records that it could not be launched.
    pub(super) fn not_started(&mut self, now: Duration, why: String) -> What {
        self.failed(now, Failure::NotStarted { why })
    }

    /// Returns whether the plan is about the launched program. If not, that program is only to be
    /// ended and reaped.
    pub(super) fn is_launched(&self) -> bool {
        matches!(self.phase, Phase::Launched { .. })
    }

    /// Returns whether the child is running or being started, so that it counts for its host.
    pub(super) fn runs(&self) -> bool {
        matches!(self.phase, Phase::Launched { .. } | Phase::Watched { .. })
    }

    /// Returns whether it is settled: finished, or given up.
    pub(super) fn outlook(&self) -> Outlook {
        match self.phase {
            Phase::Finished => Outlook::Finished,
            Phase::GivenUp => Outlook::GaveUp,
            _ => Outlook::Unsettled,
        }
    }

    /// Returns the time at which it is to be started, if it waits for that.
    pub(super) fn due(&self) -> Option<Duration> {
        match self.phase {
            Phase::Absent { from } => Some(from),
            _ => None,
        }
    }

    fn adopt(&mut self, instance: Instance, host: InstanceId) -> Step {
        self.phase = Phase::Watched {
            instance,
            ended: None,
        };
        Step::Tell(What::Adopted { instance, host })
    }

    fn ended(&mut self, now: Duration, died: bool, status: Option<ExitStatus>) -> Step {
        let how = match status {
            _ if died => Failure::Died { status },
            Some(status) if !status.success() => Failure::Exited { status },
            _ => {
                self.phase = Phase::Finished;
                return Step::Tell(What::Finished);
            }
        };
        Step::Tell(self.failed(now, how))
    }

    fn failed(&mut self, now: Duration, how: Failure) -> What {
        match self.restarts.failed(now) {
            Verdict::RestartAt(from) => {
                self.phase = Phase::Absent { from };
                let wait = from.saturating_sub(now);
                What::Failed { how, wait }
            }
            Verdict::GiveUp { restarts } => {
                self.phase = Phase::GivenUp;
                let why = GaveUp::Limit { restarts };
                What::GaveUp { how, why }
            }
        }
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
