//! Dedup on tasks: three consecutive jobs for each window.
//!
//! 1. The first reads the window, stretch by stretch, and finds its marks.
//! 2. The second's root determines the ends of the chunks, and its tasks take their digests.
//! 3. The third's root numbers the chunks, and its tasks pack the new ones.
//!
//! Tasks of a stretch write only this stretch's part of arrays that are not read before their job
//! is complete; roots write only data that depends on the previous jobs. So a re-executed task
//! writes the same values. The driver writes the archive.

use super::numbers::{self, Numbers, WORDS};
use super::pack::{self, Packer};
use super::plan::{
    CHUNKS_END, DIGESTS, FOUND, FRESH, KEPT, MARKS, NOW, NUMBERS, Now, PLACES, SLOTS, TEXT, packed,
};
use super::text::{Extents, Trouble};
use super::{bits, chunk};
use core::ops::Range;
use outlive::memory::Memory;
use outlive_run::header::CalledOff;
use outlive_run::host::header_here;
use outlive_run::on_tasks::{damaged, next_round, spread, unit};
use outlive_tasks::{Array, Context, TaskError, TaskResult, task};

/// The number of jobs of a window.
pub(super) const JOBS: u64 = 3;

// The work of a stretch's task: the job that it belongs to.
const READ: u64 = 0;
const DIGEST: u64 = 1;
const PACK: u64 = 2;

task! {
    /// Starts the tasks of the run's current window.
    pub fn window(context) {
        let window = Window::of(context)?;
        window.spread(context, READ)?;
        next_round(context, window.round(DIGEST), cut())
    }

    /// Determines the ends of the window's chunks, and starts the tasks that compute their digests.
    pub fn cut(context) {
        let window = Window::of(context)?;
        window.cut(context)?;
        window.spread(context, DIGEST)?;
        next_round(context, window.round(PACK), number())
    }

    /// Numbers the window's chunks, and has the new ones packed.
    pub fn number(context) {
        let window = Window::of(context)?;
        window.number(context)?;
        window.spread(context, PACK)
    }

    /// Does the work of stretches `first..last`, or spawns tasks that do.
    pub fn stretches(context, work: u64, first: u64, last: u64) {
        let window = Window::of(context)?;
        if last - first > 1 {
            return spread(context, first..last, 1, |part| stretches(work, part.start, part.end));
        }
        unit(context, window.unit(work, first), || match work {
            READ => window.read(context, first),
            DIGEST => window.digest(context, first),
            _ => window.pack(context, first),
        })
    }
}

/// The current window of the run.
#[derive(Clone, Copy)]
struct Window {
    now: Array<u64>,
    stretch: u64,
    len: u64,
}

impl Window {
    fn of(context: &Context<'_>) -> Result<Self, TaskError> {
        let now = context.array::<u64>(NOW)?;
        if now.len() <= Now::Fresh as usize || now.get(Now::Stretch as usize) == 0 {
            return Err(damaged("the data of the window are invalid"));
        }
        Ok(Self {
            now,
            stretch: now.get(Now::Stretch as usize),
            len: now.get(Now::Len as usize),
        })
    }

    fn get(self, what: Now) -> u64 {
        self.now.get(what as usize)
    }

    fn set(self, what: Now, value: u64) {
        self.now.set(what as usize, value);
    }

    fn stretches(self) -> u64 {
        self.len.div_ceil(self.stretch)
    }

    fn round(self, work: u64) -> u64 {
        self.get(Now::Number) * JOBS + work
    }

    fn unit(self, work: u64, stretch: u64) -> u64 {
        self.get(Now::Unit) + work * self.stretches() + stretch
    }

    fn range(self, stretch: u64) -> Range<u64> {
        let from = stretch * self.stretch;
        from..self.len.min(from + self.stretch)
    }

    fn spread(self, context: &Context<'_>, work: u64) -> TaskResult {
        spread(context, 0..self.stretches(), 1, |part| {
            stretches(work, part.start, part.end)
        })
    }

    /// Reads a stretch, and finds its marks.
    fn read(self, context: &Context<'_>, stretch: u64) -> TaskResult {
        let (extents, range) = (Extents::of(context)?, self.range(stretch));
        let (mut bytes, mut marks) = (vec![0; (range.end - range.start) as usize], Vec::new());
        let from = self.get(Now::Start) + range.start;
        let read = extents.read(from, &mut bytes, |piece| {
            let from = range.start + piece.at as u64;
            chunk::marks(piece.before, piece.bytes, from, &mut marks);
        });
        read.map_err(|why| {
            // A changed file cannot be archived by any worker.
            if let (Trouble::Changed { number, .. }, Some(header)) = (&why, header_here()) {
                header.call_off(CalledOff::Changed(*number));
            }
            TaskError::from(why)
        })?;
        let words = bits::of(&marks, range.start, bytes.len() as u64);
        for (name, words) in MARKS.into_iter().zip(words) {
            let array = context.array::<u64>(name)?;
            array.write((range.start / bits::BYTES) as usize, &words);
        }
        let text = context.input(TEXT)?;
        if text.len() < range.end {
            return Err(damaged("the array for the bytes of a window is too short"));
        }
        // Whole words: a window's array consists of whole words, and only its last stretch may not.
        context.memory().copy_in(text.start() + range.start, &bytes);
        Ok(())
    }

