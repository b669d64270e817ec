//! The door of a host: how it comes to life and ends.
//!
//! The obituary of a *host's* id is a lock that its processes hold while they come and go: under it the
//! first process brings the host to life and the last one lets it leave, so that a host never ends while
//! somebody is on the way in. A process that dies in the door has its obituary marked, and the next one
//! walks through. A fencing manager does not need the door: it closes the host's word, and whoever is in
//! the door sees that (the handshake in `join.rs`).

use super::death::{bury_process, members_of, raise, tell_because};
use super::join::{Claim, JoinError, hold, join_watched, leave_from};
use super::{Instance, InstanceId, Level, State, Status, Tables};
use crate::host::Os;
use core::time::Duration;
use outlive_memory::Memory;

/// The door of a host, held by the calling thread.
pub(crate) struct Door<'a> {
    os: &'a dyn Os,
    host: InstanceId,
}

impl<'a> Door<'a> {
    /// Waits for whoever lives and stands in the door of `host`, at most for `patience`.
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
        loop {
            match hold(tables, os, os_number, host) {
                Ok(()) => return Ok(Self { os, host }),
                Err(error @ JoinError::InUse { .. }) => {
                    // A process or a thread has the id, and keeps its obituary for as long as it lives: that is no door.
                    let no_door = tables.generations().state(host).is_ok_and(|state| {
                        state.status == Status::Live && state.level != Some(Level::Host)
                    });
                    if no_door || os.now() >= until {
                        return Err(error);
                    }
                    pause(os, Duration::from_micros(200));
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Door<'_> {
    fn drop(&mut self) {
        self.os.release_obituary(self.host);
    }
}

/// The host `id`, brought to life if it is not: called in its door, on its operating system.
pub(crate) fn attach_host<M: Memory>(
    tables: Tables<M>,
    os: &dyn Os,
    os_number: u16,
    id: InstanceId,
    name: &str,
    suspicion: Duration,
) -> Result<Instance, JoinError> {
    let generations = tables.generations();
    let in_use = |by: String| JoinError::InUse { id, by };
    let mut seen = generations
        .state(id)
        .map_err(|word| in_use(format!("a corrupt state ({word:#x})")))?;
    let is_host = seen.level == Some(Level::Host);
    if seen.status.may_write() && !is_host {
        return Err(in_use(format!("a {seen}")));
    }
    if seen.status == Status::Live && seen.host == os_number {
        let host = Instance::new(id, seen.generation);
        bury_gone_processes(tables, os, host);
        // If none is left the host died with the last of them, and this is its next incarnation.
        if !end_host_if_empty(tables, os, os_number, host, Some(None)) {
            return Ok(host);
        }
    } else if seen.status.may_write() && seen.host != os_number {
        let earlier = tables.operating_systems();
        if !earlier.is_earlier_boot(seen.host, os.identity()) {
            return Err(in_use("a host on another operating system".into()));
        }
        if beats_within(tables, os, id, suspicion) {
            return Err(in_use(format!(
                "a host of another boot of this machine that is beating: do two machines have the \
                 machine id {:032x}?",
                os.identity().machine
            )));
        }
        raise(tables, id, seen, None);
    } else if seen.status == Status::Fencing {
        let instance = Instance::new(id, seen.generation);
        let what = "host";
        return Err(JoinError::Gone { what, instance });
    }
    seen = generations.state(id).unwrap_or(seen);
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
        name,
    };
    // The door is the obituary of the host's id, and we hold it.
    join_watched(tables, os, os_number, id, &claim)
}

/// Raises those live processes of `host`, of this operating system, that are gone.
fn bury_gone_processes<M: Memory>(tables: Tables<M>, os: &dyn Os, host: Instance) {
    for (id, seen) in members_of(tables, host.id) {
        let gone = seen.level == Some(Level::Process)
            && tables
                .records()
                .read(Instance::new(id, seen.generation))
                .is_some_and(|record| {
                    os.open_process(record.thread.process)
                        .is_ok_and(|handle| handle.is_none_or(|handle| handle.is_gone()))
                });
        if gone {
            bury_process(tables, os, id, seen, None);
        }
    }
}

/// Lets some of the operating system's time pass.
fn pause(os: &dyn Os, time: Duration) {
    const NOBODYS_BELL: u64 = u64::MAX;
    let seen = os.bells().read(NOBODYS_BELL);
    os.bells().wait(NOBODYS_BELL, seen, time);
}

/// Whether the heart of `id` beats within the time after which a silent host is suspected, doubled.
fn beats_within<M: Memory>(
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

/// Ends `host` if no process of it is left: called in its door, on its operating system. `as_died` if
/// somebody of it died, and who has seen that, if it is a member.
///
/// The host is named by its incarnation and must be of this operating system: the id may have gone to
/// another one, where this door is not the door.
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
    // The word before the scan, and the compare-and-swap from that very word.
    let ours = seen.generation == host.generation
        && seen.level == Some(Level::Host)
        && seen.host == os_number
        && matches!(seen.status, Status::Live | Status::Fencing);
    let is_empty = || {
        !tables
            .writers()
            .any(|(_, of)| of.level == Some(Level::Process) && u32::from(of.host) == host.id)
    };
    if !ours || !is_empty() {
        return false;
    }
    if let Some(by) = as_died {
        let Some(dead) = raise(tables, host.id, seen, by) else {
            return false;
        };
        tell_because(tables, os.bells(), dead, seen.status == Status::Fencing);
    } else {
        leave_from(tables, os, host, seen);
    }
    true
}
