//! The door of a host: how it comes to life and ends.
//!
//! The obituary of a *host's* id is a lock that its processes hold while they come and go: under it the
//! first process brings the host to life and the last one lets it leave, so that a host never ends while
//! somebody is on the way in. A process that dies in the door has its obituary marked, and the next one
//! walks through. A fencing manager does not need the door: it closes the host's word, and whoever is in
//! the door sees that (the handshake in `join.rs`).

use super::death::{raise, tell};
use super::join::{Claim, JoinError, hold, join_watched, mark_left};
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
                    if os.now() >= until {
                        return Err(error);
                    }
                    std::thread::sleep(Duration::from_micros(200));
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
) -> Result<Instance, JoinError> {
    let generations = tables.generations();
    let in_use = |by: String| JoinError::InUse { id, by };
    let state = generations
        .state(id)
        .map_err(|word| in_use(format!("a corrupt state ({word:#x})")))?;
    let instance = Instance::new(id, state.generation);
    if state.status.may_write() && state.level != Some(Level::Host) {
        return Err(in_use(format!("a {state}")));
    }
    match state.status {
        Status::Live if state.host == os_number => return Ok(instance),
        Status::Live | Status::Joining | Status::Fencing
            if tables
                .operating_systems()
                .is_earlier_boot(state.host, os.identity()) =>
        {
            // Everything of an earlier boot of this machine is dead.
            raise(tables, id, state);
            return attach_host(tables, os, os_number, id, name);
        }
        Status::Fencing => {
            return Err(JoinError::Gone {
                what: "host",
                instance,
            });
        }
        Status::Live => return Err(in_use("a host on another operating system".into())),
        _ => {}
    }
    if state.status == Status::Dead {
        // A host holds nothing itself: there is nothing to recover.
        let recovered = State {
            status: Status::Recovered,
            ..state
        };
        generations.transition(id, state, recovered);
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

/// Ends the host `id` if no process of it is left: called in its door. `as_died` if somebody of it died.
pub(crate) fn end_host_if_empty<M: Memory>(
    tables: Tables<M>,
    os: &dyn Os,
    id: InstanceId,
    as_died: bool,
) -> bool {
    let Ok(state) = tables.generations().state(id) else {
        return false;
    };
    if state.level != Some(Level::Host)
        || !matches!(state.status, Status::Live | Status::Fencing)
        || tables
            .writers()
            .any(|(_, of)| of.level == Some(Level::Process) && u32::from(of.host) == id)
    {
        return false;
    }
    if as_died {
        let Some(dead) = raise(tables, id, state) else {
            return false;
        };
        tell(tables, os.bells(), dead);
    } else {
        mark_left(tables, os, Instance::new(id, state.generation));
    }
    true
}
