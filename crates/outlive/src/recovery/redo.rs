//! Redo transactions: several stores under a lock, of which all take effect or none.
//!
//! A transaction appends its stores as records, makes them valid by one *commit word*, carries them
//! out and retires. Before the commit word is written, the transaction has no effect. After it, a
//! recoverer that replays the records completes the transaction. The commit word holds the number
//! of records and a checksum over the owner, the sequence number and the records:
//!
//! ```text
//!  line:  | sequence number | crc32 << 32 | count | busy |        records: | size, target | value | ...
//! ```
//!
//! On memory that loses a dead host's caches, records and commit word are written back together and
//! drained once, which saves a drain. If any of these words was lost, the checksum does not match
//! and the transaction never began. The checksum also keeps a commit word from validating records
//! of another transaction or incarnation. The word is retired, and written back, before the lock
//! can be released, so records are never replayed over later changes of other members.

use super::layout::{RECORDS, REDO};
use super::{LockKind, Log, Logs, OwnLog};
use crate::membership::{Instance, Member};
use core::marker::PhantomData;
use outlive_memory::{Link, Memory, Native, Offset, OffsetOutOfRange, Ordering, Word};

const SEQUENCE: u64 = REDO;
const COMMIT: u64 = REDO + 8;
const BUSY: u64 = REDO + 16;

outlive_memory::crash_points! {
    /// Crash points of a redo transaction.
    pub enum RedoPoint for "redo.commit" {
        /// All records are appended; the transaction is not yet valid.
        Appended,
        /// The transaction is committed; no store is carried out yet.
        Committed,
        /// All stores are carried out; the transaction would still be replayed.
        Applied,
        /// The transaction is over.
        Retired,
    }
}

/// The reason why a redo transaction could not be begun or extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RedoError {
    /// Another transaction of this instance is open.
    #[error("{instance} already has a redo transaction open; commit or drop it first")]
    Nested {
        /// The instance.
        instance: Instance,
    },
    /// No lock is listed in the log, so other members could change the words that a replay stores
    /// to.
    #[error(
        "{instance} holds no logged lock under which its stores could be replayed; acquire one \
         first"
    )]
    NoLock {
        /// The instance.
        instance: Instance,
    },
    /// The transaction has as many records as a log holds.
    #[error("a redo transaction has at most {} stores; split the change", Logs::<Native>::RECORDS)]
    Full,
    /// The target cannot be stored to.
    #[error("the target of a store is invalid: {0}")]
    Target(OffsetOutOfRange),
}

/// A transaction of stores, carried out by [`commit`](Self::commit): all of them or, if the owner
/// dies before or drops it without a commit, none.
///
/// It borrows the guards of the locks that it was begun under, so none of them is released before
/// it ends.
#[derive(Debug)]
pub struct Redo<'g, M: Memory = Native> {
    log: Log<M>,
    instance: Instance,
    count: usize,
    /// Bit mask of the lock entries that were listed when it began, and a hash of these entries.
    /// The locks exclude other members from the words that it changes. This field detects locks
    /// that were released without being borrowed.
    locks: (u32, u64),
    guards: PhantomData<&'g Member<M>>,
}

/// Returns a bit mask of the entries of `log`, out of those in `among`, that list a lock other than
/// a bare one, and a hash of these entries.
fn locks<M: Memory>(log: Log<M>, among: u32) -> (u32, u64) {
    log.locks()
        .filter(|entry| among & 1 << entry.slot != 0 && entry.kind != LockKind::BARE)
        .fold((0, 0), |(slots, mix), entry| {
            let word = entry.lock.raw().wrapping_mul(0x9E37_79B9_7F4A_7C15);
            (
                slots | 1 << entry.slot,
                mix ^ word.rotate_left(entry.slot as u32),
            )
        })
}

