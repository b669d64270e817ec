//! Links whose connections break: the first batch of each kind to each memory server is cut, and
//! its completion lost. The next connection opens at once, because mapped memory executes nothing
//! later.

use super::small_store::{BASE, Links, SURVIVOR, first_latch};
use core::cell::{Cell, RefCell};
use core::future::{Ready, ready};
use outlive_memory::{Memory, Offset, Ordering};
use outlive_store::tables::TransactionId;
use outlive_store::verbs::{
    Batch, Completed, Connection, Mapped, Region, ServerId, Verb, VerbError, VerbKind,
};
use std::rc::Rc;

/// The part of a batch that takes effect before its connection breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// No verb.
    Nothing,
    /// The first half of the verbs, and half of the words of the next one if it is a WRITE.
    Half,
    /// All verbs. Only their answers are lost.
    Everything,
}

/// The kind of a batch, by its verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// READs of logs.
    ReadLog,
    /// READs of objects or parts of the index.
    Read,
    /// READs of single words: versions, latches.
    Validate,
    /// A CAS from the free word, with READs.
    Latch,
    /// CAS to the free word.
    ReleaseBySwap,
    /// WRITEs of records of latches.
    LogLatch,
    /// WRITEs of log entries.
    Log,
    /// WRITEs of single words of logs.
    RemoveLog,
    /// WRITEs of objects.
    Write,
    /// WRITEs of single words of objects, which release latches.
    Release,
}

impl Kind {
    fn of(verbs: &[Verb]) -> Option<Self> {
        let first = verbs.first()?;
        let is_log = first.at.get() < BASE;
        let most = verbs.iter().map(Verb::words).max()?;
        Some(match (first.kind, is_log, most) {
            (VerbKind::Read, true, _) => Self::ReadLog,
            (VerbKind::Read, false, 1) => Self::Validate,
            (VerbKind::Read, false, _) => Self::Read,
            (VerbKind::CompareSwap { new: 0, .. }, ..) => Self::ReleaseBySwap,
            (VerbKind::CompareSwap { .. } | VerbKind::FetchAdd { .. }, ..) => Self::Latch,
            (VerbKind::Write, true, 1) => Self::RemoveLog,
            (VerbKind::Write, true, 2) => Self::LogLatch,
            (VerbKind::Write, true, _) => Self::Log,
            (VerbKind::Write, false, 1) => Self::Release,
            (VerbKind::Write, false, _) => Self::Write,
        })
    }
}

/// A latch word of a live transaction of the survivor.
const FOREIGN: u64 = TransactionId::new(SURVIVOR, 1, 999).to_word();
/// 1 if that transaction has acquired the latch of the first slot.
const HAS_LATCHED: Offset = Offset::new(384);

/// Links that break.
#[derive(Clone, Debug)]
pub struct Breaking {
    part: Part,
    broken: Rc<RefCell<Vec<(ServerId, Kind)>>>,
}

impl Breaking {
    /// Returns links on which this part of a batch takes effect before its connection breaks.
    pub fn new(part: Part) -> Self {
        Self {
            part,
            broken: Rc::default(),
        }
    }
}

/// Checks that a transaction which latched the first slot after its release still holds the latch,
/// and ends that transaction.
///
/// # Errors
/// The latch was released in its place.
pub fn end_foreign(memory: impl Memory) -> Result<(), String> {
    let latch: u64 = memory.load(first_latch(), Ordering::Acquire);
    let has_latched = memory.load::<u64>(HAS_LATCHED, Ordering::Acquire) != 0;
    if has_latched && latch != FOREIGN {
        return Err(format!("a live transaction lost its latch to {latch:#x}"));
    }
    if latch == FOREIGN {
        memory.store(first_latch(), 0u64, Ordering::Release);
    }
    memory.store(HAS_LATCHED, 0u64, Ordering::Release);
    Ok(())
}

impl<M: Memory> Links<M> for Breaking {
    type Connection = Breakable<M>;

    fn connect(&self, memory: M, mapped: Mapped<M>) -> Breakable<M> {
        Breakable {
            memory,
            mapped,
            links: self.clone(),
            is_broken: Cell::new(false),
        }
    }
}

/// A connection that breaks at the first batch of each kind.
#[derive(Debug)]
pub struct Breakable<M: Memory> {
    memory: M,
    mapped: Mapped<M>,
    links: Breaking,
    is_broken: Cell<bool>,
}

/// Returns the first half of a batch.
fn half(batch: &Batch) -> Batch {
    let mut part = Batch::new();
    let verbs = batch.verbs();
    for (number, verb) in verbs.iter().enumerate().take(verbs.len() / 2 + 1) {
        let words = &batch.buffer()[verb.local()];
        let is_cut = number == verbs.len() / 2;
        match verb.kind {
            VerbKind::Write if is_cut => part.write(verb.at, &words[..words.len() / 2]),
            _ if is_cut => {}
            VerbKind::Write => part.write(verb.at, words),
            // The words of a READ are lost.
            VerbKind::Read => {}
            VerbKind::CompareSwap { expected, new } => {
                part.compare_swap(verb.at, expected, new);
            }
            VerbKind::FetchAdd { add } => {
                part.fetch_add(verb.at, add);
            }
        }
    }
    part
}

impl<M: Memory> Connection for Breakable<M> {
    type Completion = Ready<Completed>;

    const CAN_BREAK: bool = true;

    fn server(&self) -> ServerId {
        self.mapped.server()
    }

    fn is_broken(&self) -> bool {
        self.is_broken.get()
    }

    fn region(&self) -> Region {
        self.mapped.region()
    }

    fn post(&self, batch: Batch) -> Self::Completion {
        let server = self.server();
        let broken = |batch| {
            ready(Completed {
                batch,
                result: Err(VerbError::Broken { server }),
            })
        };
        if self.is_broken.get() {
            return broken(batch);
        }
        let kind = Kind::of(batch.verbs()).map(|kind| (server, kind));
        let Some(kind) = kind.filter(|it| !self.links.broken.borrow().contains(it)) else {
            return self.mapped.post(batch);
        };
        self.links.broken.borrow_mut().push(kind);
        self.is_broken.set(true);
        let batch = match self.links.part {
            Part::Nothing => batch,
            Part::Half => {
                drop(self.mapped.post(half(&batch)));
                batch
            }
            Part::Everything => self.mapped.post(batch).into_inner().batch,
        };
        if kind.1 == Kind::Release {
            // Another server latches the object before this one connects again.
            let swapped = self.memory.compare_exchange(
                first_latch(),
                0u64,
                FOREIGN,
                Ordering::SeqCst,
                Ordering::SeqCst,
            );
            if swapped.is_ok() {
                self.memory.store(HAS_LATCHED, 1u64, Ordering::Release);
            }
        }
        broken(batch)
    }
}
