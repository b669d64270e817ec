//! The walk over a heap that finds whatever is wrong with it, and what can be mended.

use super::Heap;
use super::buddy;
use super::report::Report;
use super::slab::step::{self, owner_of};
use super::slab::{CLASSES, Class, SLAB, Slab, UNIT, WORDS};
use crate::membership::{Generations, Instance, InstanceId, Status};
use crate::recovery::Logs;
use core::fmt;
use outlive_memory::{Memory, Offset, Ordering};
use std::collections::BTreeMap;

/// How the slabs of one class are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassStatistics {
    /// The size of its blocks in bytes.
    pub size: u64,
    /// How many slabs there are.
    pub slabs: u64,
    /// How many blocks they have.
    pub blocks: u64,
    /// How many of them are allocated.
    pub allocated: u64,
}

impl ClassStatistics {
    /// How many bytes are in use.
    pub fn bytes_in_use(&self) -> u64 {
        self.allocated * self.size
    }
}

/// How a heap is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeapStatistics {
    /// The size classes, smallest first, also those of which there is no slab.
    pub classes: Vec<ClassStatistics>,
    /// Large blocks that recoverers have freed and that are not given back yet.
    pub owed: u64,
    /// The region, in which each slab is a block.
    pub region: buddy::Statistics,
}

/// One thing that is wrong with a heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeapFinding {
    /// The buddy allocator below has something wrong.
    #[error(transparent)]
    Buddy(#[from] buddy::Finding),
    /// A table entry says that there is a slab where the buddy allocator has none.
    #[error(
        "{at} says that the slab at {slab} is {owner}'s, where no block of its size is allocated"
    )]
    NoSlab {
        /// The word.
        at: Offset,
        /// Where the slab would start.
        slab: Offset,
        /// Its owner.
        owner: Instance,
    },
    /// The owner of a slab is not an instance that this pod can have had.
    #[error("the owner at {at} is {word:#x}, which names no instance of this pod")]
    BadOwner {
        /// The word.
        at: Offset,
        /// What it holds.
        word: u64,
    },
    /// The class of a slab is none.
    #[error("the class at {at} is {class}; there are {CLASSES}")]
    BadClass {
        /// The word.
        at: Offset,
        /// What it holds.
        class: u64,
    },
    /// Bits stand for blocks that the slab does not have.
    #[error("the word at {at} has bits {bits:#x}, which stand for no block")]
    NoBlock {
        /// The word.
        at: Offset,
        /// The bits.
        bits: u64,
    },
    /// A word says that a block is owed to the buddy allocator which is not allocated there.
    #[error(
        "the word at {at} says that the block at {block} is to be freed, which is not allocated"
    )]
    OwesNothing {
        /// The word.
        at: Offset,
        /// The block.
        block: Offset,
    },
    /// The note of a step is none, or left by somebody who has been recovered or has left.
    #[error("the step of id {id} at {at} is {word:#x}, though {why}")]
    BadStep {
        /// Whose step it is.
        id: InstanceId,
        /// Where it stands.
        at: Offset,
        /// What it is.
        word: u64,
        /// Why it cannot be.
        why: &'static str,
    },
    /// An allocated block that nothing reaches.
    #[error(
        "the block of {bytes} bytes at {block} has leaked: it is allocated and nothing reaches it"
    )]
    Leak {
        /// Where it starts.
        block: Offset,
        /// Its size.
        bytes: u64,
    },
    /// One block is reached twice: it was given to two.
    #[error("the block at {block} is reached {times} times")]
    ReachedTwice {
        /// Where it starts.
        block: Offset,
        /// How often it is reached.
        times: u64,
    },
    /// Something is reached that is not allocated.
    #[error("{block} is reached and no allocated block starts there")]
    Dangling {
        /// What is reached.
        block: Offset,
    },
}

impl HeapFinding {
    /// Where it is.
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

/// What a walk over a heap has found.
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

/// Something that was wrong with a heap, or left half-done, and has been mended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeapRepair {
    /// Bits that stand for no block are cleared.
    #[error("cleared the bits {bits:#x} at {at}, which stood for no block")]
    Bits {
        /// The word.
        at: Offset,
        /// The bits.
        bits: u64,
    },
    /// A collection that was cut short is finished.
    #[error("cleared the remote bits {bits:#x} at {at}, whose blocks are free already")]
    Collected {
        /// The word.
        at: Offset,
        /// The bits.
        bits: u64,
    },
    /// A table entry that described a slab where there is none describes none.
    #[error("struck out the slab at {slab}, which the allocator below does not have")]
    Entry {
        /// Where the slab would start.
        slab: Offset,
    },
    /// A block that is not allocated is not owed any more.
    #[error("struck out the debt at {at}, whose block is not allocated")]
    Debt {
        /// The word.
        at: Offset,
    },
}

/// What reaches which small block: how often.
type Reached = BTreeMap<Offset, u64>;

