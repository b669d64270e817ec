//! The director: watches a run, kills hosts, and follows each failure until it is over.

use super::launch::{Running, lock};
use super::standby::Standby;
use super::{Failure, KillAt, Options, Running as Program, Supervise};
use crate::crew::Crew;
use crate::header::Header;
use crate::random::Random;
use outlive::host::Os;
use outlive::membership::{EventKind, Instance, Level, News, Status, Tables};
use outlive::recovery::Logs;
use std::time::Instant;

/// Numbers of units for the kills, at even distances.
fn evenly(units: u64, kills: u32) -> Vec<u64> {
    let kills = u64::from(kills);
    (1..=kills).map(|kill| kill * units / (kills + 1)).collect()
}

/// Random numbers of units for the kills, in order.
fn at_random(units: u64, options: &Options) -> Vec<u64> {
    let mut random = Random::new(options.seed | 1);
    let mut all: Vec<u64> = (0..options.kills)
        .map(|_| random.word() % units.max(1))
        .collect();
    all.sort_unstable();
    all
}

/// Watches a run, and kills hosts.
pub(super) struct Director<'o, R> {
    run: R,
    header: Header,
    crew: Crew,
    tables: Tables,
    logs: Logs,
    os: &'static dyn Os,
    options: &'o Options,
    running: Running,
    began: Instant,
    failures: Vec<Failure>,
    /// The failures that are not over.
    open: Vec<usize>,
    /// Who stands by.
    standby: Standby,
    killed: u32,
    /// At which units hosts are still to be killed at random.
    thresholds: Vec<u64>,
    random: Random,
}

