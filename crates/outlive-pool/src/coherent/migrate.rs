//! The move of a slice to another server, while readers and writers use it.
//!
//! 1. The mover stores the slice in a record. It sets the mover word from 0 to the number of the
//!    record by a compare-and-swap, executes a full fence, and checks that the map word has access.
//! 2. The mover stores a free frame of the new server in the record, and then claims the frame. The
//!    frame belongs to the slice, and no map word names it.
//! 3. The mover waits for the writers that announced the slice before step 1. A later writer finds
//!    the mover word when its guard ends, and marks the chunks that it has written in the record.
//! 4. The mover copies all chunks. It copies the marked chunks again until at most one is marked,
//!    in at most [`MAX_COPY_ROUNDS`] passes.
//! 5. *Freeze*: the mover sets F in the map word, executes a full fence, and waits until no writer
//!    has announced the slice. New writers wait. The mover copies the chunks marked last.
//! 6. *Flip*: the mover replaces the frozen map word by a frozen one that names the new frame, by a
//!    compare-and-swap. It executes a full fence and reads the state of the new server. If that has
//!    died, the mover takes the flip back. If not, it thaws the slice.
//! 7. The mover executes a full fence and scans for readers of the old frame. When each of them has
//!    withdrawn its announcement, the mover releases the old frame, the mover word and the record.
//!
//! The old frame is the valid copy before the flip, and the new frame after it. A survivor reads
//! the map word. If it names the new frame, the survivor executes step 7. If not, the survivor
//! thaws the slice and releases the new frame. The map word does not change under the survivor:
//! only the holder of the mover word moves a slice, and a slice with a mover word may be made
//! inaccessible, but is not released.
//!
//! A release makes the slice inaccessible, executes a full fence, and reads the mover word. A mover
//! claims the mover word, executes a full fence, and reads the map word. One of the two sees the
//! other.
//!
//! A writer that has waited for 1 ms [thaws](Coherent::thaw) the slice. The flip then fails, and
//! the move is cancelled.
//!
//! Tests: tests/pool/moves.rs; proofs: lab/outlive-proofs/src/memory_pool/move_sweeps.rs and
//! move_scenarios.rs.

use super::moves::Record;
use super::readers::{Access, Announcement};
use super::rebuild::Source;
use super::{Coherent, Home, Homes, Phase, Run, ServerId};
use crate::error::PoolError;
use crate::layout::{Address, MapWord};
use core::ops::Range;
use outlive::membership::Instance;
use outlive::memory::{Memory, Offset, Ordering};

outlive::memory::crash_points! {
    /// Crash points of a move.
    pub enum MovePoint for "pool.move" {
        /// The record names the slice.
        Recorded,
        /// The mover word names the record.
        Claimed,
        /// The record names a frame of the new server, which is not claimed.
        Pending,
        /// The new frame is claimed; the map word names the old frame.
        Framed,
        /// No writer begins.
        Frozen,
        /// The map word names the new frame.
        Flipped,
        /// The old frame, or the new frame of a cancelled move, is released.
        Released,
        /// The mover word is cleared; the record still names the slice.
        Disclaimed,
    }
}

/// The maximum number of copy passes before a slice is frozen.
const MAX_COPY_ROUNDS: u32 = 8;

/// The number of chunks of a slice, each with a bit in a word.
const CHUNKS: u64 = 64;

/// The copy rate of a mover, and its time-out for writers.
pub trait Pace {
    /// Called after `bytes` bytes were copied. May wait, except while the slice is frozen.
    fn copied(&mut self, bytes: u64, is_frozen: bool);

    /// Called repeatedly while the mover waits for a writer. Returns whether the mover continues
    /// to wait.
    fn waits(&mut self) -> bool;
}

/// The reason for a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveReason {
    /// The slice shall be on the server. A lost replica is rebuilt there.
    Requested,
    /// The slice is a lost replica. If it is not lost any more, it stays.
    LostReplica,
}

/// A move that its mover, or a survivor, has not completed or cancelled yet.
#[derive(Debug)]
#[must_use = "the move is finished later"]
pub struct Unfinished {
    record: Record,
    slice: u64,
    /// Whether the slice has been moved.
    has_moved: bool,
    /// The announcements of readers that may use the old frame.
    old: Vec<Announcement>,
}

