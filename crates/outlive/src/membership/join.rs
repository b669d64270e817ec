//! Joining and leaving of an incarnation.
//!
//! # Joining
//!
//! 0. A process claims the *presence* of the id: a byte of the pod's file that the kernel keeps
//!    locked until the process can no longer write. No other process of this kernel can claim it
//!    until then.
//! 1. The joining thread takes the *obituary* of the id, in the side file of its operating system.
//!    From now on its death is marked by the kernel, and no other thread of this operating system
//!    can claim the id.
//! 2. It *claims* the id in the segment: one compare-and-swap to [`Status::Joining`] of the next
//!    generation.
//! 3. It makes sure that its host (and process) may still be joined. This is one half of a
//!    handshake with the process that fences the host: the joiner sets its own word and then reads
//!    the host's; the fencing process sets the host's word and then reads all others. Each executes
//!    a full fence in between, so at least one sees the other: no member joins unseen by a fence.
//! 4. It writes its record and 5. changes its status to [`Status::Live`].
//!
//! So an id is never claimed without an obituary, and the kernel's mark is sufficient evidence: on
//! the operating system of its host, **an id that is Joining, or a thread that is Live, is dead if
//! no living thread holds its obituary**. A member that sees this (it reads the word first, then
//! the obituary) may raise the generation. Nothing else has to be undone, since an incarnation
//! holds nothing until it is Live.
//!
//! # Leaving
//!
//! The word goes to [`Status::Left`], the groups are notified, and the obituary and then the
//! presence are released: in that order, so that every member is watched if the leaving thread dies
//! in between. Other members finish an interrupted notification.

use super::death::{bury_members, bury_process, members_of, raise, settle, tell};
use super::record::Record;
use super::unreported::finalise_deaths;
use super::{Instance, InstanceId, Level, State, Status, Tables};
use crate::host::{Obituary, Os, OsError, Presence};
use outlive_memory::{Memory, Ordering};

outlive_memory::crash_points! {
    /// The points at which a crash may interrupt a join.
    pub enum JoinPoint for "instance.join" {
        /// The obituary is held.
        Watched,
        /// The id is claimed; the record is not written.
        Claimed,
        /// The record is written.
        Recorded,
        /// The instance is a member; the groups have not been notified.
        Live,
    }
}

outlive_memory::crash_points! {
    /// The points at which a crash may interrupt a leave.
    pub enum LeavePoint for "instance.leave" {
        /// The instance is no longer a member; the groups have not been notified.
        Left,
        /// The groups have been notified; the obituary is still held.
        Told,
    }
}

/// The reason why an id could not be joined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// A live member has the id.
    #[error(
        "id {id} is in use by {by}; wait until that ends, or join under another id (hosts, processes and threads share one space of ids)"
    )]
    InUse {
        /// The id.
        id: InstanceId,
        /// A description of that member.
        by: String,
    },
    /// The last incarnation died and has not been recovered yet.
    #[error(
        "the last incarnation of id {id} died and has not been recovered yet; try again soon, or, if no member is left to recover it, run `outlive pod repair PATH`"
    )]
    NotRecovered {
        /// The id.
        id: InstanceId,
        /// The reason.
        why: String,
    },
    /// The id does not exist.
    #[error("id {id} does not exist: hosts, processes and threads share the ids 0 to {last} of this pod; join under one of those, or create a pod with more ids", last = ids.saturating_sub(1))]
    NoSuchId {
        /// The id.
        id: InstanceId,
        /// The number of ids of the pod.
        ids: u32,
    },
    /// No id is free.
    #[error(
        "all {ids} ids of this pod are in use (hosts, processes and threads share them); create a pod with more ids, or, if its members are dead, free their ids with `outlive pod repair PATH`"
    )]
    Full {
        /// The number of ids of the pod.
        ids: u32,
    },
    /// The generations of the id are exhausted.
    #[error("id {id} has used all its generations and is retired; join under another id")]
    Retired {
        /// The id.
        id: InstanceId,
    },
    /// The host or the process that was to be joined has died, left, or is being fenced.
    #[error(
        "{what} {instance} has ended or is being fenced; join it again under its next generation"
    )]
    Gone {
        /// `"host"` or `"process"`.
        what: &'static str,
        /// The host or process.
        instance: Instance,
    },
    /// No member could fence this process, so it must not write.
    #[error("the join is refused, because no member could fence this process: {why}")]
    Unfenceable {
        /// The reason, and the remedy.
        why: String,
    },
    /// The fence command is missing, or is not the pod's.
    #[error("the fence command is refused: {why}")]
    FenceCommand {
        /// The reason, and the remedy.
        why: &'static str,
    },
    /// The operating system refused a request.
    #[error(transparent)]
    Os(#[from] OsError),
    /// The pod has seen too many operating systems.
    #[error(transparent)]
    TooManyBoots(#[from] super::TooManyBoots),
}

/// The parameters of a join.
#[derive(Clone, Debug)]
pub(crate) struct Claim<'a> {
    pub level: Level,
    /// For a host, the number of its operating system; else the id of its host.
    pub host_word: u16,
    /// The host that must be alive.
    pub host: Option<Instance>,
    /// The process that must be alive, for a thread.
    pub process: Option<Instance>,
    /// Whether the process is tied to its host's cord.
    pub has_cord: bool,
    pub name: &'a str,
}

