//! `crowd`: the cost of hundreds of idle processes in one pod.
//!
//! The processes are on four hosts. Each is a member that waits for the pod's events, with at most
//! 1,024 descriptors. The study measures the time until all have joined, the part of a core that
//! they use while nothing happens, and, when every second process is killed at the same time, the
//! time until every survivor has been notified of every death.

use crate::children::{Part, Playing};
use crate::row::{Goal, Row};
use crate::scratch::{ScratchPod, payload};
use crate::statistics::median_estimate;
use crate::{Run, Study, StudyError, clock};
use outlive::membership::{EventKind, Level, News, ProcessOptions, Settings, Standing};
use outlive::memory::{Memory, Native, Offset, Ordering};
use outlive::pod::Pod;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub const STUDY: Study = Study {
    name: "crowd",
    about: "the cost of hundreds of idle processes in one pod",
    body: study,
};

const HOSTS: u32 = 4;
/// The limit on the descriptors of each process.
const DESCRIPTORS: u64 = 1024;
const PATIENCE: Duration = Duration::from_secs(120);

/// The words that the members write in the payload.
#[derive(Clone, Copy)]
struct Tally {
    memory: Native,
    joined: Offset,
    notified: Offset,
    /// The time at which the last survivor had been notified of all deaths.
    when: Offset,
}

impl Tally {
    fn of(pod: &Pod) -> Self {
        let (memory, at) = (pod.segment().memory(), payload(pod));
        Self {
            memory,
            joined: at,
            notified: at + 128,
            when: at + 256,
        }
    }

