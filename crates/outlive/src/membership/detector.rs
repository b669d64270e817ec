//! The detector: who of this operating system is dead, by what cannot err.
//!
//! Threads are told by their obituaries (a thread whose obituary is missing, by `/proc`), processes by
//! their pidfds, and a host is dead when the last of its processes is. Every process runs a detector in
//! its sentinel, and every thread that waits for its group's events is one for the time it waits: the
//! kernel wakes whoever watches the word, and the woken raises and tells at once.
//!
//! In every case the id's word is read *before* the proof is looked for; see [`raise`].

use super::death::{bury_process, raise, tell};
use super::door::{Door, end_host_if_empty};
use super::{Instance, InstanceId, Level, State, Status, Tables};
use crate::host::{Liveness, Obituary, Os, ProcessHandle};
use core::time::Duration;
use std::collections::HashMap;

/// What a look at the obituaries found.
#[derive(Debug, Default)]
pub(crate) struct Sighting {
    /// The obituaries that are held, with the tids that hold them: what to sleep on.
    pub held: Vec<(u32, u32)>,
    /// Who was found dead, and raised by this call.
    pub dead: Vec<Instance>,
    /// Processes that are probably dying: their sentinel's obituary is marked.
    pub dying: Vec<(InstanceId, State)>,
}

/// Looks at every obituary of this operating system; raises and tells the dead. A few microseconds, no
/// system call but for wake-ups. `me` is the process that looks.
pub(crate) fn look_at_obituaries(
    tables: Tables,
    os: &dyn Os,
    os_number: u16,
    me: Instance,
    sighting: &mut Sighting,
) {
    sighting.held.clear();
    sighting.dead.clear();
    sighting.dying.clear();
    for (id, state) in tables.writers() {
        let obituary_tells = match state.level {
            Some(Level::Thread) => true,
            Some(Level::Process | Level::Host) => state.status == Status::Joining,
            None => continue,
        };
        if tables.os_of(state) != Some(os_number) {
            continue;
        }
        if state.level == Some(Level::Host) && !obituary_tells {
            continue;
        }
        match os.obituary(id) {
            Obituary::Held { tid } => sighting.held.push((id, tid)),
            Obituary::Vacant | Obituary::Marked { .. } if obituary_tells => {
                // The kernel wakes one watcher of each word. Wake the others before anything that we
                // might not live to finish.
                os.wake_watchers(id);
                if let Some(dead) = raise(tables, id, state, Some(me)) {
                    sighting.dead.push(dead);
                }
            }
            Obituary::Vacant | Obituary::Marked { .. } => sighting.dying.push((id, state)),
        }
    }
    for dead in &sighting.dead {
        tell(tables, os.bells(), *dead);
    }
}

/// The detector of one process, with a handle on every process of its operating system.
#[derive(Debug)]
pub(crate) struct Detector {
    tables: Tables,
    os_number: u16,
    me: Instance,
    handles: HashMap<InstanceId, (Instance, Box<dyn ProcessHandle>)>,
    pub(crate) sighting: Sighting,
}

impl Detector {
    /// The detector of the process `me`, on operating system `os_number`.
    pub(crate) fn new(tables: Tables, os_number: u16, me: Instance) -> Self {
        Self {
            tables,
            os_number,
            me,
            handles: HashMap::new(),
            sighting: Sighting::default(),
        }
    }

    /// Obituaries only; cheap.
    pub(crate) fn look(&mut self, os: &dyn Os) {
        look_at_obituaries(self.tables, os, self.os_number, self.me, &mut self.sighting);
    }