/// Joins under `id` with the calling thread, which then holds the id's obituary.
pub(crate) fn join<M: Memory>(
    tables: Tables<M>,
    os: &dyn Os,
    os_number: u16,
    id: InstanceId,
    claim: &Claim<'_>,
) -> Result<Instance, JoinError> {
    let ids = tables.extent().ids;
    if id >= ids {
        return Err(JoinError::NoSuchId { id, ids });
    }
    hold(tables, os, os_number, id)?;
    let result = join_watched(tables, os, os_number, id, claim);
    if result.is_err() {
        os.release_obituary(id);
    }
    result
}

/// Joins a process, under `id` or any free one, with the calling thread. The caller keeps the
/// returned presence until the process has left or ended.
///
/// The presence is claimed before the id. So at every instant at which the table says that an
/// incarnation of a process may write, its byte is locked or the process is dead.
pub(crate) fn join_process<M: Memory>(
    tables: Tables<M>,
    os: &dyn Os,
    os_number: u16,
    id: Option<InstanceId>,
    claim: &Claim<'_>,
) -> Result<(Instance, Presence), JoinError> {
    debug_assert_eq!(claim.level, Level::Process);
    let present = |id| {
        let ids = tables.extent().ids;
        if id >= ids {
            return Err(JoinError::NoSuchId { id, ids });
        }
        let presence = os.claim_presence(id)?.ok_or_else(|| JoinError::InUse {
            id,
            by: format!("a process of this machine{}", named(tables, id)),
        })?;
        Ok((join(tables, os, os_number, id, claim)?, presence))
    };
    match id {
        Some(id) => present(id),
        None => first_free(tables, os, os_number, present),
    }
}

/// Describes the current incarnation of `id` by its record, for a message.
fn named<M: Memory>(tables: Tables<M>, id: InstanceId) -> String {
    let state = tables.generations().state(id).ok();
    let record = state.and_then(|state| tables.records().read(Instance::new(id, state.generation)));
    record.map_or_else(String::new, |record| {
        format!(
            " (pid {} in its own PID namespace, {})",
            record.thread.process.pid, record.name
        )
    })
}

/// Joins under the first id that is free, with the calling thread.
pub(crate) fn join_any<M: Memory>(
    tables: Tables<M>,
    os: &dyn Os,
    os_number: u16,
    claim: &Claim<'_>,
) -> Result<Instance, JoinError> {
    first_free(tables, os, os_number, |id| {
        join(tables, os, os_number, id, claim)
    })
}

/// Returns the first success of `attempt` with an id that looks free. Tries the largest id first,
/// because explicit ids are mostly small. If there is none, finalises the deaths that no member has
/// reported, and tries once more.
///
/// # Errors
/// [`JoinError::NotRecovered`] if an id is free as soon as its last incarnation has been recovered;
/// [`JoinError::Full`] if there is none.
pub(super) fn first_free<M: Memory, T>(
    tables: Tables<M>,
    os: &dyn Os,
    os_number: u16,
    attempt: impl Fn(InstanceId) -> Result<T, JoinError>,
) -> Result<T, JoinError> {
    match first_that_looks_free(tables, &attempt) {
        Err(JoinError::Full { .. } | JoinError::NotRecovered { .. }) => {
            finalise_deaths(tables, os, os_number);
            first_that_looks_free(tables, &attempt)
        }
        found => found,
    }
}

fn first_that_looks_free<M: Memory, T>(
    tables: Tables<M>,
    attempt: &impl Fn(InstanceId) -> Result<T, JoinError>,
) -> Result<T, JoinError> {
    let (ids, generations) = (tables.extent().ids, tables.generations());
    // Ids that were never used come first, so that the history of the others stays readable. Those
    // of the dead come last: after the death of all members there may be no others, and no member
    // that recovers them. A new incarnation first recovers its predecessor.
    let free: [&[Status]; 3] = [
        &[Status::Free],
        &[Status::Left, Status::Recovered],
        &[Status::Dead],
    ];
    let mut not_recovered = None;
    for wanted in free {
        for id in (0..ids).rev() {
            if !generations
                .state(id)
                .is_ok_and(|state| wanted.contains(&state.status))
            {
                continue;
            }
            match attempt(id) {
                Err(JoinError::InUse { .. } | JoinError::Retired { .. }) => {}
                Err(error @ JoinError::NotRecovered { .. }) => {
                    not_recovered.get_or_insert(error);
                }
                other => return other,
            }
        }
    }
    Err(not_recovered.unwrap_or(JoinError::Full { ids }))
}

