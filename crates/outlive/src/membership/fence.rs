//! Fencing: makes sure that a suspected host can no longer access memory.
//!
//! On one kernel every process of the host is killed, by its pid or by the host's cord, and the
//! fence is complete when their presence is seen free. A host of another kernel is fenced by the
//! configured command, and so is a host of this kernel that has a process which neither means can
//! kill. A fence that cannot complete raises nothing: the host stays a suspect, is reported, and
//! the fence is retried.

use super::agents::announce;
use super::kill::{Ending, end_process};
use super::{Instance, InstanceId, Level, State, Status, Tables};
use crate::host::{Os, run_fence_command};
use core::time::Duration;
use std::sync::Arc;

/// An agent that fences a host that this operating system cannot kill by itself: a BMC, a
/// hypervisor, a cluster manager.
///
/// It is called on a thread of its own and may take as long as it needs. It acts on a machine, so a
/// late agent could hit the host's next incarnation. Therefore a join of the host waits for 10
/// seconds for each agent that was called against it, and then fails. (An agent is ignored if its
/// caller is dead or the caller's host does not beat.) A process that
/// [leaves](super::Process::leave) waits for the agent that it has called, and its heartbeats
/// continue in the meantime. So an agent must return. (The pod's fence command is killed after
/// [`Settings::fence_timeout`](super::Settings::fence_timeout).)
pub trait FenceAgent: Send + Sync {
    /// Makes sure that the host `host`, called `name`, no longer runs. `Ok` is a promise: relying
    /// on it, other members take over the locks and memory that the host held.
    ///
    /// # Errors
    /// Returns the reason for the failure; the host stays a suspect and the agent is called again.
    fn fence(&self, host: Instance, name: &str) -> Result<(), String>;
}

/// The fence command of a pod: words split at white space, no shell.
pub(crate) struct CommandAgent {
    pub command: String,
    pub timeout: Duration,
}

impl FenceAgent for CommandAgent {
    fn fence(&self, host: Instance, name: &str) -> Result<(), String> {
        let words: Vec<_> = self.command.split_whitespace().map(Into::into).collect();
        run_fence_command(&words, host.id, name, self.timeout).map_err(|error| error.to_string())
    }
}

/// The state of a fence.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FenceState {
    /// The host can no longer write.
    Done,
    /// The host may still write.
    Underway,
    /// The fence is not complete within its time, with the reason. It continues.
    Failing(String),
}

/// The time between the pull of a host's cord and the call of the agent, for its processes to end.
const CORD_PATIENCE: Duration = Duration::from_secs(1);

/// The thread of an agent that has been called.
pub(crate) type RunningAgent = std::thread::JoinHandle<Result<(), String>>;

/// The parameters with which a fence calls an agent.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    /// The membership.
    pub tables: Tables,
    /// The calling process.
    pub me: InstanceId,
    /// The host's name.
    pub name: &'a str,
    /// The agent, if there is one.
    pub agent: Option<&'a Arc<dyn FenceAgent>>,
    /// Whether an agent that is not at work may be called.
    pub may_begin: bool,
}

/// The state of the agent that a fence has called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgentState {
    /// No agent has been called, or its answer has been taken.
    None,
    /// The agent is at work.
    AtWork,
    /// The agent has answered and the answer has not been taken.
    Finished,
}

/// One host's fence, which is driven by calls of [`Fence::drive`] and never blocks.
///
/// It is the fence of one incarnation in one state, and proves nothing about any other.
#[derive(Debug)]
pub(crate) struct Fence {
    host: InstanceId,
    /// The host's word, in [`Status::Fencing`], as it was before the fence began.
    seen: State,
    began: Duration,
    patience: Duration,
    agent: Option<RunningAgent>,
    /// After a failure: the time of the next attempt, and the reason.
    failed: Option<(Duration, String)>,
    /// The reason for which the host was last reported.
    reason: Option<String>,
    /// The times at which the host's cord was pulled first and last.
    pulled: Option<(Duration, Duration)>,
}

impl Fence {
    pub(crate) fn begin(host: InstanceId, seen: State, now: Duration, patience: Duration) -> Self {
        debug_assert_eq!(seen.status, Status::Fencing);
        Self {
            host,
            seen,
            began: now,
            patience,
            agent: None,
            failed: None,
            reason: None,
            pulled: None,
        }
    }

    /// Records why the fence fails. Returns whether the reason has changed.
    pub(crate) fn note_reason(&mut self, why: &str) -> bool {
        let is_news = self.reason.as_deref() != Some(why);
        if is_news {
            self.reason = Some(why.to_owned());
        }
        is_news
    }

    /// Returns the state in which the host was when the fence began.
    pub(crate) fn seen(&self) -> State {
        self.seen
    }

    /// Returns the state of its agent.
    pub(crate) fn agent(&self) -> AgentState {
        match &self.agent {
            None => AgentState::None,
            Some(agent) if agent.is_finished() => AgentState::Finished,
            Some(_) => AgentState::AtWork,
        }
    }

    /// Returns the host and the agent that is still at work against it.
    pub(crate) fn into_running(self) -> Option<(InstanceId, RunningAgent)> {
        Some((self.host, self.agent?))
    }

    fn instance(&self) -> Instance {
        Instance::new(self.host, self.seen.generation)
    }

    /// Returns whether the fence is slow or has failed; it need not be driven every round.
    pub(crate) fn is_failing(&self, now: Duration) -> bool {
        self.failed.is_some() || now.saturating_sub(self.began) >= self.patience
    }