impl<M: Memory> Heap<M> {
    /// Walks the table and the tree and says what is wrong with them. Writes nothing; never follows what it
    /// reads outside the state.
    ///
    /// For a quiescent heap: what others change meanwhile may look wrong. What the dead left and nobody has
    /// recovered or adopted yet is not wrong.
    pub fn check(&self) -> HeapReport {
        let buddy = self.buddy().check();
        let mut report = report(buddy);
        self.table
            .all()
            .for_each(|slab| self.walk(slab, None, &mut report));
        report
    }

    /// As [`check`](Self::check), and compares the allocated blocks, small and large, with the starts of all
    /// blocks that are in use: what is allocated and not among them has leaked; what comes twice, or
    /// is not allocated, has been given to two. A block that its owner is about to retire is in use.
    pub fn check_reachable(&self, reachable: impl IntoIterator<Item = Offset>) -> HeapReport {
        let mut large: Vec<Offset> = Vec::new();
        let mut small: BTreeMap<Slab, Reached> = BTreeMap::new();
        for block in reachable {
            let slab = self
                .table
                .within(block)
                .map(|from| self.table.slab_of(from));
            match slab.filter(|slab| self.owner_word(*slab) != Instance::NOBODY) {
                Some(slab) => *small.entry(slab).or_default().entry(block).or_default() += 1,
                None => large.push(block),
            }
        }
        for slab in self.table.all() {
            let start = self.table.start(slab);
            if self.owner_word(slab) != Instance::NOBODY && self.block_at(start) == Some(SLAB) {
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

    /// What is wrong with the owners of slabs and with the steps of members: of a quiescent pod whose dead
    /// have been recovered.
    pub fn check_members(&self, logs: Logs<M>, generations: Generations<M>) -> Vec<HeapFinding> {
        let mut findings = Vec::new();
        for slab in self.table.all() {
            let (at, word) = (self.table.owner(slab), self.owner_word(slab));
            let owner = Instance::from_word(word);
            let known = |owner: Instance| {
                owner.id < generations.capacity()
                    && generations.current(owner.id) >= owner.generation
            };
            if word != Instance::NOBODY && !owner.is_some_and(known) {
                findings.push(HeapFinding::BadOwner { at, word });
            }
        }
        for id in 0..logs.capacity().min(generations.capacity()) {
            let at = super::room::step(logs.of(id));
            let word: u64 = self.memory.load(at, Ordering::Relaxed);
            let status = generations.state(id).map(|state| state.status);
            let why = match (step::read(self.memory, at), status) {
                (Ok(None), _) => continue,
                (Err(_), _) => "that is not a step",
                // Unless somebody revisits the log, or died at that.
                (Ok(Some(_)), Ok(Status::Free | Status::Left | Status::Recovered))
                    if logs.of(id).claimant().is_none() =>
                {
                    "nobody is at one"
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

    /// Returns the allocated blocks of slabs whose blocks have at least `bytes` bytes, as far as
    /// the words of the heap are sound.
    pub(crate) fn allocated_blocks(&self, bytes: u64) -> impl Iterator<Item = Offset> {
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
                blocks.map(move |bit| table.start(slab) + (word * 64 + bit) * u64::from(class.size))
            })
        })
    }

    /// Mends what can be mended without doubt, and says what that was: bits that stand for no block, entries
    /// and debts without a block in the buddy allocator, collections cut short. What has leaked
    /// is not freed, for only the program knows what it reaches.
    ///
    /// The caller has the segment for itself, and has recovered the dead.
    ///
    /// # Crash
    /// It can be run again.
    pub fn repair(&self) -> Vec<HeapRepair> {
        let (memory, table) = (self.memory, &self.table);
        let mut done = Vec::new();
        let put = |at, value: u64| {
            // Relaxed: nobody else is there.
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
            let mut owned = self.owner_word(slab) != Instance::NOBODY;
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
        // Relaxed here and below: nobody changes anything.
        self.memory.load(self.table.owner(slab), Ordering::Relaxed)
    }

    /// The size of the buddy allocator's block at `at`, if one starts there.
    fn block_at(&self, at: Offset) -> Option<u64> {
        self.buddy.allocated_at(at)
    }

    /// The words of an entry that say that a block is owed, and the blocks.
    fn debts(&self, slab: Slab) -> impl Iterator<Item = (Offset, Offset)> {
        let start = u64::from(slab.index()) * SLAB;
        (0..SLAB / UNIT).filter_map(move |unit| {
            let from = start + unit * UNIT;
            let at = self.table.owed(from);
            let owed = self.memory.load::<u64>(at, Ordering::Relaxed) != 0;
            owed.then(|| (at, self.buddy.region() + from))
        })
    }

    /// Looks at one entry; at what reaches its blocks too if that is known.
    fn walk(&self, slab: Slab, reached: Option<Reached>, report: &mut HeapReport) {
        let (memory, table) = (self.memory, &self.table);
        for (at, block) in self.debts(slab) {
            report.statistics.owed += 1;
            if self.block_at(block).is_none() {
                report.note(HeapFinding::OwesNothing { at, block });
            }
        }
        let word = self.owner_word(slab);
        let class = if word == Instance::NOBODY {
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

/// A report of what the buddy allocator's walk has found.
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
