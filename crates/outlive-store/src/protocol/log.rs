//! Log entries: what recovery must know about a transaction in its commit.
//!
//! Each coordinator has one *slot* in each log server. The log of its next transaction overwrites
//! it, so that a commit needs no verb to remove its log.
//!
//! ```text
//! 0  decision of a recovery: process << 48 | attempt << 2 | 1 (forward) or 2 (back); 0 before
//! 1  checksum of the words that follow; 0 if there is no entry
//! 2  transaction id
//! 3  epoch
//! 4  number of objects of the transaction << 32 | number of words that follow
//! 5  for each object: address, number of value words, old version, new version, old value
//! ```
//!
//! A WRITE may be cut at any word, so an entry counts only if it is whole: its checksum is right.
//!
//! `pandora` writes one entry with all objects to the f + 1 log servers of the compute server. One
//! whole copy in any live log server is enough, and a recovery adds its decision in place.
//!
//! In the other protocols, each memory server is a log server. It receives *records*: entries with
//! one object, of the objects of which it has a replica, one after another. The second half of the
//! slot is for the recovery, which writes an entry with all objects and its decision there: in
//! place, a WRITE that is cut would destroy records. `log-a-latch` has its log of latches at the
//! end of the first half.

use super::Protocol;
use crate::tables::{BUCKET_WORDS, HEADER_WORDS, ObjectId, TransactionId, Version};
use crate::verbs::{RemoteOffset, ServerId};
use xxhash_rust::xxh3::xxh3_64;

/// The number of words of an entry before its objects.
pub(super) const LOG_HEADER_WORDS: usize = 5;
/// The number of words of an object before its old value.
pub(super) const OBJECT_WORDS: usize = 4;
/// The number of words of a latch in the log of latches: the object and the transaction's id.
pub(super) const LATCH_WORDS: usize = 2;

/// The area of a compute server's log slots. It has the same offset in all log servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogArea {
    /// The offset of the first slot in the region of each log server.
    pub base: RemoteOffset,
    /// The memory servers that hold the log.
    pub servers: Vec<ServerId>,
    /// The number of slots: one for each coordinator.
    pub coordinators: u16,
    /// The number of words of a slot.
    pub slot_words: usize,
    /// The protocol, which determines the contents of the slots.
    pub protocol: Protocol,
}

impl LogArea {
    /// Returns the offset of a coordinator's slot.
    pub fn slot(&self, coordinator: u16) -> RemoteOffset {
        self.base + u64::from(coordinator) * self.slot_words as u64 * 8
    }

    /// Returns the largest number of words of a transaction's log.
    pub fn log_words(&self) -> usize {
        match self.protocol.logs_at_replicas() {
            true => self.slot_words / 2,
            false => self.slot_words,
        }
    }

    /// Returns the largest number of words of a value that can always be inserted. The log of an
    /// insertion that extends a chain contains the slot, two buckets and the header.
    pub fn value_words(&self) -> usize {
        const OBJECTS: usize = 4;
        let headers = if self.protocol.logs_at_replicas() {
            OBJECTS
        } else {
            1
        };
        let latches = if self.protocol.logs_latches() {
            OBJECTS
        } else {
            0
        };
        let others = HEADER_WORDS + 2 * BUCKET_WORDS + 1;
        let log = headers * LOG_HEADER_WORDS + OBJECTS * OBJECT_WORDS + latches * LATCH_WORDS;
        self.log_words().saturating_sub(log + others)
    }

    /// Returns the offset of the entry with the decision of a recovery.
    pub(super) fn decided(&self, coordinator: u16) -> RemoteOffset {
        match self.protocol.logs_at_replicas() {
            true => self.slot(coordinator) + self.log_words() as u64 * 8,
            false => self.slot(coordinator),
        }
    }

    /// Returns the offset of the latch with this number in the log of latches of an attempt.
    pub(super) fn latch(&self, coordinator: u16, number: usize) -> RemoteOffset {
        let words = self.log_words() - LATCH_WORDS * (number + 1);
        self.slot(coordinator) + words as u64 * 8
    }

