//! Dedup in the form that the driver runs: windows of the text are in the pod, and the result of
//! one is written while hosts work on the next.

use super::Summary;
use super::numbers;
use super::outbox::Sent;
use super::pack::Digest;
use super::plan::{
    CHUNKS_END, FOUND, FRESH, KEPT, NOW, NUMBERS, Now, PLACES, Plan, STRETCHES, WINDOWS, packed,
    window_for,
};
use super::tasks::{JOBS, window};
use super::text::Text;
use super::tree::Tree;
use super::writing::{Occurrence, Writing};
use outlive::heap::LocalHeap;
use outlive::memory::{Memory, Offset};
use outlive_run::driver::RunError;
use outlive_run::header::CalledOff;
use outlive_run::host::HostError;
use outlive_run::on_tasks::{Ended, PoolOf, TaskProgram};
use outlive_tasks::{Array, Call, Element, PoolError, WorkerPool};
use std::fmt;
use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Options of archiving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The compression level, from 0 to 9.
    pub level: u32,
    /// The bytes of a task; by default chosen from the files and the number of workers.
    pub task_bytes: Option<u64>,
    /// The bytes of the files that are in the pod at a time; by default chosen from the number of
    /// workers.
    pub window: Option<u64>,
    /// The number of workers.
    pub workers: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            level: 6,
            task_bytes: None,
            window: None,
            workers: 1,
        }
    }
}

/// The program of tasks that archives a tree.
///
/// The archive is written during the run, and is complete when the run has a result.
pub struct Archiving<'t, W> {
    tree: &'t Tree,
    text: &'t Text,
    options: Options,
    plan: Plan,
    state: Mutex<State<'t, W>>,
}

/// The progress of the archive.
struct State<'t, W> {
    /// Present until the archive is finished.
    writing: Option<Writing<'t, W>>,
    /// The output of the last window, until it is written.
    given: Option<Given>,
    /// The number of units of all windows so far, and the number of windows.
    units: u64,
    windows: u64,
    summary: Option<Summary>,
}

/// The output of a window without the packed bytes, which stay in the pod while hosts work on the
/// next window.
struct Given {
    window: u64,
    /// The number, length and digest of each chunk.
    chunks: Vec<(u32, u64, Digest)>,
    /// Of each new chunk: its index in `chunks`, and the place and length of its stored form.
    fresh: Vec<(u32, u64, u32)>,
}

/// The result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Archived {
    /// The size of the archive and its files.
    pub summary: Summary,
    /// The number of windows.
    pub windows: u64,
    /// The bytes of a task.
    pub task_bytes: u64,
}

impl<W> fmt::Debug for Archiving<'_, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Archiving").field(&self.plan).finish()
    }
}

fn damaged(what: &'static str) -> HostError {
    let at = Offset::from_raw(0);
    PoolError::Damaged { at, what }.into()
}

fn array<T: Element>(
    pool: &WorkerPool,
    heap: &LocalHeap<'_>,
    name: &str,
) -> Result<Array<T>, HostError> {
    let array = pool.array(heap, name);
    array.ok_or_else(|| damaged("an array of the run does not exist"))
}

/// Returns the first `count` elements of the array `name`.
fn first<T: Element>(
    pool: &WorkerPool,
    heap: &LocalHeap<'_>,
    name: &str,
    count: usize,
) -> Result<Vec<T>, HostError> {
    let array = array(pool, heap, name)?;
    if array.len() < count {
        return Err(damaged("an array of the run is too short"));
    }
    let mut elements = vec![T::zeroed(); count];
    array.read(0, &mut elements);
    Ok(elements)
}

