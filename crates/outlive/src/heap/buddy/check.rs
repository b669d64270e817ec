//! Checks an allocator's metadata.

use super::Buddy;
use super::shape::Level;
use crate::heap;
use core::fmt;
use outlive_memory::{Memory, Offset, Ordering};

/// The use of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// The size of the region in bytes.
    pub bytes: u64,
    /// The size of the smallest block in bytes; a block of order `k` has `unit << k`.
    pub unit: u64,
    /// The number of free bytes.
    pub free_bytes: u64,
    /// The size of the largest free block in bytes.
    pub largest_free: u64,
    /// The number of free blocks of each order.
    pub free: Vec<u64>,
    /// The number of allocated blocks of each order.
    pub allocated: Vec<u64>,
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let blocks: u64 = self.allocated.iter().sum();
        write!(
            f,
            "{} of {} bytes free, {blocks} blocks allocated, largest free block {}",
            self.free_bytes, self.bytes, self.largest_free
        )
    }
}

/// A fault that a check of an allocator has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Finding {
    /// Two blocks, free or allocated, share memory.
    #[error("the {} block at {block} and the {} block at {other} overlap", name(*free), name(*other_free))]
    Overlap {
        /// The start of the first one.
        block: Offset,
        /// Whether it is free.
        free: bool,
        /// The start of the second one.
        other: Offset,
        /// Whether the second one is free.
        other_free: bool,
    },
    /// Memory is neither free nor allocated: it can never be allocated.
    #[error("{bytes} bytes at {at} are neither free nor allocated")]
    Lost {
        /// The start of the memory.
        at: Offset,
        /// Its size in bytes.
        bytes: u64,
    },
    /// Two free buddies have not been joined.
    #[error(
        "the block of {bytes} bytes at {block} and its buddy after it are both free, but not joined"
    )]
    NotJoined {
        /// The start of the first one.
        block: Offset,
        /// The size of each in bytes.
        bytes: u64,
    },
    /// A bit represents a block that the region does not have.
    #[error("the word at {at} has bits {bits:#x} set, which are beyond the end of the region")]
    BeyondEnd {
        /// The offset of the word.
        at: Offset,
        /// The bits.
        bits: u64,
    },
    /// A summary contradicts the words that it summarises.
    #[error("the summary at {at} is {found:#x} and should be {expected:#x}")]
    Summary {
        /// The offset of the word of the summary.
        at: Offset,
        /// The value that it should have.
        expected: u64,
        /// The value that was found.
        found: u64,
    },
    /// The counter of free units is wrong.
    #[error("the number of free units at {at} is {found} and should be {expected}")]
    FreeCount {
        /// The offset of the counter.
        at: Offset,
        /// The value that it should have.
        expected: u64,
        /// The value that was found.
        found: u64,
    },
    /// A size byte describes a block that cannot start there.
    #[error("the size byte at {at} is {size}, but no block of that size can start at {block}")]
    BadSize {
        /// The offset of the size byte.
        at: Offset,
        /// The value of the size byte.
        size: u8,
        /// The start of the block.
        block: Offset,
    },
    /// An allocated block is not reachable.
    #[error("the block of {bytes} bytes at {block} has leaked: it is allocated, but not reachable")]
    Leak {
        /// The start of the block.
        block: Offset,
        /// Its size in bytes.
        bytes: u64,
    },
    /// One block is reached more than once: it was handed out twice.
    #[error("the block at {block} is reached {times} times")]
    ReachedTwice {
        /// The start of the block.
        block: Offset,
        /// The number of times that it is reached.
        times: u64,
    },
    /// A reachable offset is not an allocated block.
    #[error("{block} is reached, but no allocated block starts there")]
    Dangling {
        /// The offset that is reached.
        block: Offset,
    },
}

impl Finding {
    /// Returns the offset of the fault.
    pub fn place(&self) -> Offset {
        match *self {
            Self::Overlap { block, .. }
            | Self::NotJoined { block, .. }
            | Self::Leak { block, .. }
            | Self::ReachedTwice { block, .. }
            | Self::Dangling { block, .. } => block,
            Self::Lost { at, .. }
            | Self::BeyondEnd { at, .. }
            | Self::Summary { at, .. }
            | Self::FreeCount { at, .. }
            | Self::BadSize { at, .. } => at,
        }
    }
}

