//! The recovery thread of a process: finishes the operations of dead members.
//!
//! It is the only thread that acts as the process's own instance, whose generation is raised only
//! when the whole process is gone. It sleeps until the sentinel sees a dead member that has not
//! been recovered. Threads that find a dead owner's lock do not wait: they recover the owner.

use super::shared::Shared;
use super::{Instance, InstanceId, Level, Member, State, Status, Tables};
use crate::host::Os;
use core::time::Duration;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;

/// The longest time that it sleeps without a wake-up.
const ROUND: Duration = Duration::from_secs(1);

/// Returns the wake-up futex of the recovery thread of process `id`.
pub(crate) const fn bell_of(id: InstanceId) -> u64 {
    2 << 32 | id as u64
}

/// Begins the process's obligations, sends the result as `answer`, and recovers dead members until
/// the process leaves. Returns whether the process could settle its own obligations.
pub(crate) fn run(
    shared: &Shared,
    os: &dyn Os,
    process: Instance,
    answer: &SyncSender<Result<(), String>>,
) -> bool {
    let tables = shared.tables;
    // SAFETY: no other thread acts as the process's instance, and it is raised only when the
    // process is gone, or by this process after this function has returned.
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

/// Marks dead hosts as recovered. A host holds nothing itself: there is nothing to recover.
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