    /// Returns the offset of the checksum of the first entry in a coordinator's slot. A WRITE of 0
    /// to it removes the log of a transaction. A WRITE to the whole header might remove the
    /// decision first, because the words of one WRITE are written in any order.
    pub(super) fn checksum(&self, coordinator: u16) -> RemoteOffset {
        self.slot(coordinator) + 8
    }

    /// Returns the offsets to which a WRITE of 0 clears a coordinator's slot. The entry with the
    /// decision of a recovery is the last one.
    pub fn checksums(&self, coordinator: u16) -> impl Iterator<Item = RemoteOffset> {
        let decided = self.protocol.logs_at_replicas();
        let decided = decided.then(|| self.decided(coordinator) + 8);
        core::iter::once(self.checksum(coordinator)).chain(decided)
    }
}

/// The decision of a recovery about a logged transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// All its writes are on all live replicas, and remain.
    Forward = 1,
    /// Its writes are undone.
    Back = 2,
}

impl Decision {
    /// Returns the decision as a word of the entry of `transaction`.
    pub fn to_word(self, transaction: TransactionId) -> u64 {
        let attempt = u64::from(transaction.attempt()) << 2;
        u64::from(transaction.process()) << 48 | attempt | self as u64
    }

    fn from_word(word: u64, transaction: TransactionId) -> Option<Self> {
        // A word of an earlier entry in the slot has another process or attempt.
        let decisions = [Self::Forward, Self::Back].into_iter();
        { decisions }.find(|it| it.to_word(transaction) == word)
    }
}

/// An object in a log entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedObject {
    /// The object that the transaction writes.
    pub object: ObjectId,
    /// The version before the transaction.
    pub old: Version,
    /// The version that the transaction writes.
    pub new: Version,
    /// The value before the transaction.
    pub value: Vec<u64>,
}

/// A whole entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// The transaction that the entry logs.
    pub transaction: TransactionId,
    /// The epoch in which it was logged.
    pub epoch: u64,
    /// The decision of an earlier, incomplete recovery.
    pub decision: Option<Decision>,
    /// The number of objects that the transaction writes.
    pub total: usize,
    /// The objects in the entry.
    pub objects: Vec<LoggedObject>,
}

/// Makes `words` the words of an entry without objects.
pub(super) fn begin(words: &mut Vec<u64>) {
    words.clear();
    words.resize(LOG_HEADER_WORDS, 0);
}

/// Writes the header of an entry into `words`, which ends with its objects. `objects` is the number
/// of objects of the transaction.
pub(super) fn seal(words: &mut [u64], transaction: TransactionId, epoch: u64, objects: usize) {
    let length = (words.len() - LOG_HEADER_WORDS) as u64;
    words[0] = 0;
    words[2] = transaction.to_word();
    words[3] = epoch;
    words[4] = (objects as u64) << 32 | length;
    words[1] = checksum(&words[2..]);
}

/// Appends an object to the words of an entry.
pub(super) fn append(
    words: &mut Vec<u64>,
    object: ObjectId,
    (old, new): (Version, Version),
    value: &[u64],
) {
    words.extend([object.to_word(), value.len() as u64, old.0, new.0]);
    words.extend_from_slice(value);
}

/// Returns the checksum, which is not 0.
fn checksum(words: &[u64]) -> u64 {
    xxh3_64(bytemuck::cast_slice(words)) | 1
}

/// Returns the number of words of the entry that begins with `header`; `None` if there is none that
/// fits into a slot of `slot_words`.
pub(super) fn length(header: &[u64], slot_words: usize) -> Option<usize> {
    let (checksum, sizes) = (header.get(1)?, header.get(4)?);
    let length = LOG_HEADER_WORDS.checked_add(*sizes as u32 as usize)?;
    (*checksum != 0 && length <= slot_words).then_some(length)
}

/// Returns the transaction and the decision that a header names. The entry need not be whole.
pub(super) fn identity(header: &[u64]) -> Option<(TransactionId, Option<Decision>)> {
    let transaction = TransactionId::from_word(*header.get(2)?)?;
    Some((transaction, Decision::from_word(header[0], transaction)))
}

