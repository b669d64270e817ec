//! The killing of one process that has to end before its host's generation is raised.
//!
//! **Nothing is killed whose presence on this pod's file is free.** A pid comes from the segment, and means something in one PID
//! namespace, until the process ends. So a handle is opened by it first, and the presence is looked at after: if it is still
//! claimed and the id's word is the same, the process lived when the handle was opened. That its pid was its own is told by
//! its start time, and that it is a process of the pod by its mappings: a claimed presence proves nothing, and what stands in
//! the segment may have been forged by another user of the pod. A process that stands in a copy of the pod, or that has called
//! exec, has no presence and is left alone. Where any of this cannot be seen, the host's cord is pulled instead.

use super::{Instance, InstanceId, State, Tables};
use crate::host::Os;

/// How far the end of a process is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It can no longer write.
    Gone,
    /// It has been sent SIGKILL; and what to say while it is not gone.
    Sent(String),
    /// It cannot be killed by its pid from here; and why.
    Refused(String),
}

/// Kills the process `id`, which is in `state`, by its pid if it `is_here`: on the caller's operating system.
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
            "process {process} (pid {pid} in its own PID namespace) cannot be killed from this one"
        ));
    }
    // Without a record it is still joining: then its obituary says who it is.
    let holder = || os.holder(id).map(|holder| holder.process);
    let Some(identity) = record.map(|record| record.thread.process).or_else(holder) else {
        return Ending::Refused(format!("process {process} has no record yet"));
    };
    let pid = identity.pid;
    if !os.maps_pod(identity) {
        return Ending::Refused(format!("process {pid} is not seen to have the pod mapped"));
    }
    match os.open_process(identity) {
        // Its threads are gone, and its memory is about to be.
        Ok(None) => Ending::Sent(format!(
            "process {pid} has ended, and its memory has not gone yet"
        )),
        Ok(Some(handle)) => {
            let is_still_it = os.is_present(id) && tables.generations().state(id) == Ok(state);
            if !is_still_it || handle.send_kill() {
                Ending::Sent(format!(
                    "process {pid} was sent SIGKILL and has not gone yet"
                ))
            } else {
                Ending::Refused(format!("process {pid} may not be killed by this user"))
            }
        }
        Err(error) => Ending::Refused(format!("process {pid} cannot be reached: {error}")),
    }
}
