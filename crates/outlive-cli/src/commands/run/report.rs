//! What every run tells at its end: what it cost, and which hosts failed.

use super::workers::Workers;
use crate::amount::Bytes;
use crate::failure::Failure;
use crate::output::To;
use outlive::segment::NoRoom;
use outlive_workloads::driver::{self, Options, Outcome};
use serde::Serialize;
use std::path::PathBuf;

/// What came of a run, whatever its program was, as programs read it.
#[derive(Serialize)]
pub struct Report {
    /// From the creation of the pod until the result was read.
    seconds: f64,
    /// Of the driver and of all hosts, the dead ones' included.
    cpu_seconds: f64,
    seconds_to_create: f64,
    seconds_of_work: f64,
    units: u64,
    units_redone: u64,
    hosts: u32,
    /// How many hosts stood by besides.
    spares: u32,
    /// Of each host.
    processes: u32,
    /// Of each process.
    threads: u32,
    kills: u32,
    kills_too_late: u32,
    /// What its choices followed from.
    seed: u64,
    pod: PathBuf,
    pod_bytes: u64,
    /// Why it was not in /dev/shm.
    pod_not_in_shm: Option<String>,
    #[serde(skip)]
    no_room: Option<NoRoom>,
    failures: Vec<Failed>,
    /// Which came and went.
    workers: Workers,
}

/// A failure. Times are in seconds from when the hosts were started.
#[derive(Serialize)]
struct Failed {
    host: u32,
    killed_at: Option<f64>,
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
    /// Not known of a host that died by itself.
    processes_lost: Option<usize>,
    threads_lost: Option<usize>,
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
            kills_too_late: outcome.kills_too_late,
            seed: options.seed,
            pod: outcome.pod.clone(),
            pod_bytes: outcome.segment_bytes,
            pod_not_in_shm: outcome.no_room.as_ref().map(ToString::to_string),
            no_room: outcome.no_room.clone(),
            failures: outcome.failures.iter().map(Failed::of).collect(),
            workers: Workers::of(options, &outcome.turns),
        }
    }

    /// Says it to people.
    pub fn tell(&self, to: To) -> Result<(), Failure> {
        to.line(format_args!(
            "{:.3} s, {:.3} s of processor time, on {} hosts {}of {}{} threads; {} units, a pod of {}, seed {}",
            self.seconds,
            self.cpu_seconds,
            self.hosts,
            match self.spares {
                0 => String::new(),
                spares => format!("and {spares} spares "),
            },
            match self.processes {
                1 => String::new(),
                processes => format!("{processes} processes of "),
            },
            self.threads,
            self.units,
            Bytes(self.pod_bytes),
            self.seed,
        ))?;
        if let Some(full) = &self.no_room {
            to.line(format_args!(
                "the pod was made as {}, since /dev/shm has too little room ({} {}): slower where that is a disk",
                self.pod.display(),
                full.limit,
                Bytes(full.free),
            ))?;
        }
        for failure in &self.failures {
            to.line(failure.sentence(self.hosts + self.spares))?;
        }
        if self.kills_too_late > 0 {
            to.line(format_args!(
                "{} kills came too late: the run was over",
                self.kills_too_late
            ))?;
        }
        self.workers.tell(to)?;
        if !self.failures.is_empty() {
            to.line(format_args!(
                "nothing was lost; {} units were done again",
                self.units_redone
            ))?;
        }
        Ok(())
    }
}

impl Failed {
    fn of(failure: &driver::Failure) -> Self {
        let known = failure.killed_at.map(drop);
        Self {
            host: failure.host,
            killed_at: failure.killed_at,
            detected_at: failure.detected_at,
            detected_by: failure.detected_by.map(|by| by.to_string()),
            detected_by_host: failure.detected_by_host,
            recovered_at: failure.recovered_at,
            rejoined_at: failure.rejoined_at,
            taken_over_by: failure.taken_over_by.clone(),
            taken_over_at: failure.taken_over_at,
            lost: failure.lost.iter().map(ToString::to_string).collect(),
            processes_lost: known.map(|()| failure.lost.len() - failure.threads_lost),
            threads_lost: known.map(|()| failure.threads_lost),
            units_redone: failure.units_redone.len(),
        }
    }

    /// What died with it, for people.
    fn lost(&self) -> String {
        let several = |number: usize, one: &str, more: &str| {
            format!("{number} {}", if number == 1 { one } else { more })
        };
        let lost = self.processes_lost.zip(self.threads_lost);
        lost.map_or_else(String::new, |(processes, threads)| {
            format!(
                " ({}, {})",
                several(processes, "process", "processes"),
                several(threads, "thread", "threads")
            )
        })
    }

    fn sentence(&self, hosts: u32) -> String {
        let mut said = match self.killed_at {
            Some(at) => format!(
                "host {}{} was killed after {at:.3} s",
                self.host,
                self.lost()
            ),
            None => format!("host {} died", self.host),
        };
        let after = |at: Option<f64>| Some(format!("{:.1} ms", (at? - self.killed_at?) * 1e3));
        if let Some(time) = after(self.detected_at) {
            said += &format!(", told {time} later");
            match self.detected_by_host {
                Some(host) if host < hosts => said += &format!(" by host {host}"),
                Some(_) => said += " by the driver",
                None => {}
            }
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
        format!("{said}; {} units were done again", self.units_redone)
    }
}
