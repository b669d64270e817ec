//! The steps after a death is proven: the generation is raised, then the groups are notified.
//!
//! Raising is one compare-and-swap from the state in which the incarnation was *seen before it was
//! proven dead* to the dead state of the next generation. An id's word never returns to an earlier
//! value. So if the compare-and-swap succeeds, the raised incarnation is the one that was proven
//! dead, however long the prover slept in between. Of several provers, one raises.

use super::{Instance, InstanceId, Level, State, Status, Tables};
use crate::host::{Bells, Os};
use outlive_memory::Memory;

outlive_memory::crash_points! {
    /// The points at which a crash may interrupt the finalisation of a death.
    pub enum BuryPoint for "instance.bury" {
        /// Its death is proven.
        Proven,
        /// Its generation is raised; no group has been notified.
        Raised,
        /// Every group has been notified.
        Told,
    }
}

/// Raises the generation of `id`, which was in `seen` before its death was proven. Returns the dead
/// instance if this call raised it. Wait-free.
///
/// The caller has proof that the incarnation can no longer write: this is the one place where
/// contract 1 is kept or broken. `by`, the member that has the proof, is noted, if the caller is
/// one.
pub(crate) fn raise<M: Memory>(
    tables: Tables<M>,
    id: InstanceId,
    seen: State,
    by: Option<Instance>,
) -> Option<Instance> {
    debug_assert!(seen.status.may_write(), "{seen} cannot die");
    let memory = tables.memory();
    memory.crash_point(BuryPoint::Proven);
    let dead = State {
        // Joining keeps the last generation free, so only a corrupt word saturates.
        generation: seen.generation.saturating_add(1),
        status: Status::Dead,
        ..seen
    };
    let raised = tables.generations().transition(id, seen, dead);
    memory.crash_point(BuryPoint::Raised);
    let dead = raised.then_some(Instance::new(id, seen.generation))?;
    if let Some(by) = by {
        tables.records().note_proven(dead, by);
    }
    Some(dead)
}

/// Finalises the death of `id`, which was in `seen` before its death was proven: raises its
/// generation and notifies the groups. For programs with their own detector. Returns the dead
/// instance if this call raised it. If the caller dies in between, another member notifies the
/// groups within a second.
///
/// # Safety
/// The incarnation that `seen` describes can no longer write to the pod's memory, and never will
/// again (contract 1): other members rely on this when they take over its locks and memory.
pub unsafe fn bury<M: Memory>(
    tables: Tables<M>,
    bells: &dyn Bells,
    id: InstanceId,
    seen: State,
) -> Option<Instance> {
    note_fence(tables, id, seen);
    let dead = raise(tables, id, seen, None)?;
    tell(tables, bells, dead);
    Some(dead)
}

/// Notes that the host `id` was fenced, if `seen` is a fence. Called before the host is raised.
pub(crate) fn note_fence<M: Memory>(tables: Tables<M>, id: InstanceId, seen: State) {
    if seen.status == Status::Fencing {
        let host = Instance::new(id, seen.generation);
        tables.records().note_fenced(host);
    }
}

/// Notifies the groups of `dead` of its death, and wakes their waiters. Lock-free.
pub(crate) fn tell<M: Memory>(tables: Tables<M>, bells: &dyn Bells, dead: Instance) {
    let groups = tables.groups();
    let fenced = tables.records().was_fenced(dead);
    for group in groups.all() {
        if groups.log(group).tell_died_because(dead, fenced).is_some() {
            bells.ring(u64::from(group.number()));
        }
    }
    tables.memory().crash_point(BuryPoint::Told);
}

/// Returns the processes of `host` that may write, then its threads, each with its word. While the
/// host is being fenced or joined, it gets no further members.
pub(crate) fn members_of<M: Memory>(
    tables: Tables<M>,
    host: InstanceId,
) -> Vec<(InstanceId, State)> {
    let mut members: Vec<_> = tables
        .writers()
        .filter(|(_, state)| state.level > Some(Level::Host) && u32::from(state.host) == host)
        .collect();
    members.sort_by_key(|(_, state)| state.level);
    members
}

/// Finalises the deaths of `members` in order, if they are still in the states that were seen.
pub(crate) fn bury_members<M: Memory>(
    tables: Tables<M>,
    bells: &dyn Bells,
    members: &[(InstanceId, State)],
    by: Option<Instance>,
) {
    for (id, seen) in members {
        if let Some(dead) = raise(tables, *id, *seen, by) {
            tell(tables, bells, dead);
        }
    }
}

