//! Measures derived from the counts of a run: shares, rates and sizes, as in the paper's figures.

use crate::cluster::{Purpose, Statistics};
use crate::description::Description;
use crate::engine::Time;
use crate::logging::{ENTRY_BYTES, LoggingCounts};

/// The measures of a run, or of a part of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measures {
    /// Instructions per cycle of a core that has a thread, until the last thread ends.
    pub instructions_per_cycle: f64,
    /// The share of the stores to shared memory that were coalesced in the store buffer.
    pub coalesced: Option<f64>,
    /// The share of the cores' time in which a store could not retire because the store buffer was
    /// full.
    pub buffer_full: f64,
    /// The share of the cores' time in which the oldest store waited for its replicas alone.
    pub replica_wait: f64,
    /// The share of the cores' time in which their threads waited for locks, including the commits
    /// of the stores before a lock. Waits that have not ended are not included.
    pub at_locks: f64,
    /// The share in which they waited at barriers and conditions.
    pub at_barriers: f64,
    /// The share of the replicated entries that were replicated only when they were the oldest (the
    /// paper's Figure 11).
    pub replicated_oldest: Option<f64>,
    /// Bytes per second that all nodes send for accesses to shared memory (Figure 14).
    pub access_rate: f64,
    /// Bytes per second that they send to replicate stores.
    pub replication_rate: f64,
    /// Bytes per second that they send to dump logs.
    pub dump_rate: f64,
    /// Bytes per second that they send to recover from deaths.
    pub recovery_rate: f64,
    /// Bytes per second that memory nodes send to truncate logs: not a dump, as the paper has none.
    pub truncation_rate: f64,
    /// The largest log of a unit so far, in bytes of its DRAM (Figure 13).
    pub largest_log: u64,
    /// Bytes per second logged by the busiest unit.
    pub logging_rate: f64,
    /// The size of the entries in dumps, divided by the size of the dumps.
    pub dump_factor: Option<f64>,
}

impl Measures {
    /// Returns the measures of a run that has taken `time` since its beginning.
    pub fn of(statistics: &Statistics, time: Time, description: &Description) -> Self {
        let nothing = Sums::default();
        // Threads without operations take no time.
        let time = time.max(Time::from_picos(1));
        Sums::of(statistics).since(&nothing, statistics, time, description)
    }

    /// Returns the measures of the part of a run between two times.
    ///
    /// # Panics
    ///
    /// If the later time is not after the earlier one.
    pub fn between(
        (earlier, from): (&Statistics, Time),
        (later, to): (&Statistics, Time),
        description: &Description,
    ) -> Self {
        Sums::of(later).since(&Sums::of(earlier), later, to - from, description)
    }
}

/// The purposes of messages for which rates are computed.
const PURPOSES: [Purpose; 5] = [
    Purpose::Access,
    Purpose::Replication,
    Purpose::Dump,
    Purpose::Recovery,
    Purpose::Truncation,
];

/// The counts of which differences are taken.
#[derive(Clone, Debug, Default)]
struct Sums {
    instructions: u64,
    shared_stores: u64,
    shared_coalesced: u64,
    buffer_full: u64,
    replica_wait: u64,
    at_locks: u64,
    at_barriers: u64,
    replicated: u64,
    replicated_oldest: u64,
    /// For each purpose, in the order of [`PURPOSES`].
    bytes: [u64; PURPOSES.len()],
    saved: u64,
    dumped: u64,
    /// For each unit.
    logged: Vec<u64>,
}

impl Sums {
    fn of(statistics: &Statistics) -> Self {
        let total = statistics.total();
        let sum =
            |count: fn(&LoggingCounts) -> u64| statistics.logging.iter().map(count).sum::<u64>();
        Self {
            instructions: total.instructions,
            shared_stores: total.shared_stores,
            shared_coalesced: total.shared_coalesced,
            buffer_full: total.buffer_full_ticks,
            replica_wait: total.replica_ticks,
            at_locks: total.lock_ticks,
            at_barriers: total.meeting_ticks,
            replicated: total.replicated,
            replicated_oldest: total.replicated_oldest,
            bytes: PURPOSES.map(|purpose| statistics.messages.for_purpose(purpose).bytes),
            saved: sum(|unit| unit.saved),
            dumped: sum(|unit| unit.dumped_bytes),
            logged: statistics.logging.iter().map(|unit| unit.logged).collect(),
        }
    }

    fn since(
        &self,
        before: &Self,
        statistics: &Statistics,
        time: Time,
        description: &Description,
    ) -> Measures {
        assert!(time > Time::ZERO, "nothing can be measured in zero time");
        let more = |of: fn(&Self) -> u64| (of(self) - of(before)) as f64;
        let share = |part: f64, whole: f64| (whole > 0.0).then(|| part / whole);
        let seconds = time.as_seconds();
        let cycles = seconds
            * description.system.cpu_frequency.hertz() as f64
            * statistics.cores.len() as f64;
        let ticks = cycles * f64::from(description.ours.core.width);
        let [
            access_rate,
            replication_rate,
            dump_rate,
            recovery_rate,
            truncation_rate,
        ] = std::array::from_fn(|purpose| {
            (self.bytes[purpose] - before.bytes[purpose]) as f64 / seconds
        });
        let entry = description.ours.replication.log_entry.0;
        let earlier = |unit: usize| before.logged.get(unit).copied().unwrap_or(0);
        let logged = self.logged.iter().enumerate();
        let busiest = logged.map(|(unit, logged)| logged - earlier(unit)).max();
        let logs = statistics.logging.iter().map(|unit| unit.peak_log);
        Measures {
            instructions_per_cycle: more(|sums| sums.instructions) / cycles,
            coalesced: share(
                more(|sums| sums.shared_coalesced),
                more(|sums| sums.shared_stores),
            ),
            buffer_full: more(|sums| sums.buffer_full) / ticks,
            replica_wait: more(|sums| sums.replica_wait) / ticks,
            at_locks: more(|sums| sums.at_locks) / ticks,
            at_barriers: more(|sums| sums.at_barriers) / ticks,
            replicated_oldest: share(
                more(|sums| sums.replicated_oldest),
                more(|sums| sums.replicated),
            ),
            access_rate,
            replication_rate,
            dump_rate,
            recovery_rate,
            truncation_rate,
            largest_log: logs.max().unwrap_or(0) * entry,
            logging_rate: (busiest.unwrap_or(0) * entry) as f64 / seconds,
            dump_factor: share(
                more(|sums| sums.saved) * ENTRY_BYTES as f64,
                more(|sums| sums.dumped),
            ),
        }
    }
}
