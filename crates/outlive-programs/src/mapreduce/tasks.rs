//! The tasks of a reduction: load, map, reduce.
//!
//! Why and by which worker a task can be re-executed is explained at the top of [MapReduce](super).

use super::OnTasks;
use super::results::Overtaken;
use super::run::Run;
use crate::table::{Table, TableError};
use core::cell::RefCell;
use core::ops::Range;
use outlive::heap::buddy::AllocateError;
use outlive::memory::{Memory, Offset, Ordering};
use outlive::structures::{InsertError, Map, OpenError};
use outlive_run::blocks::Blocks;
use outlive_run::header::CalledOff;
use outlive_run::host::header_here;
use outlive_run::input::{open_regular, version_of};
use outlive_run::on_tasks::{damaged, next_round, round, spread, step, unit};
use outlive_tasks::{Context, TaskError, TaskResult};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

// The phases: the numbers of their rounds.
/// Text is read from disk.
pub const LOAD: u64 = 0;
/// Text is counted.
pub const MAP: u64 = 1;
/// Counts are combined.
pub const REDUCE: u64 = 2;

/// The name of the [run](Run)'s data.
pub(super) const RUN: &str = "run";
/// The binary logarithm of the number of entries of a new table.
const NEW_TABLE: u32 = 12;
/// The bytes read at a time beyond a unit to find its end.
const BEYOND: usize = 512;
/// The block that an exhausted heap cannot provide: a slab.
const LEAST: u64 = 32 << 10;

/// The map of totals.
pub type Totals<M> = Map<[u8], u64, M>;

/// Begins a phase: spawns tasks for its units, and creates the job of the next phase.
///
/// # Errors
/// If the heap is full.
pub fn phase<P: OnTasks>(context: &Context<'_>, phase: u64) -> TaskResult {
    let run = run_of(context)?;
    round(phase);
    if phase == REDUCE && run.results().done() != run.units() {
        return Err(damaged(
            "a unit was not counted, though its job is complete",
        ));
    }
    spread_units::<P>(context, phase, 0..units_in(run, phase))?;
    if phase < REDUCE {
        let next = next_round(context, phase + 1, P::phase(phase + 1));
        return full_or(context, next);
    }
    Ok(())
}

/// Executes the unit `range` of a phase, if it is one unit; otherwise spawns tasks for its parts.
///
/// # Errors
/// If a unit cannot be executed. The run is then cancelled, if the header can express the reason.
pub fn units<P: OnTasks>(context: &Context<'_>, phase: u64, range: Range<u64>) -> TaskResult {
    let (run, index) = (run_of(context)?, range.start);
    if range.end > units_in(run, phase) || index >= range.end {
        return Err(damaged("a task has units that do not exist"));
    }
    if range.end - index > 1 {
        return spread_units::<P>(context, phase, range);
    }
    if header_here().is_some_and(|header| header.called_off().is_some()) {
        return Err(TaskError::new("the run was cancelled"));
    }
    let program = P::of(run.program());
    let program = program.ok_or_else(|| damaged("the program of the run does not exist"))?;
    let done = match phase {
        LOAD => load(context, run, index),
        MAP => map(context, run, &program, index),
        _ => reduce(context, run, &program, index),
    };
    done.map_err(failed)
}

/// Returns the error of a task whose unit was not done. Calls the run off if the process that
/// started it can report the reason.
fn failed(error: UnitError) -> TaskError {
    if let (Some(why), Some(header)) = (error.why(), header_here()) {
        header.call_off(why);
    }
    match error {
        // Other workers may be able to do it. These include the workers of the process that started
        // the run, which can report the cause.
        error @ UnitError::Unreadable { .. } => TaskError::unable(error),
        error if error.why().is_some() && header_here().is_none() => TaskError::unable(error),
        error => error.into(),
    }
}

fn units_in(run: Run, phase: u64) -> u64 {
    match phase {
        LOAD | MAP => run.units(),
        _ => run.parts(),
    }
}

fn spread_units<P: OnTasks>(context: &Context<'_>, phase: u64, range: Range<u64>) -> TaskResult {
    let spawned = spread(context, range, 1, |part| {
        P::units(phase, part.start, part.end)
    });
    full_or(context, spawned)
}