/// Takes the obituary of `id` for the calling thread. Finalises the death of a dead holder.
pub(crate) fn hold<M: Memory>(
    tables: Tables<M>,
    os: &dyn Os,
    os_number: u16,
    id: InstanceId,
) -> Result<(), JoinError> {
    loop {
        // The word is read before the obituary: see `death.rs`.
        let seen = tables.generations().state(id);
        let stood = match os.hold_obituary(id)? {
            Ok(()) => return Ok(()),
            Err(stood) => stood,
        };
        match stood {
            Obituary::Vacant => {}
            Obituary::Marked { .. } => {
                if let Ok(state) = seen {
                    bury_local(tables, os, os_number, id, state);
                }
                os.clear_obituary(id, stood);
            }
            // The kernel has not marked the holder: it is alive, or gone in one of the ways in
            // which an obituary can be missing. The next holder of its obituary finalises the death
            // of the incarnation that it had claimed.
            Obituary::Held { .. } if os.clear_if_gone(id) => {}
            Obituary::Held { tid } => {
                let record = seen
                    .ok()
                    .and_then(|state| tables.records().read(Instance::new(id, state.generation)));
                let by = match record {
                    Some(record) => format!(
                        "thread {tid} of process {} ({})",
                        record.thread.process.pid, record.name
                    ),
                    None => format!("thread {tid} of this operating system"),
                };
                return Err(JoinError::InUse { id, by });
            }
        }
    }
}

/// Finalises the death of `id`, seen in `state`, if a vacant or marked obituary proves it.
fn bury_local<M: Memory>(
    tables: Tables<M>,
    os: &dyn Os,
    os_number: u16,
    id: InstanceId,
    state: State,
) {
    if !state.status.may_write() || tables.os_of(state) != Some(os_number) {
        return;
    }
    let told_by_obituary = state.status == Status::Joining || state.level == Some(Level::Thread);
    if told_by_obituary
        && !matches!(os.obituary(id), Obituary::Held { .. })
        && let Some(dead) = raise(tables, id, state, None)
    {
        tell(tables, os.bells(), dead);
    }
}

/// Finalises the death of the incarnation of `id` that was seen in `state`, if that death can be
/// proved. The calling thread is about to join as `level` and holds the id's obituary, and also its
/// presence if it joins as a process.
fn bury_former<M: Memory>(
    tables: Tables<M>,
    os: &dyn Os,
    os_number: u16,
    id: InstanceId,
    state: State,
    level: Level,
) {
    let Some(its_os) = tables.os_of(state) else {
        return;
    };
    let by_obituary = state.status == Status::Joining || state.level == Some(Level::Thread);
    if its_os == os_number && by_obituary {
        // A live holder would have the obituary that the calling thread has.
        if let Some(dead) = raise(tables, id, state, None) {
            tell(tables, os.bells(), dead);
        }
    } else if state.level == Some(Level::Process)
        && tables
            .operating_systems()
            .absence_is_proof(os_number, its_os)
        && (level == Level::Process || !os.is_present(id))
    {
        // A live process would have locked the byte; but the caller has locked it, or it is free.
        bury_process(tables, os.bells(), id, state, None);
    }
}