impl Unfinished {
    /// Returns the processes of readers that used the old frame when it was last looked at.
    pub fn readers(&self) -> impl Iterator<Item = Instance> {
        self.old.iter().map(Announcement::owner)
    }
}

/// The failure of a move.
#[derive(Debug)]
pub struct NotMoved {
    /// The reason.
    pub error: Box<PoolError>,
    /// The move, if it could not be cancelled yet, because a server could not be reached.
    pub unfinished: Option<Unfinished>,
}

impl From<PoolError> for NotMoved {
    fn from(error: PoolError) -> Self {
        Self {
            error: Box::new(error),
            unfinished: None,
        }
    }
}

impl<M: Memory> Coherent<M> {
    /// Moves the slice of `address` to the server `to`, as the process `mover`, while readers and
    /// writers of all processes continue. The caller passes the result to
    /// [`finish_move`](Self::finish_move). Returns `None` if the slice is already on `to`.
    ///
    /// Waits for each writer that keeps its guard until [`Pace::waits`] returns `false`.
    ///
    /// # Errors
    /// If the slice is not allocated, belongs to a leased object, is lost, is being moved, or is
    /// still written; or the server is not live or has no free frame. The slice stays where it is.
    ///
    /// # Crash
    /// A survivor that [recovers](Self::recover) `mover` completes or cancels the move.
    pub fn move_slice(
        self,
        mover: Instance,
        address: Address,
        (to, why): (ServerId, MoveReason),
        homes: &impl Homes<M>,
        pace: &mut impl Pace,
    ) -> Result<Option<Unfinished>, NotMoved> {
        let slice = address.position() >> self.sizes.slice_bits;
        if slice >= self.sizes.slices {
            return Err(PoolError::Freed { address }.into());
        }
        // The bytes of objects are read in place, without announcements.
        if address.is_of_object() {
            return Err(PoolError::OfObject { address }.into());
        }
        let record = self.claim_record(mover);
        let most = self.sizes.moves;
        let record = record.ok_or(PoolError::TooManyMoves { most })?;
        self.begin_record(record, slice);
        self.memory.crash_point(MovePoint::Recorded);
        if !self.claim_move(record, slice) {
            self.drop_record(record, mover);
            return Err(self.being_moved(address, slice, mover).into());
        }
        self.memory.crash_point(MovePoint::Claimed);
        let mut unfinished = Unfinished {
            record,
            slice,
            has_moved: false,
            old: Vec::new(),
        };
        let to = (to, why);
        let error = match self.move_claimed((mover, record), (address, slice), to, homes, pace) {
            Ok(true) => {
                unfinished.has_moved = true;
                unfinished.old = self.users_after(slice, record);
                return Ok(Some(unfinished));
            }
            Ok(false) => None,
            Err(error) => Some(error),
        };
        // Without the new frame, nothing waits for readers.
        let cancelled = self.finish_move(mover, &mut unfinished, homes);
        match (error, cancelled) {
            (None, Ok(_)) => Ok(None),
            (Some(error), Ok(_)) => Err(error.into()),
            (error, Err(unreachable)) => Err(NotMoved {
                error: Box::new(error.unwrap_or(unreachable)),
                unfinished: Some(unfinished),
            }),
        }
    }

    /// Returns the error for a slice that another member moves.
    pub(super) fn being_moved(self, address: Address, slice: u64, mover: Instance) -> PoolError {
        let other = self.mover_of(Run {
            first: slice,
            slices: 1,
        });
        let by = other.unwrap_or(mover);
        PoolError::BeingMoved { address, by }
    }

    /// Moves a slice whose mover word `mover` has. Returns `false` if the slice is on `to` already.
    fn move_claimed(
        self,
        (mover, record): (Instance, Record),
        (address, slice): (Address, u64),
        (to, why): (ServerId, MoveReason),
        homes: &impl Homes<M>,
        pace: &mut impl Pace,
    ) -> Result<bool, PoolError> {
        // SeqCst: either this mover sees that the slice is inaccessible, or the member that made it
        // so sees the mover. And either this mover sees the announcement of a writer, or that
        // writer sees the mover.
        self.memory.fence(Ordering::SeqCst);
        let old = self.map_word(slice).thawed();
        if !old.has_access() || old.generation() != address.generation() {
            return Err(PoolError::Freed { address });
        }
        let is_alive = self.is_alive(old);
        if is_alive && (old.segment() == to.0 || why == MoveReason::LostReplica) {
            return Ok(false);
        }
        // Before a frame is claimed: a rebuild may have no other server.
        if address.is_replicated() && self.replica_is_on(slice, to) {
            return Err(PoolError::HasReplica {
                address,
                server: to,
            });
        }
        let source = self.claim_source(mover, address, (slice, old), homes)?;
        let moved = self
            .claim_target(record, (address, slice, old), to, homes)
            .and_then(|new| {
                self.copy_and_flip(record, (address, slice), (old, new), &source, homes, pace)
            });
        self.release_source(mover, &source);
        moved.map(|()| true)
    }

