//! One run of a fail-over: compute servers that execute transactions at a pace, the kill of a
//! server, and the times of its detection and recovery.
//!
//! The servers end at a time that is set before the kill. If the kill is late, because this process
//! waited for a processor, the rest of the run is too short for the windows in which it is
//! compared. Such a run does not count, and is repeated.

use super::Backend;
use super::board::{Board, Left};
use super::caps::Caps;
use super::scratch_store::{ScratchStore, Shape};
use super::server::{Compute, Memory};
use super::subject::Subject;
use crate::children::{Part, Playing};
use crate::scratch::ScratchPod;
use crate::{Run, StudyError, clock};
use outlive_store::protocol::Protocol;
use outlive_store::servers::Phase;
use outlive_store::verbs::ServerId;
use outlive_store::workloads::Books;
use rustix::process::Signal;
use std::time::Duration;

/// The number of compute servers, as in the thesis's experiments.
pub const SERVERS: u64 = 2;
/// The length of a bin, in nanoseconds.
pub const BIN: u64 = 5_000_000;
/// The longest delay of a kill with which a run counts, in nanoseconds.
const LATE: u64 = 2 * BIN;
/// The largest number of runs of a store that are repeated because the kill was late.
const SPARES: u16 = 5;
/// The longest time until a killed server is recovered.
const PATIENCE: Duration = Duration::from_secs(30);

/// The server that is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// None: for the capacity.
    None,
    /// One of the compute servers, which is not replaced.
    Compute,
    /// The same, and a standby takes its place.
    Replaced,
    /// One of the memory servers.
    Memory,
}

/// The parameters of runs.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub subject: Subject,
    pub protocol: Protocol,
    pub backend: Backend,
    pub coordinators: u16,
    pub stall: u32,
    /// The processors of the compute servers, if each is kept on its own.
    pub caps: Option<Caps>,
    /// Where the verbs of recoveries go.
    pub recovery: Backend,
    /// The time before the kill and after it, in nanoseconds.
    pub before: u64,
    pub after: u64,
}

/// The times of a run, on the monotonic clock in nanoseconds.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub start: u64,
    pub end: u64,
    pub killed: u64,
    pub detected: u64,
    pub recovered: u64,
    /// The contents of the servers' lanes: first those that are not killed.
    pub lanes: Vec<Left>,
}

/// A store and a board for runs.
pub struct Stage {
    setting: Setting,
    board: ScratchPod,
    // Dropped in this order: the store is destroyed after its last server is dead.
    memory: Option<Playing>,
    scratch: ScratchStore,
    seed: u64,
    /// The number of runs that may still be repeated.
    spares: u16,
}

impl Stage {
    /// Creates a store for `runs` runs, and fills the tables. If a `memory` server is killed, it is
    /// a process of its own, and there is one run.
    pub fn new(
        run: &Run<'_>,
        setting: Setting,
        (runs, kills_memory): (u16, bool),
    ) -> Result<Self, StudyError> {
        // The ledger has rows for two process ids of each log area. A run uses up to three.
        let shape = Shape {
            protocol: setting.protocol,
            compute_servers: (3 * (runs + SPARES) + 1).div_ceil(2),
            coordinators: setting.coordinators,
            books: Books::Ledger,
        };
        let mut memory = None;
        let scratch = match kills_memory {
            false => ScratchStore::new(setting.subject, shape)?,
            true => {
                let mut scratch = ScratchStore::without_memory(setting.subject, shape)?;
                let child = run.launcher().start(&Part::PandoraMemory(Memory {
                    store: scratch.path().into(),
                    bytes: scratch.bytes_per_server(),
                }))?;
                memory.insert(child).await_ready()?;
                scratch.serve_memory()?;
                scratch.fill(shape.books)?;
                scratch
            }
        };
        Ok(Self {
            setting,
            board: Board::create()?,
            memory,
            scratch,
            seed: 0,
            spares: SPARES,
        })
    }

    /// Executes a run, and repeats it if its kill is late. `rate` is that of each compute server.
    ///
    /// # Errors
    /// [`StudyError::Void`] if too many kills of this store were late, or a memory server was
    /// killed too late: the store has lost it, so the run cannot be repeated.
    pub fn run(
        &mut self,
        run: &Run<'_>,
        victim: Victim,
        rate: Option<f64>,
    ) -> Result<Outcome, StudyError> {
        loop {
            if let Some(outcome) = self.run_once(run, victim, rate)? {
                return Ok(outcome);
            }
            run.go_on()?;
            let spares = self.spares.checked_sub(1);
            self.spares = spares.ok_or_else(|| {
                StudyError::void(format!(
                    "{} kills of a store were late by more than {} ms; is the machine busy?",
                    SPARES + 1,
                    LATE / 1_000_000
                ))
            })?;
        }
    }