pub(crate) fn join_watched<M: Memory>(
    tables: Tables<M>,
    os: &dyn Os,
    os_number: u16,
    id: InstanceId,
    claim: &Claim<'_>,
) -> Result<Instance, JoinError> {
    let (memory, generations) = (tables.memory(), tables.generations());
    memory.crash_point(JoinPoint::Watched);
    let in_use = |by: String| JoinError::InUse { id, by };
    let read = || {
        generations.state(id).map_err(|word| {
            in_use(format!(
                "an unknown member: its state is corrupt ({word:#x}; run `outlive pod check`)"
            ))
        })
    };
    let mut state = read()?;
    if state.status.may_write() {
        bury_former(tables, os, os_number, id, state, claim.level);
        state = read()?;
    }
    match state.status {
        Status::Free | Status::Left | Status::Recovered => {}
        // The next incarnation finishes the operations of a dead thread or process, unless a
        // survivor was quicker. A host has no log from which it could do that.
        Status::Dead if claim.level != Level::Host => {}
        Status::Dead => {
            let why =
                "a host cannot finish the operations of a thread or process; try again in a moment";
            let why = why.into();
            return Err(JoinError::NotRecovered { id, why });
        }
        Status::Retired => return Err(JoinError::Retired { id }),
        Status::Joining | Status::Live | Status::Fencing => {
            return Err(in_use(format!("a {state}")));
        }
    }
    settle(tables, id, state);
    // The last generation is reserved for the death of the one before it.
    let Some(generation) = state
        .generation
        .checked_add(1)
        .filter(|next| *next != u32::MAX)
    else {
        if state.status == Status::Dead {
            // The id is recovered first, since no member recovers a retired id.
            let why = "its last generation died and has not been recovered; try again in a moment";
            let why = why.into();
            return Err(JoinError::NotRecovered { id, why });
        }
        let retired = State {
            status: Status::Retired,
            ..state
        };
        generations.transition(id, state, retired);
        return Err(JoinError::Retired { id });
    };
    let joining = State {
        generation,
        host: claim.host_word,
        level: Some(claim.level),
        status: Status::Joining,
    };
    if !generations.transition(id, state, joining) {
        return Err(in_use("another operating system".into()));
    }
    memory.crash_point(JoinPoint::Claimed);
    // The full fence of the handshake with a process that fences this host; see the module's head.
    memory.fence(Ordering::SeqCst);
    for (what, needed) in [("host", claim.host), ("process", claim.process)] {
        if let Some(instance) = needed
            && !is_live(tables, instance)
        {
            if state.status == Status::Dead {
                // The operations of its predecessor are still to be recovered.
                raise(tables, id, joining, None);
            } else {
                let left = State {
                    status: Status::Left,
                    ..joining
                };
                generations.transition(id, joining, left);
            }
            return Err(JoinError::Gone { what, instance });
        }
    }
    if claim.level == Level::Host {
        // Finalises the deaths left over from the former incarnation. Before the claim, the members
        // could be those of another operating system's host of this id.
        bury_members(tables, os.bells(), &members_of(tables, id), None);
    }
    let instance = Instance::new(id, generation);
    tables.records().write(&Record {
        instance,
        thread: os.this_thread(),
        process: claim.process,
        uid: os.uid(),
        has_cord: claim.has_cord,
        name: claim.name.to_owned(),
    });
    memory.crash_point(JoinPoint::Recorded);
    let live = State {
        status: Status::Live,
        ..joining
    };
    if !generations.transition(id, joining, live) {
        // The host was fenced in the meantime, and this member was counted as dead with it.
        return Err(JoinError::Gone {
            what: claim.level.name(),
            instance,
        });
    }
    memory.crash_point(JoinPoint::Live);
    Ok(instance)
}

/// Returns whether `instance` is a member that others may join.
pub(crate) fn is_live<M: Memory>(tables: Tables<M>, instance: Instance) -> bool {
    tables
        .generations()
        .state(instance.id)
        .is_ok_and(|state| state.generation == instance.generation && state.status == Status::Live)
}

/// Leaves in good order. The caller acts for `instance` and holds nothing any more; its obituary is
/// released if the calling thread holds it.
pub(crate) fn leave<M: Memory>(tables: Tables<M>, os: &dyn Os, instance: Instance) {
    mark_left(tables, os, instance);
    tables.memory().crash_point(LeavePoint::Told);
    os.release_obituary(instance.id);
}

/// Ends an incarnation that still holds something, on its own behalf: it will not write any more,
/// so it counts as dead, and what it holds is recovered.
pub(crate) fn give_up<M: Memory>(tables: Tables<M>, os: &dyn Os, instance: Instance) {
    if let Ok(seen) = tables.generations().state(instance.id)
        && seen.generation == instance.generation
        && seen.status.may_write()
        && let Some(dead) = raise(tables, instance.id, seen, Some(instance))
    {
        tell(tables, os.bells(), dead);
    }
    os.release_obituary(instance.id);
}

/// Leaves, without a release of the obituary.
pub(crate) fn mark_left<M: Memory>(tables: Tables<M>, os: &dyn Os, instance: Instance) {
    if let Ok(seen) = tables.generations().state(instance.id)
        && seen.generation == instance.generation
        && seen.status.may_write()
    {
        leave_from(tables, os, instance, seen);
    }
}

/// Leaves from the state `seen`, if that is still the current one, and notifies the groups.
pub(crate) fn leave_from<M: Memory>(
    tables: Tables<M>,
    os: &dyn Os,
    instance: Instance,
    seen: State,
) {
    let left = State {
        status: Status::Left,
        ..seen
    };
    if !tables.generations().transition(instance.id, seen, left) {
        // It is being fenced, or is dead: it did not leave. The process that fenced it or raised
        // its generation reports that.
        return;
    }
    tables.memory().crash_point(LeavePoint::Left);
    let groups = tables.groups();
    for group in groups.all() {
        if groups.log(group).tell_left(instance).is_some() {
            os.bells().ring(u64::from(group.number()));
        }
    }
}
