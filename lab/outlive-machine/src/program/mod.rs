//! What runs on a simulated machine: threads as sources of operations, and the workloads that they belong to.
//!
//! A machine asks a [`Thread`] for its operations in program order, and tells it the values that its loads got. So threads
//! can be plain lists, recorded traces, or real algorithms that compute with what the simulated memory says.
//!
//! Shared memory is addressed by [`Word`]: words of eight bytes, counted from 0. What is private to a thread is its own
//! affair: the machine is told addresses of [private](Op::PrivateLoad) accesses for their time, and no values.

mod allocator;
mod coroutine;
mod counted;
mod counts;
mod cpu;
mod drawn;
mod outcomes;
mod placed;
mod reference;
mod script;
mod waits;
mod workload;
pub mod workloads;

pub use allocator::{Allocator, Array};
pub use coroutine::{Body, Coroutine, NotRecorded, Recording};
pub use counted::{Counted, Tally};
pub use counts::Counts;
pub use cpu::{Cpu, Pending, Value};
pub use drawn::{Neighbour, Walker};
pub use outcomes::{Outcome, outcomes};
pub use placed::{OwnLines, Placed};
pub use reference::{Order, Reference, ReferenceError};
pub use script::Script;
pub use waits::{Wait, Waits};
pub use workload::{Origin, Scale, Workload, WrongResult};

use crate::line::{Line, LineAddress};

/// A word of eight bytes in shared memory, by its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Word(pub u64);

impl Word {
    /// Words in a line.
    pub const PER_LINE: u64 = (size_of::<Line>() / size_of::<u64>()) as u64;

    /// The line that the word stands in.
    pub const fn line(self) -> LineAddress {
        LineAddress(self.0 / Self::PER_LINE)
    }

    /// Its place in the line, from 0 to 7.
    pub const fn place(self) -> usize {
        (self.0 % Self::PER_LINE) as usize
    }

    /// The word that is `words` further on.
    pub const fn offset(self, words: u64) -> Self {
        Self(self.0 + words)
    }
}

/// One of the locks of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockId(pub u32);

/// One of the barriers of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BarrierId(pub u32);

/// One of the condition variables of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConditionId(pub u32);

/// One of the event counts of a workload: how often threads have said that they are so far. They are no memory; they carry an
/// order that was recorded into the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventCountId(pub u32);

/// What an [atomic](Op::Atomic) makes of the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Update {
    /// This value instead.
    Exchange(u64),
    /// The wrapping sum.
    Add(u64),
    /// All bits of both.
    Or(u64),
    /// The common bits.
    And(u64),
    /// `new` if the word is `expected`.
    CompareExchange {
        /// What the word must be.
        expected: u64,
        /// What it becomes then.
        new: u64,
    },
}

impl Update {
    /// What the word becomes if it was `old`.
    pub const fn apply(self, old: u64) -> u64 {
        match self {
            Self::Exchange(new) => new,
            Self::Add(more) => old.wrapping_add(more),
            Self::Or(bits) => old | bits,
            Self::And(bits) => old & bits,
            Self::CompareExchange { expected, new } => {
                if old == expected {
                    new
                } else {
                    old
                }
            }
        }
    }
}

/// One operation of a thread. Each is one instruction, but for [`Compute`](Self::Compute).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// So many instructions that access no memory.
    Compute(u32),
    /// Reads a word of shared memory. It is [delivered](Thread::deliver).
    Load(Word),
    /// Writes a word of shared memory.
    Store(Word, u64),
    /// Writes these bytes of a word of shared memory (bit 0 stands for the lowest). The value is what the *whole* word holds
    /// then, and a machine may write all of it; which bytes are meant matters to what stores can be done together.
    StorePart(Word, u64, u8),
    /// Reads and writes a word of shared memory at once, with a full fence before and after, as x86's locked instructions.
    /// What it read is [delivered](Thread::deliver).
    Atomic(Word, Update),
    /// Later loads wait until earlier stores are done (MFENCE).
    Fence,
    /// Reads private data at this byte address of the thread's own.
    PrivateLoad(u64),
    /// Writes private data at this byte address of the thread's own.
    PrivateStore(u64),
    /// Takes a lock; waits while another thread has it. A full fence.
    Lock(LockId),
    /// Gives a lock back, after all earlier stores; later operations do not wait for that.
    Unlock(LockId),
    /// Waits until all who take part have arrived, each after all its earlier stores.
    Barrier(BarrierId),
    /// Gives the lock back, waits for a signal or broadcast, and takes the lock again.
    Wait(ConditionId, LockId),
    /// Wakes one who waits, if anybody does.
    Signal(ConditionId),
    /// Wakes all who wait.
    Broadcast(ConditionId),
    /// Marks for persistency models: what comes after is ordered after what the marked location's writer did before. No
    /// time; a machine that has no use for it ignores it.
    Acquire(Word),
    /// The other side of [`Acquire`](Self::Acquire).
    Release(Word),
    /// Waits until the event count, which is 0 at the beginning, has been advanced so often. Nothing later begins before. No memory
    /// is accessed, and it takes no time but for the waiting. When a thread has died nobody waits any more, for what it
    /// would have advanced is not known.
    Await(EventCountId, u64),
    /// Adds one to the event count, after all earlier stores; later operations do not wait for that. No memory is accessed.
    Advance(EventCountId),
}

/// What a thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Next {
    /// This.
    Op(Op),
    /// It cannot tell before more of its loads have been delivered.
    Waits,
    /// Nothing any more.
    Ended,
}

/// A source of operations.
///
/// The machine calls [`next`](Self::next) as far ahead as its core can look. It delivers the values of loads and atomics in
/// program order, each once; a thread that said [`Next::Waits`] is asked again after a delivery.
pub trait Thread {
    /// The next operation in program order.
    fn next(&mut self) -> Next;

    /// What the oldest load or atomic that has not been delivered got.
    fn deliver(&mut self, value: u64);
}

impl<T: Thread + ?Sized> Thread for Box<T> {
    fn next(&mut self) -> Next {
        (**self).next()
    }

    fn deliver(&mut self, value: u64) {
        (**self).deliver(value);
    }
}

/// Where the objects stand that threads synchronise by. A machine performs real accesses to these words for the operations on
/// them, and resolves who waits for whom itself: no spinning is simulated. Each object has a line to itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Synchronisation {
    /// The word of each lock.
    pub locks: Vec<Word>,
    /// The word of each condition variable.
    pub conditions: Vec<Word>,
    /// Each barrier.
    pub barriers: Vec<Barrier>,
    /// How many event counts there are.
    pub event_counts: u32,
}

/// A barrier: who arrives adds to the counter; the last writes the flag, which the others read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Barrier {
    /// Counts arrivals. The flag is the first word of the line after its.
    pub counter: Word,
    /// How many threads take part.
    pub threads: u32,
}

/// What shared memory holds at the beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// How many words of shared memory the workload uses. Machines need not have more.
    pub words: u64,
    /// Runs of words that are not zero: where each begins, and its values. In order, without overlap.
    pub runs: Vec<(Word, Vec<u64>)>,
}
