//! A workload: threads, the memory that they share, and the expected result.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use super::{Allocator, Body, Coroutine, Counts, Cpu, Image, Recording, Synchronisation, Word};

/// The amount of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scale {
    /// For tests: well below a second of host time, on every machine.
    Test,
    /// For studies that finish in minutes.
    Study,
    /// Ten times as long as [`Study`](Self::Study), to show that its ratios hold.
    Tenfold,
    /// As in the paper that describes the machine.
    Full,
}

impl Scale {
    /// All scales, the smallest first.
    pub const ALL: [Self; 4] = [Self::Test, Self::Study, Self::Tenfold, Self::Full];

    /// Returns its name, as users give it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Test => "test",
            Self::Study => "study",
            Self::Tenfold => "tenfold",
            Self::Full => "full",
        }
    }
}

/// The program that a workload stands for, and its known figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Origin {
    /// Its name.
    pub program: &'static str,
    /// The fraction of its data accesses that are stores.
    pub stores: Option<f64>,
    /// The fraction of its stores that go to lines that several threads touch.
    pub shared_stores: Option<f64>,
    /// The source of these figures.
    pub source: &'static str,
    /// The reason why one of the workload's fractions is off by more than a quarter, if one is at
    /// [`Scale::Study`] with [`THREADS`](Self::THREADS) threads.
    pub differs: Option<&'static str>,
}

impl Origin {
    /// The number of threads with which the fractions are compared.
    pub const THREADS: usize = 64;

    /// Returns whether the fractions are within a quarter of the known ones.
    pub fn is_near(&self, counts: &Counts) -> bool {
        let near = |ours: f64, known: Option<f64>| {
            known.is_none_or(|known| (ours / known - 1.0).abs() <= 0.25)
        };
        near(counts.store_fraction(), self.stores)
            && near(counts.shared_store_fraction(), self.shared_stores)
    }
}

/// A workload left a wrong result in memory.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the result of {workload} is wrong: {what}")]
pub struct WrongResult {
    /// The workload.
    pub workload: &'static str,
    /// The error and its location.
    pub what: String,
}

type Check = Arc<dyn Fn(&dyn Fn(Word) -> u64) -> Result<(), String> + Send + Sync>;

/// Threads, the memory that they share, and the expected result.
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
    /// Creates a workload of `threads` threads that execute `body` in the allocated memory. Any
    /// result is accepted.
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

    /// Adds a check of the result in memory, which returns a description of an error.
    #[must_use]
    pub fn with_check(
        mut self,
        check: impl Fn(&dyn Fn(Word) -> u64) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.check = Arc::new(check);
        self
    }

    /// Returns its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the number of its threads.
    pub fn thread_count(&self) -> usize {
        self.threads
    }

    /// Returns the initial contents of memory.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// Returns its locks, conditions and barriers.
    pub fn synchronisation(&self) -> &Synchronisation {
        &self.synchronisation
    }

    /// Returns the program that it stands for.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Returns one of its threads, at its beginning.
    pub fn thread(&self, thread: usize, recording: Recording) -> Coroutine {
        Coroutine::with_body(thread, self.threads, recording, Arc::clone(&self.body))
    }

    /// Returns all its threads, at their beginning.
    pub fn threads(&self, recording: Recording) -> Vec<Coroutine> {
        (0..self.threads)
            .map(|thread| self.thread(thread, recording))
            .collect()
    }

    /// Checks the result in memory: `memory` reads a word, after all threads have ended.
    ///
    /// # Errors
    ///
    /// If the result is wrong.
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
