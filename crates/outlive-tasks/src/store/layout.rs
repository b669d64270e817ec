//! The layout of a worker pool.
//!
//! ```text
//! header  0x000  magic | slots, roots | fingerprint and text of the registry
//!         0x020  cells of the maps: names, jobs, errors
//!         0x040  settings, those of resizing among them
//!         0x080  version: raised when a job is submitted, opens or ends | wanted number of workers, and its origin
//!         0x100  frontier
//!         0x180  waits: number of tasks that were ever made to wait | settled: value of waits when none was waiting
//!         0x190  quiets: number of times that a judge saw no task held | list of abandoned ports
//!         0x1a0  number of the next submission
//!         0x1a8  calls: number of tasks left waiting although their inputs exist | answered: number of answered calls
//!         0x200  staging slots, for members without a worker
//!         0x400  roots of open jobs, 256 bytes each
//!                barrier | worker slots | the last deaths in tasks
//! ```
//!
//! The header is one block of the heap, complete before it is published. Words that different
//! threads write often are on different lines.

use super::band::{Band, Elastic};
use super::trigger::Trigger;
use crate::engine::slot::OF_FORMAT_1;
use crate::store::crashes::Crashes;
use crate::store::names::Names;
use crate::{PoolError, Settings, Slots};
use core::time::Duration;
use outlive::heap::LocalHeap;
use outlive::memory::{Memory, Native, Offset, Ordering};
use outlive::recovery::{RecoverError, Recovered, Recoverers};
use outlive::structures::Map;
use outlive::sync::GroupBarrier;

/// The last character is the format's number: 2 since a pool records deaths in tasks.
const MAGIC: u64 = u64::from_le_bytes(*b"taskpol2");
const FIRST_MAGIC: u64 = u64::from_le_bytes(*b"taskpool");
const NUMBERS: u64 = 0x008;
const FINGERPRINT: u64 = 0x010;
const TEXT: u64 = 0x018;
const NAMES: u64 = 0x020;
const JOBS: u64 = 0x028;
const ERRORS: u64 = 0x030;
const LIMITS: u64 = 0x040;
const FREEZE: u64 = 0x048;
const ORIGINAL: u64 = 0x050;
const RANGE: u64 = 0x058;
const BAND: u64 = 0x060;
const VERSION: u64 = 0x080;
const WANTED: u64 = 0x088;
const FRONTIER: u64 = 0x100;
const WAITS: u64 = 0x180;
const SETTLED: u64 = 0x188;
const QUIETS: u64 = 0x190;
const ABANDONED: u64 = 0x198;
const SUBMISSIONS: u64 = 0x1A0;
const CALLS: u64 = 0x1A8;
const ANSWERED: u64 = 0x1B0;
const DESKS: u64 = 0x200;
const ROOTS: u64 = 0x400;

/// The size of a staging slot in bytes.
pub const DESK: u64 = 64;
/// The number of staging slots.
pub const DESKS_IN_ALL: u64 = (ROOTS - DESKS) / DESK;
/// The size of the root of an open job in bytes.
pub const ROOT: u64 = 256;

/// The parameters of a new pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    pub slots: Settings,
    /// The maximum number of open jobs.
    pub roots: u32,
    /// The number of attempts at a task that fails.
    pub tries: u32,
    /// The number of workers that may die in a task.
    pub crash_limit: u32,
    /// The time after which a worker without a heartbeat is frozen.
    pub freeze: Duration,
    /// The number of workers that the pool begins with.
    pub original: u32,
    /// The limits within which the pool resizes itself, if it does.
    pub elastic: Option<Elastic>,
    /// Whether the pool's maps have small nodes, so that proofs are short.
    pub small: bool,
}

impl Shape {
    /// Returns the offsets of the barrier, the slots and the ring of deaths, and the end.
    fn places<M: Memory>(slots: u32, roots: u32, crash_limit: u32) -> [u64; 4] {
        let barrier = ROOTS + u64::from(roots) * ROOT;
        let vector = (barrier + GroupBarrier::<M>::bytes(slots)).next_multiple_of(128);
        let crashes = (vector + Slots::<M>::bytes(slots)).next_multiple_of(128);
        [
            barrier,
            vector,
            crashes,
            crashes + Crashes::<M>::bytes(slots, crash_limit),
        ]
    }

