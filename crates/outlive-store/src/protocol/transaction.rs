//! An attempt of a transaction: its read set and write set, and its accesses to single objects.

use super::fanout::Fanout;
use super::view::Member;
use super::worker::{Knowledge, Worker};
use super::{Abort, Conflict};
use crate::tables::{LATCH, ObjectId, Place, TransactionId, VALUE, VERSION, Version};
use crate::verbs::{Batch, Connection, ServerId, Slot, VerbError};
use core::future::poll_fn;
use core::ops::Range;
use core::task::Poll;
use std::rc::Rc;

/// One attempt of a transaction, which the body of [`transaction`] receives.
///
/// The transaction reads its own writes, and repeated reads of a key return the same value. Until
/// the commit, two reads of different keys may be inconsistent with each other: then the commit
/// fails, and the body runs again. A body that depends on the consistency of its reads before (to
/// end a loop, for example) must check them.
///
/// After an access that failed, or whose future was dropped before its end, the attempt is not
/// committed. An attempt that is dropped before its commit, also by a panic, releases its latches.
///
/// [`transaction`]: super::Coordinator::transaction
#[derive(Debug)]
pub struct Transaction<V: Member> {
    pub(super) worker: Rc<Worker<V>>,
    pub(super) id: TransactionId,
    pub(super) sets: Sets<V::Connection>,
    pub(super) stage: Stage,
    /// The epoch in which the attempt began.
    pub(super) epoch: u64,
    /// Whether its commit is registered.
    pub(super) has_entered: bool,
    /// Whether the commit copies the latched objects to replicas that are being filled.
    pub(super) copies: bool,
    /// The number of polls for which the attempt may still stall.
    stall: u32,
    /// The object of a CAS that may take effect.
    pub(super) tentative: Option<ObjectId>,
    /// The reason for which the attempt can only end without commit.
    pub(super) doom: Option<Abort>,
}

/// The state of an attempt, which determines how it is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It has changed no remote word but latches.
    Executing,
    /// Copies of its log entry may be whole.
    Logging,
    /// All copies of its log entry are whole.
    Committing,
    /// It holds no latches.
    Ended,
}

/// The read set and the write set of an attempt. The next attempt reuses their allocations.
#[derive(Debug)]
pub(super) struct Sets<C: Connection> {
    pub reads: Vec<Read>,
    pub writes: Vec<Write>,
    /// The words of all values that were read or are written.
    pub words: Vec<u64>,
    pub batch: Batch,
    /// The results in the fan-out that belong to the read set.
    pub results: Vec<(usize, Slot, Slot)>,
    pub fanout: Fanout<C>,
    /// The words of a log entry.
    pub entry: Vec<u64>,
    /// The servers to which the log was written, with the number of words.
    pub logged: Vec<(ServerId, usize)>,
    /// The number of latches in the log of latches.
    pub latches: usize,
}

impl<C: Connection> Default for Sets<C> {
    fn default() -> Self {
        Self {
            reads: Vec::new(),
            writes: Vec::new(),
            words: Vec::new(),
            batch: Batch::new(),
            results: Vec::new(),
            fanout: Fanout::default(),
            entry: Vec::new(),
            logged: Vec::new(),
            latches: 0,
        }
    }
}

impl<C: Connection> Sets<C> {
    fn clear(&mut self) {
        self.reads.clear();
        self.writes.clear();
        self.words.clear();
        self.fanout.clear();
        self.logged.clear();
        self.latches = 0;
    }
}

/// An object that was read.
#[derive(Clone, Debug)]
pub(super) struct Read {
    pub object: ObjectId,
    pub version: Version,
    /// The indices of its value in the words.
    pub value: Range<usize>,
}

/// An object that is latched.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub object: ObjectId,
    pub old: Version,
    /// The version that the commit writes; equal to `old` if it writes nothing.
    pub new: Version,
    /// The indices of the old value in the words.
    pub old_value: Range<usize>,
    /// The indices of the new value.
    pub new_value: Range<usize>,
}

