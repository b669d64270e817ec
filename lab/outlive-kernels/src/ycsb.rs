//! YCSB over a hash table that is an array of records: 80% reads, 20% updates, records of 1 KB
//! drawn uniformly.
//!
//! All data are in shared memory. An access reads or writes all 16 lines of its record, word by
//! word. The first word of a record is twice its version, or odd while it is being written; the
//! contents of the other words follow from record and version, so that each read is checked as well
//! as the final contents.
//!
//! An update holds a lock (of one of many stripes of records). A read holds none: it reads the
//! version, the contents and the version again, and if the two versions differ, it reads again
//! under the lock. So reads write nothing, and no thread spins. On machines that reorder loads with
//! loads, or stores with stores, this program fails.
//!
//! Instructions: 2 for a word that is read (to use it, and the loop), 4 for a word that is written
//! (to make it, and the loop), and for each access (to draw and hash the key, look it up and
//! dispatch) as many as make 1,000 on average, since the paper's run has 6.4 thousand million for
//! 6.4 million accesses. There are no private data: all accesses of the original are to the shared
//! memory, too.

use outlive_machine::engine::Random;
use outlive_machine::program::{
    Allocator, Array, Cpu, LockId, Origin, Pending, Scale, Word, Workload,
};

/// Words of a record: the version and the contents.
const RECORD: u64 = 128;
const CONTENTS: usize = RECORD as usize - 1;
/// Instructions of an access in addition to those for its words.
const DISPATCH: u32 = 564;

/// YCSB's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ycsb {
    /// Records of 1 KB.
    pub records: u64,
    /// Accesses to records, of all threads together.
    pub accesses: u64,
    /// Updates in 100 accesses.
    pub updates: u64,
    /// Locks, each for a stripe of the records.
    pub locks: u32,
    /// The seed of the draws.
    pub seed: u64,
}

impl Ycsb {
    /// Returns the parameters at a scale. Except for tests, the table is always that of the paper:
    /// only the number of accesses is smaller.
    pub fn at(scale: Scale) -> Self {
        let (records, accesses, locks) = match scale {
            Scale::Test => (64, 2_000, 16),
            Scale::Study => (500_000, 64_000, 4096),
            Scale::Tenfold => (500_000, 640_000, 4096),
            Scale::Full => (500_000, 6_400_000, 4096),
        };
        Self {
            records,
            accesses,
            updates: 20,
            locks,
            seed: 1,
        }
    }

    /// Returns the workload. Each thread has an equal part of the accesses.
    ///
    /// # Panics
    ///
    /// If there are no records or no locks.
    pub fn workload(self, threads: usize) -> Workload {
        assert!(
            self.records > 0 && self.locks > 0,
            "no records, or no locks"
        );
        let mut memory = Allocator::new();
        let first_lock = memory.locks(self.locks);
        let table = Table {
            words: memory.array(self.records * RECORD),
            first_lock,
            parameters: self,
        };
        let origin = Origin {
            program: "YCSB, 80% reads, 20% updates",
            stores: Some(0.2),
            shared_stores: None,
            source: "the mix of accesses",
            differs: None,
        };
        Workload::new("ycsb", threads, memory, origin, move |cpu| table.run(cpu))
            .with_check(move |memory| table.check(threads, memory))
    }

    fn draws(self, threads: usize, thread: usize) -> impl Iterator<Item = (u64, bool)> {
        let mut random = Random::new(self.seed ^ (thread as u64 + 1).wrapping_mul(0x9e37_79b9));
        let (all, threads, thread) = (self.accesses, threads as u64, thread as u64);
        let own = all * (thread + 1) / threads - all * thread / threads;
        (0..own).map(move |_| (random.below(self.records), random.below(100) < self.updates))
    }
}

#[derive(Clone, Copy)]
struct Table {
    words: Array<u64>,
    first_lock: LockId,
    parameters: Ycsb,
}

/// A read in progress.
struct Read {
    record: u64,
    before: Pending,
    contents: [Pending; CONTENTS],
    after: Pending,
}

