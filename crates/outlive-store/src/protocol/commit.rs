//! The end of an attempt: validation, commit, and the release of its latches.

use super::Abort;
use super::transaction::{Latch, Stage, Transaction};
use super::view::Member;
use crate::tables::{LATCH, Place, VALUE, VERSION, Version};
use crate::verbs::{VerbError, block_on};

/// The reason why a commit failed.
pub(super) enum CommitError {
    /// The attempt has changed nothing.
    Abort(Abort),
    /// The attempt was logged.
    Unknown(VerbError),
}

impl<V: Member> Transaction<V> {
    /// Commits the attempt.
    ///
    /// # Crash
    /// Before a whole copy of the log entry exists, the latches are stray. From then on, recovery
    /// decides: see [`recover_logs`](super::recover_logs).
    pub(super) async fn commit(&mut self) -> Result<(), CommitError> {
        if let Some(doom) = self.doom.take() {
            return Err(CommitError::Abort(doom));
        }
        let writes = self.is_writing();
        let registers = !self.copies || self.worker.policy().registers_copies;
        if registers && !self.sets.writes.is_empty() {
            self.enter().map_err(CommitError::Abort)?;
        }
        let decided = match self.worker.protocol().logs_during_validation() && writes {
            true => self.log_and_validate().await,
            false => self.validate_and_log(writes).await,
        };
        decided.map_err(CommitError::Abort)?;
        if self.copies {
            // Not logged: if this server dies, nothing is undone, and the latches are stray.
            self.stage = Stage::Committing;
        }
        if writes || self.copies {
            self.write_all().await.map_err(CommitError::Unknown)?;
        }
        // Every live replica has the new values. From here on, recovery rolls the transaction
        // forward, so the client may be told before the latches are released. The next verbs of
        // this coordinator follow the WRITEs on the same connections. If one breaks, the releases
        // are the first verbs of the next one.
        self.unlatch();
        self.stage = Stage::Ended;
        self.leave(writes);
        Ok(())
    }

    /// Registers the commit. From here on, no compute server uses other primaries than those of
    /// this attempt, until the attempt [leaves](Self::leave).
    ///
    /// An attempt that holds no latches needs no registration: its objects were read from primaries
    /// that are not lost, which are primaries in later epochs too.
    pub(super) fn enter(&mut self) -> Result<(), Abort> {
        let epoch = match self.worker.policy().commits_in_its_epoch {
            true => self.epoch,
            false => self.worker.view.epoch(),
        };
        if !self.worker.view.enter_commit(self.id, epoch) {
            return Err(self.interrupted());
        }
        self.has_entered = true;
        Ok(())
    }

    fn leave(&mut self, is_committed: bool) {
        if core::mem::take(&mut self.has_entered) {
            self.worker.view.leave_commit(self.id, is_committed);
        }
    }

    /// Validates the attempt, and then logs it: `pandora`.
    async fn validate_and_log(&mut self, writes: bool) -> Result<(), Abort> {
        let policy = self.worker.policy();
        if !policy.logs_after_validation {
            self.log(None).await?;
            self.stage = Stage::Executing;
        }
        if policy.validates_after_latching {
            self.validate().await?;
        }
        match writes {
            true => self.log(None).await,
            false => Ok(()),
        }
    }

    /// Logs the attempt while it is validated: all protocols but `pandora`. All latches are held
    /// until the log is removed, so a recovery that finds the entry of an attempt that is not
    /// validated undoes no write of another transaction. If the validation fails, the log is
    /// removed before the latches are released.
    async fn log_and_validate(&mut self) -> Result<(), Abort> {
        let policy = self.worker.policy();
        self.sets.fanout.clear();
        self.sets.results.clear();
        if policy.validates_after_latching {
            self.plan_validation()?;
        }
        if self.worker.has_late_layout() {
            return Err(self.interrupted());
        }
        self.plan_log(None)?;
        self.stage = Stage::Logging;
        let known = self.worker.known_failures();
        self.sets.fanout.post(&self.worker).await?;
        let mut validated = self.is_validated(known);
        if validated == Ok(false) {
            // A latch was found stray: see `is_validated`.
            validated = self.validate().await.map(|()| true);
        }
        if validated.is_err() && !policy.logs_after_validation {
            self.stage = Stage::Executing;
        }
        validated?;
        self.stage = Stage::Committing;
        Ok(())
    }

    /// Checks that no object that was only read has changed or is latched.
    pub(super) async fn validate(&mut self) -> Result<(), Abort> {
        if self.sets.writes.is_empty() && self.sets.reads.len() <= 1 {
            return Ok(());
        }
        loop {
            let known = self.worker.known_failures();
            self.sets.fanout.clear();
            self.sets.results.clear();
            self.plan_validation()?;
            if self.worker.has_late_layout() {
                return Err(self.interrupted());
            }
            self.sets.fanout.post(&self.worker).await?;
            if self.is_validated(known)? {
                return Ok(());
            }
        }
    }