/// The state of a latch that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Latch {
    /// It is free, or stray: its holder was known to have failed when the latch was read.
    Free,
    /// It is stray, and was read before this worker learned that its holder had failed. Words that
    /// were read with it may be older than the holder's recovery, and must be read again.
    NewlyStray,
    /// A transaction holds it.
    Held(TransactionId),
}

/// A version with the indices of the value, as the attempt sees them.
pub(super) type Seen = (Version, Range<usize>);

impl<V: Member> Worker<V> {
    /// Returns the state of a latch with this word. `known` is the number of failures that the
    /// worker knew when the READ of the latch was posted. Another coordinator of the worker may
    /// have learned of one since.
    pub(super) fn latch_state(&self, latch: u64, known: u64) -> Latch {
        match TransactionId::from_word(latch) {
            None => Latch::Free,
            Some(holder) if !self.steals_latches() => Latch::Held(holder),
            Some(holder) => match self.knows_failed(holder.process()) {
                Knowledge::Before if self.known_failures() == known => Latch::Free,
                Knowledge::Before => Latch::NewlyStray,
                Knowledge::New => Latch::NewlyStray,
                Knowledge::None if self.steals_early(holder.process()) => Latch::Free,
                Knowledge::None => Latch::Held(holder),
            },
        }
    }

    /// Returns whether latches of `process` are stolen although its logs are not recovered: the
    /// flaw `StealsEarly`.
    fn steals_early(&self, process: u16) -> bool {
        !self.policy().steals_after_recovery && self.view.is_under_recovery(process)
    }
}

impl<V: Member> Transaction<V> {
    pub(super) fn new(
        worker: Rc<Worker<V>>,
        id: TransactionId,
        mut sets: Sets<V::Connection>,
        stall: u32,
    ) -> Self {
        sets.clear();
        Self {
            epoch: worker.epoch(),
            has_entered: false,
            copies: false,
            stall,
            worker,
            id,
            sets,
            stage: Stage::Executing,
            tentative: None,
            doom: None,
        }
    }

    /// Ends the attempt for this process. Its latches are released, or left to recovery.
    pub(super) fn forget(mut self) {
        self.stage = Stage::Ended;
    }

    /// Returns the identity of this attempt.
    pub fn id(&self) -> TransactionId {
        self.id
    }

    /// Returns whether a commit now would write.
    pub fn is_writing(&self) -> bool {
        self.sets.writes.iter().any(|it| it.new != it.old)
    }

    pub(super) fn written(&self, object: ObjectId) -> Option<usize> {
        self.sets.writes.iter().position(|it| it.object == object)
    }

    /// Returns the primary of an object.
    fn primary(&self, object: ObjectId) -> Result<Place, Abort> {
        let primary = self.worker.primary(object);
        // A sibling that began an epoch may have dropped the layout in the middle of this access,
        // so it may just have been read again, too late.
        if self.worker.has_late_layout() {
            return Err(self.interrupted());
        }
        primary.ok_or(Abort::Lost { object })
    }

    async fn post(&mut self, place: Place) -> Result<(), Abort> {
        let batch = core::mem::take(&mut self.sets.batch);
        let completion = self.worker.connection(place.server)?.post(batch);
        let completed = completion.await;
        self.sets.batch = completed.batch;
        Ok(completed.result?)
    }

    /// Posts the batch, which has only READs.
    async fn post_reads(&mut self, place: Place) -> Result<(), Abort> {
        let batch = core::mem::take(&mut self.sets.batch);
        self.sets.batch = self.worker.repeat(place.server, batch).await?;
        Ok(())
    }

    /// Returns the object as this attempt sees it: its own write, or an earlier read.
    pub(super) fn known(&self, object: ObjectId) -> Option<Seen> {
        if let Some(index) = self.written(object) {
            let write = &self.sets.writes[index];
            return Some((write.new, write.new_value.clone()));
        }
        let read = self.sets.reads.iter().find(|it| it.object == object)?;
        Some((read.version, read.value.clone()))
    }

