//! Failure detectors: which servers may have failed, and on what evidence.
//!
//! A detector decides nothing. The core raises the generation of a server only after the server can
//! no longer write, and recovery begins after that. A detector therefore only *suspects*, and
//! [`ComputeServer::detect`] requests the fence of each suspect.
//!
//! # Wrong suspicions
//!
//! A fence ends a server, even one that has not failed. No transaction is lost or executed twice by
//! the fence of a compute server. The memory of a fenced memory server is lost, as by its death:
//! data is lost if the f + 1 memory servers with the replicas of an object are fenced before a
//! restoration has replaced one of them. That needs f + 1 wrong suspicions, or a pause of f + 1
//! memory servers for longer than the suspicion time, such as a pause of the whole machine.
//!
//! # The evidence of the core
//!
//! The [`CoreDetector`] reports the evidence of the core's membership:
//!
//! * *On one operating system* the kernel reports the end of each thread and process (obituaries
//!   and presences). This is proof, and needs no suspicion.
//! * *Heartbeats*: the core suspects and fences a server that has not beaten for the suspicion time
//!   of the store ([`StoreOptions::heartbeats`](super::StoreOptions::heartbeats)). The fences are
//!   [counted](CoreDetector::fences). On one operating system such a fence is false, unless the
//!   server was stopped or hung.
//!
//! Another detector, such as a quorum of observers, implements [`Detector`].

use super::ComputeServer;
use core::fmt;
use core::time::Duration;
use outlive::membership::{Event, EventKind, GroupEvents, Instance, InstanceId, News, Tables};
use std::collections::HashMap;
use std::time::Instant;

/// The finding of a detector about a server. The server is identified by the instance of its
/// process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The server may have failed. It may still write, until it is fenced.
    Suspected(Instance),
    /// The generation of the server is raised: it can no longer write.
    Died {
        /// The server.
        server: Instance,
        /// The evidence of its death.
        evidence: Evidence,
    },
}

/// The evidence of a death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// The operating system has ended the process, without a fence.
    Ended,
    /// The server was suspected and has been fenced.
    Fenced,
}

/// A failure detector.
pub trait Detector {
    /// Waits for the next finding, for at most `timeout`.
    fn wait(&mut self, timeout: Duration) -> Option<Finding>;
}

/// The detector of the core's membership: deaths with their evidence. The core fences its suspects
/// itself.
///
/// It reports the servers that die after it was created. If the caller waits so rarely that the
/// core overwrites events, their findings are missing. Recoveries do not depend on them.
pub struct CoreDetector {
    tables: Tables,
    events: GroupEvents,
    pending: PendingDeaths,
    fences: u64,
}

/// Deaths for which only one of the two events has been received. Each server is a process on a
/// host of its own. The event of the host's death has the evidence, and that of the process names
/// the server. They come in either order.
#[derive(Debug, Default)]
struct PendingDeaths {
    /// The servers whose deaths were reported before those of their hosts, by the id of the host.
    servers: HashMap<InstanceId, Instance>,
    /// The hosts whose deaths were reported before those of their servers, with the evidence.
    hosts: HashMap<InstanceId, Evidence>,
}

impl PendingDeaths {
    /// Returns the server that has died and the evidence, if `event` is the second one of its
    /// death. `host_of` returns the host of a dead process.
    fn join(
        &mut self,
        event: &Event,
        host_of: impl FnOnce(Instance) -> Option<InstanceId>,
    ) -> Option<(Instance, Evidence)> {
        let instance = event.instance;
        match event.kind {
            EventKind::ProcessDied => {
                let host = host_of(instance)?;
                let Some(evidence) = self.hosts.remove(&host) else {
                    self.servers.insert(host, instance);
                    return None;
                };
                Some((instance, evidence))
            }
            EventKind::HostDied => {
                let evidence = match event.fenced {
                    true => Evidence::Fenced,
                    false => Evidence::Ended,
                };
                let Some(server) = self.servers.remove(&instance.id) else {
                    self.hosts.insert(instance.id, evidence);
                    return None;
                };
                Some((server, evidence))
            }
            // The id has another owner now, which has nothing to do with an earlier death.
            EventKind::Joined | EventKind::Rejoined => {
                self.servers.remove(&instance.id);
                self.hosts.remove(&instance.id);
                None
            }
            _ => None,
        }
    }
}