    fn await_all(
        self,
        what: &str,
        at: Offset,
        all: u64,
        round: &mut Round,
    ) -> Result<(), StudyError> {
        let until = Instant::now() + PATIENCE;
        while self.memory.load::<u64>(at, Ordering::Acquire) < all {
            if Instant::now() > until {
                return Err(StudyError::void(format!("not within {PATIENCE:?}: {what}")));
            }
            if let Some(lost) = round.members.iter_mut().find_map(|member| {
                let is_killed = member.ended()?.code().is_none();
                (!is_killed).then(|| member.lost())
            }) {
                return Err(lost);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

/// One idle member.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Idler {
    pod: PathBuf,
    host: u32,
    /// The number of processes that will die.
    deaths: u64,
}

impl Idler {
    pub fn play(self) -> Result<(), StudyError> {
        let maximum = getrlimit(Resource::Nofile).maximum;
        let current = Some(DESCRIPTORS.min(maximum.unwrap_or(DESCRIPTORS)));
        let limit = Rlimit { current, maximum };
        setrlimit(Resource::Nofile, limit)
            .map_err(|errno| StudyError::io("limiting descriptors")(errno.into()))?;
        let pod = Pod::open(&self.pod)?;
        let tally = Tally::of(&pod);
        let process = pod.join(ProcessOptions::on_host(self.host).name("idler"))?;
        let mut events = process.events();
        // Release: the observer that sees the count sees the membership.
        tally
            .memory
            .fetch_add(tally.joined, 1u64, Ordering::Release);
        let mut seen = 0u64;
        while seen < self.deaths {
            match events.wait() {
                News::Event(event) => seen += u64::from(event.kind == EventKind::ProcessDied),
                News::Resync { members, .. } => {
                    let died = members.iter().filter(|(_, member)| {
                        member.level == Some(Level::Process) && member.standing == Standing::Died
                    });
                    seen = died.count() as u64;
                }
            }
        }
        let (memory, now) = (tally.memory, clock::now());
        let mut last = memory.load::<u64>(tally.when, Ordering::Relaxed);
        while last < now {
            let order = Ordering::Relaxed;
            match memory.compare_exchange(tally.when, last, now, order, order) {
                Ok(_) => break,
                Err(other) => last = other,
            }
        }
        // Release: the observer that sees the count sees the time.
        memory.fetch_add(tally.notified, 1u64, Ordering::Release);
        crate::children::sleep_for_ever()
    }
}

/// The results of one round.
struct Found {
    joined: f64,
    idle: f64,
    notified: f64,
    descriptors: f64,
}

struct Round {
    members: Vec<Playing>,
    scratch: ScratchPod,
}

impl Round {
    fn start(run: &Run<'_>, processes: u32) -> Result<Self, StudyError> {
        let scratch = ScratchPod::of_ids(64 << 20, Settings::default(), processes + HOSTS + 16)?;
        let mut round = Self {
            members: Vec::new(),
            scratch,
        };
        for number in 0..processes {
            let idler = Idler {
                pod: round.scratch.path().to_owned(),
                host: number % HOSTS,
                deaths: u64::from(processes / 2),
            };
            let mut command = run.launcher().command(&Part::Idler(idler));
            round
                .members
                .push(run.launcher().start_command(&mut command)?);
        }
        Ok(round)
    }

    fn measure(run: &Run<'_>, processes: u32, rest: Duration) -> Result<Found, StudyError> {
        let start = clock::now();
        let mut round = Self::start(run, processes)?;
        let tally = Tally::of(round.scratch.pod());
        let all = u64::from(processes);
        tally.await_all("all processes joined", tally.joined, all, &mut round)?;
        let joined = clock::micros(start, clock::now()) / 1e6;
        // Waits until the work that follows the joins is over.
        std::thread::sleep(rest / 4);
        let descriptors = round.members.iter().map(descriptors).max().unwrap_or(0);
        let (before, began) = (round.processor_time(), Instant::now());
        std::thread::sleep(rest);
        let spent = round.processor_time() - before;
        let idle = 100.0 * spent / began.elapsed().as_secs_f64();
        let start = clock::now();
        for member in round.members.iter().step_by(2) {
            member.signal(Signal::KILL)?;
        }
        let survivors = all - all.div_ceil(2);
        tally.await_all(
            "all survivors were notified",
            tally.notified,
            survivors,
            &mut round,
        )?;
        let when = tally.memory.load::<u64>(tally.when, Ordering::Relaxed);
        Ok(Found {
            joined,
            idle,
            notified: clock::micros(start, when) / 1e6,
            descriptors: descriptors as f64,
        })
    }

    /// Returns the processor time of all members so far, in seconds.
    fn processor_time(&self) -> f64 {
        self.members.iter().map(processor_time).sum()
    }
}

fn descriptors(member: &Playing) -> usize {
    let path = format!("/proc/{}/fd", member.pid().as_raw_nonzero());
    fs::read_dir(path).map_or(0, Iterator::count)
}

/// Reads the scheduler's own count, which is in nanoseconds.
fn processor_time(member: &Playing) -> f64 {
    let tasks = format!("/proc/{}/task", member.pid().as_raw_nonzero());
    let tasks = fs::read_dir(tasks).into_iter().flatten().flatten();
    let times = tasks.filter_map(|task| {
        let stat = fs::read_to_string(task.path().join("schedstat")).ok()?;
        stat.split_whitespace().next()?.parse::<f64>().ok()
    });
    times.sum::<f64>() * 1e-9
}

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    let (processes, rounds, rest) = run.effort().of(
        (8, 2, Duration::from_millis(200)),
        (100, 3, Duration::from_secs(2)),
        (1000, 5, Duration::from_secs(10)),
    );
    let case = format!("{processes} processes on {HOSTS} hosts");
    run.begin(&case);
    let mut found = Vec::new();
    for _ in 0..rounds {
        run.go_on()?;
        found.push(Round::measure(run, processes, rest)?);
    }
    let row = |metric: &str, unit, of: fn(&Found) -> f64, limit: &str, goal| {
        let values: Vec<f64> = found.iter().map(of).collect();
        let row = Row::new(&case, metric, unit).ours_within(median_estimate(&values));
        row.peer(limit, goal).goal(Goal::ours_at_most(goal))
    };
    run.answer([
        row(
            "until all have joined",
            "s",
            |found| found.joined,
            "limit",
            30.0,
        ),
        row(
            "of a core while all are idle",
            "%",
            |found| found.idle,
            "limit",
            20.0,
        ),
        row(
            "until all survivors are notified of the deaths of half the processes",
            "s",
            |found| found.notified,
            "limit",
            2.0,
        ),
        row(
            "descriptors of one process",
            "count",
            |found| found.descriptors,
            "limit",
            16.0,
        ),
    ]);
    Ok(())
}
