//! Checks a heap for damage, and repairs the damage that can be repaired.

use super::Heap;
use super::buddy;
use super::report::Report;
use super::slab::step::{self, owner_of};
use super::slab::{CLASSES, Class, SLAB, Slab, UNIT, WORDS};
use crate::membership::{Generations, Instance, InstanceId, Status};
use crate::recovery::Logs;
use core::fmt;
use outlive_memory::{Memory, Offset, Ordering};
use std::collections::{BTreeMap, BTreeSet};

/// The use of the slabs of one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassStatistics {
    /// The size of the class's blocks in bytes.
    pub size: u64,
    /// The number of slabs.
    pub slabs: u64,
    /// The number of blocks in these slabs.
    pub blocks: u64,
    /// The number of these blocks that are allocated.
    pub allocated: u64,
}

impl ClassStatistics {
    /// Returns the number of bytes in use.
    pub fn bytes_in_use(&self) -> u64 {
        self.allocated * self.size
    }
}

/// The use of a heap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeapStatistics {
    /// The size classes, smallest first, including those without a slab.
    pub classes: Vec<ClassStatistics>,
    /// The number of large blocks that are owed: freed, but not yet returned to the buddy
    /// allocator.
    pub owed: u64,
    /// The use of the region, in which each slab is a block.
    pub region: buddy::Statistics,
}

/// A fault that a check of a heap has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeapFinding {
    /// A fault of the buddy allocator below.
    #[error(transparent)]
    Buddy(#[from] buddy::Finding),
    /// A table entry describes a slab where the buddy allocator has none.
    #[error(
        "the word at {at} assigns the slab at {slab} to {owner}, but no block of a slab's size is \
         allocated there"
    )]
    NoSlab {
        /// The offset of the word.
        at: Offset,
        /// The start that the slab would have.
        slab: Offset,
        /// The owner that the entry names.
        owner: Instance,
    },
    /// The owner of a slab is not an instance that this pod can have had.
    #[error("the owner at {at} is {word:#x}, which names no instance of this pod")]
    BadOwner {
        /// The offset of the word.
        at: Offset,
        /// The value of the word.
        word: u64,
    },
    /// The class of a slab does not exist.
    #[error("the slab class at {at} is {class}, but only {CLASSES} classes exist")]
    BadClass {
        /// The offset of the word.
        at: Offset,
        /// The value of the word.
        class: u64,
    },
    /// Bits of a word are set to which no blocks of the slab correspond.
    #[error("the word at {at} has bits {bits:#x} set, which correspond to no block")]
    NoBlock {
        /// The offset of the word.
        at: Offset,
        /// The bits.
        bits: u64,
    },
    /// A word marks a block as owed to the buddy allocator that is not allocated there.
    #[error("the word at {at} marks the block at {block} as owed, but that block is not allocated")]
    OwesNothing {
        /// The offset of the word.
        at: Offset,
        /// The block.
        block: Offset,
    },
    /// The record of a step is invalid, or its id is free, has left or is recovered.
    #[error("the step of id {id} at {at} is invalid ({word:#x}): {why}")]
    BadStep {
        /// The id that the step belongs to.
        id: InstanceId,
        /// The offset of the step.
        at: Offset,
        /// The first word of the step.
        word: u64,
        /// The reason why it is invalid.
        why: &'static str,
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

impl HeapFinding {
    /// Returns the offset of the fault.
    pub fn place(&self) -> Offset {
        match *self {
            Self::Buddy(finding) => finding.place(),
            Self::NoSlab { at, .. }
            | Self::BadOwner { at, .. }
            | Self::BadClass { at, .. }
            | Self::NoBlock { at, .. }
            | Self::OwesNothing { at, .. }
            | Self::BadStep { at, .. } => at,
            Self::Leak { block, .. }
            | Self::ReachedTwice { block, .. }
            | Self::Dangling { block } => block,
        }
    }
}

/// The report of a check of a heap.
pub type HeapReport = Report<HeapFinding, HeapStatistics>;

impl fmt::Display for HeapStatistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (classes, region) = (&self.classes, &self.region);
        let slabs: u64 = classes.iter().map(|class| class.slabs).sum();
        let small: u64 = classes.iter().map(|class| class.allocated).sum();
        let bytes: u64 = classes.iter().map(ClassStatistics::bytes_in_use).sum();
        let blocks: u64 = region.allocated.iter().sum();
        write!(
            f,
            "{small} small blocks of {bytes} bytes in {slabs} slabs, {} large blocks; {} of {} bytes free, largest free block {}",
            blocks.saturating_sub(slabs),
            region.free_bytes,
            region.bytes,
            region.largest_free
        )
    }
}

