//! The programs of a simulated machine: threads as sources of operations, and their workloads.
//!
//! A machine asks a [`Thread`] for its operations in program order, and delivers the values of its
//! loads. So threads can be plain lists, recorded traces, or real algorithms that compute with the
//! contents of the simulated memory.
//!
//! Shared memory is addressed by [`Word`]: words of eight bytes, counted from 0. A thread keeps its
//! private data itself: the machine gets the addresses of [private](Op::PrivateLoad) accesses, for
//! their timing, and no values.

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

    /// Returns the line that contains the word.
    pub const fn line(self) -> LineAddress {
        LineAddress(self.0 / Self::PER_LINE)
    }

    /// Returns its index in the line, from 0 to 7.
    pub const fn place(self) -> usize {
        (self.0 % Self::PER_LINE) as usize
    }

    /// Returns the word `words` after this one.
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

/// One of the event counts of a workload: how often threads have advanced it. Event counts are not
/// in memory; they impose a recorded order on the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventCountId(pub u32);

/// The operation of an [atomic](Op::Atomic) on the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Update {
    /// Writes this value.
    Exchange(u64),
    /// Adds this value, and wraps around.
    Add(u64),
    /// Sets these bits.
    Or(u64),
    /// Clears all bits but these.
    And(u64),
    /// Writes `new` if the word is `expected`.
    CompareExchange {
        /// The value to compare with.
        expected: u64,
        /// The value to write.
        new: u64,
    },
}

impl Update {
    /// Returns the updated word if it was `old`.
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

/// One operation of a thread. Each is one instruction, except [`Compute`](Self::Compute).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// This many instructions that access no memory.
    Compute(u32),
    /// Reads a word of shared memory. The value is [delivered](Thread::deliver).
    Load(Word),
    /// Writes a word of shared memory.
    Store(Word, u64),
    /// Writes these bytes of a word of shared memory (bit 0 of the mask is the lowest byte). The
    /// value is that of the *whole* word afterwards, and a machine may write all of it. The mask
    /// matters for coalescing.
    StorePart(Word, u64, u8),
    /// Updates a word of shared memory atomically, with a full fence before and after, as x86's
    /// locked instructions do. The old value is [delivered](Thread::deliver).
    Atomic(Word, Update),
    /// Makes later loads wait until earlier stores are done (MFENCE).
    Fence,
    /// Reads private data at this byte address in the thread's own address space.
    PrivateLoad(u64),
    /// Writes private data at this byte address in the thread's own address space.
    PrivateStore(u64),
    /// Acquires a lock; waits while another thread holds it. A full fence.
    Lock(LockId),
    /// Releases a lock, after all earlier stores; later operations do not wait for that.
    Unlock(LockId),
    /// Waits until all threads of the barrier have arrived, each after all its earlier stores.
    Barrier(BarrierId),
    /// Releases the lock, waits for a signal or broadcast, and acquires the lock again.
    Wait(ConditionId, LockId),
    /// Wakes one waiting thread, if there is one.
    Signal(ConditionId),
    /// Wakes all waiting threads.
    Broadcast(ConditionId),
    /// A mark for persistency models: later operations are ordered after those that the writer of
    /// the marked word did before. Takes no time; machines that do not need it ignore it.
    Acquire(Word),
    /// The counterpart of [`Acquire`](Self::Acquire).
    Release(Word),
    /// Waits until the event count, which is 0 at the beginning, has been advanced this often.
    /// Later operations do not begin before. Accesses no memory, and takes no time except the wait.
    /// After the death of a thread no thread waits any more, because the advances of the dead
    /// thread are unknown.
    Await(EventCountId, u64),
    /// Adds one to the event count, after all earlier stores; later operations do not wait for
    /// that. Accesses no memory.
    Advance(EventCountId),
}

/// The answer of a thread that is asked for its next operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Next {
    /// The next operation.
    Op(Op),
    /// The next operation depends on loads that have not been delivered yet.
    Waits,
    /// The thread has ended.
    Ended,
}

/// A source of operations.
///
/// The machine calls [`next`](Self::next) as far ahead as its core can look. It delivers the values
/// of loads and atomics in program order, each once. A thread that returned [`Next::Waits`] is
/// asked again after a delivery.
pub trait Thread {
    /// Returns the next operation in program order.
    fn next(&mut self) -> Next;

    /// Delivers the value of the oldest load or atomic that has not been delivered.
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

/// The addresses of the objects by which threads synchronise. A machine performs real accesses to
/// these words for the operations on them, but determines itself which threads wait: no spinning is
/// simulated. Each object has a line of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Synchronisation {
    /// The word of each lock.
    pub locks: Vec<Word>,
    /// The word of each condition variable.
    pub conditions: Vec<Word>,
    /// The barriers.
    pub barriers: Vec<Barrier>,
    /// The number of event counts.
    pub event_counts: u32,
}

/// A barrier: each thread adds to the counter; the last writes the flag, which the others read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Barrier {
    /// Counts arrivals. The flag is the first word of the next line.
    pub counter: Word,
    /// The number of threads that take part.
    pub threads: u32,
}

/// The initial contents of shared memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// The number of words of shared memory that the workload uses. Machines need not have more.
    pub words: u64,
    /// The runs of words that are not zero: first word and values. In order, without overlap.
    pub runs: Vec<(Word, Vec<u64>)>,
}
