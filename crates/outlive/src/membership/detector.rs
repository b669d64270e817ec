//! The detector: finds the dead members of this operating system, by evidence that cannot be wrong.
//!
//! The death of a thread is detected by its obituary (by the kernel's list of threads if the
//! obituary is missing), that of a process by its presence, and a host is dead when the last of its
//! processes is. The process on [watch](super::watch) for a host runs a detector in its sentinel.
//! Every thread that waits for its group's events is a detector while it waits: the kernel wakes
//! the watchers of an obituary, and the woken thread raises the generation and notifies the groups
//! immediately. A process's obituary is that of its sentinel; its mark means that the process is
//! probably dying, and that its presence is to be checked.
//!
//! In every case the id's word is read *before* the proof is looked for; see [`raise`].

use super::death::{bury_process, raise, tell};
use super::join_lock::end_dead_host;
use super::watch::watcher_of;
use super::{Instance, InstanceId, Level, State, Status, Tables};
use crate::host::{Bells, Gathered, Liveness, Obituary, Os};

/// The result of a scan of the obituaries.
#[derive(Debug, Default)]
pub(crate) struct Sighting {
    /// The held obituaries to sleep on, with the tids that hold them.
    pub held: Vec<(u32, u32)>,
    /// The members that this scan found dead and raised.
    pub dead: Vec<Instance>,
    /// Processes that are probably dying: their sentinel's obituary is marked.
    pub dying: Vec<(InstanceId, State)>,
}

/// Checks every obituary of this operating system, raises the generations of dead members and
/// notifies their groups. It takes a few microseconds, and makes no system call except for
/// wake-ups. `me` is the calling process. Lists the held obituaries for which `is_to_be_held` is
/// true.
pub(crate) fn check_obituaries(
    tables: Tables,
    os: &dyn Os,
    os_number: u16,
    me: Instance,
    sighting: &mut Sighting,
    is_to_be_held: impl Fn(Instance, State) -> bool,
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
            Obituary::Held { tid } => {
                if is_to_be_held(Instance::new(id, state.generation), state) {
                    sighting.held.push((id, tid));
                }
            }
            Obituary::Vacant | Obituary::Marked { .. } if obituary_tells => {
                // The kernel wakes one watcher of each word. Wake the others first, since this
                // thread may die during the next steps.
                os.wake_watchers(id);
                if let Some(dead) = raise(tables, id, state, Some(me)) {
                    sighting.dead.push(dead);
                }
            }
            Obituary::Vacant | Obituary::Marked { .. } => sighting.dying.push((id, state)),
        }
    }
    let bells = Gathered::new(os.bells());
    for dead in &sighting.dead {
        tell(tables, &bells, *dead);
    }
}

/// The detector of one process.
#[derive(Debug)]
pub(crate) struct Detector {
    tables: Tables,
    os_number: u16,
    host: Instance,
    me: Instance,
    /// The number of thorough checks that it has made.
    thorough: usize,
    pub(crate) sighting: Sighting,
}

impl Detector {
    /// Returns the detector of the process `me` of `host`, on operating system `os_number`.
    pub(crate) fn new(tables: Tables, os_number: u16, host: Instance, me: Instance) -> Self {
        Self {
            tables,
            os_number,
            host,
            me,
            thorough: 0,
            sighting: Sighting::default(),
        }
    }

    /// Checks obituaries only, which is cheap. Lists those of this host's members and of other
    /// hosts' watchers, to sleep on.
    pub(crate) fn look(&mut self, os: &dyn Os) {
        let (tables, host) = (self.tables, self.host);
        let is_ours = |instance: Instance, state: State| {
            let of = InstanceId::from(state.host);
            // The join lock of a host is held briefly.
            state.level == Some(Level::Host)
                || of == host.id
                || tables.records().watch(of) == instance.to_word()
        };
        check_obituaries(
            tables,
            os,
            self.os_number,
            self.me,
            &mut self.sighting,
            is_ours,
        );
    }

