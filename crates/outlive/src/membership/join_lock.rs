//! The join lock of a host, under which the host's incarnations begin and end.
//!
//! It consists of two locks: the presence of the *host's* id, which processes of all operating
//! systems of this kernel see, and the obituary of that id, which notifies processes of one
//! operating system immediately when the holder dies. Under them the first process brings the host
//! to life and the last one lets it leave, so that a host never ends while a process is joining it.
//! The kernel frees both when their holder dies. A fencing manager does not need the lock: it
//! closes the host's word, and a joining process sees that (the handshake in the module `join`).

use super::agents::wait_for_agents;
use super::death::{bury_absent_processes, note_fence, raise, tell};
use super::join::{Claim, JoinError, hold, join_watched, leave_from};
use super::{Instance, InstanceId, Level, State, Status, Tables};
use crate::host::{Os, Presence};
use core::time::Duration;
use outlive_memory::Memory;

/// The shortest and the longest time that a process sleeps between two tries. The time doubles with
/// each try, since hundreds of processes may wait at the same time.
const SHORTEST_PAUSE: Duration = Duration::from_micros(200);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// The join lock of a host, held by the calling thread.
pub(crate) struct JoinLock<'a> {
    os: &'a dyn Os,
    host: InstanceId,
    presence: Option<Presence>,
}

