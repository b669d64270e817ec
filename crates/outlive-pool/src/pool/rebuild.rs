//! The rebuilding of replicas that were lost with their servers.

use super::{Client, MoveBudget};
use crate::coherent::ServerId;
use crate::error::PoolError;
use crate::layout::Address;

/// The result of [`Client::rebuild`].
#[derive(Debug, Default)]
pub struct Rebuilt {
    /// The number of replicas that were rebuilt.
    pub rebuilt: u64,
    /// The replicas that are still lost, each with the reason.
    pub remaining: Vec<(Address, PoolError)>,
}

impl Client {
    /// Rebuilds the replicas that were lost with their servers, on other live servers, while
    /// readers and writers of all processes use the slices. Reads the map word of every slice.
    ///
    /// A slice is rebuilt on a server that has no other replica of it, those with the most free
    /// memory first. Any member may call this; of several, one rebuilds each replica.
    ///
    /// # Crash
    /// As [`move_slice`](Self::move_slice): a replica is rebuilt or still lost.
    pub fn rebuild(&self, budget: MoveBudget) -> Rebuilt {
        let coherent = self.pool().coherent();
        let mut result = Rebuilt::default();
        for slice in 0..coherent.sizes().slices {
            let Some(address) = coherent.rebuildable(slice) else {
                continue;
            };
            let lost = ServerId(coherent.map_word(slice).segment());
            match self.move_away(address, lost, budget) {
                Ok(_) => result.rebuilt += 1,
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