/// A repair of a fault, or of an unfinished operation, in a heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeapRepair {
    /// Bits that correspond to no block were cleared.
    #[error("cleared the bits {bits:#x} at {at}, which corresponded to no block")]
    Bits {
        /// The offset of the word.
        at: Offset,
        /// The bits that were cleared.
        bits: u64,
    },
    /// An interrupted collection was finished.
    #[error("cleared the remote bits {bits:#x} at {at}, whose blocks are free already")]
    Collected {
        /// The offset of the word.
        at: Offset,
        /// The bits that were cleared.
        bits: u64,
    },
    /// A table entry that described a slab which does not exist was cleared.
    #[error(
        "cleared the table entry of the slab at {slab}, which the buddy allocator does not have"
    )]
    Entry {
        /// The start that the slab would have had.
        slab: Offset,
    },
    /// The owed word of a block that is not allocated was cleared.
    #[error("cleared the owed word at {at}, whose block is not allocated")]
    Debt {
        /// The offset of the word.
        at: Offset,
    },
}

/// The small blocks that are reached, and how often.
type Reached = BTreeMap<Offset, u64>;

impl<M: Memory> Heap<M> {
    /// Walks the table and the tree and reports faults. Writes nothing, and never follows an offset
    /// that leads out of the state.
    ///
    /// The heap must be quiescent: concurrent changes may look like faults. State that dead members
    /// left and that is not yet recovered or adopted is not a fault.
    pub fn check(&self) -> HeapReport {
        let buddy = self.buddy().check();
        let mut report = report(buddy);
        self.table
            .all()
            .for_each(|slab| self.walk(slab, None, &mut report));
        report
    }

    /// Does the same as [`check`](Self::check), and compares the allocated blocks, small and large,
    /// with the starts of all blocks in use. An allocated block that is not among them has leaked;
    /// a block that occurs twice, or is not allocated, has been handed out twice. A block that its
    /// owner is about to retire is in use.
    pub fn check_reachable(&self, reachable: impl IntoIterator<Item = Offset>) -> HeapReport {
        let mut large: Vec<Offset> = Vec::new();
        let mut small: BTreeMap<Slab, Reached> = BTreeMap::new();
        for block in reachable {
            let slab = self
                .table
                .within(block)
                .map(|from| self.table.slab_of(from));
            match slab.filter(|slab| self.owner_word(*slab) != Instance::NONE) {
                Some(slab) => *small.entry(slab).or_default().entry(block).or_default() += 1,
                None => large.push(block),
            }
        }
        for slab in self.table.all() {
            let start = self.table.start(slab);
            if self.owner_word(slab) != Instance::NONE && self.block_at(start) == Some(SLAB) {
                large.push(start);
            }
            large.extend(self.debts(slab).map(|(_, block)| block));
        }
        let mut report = report(self.buddy().check_reachable(large));
        for slab in self.table.all() {
            let reached = small.remove(&slab).unwrap_or_default();
            self.walk(slab, Some(reached), &mut report);
        }
        report
    }

    /// Returns the faults in the owners of slabs and in the steps of members. The pod must be
    /// quiescent, and its dead members recovered.
    pub fn check_members(&self, logs: Logs<M>, generations: Generations<M>) -> Vec<HeapFinding> {
        let mut findings = Vec::new();
        for slab in self.table.all() {
            let (at, word) = (self.table.owner(slab), self.owner_word(slab));
            let owner = Instance::from_word(word);
            let known = |owner: Instance| {
                owner.id < generations.capacity()
                    && generations.current(owner.id) >= owner.generation
            };
            if word != Instance::NONE && !owner.is_some_and(known) {
                findings.push(HeapFinding::BadOwner { at, word });
            }
        }
        for id in 0..logs.capacity().min(generations.capacity()) {
            let at = super::scratch::step(logs.of(id));
            let word: u64 = self.memory.load(at, Ordering::Relaxed);
            let status = generations.state(id).map(|state| state.status);
            let why = match (step::read(self.memory, at), status) {
                (Ok(None), _) => continue,
                (Err(_), _) => "its kind is unknown",
                // Except when a thread revisits the log, or has died doing so.
                (Ok(Some(_)), Ok(Status::Free | Status::Left | Status::Recovered))
                    if logs.of(id).claimant().is_none() =>
                {
                    "the id has no member that could be in a step"
                }
                (Ok(Some(step)), _) if self.table.within(step.block).is_none() => {
                    "its block is not in the region"
                }
                _ => continue,
            };
            findings.push(HeapFinding::BadStep { id, at, word, why });
        }
        findings
    }