    /// Stores a frame of the server `to` in the record, and claims it.
    fn claim_target(
        self,
        record: Record,
        (address, slice, old): (Address, u64, MapWord),
        to: ServerId,
        homes: &impl Homes<M>,
    ) -> Result<MapWord, PoolError> {
        self.set_old(record, old);
        let entry = self.server(to).filter(|it| it.phase == Phase::Live);
        let entry = entry.ok_or_else(|| self.not_live(to))?;
        let home = homes.home(to.0, entry.generation)?;
        let home = home.ok_or_else(|| match self.has_memory(to, entry.generation) {
            true => PoolError::Damaged {
                address,
                server: to,
            },
            false => self.not_live(to),
        })?;
        let note = |word| {
            self.set_new(record, word);
            self.memory.crash_point(MovePoint::Pending);
        };
        let claimed = self.claim_frame(slice, old.generation(), &entry, home, note);
        let Some((new, _)) = claimed else {
            return Err(PoolError::OutOfMemory {
                slice_bytes: self.sizes.slice_bytes(),
                servers: 1,
            });
        };
        self.memory.crash_point(MovePoint::Framed);
        match address.is_replicated() && self.may_meet_replica(slice, new) {
            true => Err(PoolError::HasReplica {
                address,
                server: to,
            }),
            false => Ok(new),
        }
    }

    /// Returns the error for a target that is not live, or not any more.
    fn not_live(self, server: ServerId) -> PoolError {
        let phase = self.server(server).map_or(Phase::Free, |it| it.phase);
        PoolError::NotLive { server, phase }
    }

    /// Copies the slice from `source` to the frame of `new`, and flips its map word from `old`.
    fn copy_and_flip(
        self,
        record: Record,
        (address, slice): (Address, u64),
        (old, new): (MapWord, MapWord),
        source: &Source<M>,
        homes: &impl Homes<M>,
        pace: &mut impl Pace,
    ) -> Result<(), PoolError> {
        let to = ServerId(new.segment());
        let target = self.frame(address, (slice, new), homes);
        let target = target.map_err(|error| match error {
            PoolError::Lost { .. } => self.not_live(to),
            error => error,
        })?;
        let early = self.users_of(slice, Access::Write);
        self.wait_for(address, early, pace, || true)?;
        let mut chunks = u64::MAX;
        for _ in 0..MAX_COPY_ROUNDS {
            self.copy(chunks, source.frame, target, |bytes| {
                pace.copied(bytes, false)
            });
            chunks = self.take_written(record);
            if chunks.count_ones() <= 1 {
                break;
            }
        }
        let order = (Ordering::AcqRel, Ordering::Acquire);
        let (at, frozen) = (self.map_at(slice), old.frozen());
        let swap = |from: MapWord, to: MapWord| {
            let swapped = { self.memory }.compare_exchange(at, from.0, to.0, order.0, order.1);
            swapped.map_err(|found| match MapWord(found).has_access() {
                true => PoolError::MoveCancelled { address },
                false => PoolError::Freed { address },
            })
        };
        swap(old, frozen)?;
        self.memory.crash_point(MovePoint::Frozen);
        // SeqCst: either this scan finds the announcement of a writer, or the writer sees F.
        self.memory.fence(Ordering::SeqCst);
        let late = self.users_of(slice, Access::Write);
        self.wait_for(address, late, pace, || self.map_word(slice) == frozen)?;
        chunks |= self.take_written(record);
        self.copy(chunks, source.frame, target, |bytes| {
            pace.copied(bytes, true)
        });
        // Acquire: as in `confirm`.
        self.memory.fence(Ordering::Acquire);
        if !self.is_alive(source.word) {
            let server = ServerId(source.word.segment());
            // Another replica may be alive.
            return Err(match address.is_replicated() {
                true => PoolError::MoveCancelled { address },
                false => PoolError::Lost { address, server },
            });
        }
        if !self.is_alive(new) {
            return Err(self.not_live(to));
        }
        // Frozen until the new server is known to have been alive at the flip: no writer begins, so
        // both frames are equal, and the flip can be taken back.
        let flipped = new.with_access().frozen();
        swap(frozen, flipped)?;
        self.memory.crash_point(MovePoint::Flipped);
        // SeqCst: the state of the new server is read after the flip.
        self.memory.fence(Ordering::SeqCst);
        self.thaw_slice(slice);
        match self.map_word(slice).has_frame_of(old) {
            true => Err(self.not_live(to)),
            false => Ok(()),
        }
    }

