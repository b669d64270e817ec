//! The last deaths of workers in tasks: a ring in the pool.
//!
//! A worker that has taken over a task from a dead one records the death in a *note* before it runs
//! the task. The notes decide when a task is poisoned, so neither failed attempts nor workers that
//! [could not do it](crate::TaskError::unable) count. They also name the workers that died in it,
//! and how their processes ended.
//!
//! | word | what |
//! | --- | --- |
//! | 0 | the number of the note plus 1, or 0 while the entry is written |
//! | 8 | the offset of the task's descriptor |
//! | 16 | the number of the descriptor's life |
//! | 24 | the dead worker |
//! | 32 | its process, or 0 |
//! | 40 | the wait status of that process plus 1, or 0 |
//!
//! The first word is cleared before the others are written, and written last; no two notes have the
//! same number. So a reader that finds the same number in it before and after it has read the other
//! words has read one note.
//!
//! A worker that dies before it has written its note leaves the task one more attempt. So does a
//! note that overwrites the oldest one, when more workers have died than the ring has entries:
//! [`ENTRIES_PER_SLOT`] for each slot, and enough for the limit of one task. Two workers write one
//! entry at the same time only if one of them sleeps between a few stores while all other entries
//! are written; the mixed entry is wrong about one death.
//!
//! Tests: at the end of this file, and `tests/poison.rs`; proofs: `proofs/deaths.rs`.

use core::fmt;
use outlive::membership::{Instance, Records};
use outlive::memory::{Memory, Native, Offset, Ordering};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

outlive::memory::crash_points! {
    /// The crash points of the note of a death.
    pub enum DeathPoint for "tasks.death" {
        /// The note has its number; the entry still holds an older note.
        Numbered,
        /// The entry holds no note.
        Cleared,
        /// The note is complete.
        Noted,
    }
}

const ENTRIES_PER_SLOT: u32 = 4;
const MAX_ENTRIES: u32 = 256;
/// The count of notes precedes the entries, on a line of its own.
const HEAD: u64 = 128;
const ENTRY: u64 = 64;

pub const NUMBER: u64 = 0;
const TASK: u64 = 8;
const LIFE: u64 = 16;
const WORKER: u64 = 24;
const PROCESS: u64 = 32;
const ENDED: u64 = 40;

/// The time that the report of a poisoned task waits for the supervisor of the last dead worker to
/// record how its process ended.
const PATIENCE: Duration = Duration::from_millis(200);

/// A death of a worker in a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crash {
    pub worker: Instance,
    pub process: Option<Instance>,
    /// The wait status of the worker's process, if its supervisor has recorded it.
    pub ended: Option<i32>,
    at: Offset,
    number: u64,
}

impl fmt::Display for Crash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.worker)?;
        if let Some(process) = self.process {
            write!(f, " of process {process}")?;
        }
        match self.ended {
            Some(status) => write!(f, " ({})", ExitStatus::from_raw(status)),
            None => Ok(()),
        }
    }
}

/// A handle on the ring.
#[derive(Clone, Copy, Debug)]
pub struct Crashes<M: Memory = Native> {
    memory: M,
    at: Offset,
    entries: u64,
}

impl<M: Memory> Crashes<M> {
    /// Returns the ring at `at` of a pool with `slots` slots in which
    /// `crash_limit` deaths poison a task. The memory of a new ring must be zero.
    pub fn new(memory: M, at: Offset, slots: u32, crash_limit: u32) -> Self {
        let entries = Self::entries(slots, crash_limit);
        Self {
            memory,
            at,
            entries,
        }
    }

    /// Returns the number of entries: enough for the deaths that poison one task while each other
    /// slot loses a worker.
    fn entries(slots: u32, crash_limit: u32) -> u64 {
        let for_one = crash_limit.saturating_add(slots);
        let entries = slots.saturating_mul(ENTRIES_PER_SLOT).max(for_one);
        entries.min(MAX_ENTRIES).into()
    }

    /// Returns the size in bytes of the ring that [`new`](Self::new) opens.
    pub fn bytes(slots: u32, crash_limit: u32) -> u64 {
        HEAD + Self::entries(slots, crash_limit) * ENTRY
    }

    /// Records that `dead` died in `task`, in life `life` of its descriptor. `records` name its
    /// process.
    ///
    /// # Crash
    /// The note exists or does not.
    pub fn note(self, task: Offset, life: u64, dead: Instance, records: Option<Records<M>>) {
        let record = records.and_then(|records| records.read(dead));
        self.note_of(task, life, dead, record.and_then(|record| record.process));
    }

    /// Does the same as [`note`](Self::note) for a worker of `process`.
    ///
    /// # Crash
    /// The outcome is that of a crash in [`note`](Self::note).
    pub fn note_of(self, task: Offset, life: u64, dead: Instance, process: Option<Instance>) {
        let memory = self.memory;
        let (at, number) = self.take_entry();
        memory.crash_point(DeathPoint::Numbered);
        memory.store(at + NUMBER, 0u64, Ordering::Relaxed);
        // Release fence: a reader that sees a word below does not see the number of the note
        // before.
        memory.fence(Ordering::Release);
        memory.crash_point(DeathPoint::Cleared);
        self.fill(at, (task, life), (dead, process));
        // Release: the number comes after the rest.
        memory.store(at + NUMBER, number, Ordering::Release);
        memory.persist(at, ENTRY);
        memory.crash_point(DeathPoint::Noted);
    }