    /// Returns the start and the size of every allocated block, in any order, as far as the words
    /// of the heap are sound. Excludes slabs, and blocks that are marked as owed.
    pub(crate) fn allocated_blocks(&self) -> impl Iterator<Item = (Offset, u64)> {
        let slabs = self.table.all();
        let own: BTreeSet<Offset> = slabs
            .flat_map(|slab| {
                let is_one = self.owner_word(slab) != Instance::NONE;
                let debts = self.debts(slab).map(|(_, block)| block);
                { is_one }
                    .then(|| self.table.start(slab))
                    .into_iter()
                    .chain(debts)
            })
            .collect();
        let large = self.buddy().allocated_blocks();
        let large = large.filter(move |(at, _)| !own.contains(at));
        large.chain(self.small_blocks(0))
    }

    /// Returns the start and the size of each allocated block of a slab with blocks of at least
    /// `bytes` bytes, as far as the words of the heap are sound.
    pub(crate) fn small_blocks(&self, bytes: u64) -> impl Iterator<Item = (Offset, u64)> {
        let (memory, table) = (self.memory, &self.table);
        let sound = |slab: &Slab| {
            owner_of(table, *slab).is_some() && self.block_at(table.start(*slab)) == Some(SLAB)
        };
        let slabs = table.all().filter(sound);
        slabs.flat_map(move |slab| {
            let class = table
                .class_of(slab)
                .filter(|class| u64::from(class.size) >= bytes);
            let words = class
                .into_iter()
                .flat_map(|class| (0..WORDS).map(move |word| (class, word)));
            words.flat_map(move |(class, word)| {
                let local: u64 = memory.load(table.local(slab, word), Ordering::Relaxed);
                let remote: u64 = memory.load(table.remote(slab, word), Ordering::Relaxed);
                let bits = local & !remote & class.mask(word);
                let blocks = (0..64).filter(move |bit| bits & 1 << bit != 0);
                let size = u64::from(class.size);
                blocks.map(move |bit| (table.start(slab) + (word * 64 + bit) * size, size))
            })
        })
    }

    /// Repairs the faults whose repair is beyond doubt and returns the repairs: bits without a
    /// block, entries and owed words without a block in the buddy allocator, interrupted
    /// collections. Leaked blocks are not freed, since only the program knows the blocks that it
    /// reaches.
    ///
    /// The caller has exclusive use of the segment, and has recovered the dead members.
    ///
    /// # Crash
    /// It can be run again.
    pub fn repair(&self) -> Vec<HeapRepair> {
        let (memory, table) = (self.memory, &self.table);
        let mut done = Vec::new();
        let put = |at, value: u64| {
            // Relaxed: no other thread uses the segment.
            memory.store(at, value, Ordering::Relaxed);
            memory.persist(at, 8);
        };
        for slab in table.all() {
            for (at, block) in self.debts(slab) {
                if self.block_at(block).is_none() {
                    put(at, 0);
                    done.push(HeapRepair::Debt { at });
                }
            }
            let mut owned = self.owner_word(slab) != Instance::NONE;
            if owned && self.block_at(table.start(slab)) != Some(SLAB) {
                let slab_at = table.start(slab);
                put(table.owner(slab), 0);
                put(table.class(slab), 0);
                done.push(HeapRepair::Entry { slab: slab_at });
                owned = false;
            }
            let class = table.class_of(slab).filter(|_| owned);
            if owned && class.is_none() {
                continue;
            }
            for word in 0..WORDS {
                let mask = class.map_or(0, |class| class.mask(word));
                let (local_at, remote_at) = (table.local(slab, word), table.remote(slab, word));
                for at in [local_at, remote_at] {
                    let found: u64 = memory.load(at, Ordering::Relaxed);
                    let bits = found & !mask;
                    if bits != 0 {
                        put(at, found & mask);
                        done.push(HeapRepair::Bits { at, bits });
                    }
                }
                let local: u64 = memory.load(local_at, Ordering::Relaxed);
                let remote: u64 = memory.load(remote_at, Ordering::Relaxed);
                let bits = remote & !local;
                if bits != 0 {
                    put(remote_at, remote & local);
                    done.push(HeapRepair::Collected {
                        at: remote_at,
                        bits,
                    });
                }
            }
        }
        done
    }