    pub(super) fn frame(
        self,
        address: Address,
        (slice, word): (u64, MapWord),
        homes: &impl Homes<M>,
    ) -> Result<(M, Offset), PoolError> {
        let server = ServerId(word.segment());
        let home: Option<Home<M>> = homes.home(word.segment(), word.server_generation())?;
        let frame = home.and_then(|home| home.frame_of(word.index().into(), slice));
        frame.ok_or_else(|| match self.is_lost_by_now(word) {
            true => PoolError::Lost { address, server },
            false => PoolError::Damaged { address, server },
        })
    }

    /// Waits until the writers have withdrawn these announcements. Fails when `goes_on` or
    /// [`Pace::waits`] returns `false`.
    fn wait_for(
        self,
        address: Address,
        writers: Vec<Announcement>,
        pace: &mut impl Pace,
        goes_on: impl Fn() -> bool,
    ) -> Result<(), PoolError> {
        for writer in writers {
            while self.is_announced(&writer) {
                if !goes_on() {
                    return Err(PoolError::MoveCancelled { address });
                }
                if !pace.waits() {
                    let by = writer.owner();
                    return Err(PoolError::StillWritten { address, by });
                }
                self.memory.spin_hint();
            }
        }
        Ok(())
    }

    /// Copies the chunks with a bit in `chunks`.
    fn copy(
        self,
        chunks: u64,
        source: (M, Offset),
        target: (M, Offset),
        mut copied: impl FnMut(u64),
    ) {
        let (bytes, mut piece) = (1 << self.chunk_bits(), [0; PIECE as usize]);
        for chunk in (0..CHUNKS).filter(|chunk| chunks >> chunk & 1 != 0) {
            let start = chunk * bytes;
            // A slice may have fewer chunks than bits.
            let end = self.sizes.slice_bytes().min(start + bytes);
            copy_while(start..end, (source, target), &mut piece, || true);
            copied(end.saturating_sub(start));
        }
    }

    /// Returns the logarithm of the number of bytes of a chunk: a 64th of a slice.
    pub fn chunk_bits(self) -> u32 {
        self.sizes.slice_bits.saturating_sub(6).max(3)
    }

    /// Thaws the slice of `address`, so that waiting writers can begin. A frozen move is cancelled.
    pub fn thaw(self, address: Address) {
        let slice = address.position() >> self.sizes.slice_bits;
        if slice < self.sizes.slices {
            self.thaw_slice(slice);
        }
    }

    /// Returns the map word of the old frame, if `word` is that of a slice that was flipped and is
    /// still frozen, and the new server has died: the flip can be taken back.
    pub(super) fn doomed_flip(self, slice: u64, word: MapWord) -> Option<MapWord> {
        let server = ServerId(word.segment());
        if !word.is_frozen() || self.has_memory(server, word.server_generation()) {
            return None;
        }
        let [old, new] = self.frames_in(self.record_of(slice)?);
        word.has_frame_of(new).then_some(old)
    }

    /// Ends the freeze of a slice. A flip to a server that has died is taken back: as long as the
    /// map word is frozen, no writer begins, so both frames are equal.
    pub(super) fn thaw_slice(self, slice: u64) {
        let (at, word) = (self.map_at(slice), self.map_word(slice));
        if !word.is_frozen() {
            return;
        }
        let to = self.doomed_flip(slice, word).unwrap_or(word.thawed());
        // No retry after a failure: the slice was flipped, thawed or made inaccessible. If the
        // record has become that of another move, the word has changed as well.
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let _ = { self.memory }.compare_exchange(at, word.0, to.0, order.0, order.1);
    }