/// Finalises the death of a process, which was in `seen` before its death was proven, and of its
/// threads, none of which can write. Returns whether this call raised the process.
pub(crate) fn bury_process<M: Memory>(
    tables: Tables<M>,
    bells: &dyn Bells,
    id: InstanceId,
    seen: State,
    by: Option<Instance>,
) -> bool {
    let process = Instance::new(id, seen.generation);
    // Listed before the process is raised. No thread joins after that: the process is gone.
    let members: Vec<_> = tables
        .writers()
        .filter(|(thread, of)| {
            let record = tables.records().read(Instance::new(*thread, of.generation));
            of.level == Some(Level::Thread)
                && record.is_some_and(|record| record.process == Some(process))
        })
        .collect();
    let raised = raise(tables, id, seen, by);
    if let Some(dead) = raised {
        tell(tables, bells, dead);
    }
    bury_members(tables, bells, &members, by);
    raised.is_some()
}

/// Finalises the deaths of the processes of the host `host` whose presence is free. The caller
/// knows that a free presence is proof for the host's operating system
/// ([`absence_is_proof`](super::OperatingSystems::absence_is_proof)).
pub(crate) fn bury_absent_processes<M: Memory>(
    tables: Tables<M>,
    os: &dyn Os,
    host: InstanceId,
    by: Option<Instance>,
) {
    // Each word is read before its byte: see `raise`.
    for (id, seen) in members_of(tables, host) {
        if seen.level == Some(Level::Process) && !os.is_present(id) {
            bury_process(tables, os.bells(), id, seen, by);
        }
    }
}

/// Finalises the deaths of a host that is off (because it was `fenced` or is of an earlier boot),
/// then of its processes, then of its threads.
///
/// # Crash
/// After the raise, [`bury_orphans`] finalises the deaths of the members that are left.
pub(crate) fn bury_host<M: Memory>(
    tables: Tables<M>,
    os: &dyn Os,
    id: InstanceId,
    seen: State,
    fenced: bool,
    by: Instance,
) {
    // Listed before the raise, after which the host could be joined and have other members.
    let members = members_of(tables, id);
    if fenced {
        note_fence(tables, id, seen);
    }
    if let Some(dead) = raise(tables, id, seen, Some(by)) {
        os.remove_cord(dead.id, dead.generation);
        tell(tables, os.bells(), dead);
        bury_members(tables, os.bells(), &members, Some(by));
    }
}

/// Finalises the deaths of members whose host's generation was raised by a process that died before
/// it reached them.
///
/// No member joins a host that is not live, and a host ends only after none of its members can
/// write. So if a member's word is read and its host has ended *then*, it is dead. The id of a host
/// that has ended may already be that of a process or thread, and the member has no other evidence.
/// (A member that is still joining finds that its host has ended, and writes nothing else.)
pub(crate) fn bury_orphans<M: Memory>(tables: Tables<M>, bells: &dyn Bells, by: Option<Instance>) {
    for (id, seen) in tables.writers() {
        if seen.level > Some(Level::Host)
            && let Ok(host) = tables.generations().state(seen.host.into())
            && (host.level != Some(Level::Host) || !host.status.may_write())
        {
            bury_members(tables, bells, &[(id, seen)], by);
        }
    }
}

/// Notifies the groups of deaths and departures that only the table of generations shows, because a
/// process died between the raise and the notification, or between leaving and reporting it. Hosts
/// first, then processes, then threads. Lock-free; scans the members of every group.
pub fn reconcile<M: Memory>(tables: Tables<M>, bells: &dyn Bells) {
    let (groups, generations) = (tables.groups(), tables.generations());
    for group in groups.all() {
        let log = groups.log(group);
        let mut told = log.finish_pending();
        let mut news: Vec<_> = (0..tables.extent().ids)
            .filter_map(|id| {
                let member = log.member(id);
                let instance = member.instance.filter(|_| member.standing.is_in())?;
                let now = generations.state(id).ok()?;
                let died = instance.generation < now.generation;
                let left = instance.generation == now.generation && now.status == Status::Left;
                (died || left).then_some((member.level, instance, died))
            })
            .collect();
        news.sort_by_key(|(level, ..)| *level);
        for (_, instance, died) in news {
            told |= if died {
                let fenced = tables.records().was_fenced(instance);
                log.tell_died_because(instance, fenced).is_some()
            } else {
                log.tell_left(instance).is_some()
            };
        }
        if told {
            bells.ring(u64::from(group.number()));
        }
    }
}

/// Notifies the groups how the last incarnation of `id` ended; `now` is the state of the id. Called
/// before the id is claimed again, since an advanced generation would look like a death afterwards.
pub(crate) fn settle<M: Memory>(tables: Tables<M>, id: InstanceId, now: State) {
    let groups = tables.groups();
    for group in groups.all() {
        let log = groups.log(group);
        let member = log.member(id);
        let Some(instance) = member.instance.filter(|_| member.standing.is_in()) else {
            continue;
        };
        // Less, not unequal: the id may have been claimed since `now` was read, and the member may
        // be of a later incarnation.
        if instance.generation < now.generation {
            log.tell_died_because(instance, tables.records().was_fenced(instance));
        } else if now.status == Status::Left {
            log.tell_left(instance);
        }
    }
}