    /// Reads `words` value words of an object. Unless the object is already in one of the sets, the
    /// caller [adds it to the read set](Self::keep) or does not rely on it.
    ///
    /// # Errors
    /// A conflict if another transaction holds the latch or changes the object.
    pub(super) async fn load(&mut self, object: ObjectId, words: usize) -> Result<Seen, Abort> {
        if let Some(seen) = self.known(object) {
            return Ok(seen);
        }
        let place = self.primary(object)?;
        loop {
            let batch = &mut self.sets.batch;
            batch.clear();
            let before = batch.read(place.of(object, LATCH), 2);
            let value = batch.read(place.of(object, VALUE), words);
            // In this order: if the latch is free after the value was read, a writer of the value
            // has already written its version. The words of one READ are read in any order.
            let latch = batch.read(place.of(object, LATCH), 1);
            let version = batch.read(place.of(object, VERSION), 1);
            let known = self.worker.known_failures();
            self.post_reads(place).await?;
            let found = self.sets.batch.words(before)[0];
            match self.worker.latch_state(found, known) {
                Latch::Free if found != 0 => self.worker.count(|it| it.passed += 1),
                Latch::Free => {}
                Latch::Held(holder) if self.is_recovered(holder).await => continue,
                Latch::Held(holder) => return Err(self.latched(holder)),
                Latch::NewlyStray if self.worker.policy().reads_again_after_failures => continue,
                Latch::NewlyStray => {}
            }
            let batch = &self.sets.batch;
            let before = batch.words(before);
            let after = [batch.value(latch), batch.value(version)];
            if before != after && self.worker.policy().checks_reads {
                self.worker.count(|it| it.torn += 1);
                return Err(Abort::Conflict(Conflict::Torn));
            }
            let version = Version(before[1]);
            let start = self.sets.words.len();
            self.sets.words.extend_from_slice(batch.words(value));
            return Ok((version, start..start + words));
        }
    }

    /// Reads value words without a check: a hint, whose words may be of different times.
    pub(super) async fn peek(
        &mut self,
        object: ObjectId,
        words: usize,
    ) -> Result<Range<usize>, Abort> {
        if let Some((_, value)) = self.known(object) {
            return Ok(value);
        }
        let place = self.primary(object)?;
        self.sets.batch.clear();
        let value = self.sets.batch.read(place.of(object, VALUE), words);
        self.post_reads(place).await?;
        let start = self.sets.words.len();
        self.sets
            .words
            .extend_from_slice(self.sets.batch.words(value));
        Ok(start..start + words)
    }

    /// Adds an object that was [loaded](Self::load) to the read set.
    pub(super) fn keep(&mut self, object: ObjectId, (version, value): Seen) {
        if self.known(object).is_none() {
            self.sets.reads.push(Read {
                object,
                version,
                value,
            });
        }
    }

