//! The recovery of dead members of the pool by this process.

use super::Pool;
use super::joined::{Entries, Held};
use crate::catalogue::manifest;
use crate::layout::Address;
use outlive::membership::{Instance, Process};
use outlive::memory::Native;
use outlive::objects::Directory;
use outlive::recovery::{RecoverError, RecoverRoom, Recovering};
use std::sync::Arc;

/// The handler that recovers the entries of a dead instance with its log, for one member.
pub(super) struct RecoverPool {
    pub pool: Pool,
    pub entries: Arc<Entries>,
}

impl RecoverPool {
    fn recover(&self, survivor: Instance, gone: Instance) -> Result<(), RecoverError> {
        let mut held = self.entries.lock();
        if held.is_closed {
            // The claim of the log is returned, and another member recovers it.
            return Err(RecoverError::Leaving { member: survivor });
        }
        let recovered = self.pool.recover(&mut held, survivor, gone);
        recovered.map_err(|error| RecoverError::Handler(error.to_string()))
    }
}

impl RecoverRoom<Native> for RecoverPool {
    fn settle(&self, _: &Recovering<'_, Native>) -> Result<(), RecoverError> {
        Ok(())
    }

    fn release(&self, dead: &Recovering<'_, Native>) -> Result<(), RecoverError> {
        // The recovering thread may be that of an `ObjectStore`: the entries belong to its process.
        let survivor = self.entries.owner(dead.member().instance());
        self.recover(survivor, dead.owner())
    }
}

impl Pool {
    /// Recovers the instance `gone`, which is dead or the survivor itself, as `survivor`, whose
    /// entries are `held`.
    ///
    /// # Errors
    /// If a live server cannot be reached. The runs that remain are in `held`.
    pub(super) fn recover(
        &self,
        held: &mut Held,
        survivor: Instance,
        gone: Instance,
    ) -> Result<(), crate::PoolError> {
        let _mapped = self.inner.here.hold();
        let files = &self.inner.files;
        let recovery = { self.coherent() }.recover(survivor, gone, self, files);
        held.remaining.extend(recovery.remaining);
        held.moves.extend(recovery.moves);
        held.lines.extend(recovery.lines);
        recovery.failed.map_or(Ok(()), Err)
    }

    /// Returns the addresses of the memory of destroyed objects that no member frees: the last
    /// lease was that of a member that died, or of a call that does not free memory, such as a
    /// listing, or a lookup that leased the object and then found its name removed.
    pub(super) fn unheld(&self) -> Vec<Address> {
        let directory = self.inner.pod.heap().map(Directory::open);
        match directory.transpose().map(Option::flatten) {
            Ok(Some(directory)) => manifest::unheld(self.coherent(), &directory),
            Ok(None) => Vec::new(),
            Err(error) => {
                tracing::error!(%error, "the memory of destroyed objects remains");
                Vec::new()
            }
        }
    }

    /// Recovers the entries of departed owners with recovered logs: a program without the handler,
    /// such as `outlive pod check --repair`, may have recovered these logs, and a member that left
    /// may have had runs that readers of others used. Returns whether there was one.
    pub(super) fn recover_departed(&self, held: &mut Held, process: &Process) -> bool {
        let mut has_recovered = false;
        let (generations, logs) = (process.tables().generations(), self.inner.pod.logs());
        for owner in self.coherent().owners() {
            let has_log = owner.id < logs.capacity() && logs.of(owner.id).owner() == Some(owner);
            // While a log has a claimant, that member recovers the entries.
            let is_claimed = has_log && logs.of(owner.id).claimant().is_some();
            if !generations.is_gone(owner) || is_claimed {
                continue;
            }
            if let Err(error) = self.recover(held, process.instance(), owner) {
                tracing::error!(%owner, %error, "entries of a departed member remain");
            }
            has_recovered = true;
        }
        has_recovered
    }
}

#[cfg(test)]
mod tests {
    use super::RecoverPool;
    use crate::layout::Use;
    use crate::{Placement, Pool, PoolOptions};
    use outlive::membership::Instance;
    use outlive::recovery::RecoverError;

    #[test]
    fn a_run_on_a_server_that_cannot_be_reached_is_released_later() {
        let path = format!("/dev/shm/outlive-pool-reach-{}", std::process::id());
        let options = PoolOptions::new().slice_bytes(4096).slices(8).members(16);
        let pool = Pool::create(&path, options).unwrap();
        {
            let server = pool.serve(4096 * 4, 0).unwrap();
            // Without a mapping of the server.
            let other = Pool::open(&path).unwrap();
            let client = other.join().unwrap();
            let dead = Instance::new(server.instance().id, 100);
            let place = crate::coherent::Place::At(server.id());
            let allocated = pool.coherent().allocate(dead, 2, place, Use::Plain, &pool);
            allocated.unwrap();
            let handler = RecoverPool {
                pool: other.clone(),
                entries: client.entries(),
            };
            let file = pool.inner.files.path(server.id(), 1);
            let away = file.with_extension("away");
            std::fs::rename(&file, &away).unwrap();
            assert!(handler.recover(client.instance(), dead).is_err());
            assert_eq!((client.collect(), pool.status().slices), (1, 2));
            std::fs::rename(&away, &file).unwrap();
            assert_eq!((client.collect(), pool.status().slices), (0, 0));
        }
        Pool::destroy(&path).unwrap();
    }

    #[test]
    fn a_member_that_leaves_recovers_no_other_member() {
        let path = format!("/dev/shm/outlive-pool-leaving-{}", std::process::id());
        let options = PoolOptions::new().slice_bytes(4096).slices(8).members(16);
        let pool = Pool::create(&path, options).unwrap();
        {
            let server = pool.serve(4096 * 4, 0).unwrap();
            let (client, next) = (pool.join().unwrap(), pool.join().unwrap());
            let own = client.instance();
            // A generation that is not the current one: a dead member.
            let dead = Instance::new(own.id, own.generation + 100);
            let place = crate::coherent::Place::At(server.id());
            let allocated = pool.coherent().allocate(dead, 2, place, Use::Plain, &pool);
            allocated.unwrap();
            let handler = RecoverPool {
                pool: pool.clone(),
                entries: client.entries(),
            };
            drop(client);
            let recovered = handler.recover(own, dead);
            assert_eq!(recovered, Err(RecoverError::Leaving { member: own }));
            assert_eq!(pool.status().slices, 2);
            // Another member recovers it.
            let handler = RecoverPool {
                pool: pool.clone(),
                entries: next.entries(),
            };
            handler.recover(next.instance(), dead).unwrap();
            assert_eq!(pool.status().slices, 0);
            assert!(next.allocate(4096 * 4, Placement::Any).is_ok());
        }
        Pool::destroy(&path).unwrap();
    }
}