impl<'a> JoinLock<'a> {
    /// Takes the join lock of `host`. Waits for a live holder, at most for `patience`.
    pub(crate) fn enter<M: Memory>(
        tables: Tables<M>,
        os: &'a dyn Os,
        os_number: u16,
        host: InstanceId,
        patience: Duration,
    ) -> Result<Self, JoinError> {
        let ids = tables.extent().ids;
        if host >= ids {
            return Err(JoinError::NoSuchId { id: host, ids });
        }
        let until = os.now() + patience;
        let mut interval = SHORTEST_PAUSE;
        loop {
            match Self::try_enter(tables, os, os_number, host) {
                Ok(join_lock) => return Ok(join_lock),
                Err(error @ JoinError::InUse { .. }) => {
                    // The id is that of a process or a thread, which keeps its obituary for as long
                    // as it lives: that is not a join lock.
                    let no_door = tables.generations().state(host).is_ok_and(|state| {
                        state.status == Status::Live && state.level != Some(Level::Host)
                    });
                    if no_door || os.now() >= until {
                        return Err(error);
                    }
                    pause(os, interval);
                    interval = (interval * 2).min(LONGEST_PAUSE);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl<'a> JoinLock<'a> {
    fn try_enter<M: Memory>(
        tables: Tables<M>,
        os: &'a dyn Os,
        os_number: u16,
        host: InstanceId,
    ) -> Result<Self, JoinError> {
        hold(tables, os, os_number, host)?;
        // From here on a drop releases the obituary.
        let mut join_lock = Self {
            os,
            host,
            presence: None,
        };
        join_lock.presence = os.claim_presence_briefly(host)?;
        if join_lock.presence.is_none() {
            let by = "a process of this machine, in another PID namespace or with another /dev/shm"
                .into();
            return Err(JoinError::InUse { id: host, by });
        }
        Ok(join_lock)
    }
}

impl Drop for JoinLock<'_> {
    fn drop(&mut self) {
        // The presence comes first: the next holder of the obituary claims it without waiting.
        drop(self.presence.take());
        self.os.release_obituary(self.host);
    }
}

/// Returns the host `id`; brings it to life if needed. Called under its join lock, on its system.
pub(crate) fn attach_host<M: Memory>(
    tables: Tables<M>,
    os: &dyn Os,
    os_number: u16,
    id: InstanceId,
    name: &str,
    suspicion: Duration,
    has_agent: bool,
) -> Result<Instance, JoinError> {
    let generations = tables.generations();
    let in_use = |by: String| JoinError::InUse { id, by };
    let mut seen = generations.state(id).map_err(|word| {
        in_use(format!(
            "an unknown member: its state is corrupt ({word:#x}; run `outlive pod check`)"
        ))
    })?;
    let is_host = seen.level == Some(Level::Host);
    if seen.status.may_write() && !is_host {
        return Err(in_use(format!("a {seen}")));
    }
    if seen.status.may_write() {
        let host = Instance::new(id, seen.generation);
        let systems = tables.operating_systems();
        if systems.absence_is_proof(os_number, seen.host) {
            bury_absent_processes(tables, os, id, None);
            // If none is left, the host died with the last one; its next incarnation is joined
            // below.
            let ended = end_host_if_empty(tables, os, os_number, host, Some(None));
            match seen.status {
                _ if ended => {}
                Status::Fencing => {
                    return Err(JoinError::Gone {
                        what: "host",
                        instance: host,
                    });
                }
                _ if seen.host == os_number => return Ok(host),
                _ => {
                    return Err(in_use(
                        "a live host of this machine whose processes are in another PID namespace \
                         or have another /dev/shm"
                            .into(),
                    ));
                }
            }
        } else if seen.status == Status::Fencing && seen.host == os_number {
            return Err(JoinError::Gone {
                what: "host",
                instance: host,
            });
        } else {
            refuse_what_may_live(tables, os, id, seen, suspicion, has_agent).map_err(in_use)?;
            if let Some(dead) = raise(tables, id, seen, None) {
                os.remove_cord(dead.id, dead.generation);
            }
        }
    }
    seen = generations.state(id).unwrap_or(seen);
    // The state read above shows that the last incarnation has ended.
    wait_for_agents(tables, os, os_number, id, suspicion).map_err(in_use)?;
    if seen.status == Status::Dead && seen.level == Some(Level::Host) {
        // A host holds nothing itself: there is nothing to recover.
        let recovered = State {
            status: Status::Recovered,
            ..seen
        };
        generations.transition(id, seen, recovered);
    }
    let claim = Claim {
        level: Level::Host,
        host_word: os_number,
        host: None,
        process: None,
        has_cord: false,
        name,
    };
    // The calling thread holds the obituary of the host's id, which is a part of the join lock.
    join_watched(tables, os, os_number, id, &claim)
}

/// Returns an error unless the host `id` may be taken over. It is in state `seen`, on an operating
/// system for which a free presence proves nothing, so it must be of an earlier boot of this
/// machine and not beat.
///
/// Machine ids are copied with virtual machines, so such a host may also be another machine that is
/// stopped. Where there is a fence agent (`has_agent`), it decides, if a member of another host
/// lives that calls it. The joining process does not call it: the agent acts on the machine of host
/// `id`, which may be the caller's own. If no other host beats, all have lost their power, or the
/// pod has no other host: then the host is dead, unless its machine id is false.
fn refuse_what_may_live<M: Memory>(
    tables: Tables<M>,
    os: &dyn Os,
    id: InstanceId,
    seen: State,
    suspicion: Duration,
    has_agent: bool,
) -> Result<(), String> {
    let now = os.identity();
    if !tables.operating_systems().is_earlier_boot(seen.host, now) {
        return Err(format!(
            "a host of another operating system, whose state cannot be determined here; if it is \
             off, declare it dead by `outlive pod bury PATH --host {id}`"
        ));
    }
    let others: Vec<_> = tables
        .writers()
        .filter(|(other, state)| state.level == Some(Level::Host) && *other != id)
        .map(|(other, _)| (other, tables.records().beats(other)))
        .collect();
    if beats_within(tables, os, id, suspicion) {
        return Err(format!(
            "a running host of another machine with the same machine id, {:032x}; give each \
             machine its own id",
            now.machine
        ));
    }
    let beats = |(other, before): &(InstanceId, u64)| tables.records().beats(*other) != *before;
    if has_agent && let Some((other, _)) = others.iter().find(|it| beats(it)) {
        return Err(format!(
            "a silent host that host {other} is fencing with the fence command; join when that is \
             done, or, if it cannot be done and the host is off, declare it dead by `outlive pod \
             bury PATH --host {id}`"
        ));
    }
    Ok(())
}

/// Sleeps for `time` on the operating system's clock.
pub(crate) fn pause(os: &dyn Os, time: Duration) {
    const NOBODYS_BELL: u64 = u64::MAX;
    let seen = os.bells().read(NOBODYS_BELL);
    os.bells().wait(NOBODYS_BELL, seen, time);
}

/// Returns whether the heartbeat of `id` advances within twice the suspicion time.
pub(crate) fn beats_within<M: Memory>(
    tables: Tables<M>,
    os: &dyn Os,
    id: InstanceId,
    suspicion: Duration,
) -> bool {
    let first = tables.records().beats(id);
    let until = os.now() + suspicion * 2;
    while os.now() < until {
        if tables.records().beats(id) != first {
            return true;
        }
        pause(os, Duration::from_millis(1));
    }
    false
}

/// Finalises the death of `host` if it has no process and no process is joining it. `by` is the
/// member that has seen this, if the caller is one. Returns whether this call raised it.
pub(crate) fn end_dead_host<M: Memory>(
    tables: Tables<M>,
    os: &dyn Os,
    os_number: u16,
    host: Instance,
    by: Option<Instance>,
) -> bool {
    let is_empty = !tables
        .writers()
        .any(|(_, of)| of.level == Some(Level::Process) && u32::from(of.host) == host.id);
    if !is_empty || os.is_present(host.id) {
        return false;
    }
    // Under the join lock no process can join the host. If another process has the lock, it ends
    // the host if that is empty.
    let Ok(_join_lock) = JoinLock::enter(tables, os, os_number, host.id, Duration::ZERO) else {
        return false;
    };
    end_host_if_empty(tables, os, os_number, host, Some(by))
}

/// Ends `host` if no process of it is left. Returns whether it did. Called under its join lock.
/// `as_died` is set if a process of it died, with the member that has seen the death, if known.
///
/// The host is named by its incarnation, and must be of an operating system whose processes the
/// join lock excludes. (The id may belong to a host of another kernel by now, where this lock
/// excludes no process.)
pub(crate) fn end_host_if_empty<M: Memory>(
    tables: Tables<M>,
    os: &dyn Os,
    os_number: u16,
    host: Instance,
    as_died: Option<Option<Instance>>,
) -> bool {
    let Ok(seen) = tables.generations().state(host.id) else {
        return false;
    };
    // The word is read before the scan, and the compare-and-swap is from that very word.
    let is_one_to_end = seen.generation == host.generation
        && seen.level == Some(Level::Host)
        && tables
            .operating_systems()
            .absence_is_proof(os_number, seen.host)
        && match seen.status {
            Status::Live | Status::Fencing => true,
            // The process that was bringing it to life would have the join lock.
            Status::Joining => as_died.is_some(),
            _ => false,
        };
    let is_empty = || {
        !tables
            .writers()
            .any(|(_, of)| of.level == Some(Level::Process) && u32::from(of.host) == host.id)
    };
    if !is_one_to_end || !is_empty() {
        return false;
    }
    if let Some(by) = as_died {
        note_fence(tables, host.id, seen);
        let Some(dead) = raise(tables, host.id, seen, by) else {
            return false;
        };
        tell(tables, os.bells(), dead);
    } else {
        leave_from(tables, os, host, seen);
    }
    os.remove_cord(host.id, host.generation);
    true
}
