//! `pandora-flat`: whether transactions cost the same in small and in large tables.
//!
//! A key that is not in a worker's cache of addresses is found by an additional READ of its bucket.
//! The cache has the addresses of a small table, and few of those of a large one. So the time on
//! the link is compared without a cache, in which case all tables need the same verbs; the effect
//! of the cache is shown separately. On bare memory each access of a large table misses the
//! processor's caches, so the time there is divided by that of a pointer chase through as much
//! memory, in the same round.

use super::Backend;
use super::scratch_store::{MEMORY_SERVERS, REPLICAS};
use super::steady::{Steady, Until};
use super::subject::{Kind, Subject};
use crate::paired::Paired;
use crate::row::{Goal, How, Row};
use crate::statistics::median_estimate;
use crate::{Run, Study, StudyError, clock};
use outlive_store::protocol::Protocol;
use outlive_store::workloads::bytes_per_server;
use rustix::fs::statvfs;
use std::cell::RefCell;
use std::time::Duration;

pub const STUDY: Study = Study {
    name: "pandora-flat",
    about: "transactions in tables of 10,000 to 10,000,000 keys",
    body: study,
};

/// The bar on the emulated link, and that on bare memory after the division.
const LINK: f64 = 1.1;
const BARE: f64 = 1.3;
/// About the number of bytes of a key and its replica with their headers and buckets.
const BYTES_OF_KEY: u64 = 200;

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    run.go_on()?;
    let sizes: &[u64] = run.effort().of(
        &[1_000, 2_000],
        &[10_000, 1_000_000],
        &[10_000, 100_000, 1_000_000, 10_000_000],
    );
    let rounds = run.effort().of(2, 10, 30);
    let until = Until::Time(Duration::from_millis(run.effort().of(10, 50, 200)));
    let subject = |size| Subject {
        kind: Kind::Micro,
        size,
        hot: 0,
        write_percent: 50,
    };
    // Before the smaller sizes, which take minutes.
    let both = needed(&subject(sizes[0])) + needed(&subject(sizes[sizes.len() - 1]));
    require(both, available()?)?;
    for (backend, caches) in [
        (Backend::link(), false),
        (Backend::link(), true),
        (Backend::Bare, true),
    ] {
        let cache = if caches { "" } else { ", no cached addresses" };
        let make = |size| {
            run.begin(&format!(
                "{size} keys, {}{cache}: the tables are filled",
                backend.name()
            ));
            let mut steady = Steady::new(subject(size), Protocol::Pandora, backend, 1)?;
            if !caches {
                steady.set_cached_addresses(1);
            }
            // Fills the cache of addresses.
            steady.round(until)?;
            Ok::<_, StudyError>((RefCell::new(steady), Chase::new(size * BYTES_OF_KEY)))
        };
        let (smallest, chase) = make(sizes[0])?;
        let mut rows = Vec::new();
        for size in &sizes[1..] {
            let case = format!(
                "micro, {size} keys, 1 coordinator, {}{cache}",
                backend.name()
            );
            let (ours, longer_chase) = make(*size)?;
            run.begin(&case);
            let verbs = RefCell::new([0.0; 2]);
            let measure = |which: usize, steady: &RefCell<Steady>, chase: &Chase| {
                let round = steady.borrow_mut().round(until)?;
                verbs.borrow_mut()[which] = round.verbs_each();
                Ok(match backend {
                    Backend::Link(_) => round.latency,
                    Backend::Bare => round.latency * 1e3 / chase.nanos(),
                })
            };
            let paired = Paired::measure(
                run,
                rounds,
                || measure(0, &ours, &longer_chase),
                || measure(1, &smallest, &chase),
            )?;
            let (metric, unit, bar) = match backend {
                Backend::Link(_) => ("mean latency", "us", LINK),
                Backend::Bare => ("mean latency to a step of a pointer chase", "times", BARE),
            };
            let peer = format!("{} keys", sizes[0]);
            let row = Row::new(&case, metric, unit)
                .ours(median_estimate(&paired.ours).value)
                .peer(&peer, paired.peer())
                .ratio(paired.ratio());
            // With a cache, the link shows the effect of the cache only.
            let has_goal = !caches || backend == Backend::Bare;
            rows.push(match has_goal {
                true => row.goal(Goal::ratio_at_most(bar)),
                false => row,
            });
            let [large, small] = verbs.into_inner();
            rows.push(
                Row::new(&case, "verbs of a committed transaction", "verbs")
                    .ours(large)
                    .peer(&peer, small),
            );
            ours.into_inner().check()?;
        }
        run.answer(rows.into_iter().map(|row| row.how(How::Emulated)));
    }
    Ok(())
}

