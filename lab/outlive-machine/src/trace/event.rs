//! The events of a thread, and their encoding.

use super::varint::{Reader, put, unzigzag, zigzag};
use super::{About, Flaw};
use crate::program::{BarrierId, ConditionId, EventCountId, LockId, Word};

/// One event of a recorded thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// N instructions (not 0) that accessed no memory.
    Compute(u32),
    /// A word, or part of one, was read.
    Load {
        /// The word.
        word: Word,
        /// The value that was read, if it was to be recorded.
        value: Option<u64>,
    },
    /// A whole word was written.
    Store {
        /// The word.
        word: Word,
        /// Its value after the store.
        value: u64,
    },
    /// Some bytes of a word were written, not all and not none.
    StorePart {
        /// The word.
        word: Word,
        /// The mask of the bytes; bit 0 stands for the lowest.
        mask: u8,
        /// The value of the *whole* word after the store.
        value: u64,
    },
    /// A word, or some bytes of it, was read and written atomically.
    Atomic {
        /// The word.
        word: Word,
        /// The mask of the bytes, at least one.
        mask: u8,
        /// The kind of instruction.
        kind: AtomicKind,
        /// The old value of these bytes, at their place in the word; the others are zero.
        read: u64,
        /// The new value of these bytes.
        written: u64,
    },
    /// A full fence.
    Fence,
    /// Private data was read, at this byte address.
    PrivateLoad(u64),
    /// Private data was written.
    PrivateStore(u64),
    /// A lock was taken, as the `turn`-th time since the beginning, from 0.
    Lock {
        /// The lock.
        lock: LockId,
        /// The number of earlier acquisitions, by any thread.
        turn: u64,
    },
    /// A lock was released.
    Unlock(LockId),
    /// A thread arrived at a barrier, and left it.
    Barrier(BarrierId),
    /// The thread began to wait at a condition variable, and released the lock.
    WaitBegin {
        /// The condition variable.
        condition: ConditionId,
        /// The lock that it held.
        lock: LockId,
    },
    /// The thread stopped waiting, and took the lock again, as the `turn`-th time.
    WaitEnd {
        /// The condition variable.
        condition: ConditionId,
        /// The lock that it took.
        lock: LockId,
        /// The number of earlier acquisitions of the lock.
        turn: u64,
    },
    /// One waiter was to be woken.
    Signal(ConditionId),
    /// All waiters were to be woken.
    Broadcast(ConditionId),
    /// Later operations of the thread are ordered after the earlier ones of the word's writer.
    Acquire(Word),
    /// The other side of [`Acquire`](Self::Acquire).
    Release(Word),
    /// The next operation came after the event count had been advanced to this value.
    Await(EventCountId, u64),
    /// An event count was advanced.
    Advance(EventCountId),
    /// The region of interest begins.
    RegionBegin,
    /// The region of interest ends.
    RegionEnd,
}

/// The kind of an [atomic](Event::Atomic).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AtomicKind {
    /// An exchange.
    Exchange,
    /// An addition or subtraction.
    Add,
    /// A bitwise OR.
    Or,
    /// A bitwise AND.
    And,
    /// A bitwise exclusive OR.
    Xor,
    /// A bitwise NAND.
    Nand,
    /// A compare-and-swap that swapped.
    Swapped,
    /// A compare-and-swap that failed: nothing was written.
    NotSwapped,
}

impl AtomicKind {
    const ALL: [Self; 8] = [
        Self::Exchange,
        Self::Add,
        Self::Or,
        Self::And,
        Self::Xor,
        Self::Nand,
        Self::Swapped,
        Self::NotSwapped,
    ];
}

/// The numbers of the kinds; the table is in the documentation of the [module](super).
mod kind {
    pub const COMPUTE: u8 = 1;
    pub const LOAD: u8 = 2;
    pub const STORE: u8 = 3;
    pub const STORE_PART: u8 = 4;
    pub const ATOMIC: u8 = 5;
    pub const FENCE: u8 = 6;
    pub const PRIVATE_LOAD: u8 = 7;
    pub const PRIVATE_STORE: u8 = 8;
    pub const LOCK: u8 = 9;
    pub const UNLOCK: u8 = 10;
    pub const BARRIER: u8 = 11;
    pub const WAIT_BEGIN: u8 = 12;
    pub const WAIT_END: u8 = 13;
    pub const SIGNAL: u8 = 14;
    pub const BROADCAST: u8 = 15;
    pub const ACQUIRE: u8 = 16;
    pub const RELEASE: u8 = 17;
    pub const AWAIT: u8 = 18;
    pub const ADVANCE: u8 = 19;
    pub const REGION_BEGIN: u8 = 20;
    pub const REGION_END: u8 = 21;
}

/// Returns the bits of a word in the bytes that `mask` has.
pub(super) const fn bits(mask: u8) -> u64 {
    let mut bits = 0;
    let mut byte = 0;
    while byte < 8 {
        if mask & (1 << byte) != 0 {
            bits |= 0xff << (8 * byte);
        }
        byte += 1;
    }
    bits
}

