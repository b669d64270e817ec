//! Crash points: the verbs of a transaction before which the process kills itself.

use clap::ValueEnum;
use fastrand::Rng;
use outlive_store::servers::Store;
use outlive_store::verbs::{Batch, Verb, VerbKind};
use rustix::process::{Signal, getpid, kill_process};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

/// A kind of verbs, as they take effect at a memory server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Point {
    /// Reads an object or a bucket of the index
    Read,
    /// Latches an object
    Latch,
    /// Reads the latch or version of an object, to validate that it has not changed
    Validate,
    /// Writes the log
    Log,
    /// Writes the new value or version of an object to a replica
    Commit,
    /// Releases a latch after the commit
    Unlatch,
    /// Removes the log of an attempt that is not committed
    RemoveLog,
    /// Releases a latch of an attempt that is not committed
    Release,
    /// Any of these while the store recovers another compute server
    Recovery,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |it| it.get_name()))
    }
}

/// The crash points of a process.
pub struct Crashes {
    store: Store,
    points: Vec<Point>,
    one_in: u32,
    random: RefCell<Rng>,
    /// The point of the crash that was chosen, and the file in which it is recorded.
    chosen: Cell<Option<Point>>,
    record: Option<PathBuf>,
    /// The offset at which the logs end in the region of each memory server.
    log_bytes: u64,
}

impl fmt::Debug for Crashes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crashes")
            .field("points", &self.points)
            .finish_non_exhaustive()
    }
}

impl Crashes {
    /// Returns crashes before one in `one_in` of the verbs of `points`.
    pub fn new(store: &Store, points: &[Point], one_in: u32, seed: u64) -> Self {
        Self {
            log_bytes: store.configuration().log_bytes(),
            store: store.clone(),
            points: points.to_vec(),
            one_in,
            random: RefCell::new(Rng::with_seed(seed)),
            chosen: Cell::new(None),
            record: None,
        }
    }

    /// Records the point of a crash in this file.
    pub fn recorded_in(self, record: Option<PathBuf>) -> Self {
        Self { record, ..self }
    }

    /// Returns the index of the verb of `batch` before which the process dies, if it does.
    pub fn choose(&self, batch: &Batch) -> Option<usize> {
        if self.points.is_empty() {
            return None;
        }
        let is_recovering =
            self.points.contains(&Point::Recovery) && self.store.configuration().is_recovering();
        let mut random = self.random.borrow_mut();
        let mut verbs = batch.verbs().iter();
        verbs.position(|verb| {
            let point = match is_recovering {
                true => Point::Recovery,
                false => self.point(batch, verb),
            };
            self.chosen.set(Some(point));
            self.points.contains(&point) && random.u32(0..self.one_in) == 0
        })
    }

    /// Returns the kind of a verb.
    fn point(&self, batch: &Batch, verb: &Verb) -> Point {
        let is_log = |verb: &Verb| verb.at.get() < self.log_bytes;
        let words = |verb: &Verb| batch.buffer()[verb.local()].iter();
        let all = batch.verbs();
        match verb.kind {
            VerbKind::CompareSwap { new: 0, .. } => Point::Release,
            VerbKind::CompareSwap { .. } | VerbKind::FetchAdd { .. } => Point::Latch,
            // The object is read in the batch of the CAS that latches it.
            VerbKind::Read if all.iter().any(|it| it.is_swap()) => Point::Latch,
            // Only a validation reads single words without the value between them.
            VerbKind::Read if all.iter().all(|it| !it.is_read() || it.words() == 1) => {
                Point::Validate
            }
            VerbKind::Read => Point::Read,
            VerbKind::Write if is_log(verb) => match words(verb).all(|word| *word == 0) {
                true => Point::RemoveLog,
                false => Point::Log,
            },
            // A value can be zero. A version is not, and is in the same batch.
            VerbKind::Write => {
                let mut objects = all.iter().filter(|it| !is_log(it) && it.is_write());
                match objects.any(|it| words(it).any(|word| *word != 0)) {
                    true => Point::Commit,
                    false => Point::Unlatch,
                }
            }
        }
    }

    /// Records the chosen point, and kills the process.
    pub fn die(&self) -> ! {
        if let (Some(point), Some(record)) = (self.chosen.get(), &self.record) {
            let file = File::options().append(true).create(true).open(record);
            // A line that is missing makes the search fail.
            let _ = file.and_then(|mut it| it.write_all(format!("{point}\n").as_bytes()));
        }
        // Fails for no process that may signal itself.
        let _ = kill_process(getpid(), Signal::KILL);
        loop {
            std::thread::park();
        }
    }
}

trait Kind {
    fn is_swap(&self) -> bool;
    fn is_read(&self) -> bool;
    fn is_write(&self) -> bool;
}

impl Kind for Verb {
    fn is_swap(&self) -> bool {
        matches!(self.kind, VerbKind::CompareSwap { .. })
    }

    fn is_read(&self) -> bool {
        self.kind == VerbKind::Read
    }

    fn is_write(&self) -> bool {
        self.kind == VerbKind::Write
    }
}
