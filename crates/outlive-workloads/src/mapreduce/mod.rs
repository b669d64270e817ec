//! MapReduce in shared memory, as a program of tasks (LUPIN §4, MODC §3).
//!
//! A reduction is three phases: files are *loaded* from disk into the segment, units of text are *mapped* to keys and values,
//! which each worker combines in [a table](crate::table) of its own place, and parts of the keys are *reduced*: their totals are
//! put into one map. A phase is a job, a unit of it is a task, and the job of a phase depends on that of the one before: so it
//! begins when every unit of that is done, and nothing that it reads changes any more.
//!
//! ```text
//!  job      its root spawns tasks for all units, and        a task is given    and leaves, where nobody looks before the job's end
//!  round 0  the job of round 1, with its root               a unit of text     a block of text, in the unit's cell
//!  round 1  the job of round 2                              the same unit      counts in a table, and the unit's result, which
//!                                                                              makes them valid
//!  round 2                                                  a part of the keys their totals, in the map
//! ```
//!
//! A task is given the phase and a range of units ([`OnTasks::units`]); one that has several spawns others. All else it finds in
//! the pool's data ([`run`]): where files are, what has become of units, where tables and totals are.
//!
//! # Why it comes to the same, whoever dies
//!
//! A task that was begun by one who died is begun again by another, and one whose worker died between its last store and its
//! end is begun again though nothing is left to do. So each kind of task has a moment at which what it did is there for good, and
//! is begun again without harm on either side of that:
//!
//! | task | what an attempt that died leaves | the moment | what the next one does |
//! | --- | --- | --- | --- |
//! | loads | a block in the unit's cell, with some of the text | the task is done | writes the same bytes to the same block |
//! | maps | slots of a table, with a stamp that is never valid | the compare-and-swap of the unit's [result](results) | makes an attempt of its own; if there is a result, nothing |
//! | reduces | some totals in the map | each key's insertion | finds them, and inserts the others |
//!
//! Mapping is the one that is not repeatable by itself: it adds to what is there. So the end of its task is not what makes it
//! count, but the result, which moves once; the argument stands in [`results`] and [`table`](crate::table). Nobody needs to know
//! whose table it was: it belongs to the worker's *place* in the pool, has one writer at any time as the place has one owner, and
//! goes on under the next one. Loading and reducing write what depends on nothing but what the phases before have left.
//!
//! Who recovers what: the allocator's lock and a transaction that a dead worker had committed are settled with its log, *before*
//! anybody takes over its task or its place. Blocks of a table that was about to grow are in the table's cells, for the next
//! owner of the place; a block of text is in the unit's cell, for whoever loads it again. An insertion into the map is completed or
//! taken back by the recovery of the dead one's descriptor. That jobs are complete, and that tasks are found again, is the pool's
//! ([`outlive_tasks`]).
//!
//! The crash points on the way are those of [`results::CommitPoint`], of [the table](crate::table::CountPoint) and
//! [its growth](crate::table::GrowPoint), and the engine's; [`sweeps`](crate::sweeps) and [`scenarios`](crate::scenarios) go
//! through them.

pub mod on_tasks;
pub mod results;
pub mod run;
pub mod tasks;

pub use on_tasks::{Counts, MapReduction};

use crate::key::Key;
use crate::on_tasks::PoolOf;
use outlive_tasks::Call;

/// A program: what is to be found in a text, and how what is found twice is put together.
///
/// ```
/// use outlive_workloads::key::Key;
/// use outlive_workloads::mapreduce::MapReduce;
///
/// /// How many lines have how many bytes.
/// struct LineLengths;
///
/// impl MapReduce for LineLengths {
///     fn divides(&self, byte: u8) -> bool {
///         byte == b'\n'
///     }
///
///     fn map(&self, text: &[u8], mut emit: impl FnMut(Key<'_>, u64)) {
///         for line in text.split_inclusive(|byte| *byte == b'\n') {
///             emit(Key::new(line.len().to_string().as_bytes()), 1);
///         }
///     }
/// }
/// ```
pub trait MapReduce {
    /// Whether a text may be divided after `byte`, wherever it stands: what [`map`](Self::map) finds in the two
    /// parts is what it finds in the whole.
    fn divides(&self, byte: u8) -> bool;

    /// Calls `emit` with every key that is in `text`, and a value. The same text gives the same keys and values.
    /// `text` begins at the start of a file or behind a byte that divides, and ends with such a byte or
    /// with the file. No key is empty.
    fn map(&self, text: &[u8], emit: impl FnMut(Key<'_>, u64));

    /// What the whole text has, beside what [`map`](Self::map) finds in it, because it begins with the byte `first`:
    /// a key that `map` never finds, the empty one for example, and its value.
    fn at_start(&self, first: u8) -> Option<(Vec<u8>, u64)> {
        let _ = first;
        None
    }

    /// Two values of one key in one. In whatever order values are combined, the result is the same.
    fn combine(&self, a: u64, b: u64) -> u64 {
        a + b
    }
}

/// A [program](MapReduce) and its tasks, which do what [`tasks`] has for all of them.
///
/// ```
/// use outlive_tasks::{Call, task};
/// use outlive_workloads::key::Key;
/// use outlive_workloads::mapreduce::{MapReduce, OnTasks, tasks};
/// use outlive_workloads::on_tasks::PoolOf;
///
/// /// How often each byte comes.
/// struct Bytes;
///
/// impl MapReduce for Bytes {
///     fn divides(&self, _: u8) -> bool {
///         true
///     }
///
///     fn map(&self, text: &[u8], mut emit: impl FnMut(Key<'_>, u64)) {
///         text.iter().for_each(|byte| emit(Key::new(&[*byte]), 1));
///     }
/// }
///
/// impl OnTasks for Bytes {
///     const POOL: PoolOf = PoolOf { number: 1000, name: "bytes" };
///
///     fn of(_: u64) -> Option<Self> {
///         Some(Self)
///     }
///
///     fn phase(phase: u64) -> Call {
///         phase_of_bytes(phase)
///     }
///
///     fn units(phase: u64, from: u64, to: u64) -> Call {
///         units_of_bytes(phase, from, to)
///     }
/// }
///
/// task! {
///     fn phase_of_bytes(context, phase: u64) {
///         tasks::phase::<Bytes>(context, phase)
///     }
///
///     fn units_of_bytes(context, phase: u64, from: u64, to: u64) {
///         tasks::units::<Bytes>(context, phase, from..to)
///     }
/// }
/// ```
pub trait OnTasks: MapReduce + Sized + Sync {
    /// By what workers know it, and all of its kind.
    const POOL: PoolOf;

    /// Which program of its kind it is: a number that stands in the pod.
    fn number(&self) -> u64 {
        0
    }

    /// The program with this number.
    fn of(number: u64) -> Option<Self>;

    /// The task that begins a phase: [`tasks::phase`].
    fn phase(phase: u64) -> Call;

    /// The task that does the units of a phase that begin at `from` and end before `to`, or spawns others that do:
    /// [`tasks::units`].
    fn units(phase: u64, from: u64, to: u64) -> Call;
}
