//! The recovery of dead members of the pool by this process.

use super::Pool;
use outlive::membership::{Instance, Process};
use outlive::memory::Native;
use outlive::recovery::{RecoverError, RecoverRoom, Recovering};

/// The handler that recovers the entries of a dead instance with its log.
pub(super) struct RecoverPool(pub Pool);

impl RecoverRoom<Native> for RecoverPool {
    fn settle(&self, _: &Recovering<'_, Native>) -> Result<(), RecoverError> {
        Ok(())
    }

    fn release(&self, dead: &Recovering<'_, Native>) -> Result<(), RecoverError> {
        let Self(pool) = self;
        let recovered = pool.recover(dead.member().instance(), dead.owner());
        recovered.map_err(|error| RecoverError::Handler(error.to_string()))
    }
}

impl Pool {
    pub(super) fn recover(
        &self,
        survivor: Instance,
        gone: Instance,
    ) -> Result<(), crate::PoolError> {
        let _held = self.inner.here.hold();
        let files = &self.inner.files;
        let recovery = { self.coherent() }.recover(survivor, gone, self, files)?;
        // A member that leaves keeps no list: a later member recovers the rest.
        if survivor != gone {
            let in_use = recovery.in_use.into_iter().map(|run| (survivor, run));
            self.in_use().extend(in_use);
        }
        Ok(())
    }

    /// Recovers the entries of departed owners with recovered logs: a program without the handler,
    /// such as `outlive pod check --repair`, may have recovered these logs.
    pub(super) fn recover_departed(&self, survivor: Instance, process: &Process) {
        let (generations, logs) = (process.tables().generations(), self.inner.pod.logs());
        for owner in self.coherent().owners() {
            let has_log = owner.id < logs.capacity() && logs.of(owner.id).owner() == Some(owner);
            // While a log has a claimant, that member recovers the entries.
            let is_claimed = has_log && logs.of(owner.id).claimant().is_some();
            if !generations.is_gone(owner) || is_claimed {
                continue;
            }
            if let Err(error) = self.recover(survivor, owner) {
                tracing::error!(%owner, %error, "entries of a departed member remain");
            }
        }
    }
}