pub(super) fn begin<'g, M: Memory>(own: OwnLog<'_, M>) -> Result<Redo<'g, M>, RedoError> {
    let (log, memory, instance) = (own.log(), own.log().memory(), own.instance());
    let locks = locks(log, u32::MAX);
    if locks.0 == 0 {
        return Err(RedoError::NoLock { instance });
    }
    let busy = log.at() + BUSY;
    if memory.load::<u64>(busy, Ordering::Relaxed) != 0 {
        return Err(RedoError::Nested { instance });
    }
    // Only the owner reads this flag; recovery clears it.
    memory.store(busy, 1u64, Ordering::Relaxed);
    Ok(Redo {
        log,
        instance,
        count: 0,
        locks,
        guards: PhantomData,
    })
}

fn record_at<M: Memory>(log: Log<M>, index: usize) -> Offset {
    log.at() + RECORDS + index as u64 * 16
}

impl<M: Memory> Redo<'_, M> {
    /// Appends the store of `value` at `at`, a word of 8 to 64 bits.
    ///
    /// # Errors
    /// If the log is full or the target is not a word of this memory.
    pub fn store<W: Word>(&mut self, at: Offset, value: W) -> Result<(), RedoError> {
        const { assert!(W::SIZE <= 8, "redo records hold words of at most 64 bits") };
        if self.count == Logs::<M>::RECORDS {
            return Err(RedoError::Full);
        }
        let (memory, size) = (self.log.memory(), W::SIZE as u64);
        Offset::checked(at.raw(), size, size, memory.size()).map_err(RedoError::Target)?;
        let target = Link::new(at).with_tags(size.trailing_zeros() as u8);
        let record = record_at(self.log, self.count);
        memory.store(record, target.to_word(), Ordering::Relaxed);
        memory.store(record + 8, value.to_bits() as u64, Ordering::Relaxed);
        self.count += 1;
        Ok(())
    }

    /// Returns the word at `at` as it will be after the commit: the transaction's own store to it,
    /// or else its current value.
    pub fn load<W: Word>(&self, at: Offset) -> W {
        let memory = self.log.memory();
        for index in (0..self.count).rev() {
            let record = record_at(self.log, index);
            let target = Link::from_word(memory.load(record, Ordering::Relaxed));
            if target.offset() == at {
                let value: u64 = memory.load(record + 8, Ordering::Relaxed);
                return W::from_bits(value.into());
            }
        }
        // Relaxed: the lock under which this runs orders it.
        memory.load(at, Ordering::Relaxed)
    }

    /// Drops all stores but the first `count`, for a change that could not be completed.
    pub fn truncate(&mut self, count: usize) {
        self.count = self.count.min(count);
    }

    /// Returns the number of the transaction's stores.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether the transaction has no stores.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Commits the stores and carries them out. Wait-free; its time is that of the stores.
    ///
    /// # Crash
    /// A death in here leaves none of the stores done, or a committed log from which the recoverer
    /// carries out all of them, under the lock that the dead instance still holds.
    pub fn commit(self) {
        let (log, memory) = (self.log, self.log.memory());
        if self.count > 0 {
            assert!(
                locks(log, self.locks.0) == self.locks,
                "a redo transaction of {} is committed after a lock that it began under was released",
                self.instance
            );
            let sequence = log.at() + SEQUENCE;
            let number = memory.load::<u64>(sequence, Ordering::Relaxed) + 1;
            memory.store(sequence, number, Ordering::Relaxed);
            memory.crash_point(RedoPoint::Appended);
            let crc = checksum(log, self.instance, number, self.count);
            let commit = u64::from(crc) << 32 | self.count as u64;
            // Release: a thread that reads the word sees the records and the sequence number.
            memory.store(log.at() + COMMIT, commit, Ordering::Release);
            memory.write_back(log.at() + SEQUENCE, 16);
            memory.write_back(record_at(log, 0), self.count as u64 * 16);
            memory.drain();
            memory.crash_point(RedoPoint::Committed);
            apply(log, self.count);
        }
        // Dropping clears the busy flag.
    }
}

/// Clears the busy flag, which a former owner may have left set.
pub(super) fn forget<M: Memory>(log: Log<M>) {
    log.memory().store(log.at() + BUSY, 0u64, Ordering::Relaxed);
}

