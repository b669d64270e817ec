//! The records of moves. Each has the mover, the slice, the old and new frame, and written chunks.
//!
//! ```text
//! 0   the member that moves the slice, or a survivor that completes or cancels the move
//! 8   slice + 1; 0 without a move
//! 16  the map word of the old frame
//! 24  the map word of the new frame
//! 32  a bit for each chunk that was written since it was copied
//! ```
//!
//! A slice has a *mover word*: the number of the record of its move, from 1; 0 if no member moves
//! it. A member moves the slice only after it has claimed the mover word, by a compare-and-swap.

use super::{Coherent, Run};
use crate::layout::{MOVE_BYTES, MapWord};
use outlive::membership::Instance;
use outlive::memory::{Memory, Offset, Ordering};

const SLICE: u64 = 8;
const OLD: u64 = 16;
const NEW: u64 = 24;
const WRITTEN: u64 = 32;

/// The record of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Its number, from 1.
    pub number: u64,
    at: Offset,
}

impl<M: Memory> Coherent<M> {
    fn record(self, number: u64) -> Option<Record> {
        if !(1..=u64::from(self.sizes.moves)).contains(&number) {
            return None;
        }
        let at = self.at + (self.sizes.moves_at() + (number - 1) * MOVE_BYTES);
        Some(Record { number, at })
    }

    pub(super) fn records(self) -> impl Iterator<Item = Record> {
        (1..=self.sizes.moves.into()).filter_map(move |number| self.record(number))
    }

    fn mover_at(self, slice: u64) -> Offset {
        debug_assert!(slice < self.sizes.slices);
        self.at + (self.sizes.movers_at() + slice * 8)
    }

    /// Returns the record of the move of `slice`; `None` if no member moves it.
    pub(super) fn record_of(self, slice: u64) -> Option<Record> {
        // Acquire: the contents of the record come before the claim of the slice.
        self.record(self.memory.load(self.mover_at(slice), Ordering::Acquire))
    }

    /// Returns whether the mover word of `slice` is 0, or names the record of its move.
    pub(super) fn has_sound_mover(self, slice: u64) -> bool {
        let word: u64 = self.memory.load(self.mover_at(slice), Ordering::Acquire);
        let is_of =
            |record| self.owner_of(record).is_some() && self.slice_in(record) == Some(slice);
        word == 0 || self.record(word).is_some_and(is_of)
    }

    pub(super) fn owner_of(self, record: Record) -> Option<Instance> {
        Instance::from_word(self.memory.load(record.at, Ordering::Acquire))
    }

    /// Returns a member that moves a slice of `run`.
    pub(super) fn mover_of(self, run: Run) -> Option<Instance> {
        run.slices().find_map(|slice| {
            // A record has an owner as long as a slice names it.
            let record = self.record_of(slice)?;
            self.owner_of(record)
        })
    }

    /// Claims a free record for `mover`; `None` if there is none.
    pub(super) fn claim_record(self, mover: Instance) -> Option<Record> {
        self.records().find(|record| {
            // AcqRel: the stores of the previous owner come before those of this one.
            let order = (Ordering::AcqRel, Ordering::Relaxed);
            let (memory, to) = (self.memory, mover.to_word());
            memory.load::<u64>(record.at, Ordering::Relaxed) == 0
                && memory
                    .compare_exchange(record.at, 0, to, order.0, order.1)
                    .is_ok()
        })
    }

    /// Takes over the record of the dead instance `gone` for `survivor`. Returns whether this call
    /// did: exactly one survivor succeeds.
    pub(super) fn take_over_record(
        self,
        record: Record,
        gone: Instance,
        survivor: Instance,
    ) -> bool {
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let (from, to) = (gone.to_word(), survivor.to_word());
        { self.memory }
            .compare_exchange(record.at, from, to, order.0, order.1)
            .is_ok()
    }

    /// Writes the slice into a record without frames.
    pub(super) fn begin_record(self, record: Record, slice: u64) {
        let memory = self.memory;
        for word in [OLD, NEW, WRITTEN] {
            memory.store(record.at + word, 0u64, Ordering::Relaxed);
        }
        // Release: a survivor that sees the slice sees that there are no frames.
        memory.store(record.at + SLICE, slice + 1, Ordering::Release);
    }

    /// Claims the slice for the move with this record.
    pub(super) fn claim_move(self, record: Record, slice: u64) -> bool {
        let (at, order) = (self.mover_at(slice), (Ordering::AcqRel, Ordering::Acquire));
        { self.memory }
            .compare_exchange(at, 0, record.number, order.0, order.1)
            .is_ok()
    }

    /// Ends the claim of the slice.
    pub(super) fn disclaim_move(self, record: Record, slice: u64) {
        let (at, order) = (self.mover_at(slice), (Ordering::Release, Ordering::Relaxed));
        let _ = { self.memory }.compare_exchange(at, record.number, 0, order.0, order.1);
    }

    /// Clears a record that no slice names, and releases it.
    pub(super) fn drop_record(self, record: Record, owner: Instance) {
        let memory = self.memory;
        memory.store(record.at + SLICE, 0u64, Ordering::Release);
        let (at, order) = (record.at, (Ordering::Release, Ordering::Relaxed));
        let _ = memory.compare_exchange(at, owner.to_word(), 0, order.0, order.1);
    }

    /// Returns the slice in a record.
    pub(super) fn slice_in(self, record: Record) -> Option<u64> {
        let word: u64 = self.memory.load(record.at + SLICE, Ordering::Acquire);
        word.checked_sub(1).filter(|it| *it < self.sizes.slices)
    }

    /// Returns the words of the old and the new frame; without a segment before they are known.
    pub(super) fn frames_in(self, record: Record) -> [MapWord; 2] {
        [OLD, NEW].map(|word| MapWord(self.memory.load(record.at + word, Ordering::Acquire)))
    }

    pub(super) fn set_old(self, record: Record, word: MapWord) {
        self.memory
            .store(record.at + OLD, word.0, Ordering::Release);
    }

    pub(super) fn set_new(self, record: Record, word: MapWord) {
        self.memory
            .store(record.at + NEW, word.0, Ordering::Release);
    }

    /// Returns the chunks written since the last call, a bit for each, and clears them.
    pub(super) fn take_written(self, record: Record) -> u64 {
        // Acquire: the stores of the writers come before their marks.
        { self.memory }.exchange(record.at + WRITTEN, 0, Ordering::Acquire)
    }

    /// Marks the chunks of `slice` that a writer has stored to, for a mover. The writer has still
    /// announced the slice.
    #[inline]
    pub fn mark_written(self, slice: u64, chunks: u64) {
        if let Some(record) = self.record_of(slice) {
            // Release: orders the writer's stores before the mark. If the move was cancelled and
            // the record belongs to another move, one more chunk is copied than necessary.
            { self.memory }.fetch_or(record.at + WRITTEN, chunks, Ordering::Release);
        }
    }
}
