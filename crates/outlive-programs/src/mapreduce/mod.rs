//! MapReduce in shared memory, as a program of tasks (LUPIN §4, MODC §3).
//!
//! A reduction has three phases. Files are *loaded* from disk into the segment. Units of text are
//! *mapped* to keys and values, which each worker combines in [a table](crate::table) of its own
//! place. Parts of the keys are *reduced*: their totals are inserted into one map. A phase is a
//! job, a unit is a task, and the job of a phase depends on the job before it. So a phase begins
//! when every unit of the previous phase is done and its input no longer changes.
//!
//! ```text
//!  job      its root spawns tasks for all units, and        a task is given    and leaves, unread before the job's end
//!  round 0  the job of round 1, with its root               a unit of text     a block of text, in the unit's cell
//!  round 1  the job of round 2                              the same unit      counts in a table, and the unit's result, which
//!                                                                              makes them valid
//!  round 2                                                  a part of the keys their totals, in the map
//! ```
//!
//! A task is given the phase and a range of units ([`OnTasks::units`]). A task with several units
//! spawns others. It finds everything else in the pool's data ([`run`]): the files, the state of
//! the units, the tables and the totals.
//!
//! # Why deaths do not change the result
//!
//! The task of a dead worker is re-executed by another worker, even if the worker died between its
//! last store and the task's end, when no work is left. So each kind of task has one moment at
//! which its effect becomes permanent, and re-executing it is harmless before and after that
//! moment:
//!
//! | task | left by an attempt that died | the moment | the next attempt |
//! | --- | --- | --- | --- |
//! | loads | a block in the unit's cell, with some of the text | the task is done | writes the same bytes to the same block |
//! | maps | slots of a table, with a stamp that is never valid | the compare-and-swap of the unit's [result](results) | makes an attempt of its own; if there is a result, nothing |
//! | reduces | some totals in the map | each key's insertion | inserts the others |
//!
//! Only mapping is not idempotent by itself, since it adds to existing values. So the end of a
//! mapping task does not make its counts valid. The unit's result does, and it changes once;
//! [`results`] and [`table`](crate::table) give the argument. The table belongs to the worker's
//! *place* in the pool, not to the worker: it has one writer at any time, as the place has one
//! owner, and the next owner continues with it. The stores of loading and reducing depend only on
//! the output of earlier phases.
//!
//! Recovery: the allocator's lock and a transaction that a dead worker had committed are settled
//! with its log, *before* its task or its place is taken over. Blocks of a table that was about to
//! grow are in the table's cells, for the next owner of the place. A block of text is in the unit's
//! cell, for the worker that loads it again. An insertion into the map is completed or rolled back
//! by the recovery of the dead worker's descriptor. The pool ([`outlive_tasks`]) ensures that jobs
//! complete and that tasks are found again.
//!
//! The crash points are those of [`results::CommitPoint`], of [the table](crate::table::CountPoint)
//! and [its growth](crate::table::GrowPoint), and of the engine. Tests: the sweeps and scenarios of
//! lab/outlive-proofs/src/wordcount.

pub mod on_tasks;
pub mod results;
pub mod run;
pub mod size;
pub mod tasks;

pub use on_tasks::{Counts, MapReduction};

use crate::key::Key;
use outlive_run::on_tasks::PoolOf;
use outlive_tasks::Call;

/// A program: finds keys and values in a text, and combines the values of a key.
///
/// ```
/// use outlive_programs::key::Key;
/// use outlive_programs::mapreduce::MapReduce;
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
    /// Returns whether a text may be divided after `byte`, wherever it stands: [`map`](Self::map)
    /// must find in the two parts the same as in the whole.
    fn divides(&self, byte: u8) -> bool;

    /// Calls `emit` with every key of `text` and its value. The same text gives the same keys and
    /// values. `text` begins at the start of a file or after a byte that divides, and ends with
    /// such a byte or with the file. No key is empty.
    fn map(&self, text: &[u8], emit: impl FnMut(Key<'_>, u64));

    /// Returns a key and value that a text has because it begins with the byte `first`. The key
    /// must be one that [`map`](Self::map) never finds, for example the empty one.
    fn at_start(&self, first: u8) -> Option<(Vec<u8>, u64)> {
        let _ = first;
        None
    }

    /// Combines two values of one key. The order in which values are combined does not matter.
    fn combine(&self, a: u64, b: u64) -> u64 {
        a + b
    }
}

/// A [program](MapReduce) with its tasks, which call the shared implementation in [`tasks`].
///
/// ```
/// use outlive_tasks::{Call, task};
/// use outlive_programs::key::Key;
/// use outlive_programs::mapreduce::{MapReduce, OnTasks, tasks};
/// use outlive_run::on_tasks::PoolOf;
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
    /// The number and name by which workers recognise the pool of this kind of program.
    const POOL: PoolOf;

    /// Returns the number of this program among its kind, as it is stored in the pod.
    fn number(&self) -> u64 {
        0
    }

    /// Returns the program with this number.
    fn of(number: u64) -> Option<Self>;

    /// Returns the task that begins a phase: [`tasks::phase`].
    fn phase(phase: u64) -> Call;

    /// Returns the task that does units `from..to` of a phase, or spawns tasks that do:
    /// [`tasks::units`].
    fn units(phase: u64, from: u64, to: u64) -> Call;
}
