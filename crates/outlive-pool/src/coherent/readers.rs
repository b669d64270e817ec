//! The announcements of readers: one line for each, with the slices that it is using.
//!
//! ```text
//! 63                      32  31  30         0
//! | number of announcements | W | slice + 1  |
//! ```
//!
//! With W the reader writes the slice. The lower half is 0 if the slot has no announcement. The
//! number distinguishes two announcements of the same slice in the same slot.

use super::{Coherent, Homes};
use crate::error::PoolError;
use crate::layout::{LINE_BYTES, LINE_SLOTS};
use outlive::membership::Instance;
use outlive::memory::{Memory, Offset, Ordering};

/// The access that a reader announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// It only reads.
    Read,
    /// It reads and writes.
    Write,
}

const WRITES: u64 = 1 << 31;
const SLICE: u64 = WRITES - 1;
const ONE: u64 = 1 << 32;
const NUMBER: u64 = !(ONE - 1);

/// The line of a reader.
#[derive(Clone, Copy, Debug)]
pub struct Line(Offset);

/// An announcement that a scan has found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Announcement {
    owner: Instance,
    at: Offset,
    word: u64,
}

impl Announcement {
    /// Returns the process of the reader.
    pub fn owner(&self) -> Instance {
        self.owner
    }
}

impl Line {
    fn slot(self, slot: u64) -> Offset {
        debug_assert!(slot < LINE_SLOTS);
        self.0 + (slot + 1) * 8
    }
}

impl<M: Memory> Coherent<M> {
    fn lines(self) -> impl Iterator<Item = Line> {
        let at = self.at + self.sizes.lines_at();
        (0..u64::from(self.sizes.readers)).map(move |line| Line(at + line * LINE_BYTES))
    }

    /// Returns the number of a line.
    pub(super) fn number_of(self, line: Line) -> usize {
        let first = self.at + self.sizes.lines_at();
        ((line.0.raw() - first.raw()) / LINE_BYTES) as usize
    }

    /// Returns the process of the line with this number.
    pub(super) fn owner_of_line(self, number: u64) -> Option<Instance> {
        let line = self.lines().nth(usize::try_from(number).ok()?)?;
        self.reader_of(line)
    }

    /// Returns the slices that a reader has announced to write.
    pub(super) fn written_by(self, line: Line) -> impl Iterator<Item = u64> {
        (0..LINE_SLOTS).filter_map(move |slot| {
            let word: u64 = self.memory.load(line.slot(slot), Ordering::Acquire);
            let slice = (word & SLICE).checked_sub(1)?;
            (word & WRITES != 0 && slice < self.sizes.slices).then_some(slice)
        })
    }

    fn reader_of(self, line: Line) -> Option<Instance> {
        Instance::from_word(self.memory.load(line.0, Ordering::Acquire))
    }

    /// Claims the line of a reader for the process `owner`; `None` if all are in use.
    ///
    /// # Crash
    /// The member that recovers `owner` releases the line.
    pub fn claim_line(self, owner: Instance) -> Option<Line> {
        self.lines().find(|line| {
            // AcqRel: the stores of the previous owner come before those of this one.
            let order = (Ordering::AcqRel, Ordering::Relaxed);
            let (at, to) = (line.0, owner.to_word());
            let memory = self.memory;
            memory.load::<u64>(at, Ordering::Relaxed) == 0
                && memory.compare_exchange(at, 0, to, order.0, order.1).is_ok()
        })
    }

    /// Announces `slice`. A fence must follow before the map word is read again.
    #[inline]
    pub(super) fn announce(self, line: Line, slot: u64, slice: u64, access: Access) {
        let at = line.slot(slot);
        // Relaxed: only the owner of the line writes it.
        let last: u64 = self.memory.load(at, Ordering::Relaxed);
        let writes = match access {
            Access::Read => 0,
            Access::Write => WRITES,
        };
        let word = (last & NUMBER).wrapping_add(ONE) | writes | (slice + 1);
        // Release: a mover that finds this announcement in place of an earlier one of the slot sees
        // the accesses that came before the earlier one was withdrawn.
        self.memory.store(at, word, Ordering::Release);
    }

    /// Ends the announcement.
    #[inline]
    pub fn withdraw(self, line: Line, slot: u64) {
        let at = line.slot(slot);
        let last: u64 = self.memory.load(at, Ordering::Relaxed);
        // Release: accesses to the slice come before it.
        self.memory.store(at, last & NUMBER, Ordering::Release);
    }

    /// Ends the announcements of a reader that has died or has forgotten guards. Replicas that it
    /// was writing are made equal. The writer has not marked the chunks that it stored to, so all
    /// chunks are marked.
    ///
    /// # Errors
    /// If a live server with a replica cannot be reached. The announcements of that slice remain.
    pub fn abandon(self, line: Line, homes: &impl Homes<M>) -> Result<(), PoolError> {
        let (remaining, failed) = self.settle_writes(line, homes);
        for slot in 0..LINE_SLOTS {
            self.withdraw_unmarked(line, slot, &remaining);
        }
        failed.map_or(Ok(()), Err)
    }