impl<'o, R: Program> Director<'o, R> {
    /// A director of `run`, whose hosts are started now and found in `running`. Arms the halts.
    pub fn new(
        run: R,
        (tables, logs, os): (Tables, Logs, &'static dyn Os),
        options: &'o Options,
        running: Running,
    ) -> Self {
        let header = run.header();
        let units = header.units();
        let at = match (&options.kill_units[..], options.kill_at) {
            ([], KillAt::Commit) => evenly(units, options.kills),
            ([], KillAt::Random) => at_random(units, options),
            (asked, _) => asked.to_vec(),
        };
        let thresholds = match options.kill_at {
            KillAt::Commit => {
                header.arm(&at);
                Vec::new()
            }
            KillAt::Random => at,
        };
        Self {
            run,
            header,
            standby: Standby::new(header.crew()),
            crew: header.crew(),
            tables,
            logs,
            os,
            options,
            running,
            began: Instant::now(),
            failures: Vec::new(),
            open: Vec::new(),
            killed: 0,
            thresholds,
            random: Random::new(options.seed | 1),
        }
    }

    /// What it has seen, and how many hosts it has killed.
    pub fn report(self) -> (Vec<Failure>, u32) {
        (self.failures, self.killed)
    }

    /// How many hosts have failed.
    pub fn failed(&self) -> usize {
        self.failures.len()
    }

    fn now(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Whether a failure has not been seen through.
    pub fn is_waiting(&self) -> bool {
        !self.open.is_empty()
    }

    /// Whether a host has halted that is to be killed.
    pub fn is_wanted(&self) -> bool {
        self.header.halted().nth(self.killed as usize).is_some()
    }

    /// Whether something is going on, or to be done, that nobody tells of.
    pub fn is_busy(&self) -> bool {
        self.is_waiting() || !self.thresholds.is_empty()
    }

    /// Kills whoever is to be killed now, and looks how far the failures are.
    pub fn look(&mut self) {
        match self.options.kill_at {
            KillAt::Commit => {
                let halted: Vec<u32> = self.header.halted().skip(self.killed as usize).collect();
                for host in halted {
                    self.kill(host);
                }
            }
            KillAt::Random => {
                let drawn = self.run.drawn();
                while self.thresholds.first().is_some_and(|unit| drawn > *unit) {
                    let Some(host) = self.any_host() else { break };
                    self.thresholds.remove(0);
                    self.kill(host);
                }
            }
        }
        self.follow();
    }

    /// A host that lives and has been killed no more often than others.
    fn any_host(&mut self) -> Option<u32> {
        if self.run.is_done() {
            return None;
        }
        let times = |host: u32| self.failures.iter().filter(|f| f.host == host).count();
        // A host that was killed has members for a moment: nobody has seen it dead.
        let dying = |host: u32| {
            let mut failures = self.failures.iter();
            failures.any(|failure| failure.host == host && !failure.is_read)
        };
        let alive: Vec<u32> = (0..self.crew.hosts)
            .filter(|host| self.standby.works(*host))
            .filter(|host| !dying(*host) && !self.members_of(*host).is_empty())
            .collect();
        let least = alive.iter().map(|host| times(*host)).min()?;
        let fresh: Vec<u32> = alive
            .into_iter()
            .filter(|host| times(*host) == least)
            .collect();
        let at = self.random.word() % fresh.len() as u64;
        Some(fresh[at as usize])
    }

    /// The instances of `host` that live: its processes and threads.
    fn members_of(&self, host: u32) -> Vec<Instance> {
        self.tables
            .writers()
            .filter(|(_, state)| u32::from(state.host) == host && state.level != Some(Level::Host))
            .map(|(id, state)| Instance::new(id, state.generation))
            .collect()
    }

    fn kill(&mut self, host: u32) {
        self.killed += 1;
        self.header.hit(host);
        let lost = self.members_of(host);
        let is_thread = |it: &&Instance| self.crew.worker_of(it.id).is_some();
        let threads_lost = lost.iter().filter(is_thread).count();
        let child = lock(&self.running).get(&self.crew.first_of(host)).cloned();
        let generations = self.tables.generations();
        let instance = generations.state(host).ok();
        let instance = instance
            .filter(|state| state.status.may_write())
            .map(|state| Instance::new(host, state.generation));
        let killed_at = self.now();
        if let Some(child) = child {
            lock(&child).kill();
        }
        self.kill_members(&lost);
        self.open.push(self.failures.len());
        self.failures.push(Failure {
            killed_at: Some(killed_at),
            instance,
            threads_lost,
            lost,
            ..Failure::of(host)
        });
    }

    /// Kills the processes among `lost` by handles that cannot come to mean others: who was in the host's group is dead
    /// by now, and who had left it dies as well.
    fn kill_members(&self, lost: &[Instance]) {
        for record in lost.iter().filter_map(|it| self.tables.records().read(*it)) {
            if let Ok(Some(handle)) = self.os.open_process(record.thread.process) {
                handle.send_kill();
            }
        }
    }

    /// Takes in what was told.
    pub fn hear(&mut self, news: &News) {
        let News::Event(event) = news else {
            return;
        };
        if event.kind != EventKind::HostDied || event.instance.id >= self.crew.hosts {
            return;
        }
        let (host, now) = (event.instance.id, self.now());
        let untold = |failure: &&mut Failure| failure.host == host && !failure.is_told;
        match self.failures.iter_mut().find(untold) {
            Some(failure) => {
                failure.is_told = true;
                failure.instance = Some(event.instance);
                // Seen in the tables before it was told, perhaps.
                failure.detected_at = failure.detected_at.or(Some(now));
            }
            // Nobody killed it.
            None => {
                self.open.push(self.failures.len());
                self.failures.push(Failure {
                    instance: Some(event.instance),
                    detected_at: Some(now),
                    is_told: true,
                    ..Failure::of(host)
                });
            }
        }
    }

    /// Looks how far the failures are that are not over.
    fn follow(&mut self) {
        let (now, generations) = (self.now(), self.tables.generations());
        // Before, so that it is known who worked of those who died; after, so that it is known whose places are free.
        self.standby.note(&self.run, &mut self.failures, now);
        for index in std::mem::take(&mut self.open) {
            let failure = &mut self.failures[index];
            let lives = |instance: &Instance| !generations.is_gone(*instance);
            let all_gone = !failure.lost.iter().any(lives);
            if all_gone && !failure.is_read {
                failure.is_read = true;
                self.header.spare(failure.host);
                failure.vacant = self.standby.lose(failure.host, &self.run);
                // What they had begun stands still until they are started again.
                failure.units_redone = failure
                    .lost
                    .iter()
                    .filter_map(|instance| self.crew.worker_of(instance.id))
                    .filter_map(|worker| self.run.attempting(worker))
                    .collect();
                // A host that dies while it joins is told of by nobody: it never was a member.
                failure.detected_at = failure.detected_at.or(Some(now));
            }
            if all_gone && failure.recovered_at.is_none() {
                // A next incarnation lives before it has recovered this one: the log says it.
                let unsettled = |instance: &Instance| {
                    let log = self.logs.of(instance.id);
                    let dead = generations
                        .state(instance.id)
                        .is_ok_and(|state| state.status == Status::Dead);
                    dead || log.claimant().is_some() && log.owner() == Some(*instance)
                };
                if !failure.lost.iter().any(unsettled) {
                    failure.recovered_at = Some(now);
                }
            }
            // Who proved the host dead; until that is known, or if it is not, who did its first member.
            let proven = |dead: &Instance| self.tables.records().proven_by(*dead);
            let first = || failure.lost.iter().find_map(proven);
            let by = failure.instance.as_ref().and_then(proven);
            failure.detected_by = by.or(failure.detected_by).or_else(first);
            failure.detected_by_host = failure.detected_by.and_then(|by| self.crew.host_of(by.id));
            let first = self.crew.first_of(failure.host);
            let live = |id| {
                generations
                    .state(id)
                    .is_ok_and(|state| state.status == Status::Live)
            };
            let mut tree = first..first + self.options.processes;
            if failure.recovered_at.is_some() && failure.rejoined_at.is_none() && tree.all(live) {
                failure.rejoined_at = Some(now);
            }
            let wants_to_rejoin =
                self.options.supervise == Supervise::Restart && !self.run.is_done();
            // (A pool that resizes itself may do without; who comes is noted nevertheless.)
            let waits_for_a_spare = failure.taken < failure.vacant
                && self.options.elastic.is_none()
                && !self.run.is_done()
                && self
                    .standby
                    .has_somebody(|worker| live(self.crew.id_of(worker)));
            if failure.recovered_at.is_none()
                || (wants_to_rejoin && failure.rejoined_at.is_none())
                || waits_for_a_spare
            {
                self.open.push(index);
            }
        }
        self.standby.note(&self.run, &mut self.failures, now);
    }
}