/// The memory that a table of a subject needs with its replicas and the chase, in bytes.
fn needed(subject: &Subject) -> u64 {
    let tables = subject.tables(2, 2);
    let store = bytes_per_server(&tables, MEMORY_SERVERS, REPLICAS) * u64::from(MEMORY_SERVERS);
    // The chase, and the order of its lines while it is made.
    let chase = subject.size * BYTES_OF_KEY * (LINE as u64 + 1) / LINE as u64;
    store + chase
}

/// The memory that is available for stores in `/dev/shm` and this process, in bytes.
fn available() -> Result<u64, StudyError> {
    let text = std::fs::read_to_string("/proc/meminfo");
    let text = text.map_err(StudyError::io("asking for the available memory"))?;
    let line = text.lines().find_map(|it| it.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|it| it.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    let memory = kib.map_or(u64::MAX, |it| it * 1024);
    let shm = statvfs("/dev/shm")
        .map_err(|errno| StudyError::io("asking for the space of /dev/shm")(errno.into()))?;
    Ok(memory.min(shm.f_bavail * shm.f_frsize))
}

/// Refuses the study if `needed` bytes are not available, and an eighth more for the check of the
/// tables, which copies partitions.
fn require(needed: u64, available: u64) -> Result<(), StudyError> {
    let all = needed + needed / 8;
    match all <= available {
        true => Ok(()),
        false => Err(StudyError::void(format!(
            "the tables, their replicas and the pointer chases need {:.1} GB, and {:.1} GB of \
             memory and of /dev/shm are available; use --quick for smaller tables",
            all as f64 * 1e-9,
            available as f64 * 1e-9
        ))),
    }
}

/// A pointer chase through an amount of memory.
struct Chase {
    next: Vec<u32>,
}

/// The number of words of a cache line.
const LINE: usize = 16;

impl Chase {
    fn new(bytes: u64) -> Self {
        let lines = (bytes / (4 * LINE as u64)).max(2) as usize;
        let mut order: Vec<u32> = (0..lines as u32).collect();
        fastrand::Rng::with_seed(1).shuffle(&mut order);
        let mut next = vec![0; lines * LINE];
        // One cycle through all lines.
        for (at, line) in order.iter().enumerate() {
            next[*line as usize * LINE] = order[(at + 1) % lines];
        }
        Self { next }
    }

    /// Returns the time of a step in nanoseconds.
    fn nanos(&self) -> f64 {
        const STEPS: u32 = 50_000;
        let begin = clock::now();
        let mut at = 0u32;
        for _ in 0..STEPS {
            at = self.next[at as usize * LINE];
        }
        std::hint::black_box(at);
        (clock::now() - begin) as f64 / f64::from(STEPS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micro(size: u64) -> Subject {
        Subject {
            kind: Kind::Micro,
            size,
            hot: 0,
            write_percent: 50,
        }
    }

    #[test]
    fn ten_million_keys_fit_into_16_gb_and_are_refused_with_less_than_they_need() {
        let bytes = needed(&micro(10_000)) + needed(&micro(10_000_000));
        assert!((4 << 30..8 << 30).contains(&bytes), "{bytes}");
        require(bytes, 12 << 30).unwrap();
        let refused = require(bytes, 4 << 30).unwrap_err().to_string();
        assert!(refused.contains("use --quick"), "{refused}");
    }
}