    /// Executes a run. Returns `None` if it is to be repeated, because its kill was late.
    fn run_once(
        &mut self,
        run: &Run<'_>,
        victim: Victim,
        rate: Option<f64>,
    ) -> Result<Option<Outcome>, StudyError> {
        let Setting { before, after, .. } = self.setting;
        let board = Board::of(self.board.pod());
        board.clear();
        // A latch that is stolen in this run was left by its victim.
        self.scratch.release_stray()?;
        self.seed += 1;
        self.scratch
            .store()
            .set_recovery_link(self.setting.recovery.to_link());
        let has_standby = victim == Victim::Replaced;
        let lanes = SERVERS + u64::from(has_standby);
        let mut servers = Vec::new();
        for lane in 0..lanes {
            let is_standby = lane == SERVERS;
            servers.push(self.start(run, (lane, is_standby), rate)?);
        }
        let mut processes = Vec::new();
        for server in &mut servers {
            processes.push(server.hear::<u16>()?);
        }
        // The last compute server that is not a standby.
        let last = SERVERS as usize - 1;
        let is_compute = matches!(victim, Victim::Compute | Victim::Replaced);
        let start = clock::now() + 10_000_000;
        // The kill is at any time of a bin.
        let kill_at = start + before + fastrand::Rng::with_seed(self.seed).u64(..BIN);
        let end = kill_at + after;
        let process = is_compute.then_some(processes[last]);
        board.start(start, end, process);
        let is_late = |time| time > kill_at + LATE;
        if victim != Victim::None {
            sleep_until(kill_at);
        }
        // A victim that has already ended could not be killed any more, so none is killed late.
        let times = match victim {
            Victim::None => Some((end, end, end)),
            _ if is_late(clock::now()) => None,
            Victim::Compute | Victim::Replaced => {
                Some(self.kill_compute(&servers[last], processes[last])?)
            }
            Victim::Memory => Some(self.kill_memory()?),
        };
        for (number, server) in servers.iter_mut().enumerate() {
            let status = server.wait()?;
            let is_victim = is_compute && number == last;
            if !status.success() && !is_victim {
                return Err(StudyError::Part {
                    what: format!("a compute server ended with {status}"),
                });
            }
        }
        let Some((killed, detected, recovered)) = times else {
            return Ok(None);
        };
        if victim != Victim::None && is_late(killed) {
            return match victim {
                Victim::Memory => Err(StudyError::void(
                    "a memory server was killed too late; is the machine busy?",
                )),
                _ => Ok(None),
            };
        }
        let left = (0..lanes).map(|lane| board.lane(lane).left());
        let outcome = Outcome {
            start,
            end,
            killed,
            detected,
            recovered,
            lanes: left.collect::<Result<_, _>>()?,
        };
        match outcome.commits(outcome.warm(), killed) {
            0 => Err(StudyError::void(
                "the servers committed no transaction before the kill; is the machine busy?",
            )),
            _ => Ok(Some(outcome)),
        }
    }

    /// Sets where the verbs of recoveries go from now on.
    pub fn set_recovery(&mut self, recovery: Backend) {
        self.setting.recovery = recovery;
    }

    /// Checks the store after all runs.
    pub fn check(&self) -> Result<(), StudyError> {
        self.scratch.check(0)
    }

    fn start(
        &self,
        run: &Run<'_>,
        (lane, is_standby): (u64, bool),
        rate: Option<f64>,
    ) -> Result<Playing, StudyError> {
        let setting = self.setting;
        run.launcher().start(&Part::StoreCompute(Compute {
            store: self.scratch.path().into(),
            board: self.board.path().into(),
            lane,
            subject: setting.subject,
            coordinators: setting.coordinators,
            round_trip: setting.backend.to_link().map(|link| link.round_trip),
            recovery_round_trip: setting.recovery.to_link().map(|link| link.round_trip),
            rate,
            processor: setting.caps.map(|caps| caps.of(lane)),
            is_standby,
            stall: setting.stall,
            seed: self.seed << 2 | lane,
        }))
    }

    /// Kills a compute server. Returns the times of the kill, the detection and the recovery.
    fn kill_compute(&self, server: &Playing, process: u16) -> Result<(u64, u64, u64), StudyError> {
        let compute = self.scratch.compute();
        let configuration = compute.store().configuration();
        let mut entries = configuration.compute_servers();
        let entry = entries.find(|it| it.id == process && !it.has_failed);
        let entry = entry.ok_or_else(|| StudyError::void("the victim is no compute server"))?;
        kill(
            server,
            || compute.is_gone(entry.owner),
            || configuration.has_failed(process),
        )
    }

    fn kill_memory(&self) -> Result<(u64, u64, u64), StudyError> {
        let server = self.memory.as_ref().expect("a memory server to be killed");
        let configuration = self.scratch.store().configuration();
        // The one that has joined first.
        let id = ServerId(0);
        let is_live = || {
            let entry = configuration.memory_server(id);
            entry.is_some_and(|it| it.phase == Phase::Live)
        };
        kill(
            server,
            || !is_live(),
            || {
                let epoch = configuration.epoch();
                epoch > 0 && configuration.is_settled(epoch)
            },
        )
    }
}

