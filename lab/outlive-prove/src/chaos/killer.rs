//! The schedule of kills, stops and fences, and its execution.

use super::stage::{host_of, process_of};
use crate::schedule::engine::choices::Dice;
use core::fmt;
use core::time::Duration;
use outlive::host::Os;
use outlive::membership::{InstanceId, Settings, Status};
use outlive::pod::Pod;
use rustix::process::{Pid, Signal, kill_process};
use std::time::Instant;

/// The time within which a process must be gone after SIGKILL.
const DEAD_WITHIN: Duration = Duration::from_secs(20);
/// The time within which a silent host must be fenced.
const FENCED_WITHIN: Duration = Duration::from_secs(20);

/// A kind of injected fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Kill {
    /// SIGKILL to one process.
    Process,
    /// SIGKILL to all processes of a host.
    Host,
    /// SIGKILL to all processes of two hosts at once.
    TwoHosts,
    /// SIGKILL to every worker.
    AllHosts,
    /// A process that is only slow: SIGSTOP, and SIGCONT soon after.
    Pause,
    /// A host that is silent until it is fenced: SIGSTOP to all of its processes.
    Fence,
}

impl Kill {
    /// All kinds.
    pub const ALL: [Self; 6] = [
        Self::Process,
        Self::Host,
        Self::TwoHosts,
        Self::AllHosts,
        Self::Pause,
        Self::Fence,
    ];

    /// Returns the name, for people and programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Host => "host",
            Self::TwoHosts => "two hosts",
            Self::AllHosts => "all hosts",
            Self::Pause => "pause",
            Self::Fence => "fence",
        }
    }
}

impl fmt::Display for Kill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One step of the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blow {
    /// The delay before it.
    pub after: Duration,
    pub kill: Kill,
    /// The worker, or the host, that it hits.
    pub target: u32,
}

/// The schedule, which follows from the seed alone.
pub struct Schedule {
    dice: Dice,
    hosts: u32,
    workers: u32,
    dealt: u64,
}

impl Schedule {
    pub fn new(seed: u64, hosts: u32, workers: u32) -> Self {
        Self {
            dice: Dice::new(seed),
            hosts,
            workers,
            dealt: 0,
        }
    }

    pub fn next(&mut self) -> Blow {
        self.dealt += 1;
        let after = Duration::from_millis(20 + self.dice.roll() % 250);
        let kill = match self.dice.roll() % 100 {
            // Whatever the seed, a short run has one of each of the main kinds.
            _ if self.dealt == 2 => Kill::Host,
            _ if self.dealt == 4 => Kill::Fence,
            0..50 => Kill::Process,
            50..75 => Kill::Host,
            75..80 => Kill::TwoHosts,
            80..83 => Kill::AllHosts,
            83..95 => Kill::Pause,
            _ => Kill::Fence,
        };
        let target = match kill {
            Kill::Process | Kill::Pause => self.dice.roll() % u64::from(self.workers),
            _ => 1 + self.dice.roll() % u64::from(self.hosts),
        };
        Blow {
            after,
            kill,
            target: target as u32,
        }
    }
}

/// Carries out the schedule on the workers of `pod`.
pub struct Killer<'p> {
    pod: &'p Pod,
    os: &'static dyn Os,
    hosts: u32,
    workers: u32,
}

impl<'p> Killer<'p> {
    pub fn new(pod: &'p Pod, hosts: u32, workers: u32) -> Result<Self, String> {
        let os = pod.os().map_err(|error| error.to_string())?;
        Ok(Self {
            pod,
            os,
            hosts,
            workers,
        })
    }

    /// Injects a fault, and returns the number of processes that it hit.
    ///
    /// # Errors
    /// If a process survived SIGKILL, or a silent host was not fenced.
    pub fn strike(&self, blow: Blow) -> Result<u32, String> {
        let on = |host: u32| (0..self.workers).filter(move |w| host_of(*w, self.hosts) == host);
        match blow.kill {
            Kill::Process => self.kill([blow.target]),
            Kill::Host => self.kill(on(blow.target)),
            Kill::TwoHosts => {
                let other = 1 + blow.target % self.hosts;
                self.kill(on(blow.target).chain(on(other)))
            }
            Kill::AllHosts => self.kill(0..self.workers),
            Kill::Pause => {
                let stopped = self.stop([blow.target]);
                std::thread::sleep(self.settings().suspicion / 4);
                self.go_on(&stopped);
                Ok(stopped.len() as u32)
            }
            Kill::Fence => self.fence(blow.target, on(blow.target)),
        }
    }