/// Returns the result of a spawn. If it failed because the heap is full, calls the run off.
fn full_or(context: &Context<'_>, spawned: TaskResult) -> TaskResult {
    spawned.inspect_err(|_| {
        if context.heap().heap().buddy().largest_free() < LEAST
            && let Some(header) = header_here()
        {
            header.call_off(CalledOff::Full(LEAST));
        }
    })
}

/// Opens the run of the context's pool.
fn run_of(context: &Context<'_>) -> Result<Run, TaskError> {
    let data = context.input(RUN)?;
    let run = Run::open(context.memory(), data.start(), data.len());
    run.ok_or_else(|| damaged("the data of the run are invalid"))
}

/// The reason why a unit was not done.
#[derive(Debug, thiserror::Error)]
enum UnitError {
    /// A block could not be allocated.
    #[error(transparent)]
    Allocate(#[from] AllocateError),
    /// A key is longer than a table allows.
    #[error("unit {unit} has a key that is too long")]
    TooLong { unit: u64 },
    /// The table could not count it.
    #[error(transparent)]
    Table(#[from] TableError),
    /// Its file cannot be read, at least by this worker.
    #[error("{} cannot be read: {source}", path.display())]
    Unreadable {
        path: PathBuf,
        source: std::io::Error,
    },
    /// Its file has changed since the inputs were listed.
    #[error("file {file} has changed while it was read; run again")]
    Changed { file: u32 },
    /// Another attempt has committed it.
    #[error(transparent)]
    Overtaken(#[from] Overtaken),
    /// The map of totals cannot be opened.
    #[error(transparent)]
    Totals(#[from] OpenError),
    /// An error of the context.
    #[error("{0}")]
    Task(TaskError),
}

impl From<TaskError> for UnitError {
    fn from(error: TaskError) -> Self {
        Self::Task(error)
    }
}

impl UnitError {
    /// Returns the reason to call the run off, if the process that started it can report the cause.
    fn why(&self) -> Option<CalledOff> {
        match self {
            Self::Allocate(error) | Self::Table(TableError::Allocate(error)) => {
                error.asked().map(CalledOff::Full)
            }
            Self::Changed { file } => Some(CalledOff::Changed(*file)),
            Self::TooLong { unit } => Some(CalledOff::TooLong(*unit)),
            _ => None,
        }
    }
}

thread_local! {
    /// A buffer for copies to and from the segment, kept between units for its pages.
    static TEXT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Reads the text of unit `index` into the block in its cell.
fn load(context: &Context<'_>, run: Run, index: u64) -> Result<(), UnitError> {
    let (unit, cell) = run.unit(index);
    let (file, memory) = (unit.file, run.memory());
    let input = run
        .file(file)
        .ok_or_else(|| damaged("the file of a unit does not exist"))?;
    if input.path.as_os_str().is_empty() {
        // The driver has put the text there.
        step();
        return match memory.load::<u64>(cell, Ordering::Relaxed) {
            0 => Err(damaged("the text of a pipe does not exist").into()),
            _ => Ok(()),
        };
    }
    let unreadable = |source| UnitError::Unreadable {
        path: input.path.clone(),
        source,
    };
    let opened = open_regular(&input.path).map_err(unreadable)?;
    if version_of(&opened.metadata().map_err(unreadable)?) != input.version {
        return Err(UnitError::Changed { file });
    }
    let mut text = Offset::from_raw(memory.load(cell, Ordering::Relaxed));
    if text.is_null() {
        text = context.heap().allocate_into(unit.len.into(), cell)?;
    }
    TEXT.with_borrow_mut(|buffer| {
        buffer.resize(unit.len as usize, 0);
        match opened.read_exact_at(buffer, unit.from) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                return Err(UnitError::Changed { file });
            }
            read => read.map_err(unreadable)?,
        }
        memory.copy_in(text, buffer);
        Ok(())
    })?;
    step();
    Ok(())
}

/// Counts the keys of unit `index` in the table of the worker's place.
fn map(
    context: &Context<'_>,
    run: Run,
    program: &impl OnTasks,
    index: u64,
) -> Result<(), UnitError> {
    let table = run.table(context.worker());
    let table = table.ok_or_else(|| damaged("a worker of the pool has no table"))?;
    let recoverers = context.member().recoverers();
    let blocks = Blocks {
        buddy: *context.heap().heap().buddy(),
        member: context.member(),
        recoverers: recoverers.ok_or_else(|| damaged("the pod has no logs"))?,
    };
    let attempt = || {
        let counted = TEXT.with_borrow_mut(|buffer| {
            table.attempt(blocks, NEW_TABLE, index, |table| {
                let range = gather(run, program, index, buffer);
                count(program, &buffer[range], table)
            })
        });
        counted.map_err(|error| match error {
            TableError::TooLong { .. } => failed(UnitError::TooLong { unit: index }),
            other => failed(other.into()),
        })
    };
    // A host that is to be killed right before the commit stops at the end of `unit`.
    let commit = || Ok::<u64, UnitError>(unit(context, index, attempt)?);
    run.results().once(index, commit).map(drop)
}

/// Adds the keys of `text` to `table`.
fn count<M: Memory>(
    program: &impl OnTasks,
    text: &[u8],
    table: &mut Table<'_, M>,
) -> Result<(), TableError> {
    let mut counted = Ok(());
    program.map(text, |key, value| {
        if counted.is_ok()
            && let Err(error) = table.add(key, value, |a, b| program.combine(a, b))
        {
            counted = Err(error);
        }
    });
    counted
}

/// Copies the text of unit `index` into `buffer`: from after its first byte that divides (or the
/// start of the file) to after the first such byte beyond the unit (or the end of the file).
/// Returns the text's range in the buffer.
fn gather(run: Run, program: &impl OnTasks, index: u64, buffer: &mut Vec<u8>) -> Range<usize> {
    let memory = run.memory();
    let text_of = |index: u64| {
        let (unit, cell) = run.unit(index);
        (unit, Offset::from_raw(memory.load(cell, Ordering::Relaxed)))
    };
    let (unit, text) = text_of(index);
    let len = unit.len as usize;
    buffer.resize(len, 0);
    memory.copy_out(text, buffer);
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
            match buffer.iter().position(|byte| program.divides(*byte)) {
                Some(at) => at + 1,
                None => return 0..0,
            }
        }
    };
    if buffer.last().is_some_and(|byte| program.divides(*byte)) {
        return start..len;
    }
    for beyond in index + 1..run.units() {
        let (next, text) = text_of(beyond);
        if next.file != unit.file {
            break;
        }
        let mut at = 0;
        while at < next.len as usize {
            let end = buffer.len();
            let take = BEYOND.min(next.len as usize - at);
            buffer.resize(end + take, 0);
            memory.copy_out(text + at as u64, &mut buffer[end..]);
            let found = { buffer[end..].iter() }.position(|byte| program.divides(*byte));
            if let Some(found) = found {
                return start..end + found + 1;
            }
            at += take;
        }
    }
    start..buffer.len()
}

/// Inserts the totals of part `part` into the map.
fn reduce(
    context: &Context<'_>,
    run: Run,
    program: &impl OnTasks,
    part: u64,
) -> Result<(), UnitError> {
    let totals = Totals::open(run.memory(), run.totals())?;
    let mut merged = Merged::default();
    for table in (0..run.tables()).filter_map(|number| run.table(number)) {
        table.each_in(part, run.part_bits(), |hash, key, total| {
            merged.add(hash, key, total);
        });
    }
    merged.merge(|a, b| program.combine(a, b));
    for found in &merged.found {
        let total = found.total;
        match totals.insert(context.heap(), merged.key(found), &total) {
            Ok(()) => {}
            // Inserted by a worker that died before the part was done.
            Err(InsertError::Exists(there)) if there == total => {}
            Err(InsertError::Exists(there)) => {
                let what = format_args!(
                    "a key of part {part} has the total {there}, and its re-execution found {total}"
                );
                return Err(damaged(what).into());
            }
            Err(InsertError::Heap(error)) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The entries of several tables for one part.
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
                free: 0,
                retired: 0,
            },
            AllocateError::TooLarge { asked, most: 64 },
        ];
        for refusal in refusals {
            let table = UnitError::Table(TableError::Allocate(refusal.clone()));
            assert_eq!(table.why(), Some(CalledOff::Full(asked)));
            let text = UnitError::Allocate(refusal);
            assert_eq!(text.why(), Some(CalledOff::Full(asked)));
        }
    }
}
