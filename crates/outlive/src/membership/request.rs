//! A fence on request: of a host that beats, and that a member knows to be of no use.
//!
//! The manager fences whoever is silent. Who asks has another reason: a task that does not end, a lock that is held for
//! ever, a health check. He closes the host as a manager would, by one compare-and-swap of its word to [`Status::Fencing`];
//! whoever is manager finds that word at its next round and goes on as with a silent host.
//!
//! The host is that of a member which is there. Its word is read first, then the member's: a host goes live only when the
//! members of its former incarnations are buried, so a member that is current after that is one of this incarnation or
//! of a later one; and if there is a later one, the compare-and-swap fails.

use super::{Instance, InstanceId, Level, State, Status, Tables};
use outlive_memory::Memory;

/// Why a host is not fenced on request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is gone: there is no host of it to be fenced")]
pub struct NobodyToFence(pub Instance);

/// Asks that the host of `member` be fenced, which may be a host, a process or a thread. Returns the host.
///
/// # Crash
/// It is asked or not.
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
        // After the host's word, which was read with acquire: see above.
        if state_of(member.id)? != state {
            continue;
        }
        let host = Instance::new(id, seen.generation);
        let fencing = State {
            status: Status::Fencing,
            ..seen
        };
        match seen.status {
            // Somebody has asked, or it was silent.
            Status::Fencing => return Ok(host),
            Status::Live => {}
            _ => return Err(nobody),
        }
        if generations.transition(id, seen, fencing) {
            return Ok(host);
        }
    }
}
