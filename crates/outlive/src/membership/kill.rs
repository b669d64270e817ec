//! Killing of one process, which has to end before its host's generation is raised.
//!
//! **A process is killed only if its presence on this pod's file is claimed.** A pid comes from the
//! segment, and is valid in one PID namespace, until the process ends. So a handle is opened by the
//! pid first, and the presence is checked after: if it is still claimed and the id's word is the
//! same, the process lived when the handle was opened. The start time shows that the pid was the
//! process's own, and the mappings show that it is a process of the pod: a claimed presence proves
//! nothing, and another user of the pod may have forged the record in the segment. A process that
//! is recorded in a copy of the pod, or that has called exec, has no presence and is not killed.
//! Where any of this cannot be seen, the host's cord is pulled instead.

use super::{Instance, InstanceId, State, Tables};
use crate::host::Os;

/// The progress of the end of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It can no longer write.
    Gone,
    /// It has ended or been sent SIGKILL, but still has its presence. With the message to report
    /// until it is gone.
    Sent(String),
    /// It cannot be killed by its pid from here. With the reason.
    Refused(String),
}

/// Kills the process `id`, which is in `state`, by its pid if it `is_here`: on the caller's
/// operating system.
pub(crate) fn end_process(
    tables: Tables,
    os: &dyn Os,
    id: InstanceId,
    state: State,
    is_here: bool,
) -> Ending {
    if !os.is_present(id) {
        return Ending::Gone;
    }
    let process = Instance::new(id, state.generation);
    let record = tables.records().read(process);
    if !is_here {
        let pid = record.map_or(0, |record| record.thread.process.pid);
        return Ending::Refused(format!(
            "process {process} (pid {pid} in its own PID namespace) cannot be killed from this PID \
             namespace"
        ));
    }
    // Without a record it is still joining: then its obituary names the process.
    let holder = || os.holder(id).map(|holder| holder.process);
    let Some(identity) = record.map(|record| record.thread.process).or_else(holder) else {
        return Ending::Refused(format!("process {process} has no record yet"));
    };
    let pid = identity.pid;
    if !os.maps_pod(identity) {
        return Ending::Refused(format!(
            "process {pid} cannot be confirmed to have the pod mapped"
        ));
    }
    match os.open_process(identity) {
        // Its threads are gone, and its memory will be soon.
        Ok(None) => Ending::Sent(format!(
            "process {pid} has ended, but its memory is not released yet"
        )),
        Ok(Some(handle)) => {
            let is_still_it = os.is_present(id) && tables.generations().state(id) == Ok(state);
            if !is_still_it || handle.send_kill() {
                Ending::Sent(format!(
                    "process {pid} was sent SIGKILL, but has not ended yet"
                ))
            } else {
                Ending::Refused(format!("process {pid} may not be killed by this user"))
            }
        }
        Err(error) => Ending::Refused(format!("process {pid} cannot be reached: {error}")),
    }
}

/// Kills `process`, which must be of the caller's operating system, if it is certain which process
/// that is: the pid in the pod may have been forged by another user. Does not wait. Returns whether
/// the process can no longer write to the pod; until then the call can be repeated.
pub fn kill_process(tables: Tables, os: &dyn Os, process: Instance) -> bool {
    match tables.generations().state(process.id) {
        // A corrupt word proves nothing.
        Err(_) => false,
        Ok(state) if state.generation != process.generation => true,
        Ok(state) => end_process(tables, os, process.id, state, true) == Ending::Gone,
    }
}
