//! The about section of a trace: everything in it except the events and the image.

use super::Flaw;
use super::varint::{Reader, put};
use crate::program::{Barrier, EventCountId, Synchronisation, Word};

/// The about section of a trace.
///
/// ```
/// use outlive_machine::trace::About;
///
/// let about = About { words: 64, threads: 2, ..About::default() };
/// assert!(about.synchronisation().locks.is_empty());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// The number of words of shared memory; every word that the trace names is below it.
    pub words: u64,
    /// The number of threads, at least 1.
    pub threads: u32,
    /// Whether threads were seen to wait for one another by reading the same word again and again.
    pub spins: bool,
    /// Whether only the region of interest was recorded.
    pub region_only: bool,
    /// The locks.
    pub locks: Vec<TracedLock>,
    /// The word of each condition variable.
    pub conditions: Vec<Word>,
    /// The barriers.
    pub barriers: Vec<Barrier>,
    /// For each event count, whether every replay must keep to it, or only one in the
    /// [recorded order](super::Order::Recorded).
    pub event_counts: Vec<bool>,
    /// The origin of the trace: texts with names such as `program`, `recorder`, `gaps`.
    pub origin: Vec<(String, String)>,
}

/// A lock in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracedLock {
    /// The lock's word.
    pub word: Word,
    /// The event count of its releases, if the order of its owners was recorded.
    pub order: Option<EventCountId>,
}

/// The most threads of a trace.
pub(super) const MOST_THREADS: u32 = 1 << 16;
/// A pebibyte: no machine has as much, and numbers of bytes do not overflow.
const MOST_WORDS: u64 = 1 << 47;
/// The most bytes of an about section, unpacked: 32 MiB, enough for some millions of locks, as many
/// as the recorder knows.
pub(super) const MOST_BYTES: usize = 1 << 25;
/// The most pairs of texts about the origin of a trace.
const MOST_ORIGINS: usize = 64;

impl About {
    /// Returns the part that a machine needs.
    pub fn synchronisation(&self) -> Synchronisation {
        Synchronisation {
            locks: self.locks.iter().map(|lock| lock.word).collect(),
            conditions: self.conditions.clone(),
            barriers: self.barriers.clone(),
            event_counts: self.event_counts.len() as u32,
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, self.words);
        put(&mut out, self.threads.into());
        put(
            &mut out,
            u64::from(self.spins) | u64::from(self.region_only) << 1,
        );
        put(&mut out, self.event_counts.len() as u64);
        out.extend(self.event_counts.iter().map(|must| u8::from(*must)));
        put(&mut out, self.locks.len() as u64);
        for lock in &self.locks {
            put(&mut out, lock.word.0);
            put(
                &mut out,
                lock.order.map_or(0, |order| u64::from(order.0) + 1),
            );
        }
        put(&mut out, self.conditions.len() as u64);
        for word in &self.conditions {
            put(&mut out, word.0);
        }
        put(&mut out, self.barriers.len() as u64);
        for barrier in &self.barriers {
            put(&mut out, barrier.counter.0);
            put(&mut out, barrier.threads.into());
        }
        put(&mut out, self.origin.len() as u64);
        for text in self.origin.iter().flat_map(|(name, what)| [name, what]) {
            put(&mut out, text.len() as u64);
            out.extend_from_slice(text.as_bytes());
        }
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Flaw> {
        let mut from = Reader::new(bytes);
        let mut about = Self {
            words: from.number()?,
            threads: from.small("threads")?,
            ..Self::default()
        };
        let flags = from.number()?;
        if flags > 3 {
            return Err(from.wrong("flags"));
        }
        (about.spins, about.region_only) = (flags & 1 != 0, flags & 2 != 0);
        // Each counted item takes at least one byte, and at most twelve times as much when decoded.
        let count = |from: &mut Reader<'_>| {
            let count = from.number()?;
            usize::try_from(count)
                .ok()
                .filter(|count| *count <= from.remains())
                .ok_or(from.wrong("count"))
        };
        for _ in 0..count(&mut from)? {
            about.event_counts.push(match from.byte()? {
                0 => false,
                1 => true,
                _ => return Err(from.wrong("event count")),
            });
        }
        for _ in 0..count(&mut from)? {
            let word = Word(from.number()?);
            let order = from.small("order")?.checked_sub(1).map(EventCountId);
            about.locks.push(TracedLock { word, order });
        }
        for _ in 0..count(&mut from)? {
            about.conditions.push(Word(from.number()?));
        }
        for _ in 0..count(&mut from)? {
            about.barriers.push(Barrier {
                counter: Word(from.number()?),
                threads: from.small("threads")?,
            });
        }
        let origins = count(&mut from)?;
        if origins > MOST_ORIGINS {
            return Err(from.wrong("names"));
        }
        for _ in 0..origins {
            let mut text = || {
                let length = count(&mut from)?;
                let bytes = from.take(length)?.to_vec();
                String::from_utf8(bytes).map_err(|_| from.wrong("text"))
            };
            let name = text()?;
            about.origin.push((name, text()?));
        }
        if from.remains() > 0 {
            return Err(Flaw::Surplus { items: 1 });
        }
        about.check()?;
        Ok(about)
    }

    /// Checks that the about section is consistent, so that a replay need not.
    pub(super) fn check(&self) -> Result<(), Flaw> {
        let wrong = |field| Err(Flaw::Field(field));
        if self.words > MOST_WORDS {
            return wrong("words");
        }
        if !(1..=MOST_THREADS).contains(&self.threads) {
            return wrong("threads");
        }
        let has_line = |word: Word, lines: u64| {
            word.place() == 0
                && word
                    .0
                    .checked_add(lines * Word::PER_LINE)
                    .is_some_and(|end| end <= self.words)
        };
        for lock in &self.locks {
            if !has_line(lock.word, 1) {
                return wrong("word of a lock");
            }
            if lock
                .order
                .is_some_and(|order| order.0 as usize >= self.event_counts.len())
            {
                return wrong("order of a lock");
            }
        }
        if !self.conditions.iter().all(|word| has_line(*word, 1)) {
            return wrong("word of a condition variable");
        }
        for barrier in &self.barriers {
            if !has_line(barrier.counter, 2) || barrier.threads == 0 {
                return wrong("barrier");
            }
        }
        Ok(())
    }
}
