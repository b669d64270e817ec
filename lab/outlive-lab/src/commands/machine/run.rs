//! `outlive-lab machine run`: a workload or a trace on the simulated machine.

use super::configuration::Configuration;
use super::fallout;
use super::placement::Place;
use super::progress::Line;
use super::report::Report;
use super::show::described;
use super::size::Size;
use super::subject::Wanted;
use crate::amount;
use crate::failure::Failure;
use crate::output;
use clap::Args;
use outlive_machine::crash;
use outlive_machine::description::Protocol;
use outlive_machine::line::LineAddress;
use outlive_machine::run::{self, Crash, RunError};
use std::path::PathBuf;

/// A run on the simulated machine.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive-lab machine list                                      # what can be run\n  \
    outlive-lab machine run ycsb --configuration proactive\n  \
    outlive-lab machine run ocean-cp --configuration wt --size test --json\n  \
    outlive-lab machine run ycsb --configuration proactive --crash 3@200us
  \
    outlive-lab machine run heat.trace --configuration baseline   # recorded from a real program: docs/recording.md\n  \
    outlive-lab machine show > mine.toml; outlive-lab machine run ycsb --machine mine.toml\n\n\
    The result of a built-in workload is checked. The same run gives exactly the same figures each \
    time, except for the time on \
    this computer.")]
pub struct Run {
    /// A built-in workload (`outlive-lab machine list`), or the file of a trace
    #[arg(value_name = "WORKLOAD|TRACE")]
    what: String,
    /// A file that describes the machine [default: the paper's machine, see
    /// `outlive-lab machine show`]
    #[arg(long, value_name = "FILE")]
    machine: Option<PathBuf>,
    /// How the machine makes stores survive the death of a node; the default is that of FILE, or
    /// wb; `recxl-` may be omitted
    #[arg(long, value_name = "NAME")]
    configuration: Option<Configuration>,
    /// The size of a built-in workload [default: study]
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// The number of threads of a built-in workload; the default is the number of cores. They fill
    /// one node after the other: 4 threads are on 1 of the paper's 16 nodes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..), allow_negative_numbers = true)]
    threads: Option<u16>,
    /// Put the threads on as many nodes as possible: each node uses only as many cores as needed
    /// for all threads
    #[arg(long)]
    spread: bool,
    /// The seed of all that the description leaves to chance
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = amount::whole, allow_negative_numbers = true)]
    seed: u64,
    /// The part of the program's memory that is in the shared memory
    #[arg(long, value_name = "WHAT", default_value_t, value_enum)]
    placement: Place,
    /// Kill a node at this time, such as 3@50us, and let the others recover; may be repeated, once
    /// for each node. Every value is then judged, which takes twice as long
    #[arg(long, value_name = "NODE@TIME", value_parser = fallout::crash, allow_hyphen_values = true)]
    crash: Vec<Crash>,
    /// Replay a trace with all locks and atomics in the order in which they were recorded
    #[arg(long)]
    recorded_order: bool,
    /// Print the history of a line of shared memory, by its number (a byte's address divided by 64)
    #[arg(long, value_name = "LINE", value_parser = line, allow_negative_numbers = true)]
    trace: Option<LineAddress>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

impl Run {
    pub fn run(self) -> Result<(), Failure> {
        let configuration = self.configuration.map(Protocol::from);
        let mut description = described(self.machine.as_deref(), configuration)?;
        let system = &description.system;
        let cores = system.compute_nodes as usize * system.cores_per_node as usize;
        let wanted = Wanted {
            name: &self.what,
            size: self.size,
            threads: self.threads.map(usize::from),
            recorded_order: self.recorded_order,
            cores,
        };
        let found = wanted.find()?;
        if self.spread {
            let system = &mut description.system;
            let nodes = system.compute_nodes as usize;
            let each = found.subject.thread_count().div_ceil(nodes);
            // Cores without threads do nothing, so they are left out of the machine. If there are
            // too few, the run reports it.
            system.cores_per_node = system.cores_per_node.min(each as u32);
        }
        let run = run::Run {
            follow: self.trace,
            counting: true,
            placement: self.placement.into(),
            crashes: self.crash.clone(),
            ..run::Run::new(&description, self.seed)
        };
        if !run.crashes.is_empty() {
            crash::silence_judges();
        }
        let line = Line::new(self.what.clone());
        let outcome = run
            .of(&found.subject, &mut |progress| line.show(progress))
            .map_err(|error| match error {
                RunError::Machine(_)
                | RunError::NoSuchLine { .. }
                | RunError::NoSuchNode { .. }
                | RunError::DiesTwice { .. }
                | RunError::CannotCrash => Failure::Usage(error.to_string()),
                _ => Failure::new(format_args!("{}: {error}", self.what)),
            })?;
        let took = line.took();
        drop(line);
        let report = Report::new(
            &self.what,
            &found,
            self.machine.as_deref(),
            &run,
            &outcome,
            took,
        );
        match self.json {
            true => output::json(&report)?,
            false => report.tell()?,
        }
        // A configuration that promises nothing cannot break a promise.
        let promises = description.ours.coherence.protocol != Protocol::WriteBack;
        match promises && !report.is_whole() {
            true => Err(Failure::Found),
            false => Ok(()),
        }
    }
}

/// Reads the number of a line.
fn line(text: &str) -> Result<LineAddress, String> {
    amount::whole(text).map(LineAddress).map_err(|_| {
        "a line is a whole number, such as 17 or 0x11: the address of a byte, divided by 64".into()
    })
}
