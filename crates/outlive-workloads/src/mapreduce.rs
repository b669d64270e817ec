//! MapReduce in shared memory: what a worker does (LUPIN §4).
//!
//! Three phases, each a [list of units](crate::work_list): files are *loaded* from disk into the segment,
//! units of text are *mapped* to keys and values, which each worker combines in [its own
//! table](crate::table), and parts of the keys are *reduced*: their totals are put into one map. A phase begins when every
//! unit of the one before is committed, so nothing that it reads changes any more. Nothing is waited for but
//! the units of living workers.
//!
//! Every unit's work can be done again: loading writes the same bytes to the same block, mapping makes an attempt of
//! its own, reducing reads what does not change any more, and what it inserts into the map is there or is the same. What counts is decided by the compare-and-swap of the
//! unit's result.

use crate::header::CalledOff;
use crate::key::Key;
use crate::run::Run;
use crate::table::{Blocks, Table, TableError};
use crate::work_list::{SharedList, WorkList};
use outlive::heap::LocalHeap;
use outlive::heap::buddy::{AllocateError, FreeError};
use outlive::memory::{Memory, Offset, Ordering};
use outlive::recovery::RecoverError;
use outlive::structures::{InsertError, Map, OpenError};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

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

/// Why a worker could not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkError {
    /// The run was called off.
    #[error("the run was called off: {0:?}")]
    CalledOff(CalledOff),
    /// A block could not be had.
    #[error(transparent)]
    Allocate(#[from] AllocateError),
    /// A block could not be given back.
    #[error(transparent)]
    Free(#[from] FreeError),
    /// A unit has a key that is longer than a table can name.
    #[error("unit {unit} has a key that is too long")]
    TooLong {
        /// The unit.
        unit: u64,
    },
    /// Something could not be counted.
    #[error(transparent)]
    Table(#[from] TableError),
    /// What a dead one left could not be recovered.
    #[error(transparent)]
    Recover(#[from] RecoverError),
    /// A file cannot be read.
    #[error("file {file} cannot be read: {source}")]
    Unreadable {
        /// Its number.
        file: u32,
        /// Why not.
        source: std::io::Error,
    },
    /// A file is shorter than when it was looked at.
    #[error("file {file} has changed while it was read")]
    Changed {
        /// Its number.
        file: u32,
    },
    /// A unit that only this worker could commit is committed by another.
    #[error(
        "unit {unit} was committed by somebody else, though its claimant lives; the segment is damaged"
    )]
    Overtaken {
        /// The unit.
        unit: u64,
    },
    /// The map of totals cannot be opened.
    #[error(transparent)]
    Totals(#[from] OpenError),
    /// A key has another total than before.
    #[error(
        "a key of part {part} has the total {found}, and {total} was found again; the segment is damaged"
    )]
    Different {
        /// Its part.
        part: u64,
        /// The total in the map.
        found: u64,
        /// The total that the tables give.
        total: u64,
    },
    /// The header of the run is damaged.
    #[error("the paths of the input cannot be read from the segment: it is damaged")]
    Paths,
}

impl WorkError {
    /// What the others are told.
    pub fn why(&self, worker: u32) -> CalledOff {
        match self {
            Self::CalledOff(why) => *why,
            Self::Allocate(error) | Self::Table(TableError::Allocate(error)) => {
                no_room(error).map_or(CalledOff::Failed(worker), CalledOff::Full)
            }
            Self::Unreadable { file, source } => {
                CalledOff::Unreadable(*file, source.raw_os_error().unwrap_or(0))
            }
            Self::Changed { file } => CalledOff::Changed(*file),
            Self::TooLong { unit } => CalledOff::TooLong(*unit),
            _ => CalledOff::Failed(worker),
        }
    }
}

/// How many bytes were asked for, if there was no room for them.
pub(crate) fn no_room(error: &AllocateError) -> Option<u64> {
    error.asked()
}

/// A worker of a run.
#[derive(Debug)]
pub struct Worker<'m, M: Memory> {
    run: Run<M>,
    heap: &'m LocalHeap<'m, M>,
    blocks: Blocks<'m, M>,
    number: u32,
    /// What is copied to or from the segment at a time.
    buffer: Vec<u8>,
}

/// The logarithm of the size of a new table.
const NEW_TABLE: u32 = 12;
/// How much is read beyond a unit at a time, to find where it ends.
const BEYOND: usize = 512;

impl<'m, M: Memory> Worker<'m, M> {
    /// The worker `number` of `run`: the only one with this number that lives.
    pub fn new(
        run: Run<M>,
        heap: &'m LocalHeap<'m, M>,
        blocks: Blocks<'m, M>,
        number: u32,
    ) -> Self {
        Self {
            run,
            heap,
            blocks,
            number,
            buffer: Vec::new(),
        }
    }