    fn settings(&self) -> &Settings {
        self.pod.settings()
    }

    /// Returns the live process of `worker`, if it has one.
    fn process(&self, worker: u32) -> Option<outlive::host::ProcessIdentity> {
        let id: InstanceId = process_of(worker);
        let tables = self.pod.tables();
        let state = tables.generations().state(id).ok()?;
        let live = state.status == Status::Live;
        let instance = outlive::membership::Instance::new(id, state.generation);
        let record = tables.records().read(instance).filter(|_| live)?;
        Some(record.thread.process)
    }

    fn kill(&self, workers: impl IntoIterator<Item = u32>) -> Result<u32, String> {
        // All handles are opened before the first kill, so that the processes die together.
        let handles: Vec<_> = workers
            .into_iter()
            .filter_map(|worker| self.process(worker))
            .filter_map(|process| self.os.open_process(process).ok().flatten())
            .collect();
        let hit: Vec<_> = { handles.iter() }
            .filter(|handle| handle.send_kill())
            .collect();
        let until = Instant::now() + DEAD_WITHIN;
        let left = || until.saturating_duration_since(Instant::now());
        match hit.iter().filter(|it| !it.wait_gone(left())).count() {
            0 => Ok(hit.len() as u32),
            living => Err(format!(
                "{living} of {} processes are alive {DEAD_WITHIN:?} after they were sent SIGKILL",
                hit.len()
            )),
        }
    }

    fn stop(&self, workers: impl IntoIterator<Item = u32>) -> Vec<outlive::host::ProcessIdentity> {
        let processes = workers
            .into_iter()
            .filter_map(|worker| self.process(worker));
        processes
            .filter(|process| self.signal(*process, Signal::STOP))
            .collect()
    }

    fn go_on(&self, stopped: &[outlive::host::ProcessIdentity]) {
        for process in stopped {
            self.signal(*process, Signal::CONT);
        }
    }

    fn signal(&self, process: outlive::host::ProcessIdentity, signal: Signal) -> bool {
        let there = matches!(self.os.open_process(process), Ok(Some(handle)) if !handle.is_gone());
        let pid = Pid::from_raw(process.pid as i32);
        there && pid.is_some_and(|pid| kill_process(pid, signal).is_ok())
    }

    /// Stops the processes of a host until it is fenced.
    fn fence(&self, host: u32, workers: impl Iterator<Item = u32>) -> Result<u32, String> {
        let generations = self.pod.tables().generations();
        let before = generations.current(host);
        let stopped = self.stop(workers);
        if stopped.is_empty() {
            return Ok(0);
        }
        let until = Instant::now() + FENCED_WITHIN;
        // A process that was starting when the others were stopped continues to beat. The host is
        // then not silent and is not fenced, so the stopped processes are resumed after a while.
        let patience = Instant::now() + self.settings().suspicion * 3;
        while generations.current(host) == before {
            let beating = (0..self.workers)
                .filter(|worker| host_of(*worker, self.hosts) == host)
                .filter_map(|worker| self.process(worker))
                .any(|process| !stopped.contains(&process));
            if beating && Instant::now() > patience {
                self.go_on(&stopped);
                return Ok(stopped.len() as u32);
            }
            if Instant::now() > until {
                self.go_on(&stopped);
                return Err(format!(
                    "host {host} was silent for {FENCED_WITHIN:?}, but was not fenced"
                ));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        for process in &stopped {
            if let Ok(Some(handle)) = self.os.open_process(*process)
                && !handle.is_gone()
            {
                return Err(format!(
                    "host {host} was declared dead, but its process {} is alive",
                    process.pid
                ));
            }
        }
        Ok(stopped.len() as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_one_schedule() {
        let deal = |seed| {
            let mut schedule = Schedule::new(seed, 4, 8);
            (0..500).map(|_| schedule.next()).collect::<Vec<_>>()
        };
        assert_eq!(deal(7), deal(7));
        assert_ne!(deal(7), deal(8));
        for kill in Kill::ALL {
            assert!(deal(7).iter().any(|blow| blow.kill == kill), "{kill}");
        }
    }
}