    /// Returns the announcements of a slice that was moved: the frame that they may use is not
    /// released before they end. A lost frame is not released.
    fn users_after(self, slice: u64, record: Record) -> Vec<Announcement> {
        if !self.is_alive(self.frames_in(record)[0]) {
            return Vec::new();
        }
        // SeqCst: a reader whose announcement the scan does not find sees the new map word.
        self.memory.fence(Ordering::SeqCst);
        self.users_of(slice, Access::Read)
    }

    /// Releases the old frame of a slice that was moved, if no reader uses that any more, or the
    /// new one of a move that was cancelled. Returns whether the move is finished.
    ///
    /// # Errors
    /// If a live server cannot be reached.
    ///
    /// # Crash
    /// A survivor that recovers `owner` continues.
    pub fn finish_move(
        self,
        owner: Instance,
        unfinished: &mut Unfinished,
        homes: &impl Homes<M>,
    ) -> Result<bool, PoolError> {
        let (record, slice) = (unfinished.record, unfinished.slice);
        if !unfinished.has_moved {
            self.thaw_slice(slice);
        }
        unfinished.old.retain(|reader| self.is_announced(reader));
        if !unfinished.old.is_empty() {
            return Ok(false);
        }
        let [old, new] = self.frames_in(record);
        let vacated = if unfinished.has_moved { old } else { new };
        // The frames of a dead server no longer exist. If the new frame was not claimed, its fine
        // word does not name the slice, and `release` does nothing.
        if vacated.segment() != 0
            && let Some(home) = homes.home(vacated.segment(), vacated.server_generation())?
        {
            home.release(vacated.index().into(), slice);
        }
        self.memory.crash_point(MovePoint::Released);
        self.disclaim_move(record, slice);
        self.memory.crash_point(MovePoint::Disclaimed);
        self.drop_record(record, owner);
        Ok(true)
    }

    /// Completes or cancels the moves of the dead instance `gone` as `survivor`. Returns those that
    /// are not finished, and the last error.
    pub(super) fn recover_moves(
        self,
        survivor: Instance,
        gone: Instance,
        homes: &impl Homes<M>,
    ) -> (Vec<Unfinished>, Option<PoolError>) {
        let (mut remaining, mut failed) = (Vec::new(), None);
        for record in self.records() {
            if self.owner_of(record) != Some(gone) || !self.take_over_record(record, gone, survivor)
            {
                continue;
            }
            let slice = self.slice_in(record);
            let claimed = slice.filter(|slice| self.record_of(*slice) == Some(record));
            let Some(slice) = claimed else {
                self.drop_record(record, survivor);
                continue;
            };
            // The mover may have died with the slice frozen, before the flip or after it.
            self.thaw_slice(slice);
            let [_, new] = self.frames_in(record);
            let has_moved = new.segment() != 0 && self.map_word(slice).has_frame_of(new);
            let mut unfinished = Unfinished {
                record,
                slice,
                has_moved,
                old: match has_moved {
                    true => self.users_after(slice, record),
                    false => Vec::new(),
                },
            };
            match self.finish_move(survivor, &mut unfinished, homes) {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => failed = Some(error),
            }
            remaining.push(unfinished);
        }
        (remaining, failed)
    }

    /// Returns whether a move of `slice` has the frame with this word.
    pub(super) fn is_moving(self, slice: u64, frame: MapWord) -> bool {
        let record = self.record_of(slice);
        record.is_some_and(|record| {
            self.frames_in(record)
                .iter()
                .any(|it| it.has_frame_of(frame))
        })
    }
}

/// The number of bytes that are read before they are written.
pub(super) const PIECE: u64 = 4096;

/// Copies bytes of a frame to another one by way of `piece`, as long as `goes_on`, which is called
/// after a piece was read and before it is written. Returns whether all of them were copied.
pub(super) fn copy_while<M: Memory>(
    range: Range<u64>,
    ((source, from), (target, to)): ((M, Offset), (M, Offset)),
    piece: &mut [u8; PIECE as usize],
    goes_on: impl Fn() -> bool,
) -> bool {
    for at in range.clone().step_by(PIECE as usize) {
        let piece = &mut piece[..PIECE.min(range.end - at) as usize];
        source.copy_out(from + at, piece);
        if !goes_on() {
            return false;
        }
        target.copy_in(to + at, piece);
    }
    true
}