impl<M: Memory> Drop for Redo<'_, M> {
    fn drop(&mut self) {
        let at = self.log.at() + BUSY;
        self.log.memory().store(at, 0u64, Ordering::Relaxed);
    }
}

/// Returns the checksum of the first `count` records, as `owner` committed them under `sequence`.
fn checksum<M: Memory>(log: Log<M>, owner: Instance, sequence: u64, count: usize) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&owner.to_word().to_le_bytes());
    hasher.update(&sequence.to_le_bytes());
    hasher.update(&(count as u64).to_le_bytes());
    let (end, mut at) = (record_at(log, count), record_at(log, 0));
    let mut block = [0u8; 128];
    while at < end {
        let mut filled = 0;
        while at < end && filled < block.len() {
            let word: u64 = log.memory().load(at, Ordering::Relaxed);
            block[filled..filled + 8].copy_from_slice(&word.to_le_bytes());
            filled += 8;
            at = at + 8;
        }
        hasher.update(&block[..filled]);
    }
    hasher.finalize()
}

/// Returns the number of records that `owner` has committed and not retired; `None` if there is no
/// commit, or one whose checksum does not match the records.
pub(super) fn committed<M: Memory>(log: Log<M>, owner: Instance) -> Option<usize> {
    let memory = log.memory();
    // Acquire: the records were written before the commit word.
    let commit: u64 = memory.load(log.at() + COMMIT, Ordering::Acquire);
    let (count, crc) = ((commit & 0xFFFF_FFFF) as usize, (commit >> 32) as u32);
    if count == 0 || count > Logs::<M>::RECORDS {
        return None;
    }
    let sequence: u64 = memory.load(log.at() + SEQUENCE, Ordering::Relaxed);
    (checksum(log, owner, sequence, count) == crc).then_some(count)
}

/// Returns the error of the first record whose target is not a word of this memory.
pub(super) fn bad_target<M: Memory>(log: Log<M>, count: usize) -> Option<OffsetOutOfRange> {
    (0..count).find_map(|index| target(log, index).err())
}

fn target<M: Memory>(log: Log<M>, index: usize) -> Result<(Offset, u8), OffsetOutOfRange> {
    let word: u64 = log.memory().load(record_at(log, index), Ordering::Relaxed);
    let link = Link::from_word(word);
    let size = 1u64 << link.tags().min(3);
    let at = Offset::checked(link.offset().raw(), size, size, log.memory().size())?;
    Ok((at, link.tags().min(3)))
}

/// Carries out the first `count` records and retires them. For the owner, and for the claimant
/// after [`bad_target`] returned `None`.
pub(super) fn apply<M: Memory>(log: Log<M>, count: usize) {
    let memory = log.memory();
    for index in 0..count {
        let Ok((at, size)) = target(log, index) else {
            continue;
        };
        let value: u64 = memory.load(record_at(log, index) + 8, Ordering::Relaxed);
        // Relaxed: published by the lock's release, and to a recoverer by the retirement below.
        match size {
            0 => memory.store(at, value as u8, Ordering::Relaxed),
            1 => memory.store(at, value as u16, Ordering::Relaxed),
            2 => memory.store(at, value as u32, Ordering::Relaxed),
            _ => memory.store(at, value, Ordering::Relaxed),
        }
        memory.write_back(at, 1 << size);
    }
    memory.drain();
    memory.crash_point(RedoPoint::Applied);
    retire(log);
    memory.crash_point(RedoPoint::Retired);
}

/// Retires the redo log: its records are invalid from now on.
pub(super) fn retire<M: Memory>(log: Log<M>) {
    let memory = log.memory();
    // Release: all stores were carried out before.
    memory.store(log.at() + COMMIT, 0u64, Ordering::Release);
    memory.store(log.at() + BUSY, 0u64, Ordering::Relaxed);
    memory.persist(log.at() + COMMIT, 8);
}
