//! The sentinel: the thread by which a process takes part in its pod. No daemon is needed.
//!
//! It joins for its process (and brings its host to life in the door), so it is the thread whose obituary
//! stands for the process. Then, on every heartbeat and whenever an obituary or its bell wakes it, it
//! beats its host's heart, looks for the dead of its operating system, tells what has not been told,
//! stands for fabric manager, has the dead recovered, and rings the bells for what other operating
//! systems have told.

use super::death::reconcile;
use super::detector::Detector;
use super::door::{Door, attach_host, end_host_if_empty};
use super::join::{self, Claim, JoinError};
use super::manager::Manager;
use super::process::Shared;
use super::{Instance, InstanceId, Level, State, Status};
use crate::host::Os;
use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How long a process waits in the door of its host for others who come and go.
const DOOR_PATIENCE: Duration = Duration::from_secs(10);
/// How often `/proc` is asked for threads whose obituaries are missing.
const THOROUGH: Duration = Duration::from_secs(1);
/// How soon a process whose sentinel is dead is looked at again.
const DYING: Duration = Duration::from_micros(500);

/// The bell of the sentinel of process `id`.
pub(crate) const fn bell_of(id: InstanceId) -> u64 {
    1 << 32 | id as u64
}

/// What a process asked for when it joined.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub host: InstanceId,
    pub host_name: String,
    pub id: Option<InstanceId>,
    pub name: String,
}

/// Joins the host and the process with the calling thread.
pub(crate) fn enter(
    shared: &Shared,
    os: &dyn Os,
    entry: &Entry,
) -> Result<(Instance, Instance), JoinError> {
    let (tables, number) = (shared.tables, shared.os_number);
    let _door = Door::enter(tables, os, number, entry.host, DOOR_PATIENCE)?;
    let host = attach_host(tables, os, number, entry.host, &entry.host_name)?;
    let claim = Claim {
        level: Level::Process,
        host_word: entry.host as u16,
        host: Some(host),
        process: None,
        name: &entry.name,
    };
    let joined = match entry.id {
        Some(id) => {
            shared.recover(id);
            join::join(tables, os, number, id, &claim)
        }
        None => join::join_any(tables, os, number, &claim),
    };
    match joined {
        Ok(process) => {
            for (instance, level) in [(host, Level::Host), (process, Level::Process)] {
                shared.announce(os, instance, level);
            }
            Ok((host, process))
        }
        Err(error) => {
            end_host_if_empty(tables, os, entry.host, false);
            Err(error)
        }
    }
}

/// Leaves for the process, and for its host if it was the last.
pub(crate) fn exit(shared: &Shared, os: &dyn Os, host: Instance, process: Instance) {
    shared.tables.role().resign(process);
    join::leave(shared.tables, os, process);
    match Door::enter(shared.tables, os, shared.os_number, host.id, DOOR_PATIENCE) {
        Ok(_door) => {
            end_host_if_empty(shared.tables, os, host.id, false);
        }
        Err(error) => tracing::warn!(%host, %error, "left without closing the host's door"),
    }
}

/// Runs until the process leaves.
pub(crate) fn run(shared: &Arc<Shared>, os: &dyn Os, host: Instance, process: Instance) {
    let tables = shared.tables;
    let mut detector = Detector::new(tables, shared.os_number);
    let mut manager = Manager::new(
        tables,
        process,
        shared.os_number,
        shared.settings.clone(),
        shared.fence_agent.clone(),
    );
    let bell = bell_of(process.id);
    let mut tails = vec![0; tables.extent().groups as usize];
    let mut next_beat = Duration::ZERO;
    let mut next_thorough = Duration::ZERO;
    let mut turn = 0;
    while !shared.stop.load(Ordering::Acquire) {
        let seen = os.bells().read(bell);
        let now = os.now();
        detector.look(os);
        let somebody_died = !detector.sighting.dead.is_empty();
        let dying = !detector.sighting.dying.is_empty();
        let beat = now >= next_beat;
        if beat {
            tables.records().beat(host.id);
            tables.records().beat(process.id);
            next_beat = now + shared.settings.heartbeat;
        }
        if beat || dying || somebody_died {
            let thorough = now >= next_thorough;
            if thorough {
                next_thorough = now + THOROUGH;
            }
            detector.look_at_processes(os, thorough);
            reconcile(tables, os.bells());
            shared.recover_everyone();
            ring_for_others(shared, os, &mut tails);
        }
        if now >= manager.next_tick() {
            manager.tick(os, &mut detector);
        }
        let mut until = next_beat.min(manager.next_tick().max(now));
        if dying {
            until = until.min(now + DYING);
        }
        let timeout = until.saturating_sub(os.now());
        let held = in_turn(&detector.sighting.held, os.most_watched(), &mut turn);
        os.wait_for_news(held, bell, seen, timeout);
    }
}

/// At most `most` of `held`, another part on each call.
pub(crate) fn in_turn<'a>(
    held: &'a [(u32, u32)],
    most: usize,
    turn: &mut usize,
) -> &'a [(u32, u32)] {
    if held.len() <= most {
        return held;
    }
    let part = *turn % held.len().div_ceil(most);
    *turn += 1;
    &held[part * most..held.len().min((part + 1) * most)]
}

/// Members of this operating system sleep on its bells; what others told reaches them through us.
fn ring_for_others(shared: &Shared, os: &dyn Os, tails: &mut [u64]) {
    let groups = shared.tables.groups();
    for group in groups.all() {
        let tail = groups.log(group).tail();
        let known = &mut tails[group.number() as usize];
        if *known != tail {
            *known = tail;
            os.bells().ring(u64::from(group.number()));
        }
    }
}

/// Ids whose last incarnation died and has not been recovered.
pub(crate) fn unrecovered(tables: super::Tables) -> impl Iterator<Item = (InstanceId, State)> {
    let generations = tables.generations();
    (0..tables.extent().ids).filter_map(move |id| {
        let state = generations.state(id).ok()?;
        (state.status == Status::Dead).then_some((id, state))
    })
}