impl Table {
    fn run(self, cpu: &mut Cpu<'_>) {
        // A processor looks beyond the end of a read: its values are needed only when the next
        // access has begun.
        let mut last: Option<Read> = None;
        for (record, update) in self.parameters.draws(cpu.threads(), cpu.thread()) {
            cpu.compute(DISPATCH);
            if update {
                if let Some(read) = last.take() {
                    self.finish(cpu, &read);
                }
                self.update(cpu, record);
            } else {
                let read = self.ask(cpu, record);
                if let Some(read) = last.replace(read) {
                    self.finish(cpu, &read);
                }
            }
        }
        if let Some(read) = last {
            self.finish(cpu, &read);
        }
    }

    fn word(self, record: u64, word: u64) -> Word {
        self.words.word(record * RECORD + word)
    }

    fn lock(self, record: u64) -> LockId {
        LockId(self.first_lock.0 + (record % u64::from(self.parameters.locks)) as u32)
    }

    fn ask(self, cpu: &mut Cpu<'_>, record: u64) -> Read {
        let before = cpu.load_later(self.word(record, 0));
        let contents = std::array::from_fn(|place| {
            cpu.compute(2);
            cpu.load_later(self.word(record, place as u64 + 1))
        });
        cpu.compute(2);
        let after = cpu.load_later(self.word(record, 0));
        Read {
            record,
            before,
            contents,
            after,
        }
    }

    fn finish(self, cpu: &mut Cpu<'_>, read: &Read) {
        if self.right(cpu, read) {
            return;
        }
        cpu.lock(self.lock(read.record));
        let again = self.ask(cpu, read.record);
        if !self.right(cpu, &again) {
            // The writer died in an update: the contents are not right then, but no thread writes
            // them either.
            let (before, after) = (cpu.value(again.before), cpu.value(again.after));
            assert!(
                before == after,
                "record {} had the versions {before} and {after} while its lock was held once",
                read.record
            );
        }
        cpu.unlock(self.lock(read.record));
    }

    /// Returns whether no thread wrote during the read.
    ///
    /// # Panics
    ///
    /// If no thread wrote, and the contents are not those of the version.
    fn right(self, cpu: &mut Cpu<'_>, read: &Read) -> bool {
        let before = cpu.value(read.before);
        let contents = read.contents.map(|pending| cpu.value(pending));
        if before % 2 == 1 || cpu.value(read.after) != before {
            return false;
        }
        for (word, found) in (1..).zip(contents) {
            let right = content(read.record, before / 2, word);
            assert!(
                found == right,
                "record {} was read with version {} before and after, but its word {word} is {found:#x}, not {right:#x}",
                read.record,
                before / 2,
            );
        }
        true
    }

    fn update(self, cpu: &mut Cpu<'_>, record: u64) {
        cpu.lock(self.lock(record));
        let writing = cpu.load(self.word(record, 0)) | 1;
        cpu.store(self.word(record, 0), writing);
        for word in 1..RECORD {
            cpu.compute(4);
            cpu.store(
                self.word(record, word),
                content(record, writing.div_ceil(2), word),
            );
        }
        cpu.store(self.word(record, 0), writing + 1);
        cpu.unlock(self.lock(record));
    }

    fn check(self, threads: usize, memory: &dyn Fn(Word) -> u64) -> Result<(), String> {
        let mut versions = vec![0; self.parameters.records as usize];
        for thread in 0..threads {
            for (record, update) in self.parameters.draws(threads, thread) {
                versions[record as usize] += u64::from(update);
            }
        }
        for (record, version) in (0..).zip(versions) {
            let found = memory(self.word(record, 0));
            if found != 2 * version {
                return Err(format!(
                    "record {record} was written {version} times, but its first word is {found}, \
                     not twice that number"
                ));
            }
            for word in 1..RECORD {
                let (found, right) = (
                    memory(self.word(record, word)),
                    content(record, version, word),
                );
                if found != right {
                    return Err(format!(
                        "word {word} of record {record} is {found:#x}; version {version} has {right:#x} there"
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Returns a word of a record: eight printable characters that look random, as YCSB's values; zero
/// before the first update.
fn content(record: u64, version: u64, word: u64) -> u64 {
    if version == 0 {
        return 0;
    }
    let seed = (record << 32 | version << 8 | word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (Random::new(seed).bits() & 0x3f3f_3f3f_3f3f_3f3f) + 0x2020_2020_2020_2020
}