    /// Withdraws an announcement, unless it is one of the slices in `kept`.
    fn withdraw_unmarked(self, line: Line, slot: u64, kept: &[u64]) {
        let word: u64 = self.memory.load(line.slot(slot), Ordering::Acquire);
        let slice = (word & SLICE).checked_sub(1);
        if slice.is_some_and(|it| kept.contains(&it)) {
            return;
        }
        if let Some(slice) = slice.filter(|it| word & WRITES != 0 && *it < self.sizes.slices) {
            self.mark_written(slice, u64::MAX);
        }
        self.withdraw(line, slot);
    }

    /// Releases the line of `owner`. No slice is announced any more.
    pub fn release_line(self, line: Line, owner: Instance) {
        // A compare-and-swap: a survivor may have released the line.
        let order = (Ordering::Release, Ordering::Relaxed);
        let (at, from) = (line.0, owner.to_word());
        let _ = { self.memory }.compare_exchange(at, from, 0, order.0, order.1);
    }

    /// Releases the lines of the dead instance `gone` as `survivor`, which claims each one before
    /// it withdraws the announcements: a released line may have a new owner already. Returns the
    /// lines that remain the survivor's, and the last error.
    pub(super) fn release_lines(
        self,
        survivor: Instance,
        gone: Instance,
        homes: &impl Homes<M>,
    ) -> (Vec<Line>, Option<PoolError>) {
        let (mut remaining, mut failed) = (Vec::new(), None);
        for line in self.lines() {
            // AcqRel: exactly one survivor claims the line, and sees the stores of `gone`.
            let order = (Ordering::AcqRel, Ordering::Relaxed);
            let (from, to) = (gone.to_word(), survivor.to_word());
            if self.reader_of(line) == Some(gone)
                && { self.memory }
                    .compare_exchange(line.0, from, to, order.0, order.1)
                    .is_ok()
                && let Err(error) = self.finish_line(survivor, line, homes)
            {
                remaining.push(line);
                failed = Some(error);
            }
        }
        (remaining, failed)
    }

    /// Releases the line of a dead reader, which `survivor` has claimed.
    ///
    /// # Errors
    /// If a live server with a replica cannot be reached. The line remains the survivor's.
    pub fn finish_line(
        self,
        survivor: Instance,
        line: Line,
        homes: &impl Homes<M>,
    ) -> Result<(), PoolError> {
        self.abandon(line, homes)?;
        self.release_line(line, survivor);
        Ok(())
    }

    /// Returns the process of a reader that has announced one of the `slices` slices from `first`
    /// on. The caller has made these slices inaccessible and executed a SeqCst fence. A reader
    /// whose announcement is not seen here does not see the slice accessible.
    pub fn user_of(self, first: u64, slices: u64) -> Option<Instance> {
        self.announcements(first, slices).next().map(|it| it.owner)
    }

    fn announcements(self, first: u64, slices: u64) -> impl Iterator<Item = Announcement> {
        let of_line = move |line: Line| {
            let owner = self.reader_of(line)?;
            let places = (0..LINE_SLOTS).map(move |slot| line.slot(slot));
            Some(places.filter_map(move |at| {
                // Acquire: the accesses of a reader that has withdrawn come before the scan.
                let word: u64 = self.memory.load(at, Ordering::Acquire);
                let slice = (word & SLICE).checked_sub(1)?;
                let is_of = (first..first + slices).contains(&slice);
                is_of.then_some(Announcement { owner, at, word })
            }))
        };
        self.lines().filter_map(of_line).flatten()
    }

    /// Returns the announcements of `slice`, or only those of writers.
    pub(super) fn users_of(self, slice: u64, access: Access) -> Vec<Announcement> {
        let all = self.announcements(slice, 1);
        all.filter(|it| access == Access::Read || it.word & WRITES != 0)
            .collect()
    }

    /// Returns whether a reader has not withdrawn an announcement yet.
    pub(super) fn is_announced(self, announcement: &Announcement) -> bool {
        // Acquire: the accesses of a reader that has withdrawn come before this load.
        let word: u64 = self.memory.load(announcement.at, Ordering::Acquire);
        word == announcement.word
    }

    /// Returns the processes of all readers.
    pub(super) fn line_owners(self) -> impl Iterator<Item = Instance> {
        { self.lines() }.filter_map(move |line| self.reader_of(line))
    }

    /// Returns the numbers of the lines in use, with their processes.
    pub(super) fn line_owners_by_number(self) -> impl Iterator<Item = (usize, Instance)> {
        let owners = { self.lines() }.map(move |line| self.reader_of(line));
        let numbered = owners.enumerate();
        numbered.filter_map(|(line, owner)| Some((line, owner?)))
    }

    /// Returns whether a reader of `owner` uses a slice.
    pub(crate) fn has_guards(self, owner: Instance) -> bool {
        let mut own = { self.lines() }.filter(|line| self.reader_of(*line) == Some(owner));
        own.any(|line| {
            let word = |slot| self.memory.load::<u64>(line.slot(slot), Ordering::Acquire);
            let in_use = |slot| word(slot) & SLICE != 0;
            (0..LINE_SLOTS).any(in_use)
        })
    }
}
