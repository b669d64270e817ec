//! The grid in shared memory, in the original's manner: a bit for each cell says whether it is
//! empty, and the other cells are in a hash table of lists. Every step of a walk reads it.

use super::grid::{Frame, Grid};
use outlive_machine::program::{Allocator, Array, Cpu};

/// Offsets in the header of the grid, which begins with its frame: the number of cells along a
/// side, the offset of the bits, the number of buckets, and their offset.
const ACROSS: u64 = Frame::CELLS;
const BITS: u64 = Frame::WORDS;
const BUCKETS: u64 = BITS + 1;
const TABLE: u64 = BITS + 2;
const HEADER: u64 = BITS + 3;

/// Words of a voxel: its cell, the offset of its entries, their number, and the next voxel of its
/// bucket.
const VOXEL: u64 = 4;
/// No voxel: the grid begins with its header.
const NONE: u64 = 0;

/// The grid as walks read it: all offsets are within one array, where the original has pointers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Voxels {
    words: Array<u64>,
}

/// The entries of a cell that is not empty.
#[derive(Clone, Copy, Debug)]
pub(super) struct Voxel {
    pub(super) first: u64,
    pub(super) count: u64,
}

impl Voxels {
    /// Instructions of [`is_empty`](Self::is_empty), without loads.
    const EMPTY: u32 = 6;
    /// Instructions of [`find`](Self::find), and of each more voxel in its list.
    const FIND: u32 = 5;
    const NEXT: u32 = 2;

    /// Lays out `grid`.
    pub(super) fn new(memory: &mut Allocator, grid: &Grid) -> Self {
        let across = grid.frame.cells[0];
        let full = grid.cells.iter().filter(|(_, count)| *count > 0).count() as u64;
        // About three voxels to a bucket (the original's teapot has 3.5), and no common divisor
        // with a row of cells.
        let buckets = full / 3 / across * across + 1;
        let bits = HEADER;
        let table = bits + (grid.cells.len() as u64).div_ceil(64);
        let voxels = table + buckets;
        let entries = voxels + full * VOXEL;
        let mut words = vec![0; entries as usize];
        words[..Frame::WORDS as usize].copy_from_slice(&grid.frame.to_words());
        words[BITS as usize] = bits;
        words[BUCKETS as usize] = buckets;
        words[TABLE as usize] = table;
        let mut voxel = voxels;
        for (cell, &(first, count)) in (0..).zip(&grid.cells) {
            if count == 0 {
                words[(bits + cell / 64) as usize] |= 1 << (cell % 64);
                continue;
            }
            let bucket = (table + cell % buckets) as usize;
            let values = [
                cell,
                entries + u64::from(first),
                count.into(),
                words[bucket],
            ];
            words[voxel as usize..][..VOXEL as usize].copy_from_slice(&values);
            words[bucket] = voxel;
            voxel += VOXEL;
        }
        words.extend(grid.entries.iter().map(|&number| u64::from(number)));
        Self {
            words: memory.array_of(&words),
        }
    }

    /// Reads the grid's frame.
    pub(super) fn frame(self, cpu: &mut Cpu<'_>) -> Frame {
        let words = std::array::from_fn(|word| self.words.word(word as u64));
        Frame::from_words(cpu.load_all(words))
    }

    /// Returns the number of cells along each side.
    pub(super) fn across(self, cpu: &mut Cpu<'_>) -> u64 {
        self.words.get(cpu, ACROSS)
    }

    /// Returns the voxel of a cell, unless the cell is empty.
    pub(super) fn at(self, cpu: &mut Cpu<'_>, cell: u64) -> Option<Voxel> {
        if self.is_empty(cpu, cell) {
            return None;
        }
        Some(self.find(cpu, cell))
    }

    fn is_empty(self, cpu: &mut Cpu<'_>, cell: u64) -> bool {
        let bits = self.words.get(cpu, BITS);
        cpu.compute(Self::EMPTY);
        self.words.get(cpu, bits + cell / 64) & 1 << (cell % 64) != 0
    }

    fn find(self, cpu: &mut Cpu<'_>, cell: u64) -> Voxel {
        let [buckets, table] = cpu.load_all([BUCKETS, TABLE].map(|place| self.words.word(place)));
        cpu.compute(Self::FIND);
        let mut voxel = self.words.get(cpu, table + cell % buckets);
        while self.words.get(cpu, voxel) != cell {
            cpu.compute(Self::NEXT);
            voxel = self.words.get(cpu, voxel + 3);
            assert!(voxel != NONE, "cell {cell} is not empty, but has no voxel");
        }
        let [first, count] = cpu.load_all([1, 2].map(|place| self.words.word(voxel + place)));
        Voxel { first, count }
    }

    /// Returns the numbers of `count` primitives from an entry on.
    pub(super) fn entries<const N: usize>(
        self,
        cpu: &mut Cpu<'_>,
        first: u64,
        count: usize,
    ) -> [u64; N] {
        let mut asked = [None; N];
        for (asked, place) in asked.iter_mut().zip(first..).take(count) {
            *asked = Some(self.words.ask(cpu, place));
        }
        asked.map(|asked| asked.map_or(0, |pending| cpu.value(pending)))
    }
}