impl LogEntry {
    /// Returns the entry in `words`, which begin with a header, if it is whole.
    pub fn parse(words: &[u64]) -> Option<Self> {
        let (header, mut rest) = words.split_at_checked(LOG_HEADER_WORDS)?;
        if header[4] as u32 as usize != rest.len() || header[1] != checksum(&words[2..]) {
            return None;
        }
        let transaction = TransactionId::from_word(header[2])?;
        let mut objects = Vec::new();
        while !rest.is_empty() {
            let (fixed, tail) = rest.split_at_checked(OBJECT_WORDS)?;
            let (value, tail) = tail.split_at_checked(usize::try_from(fixed[1]).ok()?)?;
            rest = tail;
            objects.push(LoggedObject {
                object: ObjectId::from_word(fixed[0]),
                old: Version(fixed[2]),
                new: Version(fixed[3]),
                value: value.to_vec(),
            });
        }
        Some(Self {
            transaction,
            epoch: header[3],
            decision: Decision::from_word(header[0], transaction),
            total: (header[4] >> 32) as usize,
            objects,
        })
    }

    /// Returns whether the entry has all objects of the transaction.
    pub(super) fn is_complete(&self) -> bool {
        self.objects.len() == self.total
    }

    /// Adds the objects of another record of the transaction.
    pub(super) fn joined(mut self, other: Self) -> Self {
        for object in other.objects {
            if self.objects.iter().all(|it| it.object != object.object) {
                self.objects.push(object);
            }
        }
        self
    }

    /// Returns the words of the entry with a decision.
    pub(super) fn to_words(&self, decision: Decision) -> Vec<u64> {
        let values: usize = self.objects.iter().map(|it| it.value.len()).sum();
        let objects = self.objects.len() * OBJECT_WORDS;
        let mut words = Vec::with_capacity(LOG_HEADER_WORDS + objects + values);
        begin(&mut words);
        for it in &self.objects {
            append(&mut words, it.object, (it.old, it.new), &it.value);
        }
        seal(&mut words, self.transaction, self.epoch, self.total);
        words[0] = decision.to_word(self.transaction);
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Vec<u64> {
        let mut words = vec![0; LOG_HEADER_WORDS];
        for key in 0..3u64 {
            let old = Version(key * 2 + 1);
            let object = ObjectId::new(1, 2, key * 64);
            append(
                &mut words,
                object,
                (old, old.next(key != 1)),
                &[key; 5][..key as usize + 1],
            );
        }
        seal(&mut words, TransactionId::new(7, 8, 9), 4, 3);
        words
    }

    #[test]
    fn an_entry_is_read_back_with_its_decision() {
        let mut words = entry();
        let parsed = LogEntry::parse(&words).unwrap();
        assert_eq!(parsed.transaction, TransactionId::new(7, 8, 9));
        assert_eq!((parsed.epoch, parsed.decision), (4, None));
        assert_eq!(parsed.objects.len(), 3);
        assert_eq!(parsed.objects[2].value, [2, 2, 2]);
        words[0] = Decision::Back.to_word(parsed.transaction);
        let decided = LogEntry::parse(&words).unwrap().decision;
        assert_eq!(decided, Some(Decision::Back));
        words[0] = Decision::Back.to_word(TransactionId::new(7, 8, 10));
        let other = LogEntry::parse(&words).unwrap();
        assert_eq!(
            (other.decision, other.total, other.is_complete()),
            (None, 3, true)
        );
        words[0] = Decision::Forward.to_word(other.transaction);
        assert_eq!(other.to_words(Decision::Forward), words);
    }

    #[test]
    fn an_entry_with_one_old_word_is_not_whole() {
        let words = entry();
        for index in 1..words.len() {
            let mut torn = words.clone();
            torn[index] ^= 1 << 40 | 1;
            assert_eq!(LogEntry::parse(&torn), None, "word {index}");
        }
        assert_eq!(LogEntry::parse(&words[..words.len() - 1]), None);
        assert_eq!(LogEntry::parse(&[]), None);
    }
}
