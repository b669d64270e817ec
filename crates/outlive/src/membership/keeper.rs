//! The keeper: the thread by which a process finishes what the dead have begun.
//!
//! It acts as the process's own instance, whose generation is raised only when the whole process is gone,
//! and it is the only thread that does. It sleeps until the sentinel sees somebody dead and unrecovered.
//! Threads that come upon a dead owner's lock do not wait for it: they recover for themselves.

use super::shared::Shared;
use super::{Instance, InstanceId, Level, Member, State, Status, Tables};
use crate::host::Os;
use core::time::Duration;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;

/// How long it sleeps if nobody wakes it.
const ROUND: Duration = Duration::from_secs(1);

/// The bell of the keeper of process `id`.
pub(crate) const fn bell_of(id: InstanceId) -> u64 {
    2 << 32 | id as u64
}

/// Begins the process's obligations, answers how that went, and recovers until the process leaves.
/// Returns whether the process could settle its own.
pub(crate) fn run(
    shared: &Shared,
    os: &dyn Os,
    process: Instance,
    answer: &SyncSender<Result<(), String>>,
) -> bool {
    let tables = shared.tables;
    // SAFETY: no other thread acts as the process's instance, and it is raised only when the process is
    // gone, or by this process after this function has returned.
    let member = unsafe {
        Member::assume(
            tables.memory(),
            tables.generations(),
            process,
            tables.log_at(process.id),
            Some(os.bells()),
        )
    };
    let begun = shared.obligations.begin(&member);
    let failed = begun.is_err();
    let _ = answer.send(begun);
    if failed {
        return false;
    }
    let bell = bell_of(process.id);
    while !shared.stop.load(Ordering::Acquire) {
        let seen = os.bells().read(bell);
        release_hosts(tables);
        shared.obligations.recover(&member);
        os.bells().wait(bell, seen, ROUND);
    }
    shared.obligations.end(&member)
}

/// Hosts hold nothing themselves: there is nothing to recover.
fn release_hosts(tables: Tables) {
    let generations = tables.generations();
    for id in 0..tables.extent().ids {
        if let Ok(state) = generations.state(id)
            && state.status == Status::Dead
            && state.level == Some(Level::Host)
        {
            let recovered = State {
                status: Status::Recovered,
                ..state
            };
            generations.transition(id, state, recovered);
        }
    }
}
