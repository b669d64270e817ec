//! The record of a run of tasks: its progress, and the current unit of each worker.
//!
//! ```text
//!  header of the run | round | last round, units | begun | about to commit | finished | re-executed | steps | turns | each worker's unit
//! ```
//!
//! Words written by different threads are on separate lines. All of it is for the progress, the
//! kills and the report: no result depends on it.

use crate::driver::{Came, Running, Stretch, Turns};
use crate::header::{Beginning, Header};
use crate::host;
use core::fmt;
use core::marker::PhantomData;
use outlive::membership::InstanceId;
use outlive::memory::{Memory, Native, Offset, Ordering};
use outlive_tasks::{Trigger, Turn};

// Offsets from the end of the header.
const ROUND: u64 = 0;
const UNITS: u64 = 128;
/// The last round, plus 1.
const THROUGH: u64 = 136;
const BEGUN: u64 = 256;
const COMMITS: u64 = 384;
const FINISHED: u64 = 512;
const AGAIN: u64 = 640;
const STEPS: u64 = 768;
/// The numbers of workers that came and went, for each reason: rarely written, so on one line.
const TURNS: u64 = 896;
const WORKERS: u64 = 1024;
/// The size of a worker's entry, a line of its own: its unit, how many units it has begun, how
/// often it was suspected, how it came last, how often it was overdue.
const WORKER: u64 = 128;
const BEGUN_HERE: u64 = 8;
const SUSPECTED_HERE: u64 = 16;
const CAME_HERE: u64 = 24;
const OVERDUE_HERE: u64 = 32;

/// The reasons for which a worker comes, in the order of their numbers in the pod.
const REASONS: [Trigger; 4] = [
    Trigger::Beginning,
    Trigger::Failures,
    Trigger::Tasks,
    Trigger::Request,
];

/// Returns the offset of the count of workers that come or go so; `None` for workers that begin or
/// come as beginners do.
fn counted_at(turn: Turn) -> Option<u64> {
    let place = match turn {
        Turn::Comes { why, .. } => came_at(why)?,
        Turn::Goes(why) => went_at(why)?,
    };
    Some(TURNS + place)
}

fn came_at(why: Trigger) -> Option<u64> {
    match why {
        Trigger::Tasks => Some(0),
        Trigger::Failures => Some(8),
        Trigger::Request => Some(16),
        _ => None,
    }
}

fn went_at(why: Trigger) -> Option<u64> {
    match why {
        Trigger::Tasks => Some(24),
        Trigger::Request => Some(32),
        _ => None,
    }
}

// How a worker came last, in one word, so that a reader never sees half an update. From the lowest
// bit on: the reason, 0 if it never came; whether it is away; how often it has come; the number of
// its predecessor, plus 1.
const REASON_BITS: u32 = 8;
const AWAY: u64 = 1 << REASON_BITS;
const TIMES_AT: u32 = REASON_BITS + 1;
const TIMES: u64 = (1 << (AFTER_AT - TIMES_AT)) - 1;
const AFTER_AT: u32 = 32;

fn came_of(word: u64) -> Option<Came> {
    let reason = word & ((1 << REASON_BITS) - 1);
    Some(Came {
        why: *REASONS.get((reason as usize).checked_sub(1)?)?,
        after: ((word >> AFTER_AT) as u32).checked_sub(1),
        is_away: word & AWAY != 0,
        times: (word >> TIMES_AT & TIMES) as u32,
    })
}

/// Returns the word of a worker after `turn`, where `before` was its word.
fn came_by(before: u64, turn: Turn, number_of: impl Fn(InstanceId) -> Option<u32>) -> u64 {
    match turn {
        Turn::Goes(_) => before | AWAY,
        Turn::Comes { why, after } => {
            let reason = REASONS.iter().position(|reason| *reason == why);
            let after = after.and_then(|dead| number_of(dead.id));
            let times = (before >> TIMES_AT).wrapping_add(1) & TIMES;
            reason.map_or(0, |reason| reason as u64 + 1)
                | times << TIMES_AT
                | after.map_or(0, |number| u64::from(number) + 1) << AFTER_AT
        }
    }
}

/// The record of a run of tasks in the pod.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    header: Header,
}

impl Record {
    /// Returns the size in bytes of the block for a run with this beginning.
    pub(super) fn bytes(beginning: &Beginning) -> u64 {
        let workers = u64::from(beginning.crew.workers());
        beginning.bytes() + WORKERS + workers * WORKER
    }

    /// Writes the record at `at`, where all bytes are zero, and publishes it.
    pub(super) fn create(memory: Native, at: Offset, beginning: Beginning) -> Self {
        let header = Header::create(memory, at, beginning);
        header.publish();
        Self { header }
    }

