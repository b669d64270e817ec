//! The director: watches a run, kills hosts, and follows each failure until it is over.

use super::kills::{Kills, Next};
use super::launch::{Group, Running, lock};
use super::members::Members;
use super::standby::Standby;
use super::{Failure, Options, RunError, Running as Program, Supervise};
use crate::crew::Crew;
use crate::header::Header;
use outlive::host::Os;
use outlive::membership::{EventKind, Instance, Level, News, Status, Tables, kill_process};
use outlive::recovery::Logs;
use std::os::unix::process::ExitStatusExt;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// The time in seconds that a host may take to die after it was sent SIGKILL.
const KILL_PATIENCE: u64 = 10;
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
    /// The process group of the host of each failure, if it is known.
    groups: Vec<Option<Arc<Mutex<Group>>>>,
    /// The failures that are not over.
    open: Vec<usize>,
    /// The workers that are on standby.
    standby: Standby,
    members: Members,
    kills: Kills,
    /// The host that did not die when it was killed.
    unkillable: Option<RunError>,
}

impl<'o, R: Program> Director<'o, R> {
    /// Returns a director of `run`. The hosts are being started, and `running` receives their
    /// process groups. Prepares the kills that `options` request: a halt or a gate in the run's
    /// header for each.
    pub fn new(
        run: R,
        (tables, logs, os): (Tables, Logs, &'static dyn Os),
        options: &'o Options,
        running: Running,
    ) -> Self {
        let header = run.header();
        let crew = header.crew();
        Self {
            run,
            header,
            standby: Standby::new(crew),
            crew,
            tables,
            logs,
            os,
            options,
            running,
            began: Instant::now(),
            failures: Vec::new(),
            groups: Vec::new(),
            open: Vec::new(),
            members: Members::default(),
            kills: Kills::new(options, header),
            unkillable: None,
        }
    }

    /// Returns the failures, in order.
    ///
    /// # Errors
    /// [`RunError::NotKilled`] if a host did not die when it was killed.
    pub fn report(mut self) -> Result<Vec<Failure>, RunError> {
        if let Some(error) = self.unkillable {
            return Err(error);
        }
        self.failures.retain(|failure| !failure.is_void);
        Ok(self.failures)
    }

    /// Returns whether the run has to end because a host did not die when it was killed.
    pub fn is_powerless(&self) -> bool {
        self.unkillable.is_some()
    }

    /// Returns the number of failures of hosts so far. A restarted host may fail again.
    pub fn failed(&self) -> usize {
        self.failures.len()
    }

    fn now(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Returns whether a failure is not over yet.
    pub fn is_waiting(&self) -> bool {
        !self.open.is_empty()
    }

    /// Returns whether a host must be killed now.
    pub fn is_wanted(&self) -> bool {
        self.kills.is_news(self.run.drawn())
    }

    /// Returns whether something is in progress or due for which no event arrives.
    pub fn is_busy(&self) -> bool {
        self.is_waiting() || self.kills.is_more()
    }

    /// Kills the hosts whose kills are due now, and checks the progress of the failures.
    pub fn look(&mut self) {
        self.members.note(self.tables, &self.crew);
        for host in self.kills.halted() {
            self.kill(host);
        }
        while self.kills.is_due(self.run.drawn()) && !self.run.is_done() {
            match self.next_kill() {
                Next::Wait => break,
                Next::Kill(host) => self.kill(host),
                Next::Miss => drop(self.kills.finish_next()),
            }
        }
        self.follow();
    }

    fn next_kill(&mut self) -> Next {
        // A host that was killed still has members for a moment, until its death is noticed.
        let dying = |host: u32| {
            let mut failures = self.failures.iter();
            failures.any(|failure| failure.host == host && !failure.is_read)
        };
        let works = |host: u32| {
            let mut workers = self.crew.workers_of(host);
            self.standby.works(host) || workers.any(|it| self.run.attempting(it).is_some())
        };
        let alive: Vec<u32> = (0..self.crew.hosts)
            .filter(|host| works(*host) && !dying(*host) && !self.members_of(*host).is_empty())
            .collect();
        let (now, failures, standby) = (self.now(), &self.failures, &self.standby);
        let has_failed = |host| failures.iter().any(|failure| failure.host == host);
        self.kills
            .next(now, &alive, |host| standby.works(host), has_failed)
    }

    /// Returns the live instances of `host`: its processes and threads.
    fn members_of(&self, host: u32) -> Vec<Instance> {
        self.tables
            .writers()
            .filter(|(_, state)| u32::from(state.host) == host && state.level != Some(Level::Host))
            .map(|(id, state)| Instance::new(id, state.generation))
            .collect()
    }

    fn kill(&mut self, host: u32) {
        self.header.hit(host);
        let lost = self.members_of(host);
        let group = lock(&self.running)
            .get(&self.crew.first_of(host))
            .and_then(|groups| groups.last().cloned());
        let generations = self.tables.generations();
        let instance = generations.state(host).ok();
        let instance = instance
            .filter(|state| state.status.may_write())
            .map(|state| Instance::new(host, state.generation));
        let killed_at = self.now();
        let is_sent = group.as_ref().is_some_and(|group| {
            let mut group = lock(group);
            group.is_reported = true;
            group.kill()
        });
        self.kill_members(&lost);
        if let Some(instance) = instance {
            self.members.take(instance, self.tables);
        }
        let failure = Failure {
            killed_at: is_sent.then_some(killed_at),
            killed_at_unit: self.kills.finish_next(),
            instance,
            threads_lost: self.threads_among(&lost),
            lost,
            ..Failure::of(host)
        };
        self.add(failure, group);
    }

    fn threads_among(&self, lost: &[Instance]) -> usize {
        let is_thread = |it: &&Instance| self.crew.worker_of(it.id).is_some();
        lost.iter().filter(is_thread).count()
    }

    fn add(&mut self, failure: Failure, group: Option<Arc<Mutex<Group>>>) {
        self.open.push(self.failures.len());
        self.failures.push(failure);
        self.groups.push(group);
    }

    /// Kills the processes among `lost`. Those of the host's group are dying by now; this also
    /// kills those that had left the group.
    fn kill_members(&self, lost: &[Instance]) {
        for lost in lost {
            kill_process(self.tables, self.os, *lost);
        }
    }

    /// Records a death that was reported.
    pub fn on_news(&mut self, news: &News) {
        let News::Event(event) = news else {
            return;
        };
        if event.kind != EventKind::HostDied || event.instance.id >= self.crew.hosts {
            return;
        }
        let (host, now) = (event.instance.id, self.now());
        let untold = |failure: &&mut Failure| {
            let is_of_it = failure.instance.is_none_or(|it| it == event.instance);
            failure.host == host && !failure.is_told && is_of_it
        };
        match self.failures.iter_mut().find(untold) {
            Some(failure) => {
                failure.is_told = true;
                failure.instance = Some(event.instance);
                // It may have been seen in the tables before.
                failure.detected_at = failure.detected_at.or(Some(now));
            }
            // The driver did not kill it.
            None => {
                let lost = self.members.take(event.instance, self.tables);
                let failure = Failure {
                    instance: Some(event.instance),
                    detected_at: Some(now),
                    is_told: true,
                    threads_lost: self.threads_among(&lost),
                    lost,
                    ..Failure::of(host)
                };
                let group = self.group_that_died(&failure);
                self.add(failure, group);
            }
        }
        let mut failures = self.failures.iter_mut();
        if let Some(failure) = failures.find(|it| it.instance == Some(event.instance)) {
            failure.fenced = event.fenced;
        }
    }

    /// Returns the process group of the incarnation that has died: the one that has its pid, if its
    /// record still exists; else the first group of the host that has died and is not reported, or
    /// the last one.
    fn group_that_died(&self, failure: &Failure) -> Option<Arc<Mutex<Group>>> {
        let first = self.crew.first_of(failure.host);
        let record = { failure.lost.iter() }
            .find(|it| it.id == first)
            .and_then(|it| self.tables.records().read(*it));
        let pid = record.map(|record| record.thread.process.pid);
        let running = lock(&self.running);
        let groups = running.get(&first)?;
        let is_of_pid = |group: &&Arc<Mutex<Group>>| Some(lock(group).pid()) == pid;
        let has_died = |group: &&Arc<Mutex<Group>>| {
            let mut group = lock(group);
            let ended = group.try_wait().ok().flatten();
            !group.is_reported && ended.is_some_and(|status| !status.success())
        };
        let mut newest_first = groups.iter().rev();
        let group = newest_first.find(is_of_pid);
        let group = group
            .or_else(|| groups.iter().find(has_died))
            .or(groups.last())?;
        lock(group).is_reported = true;
        Some(Arc::clone(group))
    }

    /// Finds out how the host of failure `index` ended, and corrects the failure if the host did
    /// not die of its kill. Returns whether that is known, or cannot become known.
    fn note_end(&mut self, index: usize) -> bool {
        let (now, failure) = (self.now(), &mut self.failures[index]);
        let Some(group) = &self.groups[index] else {
            // No process of it was ever started.
            return true;
        };
        if failure.ended.is_some() {
            return true;
        }
        let mut group = lock(group);
        match group.try_wait() {
            Ok(Some(status)) => {
                failure.ended = Some(status);
                if status.signal() != Some(libc::SIGKILL) {
                    failure.is_void = status.success() && !failure.is_told;
                    failure.killed_at = None;
                }
                return true;
            }
            Ok(None) => {}
            // It has ended, and its status is not available: this process ignores SIGCHLD.
            Err(_) => return true,
        }
        let waits = failure
            .killed_at
            .is_some_and(|at| now - at < KILL_PATIENCE as f64);
        if failure.killed_at.is_some() && !waits {
            self.unkillable = Some(RunError::NotKilled {
                host: failure.host,
                pid: group.pid(),
                seconds: KILL_PATIENCE,
            });
        }
        false
    }

    /// Checks the progress of all failures that are not over.
    fn follow(&mut self) {
        let (now, generations) = (self.now(), self.tables.generations());
        // Before the loop, to know which of the dead workers worked; after it, since places may
        // have become vacant.
        self.standby.note(&self.run, &mut self.failures, now);
        for index in std::mem::take(&mut self.open) {
            let is_end_known = self.note_end(index);
            let failure = &mut self.failures[index];
            if failure.is_void {
                (failure.is_read, failure.is_told) = (true, true);
                self.header.spare(failure.host);
                continue;
            }
            let lives = |instance: &Instance| !generations.is_gone(*instance);
            let all_gone = !failure.lost.iter().any(lives);
            if all_gone && !failure.is_read {
                failure.is_read = true;
                self.header.spare(failure.host);
                failure.vacant = self.standby.lose(failure.host, &self.run);
                // Their records of begun units do not change before they are restarted.
                failure.units_redone = failure
                    .lost
                    .iter()
                    .filter_map(|instance| self.crew.worker_of(instance.id))
                    .filter_map(|worker| self.run.attempting(worker))
                    .collect();
                // The death of a host that was still joining is never reported: it was not a
                // member.
                failure.detected_at = failure.detected_at.or(Some(now));
            }
            if all_gone && failure.recovered_at.is_none() {
                // A next incarnation is live before it has recovered this one: the log tells.
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
            // The process that proved the host dead; while or if that is not known, the one that
            // proved the death of its first member.
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
            // (An elastic pool may do without; a worker that comes is recorded all the same.)
            let waits_for_a_spare = failure.taken < failure.vacant
                && self.options.elastic.is_none()
                && !self.run.is_done()
                && self
                    .standby
                    .has_somebody(|worker| live(self.crew.id_of(worker)));
            if !is_end_known
                || failure.recovered_at.is_none()
                || (wants_to_rejoin && failure.rejoined_at.is_none())
                || waits_for_a_spare
            {
                self.open.push(index);
            }
        }
        self.standby.note(&self.run, &mut self.failures, now);
    }
}