    /// Takes the next entry, which may still hold an older note. Returns its offset, and the number
    /// of the note plus 1.
    pub fn take_entry(self) -> (Offset, u64) {
        // Relaxed: the number alone decides.
        let number = self.memory.fetch_add(self.at, 1u64, Ordering::Relaxed);
        let at = self.at + HEAD + number % self.entries * ENTRY;
        (at, number + 1)
    }

    /// Writes all words of a note except the number.
    pub fn fill(
        self,
        at: Offset,
        (task, life): (Offset, u64),
        (dead, process): (Instance, Option<Instance>),
    ) {
        let words = [
            (TASK, task.raw()),
            (LIFE, life),
            (WORKER, dead.to_word()),
            (PROCESS, process.map_or(Instance::NONE, Instance::to_word)),
            (ENDED, 0),
        ];
        for (place, word) in words {
            self.memory.store(at + place, word, Ordering::Relaxed);
        }
    }

    /// Returns the noted deaths in `task`, in life `life` of its descriptor, in their order.
    pub fn of(self, task: Offset, life: u64) -> Vec<Crash> {
        let memory = self.memory;
        let entries = (0..self.entries).map(|index| self.at + HEAD + index * ENTRY);
        let mut all: Vec<Crash> = entries
            .filter_map(|at| {
                // Acquire: all words are those of this note, or of a later one.
                let number: u64 = memory.load(at + NUMBER, Ordering::Acquire);
                let word = |place| memory.load::<u64>(at + place, Ordering::Relaxed);
                if number == 0 || (word(TASK), word(LIFE)) != (task.raw(), life) {
                    return None;
                }
                let crash = Crash {
                    worker: Instance::from_word(word(WORKER))?,
                    process: Instance::from_word(word(PROCESS)),
                    ended: word(ENDED)
                        .checked_sub(1)
                        .map(|status| status as u32 as i32),
                    at,
                    number,
                };
                // Acquire fence, then the number again: if a word above is a later note's, the
                // number differs.
                memory.fence(Ordering::Acquire);
                (word(NUMBER) == number).then_some(crash)
            })
            .collect();
        all.sort_unstable_by_key(|crash| crash.number);
        all
    }

    /// Adds to `crashes` how their processes ended, as far as `records` still have it: the next
    /// process with the same id that ends replaces the status of this one.
    pub fn learn_ends(self, crashes: &mut [Crash], records: Option<Records<M>>) {
        for crash in crashes.iter_mut().filter(|crash| crash.ended.is_none()) {
            crash.ended = crash
                .process
                .zip(records)
                .and_then(|(process, of)| of.ended(process));
            if let Some(status) = crash.ended {
                // Relaxed: for the report alone. The status is not stored if the entry holds
                // another note by now.
                let (word, order) = (u64::from(status as u32) + 1, Ordering::Relaxed);
                let number: u64 = self.memory.load(crash.at + NUMBER, order);
                if number == crash.number {
                    let at = crash.at + ENDED;
                    let _ = self.memory.compare_exchange(at, 0, word, order, order);
                }
            }
        }
    }

    /// Waits at most [`PATIENCE`] for the end of the last of `crashes` to be known.
    pub fn await_last_end(self, crashes: &mut [Crash], records: Option<Records<M>>) {
        let until = Instant::now() + PATIENCE;
        loop {
            self.learn_ends(crashes, records);
            let is_known = crashes
                .last()
                .is_none_or(|last| last.ended.is_some() || last.process.is_none());
            if is_known || records.is_none() || Instant::now() >= until {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlive::memory::PersistenceDomain;

    #[test]
    fn deaths_are_found_by_task_and_life_until_they_are_overwritten() {
        let memory = Native::leaked(1 << 14, PersistenceDomain::Flushed);
        let crashes = Crashes::new(memory, Offset::new(128), 2, 5);
        let (task, other) = (Offset::new(4096), Offset::new(8192));
        let worker = |id| Instance::new(id, 3);
        for id in 1..=3 {
            crashes.note(task, 7, worker(id), None);
            crashes.note(other, 7, worker(id), None);
        }
        crashes.note(task, 8, worker(4), None);
        let workers = |task, life| -> Vec<Instance> {
            let all = crashes.of(task, life).into_iter();
            all.map(|crash| crash.worker).collect()
        };
        assert_eq!(workers(task, 7), [worker(1), worker(2), worker(3)]);
        assert_eq!(workers(task, 8), [worker(4)]);
        assert_eq!(workers(task, 9), []);
        // Eight entries: one is free, then the oldest are overwritten.
        for id in 5..=7 {
            crashes.note(other, 9, worker(id), None);
        }
        assert_eq!(workers(task, 7), [worker(2), worker(3)]);
        assert_eq!(workers(other, 7), [worker(2), worker(3)]);
        assert_eq!(workers(other, 9), [worker(5), worker(6), worker(7)]);
        // The deaths of one task fit, however few slots there are.
        for (slots, limit) in [(1, 5), (3, 200), (4094, 200)] {
            assert!(Crashes::<Native>::entries(slots, limit) >= u64::from(limit + 1));
        }
    }
}