    /// Adds READs of the latches and versions of the read set to the batches.
    fn plan_validation(&mut self) -> Result<(), Abort> {
        let sets = &mut self.sets;
        for read in &sets.reads {
            let object = read.object;
            let Some(place) = self.worker.primary(object) else {
                // With a late layout, the object need not be lost: its restored replicas can be
                // those of a later epoch.
                return Err(match self.worker.has_late_layout() {
                    true => self.interrupted(),
                    false => Abort::Lost { object },
                });
            };
            let (index, batch) = sets.fanout.to(place.server);
            // In this order: the object had the version while the latch was free.
            let latch = batch.read(place.of(read.object, LATCH), 1);
            let version = batch.read(place.of(read.object, VERSION), 1);
            sets.results.push((index, latch, version));
        }
        Ok(())
    }

    /// Checks the latches and versions that were read. Returns `false` if they are to be read
    /// again.
    fn is_validated(&self, known: u64) -> Result<bool, Abort> {
        let (sets, policy) = (&self.sets, self.worker.policy());
        let mut is_current = true;
        for (read, (index, latch, version)) in sets.reads.iter().zip(&sets.results) {
            let batch = sets.fanout.batch(*index);
            if Version(batch.value(*version)) != read.version {
                return Err(self.changed());
            }
            match self.worker.latch_state(batch.value(*latch), known) {
                Latch::Free => {}
                _ if !policy.validates_latches => {}
                Latch::Held(holder) => return Err(self.latched(holder)),
                // The holder may have committed after the READ, and be recovered since.
                Latch::NewlyStray => is_current = !policy.reads_again_after_failures,
            }
        }
        Ok(is_current)
    }

    /// Writes the new values and versions to all live replicas, or, in a copy, the old ones to the
    /// replicas that are being filled.
    async fn write_all(&mut self) -> Result<(), VerbError> {
        let (worker, sets) = (&self.worker, &mut self.sets);
        sets.fanout.clear();
        let replicas = match worker.policy().writes_all_replicas {
            true => usize::MAX,
            false => 1,
        };
        for write in sets.writes.iter() {
            let is_new = write.new != write.old;
            let receives = |place: &Place| is_new || self.copies && !worker.is_complete(place);
            let places = worker.replicas(write.object).take(replicas);
            for place in places.filter(receives) {
                let batch = sets.fanout.to(place.server).1;
                let value = &sets.words[write.new_value.clone()];
                batch.write(place.of(write.object, VALUE), value);
                // A WRITE does not pass an earlier WRITE, so the version follows the value.
                batch.write(place.of(write.object, VERSION), &[write.new.0]);
            }
        }
        sets.fanout.post_to_live(&self.worker).await
    }

    /// Releases the latches with WRITEs. Does not wait.
    fn unlatch(&mut self) {
        let sets = &mut self.sets;
        sets.fanout.clear();
        for write in &sets.writes {
            let Some(place) = self.worker.primary(write.object) else {
                continue;
            };
            let latch = place.of(write.object, LATCH);
            sets.fanout.to(place.server).1.write(latch, &[0]);
        }
        sets.fanout.post_releases(&self.worker, self.id);
    }

    /// Ends an attempt that does not commit: removes copies of its log entry, and then releases its
    /// latches. An attempt with a complete log is committed instead.
    ///
    /// # Errors
    /// A verb failed. The latches may not be released.
    pub(super) async fn end(&mut self) -> Result<(), VerbError> {
        let is_committed = self.stage == Stage::Committing;
        if is_committed {
            self.write_all().await?;
        }
        if self.stage == Stage::Logging {
            self.remove_log().await?;
            self.stage = Stage::Executing;
        }
        if self.stage == Stage::Ended {
            return Ok(());
        }
        // The attempt is decided. Its latches are those of a server that is live or fails later, as
        // after a commit. Before the next verbs, so that a dropped future leaves nothing behind.
        self.leave(is_committed);
        let sets = &mut self.sets;
        sets.fanout.clear();
        let held = sets.writes.iter().map(|it| it.object);
        for object in held.chain(self.tentative) {
            // A latch on a lost primary protects nothing any more.
            let Some(place) = self.worker.primary(object) else {
                continue;
            };
            let batch = sets.fanout.to(place.server).1;
            let latch = place.of(object, LATCH);
            match self.worker.policy().releases_own_latches_only {
                // No effect on a latch that the attempt does not hold.
                true => {
                    batch.compare_swap(latch, self.id.to_word(), 0);
                }
                false => batch.write(latch, &[0]),
            }
        }
        // If this future is dropped here, the drop of the transaction releases the latches again:
        // the connection may break before the CAS takes effect.
        let released = sets.fanout.post_to_live(&self.worker).await;
        self.stage = Stage::Ended;
        released
    }
}

impl<V: Member> Drop for Transaction<V> {
    fn drop(&mut self) {
        if self.stage != Stage::Ended
            && let Err(error) = block_on(self.end())
        {
            tracing::warn!(id = %self.id, %error, "a transaction did not end");
            self.worker.view.leave_latches();
            self.worker.keep_slot(self.id.coordinator());
        }
    }
}