    /// Waits for the recovery of the holder of a latch, if the holder is dead and the attempt may
    /// stall. Returns whether the latch is to be read again.
    async fn is_recovered(&mut self, holder: TransactionId) -> bool {
        let (worker, process) = (Rc::clone(&self.worker), holder.process());
        if self.stall == 0 || !worker.view.is_under_recovery(process) {
            return false;
        }
        worker.count(|it| it.stalled += 1);
        poll_fn(|context| {
            self.stall -= 1;
            if self.stall == 0 || !worker.view.is_under_recovery(process) {
                return Poll::Ready(self.stall > 0);
            }
            if self.stall.is_multiple_of(16) {
                // The survivor may wait for a processor.
                std::thread::yield_now();
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await
    }

    pub(super) fn latched(&self, holder: TransactionId) -> Abort {
        self.worker.count(|it| it.latched += 1);
        Abort::Conflict(Conflict::Latched(holder))
    }

    pub(super) fn interrupted(&self) -> Abort {
        self.worker.count(|it| it.interrupted += 1);
        Abort::Conflict(Conflict::Interrupted)
    }

    pub(super) fn changed(&self) -> Abort {
        self.worker.count(|it| it.changed += 1);
        Abort::Conflict(Conflict::Changed)
    }

    /// Latches an object with `words` value words and reads it. Returns its index in the write set.
    /// A stray latch is stolen.
    ///
    /// # Errors
    /// A conflict if another transaction holds the latch, or if the object has changed since this
    /// attempt read it.
    pub(super) async fn latch(&mut self, object: ObjectId, words: usize) -> Result<usize, Abort> {
        if let Some(index) = self.written(object) {
            return Ok(index);
        }
        if !self.worker.policy().validates_after_latching {
            self.validate().await?;
        }
        if !self.worker.policy().logs_after_latching
            && let Some((version, value)) = self.known(object)
        {
            // Recovery looks only at attempts that are registered.
            self.enter()?;
            self.log(Some((object, version, value))).await?;
            self.stage = Stage::Executing;
        }
        if self.worker.protocol().logs_latches() {
            self.log_latch(object).await?;
        }
        let place = self.primary(object)?;
        let mut expected = 0;
        loop {
            let batch = &mut self.sets.batch;
            batch.clear();
            let (latch, id) = (place.of(object, LATCH), self.id.to_word());
            let was = batch.compare_swap(latch, expected, id);
            let version = batch.read(place.of(object, VERSION), 1);
            let value = batch.read(place.of(object, VALUE), words);
            // If the attempt is dropped now, or the answer is lost, the latch is released by a CAS
            // from the attempt's id.
            self.tentative = Some(object);
            let known = self.worker.known_failures();
            let posted = self.post(place).await;
            if let Err(Abort::Verb(VerbError::Broken { server })) = posted
                && !self.worker.policy().ends_after_lost_latches
            {
                self.worker.reconnect(server).await?;
                continue;
            }
            posted?;
            self.tentative = None;
            let batch = &self.sets.batch;
            let was = batch.value(was);
            if was != expected {
                if let Latch::Held(holder) = self.worker.latch_state(was, known) {
                    if self.is_recovered(holder).await {
                        // A stray word that was found before may be older than the next owner.
                        expected = 0;
                        continue;
                    }
                    if !self.worker.policy().releases_own_latches_only {
                        self.tentative = Some(object);
                    }
                    return Err(self.latched(holder));
                }
                // The latch is free now, or stray: stolen by a CAS from exactly this word.
                expected = was;
                continue;
            }
            if let Some(holder) = TransactionId::from_word(expected) {
                self.worker.count_theft(holder.process());
            }
            let version = Version(batch.value(version));
            let start = self.sets.words.len();
            self.sets.words.extend_from_slice(batch.words(value));
            self.sets.words.extend_from_within(start..);
            let end = start + words;
            self.sets.writes.push(Write {
                object,
                old: version,
                new: version,
                old_value: start..end,
                new_value: end..end + words,
            });
            let reads = &mut self.sets.reads;
            if let Some(read) = reads.iter().position(|it| it.object == object) {
                let read = reads.swap_remove(read);
                if read.version != version {
                    return Err(self.changed());
                }
            }
            return Ok(self.sets.writes.len() - 1);
        }
    }

    /// Releases the latch that was acquired last, of an object that is not written.
    pub(super) async fn put_back(&mut self) -> Result<(), Abort> {
        let Some(object) = self.sets.writes.last().map(|it| it.object) else {
            return Ok(());
        };
        let place = self.primary(object)?;
        self.sets.batch.clear();
        let (latch, id) = (place.of(object, LATCH), self.id.to_word());
        // A CAS, because the worker may have begun an epoch with another primary since the latch
        // was acquired.
        self.sets.batch.compare_swap(latch, id, 0);
        self.post(place).await?;
        self.sets.writes.pop();
        // Its record may be overwritten.
        self.sets.latches = self.sets.latches.saturating_sub(1);
        Ok(())
    }

    /// Plans to write the object with this index in the write set. Returns its new value, which is
    /// the old one at first.
    pub(super) fn rewrite(&mut self, index: usize, exists: bool) -> &mut [u64] {
        let write = &mut self.sets.writes[index];
        write.new = write.old.next(exists);
        let value = write.new_value.clone();
        &mut self.sets.words[value]
    }

    /// Returns the error with which a body aborts its transaction for a reason of its own.
    pub fn abort(&self) -> Abort {
        self.worker.count(|it| it.user += 1);
        Abort::User
    }
}
