//! Dedup as a driver runs it: windows of the text in the pod, and what comes of one written while the next is worked at.

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
use crate::driver::RunError;
use crate::header::CalledOff;
use crate::host::HostError;
use crate::on_tasks::{Ended, PoolOf, TaskProgram};
use outlive::heap::LocalHeap;
use outlive::memory::{Memory, Offset};
use outlive_tasks::{Array, Call, Element, PoolError, WorkerPool};
use std::fmt;
use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How files are archived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How hard to compress, from 0 to 9.
    pub level: u32,
    /// How many bytes a task is about; what is best for the files and as many workers, if nobody says.
    pub task_bytes: Option<u64>,
    /// How many bytes of the files are in the pod at a time; what is best for as many workers, if nobody says.
    pub window: Option<u64>,
    /// How many workers there are.
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

/// The archiving of a tree by tasks.
///
/// The archive is written while it is made, and is whole when the run has a result.
pub struct Archiving<'t, W> {
    tree: &'t Tree,
    text: &'t Text,
    options: Options,
    plan: Plan,
    state: Mutex<State<'t, W>>,
}

/// How far the archive is.
struct State<'t, W> {
    /// Until it is finished.
    writing: Option<Writing<'t, W>>,
    /// What the last window gave, until it is written.
    given: Option<Given>,
    /// How many units all windows had, and how many windows there were.
    units: u64,
    windows: u64,
    summary: Option<Summary>,
}

/// What a window gave, but for the packed bytes: they stay in the pod for as long as the next window is worked at.
struct Given {
    window: u64,
    /// Of each chunk: number, length, digest.
    chunks: Vec<(u32, u64, Digest)>,
    /// Of each new one: which of them it is, where what is kept of it stands, and how long that is.
    fresh: Vec<(u32, u64, u32)>,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Archived {
    /// What went into the archive.
    pub summary: Summary,
    /// In how many windows it was made.
    pub windows: u64,
    /// How many bytes a task was about.
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
    array.ok_or_else(|| damaged("an array of the run is not there"))
}

/// The first `count` elements of the array `name`.
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
    /// Begins an archive of `tree`, whose files are those of `text`, in `out`. That is written in large pieces. If it has no room, it
    /// may [say so](io::ErrorKind::WouldBlock) after a moment: then it is tried again for as long as the run goes on.
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

    /// Reads what the window gave that is complete.
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

    /// Writes what the last window gave, unless that is done.
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
        let wrong = || damaged("what a window gave does not fit together");
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

    /// What follows when a window is done: the next one, or the end of the archive.
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
        let finished = finished.ok_or_else(|| damaged("not all of the files was archived"))?;
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
            ("a level", u64::from(level), (0, 9)),
            ("a number of bytes of a task", task, STRETCHES),
            ("a number of bytes of a window", window, WINDOWS),
            (
                "a number of chunks of an archive",
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
            // The next window is read: while it is worked at, there is time.
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