impl fmt::Debug for CoreDetector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fences = self.fences;
        f.debug_struct("CoreDetector")
            .field("fences", &fences)
            .finish_non_exhaustive()
    }
}

impl CoreDetector {
    pub(super) fn new(tables: Tables, events: GroupEvents) -> Self {
        Self {
            tables,
            events,
            pending: PendingDeaths::default(),
            fences: 0,
        }
    }

    /// Returns the number of deaths by fences that it has reported.
    pub fn fences(&self) -> u64 {
        self.fences
    }

    fn interpret(&mut self, event: &Event) -> Option<Finding> {
        let generations = self.tables.generations();
        // The word of a dead process keeps its host until the id is assigned again.
        let host_of = |process: Instance| {
            let state = generations.state(process.id).ok();
            let state = state.filter(|it| it.generation == process.generation + 1)?;
            Some(InstanceId::from(state.host))
        };
        let (server, evidence) = self.pending.join(event, host_of)?;
        self.fences += u64::from(evidence == Evidence::Fenced);
        Some(Finding::Died { server, evidence })
    }
}

impl Detector for CoreDetector {
    fn wait(&mut self, timeout: Duration) -> Option<Finding> {
        let begin = Instant::now();
        loop {
            let left = timeout.saturating_sub(begin.elapsed());
            match self.events.wait_for(left)? {
                News::Event(event) => {
                    let finding = self.interpret(&event);
                    if finding.is_some() {
                        return finding;
                    }
                }
                News::Resync { missed, .. } => {
                    tracing::warn!(missed, "a failure detector has missed events");
                    self.pending = PendingDeaths::default();
                }
            }
        }
    }
}

impl ComputeServer {
    /// Returns a detector that reports the core's evidence from now on.
    pub fn detector(&self) -> CoreDetector {
        let process = self.process();
        CoreDetector::new(process.tables(), process.events())
    }

    /// Waits for the next finding of `detector`, for at most `timeout`, and requests the fence of a
    /// suspect. Returns without waiting for the fence.
    ///
    /// # Crash
    /// The fence is requested, or not.
    pub fn detect(&self, detector: &mut dyn Detector, timeout: Duration) -> Option<Finding> {
        let finding = detector.wait(timeout)?;
        if let Finding::Suspected(server) = finding
            && server != self.instance()
        {
            match self.process().fence(server) {
                Ok(_) => tracing::warn!(%server, "a suspected server is fenced"),
                // It has died or left since.
                Err(error) => tracing::debug!(%server, %error, "a suspect needs no fence"),
            }
        }
        Some(finding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: InstanceId = 5;

    fn event(kind: EventKind, instance: Instance, fenced: bool) -> Event {
        Event {
            sequence: 1,
            kind,
            instance,
            level: None,
            fenced,
        }
    }

    #[test]
    fn the_events_of_a_death_come_in_either_order() {
        let (host, server) = (Instance::new(HOST, 1), Instance::new(6, 1));
        let died = event(EventKind::ProcessDied, server, false);
        let fenced = event(EventKind::HostDied, host, true);
        for (first, second) in [(died, fenced), (fenced, died)] {
            let mut pending = PendingDeaths::default();
            assert_eq!(pending.join(&first, |_| Some(HOST)), None);
            let joined = pending.join(&second, |_| Some(HOST));
            assert_eq!(joined, Some((server, Evidence::Fenced)));
        }
    }

    /// One event of the first owner's death is missing: its evidence, or its server, is not that of
    /// the next owner.
    #[test]
    fn the_next_owner_of_an_id_has_evidence_of_its_own() {
        let (host, server) = (Instance::new(HOST, 3), Instance::new(6, 3));
        let died = event(EventKind::ProcessDied, server, false);
        let ended = event(EventKind::HostDied, host, false);
        let before = [
            event(EventKind::HostDied, Instance::new(HOST, 1), true),
            event(EventKind::ProcessDied, Instance::new(7, 1), false),
        ];
        for (before, kind) in before
            .into_iter()
            .zip([EventKind::Joined, EventKind::Rejoined])
        {
            for (first, second) in [(died, ended), (ended, died)] {
                let mut pending = PendingDeaths::default();
                for event in [before, event(kind, host, false), first] {
                    assert_eq!(pending.join(&event, |_| Some(HOST)), None);
                }
                let joined = pending.join(&second, |_| Some(HOST));
                assert_eq!(joined, Some((server, Evidence::Ended)));
            }
        }
    }
}