    fn list(&self, units: crate::work_list::Units<M>) -> SharedList<'m, M> {
        let Blocks {
            member, recoverers, ..
        } = self.blocks;
        SharedList::new(units, member, recoverers, self.run.header().called_off_at())
    }

    /// Works until everything is done. `before_commit` is called with each mapped unit right before it is
    /// committed.
    ///
    /// # Errors
    /// If this worker cannot go on; the run is called off then.
    pub fn work(
        &mut self,
        program: &impl MapReduce,
        before_commit: impl FnMut(u64),
    ) -> Result<(), WorkError> {
        let done = self.phases(program, before_commit);
        if let Err(error) = &done {
            self.run.header().call_off(error.why(self.number));
        }
        done
    }

    fn phases(
        &mut self,
        program: &impl MapReduce,
        before_commit: impl FnMut(u64),
    ) -> Result<(), WorkError> {
        self.load()?;
        self.map(program, before_commit)?;
        self.reduce(program)
    }

    /// The end of a phase, unless it is not its end.
    fn ended(&self) -> Result<(), WorkError> {
        match self.run.called_off() {
            Some(why) => Err(WorkError::CalledOff(why)),
            None => Ok(()),
        }
    }

    fn load(&mut self) -> Result<(), WorkError> {
        let mut list = self.list(self.run.loading());
        let mut inputs = None;
        let mut open: HashMap<u32, File> = HashMap::new();
        while let Some(index) = list.next()? {
            if inputs.is_none() {
                inputs = Some(self.run.inputs().ok_or(WorkError::Paths)?);
            }
            let files = inputs.as_ref().map_or(&[][..], |inputs| inputs.files());
            let (unit, cell) = self.run.unit(index);
            let unreadable = |source| WorkError::Unreadable {
                file: unit.file,
                source,
            };
            let changed = WorkError::Changed { file: unit.file };
            if !open.contains_key(&unit.file) {
                let input = files.get(unit.file as usize).ok_or(WorkError::Paths)?;
                let file = File::open(&input.path).map_err(unreadable)?;
                if file.metadata().map_err(unreadable)?.len() != input.len {
                    return Err(changed);
                }
                // Units come in order: of the files before this one nothing more is read.
                open.clear();
                open.insert(unit.file, file);
            }
            let memory = self.run.memory();
            let mut text = Offset::from_raw(memory.load(cell, Ordering::Relaxed));
            if text.is_null() {
                text = self.heap.allocate_into(unit.len.into(), cell)?;
            }
            self.buffer.resize(unit.len as usize, 0);
            match open[&unit.file].read_exact_at(&mut self.buffer, unit.from) {
                Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                    return Err(changed);
                }
                read => read.map_err(unreadable)?,
            }
            memory.copy_in(text, &self.buffer);
            if !list.commit(index, 1) {
                return Err(WorkError::Overtaken { unit: index });
            }
        }
        self.ended()
    }

    fn map(
        &mut self,
        program: &impl MapReduce,
        mut before_commit: impl FnMut(u64),
    ) -> Result<(), WorkError> {
        let mut list = self.list(self.run.mapping());
        let mut table: Option<Table<'m, M>> = None;
        while let Some(index) = list.next()? {
            let table = match &mut table {
                Some(table) => table,
                none => {
                    let place = self.run.table(self.number);
                    none.insert(Table::open(place, self.blocks, NEW_TABLE)?)
                }
            };
            table.begin(index);
            let range = self.gather(program, index);
            let mut counted = Ok(());
            program.map(&self.buffer[range], |key, value| {
                if counted.is_ok()
                    && let Err(error) = table.add(key, value, |a, b| program.combine(a, b))
                {
                    counted = Err(error);
                }
            });
            match counted {
                Err(TableError::TooLong { .. }) => return Err(WorkError::TooLong { unit: index }),
                counted => counted?,
            }
            before_commit(index);
            if !list.commit(index, table.result()) {
                return Err(WorkError::Overtaken { unit: index });
            }
        }
        self.ended()
    }

    /// Copies the text of unit `index` into the buffer: from behind its first byte that divides (or
    /// the start of the file) to behind the first such byte beyond it (or the end of the file). Says where in the
    /// buffer that is.
    fn gather(&mut self, program: &impl MapReduce, index: u64) -> core::ops::Range<usize> {
        let (run, memory) = (self.run, self.run.memory());
        let text_of = |index: u64| {
            let (unit, cell) = run.unit(index);
            (unit, Offset::from_raw(memory.load(cell, Ordering::Relaxed)))
        };
        let (unit, text) = text_of(index);
        let len = unit.len as usize;
        self.buffer.resize(len, 0);
        memory.copy_out(text, &mut self.buffer);
        let start = if unit.from == 0 {
            0
        } else {
            // It begins here if the unit before ends with a byte that divides.
            let (before, text) = text_of(index - 1);
            let last = u64::from(before.len - 1);
            let mut word = [0; 8];
            memory.copy_out(text + (last & !7), &mut word);
            if program.divides(word[(last & 7) as usize]) {
                0
            } else {
                match self.buffer.iter().position(|byte| program.divides(*byte)) {
                    Some(at) => at + 1,
                    None => return 0..0,
                }
            }
        };
        if self
            .buffer
            .last()
            .is_some_and(|byte| program.divides(*byte))
        {
            return start..len;
        }
        for beyond in index + 1..run.mapping().count() {
            let (next, text) = text_of(beyond);
            if next.file != unit.file {
                break;
            }
            let mut at = 0;
            while at < next.len as usize {
                let end = self.buffer.len();
                let take = BEYOND.min(next.len as usize - at);
                self.buffer.resize(end + take, 0);
                memory.copy_out(text + at as u64, &mut self.buffer[end..]);
                let found = self.buffer[end..]
                    .iter()
                    .position(|byte| program.divides(*byte));
                if let Some(found) = found {
                    return start..end + found + 1;
                }
                at += take;
            }
        }
        start..self.buffer.len()
    }

    fn reduce(&mut self, program: &impl MapReduce) -> Result<(), WorkError> {
        let mut list = self.list(self.run.reducing());
        let mut merged = Merged::default();
        let totals = Totals::open(self.run.memory(), self.run.totals())?;
        while let Some(part) = list.next()? {
            merged.clear();
            for number in 0..self.run.workers() {
                let table = self.run.table(number);
                table.each_in(part, self.run.part_bits(), |hash, key, total| {
                    merged.add(hash, key, total);
                });
            }
            merged.merge(|a, b| program.combine(a, b));
            for found in &merged.found {
                let total = found.total;
                match totals.insert(self.heap, merged.key(found), &total) {
                    Ok(()) => {}
                    // Of somebody who died before the part was committed.
                    Err(InsertError::Exists(there)) if there == total => {}
                    Err(InsertError::Exists(found)) => {
                        return Err(WorkError::Different { part, found, total });
                    }
                    Err(InsertError::Heap(error)) => return Err(error.into()),
                }
            }
            if !list.commit(part, 1) {
                return Err(WorkError::Overtaken { unit: part });
            }
        }
        self.ended()
    }
}