    /// Returns the size of the header in bytes.
    pub fn bytes<M: Memory>(&self) -> u64 {
        Self::places::<M>(self.slots.capacity, self.roots, self.crash_limit)[3]
    }
}

/// The jobs by name: values are [records](crate::store::jobs::Record), in place.
pub type JobMap<M> = Map<[u8], [u8], M>;

/// A handle on a pool's shared state.
#[derive(Clone, Copy, Debug)]
pub struct Layout<M: Memory = Native> {
    pub memory: M,
    pub at: Offset,
    pub roots: u32,
    pub names: Names<M>,
    pub jobs: JobMap<M>,
    /// The reasons why jobs failed, by the jobs' names.
    pub errors: JobMap<M>,
    pub barrier: GroupBarrier<M>,
    pub slots: Slots<M>,
    pub crashes: Crashes<M>,
}

/// A thread's heap handle, and its recoverers for dead members.
#[derive(Clone, Copy, Debug)]
pub struct Hand<'h, M: Memory = Native> {
    pub heap: &'h LocalHeap<'h, M>,
    pub recoverers: &'h Recoverers<M>,
}

impl<M: Memory> Hand<'_, M> {
    pub fn me(self) -> outlive::membership::Instance {
        self.heap.instance()
    }

    /// Returns whether the instance in `word` is dead and its log is settled. Returns `false` while
    /// another member recovers it.
    pub fn is_settled(self, word: u64) -> Result<bool, RecoverError> {
        let member = self.heap.member();
        let Some(other) = outlive::membership::Instance::from_word(word) else {
            return Ok(false);
        };
        if other.id >= member.generations().capacity() || !member.generations().is_gone(other) {
            return Ok(false);
        }
        let recovered = self.recoverers.recover(member, other.id)?;
        // The caller asks again later; the recovering member may sleep, or die.
        Ok(!matches!(recovered, Recovered::ByAnother(_)))
    }
}

impl<M: Memory> Layout<M> {
    /// Makes a pool in the block at `at`, which has [`Shape::bytes`] bytes and is not yet visible
    /// to other threads. `text` is the registry's.
    ///
    /// # Crash
    /// [`dismantle`](Self::dismantle) finds all that was made.
    pub fn create(
        heap: &LocalHeap<'_, M>,
        at: Offset,
        shape: &Shape,
        (fingerprint, text): (u64, &str),
    ) -> Result<Self, PoolError> {
        let memory = heap.memory();
        let store = |place: u64, word: u64| memory.store(at + place, word, Ordering::Relaxed);
        store(
            NUMBERS,
            u64::from(shape.slots.capacity) | u64::from(shape.roots) << 32,
        );
        store(FINGERPRINT, fingerprint);
        store(
            LIMITS,
            u64::from(shape.tries) | u64::from(shape.crash_limit) << 32,
        );
        store(FREEZE, shape.freeze.as_nanos() as u64);
        store(ORIGINAL, shape.original.into());
        store(WANTED, shape.original.into());
        if let Some(elastic) = shape.elastic {
            let Elastic { least, most, band } = elastic;
            store(RANGE, u64::from(least) | u64::from(most) << 32);
            store(BAND, band.failed.to_bits());
            store(BAND + 8, band.fewest.to_bits());
            store(BAND + 16, band.most.to_bits());
        }
        let block = heap.allocate_into(8 + text.len() as u64, at + TEXT)?;
        memory.store(block, text.len() as u64, Ordering::Relaxed);
        memory.copy_in(block + 8, text.as_bytes());
        Names::create(heap, at + NAMES, shape.small)?;
        for cell in [JOBS, ERRORS] {
            if shape.small {
                JobMap::create_roomy(heap, at + cell)?;
            } else {
                JobMap::create(heap, at + cell)?;
            }
        }
        let [_, vector, ..] =
            Shape::places::<M>(shape.slots.capacity, shape.roots, shape.crash_limit);
        Slots::create(memory, at + vector, shape.slots)?;
        // Release: a thread that finds the first word finds all others.
        memory.store(at, MAGIC, Ordering::Release);
        Self::open(memory, at)
    }

