//! What a thread did, and how that is written.

use super::varint::{Reader, put, unzigzag, zigzag};
use super::{About, Flaw};
use crate::program::{BarrierId, ConditionId, EventCountId, LockId, Word};

/// One thing that a recorded thread did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// So many instructions (not 0) that accessed no memory.
    Compute(u32),
    /// A word was read, or part of one.
    Load {
        /// Which one.
        word: Word,
        /// What was read, if that was asked for.
        value: Option<u64>,
    },
    /// A whole word was written.
    Store {
        /// Which one.
        word: Word,
        /// What it held then.
        value: u64,
    },
    /// Some bytes of a word were written, not all and not none.
    StorePart {
        /// Which word.
        word: Word,
        /// Which bytes; bit 0 stands for the lowest.
        mask: u8,
        /// What the *whole* word held after the store.
        value: u64,
    },
    /// A word, or some bytes of it, was read and written at once.
    Atomic {
        /// Which word.
        word: Word,
        /// Which bytes, at least one.
        mask: u8,
        /// By which instruction.
        kind: AtomicKind,
        /// What these bytes held, at their place in the word; the others are zero.
        read: u64,
        /// What they held afterwards.
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
        /// Which one.
        lock: LockId,
        /// How often it had been taken before, by whomever.
        turn: u64,
    },
    /// A lock was given back.
    Unlock(LockId),
    /// A barrier was arrived at, and left.
    Barrier(BarrierId),
    /// The thread began to wait at a condition variable, and gave the lock back.
    WaitBegin {
        /// Where it waited.
        condition: ConditionId,
        /// What it held.
        lock: LockId,
    },
    /// It went on, and took the lock again, as the `turn`-th time.
    WaitEnd {
        /// Where it waited.
        condition: ConditionId,
        /// What it took.
        lock: LockId,
        /// How often that had been taken before.
        turn: u64,
    },
    /// One who waited was to be woken.
    Signal(ConditionId),
    /// All who waited were to be woken.
    Broadcast(ConditionId),
    /// What comes after is ordered after what the word's writer did before.
    Acquire(Word),
    /// The other side of [`Acquire`](Self::Acquire).
    Release(Word),
    /// What comes next came when the event count had been advanced so often.
    Await(EventCountId, u64),
    /// An event count was advanced.
    Advance(EventCountId),
    /// The region of interest begins.
    RegionBegin,
    /// The region of interest ends.
    RegionEnd,
}

/// What an [atomic](Event::Atomic) was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AtomicKind {
    /// Another value instead.
    Exchange,
    /// A sum or difference.
    Add,
    /// All bits of both.
    Or,
    /// The common bits.
    And,
    /// The bits that differ.
    Xor,
    /// The complement of the common bits.
    Nand,
    /// A compare-and-swap that swapped.
    Swapped,
    /// A compare-and-swap that did not: nothing was written.
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

/// All bytes of `mask` that are in it, as bits of a word.
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

/// The addresses that the next ones of a block are told from. Each block begins with zeros.
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

/// The kind, and bytes that `value` needs less one.
fn head(kind: u8, value: u64) -> (u8, usize) {
    let length = (8 - value.leading_zeros() as usize / 8).max(1);
    (kind | ((length - 1) as u8) << 5, length)
}

impl Event {
    /// How many instructions it stands for: none, if it only says what comes when.
    pub(super) fn instructions(&self) -> u64 {
        match self {
            Self::Compute(count) => u64::from(*count),
            Self::Acquire(_) | Self::Release(_) | Self::Await(..) | Self::Advance(_) => 0,
            Self::RegionBegin | Self::RegionEnd => 0,
            _ => 1,
        }
    }

    /// Whether it can stand in a trace at all, besides what the trace's [`About`] has.
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

    /// The next event. What it names exists in `about`.
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