fn name(free: bool) -> &'static str {
    if free { "free" } else { "allocated" }
}

/// The report of a check of an allocator.
pub type Report = heap::Report<Finding, Statistics>;

/// A block according to the metadata, in units.
#[derive(Clone, Copy)]
struct Block {
    start: u64,
    order: u32,
    free: bool,
}

impl Block {
    fn end(self) -> u64 {
        self.start + (1 << self.order)
    }
}

impl<M: Memory> Buddy<M> {
    /// Walks all metadata and reports faults. Writes nothing, and never follows an offset that
    /// leads out of the metadata.
    ///
    /// The segment must be quiescent, or the caller must [hold the lock](Buddy::lock): concurrent
    /// changes may look like faults.
    pub fn check(&self) -> Report {
        let (mut report, _) = self.walk();
        report.findings.shrink_to_fit();
        report
    }

    /// Does the same as [`check`](Self::check), and compares the allocated blocks with the starts
    /// of all blocks in use. An allocated block that is not among them has leaked; a block that
    /// occurs twice, or is not allocated, has been handed out twice.
    pub fn check_reachable(&self, reachable: impl IntoIterator<Item = Offset>) -> Report {
        let (mut report, blocks) = self.walk();
        let mut reached: Vec<Offset> = reachable.into_iter().collect();
        reached.sort_unstable();
        let mut rest = reached.as_slice();
        let mut allocated = blocks.iter().filter(|block| !block.free).peekable();
        loop {
            let next = allocated
                .peek()
                .map(|block| (self.block_at(block.start), block.order));
            match (next, rest.first()) {
                (None, None) => break,
                (Some((block, order)), first) if first.is_none_or(|first| block < *first) => {
                    let bytes = self.block_bytes(order);
                    report.note(Finding::Leak { block, bytes });
                    allocated.next();
                }
                (next, Some(&block)) => {
                    let times = rest.iter().take_while(|other| **other == block).count();
                    rest = &rest[times..];
                    if next.is_some_and(|(start, _)| start == block) {
                        allocated.next();
                    } else {
                        report.note(Finding::Dangling { block });
                    }
                    if times > 1 {
                        let times = times as u64;
                        report.note(Finding::ReachedTwice { block, times });
                    }
                }
                (Some(_), None) => unreachable!("the arm above handles this case"),
            }
        }
        report
    }

    /// Returns the start and the size of every allocated block. As for [`check`](Self::check), the
    /// segment must be quiescent.
    pub(crate) fn allocated_blocks(&self) -> impl Iterator<Item = (Offset, u64)> {
        let (_, blocks) = self.walk();
        let allocated = blocks.into_iter().filter(|block| !block.free);
        allocated.map(|block| (self.block_at(block.start), self.block_bytes(block.order)))
    }

    /// Returns the use of the region; as with [`check`](Self::check), in a quiescent segment or
    /// under the lock.
    pub fn statistics(&self) -> Statistics {
        self.walk().0.statistics
    }

    /// Returns the findings, and all blocks in the order of their starts.
    fn walk(&self) -> (Report, Vec<Block>) {
        let shape = &self.shape;
        let none = vec![0; shape.orders() as usize];
        let mut report = Report::new(Statistics {
            bytes: self.bytes(),
            unit: self.unit(),
            free_bytes: 0,
            largest_free: 0,
            free: none.clone(),
            allocated: none,
        });
        let mut blocks = Vec::new();
        let mut orders = 0;
        for order in 0..shape.orders() {
            if self.walk_order(order, &mut blocks, &mut report) {
                orders |= 1 << order;
            }
        }
        self.compare(&mut report, self.places.orders(), orders);
        self.walk_sizes(&mut blocks, &mut report);

        blocks.sort_by_key(|block| (block.start, block.order));
        let (mut covered, mut last) = (0, None::<Block>);
        for block in &blocks {
            if block.start > covered {
                report.note(self.lost(covered, block.start));
            } else if let Some(last) = last.filter(|_| block.start < covered) {
                report.note(Finding::Overlap {
                    block: self.block_at(last.start),
                    free: last.free,
                    other: self.block_at(block.start),
                    other_free: block.free,
                });
            }
            if block.end() > covered {
                (covered, last) = (block.end(), Some(*block));
            }
        }
        if covered < shape.units() {
            report.note(self.lost(covered, shape.units()));
        }

        let free: u64 = blocks
            .iter()
            .filter(|block| block.free)
            .map(|block| 1u64 << block.order)
            .sum();
        report.statistics.free_bytes = free << self.unit_shift;
        let at = self.places.free_units();
        let found: u64 = self.memory.load(at, Ordering::Relaxed);
        if found != free {
            let expected = free;
            report.note(Finding::FreeCount {
                at,
                expected,
                found,
            });
        }
        for block in &blocks {
            let count = if block.free {
                let size = self.block_bytes(block.order);
                let largest = &mut report.statistics.largest_free;
                *largest = size.max(*largest);
                &mut report.statistics.free
            } else {
                &mut report.statistics.allocated
            };
            count[block.order as usize] += 1;
        }
        (report, blocks)
    }