    /// Opens the pool at `at`.
    pub fn open(memory: M, at: Offset) -> Result<Self, PoolError> {
        let no = |why: &'static str| PoolError::NoPool { at, why };
        let inside = |bytes| {
            Offset::checked(at.raw(), bytes, 128, memory.size())
                .map_err(|_| no("it would not be inside the memory"))
        };
        inside(ROOTS)?;
        // Acquire: the words that were written before it.
        match memory.load::<u64>(at, Ordering::Acquire) {
            MAGIC => {}
            FIRST_MAGIC => return Err(no(OF_FORMAT_1)),
            _ => return Err(no("its first word is missing, or of a newer format")),
        }
        let load = |place| memory.load::<u64>(at + place, Ordering::Relaxed);
        let numbers = load(NUMBERS);
        let (slots, roots) = (numbers as u32, (numbers >> 32) as u32);
        if slots == 0 || slots > Slots::<M>::MOST || roots == 0 || roots > 1 << 16 {
            return Err(no("its header is damaged"));
        }
        let crash_limit = (load(LIMITS) >> 32) as u32;
        let [barrier, vector, crashes, bytes] = Shape::places::<M>(slots, roots, crash_limit);
        inside(bytes)?;
        if text_of(memory, at).is_none() {
            return Err(no("the text of its registry is damaged"));
        }
        let place = |cell| Offset::from_raw(load(cell));
        Ok(Self {
            memory,
            at,
            roots,
            names: Names::open(memory, place(NAMES))?,
            jobs: Map::open(memory, place(JOBS))?,
            errors: Map::open(memory, place(ERRORS))?,
            barrier: GroupBarrier::open(memory, at + barrier, slots)?,
            slots: Slots::open(memory, at + vector)?,
            crashes: Crashes::new(memory, at + crashes, slots, crash_limit),
        })
    }

    /// Frees all blocks that the header at `at`, complete or not, leads to, except the blocks of
    /// the [slots](Slots). Called by the last user of the pool. Can be repeated.
    pub fn dismantle(heap: &LocalHeap<'_, M>, at: Offset) -> Result<(), PoolError> {
        let memory = heap.memory();
        let word = |place| memory.load::<u64>(at + place, Ordering::Relaxed);
        memory.store(at, 0u64, Ordering::Relaxed);
        if word(NAMES) != 0 {
            Names::open(memory, Offset::from_raw(word(NAMES)))?.destroy(heap, at + NAMES)?;
        }
        for cell in [JOBS, ERRORS] {
            if word(cell) != 0 {
                JobMap::open(memory, Offset::from_raw(word(cell)))?.destroy(heap, at + cell)?;
            }
        }
        if word(TEXT) != 0 {
            heap.free_from(at + TEXT, 0)?;
        }
        Ok(())
    }

    fn load(self, place: u64, order: Ordering) -> u64 {
        self.memory.load(self.at + place, order)
    }

    /// Returns the fingerprint and the text of the pool's registry.
    pub fn registry(self) -> (u64, String) {
        // The text existed when the pool was opened, and never changes.
        let (at, bytes) = text_of(self.memory, self.at).unwrap_or((self.at, 0));
        let mut text = vec![0; bytes as usize];
        self.memory.copy_out(at, &mut text);
        let text = String::from_utf8_lossy(&text).into_owned();
        (self.load(FINGERPRINT, Ordering::Relaxed), text)
    }

    /// Returns the line about `function` in the registry's text. For the pool's own function, which
    /// submits jobs, returns a description instead.
    pub fn registered(self, function: u32) -> Option<String> {
        if function == super::jobs::SUBMIT {
            return Some("that submits a job".into());
        }
        let (_, text) = self.registry();
        text.lines().nth(function as usize).map(str::to_owned)
    }

    /// Returns the block of the registry's text.
    pub fn text_block(self) -> Offset {
        Offset::from_raw(self.load(TEXT, Ordering::Relaxed))
    }

