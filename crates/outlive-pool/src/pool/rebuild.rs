//! The rebuilding of replicas that were lost with their servers.

use super::{Client, MoveBudget};
use crate::coherent::MoveReason;
use crate::error::PoolError;
use crate::layout::Address;

/// The result of [`Client::rebuild`].
#[derive(Debug, Default)]
pub struct Rebuilt {
    /// The number of replicas that were rebuilt.
    pub rebuilt: u64,
    /// The replicas that this call did not rebuild, each with the reason: another member may be
    /// rebuilding them.
    pub remaining: Vec<(Address, PoolError)>,
}

impl Client {
    /// Rebuilds the replicas that were lost with their servers, on other live servers, while
    /// readers and writers of all processes use the slices. Reads the map word of every slice.
    ///
    /// A slice is rebuilt on a server that has no other replica of it, those with the most free
    /// memory first. Any member may call this; of several, one rebuilds each replica; the others
    /// report `BeingMoved`, or leave it where it is.
    ///
    /// # Crash
    /// As [`move_slice`](Self::move_slice): a replica is rebuilt or still lost.
    pub fn rebuild(&self, budget: MoveBudget) -> Rebuilt {
        self.rebuild_while(budget, || true)
    }

    /// As [`rebuild`](Self::rebuild), and stops before the next replica when `goes_on` returns
    /// `false`.
    ///
    /// # Crash
    /// As `rebuild`.
    pub fn rebuild_while(&self, budget: MoveBudget, goes_on: impl Fn() -> bool) -> Rebuilt {
        let coherent = self.pool().coherent();
        let mut result = Rebuilt::default();
        let mut targets = None;
        for slice in 0..coherent.sizes().slices {
            let Some(address) = coherent.rebuildable(slice) else {
                continue;
            };
            if !goes_on() {
                break;
            }
            let targets = targets.get_or_insert_with(|| self.pool().targets());
            match self.move_away(address, MoveReason::LostReplica, targets, budget) {
                Ok(moved) => result.rebuilt += u64::from(moved),
                // Freed meanwhile.
                Err(PoolError::Freed { .. }) => {}
                Err(error) => result.remaining.push((address, error)),
            }
        }
        result
    }

    /// Returns whether a replica is lost and can be rebuilt. Reads the map word of every slice.
    pub fn has_lost_replicas(&self) -> bool {
        let coherent = self.pool().coherent();
        (0..coherent.sizes().slices).any(|slice| coherent.rebuildable(slice).is_some())
    }
}
