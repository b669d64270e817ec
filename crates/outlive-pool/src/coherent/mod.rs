//! The coherent region: the tables of a pool in the first segment of its pod, and the algorithms on
//! them, over any [`Memory`].
//!
//! ```text
//! 0x00  magic, format, bits of a slice, slices, servers, readers, counters, quota of objects
//! 0x40  the slice at which the next search for free slices begins, number of moves
//! 0x80  servers of 64 bytes: owner, state, region bytes, key of the segment, requested size
//!       readers of 128 bytes: owner, 15 announced slices
//!       counters of 64 bytes
//!       rings of 256 bytes: the samples of a reader's accesses
//!       records of moves of 64 bytes
//!       the mover words, 8 bytes for each slice: the record of its move
//!       the coarse map, 8 bytes for each slice
//!       the owners, 8 bytes for each slice
//!       the holders, 8 bytes for each slice: the object that has the allocation, or the shape and
//!       the write lock of replicas
//! ```
//!
//! DESIGN.md beside the crate argues the protocol.
//!
//! Tests: tests/pool, tests/processes.rs; proofs: lab/outlive-proofs/src/memory_pool.

mod allocate;
mod boundary;
mod check;
mod free;
mod generation;
mod home;
mod migrate;
mod moves;
mod readers;
mod rebuild;
mod recover;
mod replica_writes;
mod replicas;
mod samples;
mod seal;
mod servers;
mod translate;

pub use allocate::{AllocatePoint, NotAllocated, Place};
pub use check::Census;
pub use free::{FreePoint, Run};
pub use home::{Home, Homes};
pub use migrate::{MovePoint, MoveReason, NotMoved, Pace, Unfinished};
pub use readers::Line;
pub use recover::Recovery;
pub use replica_writes::{ReplicaPoint, ToWrite, WriteSet};
pub use replicas::MOST_REPLICAS;
pub use seal::SealPoint;
pub use servers::{Phase, ServerEntry, ServerFiles, ServerId, ServerPoint};
pub use translate::Translated;

use crate::layout::{MapWord, Owner, Sizes};
use outlive::memory::{Memory, Native, Offset, Ordering};

const MAGIC: u64 = u64::from_le_bytes(*b"outlpool");
const FORMAT: u64 = 5;
const NEXT: u64 = 0x40;

/// The tables of a pool.
#[derive(Clone, Copy, Debug)]
pub struct Coherent<M: Memory = Native> {
    memory: M,
    at: Offset,
    sizes: Sizes,
}

impl<M: Memory> Coherent<M> {
    /// Writes the tables of a new pool at `at` in zeroed `memory`.
    pub fn create(memory: M, at: Offset, sizes: Sizes) -> Self {
        let words = [
            FORMAT,
            sizes.slice_bits.into(),
            sizes.slices,
            sizes.servers.into(),
            sizes.readers.into(),
            sizes.counters.into(),
            sizes.object_quota,
            sizes.moves.into(),
        ];
        // The eighth word is the hint.
        for (word, place) in words.into_iter().zip((1..8).chain([9])) {
            memory.store(at + place * 8, word, Ordering::Relaxed);
        }
        // Release: the magic number publishes the rest.
        memory.store(at, MAGIC, Ordering::Release);
        Self { memory, at, sizes }
    }

    /// Opens the tables in the `bytes` bytes at `at`.
    ///
    /// # Errors
    /// If there are none of this format, or they are damaged: the reason.
    pub fn open(memory: M, at: Offset, bytes: u64) -> Result<Self, String> {
        if bytes < crate::layout::FORMAT_WORDS {
            return Err(format!("its tables have {bytes} bytes"));
        }
        let word = |place: u64| memory.load::<u64>(at + place * 8, Ordering::Acquire);
        match (word(0), word(1)) {
            (MAGIC, FORMAT) => {}
            (MAGIC, format) => {
                return Err(format!(
                    "its format is {format}, and this program knows {FORMAT}"
                ));
            }
            (magic, _) => return Err(format!("its tables begin with {magic:#x}")),
        }
        let small = |place| u16::try_from(word(place)).unwrap_or(u16::MAX);
        let sizes = Sizes {
            slice_bits: word(2).min(64) as u32,
            slices: word(3),
            servers: small(4),
            readers: small(5),
            counters: small(6),
            moves: small(9),
            object_quota: word(7),
        };
        if let Some((what, size, least, most)) = sizes.out_of_range() {
            return Err(format!(
                "it has {size} {what}; the range is {least} to {most}"
            ));
        }
        if sizes.bytes() > bytes {
            return Err(format!("{sizes:?} do not fit into its {bytes} bytes"));
        }
        Ok(Self { memory, at, sizes })
    }

    /// Returns the tables at `at`, which were created with these sizes. Proofs have smaller slices
    /// than [`open`](Self::open) accepts.
    #[doc(hidden)]
    pub fn of(memory: M, at: Offset, sizes: Sizes) -> Self {
        Self { memory, at, sizes }
    }

    /// Returns the numbers and sizes that the pool was created with.
    pub fn sizes(self) -> Sizes {
        self.sizes
    }

    pub(crate) fn memory(self) -> M {
        self.memory
    }

    /// Returns the place of the counter `index`, if there is one.
    pub(crate) fn counter_at(self, index: u16) -> Option<Offset> {
        let at = self.sizes.counters_at() + u64::from(index) * 64;
        (index < self.sizes.counters).then(|| self.at + at)
    }

    fn map_at(self, slice: u64) -> Offset {
        debug_assert!(slice < self.sizes.slices);
        self.at + self.sizes.map_at() + slice * 8
    }

    /// Returns the word of `slice` in the coarse map. Acquire: a reader that sees a frame also sees
    /// the zeros in it.
    pub(crate) fn map_word(self, slice: u64) -> MapWord {
        MapWord(self.memory.load(self.map_at(slice), Ordering::Acquire))
    }

    fn set_map_word(self, slice: u64, word: MapWord) {
        // Release: for readers, see `map_word`; for a survivor, the steps before come first.
        self.memory
            .store(self.map_at(slice), word.0, Ordering::Release);
    }

    fn owner_at(self, slice: u64) -> Offset {
        debug_assert!(slice < self.sizes.slices);
        self.at + self.sizes.owners_at() + slice * 8
    }

    fn owner_word(self, slice: u64) -> u64 {
        // Acquire: the next owner sees the stores of the one before.
        self.memory.load(self.owner_at(slice), Ordering::Acquire)
    }

    pub(crate) fn owner(self, slice: u64) -> Owner {
        Owner::from_word(self.owner_word(slice))
    }

    /// Replaces the owner `from` of `slice` by `to`. AcqRel: see [`owner_word`](Self::owner_word).
    fn change_owner(self, slice: u64, from: Owner, to: Owner) -> bool {
        let (at, order) = (self.owner_at(slice), (Ordering::AcqRel, Ordering::Acquire));
        let changed =
            { self.memory }.compare_exchange(at, from.to_word(), to.to_word(), order.0, order.1);
        changed.is_ok()
    }

    fn holder_at(self, slice: u64) -> Offset {
        debug_assert!(slice < self.sizes.slices);
        self.at + self.sizes.holders_at() + slice * 8
    }

    /// Returns the allocation that begins at `first`: its first slice and the number of slices.
    pub(crate) fn run_at(self, first: u64) -> Run {
        let part = Owner::PartOf(first).to_word();
        let others = first + 1..self.sizes.slices;
        let others = others.take_while(|slice| self.owner_word(*slice) == part);
        Run {
            first,
            slices: 1 + others.count() as u64,
        }
    }
}
