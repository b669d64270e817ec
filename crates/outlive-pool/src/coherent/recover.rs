//! The recovery of dead instances.

use super::{Coherent, Homes, Run, ServerFiles};
use crate::error::PoolError;
use crate::layout::Owner;
use outlive::membership::Instance;
use outlive::memory::Memory;

/// The result of a recovery.
#[derive(Debug, Default)]
#[must_use = "runs that readers still use are released later"]
pub struct Recovery {
    /// The number of servers that were declared dead.
    pub servers: usize,
    /// The runs that the survivor owns now, and that a live reader still uses.
    pub in_use: Vec<Run>,
}

impl<M: Memory> Coherent<M> {
    /// Recovers the dead instance `gone` as `survivor`: declares its servers dead, withdraws the
    /// announcements of its readers, and frees its allocations that were not kept. Waits for no
    /// thread. Any number of survivors may call this; exactly one claims each entry.
    ///
    /// # Errors
    /// If a live server cannot be reached. The survivor owns the remaining slices then.
    ///
    /// # Crash
    /// The member that recovers `survivor` continues.
    pub fn recover(
        self,
        survivor: Instance,
        gone: Instance,
        homes: &impl Homes<M>,
        files: &impl ServerFiles,
    ) -> Result<Recovery, PoolError> {
        let mut recovery = Recovery {
            servers: self.recover_servers(survivor, gone, files),
            in_use: Vec::new(),
        };
        self.release_lines(gone);
        let mut failed = None;
        for slice in 0..self.sizes.slices {
            let (from, to) = (Owner::Instance(gone), Owner::Instance(survivor));
            if self.owner(slice) != from || !self.change_owner(slice, from, to) {
                continue;
            }
            let run = self.run_at(slice);
            self.hide(run);
            match self.release_unless_used(survivor, run, homes) {
                Ok(None) => {}
                Ok(Some(_)) => recovery.in_use.push(run),
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            None => Ok(recovery),
            Some(error) => Err(error),
        }
    }

    /// Returns the owners of servers, readers and allocations.
    pub fn owners(self) -> Vec<Instance> {
        let of_slices = (0..self.sizes.slices).filter_map(|slice| match self.owner(slice) {
            Owner::Instance(owner) => Some(owner),
            _ => None,
        });
        let of_servers = self.servers().filter_map(|it| it.owner);
        let mut owners: Vec<_> = of_servers
            .chain(self.line_owners())
            .chain(of_slices)
            .collect();
        owners.sort_unstable();
        owners.dedup();
        owners
    }
}
