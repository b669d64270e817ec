//! Publishes which fence agents are at work, for joining processes.
//!
//! An agent acts on a machine and not on an incarnation. While it is at work its host may leave, or
//! die in another way, and be joined again: the agent would then hit the host's next incarnation.
//! So a process publishes in its record against which hosts it calls agents before it calls them,
//! and a host comes to life only while no agent of a live caller is at work against it.
//!
//! The handshake: the caller of an agent publishes, executes a full fence, and then checks that the
//! host's word is still that of the fence. The joining process reads that the host's state is no
//! longer `Fencing`, executes a full fence, and then reads the published hosts. So if the joiner
//! does not see the caller, the caller sees that the fence is over, and calls no agent.

use super::join_lock::{beats_within, pause};
use super::{Instance, InstanceId, Level, State, Tables};
use crate::host::Os;
use core::time::Duration;
use outlive_memory::{Memory, Ordering};

/// The longest time that a joining process waits for agents.
const PATIENCE: Duration = Duration::from_secs(10);
const INTERVAL: Duration = Duration::from_millis(1);

/// Hosts as a set of bits. Hosts whose ids differ by a multiple of 64 share one: a joiner may wait
/// for an agent that is not against its own host.
pub(crate) fn bit(host: InstanceId) -> u64 {
    1 << (host % u64::BITS)
}

/// Publishes that `process`, the caller, calls an agent against `host`, which it fences in state
/// `seen`. Returns `false` if that fence is over: then no agent may be called.
pub(crate) fn announce<M: Memory>(
    tables: Tables<M>,
    process: InstanceId,
    host: InstanceId,
    seen: State,
) -> bool {
    let records = tables.records();
    records.publish_agents(process, records.agents(process) | bit(host));
    // The full fence of the handshake.
    tables.memory().fence(Ordering::SeqCst);
    tables.generations().state(host) == Ok(seen)
}

/// Returns the processes that have an agent at work against `host`, each with the host that it runs
/// on. The caller has read that `host` is not being fenced.
pub(crate) fn against<M: Memory>(
    tables: Tables<M>,
    host: InstanceId,
) -> impl Iterator<Item = (Instance, InstanceId)> {
    // The full fence of the handshake.
    tables.memory().fence(Ordering::SeqCst);
    let records = tables.records();
    tables.writers().filter_map(move |(id, state)| {
        let calls = state.level == Some(Level::Process) && records.agents(id) & bit(host) != 0;
        calls.then_some((Instance::new(id, state.generation), state.host.into()))
    })
}

/// Waits until no agent against `host` is at work. If one still is at the time limit, returns an
/// error that names its caller.
///
/// A caller that is dead is ignored, since the kernel kills a fence command with its caller. A
/// caller whose host does not beat is ignored too, since its death may not be provable from here.
/// Otherwise, if all processes died at the same time, the host could never be joined again.
pub(crate) fn wait_for_agents<M: Memory>(
    tables: Tables<M>,
    os: &dyn Os,
    os_number: u16,
    host: InstanceId,
    suspicion: Duration,
) -> Result<(), String> {
    let until = os.now() + PATIENCE;
    let systems = tables.operating_systems();
    let is_up = |&(caller, runs_on): &(Instance, InstanceId)| {
        let state = tables.generations().state(caller.id).ok();
        let its_os = state.and_then(|state| tables.os_of(state));
        let is_seen = its_os.is_some_and(|its_os| systems.absence_is_proof(os_number, its_os));
        (!is_seen || os.is_present(caller.id)) && beats_within(tables, os, runs_on, suspicion)
    };
    while let Some((caller, _)) = against(tables, host).find(is_up) {
        if os.now() >= until {
            return Err(format!(
                "a fence agent that process {caller} has called for its last incarnation and that \
                 has not returned"
            ));
        }
        pause(os, INTERVAL);
    }
    Ok(())
}