    /// Returns the record of the run in which this thread [stands](crate::host::Post::stand), if
    /// any.
    pub(super) fn here() -> Option<Self> {
        host::header_here().map(|header| Self { header })
    }

    fn place(&self, place: u64) -> Offset {
        self.header.end() + place
    }

    fn worker(&self, number: u32) -> Offset {
        self.place(WORKERS + u64::from(number) * WORKER)
    }

    // All of these are relaxed but the last: they are read for the progress, or after the writer
    // has died.

    fn load(&self, place: u64) -> u64 {
        self.header
            .memory()
            .load(self.place(place), Ordering::Relaxed)
    }

    fn store(&self, place: u64, word: u64) {
        let memory = self.header.memory();
        memory.store(self.place(place), word, Ordering::Relaxed);
    }

    fn count(&self, place: u64) -> u64 {
        let memory = self.header.memory();
        memory.fetch_add(self.place(place), 1u64, Ordering::Relaxed)
    }

    /// Returns the number of the worker with this id, if it is a worker of the run.
    pub(super) fn worker_of(&self, id: InstanceId) -> Option<u32> {
        self.header.crew().worker_of(id)
    }

    /// Records that worker `number` begins `unit`, which has been begun `before` times. Returns the
    /// number of units that were begun before this one, re-executions included.
    pub(super) fn begins(&self, number: u32, unit: u64, before: u8) -> u64 {
        let memory = self.header.memory();
        let at = self.worker(number);
        memory.store(at, unit + 1, Ordering::Relaxed);
        // No other thread writes this word: the next incarnation begins after this one is gone.
        let begun: u64 = memory.load(at + BEGUN_HERE, Ordering::Relaxed);
        // Release: publishes how it came to each thread that sees it work.
        memory.store(at + BEGUN_HERE, begun + 1, Ordering::Release);
        if before > 0 {
            self.count(AGAIN);
        }
        self.count(BEGUN)
    }

    /// Records that a unit is about to be committed. Returns the number before.
    pub(super) fn commits(&self) -> u64 {
        self.count(COMMITS)
    }

    /// Records that worker `number` has finished its unit.
    pub(super) fn finishes(&self, number: u32) {
        let memory = self.header.memory();
        self.count(FINISHED);
        memory.store(self.worker(number), 0u64, Ordering::Relaxed);
    }

    /// Records a step of round 0.
    pub(super) fn step(&self) {
        self.count(STEPS);
    }

    /// Records that worker `number` abandons its unit.
    pub(super) fn leaves(&self, number: u32) {
        let memory = self.header.memory();
        memory.store(self.worker(number), 0u64, Ordering::Relaxed);
    }

    /// Records that worker `number` has come or gone.
    pub(super) fn turn(&self, number: u32, turn: Turn) {
        let memory = self.header.memory();
        let at = self.worker(number) + CAME_HERE;
        // No other thread writes this word, as with the number of begun units.
        let before: u64 = memory.load(at, Ordering::Relaxed);
        let word = came_by(before, turn, |id| self.worker_of(id));
        memory.store(at, word, Ordering::Relaxed);
        if let Some(place) = counted_at(turn) {
            self.count(place);
        }
    }

    /// Records that worker `number` is suspected.
    pub(super) fn suspects(&self, number: u32) {
        let memory = self.header.memory();
        let at = self.worker(number) + SUSPECTED_HERE;
        memory.fetch_add(at, 1u64, Ordering::Relaxed);
    }

    /// Records that worker `number` has been in a task for too long.
    pub(super) fn is_overdue(&self, number: u32) {
        let memory = self.header.memory();
        let at = self.worker(number) + OVERDUE_HERE;
        memory.fetch_add(at, 1u64, Ordering::Relaxed);
    }

    /// Records that a round begins.
    pub(super) fn round(&self, round: u64) {
        self.store(ROUND, round);
    }

    /// Records that the last job is complete.
    pub(super) fn is_through(&self, last: u64, units: u64) {
        self.store(UNITS, units);
        let memory = self.header.memory();
        // Release: publishes the number of units.
        memory.store(self.place(THROUGH), last + 1, Ordering::Release);
    }

    /// Returns the last round, once its job is complete.
    pub(super) fn last_round(&self) -> Option<u64> {
        let memory = self.header.memory();
        let through: u64 = memory.load(self.place(THROUGH), Ordering::Acquire);
        through.checked_sub(1)
    }
}

/// A run of tasks, as its driver sees it.
pub struct TaskRun<T> {
    record: Record,
    /// The name of round 0, if it counts steps; then the name of the phase that counts units.
    phases: (Option<&'static str>, &'static str),
    rounds: u64,
    result: PhantomData<fn() -> T>,
}

