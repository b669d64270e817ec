//! The requests that every allocator gets.

use crate::stage::{Bench, CELLS_EACH};
use mimalloc::MiMalloc;
use outlive::heap::LocalHeap;
use outlive::memory::Offset;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::hint::black_box;

/// The order and the sizes of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// A block of the given number of bytes is freed before the next is allocated.
    Pair(u64),
    /// 512 blocks of 16 to 256 bytes; the oldest is freed before the next is allocated.
    Turnover,
}

/// The number of blocks in use in a turnover.
pub const IN_USE: u64 = 512;
/// The number of blocks that stay allocated during pairs.
const RESIDENT: u64 = 8;
const _: () = assert!(IN_USE <= CELLS_EACH);

impl Pattern {
    pub const PAIR_64: Self = Self::Pair(64);
    pub const ALL: [Self; 4] = [
        Self::Pair(16),
        Self::PAIR_64,
        Self::Pair(256),
        Self::Turnover,
    ];

    pub fn name(self) -> String {
        match self {
            Self::Pair(bytes) => format!("pairs of {bytes} bytes"),
            Self::Turnover => format!("turnover of {IN_USE} blocks of 16 to 256 bytes"),
        }
    }
}

/// Blocks, each in a place of its own.
pub trait Blocks {
    /// Puts a block of `bytes` into the empty `place`.
    fn allocate(&self, place: u64, bytes: u64);
    /// Frees the block in `place`.
    fn free(&self, place: u64, bytes: u64);
}

/// Returns sizes in an order from which no allocator can profit.
#[inline(always)]
fn size(index: u64) -> u64 {
    16 + (index.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 60) * 16
}

/// Allocates and frees `often` times. Leaves nothing allocated.
pub fn work(bench: &Bench, blocks: &impl Blocks, pattern: Pattern, often: u64) {
    match pattern {
        Pattern::Pair(bytes) => {
            // Some blocks stay allocated, so that no allocator returns a page each time.
            for place in 1..=RESIDENT {
                blocks.allocate(place, bytes);
            }
            bench.run(often, || {
                blocks.allocate(0, black_box(bytes));
                blocks.free(0, bytes);
            });
            for place in 1..=RESIDENT {
                blocks.free(place, bytes);
            }
        }
        Pattern::Turnover => {
            for index in 0..IN_USE {
                blocks.allocate(index, size(index));
            }
            let mut next = IN_USE;
            bench.run(often, || {
                let place = next % IN_USE;
                blocks.free(place, size(next - IN_USE));
                blocks.allocate(place, size(next));
                next += 1;
            });
            for index in next - IN_USE..next {
                blocks.free(index % IN_USE, size(index));
            }
        }
    }
}

/// Our heap: the places are cells in shared memory.
pub struct Ours<'b> {
    heap: &'b LocalHeap<'b>,
    cells: Offset,
}

impl<'b> Ours<'b> {
    pub fn new(bench: &Bench, heap: &'b LocalHeap<'b>) -> Self {
        let cells = bench.cells();
        Self { heap, cells }
    }
}

impl Blocks for Ours<'_> {
    #[inline(always)]
    fn allocate(&self, place: u64, bytes: u64) {
        let block = self.heap.allocate_into(bytes, self.cells + place * 8);
        black_box(block.expect("there is free space"));
    }

    #[inline(always)]
    fn free(&self, place: u64, _: u64) {
        let freed = self.heap.free_from(self.cells + place * 8, 0);
        freed.expect("a block is in the cell");
    }
}

/// mimalloc: the places are in private memory, as the blocks are; each use costs a load or a store.
pub struct Private {
    places: Vec<Cell<*mut u8>>,
}

impl Private {
    pub fn new() -> Self {
        let places = vec![Cell::new(std::ptr::null_mut()); IN_USE as usize];
        Self { places }
    }
}

fn layout(bytes: u64) -> Layout {
    Layout::from_size_align(bytes as usize, 16).expect("a small block")
}

impl Blocks for Private {
    #[inline(always)]
    fn allocate(&self, place: u64, bytes: u64) {
        // SAFETY: the size is not zero.
        let block = unsafe { MiMalloc.alloc(layout(bytes)) };
        assert!(!block.is_null());
        self.places[place as usize].set(black_box(block));
    }

    #[inline(always)]
    fn free(&self, place: u64, bytes: u64) {
        let block = self.places[place as usize].get();
        // SAFETY: allocated with this layout, and freed once.
        unsafe { MiMalloc.dealloc(block, layout(bytes)) };
    }
}
