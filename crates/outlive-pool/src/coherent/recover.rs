//! The recovery of dead instances.

use super::{Coherent, Homes, Line, Run, ServerFiles, Unfinished};
use crate::error::PoolError;
use crate::layout::Owner;
use outlive::membership::Instance;
use outlive::memory::Memory;

/// The result of a recovery.
#[derive(Debug, Default)]
#[must_use = "the remaining runs and moves are finished later"]
pub struct Recovery {
    /// The number of servers that were declared dead.
    pub servers: usize,
    /// The runs without access that the survivor owns now, and that are not released: a live reader
    /// still uses them, or a server could not be reached.
    pub remaining: Vec<Run>,
    /// The moves that the survivor has now, and that are not finished, for the same reasons.
    pub moves: Vec<Unfinished>,
    /// The lines of dead readers that the survivor has now, because a server with a replica that
    /// they were writing could not be reached.
    pub lines: Vec<Line>,
    /// The last error, if a live server could not be reached.
    pub failed: Option<PoolError>,
}

impl<M: Memory> Coherent<M> {
    /// Recovers the dead instance `gone` as `survivor`: declares its servers dead, equalises
    /// the replicas that it was writing, withdraws the announcements of its readers, completes or
    /// cancels its moves, and frees its allocations that were not kept. Waits for no thread. Any
    /// number of survivors may call this; exactly one claims each entry.
    ///
    /// # Crash
    /// The member that recovers `survivor` continues.
    pub fn recover(
        self,
        survivor: Instance,
        gone: Instance,
        homes: &impl Homes<M>,
        files: &impl ServerFiles,
    ) -> Recovery {
        let servers = self.recover_servers(survivor, gone, files);
        let (lines, unreached) = self.release_lines(survivor, gone, homes);
        // Before the allocations, which are not released while they are moved.
        let (moves, failed) = self.recover_moves(survivor, gone, homes);
        let mut recovery = Recovery {
            servers,
            remaining: Vec::new(),
            moves,
            lines,
            failed: failed.or(unreached),
        };
        for slice in 0..self.sizes.slices {
            let (from, to) = (Owner::Instance(gone), Owner::Instance(survivor));
            if self.owner(slice) != from || !self.change_owner(slice, from, to) {
                continue;
            }
            let run = self.run_at(slice);
            self.hide(run);
            match self.release_unless_used(survivor, run, homes) {
                Ok(None) => continue,
                Ok(Some(_)) => {}
                Err(error) => recovery.failed = Some(error),
            }
            recovery.remaining.push(run);
        }
        recovery
    }

    /// Returns the owners of servers, readers, moves and allocations.
    pub fn owners(self) -> Vec<Instance> {
        let of_slices = (0..self.sizes.slices).filter_map(|slice| match self.owner(slice) {
            Owner::Instance(owner) => Some(owner),
            _ => None,
        });
        let of_servers = self.servers().filter_map(|it| it.owner);
        let of_moves = self.records().filter_map(|record| self.owner_of(record));
        let mut owners: Vec<_> = of_servers
            .chain(self.line_owners())
            .chain(of_moves)
            .chain(of_slices)
            .collect();
        owners.sort_unstable();
        owners.dedup();
        owners
    }
}
