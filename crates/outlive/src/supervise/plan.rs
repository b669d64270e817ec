//! What is to be done about one child process: pure logic over what is seen.
//!
//! Two witnesses speak of a child. The *table of generations* knows whether its id lives, died or left,
//! whoever started it, and it does not err. The *parent's* view (the handle on what was launched) knows of a
//! program that ended before it joined, and with what status, but only for what this supervisor
//! launched itself. The rules:
//!
//! * Only the table says that a child lives. So a supervisor that was itself restarted finds the children of
//!   its predecessor, and what lives is never started a second time: a start is asked for only when the table shows nobody
//!   and nothing that was launched here is still on its way. (The one gap is a child that a former
//!   supervisor launched and that has not joined yet; of the two that race then, the join refuses one, and
//!   the other is adopted.)
//! * Only a failure that the table proves, or the end of what was launched, is a failure. Silence is not.
//! * What died is started again when it has been recovered, so a new incarnation never meets what its
//!   predecessor held.
//! * A child is finished if it left the pod in good order and, where its status is known, ended with
//!   success. Exit status 0 without having left is a death like any other.
//!
//! Nothing here is written down anywhere: what a supervisor knows is private and dies with it, and its
//! successor learns from the table what counts. Only the number of recent restarts is forgotten, and who
//! restarts the supervisor has a limit of its own.

use super::{Failure, GaveUp, Outlook, RestartPolicy, Restarts, Verdict, What};
use crate::membership::{Instance, InstanceId, Level, State, Status};
use core::time::Duration;
use std::process::ExitStatus;

/// What the pod's table says of a child's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InPod {
    /// Nobody has the id, and it can be joined.
    Absent {
        /// The last generation.
        generation: u32,
        /// Whether the last incarnation died.
        died: bool,
    },
    /// It died, and what it held is not recovered yet.
    Unrecovered {
        /// The generation that its death was raised to.
        generation: u32,
    },
    /// A process lives under the id, or is joining.
    Lives {
        /// Which incarnation.
        instance: Instance,
        /// Its host.
        host: InstanceId,
    },
    /// No process can ever live under this id, or none while a host or thread has it.
    Unusable(&'static str),
}

impl InPod {
    /// What `state`, the state of `id`, means for a child process.
    pub(super) fn of(id: InstanceId, state: State) -> Self {
        let generation = state.generation;
        match state.status {
            Status::Retired => Self::Unusable("its id has been through all its generations"),
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

/// What the parent sees of the program that it launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AsParent {
    /// It runs.
    Runs,
    /// It has ended, with this status if that can be known. (Where nothing was launched, nobody asks.)
    Ended(Option<ExitStatus>),
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Choose a host and start it; then [`Plan::started`], [`Plan::not_started`], or neither if no host
    /// is to be had now.
    Start,
    /// Tell this, then look again.
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
    /// Lives, and there is no handle on it, or no longer.
    Watched {
        instance: Instance,
        /// How the program that this supervisor launched for it ended.
        ended: Option<ExitStatus>,
    },
    Finished,
    GivenUp,
}

/// One child's place in its life.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    phase: Phase,
    restarts: Restarts,
}

impl Plan {
    /// A child that is to run from now on.
    pub(super) fn new(policy: RestartPolicy) -> Self {
        Self {
            phase: Phase::Absent {
                from: Duration::ZERO,
            },
            restarts: Restarts::new(policy),
        }
    }

    /// What follows from what is seen at time `now`; `None` if nothing does.
    ///
    /// An end in the parent's view must have been seen *before* the table was read: then the table shows
    /// whether the program that ended had ever joined. `same` says whether the incarnation that lives is
    /// the program that was launched here.
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
                // Its death or leaving has yet to be seen; or what was launched only started it and went
                // away; or it was refused because another has the id.
                let ended = if same { status } else { None };
                self.phase = Phase::Watched { instance, ended };
                (!same).then_some(Step::Tell(What::Adopted { instance, host }))
            }
            (Phase::Launched { before }, _) => {
                let died = self.shows_death(in_pod);
                let joined =
                    !matches!(in_pod, InPod::Absent { generation, .. } if generation == before);
                match parent {
                    // What still runs is not the child: it only launched it.
                    AsParent::Runs => died.then(|| self.ended(now, true, None)),
                    AsParent::Ended(None) if !joined => {
                        let why = "it ended before it had joined".into();
                        Some(Step::Tell(self.failed(now, Failure::NotStarted { why })))
                    }
                    AsParent::Ended(status) => Some(self.ended(now, died, status)),
                }
            }
            (Phase::Watched { instance: was, .. }, InPod::Lives { instance, host }) => {
                // Another one: it ended, and somebody else started it, between two looks.
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
            // Somebody started it by hand: it is watched again, and its failures count from here on.
            (Phase::Finished | Phase::GivenUp, InPod::Lives { instance, host }) => {
                self.restarts.forget();
                Some(self.adopt(instance, host))
            }
            (Phase::Finished | Phase::GivenUp, _) => None,
        }
    }

    /// Whether `in_pod` shows the death of the incarnation that this plan is about.
    pub(super) fn shows_death(&self, in_pod: InPod) -> bool {
        let (generation, died) = match in_pod {
            InPod::Absent { generation, died } => (generation, died),
            InPod::Unrecovered { generation } => (generation, true),
            InPod::Lives { .. } | InPod::Unusable(_) => return false,
        };
        match self.phase {
            // The last one's death is not this one's.
            Phase::Launched { before } => died && generation != before,
            Phase::Watched { .. } => died,
            _ => false,
        }
    }

    /// Whether what was launched here has been in the pod and, as `in_pod` shows, is not any more.
    pub(super) fn is_ending(&self, in_pod: InPod) -> bool {
        let now = match in_pod {
            InPod::Absent { generation, .. } | InPod::Unrecovered { generation } => generation,
            InPod::Lives { .. } | InPod::Unusable(_) => return false,
        };
        matches!(self.phase, Phase::Launched { before } if before != now)
    }

    /// It was launched when the table said `in_pod`.
    pub(super) fn started(&mut self, in_pod: InPod) {
        let before = match in_pod {
            InPod::Absent { generation, .. } => generation,
            _ => unreachable!("only what nobody has is started"),
        };
        self.phase = Phase::Launched { before };
    }

    /// It could not be launched.
    pub(super) fn not_started(&mut self, now: Duration, why: String) -> What {
        self.failed(now, Failure::NotStarted { why })
    }

    /// Whether the plan is about what was launched here. If not, that is only to be ended and reaped.
    pub(super) fn is_launched(&self) -> bool {
        matches!(self.phase, Phase::Launched { .. })
    }

    /// Whether it is running, or on its way, so that it counts for its host.
    pub(super) fn runs(&self) -> bool {
        matches!(self.phase, Phase::Launched { .. } | Phase::Watched { .. })
    }

    /// Whether there is nothing left to do about it: finished, or given up.
    pub(super) fn outlook(&self) -> Outlook {
        match self.phase {
            Phase::Finished => Outlook::Finished,
            Phase::GivenUp => Outlook::GaveUp,
            _ => Outlook::Unsettled,
        }
    }

    /// When it is to be started, if it waits for that.
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