    /// Checks the processes that were seen dying, then the hosts that may have lost their last
    /// process. With `thorough` it checks all processes of this host, and its threads whose
    /// obituaries are missing. Every second time it also checks the members that no watcher serves:
    /// those of hosts without a watcher that is present, and all processes of other operating
    /// systems for which a free presence is proof. (Watchers take turns, so a stopped watcher
    /// delays no detection by more than two checks.) Returns whether a member was found dead.
    pub(crate) fn check_processes(&mut self, os: &dyn Os, thorough: bool) -> bool {
        let tables = self.tables;
        let systems = tables.operating_systems();
        let bells = Gathered::new(os.bells());
        let mut found = false;
        let (before, others) = self.other_hosts();
        self.thorough += usize::from(thorough);
        let is_its_turn = thorough && (others == 0 || (self.thorough + before).is_multiple_of(2));
        let served = match is_its_turn {
            true => self.served_hosts(os),
            false => Vec::new(),
        };
        // Hosts come last: a host may be found empty right after the death of its last process.
        let mut hosts = Vec::new();
        for (id, state) in tables.writers() {
            let Some(its_os) = tables.os_of(state) else {
                continue;
            };
            let is_here = its_os == self.os_number;
            // Another operating system has its own sentinels while a process of it lives.
            if !(is_here || is_its_turn && systems.absence_is_proof(self.os_number, its_os)) {
                continue;
            }
            let instance = Instance::new(id, state.generation);
            let of = InstanceId::from(state.host);
            let thorough = thorough
                && (of == self.host.id || is_its_turn && !(is_here && served.contains(&of)));
            found |= match state.level {
                Some(Level::Process) => {
                    (thorough || self.sighting.dying.contains(&(id, state)))
                        && !os.is_present(id)
                        && bury_process(tables, &bells, id, state, Some(self.me))
                }
                Some(Level::Thread) if thorough && is_here => {
                    let gone = tables
                        .records()
                        .read(instance)
                        .is_some_and(|record| os.thread_liveness(record.thread) == Liveness::Gone);
                    gone && self.bury(&bells, id, state)
                }
                Some(Level::Host) if state.status != Status::Joining || !is_here => {
                    hosts.push(instance);
                    false
                }
                _ => false,
            };
        }
        for host in hosts {
            found |= end_dead_host(tables, os, self.os_number, host, Some(self.me));
        }
        found
    }

    /// Returns whether one of the processes that were seen dying is gone.
    pub(crate) fn is_one_gone_of_the_dying(&self, os: &dyn Os) -> bool {
        let mut dying = self.sighting.dying.iter();
        dying.any(|(id, _)| !os.is_present(*id))
    }

    /// Counts the other live hosts of this operating system whose watcher was not seen dying.
    /// Returns the number of those with a smaller id than this host's, and the number of all.
    pub(crate) fn other_hosts(&self) -> (usize, usize) {
        let others = self.tables.writers().filter(|(id, state)| {
            state.level == Some(Level::Host)
                && state.status == Status::Live
                && state.host == self.os_number
                && *id != self.host.id
                && self.watcher(*id as u16).is_some()
        });
        others.fold((0, 0), |(before, others), (id, _)| {
            (before + usize::from(id < self.host.id), others + 1)
        })
    }

    /// Returns the hosts of this operating system whose watcher is present. (A watcher that has
    /// died, and whose obituary the kernel has not marked, is still in the table.)
    fn served_hosts(&self, os: &dyn Os) -> Vec<InstanceId> {
        let is_served = |(id, state): &(InstanceId, State)| {
            state.level == Some(Level::Host)
                && state.host == self.os_number
                && self
                    .watcher(*id as u16)
                    .is_some_and(|watcher| os.is_present(watcher.id))
        };
        let served = self.tables.writers().filter(is_served);
        served.map(|(id, _)| id).collect()
    }

    /// Returns the watcher of the host `id`, if it has one that was not seen dying.
    fn watcher(&self, id: u16) -> Option<Instance> {
        let state = self.tables.generations().state(id.into()).ok()?;
        let watcher = watcher_of(self.tables, Instance::new(id.into(), state.generation))?;
        let mut dying = self.sighting.dying.iter();
        let is_dying = dying.any(|(id, state)| watcher == Instance::new(*id, state.generation));
        (!is_dying).then_some(watcher)
    }

    fn bury(&self, bells: &dyn Bells, id: InstanceId, state: State) -> bool {
        let Some(dead) = raise(self.tables, id, state, Some(self.me)) else {
            return false;
        };
        tell(self.tables, bells, dead);
        true
    }
}
