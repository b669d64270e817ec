//! Random kills: servers are killed at random times, and new ones take their places.
//!
//! The kind, the victim and the time of each kill are random. A quarter of the kills follow the one
//! before within milliseconds, so that they meet its recovery. No more memory servers are lost at a
//! time than the replicas tolerate: one counts as lost until its replicas are restored.

use super::super::compute::monotonic;
use super::kills::{Killed, Kind, Times};
use super::report::Report;
use super::servers::Server;
use super::tally::Tally;
use super::{PATIENCE, stopped};
use crate::failure::Failure;
use fastrand::Rng;
use indicatif::{ProgressBar, ProgressStyle};
use outlive_store::servers::{ComputeServer, Missing};
use outlive_store::verbs::ServerId;
use serde::Deserialize;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The parameters of random kills.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// The path of the store.
    pub path: &'a Path,
    /// The mean time between two kills.
    pub every: Duration,
    pub seed: u64,
    /// The number of memory servers that may be lost at a time.
    pub tolerated: usize,
    /// The arguments of new compute servers.
    pub arguments: &'a [String],
    /// The size of new memory servers.
    pub bytes: u64,
    pub times: Times,
}

/// The servers of a run with random kills.
pub struct Attrition<'a> {
    plan: Plan<'a>,
    /// The command's own compute server, which executes no transactions during the run.
    compute: &'a ComputeServer,
    stop: &'a AtomicBool,
    clients: Vec<Server>,
    memory: Vec<Server>,
    restorer: Option<Server>,
    /// Killed servers whose output has not ended.
    dead: Vec<Server>,
    /// Killed servers that are not recovered.
    watched: Vec<Killed>,
    recovered: Vec<Killed>,
    /// The number of memory servers that were killed and whose replicas are not restored.
    losses: usize,
    /// Whether a restorer of the current losses was killed.
    has_killed_restorer: bool,
    /// The numbers of transactions that recoveries had rolled forward and back at the last poll.
    rolled: (u64, u64),
    next: u64,
    random: Rng,
    tally: Tally,
    bar: ProgressBar,
}

/// The largest number of servers that may end without being killed before the run is given up.
const MAX_ENDED: u64 = 16;

/// The maximum time between a kill and one that is to meet its recovery.
const MAX_OVERLAP_DELAY: Duration = Duration::from_millis(20);

/// The part of the answer of a restorer that is counted.
#[derive(Deserialize)]
struct Restored {
    replicas: u64,
}