/// What comes out of a run that is done: every key with its total, in no particular order.
///
/// # Errors
/// If the map of totals cannot be opened.
pub fn results<M: Memory>(
    run: Run<M>,
    heap: &LocalHeap<'_, M>,
) -> Result<Vec<(Vec<u8>, u64)>, OpenError> {
    let totals = Totals::open(run.memory(), run.totals())?;
    Ok(totals.iter(heap).collect())
}

/// The map that totals are put into.
pub type Totals<M> = Map<[u8], u64, M>;

/// What several tables have of one part.
#[derive(Debug, Default)]
struct Merged {
    found: Vec<Found>,
    keys: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Found {
    hash: u64,
    from: usize,
    len: usize,
    total: u64,
}

impl Merged {
    fn clear(&mut self) {
        self.found.clear();
        self.keys.clear();
    }

    fn add(&mut self, hash: u64, key: &[u8], total: u64) {
        self.found.push(Found {
            hash,
            from: self.keys.len(),
            len: key.len(),
            total,
        });
        self.keys.extend_from_slice(key);
    }

    fn key(&self, found: &Found) -> &[u8] {
        &self.keys[found.from..found.from + found.len]
    }

    fn merge(&mut self, combine: impl Fn(u64, u64) -> u64) {
        let Self { found, keys } = self;
        let key = |found: &Found| &keys[found.from..found.from + found.len];
        found.sort_unstable_by(|a, b| a.hash.cmp(&b.hash).then_with(|| key(a).cmp(key(b))));
        found.dedup_by(|next, kept| {
            let same = next.hash == kept.hash && key(next) == key(kept);
            if same {
                kept.total = combine(kept.total, next.total);
            }
            same
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heap_without_room_calls_the_run_off_as_full() {
        let (asked, heap) = (4096, 1 << 20);
        let refusals = [
            AllocateError::Full {
                asked,
                largest_free: 0,
            },
            AllocateError::HeapFull {
                asked,
                largest_free: 0,
                heap,
                enough: 2 * heap,
            },
            AllocateError::TooLarge { asked, most: 64 },
        ];
        for refusal in refusals {
            let table = WorkError::Table(TableError::Allocate(refusal.clone()));
            assert_eq!(table.why(3), CalledOff::Full(asked));
            assert_eq!(WorkError::Allocate(refusal).why(3), CalledOff::Full(asked));
        }
    }
}
