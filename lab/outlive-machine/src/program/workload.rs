//! A workload: threads, the memory that they share, and what must come out.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use super::{Allocator, Body, Coroutine, Counts, Cpu, Image, Recording, Synchronisation, Word};

/// How much there is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scale {
    /// For tests: well below a second of a host's time, whatever executes it.
    Test,
    /// For studies that finish in minutes.
    Study,
    /// Ten times as long as [`Study`](Self::Study), to show that its ratios hold.
    Tenfold,
    /// As in the paper that the machine is from.
    Full,
}

impl Scale {
    /// All of them, the smallest first.
    pub const ALL: [Self; 4] = [Self::Test, Self::Study, Self::Tenfold, Self::Full];

    /// Its name, as people give it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Test => "test",
            Self::Study => "study",
            Self::Tenfold => "tenfold",
            Self::Full => "full",
        }
    }
}

/// The program that a workload stands for, and what is known of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Origin {
    /// Its name.
    pub program: &'static str,
    /// Which share of its data accesses are stores.
    pub stores: Option<f64>,
    /// Which share of its stores go to lines that several threads touch.
    pub shared_stores: Option<f64>,
    /// Where these figures are from.
    pub source: &'static str,
    /// Why one of the workload's shares is off by more than a quarter, if one is at [`Scale::Study`] with [`THREADS`](Self::THREADS)
    /// threads.
    pub differs: Option<&'static str>,
}

impl Origin {
    /// With so many threads shares are compared.
    pub const THREADS: usize = 64;

    /// Whether the shares are within a quarter of those that are known.
    pub fn is_near(&self, counts: &Counts) -> bool {
        let near = |ours: f64, known: Option<f64>| {
            known.is_none_or(|known| (ours / known - 1.0).abs() <= 0.25)
        };
        near(counts.store_fraction(), self.stores)
            && near(counts.shared_store_fraction(), self.shared_stores)
    }
}

/// What a workload left in memory is not its result.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the result of {workload} is wrong: {what}")]
pub struct WrongResult {
    /// Which.
    pub workload: &'static str,
    /// What is wrong, and where.
    pub what: String,
}

type Check = Arc<dyn Fn(&dyn Fn(Word) -> u64) -> Result<(), String> + Send + Sync>;

/// Threads, the memory that they share, and what must come out.
///
/// ```
/// use outlive_machine::program::{Allocator, Origin, Recording, Reference, Workload};
///
/// let threads = 4;
/// let mut memory = Allocator::new();
/// let (lock, sum) = (memory.lock(), memory.array::<u64>(1));
/// let origin = Origin { program: "a sum", stores: None, shared_stores: None, source: "", differs: None };
/// let workload = Workload::new("sum", threads, memory, origin, move |cpu| {
///     cpu.lock(lock);
///     let old = sum.get(cpu, 0);
///     sum.set(cpu, 0, old + cpu.thread() as u64);
///     cpu.unlock(lock);
/// })
/// .with_check(move |memory| match sum.at(memory, 0) {
///     6 => Ok(()),
///     other => Err(format!("the sum of 0, 1, 2 and 3 is {other}")),
/// });
///
/// let mut machine = Reference::of(&workload, Recording::Off, 1);
/// machine.run()?;
/// workload.check(&|word| machine.word(word))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Workload {
    name: &'static str,
    threads: usize,
    image: Image,
    synchronisation: Synchronisation,
    origin: Origin,
    body: Body,
    check: Check,
}

impl Workload {
    /// `threads` threads that do `body` in the memory that was given out; whatever comes out is right.
    pub fn new(
        name: &'static str,
        threads: usize,
        memory: Allocator,
        origin: Origin,
        body: impl Fn(&mut Cpu<'_>) + Send + Sync + 'static,
    ) -> Self {
        let (image, synchronisation) = memory.into_parts();
        Self {
            name,
            threads,
            image,
            synchronisation,
            origin,
            body: Arc::new(body),
            check: Arc::new(|_| Ok(())),
        }
    }

    /// The same, with a check of what it leaves in memory: it says what is wrong.
    #[must_use]
    pub fn with_check(
        mut self,
        check: impl Fn(&dyn Fn(Word) -> u64) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.check = Arc::new(check);
        self
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// How many threads it has.
    pub fn thread_count(&self) -> usize {
        self.threads
    }

    /// What memory holds at the beginning.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// Its locks, conditions and barriers.
    pub fn synchronisation(&self) -> &Synchronisation {
        &self.synchronisation
    }

    /// What it stands for.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// One of its threads, at its beginning.
    pub fn thread(&self, thread: usize, recording: Recording) -> Coroutine {
        Coroutine::with_body(thread, self.threads, recording, Arc::clone(&self.body))
    }

    /// All its threads, at their beginning.
    pub fn threads(&self, recording: Recording) -> Vec<Coroutine> {
        (0..self.threads)
            .map(|thread| self.thread(thread, recording))
            .collect()
    }

    /// Checks what it left in memory: `memory` reads a word, after all threads have ended.
    ///
    /// # Errors
    ///
    /// If that is not its result.
    pub fn check(&self, memory: &dyn Fn(Word) -> u64) -> Result<(), WrongResult> {
        (self.check)(memory).map_err(|what| WrongResult {
            workload: self.name,
            what,
        })
    }
}

impl fmt::Debug for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workload")
            .field("name", &self.name)
            .field("threads", &self.threads)
            .field("words", &self.image.words)
            .finish_non_exhaustive()
    }
}
