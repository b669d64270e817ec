//! Fencing: making sure that a suspected host can no longer touch memory.
//!
//! On one operating system every process of the host is killed through its verified handle and seen gone.
//! A host of another operating system is fenced by the configured command. A fence that cannot complete
//! raises nothing: the host stays a suspect, is reported, and the fence goes on trying.

use super::detector::{Detector, Unwatched};
use super::{Instance, Level, Status, Tables};
use crate::host::{Obituary, Os};
use core::time::Duration;

/// Fences a host that this operating system cannot kill by itself: a BMC, a hypervisor, a cluster manager.
///
/// It is called on a thread of its own and may take as long as it needs.
pub trait FenceAgent: Send + Sync {
    /// Makes sure that the host `host`, called `name`, no longer runs. `Ok` is a promise: on the strength
    /// of it others take what the host held.
    ///
    /// # Errors
    /// With what went wrong; the host stays a suspect and the agent is called again.
    fn fence(&self, host: Instance, name: &str) -> Result<(), String>;
}

/// How a fence stands.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FenceState {
    /// The host can no longer write.
    Done,
    /// Not yet.
    Underway,
    /// Not within the time given, and why. It goes on.
    Failing(String),
}

/// One host's fence, which is driven by calls of [`Fence::drive`] and never blocks.
#[derive(Debug)]
pub(crate) struct Fence {
    host: Instance,
    began: Duration,
    patience: Duration,
    agent: Option<std::thread::JoinHandle<Result<(), String>>>,
}

impl Fence {
    pub(crate) fn begin(host: Instance, now: Duration, patience: Duration) -> Self {
        Self {
            host,
            began: now,
            patience,
            agent: None,
        }
    }

    /// Goes on with the fence of a host of this operating system, which is in [`Status::Fencing`].
    pub(crate) fn drive(
        &mut self,
        tables: Tables,
        os: &dyn Os,
        detector: &mut Detector,
    ) -> FenceState {
        // The full fence of the handshake in `join.rs`: the host's word was set before, everyone's is
        // read after.
        outlive_memory::Memory::fence(tables.memory(), outlive_memory::Ordering::SeqCst);
        let mut waiting_for = None;
        for (id, state) in tables.writers() {
            if state.level != Some(Level::Process) || u32::from(state.host) != self.host.id {
                continue;
            }
            let process = Instance::new(id, state.generation);
            match detector.handle(os, process) {
                Ok(None) => {}
                Ok(Some(handle)) if handle.is_gone() => {}
                Ok(Some(handle)) => {
                    let pid = handle.identity().pid;
                    waiting_for = Some(if handle.send_kill() {
                        format!("process {pid} was told to die and has not gone yet")
                    } else {
                        format!("process {pid} cannot be killed from here")
                    });
                }
                // Without a record it is still joining: it will see that its host is being fenced, or
                // its obituary will be marked.
                Err(Unwatched)
                    if state.status == Status::Joining
                        && !matches!(os.obituary(id), Obituary::Held { .. }) => {}
                Err(Unwatched) => {
                    waiting_for = Some(format!("process instance {process} cannot be watched"));
                }
            }
        }
        match waiting_for {
            None => FenceState::Done,
            Some(why) if os.now().saturating_sub(self.began) >= self.patience => {
                FenceState::Failing(why)
            }
            Some(_) => FenceState::Underway,
        }
    }

    /// Goes on with the fence of a host of another operating system, by `agent`.
    pub(crate) fn drive_agent(
        &mut self,
        now: Duration,
        name: &str,
        agent: Option<&std::sync::Arc<dyn FenceAgent>>,
    ) -> FenceState {
        let Some(agent) = agent else {
            return FenceState::Failing(
                "it runs on another operating system and no fence command is configured".into(),
            );
        };
        match self.agent.take() {
            Some(running) if running.is_finished() => match running.join() {
                Ok(Ok(())) => FenceState::Done,
                Ok(Err(why)) => FenceState::Failing(why),
                Err(_) => FenceState::Failing("the fence agent panicked".into()),
            },
            Some(running) => {
                self.agent = Some(running);
                if now.saturating_sub(self.began) >= self.patience {
                    FenceState::Failing("the fence agent has not answered yet".into())
                } else {
                    FenceState::Underway
                }
            }
            None => {
                let (agent, host, name) =
                    (std::sync::Arc::clone(agent), self.host, name.to_owned());
                let call = move || agent.fence(host, &name);
                match std::thread::Builder::new()
                    .name("outlive-fence".into())
                    .spawn(call)
                {
                    Ok(running) => {
                        self.agent = Some(running);
                        FenceState::Underway
                    }
                    Err(error) => FenceState::Failing(format!("no thread for the agent: {error}")),
                }
            }
        }
    }
}
