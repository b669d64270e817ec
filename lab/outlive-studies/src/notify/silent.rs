//! A silent host, with heartbeats every 8 ms and a manager that polls every 16 ms, as in LUPIN
//! §3.3.
//!
//! The host is a process that is stopped, so that only its silence shows its failure. The host and
//! the watcher, whose process is the fabric manager, are both child processes: with these settings
//! a machine that is busy elsewhere can cause a fence of any process, which must not be the
//! study's. Rounds in which a host was fenced that had not been stopped do not count; a row has
//! their number.
//!
//! The bound is two polls and the fence. The minimum time of a fence is measured in the same
//! rounds: a stopped process is killed, and its end observed.

use super::victim::{Role, Scene};
use crate::children::{Launcher, Part, Playing, ready};
use crate::row::{Goal, How, Row};
use crate::scratch::{ScratchPod, payload};
use crate::statistics::{longest, median, median_estimate};
use crate::{Run, StudyError, clock};
use outlive::membership::{EventKind, News, ProcessOptions, Settings};
use outlive::memory::{Memory, Ordering};
use outlive::pod::Pod;
use outlive_run::random::Random;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The offsets in the payload at which the watcher writes the number of reported deaths of hosts,
/// and the time of the last report.
const HOW_MANY: u64 = 0;
const WHEN: u64 = 8;
const PATIENCE: Duration = Duration::from_secs(10);

/// A process that is notified of deaths.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Watcher {
    pod: PathBuf,
}

impl Watcher {
    pub fn play(self) -> Result<(), StudyError> {
        let pod = Pod::open(&self.pod)?;
        let process = pod.join(ProcessOptions::on_host(0).name("watcher"))?;
        let mut events = process.events();
        let (memory, base) = (pod.segment().memory(), payload(&pod));
        ready();
        loop {
            if let Some(News::Event(event)) = events.wait_for(Duration::from_secs(60))
                && event.kind == EventKind::HostDied
            {
                memory.store(base + WHEN, clock::now(), Ordering::Relaxed);
                // Release: publishes the time.
                memory.fetch_add(base + HOW_MANY, 1u64, Ordering::Release);
            }
        }
    }
}

struct Watch<'a> {
    launcher: &'a Launcher,
    // Dropped in this order: the pod is destroyed when no process has it open any more.
    watcher: Playing,
    scratch: ScratchPod,
}

impl<'a> Watch<'a> {
    fn new(launcher: &'a Launcher, settings: Settings) -> Result<Self, StudyError> {
        let scratch = ScratchPod::new(8 << 20, settings)?;
        let watcher = start_watcher(launcher, &scratch)?;
        Ok(Self {
            launcher,
            scratch,
            watcher,
        })
    }

    fn told(&self) -> (u64, u64) {
        let (memory, base) = (
            self.scratch.pod().segment().memory(),
            self.scratch.payload(),
        );
        let how_many = memory.load(base + HOW_MANY, Ordering::Acquire);
        (how_many, memory.load(base + WHEN, Ordering::Relaxed))
    }

    /// Returns the milliseconds from a host's last instruction until its death was reported; `None`
    /// if a process was fenced that had not been stopped.
    fn round(&mut self, phase: Duration) -> Result<Option<f64>, StudyError> {
        if self.watcher.ended().is_some() {
            self.watcher = start_watcher(self.launcher, &self.scratch)?;
        }
        let scene = Scene {
            pod: self.scratch.path(),
            mutex: self.scratch.path(),
            launcher: self.launcher,
        };
        let mut victim = match scene.ready(Role::Member, 0) {
            Ok(victim) => victim,
            // Fenced while it joined.
            Err(StudyError::Part { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        std::thread::sleep(Duration::from_millis(40) + phase);
        let (before, _) = self.told();
        if victim.ended().is_some() {
            return Ok(None);
        }
        let stopped = clock::now();
        victim.signal(Signal::STOP)?;
        let until = Instant::now() + PATIENCE;
        while self.told().0 == before {
            if self.watcher.ended().is_some() {
                return Ok(None);
            }
            if Instant::now() > until {
                return Err(StudyError::void(format!(
                    "a silent host was not fenced within {PATIENCE:?}"
                )));
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        let (_, when) = self.told();
        if when <= stopped {
            return Ok(None);
        }
        victim.wait()?;
        Ok(Some(clock::micros(stopped, when) / 1000.0))
    }

    /// Returns the milliseconds from the kill of a stopped process until it is gone.
    fn fence(&self) -> Result<f64, StudyError> {
        let scene = Scene {
            pod: self.scratch.path(),
            mutex: self.scratch.path(),
            launcher: self.launcher,
        };
        scene.stopped_and_killed().map(|micros| micros / 1000.0)
    }
}

fn start_watcher(launcher: &Launcher, scratch: &ScratchPod) -> Result<Playing, StudyError> {
    let pod = scratch.path().to_owned();
    let mut watcher = launcher.start(&Part::Watcher(Watcher { pod }))?;
    watcher.await_ready()?;
    Ok(watcher)
}

pub fn study(run: &Run<'_>) -> Result<Vec<Row>, StudyError> {
    let settings = Settings::real_hosts();
    let case = "a silent host, heartbeats 8 ms, polls 16 ms";
    run.begin(case);
    let polls = 2.0 * settings.poll.as_secs_f64() * 1000.0;
    let mut watch = Watch::new(run.launcher(), settings)?;
    let rounds = run.effort().of(2, 40, 200);
    let mut random = Random::new(1);
    let (mut told, mut limits, mut void) = (Vec::new(), Vec::new(), 0u32);
    while told.len() < rounds {
        run.go_on()?;
        // The stop occurs at any time between two polls.
        let phase = Duration::from_micros(random.below(16_000));
        match watch.round(phase)? {
            Some(time) => {
                told.push(time);
                limits.push(polls + watch.fence()?);
            }
            None => void += 1,
        }
        if void as usize > 20 + 4 * rounds {
            return Err(StudyError::void(
                "this machine is too busy for heartbeats every 8 ms: hosts that had not been \
                 stopped were fenced repeatedly",
            ));
        }
    }
    let ratios: Vec<f64> = told
        .iter()
        .zip(&limits)
        .map(|(t, limit)| t / limit)
        .collect();
    let limit = "2 polls + killing a stopped process and detecting its end";
    let metric = "from its last instruction to the notification";
    // LUPIN §5: "at least 16ms to detect an OS failure due to its polling interval".
    let row = Row::new(case, metric, "ms")
        .ours(median(&told))
        .peer(limit, median(&limits))
        .ratio(median_estimate(&ratios))
        .paper(16.0)
        .goal(Goal::ratio_at_most(1.0));
    let worst = Row::new(case, "the longest of all rounds", "ms")
        .ours(longest(&told))
        .peer(limit, median(&limits));
    let fenced = Row::new(
        case,
        "void rounds, in which a host was fenced that had not been stopped",
        "rounds",
    )
    .ours(void.into());
    Ok([row, worst, fenced]
        .map(|row| row.how(How::Emulated))
        .into())
}
