//! The detector: who of this operating system is dead, by what cannot err.
//!
//! Threads are told by their obituaries (a thread whose obituary is missing, by the kernel's list of threads), processes by
//! their presence, and a host is dead when the last of its processes is. Every process runs a detector in its sentinel, and
//! every thread that waits for its group's events is one for the time it waits: the kernel wakes the watchers of an
//! obituary, and the woken thread raises and tells at once. A process's obituary is that of its sentinel; its mark says that
//! the process is probably dying, and that its presence is worth a look.
//!
//! In every case the id's word is read *before* the proof is looked for; see [`raise`].

use super::death::{bury_process, raise, tell};
use super::door::{Door, end_host_if_empty};
use super::{Instance, InstanceId, Level, State, Status, Tables};
use crate::host::{Liveness, Obituary, Os};
use core::time::Duration;

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

/// The detector of one process.
#[derive(Debug)]
pub(crate) struct Detector {
    tables: Tables,
    os_number: u16,
    me: Instance,
    pub(crate) sighting: Sighting,
}

impl Detector {
    /// The detector of the process `me`, on operating system `os_number`.
    pub(crate) fn new(tables: Tables, os_number: u16, me: Instance) -> Self {
        Self {
            tables,
            os_number,
            me,
            sighting: Sighting::default(),
        }
    }

    /// Obituaries only; cheap.
    pub(crate) fn look(&mut self, os: &dyn Os) {
        look_at_obituaries(self.tables, os, self.os_number, self.me, &mut self.sighting);
    }

    /// Looks at the processes that were seen dying, then at the hosts that may have lost their last one. `thorough` looks at
    /// all processes, those of other operating systems among them for which a free presence is proof, and at threads whose
    /// obituaries are missing. Returns whether a member was found dead.
    pub(crate) fn look_at_processes(&mut self, os: &dyn Os, thorough: bool) -> bool {
        let tables = self.tables;
        let systems = tables.operating_systems();
        let mut found = false;
        // Hosts come last: a host may be found empty right after the burial of its last process.
        let mut hosts = Vec::new();
        for (id, state) in tables.writers() {
            let Some(its_os) = tables.os_of(state) else {
                continue;
            };
            let is_here = its_os == self.os_number;
            // Another operating system has sentinels of its own for as long as anything of it lives.
            if !(is_here || thorough && systems.absence_is_proof(self.os_number, its_os)) {
                continue;
            }
            let instance = Instance::new(id, state.generation);
            found |= match state.level {
                Some(Level::Process) => {
                    (thorough || self.sighting.dying.contains(&(id, state)))
                        && !os.is_present(id)
                        && bury_process(tables, os, id, state, Some(self.me))
                }
                Some(Level::Thread) if thorough && is_here => {
                    let gone = tables
                        .records()
                        .read(instance)
                        .is_some_and(|record| os.thread_liveness(record.thread) == Liveness::Gone);
                    gone && self.bury(os, id, state)
                }
                Some(Level::Host) if state.status != Status::Joining || !is_here => {
                    hosts.push(instance);
                    false
                }
                _ => false,
            };
        }
        for host in hosts {
            found |= self.bury_empty_host(os, host);
        }
        found
    }

    /// Whether one of the processes that were seen dying is gone.
    pub(crate) fn is_one_gone_of_the_dying(&self, os: &dyn Os) -> bool {
        let mut dying = self.sighting.dying.iter();
        dying.any(|(id, _)| !os.is_present(*id))
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
        if !is_empty || os.is_present(host.id) {
            return false;
        }
        // Under the join lock no process joins the host meanwhile. Another holder of the lock sees to the host.
        let Ok(_door) = Door::enter(tables, os, self.os_number, host.id, Duration::ZERO) else {
            return false;
        };
        end_host_if_empty(tables, os, self.os_number, host, Some(Some(self.me)))
    }
}
