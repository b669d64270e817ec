//! A fence on request: of a host that beats but does no useful work.
//!
//! The manager fences silent hosts. A member may have another reason to request a fence: a task
//! that does not end, a lock that is never released, a failed health check. It closes the host as a
//! manager would, by one compare-and-swap of its word to [`Status::Fencing`]. The manager finds
//! that word at its next round, and continues as with a silent host.
//!
//! The host is that of a current member. The host's word is read first, then the member's. A host
//! goes live only after the deaths of the members of its former incarnations are finalised. So a
//! member that is current after the host's word was read is one of this incarnation or of a later
//! one; and if there is a later one, the compare-and-swap fails.

use super::{Instance, InstanceId, Level, State, Status, Tables};
use outlive_memory::Memory;

/// The error if the member whose host is to be fenced has left or died.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} has ended, so it has no host that could be fenced")]
pub struct NobodyToFence(pub Instance);

/// Requests a fence of the host of `member`, which may be a host, a process or a thread. Returns
/// the host.
///
/// # Crash
/// The fence is requested or not.
pub(crate) fn request_fence<M: Memory>(
    tables: Tables<M>,
    member: Instance,
) -> Result<Instance, NobodyToFence> {
    let (generations, nobody) = (tables.generations(), NobodyToFence(member));
    let state_of = |id| generations.state(id).map_err(|_| nobody);
    loop {
        let state = state_of(member.id)?;
        if state.generation != member.generation || !state.status.may_write() {
            return Err(nobody);
        }
        let id = match state.level {
            Some(Level::Host) => member.id,
            _ => InstanceId::from(state.host),
        };
        let seen = state_of(id)?;
        if seen.level != Some(Level::Host) {
            // The host has ended, and its id is that of another member.
            return Err(nobody);
        }
        // The member's word is read after the host's word, which was read with acquire: see the
        // head of the file.
        if state_of(member.id)? != state {
            continue;
        }
        let host = Instance::new(id, seen.generation);
        let fencing = State {
            status: Status::Fencing,
            ..seen
        };
        match seen.status {
            // Another member has requested the fence, or the host was silent.
            Status::Fencing => return Ok(host),
            Status::Live => {}
            _ => return Err(nobody),
        }
        if generations.transition(id, seen, fencing) {
            return Ok(host);
        }
    }
}