/// Kills a server. Returns the times of the kill, the detection and the recovery.
fn kill(
    server: &Playing,
    is_detected: impl Fn() -> bool,
    is_recovered: impl Fn() -> bool,
) -> Result<(u64, u64, u64), StudyError> {
    let killed = clock::now();
    server.signal(Signal::KILL)?;
    let mut detected = None;
    loop {
        let is_recovered = is_recovered();
        let now = clock::now();
        if detected.is_none() && (is_recovered || is_detected()) {
            detected = Some(now);
        }
        if let (true, Some(detected)) = (is_recovered, detected) {
            return Ok((killed, detected, now));
        }
        if now > killed + PATIENCE.as_nanos() as u64 {
            return Err(StudyError::void("a server was killed and not recovered"));
        }
        std::thread::sleep(Duration::from_micros(20));
    }
}

fn sleep_until(time: u64) {
    let now = clock::now();
    std::thread::sleep(Duration::from_nanos(time.saturating_sub(now)));
}

impl Outcome {
    /// The time from which on the servers are taken to be warm.
    pub fn warm(&self) -> u64 {
        self.start + 4 * BIN
    }

    /// The number of commits of all servers from `from` until `to`.
    pub fn commits(&self, from: u64, to: u64) -> u64 {
        let in_lane = |lane: &Left| {
            let before = |time| lane.times.partition_point(|it| *it < time) as u64;
            before(to).saturating_sub(before(from))
        };
        self.lanes.iter().map(in_lane).sum()
    }

    /// The longest time from `from` until `to` in which the servers with numbers below `servers`
    /// committed nothing, in nanoseconds.
    pub fn longest_gap(&self, servers: usize, from: u64, to: u64) -> u64 {
        let mut times: Vec<u64> = self.lanes[..servers]
            .iter()
            .flat_map(|lane| lane.times.iter().copied())
            .filter(|time| (from..to).contains(time))
            .collect();
        times.extend([from, to]);
        times.sort_unstable();
        times
            .windows(2)
            .map(|pair| pair[1] - pair[0])
            .max()
            .unwrap_or(0)
    }

    /// The time of the first latch that was stolen.
    pub fn first_stolen(&self) -> Option<u64> {
        self.lanes.iter().filter_map(|lane| lane.first_stolen).min()
    }

    /// The numbers of commits in the bins before the kill, without the first ones after the start.
    pub fn clean_bins(&self) -> Vec<u64> {
        let count = self.killed.saturating_sub(self.warm()) / BIN;
        let bin = |number| {
            let end = self.killed - number * BIN;
            self.commits(end - BIN, end)
        };
        (0..count).map(bin).collect()
    }

    /// The time from the recovery until the servers commit as much in 5 ms as in the 5th percentile
    /// of the clean bins, in nanoseconds; `None` if the run ends before.
    pub fn return_of_throughput(&self) -> Option<u64> {
        let mut clean = self.clean_bins();
        clean.sort_unstable();
        let usual = *clean.get(clean.len() / 20)?;
        let step = BIN / 10;
        let mut starts = (self.recovered..self.end.saturating_sub(BIN)).step_by(step as usize);
        let first = starts.find(|from| self.commits(*from, from + BIN) >= usual)?;
        Some(first - self.recovered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(lanes: Vec<Vec<u64>>) -> Outcome {
        let lane = |times| Left {
            times,
            first_stolen: None,
            stolen: 0,
            aborted: 0,
            stalled: 0,
        };
        Outcome {
            start: 0,
            end: 200_000_000,
            killed: 100_000_000,
            detected: 100_100_000,
            recovered: 100_200_000,
            lanes: lanes.into_iter().map(lane).collect(),
        }
    }

    /// One commit each 0.1 ms, also after the kill, and another server's until it is killed and
    /// from 12 ms after the recovery on.
    fn replaced() -> Outcome {
        let steady = (0..2000).map(|it| it * 100_000).collect();
        let victim = (0..1000).map(|it| it * 100_000).collect();
        let standby = (1122..2000).map(|it| it * 100_000).collect();
        outcome(vec![steady, victim, standby])
    }

    #[test]
    fn bins_and_gaps_are_those_of_the_commits() {
        let outcome = replaced();
        assert_eq!(outcome.clean_bins(), [100; 16]);
        assert_eq!(outcome.commits(100_000_000, 105_000_000), 50);
        assert_eq!(outcome.longest_gap(1, 100_000_000, 150_000_000), 100_000);
        let mut outcome = outcome;
        outcome.lanes[0]
            .times
            .retain(|it| !(110_000_000..113_000_000).contains(it));
        assert_eq!(outcome.longest_gap(1, 100_000_000, 111_000_000), 1_100_000);
        assert_eq!(outcome.longest_gap(1, 100_000_000, 150_000_000), 3_100_000);
    }

    #[test]
    fn throughput_returns_with_the_standby() {
        let returned = replaced().return_of_throughput().unwrap();
        assert!((11_500_000..=12_500_000).contains(&returned), "{returned}");
        let mut outcome = replaced();
        outcome.lanes.pop();
        assert_eq!(outcome.return_of_throughput(), None);
    }
}
