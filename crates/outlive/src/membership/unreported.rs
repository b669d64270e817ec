//! Deaths that no member is left to report.
//!
//! While a member lives, its sentinel finalises the deaths of the others on its kernel. After the
//! death of all members the table shows them as live until the sentinel of the next process runs.
//! If they have all the ids, that process cannot join, and neither can any later one. So a join
//! that finds no free id finalises the deaths that are proven on this kernel, and looks once more.
//!
//! The evidence is that of the [detector](super::detector): a free presence for a process, and for
//! a host that it has no process and that its join lock is free.
//!
//! Tests: scripted/edges.rs, tests/pod_session.rs; proofs:
//! `lab/outlive-proofs/src/membership/unreported_sweeps.rs`.

use super::death::{bury_orphans, bury_process};
use super::join_lock::end_dead_host;
use super::{Instance, Level, Tables};
use crate::host::Os;
use outlive_memory::Memory;

/// Finalises all deaths for which a free presence is proof on the operating system `os_number`, the
/// caller's. The caller need not be a member.
///
/// # Crash
/// A caller that dies in the middle leaves deaths that the next caller, or a sentinel, finalises.
pub(super) fn finalise_deaths<M: Memory>(tables: Tables<M>, os: &dyn Os, os_number: u16) {
    let systems = tables.operating_systems();
    let mut hosts = Vec::new();
    for (id, seen) in tables.writers() {
        let is_proof = { tables.os_of(seen) }
            .is_some_and(|its_os| systems.absence_is_proof(os_number, its_os));
        match seen.level {
            // The word was read before the byte: see `raise`.
            Some(Level::Process) if is_proof && !os.is_present(id) => {
                bury_process(tables, os.bells(), id, seen, None);
            }
            Some(Level::Host) if is_proof => hosts.push(Instance::new(id, seen.generation)),
            _ => {}
        }
    }
    for host in hosts {
        end_dead_host(tables, os, os_number, host, None);
    }
    bury_orphans(tables, os.bells(), None);
}