impl<'t, W: Write + Send> Archiving<'t, W> {
    /// Begins an archive of `tree` in `out`; `text` has the files of `tree`. The archive is written
    /// in large pieces. A full `out` may return [`WouldBlock`](io::ErrorKind::WouldBlock) after a
    /// moment; the write is then retried until the run ends.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn begin(
        tree: &'t Tree,
        text: &'t Text,
        options: Options,
        out: W,
    ) -> Result<Self, io::Error> {
        let deal = (options.task_bytes, options.window);
        Ok(Self {
            tree,
            text,
            options,
            plan: Plan::new(text, options.workers, deal, options.level),
            state: Mutex::new(State {
                writing: Some(Writing::new(tree, out)?),
                given: None,
                units: 0,
                windows: 0,
                summary: None,
            }),
        })
    }

    fn state(&self) -> MutexGuard<'_, State<'t, W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the output of the complete window.
    fn given(
        &self,
        now: Array<u64>,
        pool: &WorkerPool,
        heap: &LocalHeap<'_>,
    ) -> Result<Given, HostError> {
        let word = |what: Now| now.get(what as usize) as usize;
        let (count, fresh) = (word(Now::Chunks), word(Now::Fresh));
        let ends: Vec<u32> = first(pool, heap, CHUNKS_END, count)?;
        let numbers: Vec<u32> = first(pool, heap, NUMBERS, count)?;
        let digests: Vec<u64> = first(pool, heap, FOUND, count * numbers::WORDS)?;
        let digests = digests.as_chunks().0.iter();
        let starts = [0].iter().chain(&ends);
        let chunks = { numbers.iter().zip(starts.zip(&ends)).zip(digests) }
            .map(|((number, (start, end)), digest)| {
                let len = u64::from(end.wrapping_sub(*start));
                (*number, len, numbers::from_words(*digest))
            })
            .collect();
        let which: Vec<u32> = first(pool, heap, FRESH, fresh)?;
        let places: Vec<u64> = first(pool, heap, PLACES, fresh)?;
        let kept: Vec<u32> = first(pool, heap, KEPT, fresh)?;
        let fresh = which.into_iter().zip(places).zip(kept);
        Ok(Given {
            window: now.get(Now::Number as usize),
            chunks,
            fresh: fresh.map(|((which, at), len)| (which, at, len)).collect(),
        })
    }

    /// Writes the output of the last window, unless that is done.
    fn write(
        &self,
        state: &mut State<'_, W>,
        pool: &WorkerPool,
        heap: &LocalHeap<'_>,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(), RunError> {
        let (Some(given), Some(writing)) = (state.given.take(), &mut state.writing) else {
            return Ok(());
        };
        let wrong = || damaged("the results of a window are inconsistent");
        let packed = pool.data(heap, packed(given.window)).ok_or_else(wrong)?;
        let mut fresh = given.fresh.into_iter().peekable();
        let mut bytes = Vec::new();
        for ((number, len, digest), at) in given.chunks.into_iter().zip(0..) {
            let new = fresh.next_if(|(which, ..)| *which == at);
            if let Some((_, place, kept)) = new {
                let end = place.checked_add(kept.into());
                if u64::from(kept) > len || end.is_none_or(|end| end > packed.len()) {
                    return Err(wrong().into());
                }
                bytes.resize(kept as usize, 0);
                heap.memory().copy_out(packed.start() + place, &mut bytes);
            }
            let written = writing.chunk(Occurrence {
                number,
                digest,
                len,
                packed: new.map(|_| &*bytes),
            });
            let sent = written
                .ok_or_else(wrong)?
                .and_then(|()| writing.send(goes_on));
            if sent.map_err(RunError::Unwritable)? == Sent::Not {
                return Err(RunError::Interrupted);
            }
        }
        Ok(())
    }

    /// Starts the next window, or finishes the archive after the last one.
    fn go_on(
        &self,
        pool: &WorkerPool,
        heap: &LocalHeap<'_>,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Option<Call>, RunError> {
        let mut state = self.state();
        let now = array::<u64>(pool, heap, NOW)?;
        let (word, set) = (
            |what: Now| now.get(what as usize),
            |what: Now, value| now.set(what as usize, value),
        );
        let given = self.given(now, pool, heap)?;
        state.given = Some(given);
        state.windows += 1;
        state.units += 3 * self.plan.stretches(word(Now::Len));
        let start = word(Now::Start) + word(Now::Cut);
        if start < self.plan.bytes && word(Now::Cut) > 0 {
            set(Now::Number, word(Now::Number) + 1);
            set(Now::Start, start);
            set(Now::Len, self.plan.window.min(self.plan.bytes - start));
            set(Now::Unit, state.units);
            set(Now::Known, word(Now::Known) + word(Now::Fresh));
            return Ok(Some(window()));
        }
        self.write(&mut state, pool, heap, goes_on)?;
        // Tasks do not read holes, so they do not notice that one was filled.
        if let Some(path) = self.tree.changed_sparse() {
            return Err(RunError::Changed { path });
        }
        let writing = state.writing.take();
        let finished = writing.and_then(|writing| writing.finish(goes_on));
        let finished =
            finished.ok_or_else(|| damaged("not all bytes of the files were archived"))?;
        let summary = finished.map_err(RunError::Unwritable)?;
        state.summary = Some(summary.ok_or(RunError::Interrupted)?);
        Ok(None)
    }
}

