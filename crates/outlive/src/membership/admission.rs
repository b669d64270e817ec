//! Admission: only a process that can be fenced may join.

use super::join::JoinError;
use super::join_lock;
use super::shared::{Shared, lock};
use super::{Instance, InstanceId, Level, Tables};
use crate::host::{Os, OsError};

/// The stage of a join at which admission is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Before the process does anything.
    First,
    /// When other processes can see its host, or the process itself.
    Seen,
}

/// Returns an error if this process could not be fenced. By contract 1 a generation is raised only
/// after a fence, or on evidence that cannot be wrong. A process for which neither would be
/// available must not join. `cord` is the reason why it has no cord, once that is known.
pub(crate) fn refuse_the_unfenceable(
    shared: &Shared,
    os: &dyn Os,
    stage: Admission,
    cord: Option<&OsError>,
) -> Result<(), JoinError> {
    let (tables, settings) = (shared.tables, &shared.settings);
    let uid = os.uid();
    let by_agent =
        (settings.fence_command.is_some() || settings.fence_agents) && shared.fence_agent.is_some();
    if by_agent {
        return Ok(());
    }
    // Processes of one user can signal one another; those of others can only be killed by a cord.
    // The creator's id is that of its own user namespace; here the number may be another user's.
    let is_foreign = uid != settings.uid || !os.is_of_owner();
    if let (true, Some(error)) = (is_foreign, cord) {
        return Err(no_cord(shared, uid, error));
    }
    if os.this_thread().process.pid == 1 {
        return Err(JoinError::Unfenceable {
            why: "it is the first process of its PID namespace, which no other process of the pod could kill; start the \
                  container with an init (docker run --init; shareProcessNamespace), or create the pod with a fence \
                  command"
                .into(),
        });
    }
    let systems = tables.operating_systems();
    for (id, state) in tables.writers() {
        if state.level != Some(Level::Host) {
            continue;
        }
        if state.host == shared.os_number {
            if is_foreign || os.has_cord_of_another(id, state.generation) {
                if let Some(error) = cord {
                    return Err(no_cord(shared, uid, error));
                }
                if let Some(why) = unreachable_process(tables, os, id) {
                    return Err(JoinError::Unfenceable { why });
                }
            }
            continue;
        }
        if !systems.absence_is_proof(shared.os_number, state.host) {
            // The heartbeat is checked once, before the process holds anything: the check takes
            // long.
            let host = Instance::new(id, state.generation);
            let is_over = systems.is_earlier_boot(state.host, os.identity())
                && match stage {
                    Admission::First => {
                        !join_lock::beats_within(tables, os, id, settings.suspicion)
                    }
                    // A host that joined since the first check cannot be of an earlier boot.
                    Admission::Seen => lock(&shared.silent).contains(&host),
                };
            if is_over {
                lock(&shared.silent).push(host);
                continue;
            }
            return Err(JoinError::Unfenceable {
                why: format!(
                    "host {id} of another machine, or of a container with a /dev/shm of its own on \
                     memory that machines share, is in the pod, and the pod was created without a \
                     fence command; create the pod with one, run all processes where they share \
                     /dev/shm, or, if host {id} is off, declare it dead by `outlive pod bury PATH \
                     --host {id}`"
                ),
            });
        }
        if let Some(error) = cord {
            return Err(JoinError::Unfenceable {
                why: format!(
                    "host {id} runs in another PID namespace or with another /dev/shm, and could \
                     not kill this process, which has no cord, the file by which processes of \
                     other PID namespaces can kill it ({error}); run all processes in one PID \
                     namespace, or create the pod with a fence command"
                ),
            });
        }
        if let Some(why) = unreachable_process(tables, os, id) {
            return Err(JoinError::Unfenceable { why });
        }
    }
    Ok(())
}

fn no_cord(shared: &Shared, uid: u32, error: &OsError) -> JoinError {
    let creator = shared.settings.uid;
    let of_namespace = match uid == creator {
        true => ", perhaps of another user namespace",
        false => "",
    };
    JoinError::Unfenceable {
        why: format!(
            "it runs as user {uid} and has no cord, the file by which other users can kill it \
             ({error}), so members of other users (the pod was created by user \
             {creator}{of_namespace}) could not kill it; run it as that user, which owns the pod's \
             file, or put the file on a filesystem with leases into a directory that the user can \
             write to, or create the pod with a fence command"
        ),
    }
}

/// Returns the reason why a process of the host `id` could not be killed, if there is such a
/// process. The host is of this kernel, and of another operating system or user.
fn unreachable_process(tables: Tables, os: &dyn Os, id: InstanceId) -> Option<String> {
    let of_host = tables
        .writers()
        .filter(|(_, state)| state.level == Some(Level::Process) && u32::from(state.host) == id);
    for (process, state) in of_host {
        let record = tables
            .records()
            .read(Instance::new(process, state.generation));
        let generation = tables.generations().state(id).ok()?.generation;
        let has_cord = record.is_none_or(|record| record.has_cord) && os.finds_cord(id, generation);
        if !has_cord && os.is_present(process) {
            return Some(format!(
                "process {process} of host {id} runs in another PID namespace, with another \
                 /dev/shm or as another user, and has no cord, a file by which it could be killed \
                 from here (all processes must reach the pod's file in the same directory, which \
                 they can write to, on a filesystem with leases); run all processes in one PID \
                 namespace and as one user, or create the pod with a fence command"
            ));
        }
    }
    None
}
