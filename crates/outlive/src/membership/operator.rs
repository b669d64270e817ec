//! The operator's word that a host is off, where no evidence is available.
//!
//! Without evidence (memory that several kernels share, a machine that is permanently off, no fence
//! command), the host's generation may be raised on the word of an operator. Available evidence is
//! still checked, and overrides the operator: a host lives if a process of it has its presence
//! claimed on this kernel, or if its heartbeat advances.

use super::death::{bury_members, members_of, note_fence, raise, tell};
use super::{Instance, InstanceId, Level, State, Status, Tables};
use crate::host::Bells;
use core::time::Duration;
use outlive_memory::{Memory, Ordering};
use std::thread::sleep;
use std::time::Instant;

/// The interval between two checks of the heartbeat.
const LOOK: Duration = Duration::from_millis(1);

/// The reason why a host is not declared dead, although an operator asserts that it is off.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotBuried {
    /// No host has the id.
    #[error("id {host} is not a host that is up: {state}")]
    NoHost {
        /// The id.
        host: InstanceId,
        /// The state of the id.
        state: String,
    },
    /// A process of it is on this machine.
    #[error(
        "host {host} is alive: its process {process} (pid {pid} in its own PID namespace) is on \
         this machine; end that process instead"
    )]
    Present {
        /// The host.
        host: Instance,
        /// The process.
        process: Instance,
        /// Its pid, as the process sees it; 0 if that is not known.
        pid: u32,
    },
    /// Its heartbeat advances.
    #[error("host {0} is alive: its heartbeat continues; end its processes instead")]
    Beats(Instance),
    /// Its state changed concurrently.
    #[error("host {0} is being declared dead or joined concurrently; try again")]
    Changed(Instance),
}

/// Finalises the death of the host `id`, and of its processes and threads, because an operator
/// asserts that it is off. `is_present` returns whether a process of this kernel holds the presence
/// lock of an id. Takes twice the suspicion time. Returns the dead host.
///
/// A caller that dies in the middle leaves the host as it was, being fenced, or dead; then the call
/// can be repeated.
pub(crate) fn bury_by_word(
    tables: Tables,
    bells: &dyn Bells,
    id: InstanceId,
    suspicion: Duration,
    is_present: impl Fn(InstanceId) -> bool,
) -> Result<Instance, NotBuried> {
    let generations = tables.generations();
    let seen = generations.state(id).unwrap_or(State::FREE);
    if seen.level != Some(Level::Host) || !seen.status.may_write() {
        let state = seen.to_string();
        return Err(NotBuried::NoHost { host: id, state });
    }
    let host = Instance::new(id, seen.generation);
    refuse_the_present(tables, host, &is_present)?;
    if one_that_beats(tables, &[id], suspicion).is_some() {
        return Err(NotBuried::Beats(host));
    }
    // Closes the host, as a manager does: no process joins it from now on (the handshake in
    // `join.rs`).
    let fencing = State {
        status: Status::Fencing,
        ..seen
    };
    if seen != fencing && !generations.transition(id, seen, fencing) {
        return Err(NotBuried::Changed(host));
    }
    tables.memory().fence(Ordering::SeqCst);
    refuse_the_present(tables, host, &is_present)?;
    let members = members_of(tables, id);
    note_fence(tables, id, fencing);
    let dead = raise(tables, id, fencing, None).ok_or(NotBuried::Changed(host))?;
    tell(tables, bells, dead);
    bury_members(tables, bells, &members, None);
    Ok(dead)
}

/// Returns one of `hosts` whose heartbeat advances within twice the suspicion time, if there is
/// one.
pub(crate) fn one_that_beats(
    tables: Tables,
    hosts: &[InstanceId],
    suspicion: Duration,
) -> Option<InstanceId> {
    let beats = |host: &InstanceId| tables.records().beats(*host);
    let first: Vec<u64> = hosts.iter().map(beats).collect();
    let until = Instant::now() + suspicion * 2;
    while !hosts.is_empty() && Instant::now() < until {
        let mut both = hosts.iter().zip(&first);
        if let Some((host, _)) = both.find(|(host, first)| beats(host) != **first) {
            return Some(*host);
        }
        sleep(LOOK);
    }
    None
}

fn refuse_the_present(
    tables: Tables,
    host: Instance,
    is_present: impl Fn(InstanceId) -> bool,
) -> Result<(), NotBuried> {
    // As in `fence.rs`.
    if is_present(host.id) && tables.records().read(host).is_none() {
        return Err(NotBuried::Changed(host));
    }
    for (id, state) in members_of(tables, host.id) {
        if state.level == Some(Level::Process) && is_present(id) {
            let process = Instance::new(id, state.generation);
            let record = tables.records().read(process);
            return Err(NotBuried::Present {
                host,
                process,
                pid: record.map_or(0, |record| record.thread.process.pid),
            });
        }
    }
    Ok(())
}