impl<'a> Attrition<'a> {
    /// Takes over the servers of a run that has begun.
    pub fn new(
        plan: Plan<'a>,
        compute: &'a ComputeServer,
        stop: &'a AtomicBool,
        clients: Vec<Server>,
        memory: Vec<Server>,
    ) -> Self {
        let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} s {msg}");
        let bar = ProgressBar::new(plan.times.duration.as_secs());
        let mut all = Self {
            plan,
            compute,
            stop,
            clients,
            memory,
            restorer: None,
            dead: Vec::new(),
            watched: Vec::new(),
            recovered: Vec::new(),
            losses: 0,
            has_killed_restorer: false,
            rolled: (0, 0),
            next: 0,
            random: Rng::with_seed(plan.seed),
            tally: Tally::new(plan.every),
            bar: match style {
                Ok(style) => bar.with_style(style),
                Err(_) => bar,
            },
        };
        all.next = plan.times.start + all.pause();
        all
    }

    /// Kills and replaces servers until the end of the run, and then waits until all that were
    /// killed are recovered, all replicas are restored and the clients have ended. Adds their
    /// messages to `report`. Returns the live memory servers too.
    pub fn execute(
        mut self,
        report: &mut Report,
    ) -> Result<(Tally, Vec<Killed>, Vec<Server>), Failure> {
        let Times { start, duration } = self.plan.times;
        let end = start + duration.as_nanos() as u64;
        let limit = end + PATIENCE.as_nanos() as u64;
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(stopped());
            }
            self.attend(report)?;
            let now = monotonic();
            if now >= self.next && now < end {
                self.kill(now)?;
            }
            let is_quiet = self.dead.is_empty() && self.watched.is_empty() && self.losses == 0;
            if now >= end && is_quiet && self.clients.is_empty() {
                break;
            }
            if now >= limit {
                return Err(self.late());
            }
            let pause = match self.watched.is_empty() {
                true => Duration::from_millis(5),
                false => Duration::from_micros(500),
            };
            let until_next = match self.next.saturating_sub(now) {
                0 => pause,
                nanos => Duration::from_nanos(nanos),
            };
            std::thread::sleep(pause.min(until_next));
        }
        self.bar.finish_and_clear();
        self.recovered.sort_unstable_by_key(|it| it.at);
        Ok((self.tally, self.recovered, self.memory))
    }

    /// Returns the failure of a run that does not end.
    fn late(&self) -> Failure {
        let kinds: Vec<_> = { self.watched.iter() }
            .map(|it| format!("{:?} server {}", it.kind, it.server))
            .collect();
        let missing = { self.compute.store().configuration() }.missing();
        Failure::new(format_args!(
            "the run has not ended {} s after its planned end: {} compute servers still execute \
             transactions, {kinds:?} are not recovered, {} lost memory servers are not restored, \
             {} replicas are missing",
            PATIENCE.as_secs(),
            self.clients.len(),
            self.losses,
            missing.replicas
        ))
    }

    /// Returns the random time until the next kill, in nanoseconds.
    fn pause(&mut self) -> u64 {
        let delay = MAX_OVERLAP_DELAY.min(self.plan.every);
        if self.random.u8(..4) == 0 {
            return self.random.u64(..delay.as_nanos() as u64);
        }
        // With this mean, that of all kills is the requested one.
        let mean = (self.plan.every.as_secs_f64() - delay.as_secs_f64() / 8.0) / 0.75;
        (-(1.0 - self.random.f64()).ln() * mean * 1e9) as u64
    }

    /// Returns the seconds since the start.
    fn seconds(&self) -> f64 {
        monotonic().saturating_sub(self.plan.times.start) as f64 / 1e9
    }

    /// Polls all servers: reads their output, starts new ones and restorers, and records
    /// recoveries.
    fn attend(&mut self, report: &mut Report) -> Result<(), Failure> {
        self.attend_clients(report)?;
        let seconds = self.seconds();
        for server in &mut self.memory {
            if server.poll() {
                let id = server.id;
                return Err(Failure::new(format_args!(
                    "memory server {id} has ended without being killed, {seconds:.1} s after the \
                     start; its message is above"
                )));
            }
            server.text.clear();
        }
        let mut ended = Vec::new();
        for mut server in core::mem::take(&mut self.dead) {
            match server.poll() {
                true => ended.push(server),
                false => self.dead.push(server),
            }
        }
        ended.iter().for_each(|server| report.add(&server.messages));
        self.note_recoveries();
        self.restore(report)?;
        if !self.bar.is_hidden() {
            let Tally {
                compute_killed,
                memory_killed,
                restorers_killed,
                restorations,
                ..
            } = self.tally;
            self.bar.set_position(seconds as u64);
            self.bar.set_message(format!(
                "killed: {compute_killed} compute servers, {memory_killed} memory servers, \
                 {restorers_killed} restorers; {restorations} restorations"
            ));
        }
        Ok(())
    }

    fn attend_clients(&mut self, report: &mut Report) -> Result<(), Failure> {
        let Times { start, duration } = self.plan.times;
        let since = Duration::from_nanos(monotonic().saturating_sub(start));
        let left = duration.saturating_sub(since);
        for mut server in core::mem::take(&mut self.clients) {
            let was_ready = server.is_ready;
            let has_ended = server.poll();
            if server.is_ready && !was_ready {
                // If it has ended in between, so has its output.
                let _ = server.begin(left);
            }
            if !has_ended {
                self.clients.push(server);
                continue;
            }
            report.add(&server.messages);
            let is_early = left > Duration::from_secs(1);
            if server.is_complete() && !is_early {
                continue;
            }
            // An error that ended a client is in its last message.
            if !server.is_complete() {
                report.problem(format!(
                    "compute server {} has ended without being killed, {:.1} s after the start",
                    server.id,
                    since.as_secs_f64()
                ));
            }
            self.tally.ended += 1;
            self.tally.ended_clients.push(server.id);
            if self.tally.ended > MAX_ENDED {
                return Err(server.ended());
            }
            if is_early {
                self.start_client()?;
            }
        }
        Ok(())
    }

    fn start_client(&mut self) -> Result<(), Failure> {
        let server = Server::compute(self.plan.path, self.plan.arguments)?;
        self.clients.push(server);
        self.tally.compute_started += 1;
        Ok(())
    }

    fn note_recoveries(&mut self) {
        let configuration = self.compute.store().configuration();
        for mut killed in core::mem::take(&mut self.watched) {
            if !killed.watch(self.compute) {
                self.watched.push(killed);
                continue;
            }
            if killed.kind == Kind::Compute {
                let now = configuration.recovered();
                killed.forward = now.forward - self.rolled.0;
                killed.back = now.back - self.rolled.1;
                self.rolled = (now.forward, now.back);
            }
            self.recovered.push(killed);
        }
    }

    /// Restores lost replicas when all memory servers have joined.
    fn restore(&mut self, report: &mut Report) -> Result<(), Failure> {
        if let Some(restorer) = &mut self.restorer
            && restorer.poll()
        {
            match restorer.has_succeeded() {
                true => {
                    let text = restorer.text.concat();
                    let restored: Restored = serde_json::from_str(&text).map_err(Failure::new)?;
                    self.tally.restorations += 1;
                    self.tally.restored_replicas += restored.replicas;
                }
                false if self.losses > 1 => {}
                false => {
                    let seconds = self.seconds();
                    report.problem(format!(
                        "a restoration failed {seconds:.1} s after the start"
                    ));
                    self.tally.ended += 1;
                }
            }
            self.restorer = None;
        }
        if self.losses == 0 || self.restorer.is_some() || self.tally.ended > MAX_ENDED {
            return Ok(());
        }
        let configuration = self.compute.store().configuration();
        let lost: Vec<ServerId> = configuration.lost(configuration.epoch()).collect();
        let is_known = |it: &Killed| match it.kind {
            Kind::Compute => true,
            Kind::Memory => lost.contains(&ServerId(it.server)),
            // Until then, it has the claim of the restoration.
            Kind::Restorer => false,
        };
        if !self.watched.iter().all(is_known) || !self.memory.iter().all(|it| it.is_ready) {
            return Ok(());
        }
        match configuration.missing() {
            Missing { lost, .. } if lost > 0 => {
                return Err(Failure::new(format_args!(
                    "all replicas of {lost} partitions are lost, {:.1} s after the start",
                    self.seconds()
                )));
            }
            Missing { replicas: 0, .. } => {
                self.losses = 0;
                self.has_killed_restorer = false;
            }
            _ => self.restorer = Some(Server::restorer(self.plan.path)?),
        }
        Ok(())
    }

    /// Kills a server of a kind of which one may be lost now, and starts a new one.
    fn kill(&mut self, now: u64) -> Result<(), Failure> {
        let configuration = self.compute.store().configuration();
        let can_replace = configuration.can_replace_memory();
        if !can_replace && self.tally.memory_kills_until.is_none() {
            self.tally.memory_kills_until = Some(self.seconds());
        }
        let can_lose = self.losses < self.plan.tolerated && can_replace;
        let running: Vec<_> = (0..self.clients.len())
            .filter(|index| self.clients[*index].is_ready)
            .collect();
        let is_restoring = configuration.restorer().is_some() && self.restorer.is_some();
        let mut kinds = Vec::new();
        if running.len() > 1 {
            kinds.push(Kind::Compute);
        }
        if is_restoring && !self.has_killed_restorer {
            kinds.push(Kind::Restorer);
        }
        if can_lose {
            // As probable as that of all others.
            kinds.resize(2 * kinds.len().max(1), Kind::Memory);
        }
        let Some(kind) = self.random.choice(kinds) else {
            self.next = now + self.random.u64(..50_000_000);
            return Ok(());
        };
        self.tally.overlapping += u64::from(!self.watched.is_empty() || self.losses > 0);
        let mut victim = match kind {
            Kind::Compute => {
                let victim = self
                    .random
                    .choice(running)
                    .expect("two clients are running");
                self.tally.compute_killed += 1;
                self.clients.swap_remove(victim)
            }
            Kind::Memory => {
                let ready: Vec<_> = (0..self.memory.len())
                    .filter(|index| self.memory[*index].is_ready)
                    .collect();
                let victim = self
                    .random
                    .choice(ready)
                    .expect("the store has live replicas");
                self.tally.memory_killed += 1;
                self.losses += 1;
                self.memory.swap_remove(victim)
            }
            Kind::Restorer => {
                self.tally.restorers_killed += 1;
                self.has_killed_restorer = true;
                self.restorer.take().expect("a restorer is running")
            }
        };
        self.watched
            .push(Killed::kill(kind, &mut victim, self.compute)?);
        self.dead.push(victim);
        match kind {
            Kind::Compute => self.start_client()?,
            Kind::Memory => {
                let server = Server::memory(self.plan.path, self.plan.bytes)?;
                self.memory.push(server);
                self.tally.memory_started += 1;
            }
            // The next one is started when the losses are polled next.
            Kind::Restorer => {}
        }
        self.next = monotonic() + self.pause();
        Ok(())
    }
}