    /// Continues the fence of a host of this kernel. It is complete when the presence of all its
    /// processes is free. Its processes are killed by their pids if the host `is_here`, on the
    /// caller's operating system; by the host's cord where that is refused; and by the agent where
    /// the cord has not ended them. The agent's answer does not count as proof, since the presence
    /// of the processes is seen from here.
    pub(crate) fn drive(&mut self, os: &dyn Os, is_here: bool, call: Call<'_>) -> FenceState {
        let tables = call.tables;
        // The full fence of the handshake in `join.rs`: the host's word was set before it, all
        // other words are read after it.
        outlive_memory::Memory::fence(tables.memory(), outlive_memory::Ordering::SeqCst);
        let now = os.now();
        let mut waiting_for = None;
        let mut refused = None;
        for (id, state) in tables.writers() {
            if state.level != Some(Level::Process) || u32::from(state.host) != self.host {
                continue;
            }
            // Checks, after the member's word was read, that the fence is still the same. Otherwise
            // the member may belong to the host's next incarnation, which must not be killed.
            if tables.generations().state(self.host) != Ok(self.seen) {
                return FenceState::Underway;
            }
            match end_process(tables, os, id, state, is_here) {
                Ending::Gone => {}
                Ending::Sent(why) => {
                    // A presence that is still claimed long after the signal does not belong to the
                    // signalled process, or not to it alone.
                    if now.saturating_sub(self.began) >= self.patience {
                        refused = Some(why.clone());
                    }
                    waiting_for = Some(why);
                }
                Ending::Refused(why) => {
                    waiting_for = Some(why.clone());
                    refused = Some(why);
                }
            }
        }
        // The process that was bringing the host to life when its fence began has its join lock and
        // no presence, and may be about to write the host's record. Afterwards it writes nothing
        // more (the handshake in `join.rs`).
        if waiting_for.is_none()
            && os.is_present(self.host)
            && tables.records().read(self.instance()).is_none()
        {
            let why = "a process that is joining the host holds its join lock";
            if now.saturating_sub(self.began) >= self.patience {
                refused = Some(why.to_owned());
            }
            waiting_for = Some(why.to_owned());
        }
        if let Some(why) = refused {
            // The cord is pulled repeatedly: a joining process may have been tied to it since.
            let is_due = |(_, last)| now.saturating_sub(last) >= CORD_PATIENCE;
            if self.pulled.is_none_or(is_due) && os.pull_cord(self.host, self.seen.generation) {
                let first = self.pulled.map_or(now, |(first, _)| first);
                self.pulled = Some((first, now));
            }
            // If no process is tied to it, there is nothing to wait for.
            let has_waited = self
                .pulled
                .is_none_or(|(first, _)| now.saturating_sub(first) >= CORD_PATIENCE);
            if has_waited && call.agent.is_some() {
                match self.drive_agent(now, call) {
                    FenceState::Underway => {}
                    FenceState::Failing(agents) => {
                        return FenceState::Failing(format!("{why}, and {agents}"));
                    }
                    // The host gets time to end before the agent is called again.
                    FenceState::Done => {
                        let why =
                            "the fence agent has reported that the host is off, but it still runs";
                        self.failed = Some((now + self.patience, why.into()));
                    }
                }
            }
        }
        match waiting_for {
            None => FenceState::Done,
            Some(why) if now.saturating_sub(self.began) >= self.patience => {
                FenceState::Failing(why)
            }
            Some(_) => FenceState::Underway,
        }
    }

    /// Continues the fence of a host by an agent.
    pub(crate) fn drive_agent(&mut self, now: Duration, call: Call<'_>) -> FenceState {
        let Some(agent) = call.agent else {
            return FenceState::Failing(
                "it runs on another operating system and no fence command is configured".into(),
            );
        };
        if let Some((until, why)) = &self.failed {
            if now < *until {
                return FenceState::Failing(why.clone());
            }
            self.failed = None;
        }
        let outcome = match self.agent.take() {
            Some(running) if running.is_finished() => match running.join() {
                Ok(Ok(())) => return FenceState::Done,
                Ok(Err(why)) => Err(why),
                Err(_) => Err("the fence agent panicked".into()),
            },
            Some(running) => {
                self.agent = Some(running);
                if now.saturating_sub(self.began) < self.patience {
                    return FenceState::Underway;
                }
                return FenceState::Failing("the fence agent has not answered yet".into());
            }
            None if !call.may_begin || !announce(call.tables, call.me, self.host, self.seen) => {
                return FenceState::Underway;
            }
            None => {
                let (agent, host, name) =
                    (Arc::clone(agent), self.instance(), call.name.to_owned());
                std::thread::Builder::new()
                    .name("outlive-fence".into())
                    .spawn(move || {
                        // The agent may start programs, which inherit the signal mask.
                        crate::host::take_program_signals();
                        agent.fence(host, &name)
                    })
                    .map(|running| self.agent = Some(running))
                    .map_err(|error| {
                        format!("no thread could be started for the fence agent: {error}")
                    })
            }
        };
        match outcome {
            Ok(()) => FenceState::Underway,
            Err(why) => {
                // The agent is not called again immediately, since it may operate a power switch.
                self.failed = Some((now + self.patience, why.clone()));
                FenceState::Failing(why)
            }
        }
    }
}
