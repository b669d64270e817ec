//! A death, once it is proven: the generation is raised, then the groups are told.
//!
//! Raising is one compare-and-swap from the state in which the incarnation was *seen before it was proven
//! dead* to the dead state of the next generation. An id's word never comes back to an earlier value, so
//! if the compare-and-swap succeeds then the incarnation that was proven dead is the one that is raised,
//! however long the prover slept in between; and of several provers one raises.

use super::{Groups, Instance, InstanceId, Level, State, Status, Tables};
use crate::host::{Bells, Os};
use outlive_memory::Memory;

outlive_memory::crash_points! {
    /// Where the burial of an instance may be cut short.
    pub enum BuryPoint for "instance.bury" {
        /// Its death is proven.
        Proven,
        /// Its generation is raised; nobody has been told.
        Raised,
        /// Every group has been told.
        Told,
    }
}

/// Raises the generation of `id`, which was in `seen` before its death was proven. Returns the dead
/// instance if this call raised it. Wait-free.
///
/// The caller has proof that the incarnation can no longer write: this is the one place where contract 1
/// is kept or broken.
/// `by` is the member that has the proof, if the caller is one; it is noted.
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

/// Buries `id`, which was in `seen` before its death was proven: raises its generation and tells the
/// groups. For those who bring a detector of their own. Returns the dead instance if this call raised it;
/// who dies in the middle leaves the telling to any member, within a second.
///
/// # Safety
/// The incarnation that `seen` describes can no longer write to the pod's memory, and never will again
/// (contract 1): on the strength of this call others take what it held.
pub unsafe fn bury<M: Memory>(
    tables: Tables<M>,
    bells: &dyn Bells,
    id: InstanceId,
    seen: State,
) -> Option<Instance> {
    let dead = raise(tables, id, seen, None)?;
    tell_because(tables, bells, dead, seen.status == Status::Fencing);
    Some(dead)
}

/// Tells every group that `dead` died, and rings the bell of each that it was a member of. Lock-free.
pub(crate) fn tell<M: Memory>(tables: Tables<M>, bells: &dyn Bells, dead: Instance) {
    tell_because(tables, bells, dead, false);
}

/// [`tell`], of a host that was `fenced`.
pub(crate) fn tell_because<M: Memory>(
    tables: Tables<M>,
    bells: &dyn Bells,
    dead: Instance,
    fenced: bool,
) {
    let groups = tables.groups();
    for group in groups.all() {
        if groups.log(group).tell_died_because(dead, fenced).is_some() {
            bells.ring(u64::from(group.number()));
        }
    }
    tables.memory().crash_point(BuryPoint::Told);
}

/// The processes of `host` that may write, then its threads, each with its word. While the host is being
/// fenced or joined nobody else becomes one.
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

/// Raises and tells `members` in order, each if it is still in the state in which it was seen.
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

/// Raises and tells a process that is gone, which was seen in `seen` before that was proven; then every
/// thread of it, none of which can write.
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

/// Raises and reports the processes of the host `host` whose presence is free. The caller knows
/// that a free presence is proof for the host's operating system
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

/// Buries members whose host was buried by somebody who did not live to come to them.
///
/// Nobody joins a host that is not live, and a host's generation is raised only after none of its members
/// can write; so a member whose word was read, and whose host was dead *then*, is dead.
pub(crate) fn bury_orphans<M: Memory>(tables: Tables<M>, bells: &dyn Bells, by: Instance) {
    for (id, seen) in tables.writers() {
        if seen.level > Some(Level::Host)
            && let Ok(host) = tables.generations().state(seen.host.into())
            && host.level == Some(Level::Host)
            && matches!(host.status, Status::Dead | Status::Recovered)
        {
            bury_members(tables, bells, &[(id, seen)], Some(by));
        }
    }
}

/// Tells the groups what the table of generations knows and they do not: for those who died between
/// raising and telling, or between leaving and saying so. Hosts first, then processes, then threads.
/// Lock-free; costs a pass over the members of every group.
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
                log.tell_died(instance).is_some()
            } else {
                log.tell_left(instance).is_some()
            };
        }
        if told {
            bells.ring(u64::from(group.number()));
        }
    }
}

/// Tells the groups how the incarnation `gone` of an id ended, before the id is claimed again: afterwards
/// a generation that has moved on would look like a death.
pub(crate) fn settle<M: Memory>(groups: Groups<M>, id: InstanceId, now: State) {
    for group in groups.all() {
        let log = groups.log(group);
        let member = log.member(id);
        let Some(instance) = member.instance.filter(|_| member.standing.is_in()) else {
            continue;
        };
        // Less, not unequal: the id may have been claimed since `now` was read, and a later incarnation
        // be the member.
        if instance.generation < now.generation {
            log.tell_died(instance);
        } else if now.status == Status::Left {
            log.tell_left(instance);
        }
    }
}
