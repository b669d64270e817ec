//! The report of a run: its costs, and the failures of hosts.

use super::workers::Workers;
use crate::amount::{Bytes, Many};
use crate::failure::Failure;
use crate::output::To;
use outlive::segment::NoRoom;
use outlive_run::driver::{self, Options, Outcome};
use serde::Serialize;
use std::path::PathBuf;

/// The report of a run of any program, for JSON.
#[derive(Serialize)]
pub struct Report {
    /// The time from the creation of the pod until the result was read.
    seconds: f64,
    /// The processor time of the driver and of all hosts, dead ones included.
    cpu_seconds: f64,
    seconds_to_create: f64,
    seconds_of_work: f64,
    units: u64,
    units_redone: u64,
    hosts: u32,
    /// The number of additional hosts that stood by.
    spares: u32,
    /// For each host.
    processes: u32,
    /// For each process.
    threads: u32,
    kills: u32,
    /// The number of these kills that did not happen.
    kills_missed: u32,
    /// The seed of the run's random choices.
    seed: u64,
    pod: PathBuf,
    pod_bytes: u64,
    /// The reason why the pod was not in /dev/shm.
    pod_not_in_shm: Option<String>,
    #[serde(skip)]
    no_room: Option<NoRoom>,
    failures: Vec<Failed>,
    /// The workers that came and went.
    workers: Workers,
}

/// A failure. Times are in seconds since the hosts were started.
#[derive(Serialize)]
struct Failed {
    host: u32,
    killed_at: Option<f64>,
    /// With `--kill-at random`, the number of begun units after which it was to be killed.
    killed_at_unit: Option<u64>,
    /// Whether survivors fenced it because it was silent.
    fenced: bool,
    /// The exit status of its first process.
    ended: Option<String>,
    detected_at: Option<f64>,
    /// The process that proved it dead.
    detected_by: Option<String>,
    /// Its host; the driver's has the number after the last worker's.
    detected_by_host: Option<u32>,
    recovered_at: Option<f64>,
    rejoined_at: Option<f64>,
    /// The hosts that had stood by and took its places.
    taken_over_by: Vec<u32>,
    taken_over_at: Option<f64>,
    lost: Vec<String>,
    processes_lost: usize,
    threads_lost: usize,
    units_redone: usize,
}

impl Report {
    pub fn of<T>(options: &Options, outcome: &Outcome<T>) -> Self {
        Self {
            seconds: outcome.seconds,
            cpu_seconds: outcome.cpu_seconds,
            seconds_to_create: outcome.seconds_to_create,
            seconds_of_work: outcome.seconds_of_work,
            units: outcome.units,
            units_redone: outcome.units_redone,
            hosts: options.hosts,
            spares: options.spares,
            processes: options.processes,
            threads: options.threads,
            kills: options.kills,
            kills_missed: outcome.kills_missed,
            seed: options.seed,
            pod: outcome.pod.clone(),
            pod_bytes: outcome.segment_bytes,
            pod_not_in_shm: outcome.no_room.as_ref().map(ToString::to_string),
            no_room: outcome.no_room.clone(),
            failures: outcome.failures.iter().map(Failed::of).collect(),
            workers: Workers::of(options, &outcome.turns),
        }
    }

    /// Prints the report as text.
    pub fn tell(&self, to: To) -> Result<(), Failure> {
        to.line(format_args!(
            "{:.3} s, {:.3} s of processor time, on {} {}of {}{}; {}, a pod of {}, seed {}",
            self.seconds,
            self.cpu_seconds,
            Many(self.hosts.into(), "host"),
            match self.spares {
                0 => String::new(),
                spares => format!("and {} ", Many(spares.into(), "spare")),
            },
            match self.processes {
                1 => String::new(),
                processes => format!("{} of ", Many(processes.into(), "process")),
            },
            Many(self.threads.into(), "thread"),
            Many(self.units, "unit"),
            Bytes(self.pod_bytes),
            self.seed,
        ))?;
        if let Some(full) = &self.no_room {
            to.line(format_args!(
                "the pod was created as {}, because /dev/shm has too little free space ({} {}); \
                 this is slower if the file is on a disk",
                self.pod.display(),
                full.limit,
                Bytes(full.free),
            ))?;
        }
        for failure in &self.failures {
            to.line(failure.sentence(self.hosts + self.spares))?;
        }
        self.workers.tell(to)?;
        if !self.failures.is_empty() {
            to.line(format_args!(
                "nothing was lost; {}",
                re_executed(self.units_redone)
            ))?;
        }
        Ok(())
    }