impl<T> Clone for TaskRun<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for TaskRun<T> {}

impl<T> fmt::Debug for TaskRun<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskRun")
            .field("phases", &self.phases)
            .finish_non_exhaustive()
    }
}

impl<T> TaskRun<T> {
    pub(super) fn new(
        record: Record,
        phases: (Option<&'static str>, &'static str),
        rounds: u64,
    ) -> Self {
        Self {
            record,
            phases,
            rounds,
            result: PhantomData,
        }
    }

    /// Returns the record in the pod.
    pub fn record(&self) -> Record {
        self.record
    }
}

impl<T> Running for TaskRun<T> {
    type Result = T;

    fn header(&self) -> Header {
        self.record.header
    }

    fn is_done(&self) -> bool {
        self.record.last_round().is_some()
    }

    fn units(&self) -> u64 {
        match self.is_done() {
            true => self.record.load(UNITS),
            false => self.record.header.units(),
        }
    }

    fn stretch(&self) -> Stretch {
        let (first, phase) = self.phases;
        if let Some(phase) = first
            && self.record.load(ROUND) == 0
        {
            let (done, units) = (self.record.load(STEPS), self.units());
            return Stretch { phase, done, units };
        }
        let (done, units) = match self.rounds {
            0 | 1 => (self.done(), self.units()),
            rounds => (self.record.load(ROUND), rounds),
        };
        Stretch { phase, done, units }
    }

    fn drawn(&self) -> u64 {
        self.record.load(BEGUN)
    }

    fn done(&self) -> u64 {
        self.record.load(FINISHED)
    }

    fn attempting(&self, number: u32) -> Option<u64> {
        let memory = self.record.header.memory();
        let unit: u64 = memory.load(self.record.worker(number), Ordering::Relaxed);
        unit.checked_sub(1)
    }

    fn begun(&self, number: u32) -> u64 {
        let memory = self.record.header.memory();
        // Acquire: how it came.
        memory.load(self.record.worker(number) + BEGUN_HERE, Ordering::Acquire)
    }

    fn came(&self, number: u32) -> Option<Came> {
        let memory = self.record.header.memory();
        let at = self.record.worker(number) + CAME_HERE;
        came_of(memory.load(at, Ordering::Relaxed))
    }

    fn redone(&self) -> u64 {
        self.record.load(AGAIN)
    }

    fn turns(&self) -> Turns {
        let count = |at: Option<u64>| at.map_or(0, |at| self.record.load(TURNS + at));
        let (came, went) = (|why| count(came_at(why)), |why| count(went_at(why)));
        let memory = self.record.header.memory();
        let times = |place| {
            let workers = 0..self.record.header.crew().workers();
            let all = workers.map(|number| {
                let at = self.record.worker(number) + place;
                (number, memory.load::<u64>(at, Ordering::Relaxed))
            });
            all.filter(|it| it.1 > 0).collect()
        };
        Turns {
            came_for_tasks: came(Trigger::Tasks),
            came_for_failures: came(Trigger::Failures),
            came_on_request: came(Trigger::Request),
            went_for_tasks: went(Trigger::Tasks),
            went_on_request: went(Trigger::Request),
            suspected: times(SUSPECTED_HERE),
            overdue: times(OVERDUE_HERE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlive::membership::Instance;

    #[test]
    fn how_a_worker_came_last_is_one_word() {
        let number_of = |id: InstanceId| id.checked_sub(100);
        let mut word = 0;
        assert_eq!(came_of(word), None);
        let comes = |why, id: Option<u32>| Turn::Comes {
            why,
            after: id.map(|id| Instance::new(id, 7)),
        };
        let cases = [
            (Trigger::Beginning, None, None),
            (Trigger::Failures, Some(100), Some(0)),
            // A worker that does not belong to the run has no number.
            (Trigger::Failures, Some(99), None),
            (Trigger::Tasks, None, None),
            (Trigger::Request, Some(65_535), Some(65_435)),
        ];
        for (times, (why, id, after)) in (1..).zip(cases) {
            word = came_by(word, comes(why, id), number_of);
            let came = Came {
                why,
                after,
                is_away: false,
                times,
            };
            assert_eq!(came_of(word), Some(came));
            let away = came_by(word, Turn::Goes(Trigger::Request), number_of);
            let went = Came {
                is_away: true,
                ..came
            };
            assert_eq!(came_of(away), Some(went));
            // A worker that has gone comes as before.
            let again = comes(why, id);
            assert_eq!(
                came_by(away, again, number_of),
                came_by(word, again, number_of)
            );
        }
    }
}