    /// Determines the ends of the chunks.
    fn cut(self, context: &Context<'_>) -> TaskResult {
        let extents = Extents::of(context)?;
        let [any, strong] = [context.array::<u64>(MARKS[0])?, context.array(MARKS[1])?];
        let chunks_end = context.array::<u32>(CHUNKS_END)?;
        let (start, mut from, mut chunks) = (self.get(Now::Start), 0, 0);
        while from < self.len {
            let extent = extents.at(start + from);
            let end = extents.range(extent).end - start;
            // Stop unless all bytes that determine the end of the chunk are here.
            if end > self.len && from + chunk::MAX as u64 > self.len {
                break;
            }
            from = chunk::end(from, end, |range, is_strong| {
                let words = if is_strong { strong } else { any };
                let word = |number| {
                    if number < words.len() {
                        words.get(number)
                    } else {
                        0
                    }
                };
                bits::first(range, word)
            });
            if chunks == chunks_end.len() {
                return Err(damaged("the array for the ends of chunks is too short"));
            }
            chunks_end.set(chunks, from as u32);
            chunks += 1;
        }
        self.set(Now::Cut, from);
        self.set(Now::Chunks, chunks as u64);
        Ok(())
    }

    /// Numbers the chunks.
    fn number(self, context: &Context<'_>) -> TaskResult {
        let table = Numbers {
            slots: context.array(SLOTS)?,
            digests: context.array(DIGESTS)?,
        };
        let (numbers, found) = (context.array::<u32>(NUMBERS)?, context.array::<u64>(FOUND)?);
        let (fresh, places) = (context.array::<u32>(FRESH)?, context.array::<u64>(PLACES)?);
        let chunks = Chunks::of(self, context)?;
        let (known, mut count, mut place) = (self.get(Now::Known), 0, 0);
        for chunk in 0..chunks.count {
            let next = known + count as u64;
            let number = u32::try_from(next).ok();
            let number = number.and_then(|next| table.number(numbers::read(found, chunk), next));
            let number = number.ok_or_else(|| damaged("the table of chunks is full"))?;
            numbers.set(chunk, number);
            if u64::from(number) == next {
                fresh.set(count, chunk as u32);
                places.set(count, place);
                let range = chunks.range(chunk);
                place += (range.end - range.start).next_multiple_of(8) as u64;
                count += 1;
            }
        }
        self.set(Now::Fresh, count as u64);
        Ok(())
    }

    /// Takes the digests of the chunks that begin in a stretch.
    fn digest(self, context: &Context<'_>, stretch: u64) -> TaskResult {
        let (text, found) = (context.array::<u8>(TEXT)?, context.array::<u64>(FOUND)?);
        let chunks = Chunks::of(self, context)?;
        // SAFETY: the window was read by tasks of the previous job, which is complete. The next
        // window is read when this one's last job is complete, and that job depends on this task's
        // job. The name exists as long as the pool.
        let text = unsafe { text.as_slice() };
        for chunk in chunks.beginning_in(self.range(stretch)) {
            let bytes = text.get(chunks.range(chunk));
            let digest = pack::digest(bytes.ok_or_else(outside)?);
            found.write(chunk * WORDS, &numbers::to_words(&digest));
        }
        Ok(())
    }

    /// Packs the new chunks that begin in a stretch.
    fn pack(self, context: &Context<'_>, stretch: u64) -> TaskResult {
        let (text, fresh) = (context.array::<u8>(TEXT)?, context.array::<u32>(FRESH)?);
        let (places, kept) = (context.array::<u64>(PLACES)?, context.array::<u32>(KEPT)?);
        let packed = context.input(packed(self.get(Now::Number)))?;
        let chunks = Chunks::of(self, context)?;
        // SAFETY: as for the digests.
        let text = unsafe { text.as_slice() };
        let mine = chunks.beginning_in(self.range(stretch));
        let count = fresh.len().min(self.get(Now::Fresh) as usize);
        let first = partition(count, |at| (fresh.get(at) as usize) < mine.start);
        let mut packer = Packer::new(self.get(Now::Level) as u32);
        let mut bytes = Vec::new();
        for at in first..count {
            let chunk = fresh.get(at) as usize;
            if chunk >= mine.end {
                break;
            }
            let chunk = text.get(chunks.range(chunk)).ok_or_else(outside)?;
            packer.pack(chunk, &mut bytes);
            let place = places.get(at);
            if place + bytes.len() as u64 > packed.len() {
                return Err(damaged("the array for packed chunks is too short"));
            }
            // Whole words: the distances between places are such.
            context.memory().copy_in(packed.start() + place, &bytes);
            kept.set(at, bytes.len() as u32);
        }
        Ok(())
    }
}

fn outside() -> TaskError {
    damaged("a chunk ends outside of its window")
}

/// Returns the first of `count` numbers for which `before` does not hold.
fn partition(count: usize, before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low.midpoint(high);
        match before(middle) {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    low
}

/// The chunks of a window.
#[derive(Clone, Copy)]
struct Chunks {
    end: Array<u32>,
    count: usize,
}

impl Chunks {
    fn of(window: Window, context: &Context<'_>) -> Result<Self, TaskError> {
        let end = context.array::<u32>(CHUNKS_END)?;
        let count = end.len().min(window.get(Now::Chunks) as usize);
        Ok(Self { end, count })
    }

    fn start(self, chunk: usize) -> usize {
        let end = |before| self.end.get(before) as usize;
        chunk.checked_sub(1).map_or(0, end)
    }

    /// Returns the range of chunk `chunk` in its window.
    fn range(self, chunk: usize) -> Range<usize> {
        self.start(chunk)..self.end.get(chunk) as usize
    }

    fn beginning_in(self, stretch: Range<u64>) -> Range<usize> {
        let first = |place| partition(self.count, |chunk| (self.start(chunk) as u64) < place);
        first(stretch.start)..first(stretch.end)
    }
}