    /// Collects the free blocks of `order` and compares their summaries. Returns whether there are
    /// any.
    fn walk_order(&self, order: u32, blocks: &mut Vec<Block>, report: &mut Report) -> bool {
        let mut below: Option<Level> = None;
        let before = blocks.len();
        for level in self.shape.levels(order) {
            for index in 0..level.words() {
                let word = self.word_of(level, index, report);
                match below {
                    None => self.free_blocks(order, index, word, blocks, report),
                    Some(below) => {
                        let expected = self.summary(below, index);
                        self.compare(report, self.places.word(level.first + index), expected);
                    }
                }
            }
            below = Some(level);
        }
        blocks.len() > before
    }

    /// Returns word `index` of `level`, without bits that are beyond its end.
    fn word_of(&self, level: Level, index: u64, report: &mut Report) -> u64 {
        let at = self.places.word(level.first + index);
        let word: u64 = self.memory.load(at, Ordering::Relaxed);
        let inside = u64::MAX >> 64u64.saturating_sub(level.bits - index * 64);
        let bits = word & !inside;
        if bits != 0 {
            report.note(Finding::BeyondEnd { at, bits });
        }
        word & inside
    }

    fn free_blocks(
        &self,
        order: u32,
        index: u64,
        word: u64,
        blocks: &mut Vec<Block>,
        report: &mut Report,
    ) {
        let mut rest = word;
        while rest != 0 {
            let bit = rest.trailing_zeros();
            rest &= rest - 1;
            let start = (index * 64 + u64::from(bit)) << order;
            blocks.push(Block {
                start,
                order,
                free: true,
            });
            // The largest order's blocks have no parent to be joined to.
            let joins = order + 1 < self.shape.orders() && bit.is_multiple_of(2);
            if joins && word & 2 << bit != 0 {
                report.note(Finding::NotJoined {
                    block: self.block_at(start),
                    bytes: self.block_bytes(order),
                });
            }
        }
    }

    /// Returns the value that word `index` of the summary of `below` should have.
    fn summary(&self, below: Level, index: u64) -> u64 {
        let words = (index * 64..below.words()).take(64);
        let set = words.filter(|word| {
            let at = self.places.word(below.first + word);
            self.memory.load::<u64>(at, Ordering::Relaxed) != 0
        });
        set.fold(0, |summary, word| summary | 1 << (word % 64))
    }

    fn compare(&self, report: &mut Report, at: Offset, expected: u64) {
        let found: u64 = self.memory.load(at, Ordering::Relaxed);
        if found != expected {
            report.note(Finding::Summary {
                at,
                expected,
                found,
            });
        }
    }

    /// Collects the allocated blocks.
    fn walk_sizes(&self, blocks: &mut Vec<Block>, report: &mut Report) {
        let shape = &self.shape;
        for start in 0..shape.units() {
            let at = self.places.size(shape, start);
            let size: u8 = self.memory.load(at, Ordering::Relaxed);
            let Some(order) = size.checked_sub(1).map(u32::from) else {
                continue;
            };
            let block = Block {
                start,
                order,
                free: false,
            };
            let fits = order < shape.orders()
                && start.trailing_zeros() >= order
                && block.end() <= shape.units();
            if fits {
                blocks.push(block);
            } else {
                let block = self.block_at(start);
                report.note(Finding::BadSize { at, size, block });
            }
        }
    }

    fn lost(&self, from: u64, to: u64) -> Finding {
        Finding::Lost {
            at: self.block_at(from),
            bytes: (to - from) << self.unit_shift,
        }
    }
}