    /// Returns the number of attempts at a failing task, and of workers that may die in one.
    pub fn limits(self) -> (u32, u32) {
        let both = self.load(LIMITS, Ordering::Relaxed);
        (both as u32, (both >> 32) as u32)
    }

    /// Returns the time after which a worker without a heartbeat is frozen.
    pub fn freeze(self) -> Duration {
        Duration::from_nanos(self.load(FREEZE, Ordering::Relaxed))
    }

    /// Returns the number of workers that the pool began with.
    pub fn original(self) -> u32 {
        self.load(ORIGINAL, Ordering::Relaxed) as u32
    }

    /// Returns the number of workers that are wanted.
    pub fn wanted(self) -> u32 {
        self.wanted_by().0
    }

    /// Returns the wanted number of workers and its origin. Both are one word, so that a thread
    /// that dies while it changes them has changed both or neither.
    pub fn wanted_by(self) -> (u32, Trigger) {
        let word = self.load(WANTED, Ordering::Relaxed);
        (word as u32, Trigger::from_bits((word >> 32) as u32))
    }

    /// Requests `workers` workers.
    pub fn want(self, workers: u32) {
        let word = said(workers, Trigger::Request);
        self.memory.store(self.at + WANTED, word, Ordering::Relaxed);
    }

    /// Requests `workers` workers, unless 0 are wanted: that is final. Returns the number that was
    /// wanted before; `None` if it was 0.
    pub fn ask_for(self, workers: u32) -> Option<u32> {
        let mut from = self.load(WANTED, Ordering::Relaxed);
        while from as u32 != 0 {
            match self.swap_wanted(from, said(workers, Trigger::Request)) {
                Ok(_) => return Some(from as u32),
                Err(now) => from = now,
            }
        }
        None
    }

    /// Replaces the wanted number `from` by `to` on behalf of the pool itself, unless it has
    /// changed.
    pub fn want_instead(self, from: u32, to: u32) -> bool {
        let word = self.load(WANTED, Ordering::Relaxed);
        word as u32 == from && self.swap_wanted(word, said(to, Trigger::Tasks)).is_ok()
    }

    /// Returns the offset and the value of the word with the wanted number and its origin.
    pub fn wanted_word(self) -> (Offset, u64) {
        (self.at + WANTED, self.load(WANTED, Ordering::Relaxed))
    }

    fn swap_wanted(self, from: u64, to: u64) -> Result<u64, u64> {
        // Relaxed: no other data depends on this number.
        let order = (Ordering::Relaxed, Ordering::Relaxed);
        let at = self.at + WANTED;
        self.memory.compare_exchange(at, from, to, order.0, order.1)
    }

    /// Returns the limits within which the pool resizes itself, if it does.
    pub fn elastic(self) -> Option<Elastic> {
        // Relaxed, all of them: written before the pool was published.
        let range = self.load(RANGE, Ordering::Relaxed);
        let number = |place| f64::from_bits(self.load(place, Ordering::Relaxed));
        (range != 0).then(|| Elastic {
            least: range as u32,
            most: (range >> 32) as u32,
            band: Band {
                failed: number(BAND),
                fewest: number(BAND + 8),
                most: number(BAND + 16),
            },
        })
    }

    /// Returns the offset of the version. Threads that wait for jobs sleep on its wake-up futex.
    pub fn version_at(self) -> Offset {
        self.at + VERSION
    }

    /// Returns the version, a number that is raised when a job is submitted, opened or ended.
    pub fn version(self) -> u64 {
        // Acquire: the changes of the jobs before it.
        self.load(VERSION, Ordering::Acquire)
    }

    /// Raises the version, after a job was submitted, opened or ended.
    pub fn raise_version(self, hand: Hand<'_, M>) {
        self.raise_version_by(hand.heap);
    }

    /// Raises the version, for a caller that has only a heap handle.
    pub fn raise_version_by(self, heap: &LocalHeap<'_, M>) {
        // Release: the change of the job.
        self.memory
            .fetch_add(self.at + VERSION, 1u64, Ordering::Release);
        if let Some(bells) = heap.member().bells() {
            bells.ring(self.version_at().raw());
        }
    }