    /// Looks at the processes, then at the hosts that may have lost their last one. `thorough` asks
    /// `/proc` for threads whose obituaries are missing too. Returns whether anybody was found dead.
    pub(crate) fn look_at_processes(&mut self, os: &dyn Os, thorough: bool) -> bool {
        let tables = self.tables;
        let mut found = false;
        // Hosts come last: a host may be found empty right after the burial of its last process.
        let mut hosts = Vec::new();
        for (id, state) in tables.writers() {
            if tables.os_of(state) != Some(self.os_number) {
                continue;
            }
            let instance = Instance::new(id, state.generation);
            found |= match state.level {
                Some(Level::Process) if state.status == Status::Live => {
                    self.is_gone(os, instance) && bury_process(tables, os, id, state, Some(self.me))
                }
                Some(Level::Thread) if thorough => {
                    let gone = tables
                        .records()
                        .read(instance)
                        .is_some_and(|record| os.thread_liveness(record.thread) == Liveness::Gone);
                    gone && self.bury(os, id, state)
                }
                Some(Level::Host) if state.status != Status::Joining => {
                    hosts.push(instance);
                    false
                }
                _ => false,
            };
        }
        for host in hosts {
            found |= self.bury_empty_host(os, host);
        }
        self.handles
            .retain(|id, (instance, _)| tables.generations().current(*id) == instance.generation);
        found
    }

    /// Whether one of the processes that were seen dying is gone.
    pub(crate) fn is_one_gone_of_the_dying(&mut self, os: &dyn Os) -> bool {
        let dying = core::mem::take(&mut self.sighting.dying);
        let gone = dying
            .iter()
            .any(|(id, state)| self.is_gone(os, Instance::new(*id, state.generation)));
        self.sighting.dying = dying;
        gone
    }

    /// How many processes of this operating system live whose ids are less than `id`, but for those that were seen
    /// dying.
    pub(crate) fn living_before(&self, id: InstanceId) -> usize {
        let tables = self.tables;
        let dying = |id| self.sighting.dying.iter().any(|(dying, _)| *dying == id);
        tables
            .writers()
            .filter(|(other, state)| {
                *other < id
                    && state.level == Some(Level::Process)
                    && state.status == Status::Live
                    && tables.os_of(*state) == Some(self.os_number)
                    && !dying(*other)
            })
            .count()
    }

    /// The handle on `instance`, a process of this operating system. `Ok(None)`: it is gone.
    pub(crate) fn handle(
        &mut self,
        os: &dyn Os,
        instance: Instance,
    ) -> Result<Option<&dyn ProcessHandle>, Unwatched> {
        let known = self
            .handles
            .get(&instance.id)
            .is_some_and(|(of, _)| *of == instance);
        if !known {
            let record = self.tables.records().read(instance).ok_or(Unwatched)?;
            match os.open_process(record.thread.process) {
                Ok(Some(handle)) => {
                    self.handles.insert(instance.id, (instance, handle));
                }
                Ok(None) => return Ok(None),
                Err(error) => {
                    tracing::warn!(%instance, %error, "a process cannot be watched");
                    return Err(Unwatched);
                }
            }
        }
        Ok(self.handles.get(&instance.id).map(|(_, handle)| &**handle))
    }

    fn is_gone(&mut self, os: &dyn Os, instance: Instance) -> bool {
        match self.handle(os, instance) {
            Ok(Some(handle)) => handle.is_gone(),
            Ok(None) => true,
            Err(Unwatched) => false,
        }
    }

    fn bury(&self, os: &dyn Os, id: InstanceId, state: State) -> bool {
        let Some(dead) = raise(self.tables, id, state, Some(self.me)) else {
            return false;
        };
        tell(self.tables, os.bells(), dead);
        true
    }

    fn bury_empty_host(&self, os: &dyn Os, host: Instance) -> bool {
        let tables = self.tables;
        let is_empty = !tables
            .writers()
            .any(|(_, of)| of.level == Some(Level::Process) && u32::from(of.host) == host.id);
        if !is_empty || matches!(os.obituary(host.id), Obituary::Held { .. }) {
            return false;
        }
        // In the door nobody comes in meanwhile. Somebody else in it will see to the host.
        let Ok(_door) = Door::enter(tables, os, self.os_number, host.id, Duration::ZERO) else {
            return false;
        };
        end_host_if_empty(tables, os, self.os_number, host, Some(Some(self.me)))
    }
}

/// A process of which there is no record yet, or that this process may not watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unwatched;
