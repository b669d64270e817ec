//! Operations that at most one member of a store executes at a time: a restoration, a stop.
//!
//! A word of the configuration names the instance that has the claim. The recovery of a dead
//! claimant releases the claim.

use super::configuration::Configuration;
use super::sizes::{RESTORER, STOPPER};
use outlive::membership::Instance;
use outlive::memory::{Memory, Offset, Ordering};

/// An operation that needs a claim.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operation {
    /// The [restoration](super::restoration) of lost replicas.
    Restoration,
    /// The [stop](super::Store::stop) of all compute servers.
    Stop,
}

impl Operation {
    const ALL: [Self; 2] = [Self::Restoration, Self::Stop];
}

/// A claim, which ends when it is dropped.
pub(super) struct Claim<M: Memory> {
    configuration: Configuration<M>,
    operation: Operation,
    owner: Instance,
}

impl<M: Memory> Drop for Claim<M> {
    fn drop(&mut self) {
        self.configuration.release(self.operation, self.owner);
    }
}

impl<M: Memory> Configuration<M> {
    fn claim_at(self, operation: Operation) -> Offset {
        self.at
            + match operation {
                Operation::Restoration => RESTORER,
                Operation::Stop => STOPPER,
            }
    }

    /// Returns the compute server that restores lost replicas.
    pub fn restorer(self) -> Option<Instance> {
        self.claimant(Operation::Restoration)
    }

    /// Returns the process that stops all compute servers.
    #[inline]
    pub fn stopper(self) -> Option<Instance> {
        self.claimant(Operation::Stop)
    }

    fn claimant(self, operation: Operation) -> Option<Instance> {
        Instance::from_word(self.load(self.claim_at(operation)))
    }

    /// Returns the instances with a claim.
    pub(super) fn claimants(self) -> impl Iterator<Item = Instance> {
        { Operation::ALL.into_iter() }.filter_map(move |it| self.claimant(it))
    }

    /// Claims `operation` for `owner`. Returns `None` if it has an owner.
    pub(super) fn claim(self, operation: Operation, owner: Instance) -> Option<Claim<M>> {
        // AcqRel: this claimant sees the writes of the earlier ones, such as places and steps.
        let (word, order) = (owner.to_word(), (Ordering::AcqRel, Ordering::Relaxed));
        let at = self.claim_at(operation);
        let claimed = { self.memory }.compare_exchange(at, 0, word, order.0, order.1);
        claimed.ok().map(|_| Claim {
            configuration: self,
            operation,
            owner,
        })
    }

    fn release(self, operation: Operation, owner: Instance) {
        let (from, order) = (owner.to_word(), (Ordering::Release, Ordering::Relaxed));
        let at = self.claim_at(operation);
        let _ = { self.memory }.compare_exchange(at, from, 0, order.0, order.1);
    }

    /// Releases the claims of the dead instance `dead`.
    pub(super) fn release_claims(self, dead: Instance) {
        { Operation::ALL.into_iter() }.for_each(|it| self.release(it, dead));
    }
}
