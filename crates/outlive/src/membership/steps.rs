//! Membership's steps over any memory, for the sweeps of `outlive-proofs`: a process has a native
//! pod.

use super::join::{self, Claim, JoinError};
use super::join_lock::{JoinLock, attach_host, end_dead_host, end_host_if_empty};
use super::unreported;
use super::watch::{Watch, watcher_of};
use super::{Instance, InstanceId, Level, Record, Settings, State, Tables, agents, death};
use crate::host::{Os, OsIdentity};
use core::time::Duration;
use outlive_memory::Memory;

/// Joins and leaves as a host, a process and a thread, all by the calling thread.
///
/// # Errors
/// Returns the errors of [`Process::join`](super::Process::join) and
/// [`Process::enter`](super::Process::enter).
pub fn come_and_go<M: Memory>(
    tables: Tables<M>,
    os: &dyn Os,
    identity: OsIdentity,
    host: InstanceId,
    process: InstanceId,
    thread: InstanceId,
) -> Result<(), JoinError> {
    let number = tables.operating_systems().number(identity)?;
    let patience = Duration::from_secs(5);
    let mut claim = Claim {
        level: Level::Process,
        host_word: host as u16,
        host: None,
        process: None,
        has_cord: false,
        name: "proof",
    };
    let (host, process) = {
        let _join_lock = JoinLock::enter(tables, os, number, host, patience)?;
        let host = attach_host(tables, os, number, host, "proof", patience, false)?;
        claim.host = Some(host);
        let (process, _presence) = join::join_process(tables, os, number, Some(process), &claim)?;
        (host, process)
    };
    claim.level = Level::Thread;
    claim.process = Some(process);
    let thread = join::join(tables, os, number, thread, &claim)?;
    let groups = tables.groups();
    for (who, level) in [
        (host, Level::Host),
        (process, Level::Process),
        (thread, Level::Thread),
    ] {
        groups.log(super::GroupId::POD).tell_joined(who, level);
    }
    join::leave(tables, os, thread);
    let _join_lock = JoinLock::enter(tables, os, number, host.id, patience)?;
    join::leave(tables, os, process);
    end_host_if_empty(tables, os, number, host, None);
    Ok(())
}

/// Joins `host`, on operating system `os_number`, under `id` as a member of `level`, with the
/// calling thread: all steps but the host join lock and the notification of the groups.
///
/// # Errors
/// Returns the errors of [`Process::join`](super::Process::join) and
/// [`Process::enter`](super::Process::enter).
pub fn join<M: Memory>(
    tables: Tables<M>,
    os: &dyn Os,
    os_number: u16,
    id: InstanceId,
    level: Level,
    host: Instance,
) -> Result<Instance, JoinError> {
    let claim = Claim {
        level,
        host_word: host.id as u16,
        host: Some(host),
        process: None,
        has_cord: false,
        name: "proof",
    };
    join::join(tables, os, os_number, id, &claim)
}

/// Takes the watch of `host` for `process` if no process serves. Returns whether `process` is on
/// watch.
pub fn stand_on_watch<M: Memory>(
    tables: Tables<M>,
    os: &dyn Os,
    host: Instance,
    process: Instance,
) -> bool {
    Watch::new(tables, host, process, &Settings::default()).stand(os)
}

/// Returns the process that is on watch for `host`, if it lives.
pub fn on_watch<M: Memory>(tables: Tables<M>, host: Instance) -> Option<Instance> {
    watcher_of(tables, host)
}

/// Publishes that `process`, the caller, calls a fence agent against `host`, which it fences in
/// state `seen`. Returns `false` if that fence is over, so that no agent may be called.
pub fn announce_agent<M: Memory>(
    tables: Tables<M>,
    process: InstanceId,
    host: InstanceId,
    seen: State,
) -> bool {
    agents::announce(tables, process, host, seen)
}

/// Finalises the deaths of the host `id`, which was fenced in state `seen`, and of its members.
///
/// # Safety
/// None of them can write to the pod's memory, and never will again (contract 1).
pub unsafe fn bury_host<M: Memory>(
    tables: Tables<M>,
    os: &dyn Os,
    id: InstanceId,
    seen: State,
    by: Instance,
) {
    death::bury_host(tables, os, id, seen, true, by);
}

/// Finalises the deaths of members whose hosts have ended, as a manager does in each round.
pub fn bury_orphans<M: Memory>(tables: Tables<M>, os: &dyn Os, by: Instance) {
    death::bury_orphans(tables, os.bells(), Some(by));
}

/// Finalises the deaths that no member is left to report, as a join on operating system `os_number`
/// does if it finds no free id.
pub fn finalise_deaths<M: Memory>(tables: Tables<M>, os: &dyn Os, os_number: u16) {
    unreported::finalise_deaths(tables, os, os_number);
}

/// Finalises the deaths of the absent processes of `host`, which is of an operating system on the
/// caller's kernel, and then that of `host` if it has no process.
pub fn finalise_empty_host<M: Memory>(
    tables: Tables<M>,
    os: &dyn Os,
    os_number: u16,
    host: Instance,
) {
    death::bury_absent_processes(tables, os, host.id, None);
    end_dead_host(tables, os, os_number, host, None);
}

/// Returns whether a process has published that an agent against `host` is at work. The caller has
/// read that `host` is not being fenced.
pub fn is_agent_at_work<M: Memory>(tables: Tables<M>, host: InstanceId) -> bool {
    agents::against(tables, host).next().is_some()
}

/// Notes that `by` has proven that `dead` is dead and has raised its generation.
pub fn note_proven<M: Memory>(tables: Tables<M>, dead: Instance, by: Instance) {
    tables.records().note_proven(dead, by);
}

/// Writes the record of an incarnation that is joining, as its joining thread.
pub fn write_record<M: Memory>(tables: Tables<M>, record: &Record) {
    tables.records().write(record);
}