/// The bases of the next differences in a block. Each block begins with zeros.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bases {
    word: u64,
    private: u64,
}

impl Bases {
    fn put_word(&mut self, out: &mut Vec<u8>, word: Word) {
        put(out, zigzag(word.0.wrapping_sub(self.word) as i64));
        self.word = word.0;
    }

    fn put_private(&mut self, out: &mut Vec<u8>, address: u64) {
        put(out, zigzag(address.wrapping_sub(self.private) as i64));
        self.private = address;
    }

    fn word(&mut self, from: &mut Reader<'_>, about: &About) -> Result<Word, Flaw> {
        self.word = self.word.wrapping_add(unzigzag(from.number()?) as u64);
        if self.word >= about.words {
            return Err(from.wrong("word"));
        }
        Ok(Word(self.word))
    }

    fn private(&mut self, from: &mut Reader<'_>) -> Result<u64, Flaw> {
        self.private = self.private.wrapping_add(unzigzag(from.number()?) as u64);
        Ok(self.private)
    }
}

/// Returns the first byte of an event, and the number of bytes that `value` needs.
fn head(kind: u8, value: u64) -> (u8, usize) {
    let length = (8 - value.leading_zeros() as usize / 8).max(1);
    (kind | ((length - 1) as u8) << 5, length)
}

impl Event {
    /// Returns the number of instructions that it stands for: none, if it only orders others.
    pub(super) fn instructions(&self) -> u64 {
        match self {
            Self::Compute(count) => u64::from(*count),
            Self::Acquire(_) | Self::Release(_) | Self::Await(..) | Self::Advance(_) => 0,
            Self::RegionBegin | Self::RegionEnd => 0,
            _ => 1,
        }
    }