    /// Returns an error if fewer hosts were killed than was requested: the run has not proved
    /// enough.
    pub fn require_kills(&self) -> Result<(), Failure> {
        match self.kills_missed {
            0 => Ok(()),
            missed => Err(Failure::new(format_args!(
                "{} of {} kills happened: the run was over before the others, or the host that was \
                 to be killed ended in another way; the result is complete. Request fewer kills, \
                 or use a larger input",
                self.kills - missed,
                self.kills,
            ))),
        }
    }
}

fn re_executed(units: u64) -> String {
    let were = if units == 1 { "was" } else { "were" };
    format!("{} {were} re-executed", Many(units, "unit"))
}

impl Failed {
    fn of(failure: &driver::Failure) -> Self {
        Self {
            host: failure.host,
            killed_at: failure.killed_at,
            killed_at_unit: failure.killed_at_unit,
            fenced: failure.fenced,
            ended: failure.ended.map(|status| status.to_string()),
            detected_at: failure.detected_at,
            detected_by: failure.detected_by.map(|by| by.to_string()),
            detected_by_host: failure.detected_by_host,
            recovered_at: failure.recovered_at,
            rejoined_at: failure.rejoined_at,
            taken_over_by: failure.taken_over_by.clone(),
            taken_over_at: failure.taken_over_at,
            lost: failure.lost.iter().map(ToString::to_string).collect(),
            processes_lost: failure.lost.len() - failure.threads_lost,
            threads_lost: failure.threads_lost,
            units_redone: failure.units_redone.len(),
        }
    }

    /// Describes what happened to the host, and when.
    fn event(&self) -> String {
        let (processes, threads) = (self.processes_lost as u64, self.threads_lost as u64);
        let host = match (processes, threads) {
            (0, 0) => format!("host {}", self.host),
            _ => format!(
                "host {} ({}, {})",
                self.host,
                Many(processes, "process"),
                Many(threads, "thread")
            ),
        };
        let at = self.killed_at.or(self.detected_at).unwrap_or_default();
        match (self.killed_at, &self.ended) {
            (Some(_), _) => format!("{host} was killed after {at:.3} s"),
            _ if self.fenced => {
                format!("{host} was silent, so survivors fenced it (SIGKILL) after {at:.3} s")
            }
            (None, Some(ended)) => format!("{host} died after {at:.3} s ({ended})"),
            (None, None) => format!("{host} died after {at:.3} s"),
        }
    }

    fn sentence(&self, hosts: u32) -> String {
        let mut said = self.event();
        let from = self.killed_at.or(self.detected_at);
        let after = |at: Option<f64>| Some(format!("{:.1} ms", (at? - from?) * 1e3));
        let prover = match self.detected_by_host {
            Some(host) if host < hosts => format!(" by host {host}"),
            Some(_) => " by the driver".into(),
            None => String::new(),
        };
        match (self.killed_at, after(self.detected_at)) {
            (Some(_), Some(time)) => said += &format!(", reported {time} later{prover}"),
            (None, Some(_)) if !prover.is_empty() => said += &format!(", reported{prover}"),
            _ => {}
        }
        if let Some(time) = after(self.recovered_at) {
            said += &format!(", recovered after {time}");
        }
        if !self.taken_over_by.is_empty() {
            let by: Vec<String> = self.taken_over_by.iter().map(u32::to_string).collect();
            let hosts_are = if by.len() == 1 { "host" } else { "hosts" };
            said += &format!(", replaced by {hosts_are} {}", by.join(", "));
            if let Some(time) = after(self.taken_over_at) {
                said += &format!(" after {time}");
            }
        }
        if let Some(time) = after(self.rejoined_at) {
            said += &format!(", back after {time}");
        }
        format!("{said}; {}", re_executed(self.units_redone as u64))
    }
}