    fn owner_word(&self, slab: Slab) -> u64 {
        // Relaxed here and below: no other thread changes the heap.
        self.memory.load(self.table.owner(slab), Ordering::Relaxed)
    }

    /// Returns the size of the buddy allocator's block at `at`, if one starts there.
    fn block_at(&self, at: Offset) -> Option<u64> {
        self.buddy.allocated_at(at)
    }

    /// Returns the words of an entry that mark blocks as owed, and these blocks.
    fn debts(&self, slab: Slab) -> impl Iterator<Item = (Offset, Offset)> {
        let start = u64::from(slab.index()) * SLAB;
        (0..SLAB / UNIT).filter_map(move |unit| {
            let from = start + unit * UNIT;
            let at = self.table.owed(from);
            let owed = self.memory.load::<u64>(at, Ordering::Relaxed) != 0;
            owed.then(|| (at, self.buddy.region() + from))
        })
    }

    /// Checks one entry, and the references to its blocks if they are known.
    fn walk(&self, slab: Slab, reached: Option<Reached>, report: &mut HeapReport) {
        let (memory, table) = (self.memory, &self.table);
        for (at, block) in self.debts(slab) {
            report.statistics.owed += 1;
            if self.block_at(block).is_none() {
                report.note(HeapFinding::OwesNothing { at, block });
            }
        }
        let word = self.owner_word(slab);
        let class = if word == Instance::NONE {
            None
        } else {
            let Some(owner) = owner_of(table, slab) else {
                let at = table.owner(slab);
                return report.note(HeapFinding::BadOwner { at, word });
            };
            if self.block_at(table.start(slab)) != Some(SLAB) {
                let (at, slab) = (table.owner(slab), table.start(slab));
                return report.note(HeapFinding::NoSlab { at, slab, owner });
            }
            let Some(class) = table.class_of(slab) else {
                let at = table.class(slab);
                let class = memory.load(at, Ordering::Relaxed);
                return report.note(HeapFinding::BadClass { at, class });
            };
            Some(class)
        };
        let mut allocated = Vec::new();
        for word in 0..WORDS {
            let mask = class.map_or(0, |class| class.mask(word));
            let (local_at, remote_at) = (table.local(slab, word), table.remote(slab, word));
            let local: u64 = memory.load(local_at, Ordering::Relaxed);
            let remote: u64 = memory.load(remote_at, Ordering::Relaxed);
            for (at, found) in [(local_at, local), (remote_at, remote)] {
                let bits = found & !mask;
                if bits != 0 {
                    report.note(HeapFinding::NoBlock { at, bits });
                }
            }
            let bits = local & !remote & mask;
            allocated.extend(
                (0..64)
                    .filter(|bit| bits & 1 << bit != 0)
                    .map(|bit| word * 64 + bit),
            );
        }
        let Some(class) = class else { return };
        let size = u64::from(class.size);
        let statistics = report.statistics.classes.iter_mut();
        if let Some(all) = statistics.into_iter().find(|all| all.size == size) {
            all.slabs += 1;
            all.blocks += u64::from(class.count);
            all.allocated += allocated.len() as u64;
        }
        if let Some(reached) = reached {
            self.compare(slab, size, &allocated, reached, report);
        }
    }

    fn compare(
        &self,
        slab: Slab,
        bytes: u64,
        allocated: &[u64],
        mut reached: Reached,
        report: &mut HeapReport,
    ) {
        for index in allocated {
            let block = self.table.start(slab) + index * bytes;
            match reached.remove(&block) {
                None => report.note(HeapFinding::Leak { block, bytes }),
                Some(1) => {}
                Some(times) => report.note(HeapFinding::ReachedTwice { block, times }),
            }
        }
        for (block, times) in reached {
            report.note(HeapFinding::Dangling { block });
            if times > 1 {
                report.note(HeapFinding::ReachedTwice { block, times });
            }
        }
    }
}

/// Returns a report that begins with the buddy allocator's findings.
fn report(buddy: buddy::Report) -> HeapReport {
    let classes = (0..CLASSES).map(Class::get).map(|class| ClassStatistics {
        size: class.size.into(),
        slabs: 0,
        blocks: 0,
        allocated: 0,
    });
    HeapReport {
        findings: buddy.findings.into_iter().map(HeapFinding::Buddy).collect(),
        left_out: buddy.left_out,
        statistics: HeapStatistics {
            classes: classes.collect(),
            owed: 0,
            region: buddy.statistics,
        },
    }
}