    /// Checks all that can be checked of an event without the trace's [`About`].
    pub(super) fn check(&self) -> Result<(), Flaw> {
        let wrong = |field| Err(Flaw::Item { item: 0, field });
        match *self {
            Self::Compute(0) => wrong("instructions"),
            Self::StorePart { mask: 0 | 0xff, .. } | Self::Atomic { mask: 0, .. } => wrong("mask"),
            Self::Atomic { mask, read, .. } if read & !bits(mask) != 0 => wrong("read"),
            Self::Atomic { mask, written, .. } if written & !bits(mask) != 0 => wrong("written"),
            Self::Atomic {
                kind: AtomicKind::NotSwapped,
                read,
                written,
                ..
            } if read != written => wrong("written"),
            _ => Ok(()),
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>, bases: &mut Bases) {
        let plain = |out: &mut Vec<u8>, kind, numbers: &[u64]| {
            out.push(kind);
            for number in numbers {
                put(out, *number);
            }
        };
        match *self {
            Self::Compute(count @ 1..=7) => out.push(kind::COMPUTE | (count as u8) << 5),
            Self::Compute(count) => plain(out, kind::COMPUTE, &[count.into()]),
            Self::Load { word, value } => {
                out.push(kind::LOAD | u8::from(value.is_some()) << 5);
                bases.put_word(out, word);
                if let Some(value) = value {
                    put(out, value);
                }
            }
            Self::Store { word, value } => {
                let (first, length) = head(kind::STORE, value);
                out.push(first);
                bases.put_word(out, word);
                out.extend_from_slice(&value.to_le_bytes()[..length]);
            }
            Self::StorePart { word, mask, value } => {
                let (first, length) = head(kind::STORE_PART, value);
                out.push(first);
                bases.put_word(out, word);
                out.push(mask);
                out.extend_from_slice(&value.to_le_bytes()[..length]);
            }
            Self::Atomic {
                word,
                mask,
                kind,
                read,
                written,
            } => {
                out.push(kind::ATOMIC | (kind as u8) << 5);
                bases.put_word(out, word);
                out.push(mask);
                put(out, read);
                put(out, written);
            }
            Self::Fence => out.push(kind::FENCE),
            Self::PrivateLoad(address) => {
                out.push(kind::PRIVATE_LOAD);
                bases.put_private(out, address);
            }
            Self::PrivateStore(address) => {
                out.push(kind::PRIVATE_STORE);
                bases.put_private(out, address);
            }
            Self::Lock { lock, turn } => plain(out, kind::LOCK, &[lock.0.into(), turn]),
            Self::Unlock(lock) => plain(out, kind::UNLOCK, &[lock.0.into()]),
            Self::Barrier(barrier) => plain(out, kind::BARRIER, &[barrier.0.into()]),
            Self::WaitBegin { condition, lock } => {
                plain(out, kind::WAIT_BEGIN, &[condition.0.into(), lock.0.into()]);
            }
            Self::WaitEnd {
                condition,
                lock,
                turn,
            } => {
                plain(
                    out,
                    kind::WAIT_END,
                    &[condition.0.into(), lock.0.into(), turn],
                );
            }
            Self::Signal(condition) => plain(out, kind::SIGNAL, &[condition.0.into()]),
            Self::Broadcast(condition) => plain(out, kind::BROADCAST, &[condition.0.into()]),
            Self::Acquire(word) => {
                out.push(kind::ACQUIRE);
                bases.put_word(out, word);
            }
            Self::Release(word) => {
                out.push(kind::RELEASE);
                bases.put_word(out, word);
            }
            Self::Await(count, value) => plain(out, kind::AWAIT, &[count.0.into(), value]),
            Self::Advance(count) => plain(out, kind::ADVANCE, &[count.0.into()]),
            Self::RegionBegin => out.push(kind::REGION_BEGIN),
            Self::RegionEnd => out.push(kind::REGION_END),
        }
    }

    /// Decodes the next event. All that it names exists in `about`.
    pub(super) fn decode(
        from: &mut Reader<'_>,
        bases: &mut Bases,
        about: &About,
    ) -> Result<Self, Flaw> {
        let first = from.byte()?;
        let extra = first >> 5;
        let kind = first & 0x1f;
        let takes_extra = matches!(
            kind,
            kind::COMPUTE | kind::LOAD | kind::STORE | kind::STORE_PART | kind::ATOMIC
        );
        if extra != 0 && !takes_extra {
            return Err(from.wrong("kind"));
        }
        let length = usize::from(extra) + 1;
        let event = match kind {
            kind::COMPUTE if extra > 0 => Self::Compute(extra.into()),
            kind::COMPUTE => match from.small("instructions")? {
                0..=7 => return Err(from.wrong("instructions")),
                count => Self::Compute(count),
            },
            kind::LOAD => Self::Load {
                word: bases.word(from, about)?,
                value: match extra {
                    0 => None,
                    1 => Some(from.number()?),
                    _ => return Err(from.wrong("kind")),
                },
            },
            kind::STORE => Self::Store {
                word: bases.word(from, about)?,
                value: from.value(length)?,
            },
            kind::STORE_PART => Self::StorePart {
                word: bases.word(from, about)?,
                mask: from.byte()?,
                value: from.value(length)?,
            },
            kind::ATOMIC => Self::Atomic {
                word: bases.word(from, about)?,
                mask: from.byte()?,
                kind: AtomicKind::ALL[usize::from(extra)],
                read: from.number()?,
                written: from.number()?,
            },
            kind::FENCE => Self::Fence,
            kind::PRIVATE_LOAD => Self::PrivateLoad(bases.private(from)?),
            kind::PRIVATE_STORE => Self::PrivateStore(bases.private(from)?),
            kind::LOCK => Self::Lock {
                lock: lock(from, about)?,
                turn: from.number()?,
            },
            kind::UNLOCK => Self::Unlock(lock(from, about)?),
            kind::BARRIER => {
                Self::Barrier(BarrierId(within(from, about.barriers.len(), "barrier")?))
            }
            kind::WAIT_BEGIN => Self::WaitBegin {
                condition: condition(from, about)?,
                lock: lock(from, about)?,
            },
            kind::WAIT_END => Self::WaitEnd {
                condition: condition(from, about)?,
                lock: lock(from, about)?,
                turn: from.number()?,
            },
            kind::SIGNAL => Self::Signal(condition(from, about)?),
            kind::BROADCAST => Self::Broadcast(condition(from, about)?),
            kind::ACQUIRE => Self::Acquire(bases.word(from, about)?),
            kind::RELEASE => Self::Release(bases.word(from, about)?),
            kind::AWAIT => Self::Await(event_count(from, about)?, from.number()?),
            kind::ADVANCE => Self::Advance(event_count(from, about)?),
            kind::REGION_BEGIN => Self::RegionBegin,
            kind::REGION_END => Self::RegionEnd,
            _ => return Err(from.wrong("kind")),
        };
        event.check().map_err(|flaw| match flaw {
            Flaw::Item { field, .. } => from.wrong(field),
            other => other,
        })?;
        from.item += 1;
        Ok(event)
    }
}

fn within(from: &mut Reader<'_>, count: usize, field: &'static str) -> Result<u32, Flaw> {
    let number = from.small(field)?;
    if number as usize >= count {
        return Err(from.wrong(field));
    }
    Ok(number)
}

fn lock(from: &mut Reader<'_>, about: &About) -> Result<LockId, Flaw> {
    within(from, about.locks.len(), "lock").map(LockId)
}

fn condition(from: &mut Reader<'_>, about: &About) -> Result<ConditionId, Flaw> {
    within(from, about.conditions.len(), "condition").map(ConditionId)
}

fn event_count(from: &mut Reader<'_>, about: &About) -> Result<EventCountId, Flaw> {
    within(from, about.event_counts.len(), "event count").map(EventCountId)
}