    /// Returns a number that no other submission has.
    pub fn next_number(self) -> u64 {
        // Relaxed: the number only has to be unique.
        self.memory
            .fetch_add(self.at + SUBMISSIONS, 1u64, Ordering::Relaxed)
    }

    /// Returns the offset of the frontier.
    pub fn frontier_at(self) -> Offset {
        self.at + FRONTIER
    }

    /// Counts a task that is about to wait.
    pub fn note_wait(self) {
        // Relaxed: a judge reads it while the thread that counted waits at the barrier.
        self.memory
            .fetch_add(self.at + WAITS, 1u64, Ordering::Relaxed);
    }

    /// Returns the number of tasks that ever waited, and whether some may still wait.
    pub fn waits(self) -> (u64, bool) {
        let waits = self.load(WAITS, Ordering::Relaxed);
        (waits, self.load(SETTLED, Ordering::Relaxed) != waits)
    }

    /// Records that no task waited when `waits` tasks had been made to. A late record of an older
    /// number is harmless, since it differs from the current one.
    pub fn settle_waits(self, waits: u64) {
        self.memory
            .store(self.at + SETTLED, waits, Ordering::Relaxed);
    }

    /// Requests that idle workers scan for tasks that wait although their inputs exist. Called
    /// after such tasks were left.
    pub fn call(self) {
        // Release: the changes of the tasks, for a worker that looks because of this call.
        self.memory
            .fetch_add(self.at + CALLS, 1u64, Ordering::Release);
    }

    /// Returns the number of requests for such a scan, and whether all of them are answered.
    pub fn calls(self) -> (u64, bool) {
        // Acquire: see `call`.
        let calls = self.load(CALLS, Ordering::Acquire);
        (calls, self.load(ANSWERED, Ordering::Relaxed) == calls)
    }

    /// Records that the first `calls` requests are answered. A late record of an older number is
    /// harmless, as in [`settle_waits`](Self::settle_waits): at worst a worker scans once more.
    pub fn answer(self, calls: u64) {
        self.memory
            .store(self.at + ANSWERED, calls, Ordering::Relaxed);
    }

    /// Returns the number of quiet moments that judges have noted: all members waited at the
    /// barrier, and no worker held a task.
    pub fn quiets(self) -> u64 {
        // Acquire: all that was done before that moment.
        self.load(QUIETS, Ordering::Acquire)
    }

    /// Records a quiet moment that a judge has observed after the number of quiet moments was
    /// `before`. Records nothing if the number has changed since. So of two recorded moments, the
    /// second was observed after the first was recorded.
    pub fn note_quiet(self, before: u64) {
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let _ =
            self.memory
                .compare_exchange(self.at + QUIETS, before, before + 1, order.0, order.1);
    }

    /// Returns the head of the list of ports left behind by tasks that were given up while they
    /// waited.
    pub fn abandoned_at(self) -> Offset {
        self.at + ABANDONED
    }

    /// Returns the offset of staging slot `number`.
    pub fn desk(self, number: u64) -> Offset {
        debug_assert!(number < DESKS_IN_ALL);
        self.at + (DESKS + number * DESK)
    }

    /// Returns the offset of the root `number` of open jobs.
    pub fn root(self, number: u32) -> Offset {
        debug_assert!(number < self.roots);
        self.at + (ROOTS + u64::from(number) * ROOT)
    }
}

/// Encodes the wanted number of workers and its origin.
pub fn said(workers: u32, by: Trigger) -> u64 {
    u64::from(workers) | u64::from(by.to_bits()) << 32
}

/// Returns the offset and the length of the registry's text of the pool at `at`; `None` if it would
/// not be inside the memory.
fn text_of<M: Memory>(memory: M, at: Offset) -> Option<(Offset, u64)> {
    // Relaxed: written before the pool was published.
    let block: u64 = memory.load(at + TEXT, Ordering::Relaxed);
    let block = Offset::checked(block, 8, 8, memory.size()).ok()?;
    let bytes = memory.load(block, Ordering::Relaxed);
    let text = Offset::checked(block.raw().checked_add(8)?, bytes, 1, memory.size()).ok()?;
    (!block.is_null()).then_some((text, bytes))
}