impl<W: Write + Send> TaskProgram for Archiving<'_, W> {
    type Result = Archived;

    const POOL: PoolOf = PoolOf {
        number: 21,
        name: "dedup",
    };

    fn check(&self) -> Result<(), RunError> {
        let Options {
            level,
            task_bytes,
            window,
            workers,
        } = self.options;
        let task = task_bytes.unwrap_or(STRETCHES.0);
        let window = window.unwrap_or(window_for(workers));
        let asked = [
            ("the compression level", u64::from(level), (0, 9)),
            ("the number of bytes of a task", task, STRETCHES),
            ("the number of bytes of a window", window, WINDOWS),
            (
                "the number of chunks of an archive",
                self.plan.most_chunks(),
                (0, u32::MAX.into()),
            ),
        ];
        for (what, asked, (least, most)) in asked {
            if !(least..=most).contains(&asked) {
                return Err(RunError::Impossible {
                    what,
                    asked,
                    least,
                    most,
                });
            }
        }
        Ok(())
    }

    fn phase(&self) -> &'static str {
        "packing"
    }

    fn units(&self) -> u64 {
        self.plan.units()
    }

    fn units_until(&self, _: u64) -> u64 {
        self.state().units
    }

    fn rounds(&self) -> u64 {
        JOBS * self.plan.windows()
    }

    fn likely_rounds(&self) -> u64 {
        // Units say more.
        1
    }

    fn data_bytes(&self) -> Vec<u64> {
        let tasks = 256 * self.plan.stretches(self.plan.window);
        let text = self.text.arrays().into_iter();
        self.plan.sizes().chain(text).chain([tasks]).collect()
    }

    fn put(&self, pool: &WorkerPool, heap: &LocalHeap<'_>) -> Result<(), PoolError> {
        self.plan.put(pool, heap)?;
        self.text.put(pool, heap)
    }

    fn begin(&self) -> Call {
        window()
    }

    fn completed(
        &self,
        round: u64,
        pool: &WorkerPool,
        heap: &LocalHeap<'_>,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Option<Call>, RunError> {
        match round % JOBS {
            // The next window has been read: there is time while hosts work on it.
            0 => (self.write(&mut self.state(), pool, heap, goes_on)).map(|()| None),
            1 => Ok(None),
            _ => self.go_on(pool, heap, goes_on),
        }
    }

    fn explain(&self, why: CalledOff) -> RunError {
        match why {
            CalledOff::Changed(file) => RunError::Changed {
                path: self.text.path(file),
            },
            other => RunError::CalledOff(other),
        }
    }

    fn result(&self, _: &WorkerPool, _: &LocalHeap<'_>, _: &Ended) -> Result<Archived, HostError> {
        let state = self.state();
        let summary = state.summary;
        Ok(Archived {
            summary: summary.ok_or_else(|| damaged("the archive is not finished"))?,
            windows: state.windows,
            task_bytes: self.plan.stretch,
        })
    }
}
