//! The rebuilding of lost replicas: a move of a lost [replica](super::replicas) copies from another
//! one, the *source*.
//!
//! The mover has the mover words of both: that of the lost replica, as for any move, and that of
//! the source with a second record without frames, so that the source is neither moved nor
//! released. Writers announce all replicas and mark the chunks that they write for all movers. At
//! the flip no writer has announced the lost replica. So all replicas are equal then, and the new
//! one is equal to the source.
//!
//! A survivor of the mover finds a record without frames, and only releases it.
//!
//! Tests and proofs: see [`replicas`](super::replicas).

use super::moves::Record;
use super::{Coherent, Homes, ServerId};
use crate::error::PoolError;
use crate::layout::{Address, MapWord};
use outlive::membership::Instance;
use outlive::memory::{Memory, Offset, Ordering};

/// The replica from which a mover copies.
#[derive(Debug)]
pub(super) struct Source<M: Memory> {
    /// The record that keeps it in its place; `None` if it is the old frame of the move itself.
    record: Option<(Record, u64)>,
    /// The map word.
    pub word: MapWord,
    /// The place of the frame.
    pub frame: (M, Offset),
}

impl<M: Memory> Coherent<M> {
    /// Returns the frame of `slice` with the map word `old`; if that is lost, that of another
    /// replica, which stays in its place until [`release_source`](Self::release_source). The caller
    /// has the mover word of `slice`.
    ///
    /// # Errors
    /// If there is no replica that is alive, or another member moves it.
    pub(super) fn claim_source(
        self,
        mover: Instance,
        address: Address,
        (slice, old): (u64, MapWord),
        homes: &impl Homes<M>,
    ) -> Result<Source<M>, PoolError> {
        let lost = match self.frame(address, (slice, old), homes) {
            Ok(frame) if self.is_alive(old) => {
                return Ok(Source {
                    record: None,
                    word: old,
                    frame,
                });
            }
            Ok(_) => PoolError::Lost {
                address,
                server: ServerId(old.segment()),
            },
            Err(error) => error,
        };
        let is_lost = matches!(lost, PoolError::Lost { .. });
        let set = { is_lost && address.is_replicated() }.then(|| self.replicas_with(slice));
        let Some(set) = set.flatten() else {
            return Err(lost);
        };
        let mut refused = None;
        for other in set.slices().filter(|it| *it != slice) {
            if !self.is_alive(self.map_word(other)) {
                continue;
            }
            match self.pin(mover, self.address_in(other, address), other, homes) {
                Ok(source) => return Ok(source),
                // It was alive before: another member decides later what is lost.
                Err(PoolError::Lost { .. }) => {
                    refused.get_or_insert(PoolError::MoveCancelled { address });
                }
                Err(error) => refused = Some(error),
            }
        }
        Err(refused.unwrap_or(lost))
    }

    /// Claims the mover word of a replica, so that it stays where it is.
    fn pin(
        self,
        mover: Instance,
        address: Address,
        slice: u64,
        homes: &impl Homes<M>,
    ) -> Result<Source<M>, PoolError> {
        let most = self.sizes.moves;
        let record = { self.claim_record(mover) }.ok_or(PoolError::TooManyMoves { most })?;
        self.begin_record(record, slice);
        if !self.claim_move(record, slice) {
            self.drop_record(record, mover);
            return Err(self.being_moved(address, slice, mover));
        }
        // SeqCst: as in `move_claimed`.
        self.memory.fence(Ordering::SeqCst);
        let word = self.map_word(slice).thawed();
        let frame = match word.has_access() && word.generation() == address.generation() {
            true => self.frame(address, (slice, word), homes),
            false => Err(PoolError::Freed { address }),
        };
        let source = frame.map(|frame| Source {
            record: Some((record, slice)),
            word,
            frame,
        });
        source.inspect_err(|_| self.unpin(mover, record, slice))
    }

    fn unpin(self, mover: Instance, record: Record, slice: u64) {
        self.disclaim_move(record, slice);
        self.drop_record(record, mover);
    }

    /// Lets the source of a copy be moved and released again.
    pub(super) fn release_source(self, mover: Instance, source: &Source<M>) {
        if let Some((record, slice)) = source.record {
            self.unpin(mover, record, slice);
        }
    }

    /// Returns the address of `slice` if it is a replica that is lost, and another one is alive.
    pub fn rebuildable(self, slice: u64) -> Option<Address> {
        let word = (slice < self.sizes.slices).then(|| self.map_word(slice))?;
        let address = self.address_of(slice, word);
        let is_lost = word.has_access() && address.is_replicated() && !self.is_alive(word);
        let set = is_lost.then(|| self.replicas_with(slice)).flatten()?;
        { set.slices() }
            .any(|other| self.is_alive(self.map_word(other)))
            .then_some(address)
    }
}
