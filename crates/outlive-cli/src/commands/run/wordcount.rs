//! `outlive run wordcount`: the main job. Hosts are process trees, and some of them are killed.

use crate::amount::{self, Bytes};
use crate::failure::Failure;
use crate::output;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use outlive::supervise::Stop;
use outlive_workloads::driver::{self, KillAt, Options, Outcome, Progress, RunError, Supervise};
use outlive_workloads::input::Inputs;
use outlive_workloads::tokens::Tokens;
use outlive_workloads::wordcount::{WordCount, shipped_text};
use rustix::fs::{MemfdFlags, memfd_create};
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tempfile::NamedTempFile;

/// The counting of words.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive run wordcount                                   # the King James Bible; two of four hosts are killed\n  \
    outlive run wordcount book.txt notes/ --hosts 8 --kill 3 --output counts.tsv\n  \
    outlive run wordcount big.txt --hosts 16 --kill 8 --kill-at random --supervise none --json\n\n\
    Each host is a process tree of its own (--processes), a member of a pod in /dev/shm that is made for the run and removed after it. \
    Killed hosts get SIGKILL. The counts are those of a run without failures.")]
pub struct Command {
    /// Files, and directories whose files are counted; without any, the shipped text
    #[arg(value_name = "FILE|DIR")]
    inputs: Vec<PathBuf>,
    /// How many hosts there are
    #[arg(long, value_name = "H", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    hosts: u32,
    /// How many processes each host has: one that the driver starts, and children of it. They die together
    #[arg(long, value_name = "P", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    processes: u32,
    /// How many worker threads each process has
    #[arg(long, value_name = "T", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// How many hosts are killed, spread over the run [default: 2 of the shipped text, 0 of files]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(0..=1024))]
    kill: Option<u32>,
    /// When they are killed
    #[arg(long, value_enum, default_value_t = When::Commit)]
    kill_at: When,
    /// What happens to a host that has died
    #[arg(long, value_enum, default_value_t = Then::Restart)]
    supervise: Then,
    /// What a word is
    #[arg(long, value_enum, default_value_t = What::Words)]
    tokens: What,
    /// Write all counts there: count, tab, word; by falling count, then by word. What is there stays until all is
    /// counted; it cannot be one of the inputs
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// How many of the most frequent words are printed
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// Print what came of it as JSON
    #[arg(long)]
    json: bool,
    /// Where the pod is made [default: a new file in /dev/shm]
    #[arg(long, value_name = "PATH")]
    pod: Option<PathBuf>,
    /// The size of the pod [default: estimated from the input]
    #[arg(long, value_parser = amount::size)]
    size: Option<u64>,
    /// How much text is counted at a time, at most 1M [default: chosen by the input]
    #[arg(long, value_parser = amount::size)]
    unit: Option<u64>,
    /// Repeats a run's choices: when hosts are killed at random, and which
    #[arg(long)]
    seed: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum When {
    /// Right before they commit a unit, when the most work is lost
    Commit,
    /// At any moment
    Random,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Then {
    /// It is started again
    Restart,
    /// The others finish without it
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// Runs of alphanumeric characters, in lower case
    Words,
    /// What white space separates, as `tr -s '[:space:]' '\n' | sort | uniq -c` counts in the C locale: with one empty
    /// word if the text begins with white space. Words do not run from one file into the next, as if each
    /// file ended with a line feed
    Whitespace,
}

impl Command {
    pub fn run(self) -> Result<(), Failure> {
        let stop = Stop::default();
        let interrupted = Arc::new(AtomicBool::new(false));
        driver::not_stopped_by_a_terminal();
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
            signal_hook::flag::register(signal, Arc::clone(&interrupted)).map_err(|error| {
                Failure::new(format_args!(
                    "signal {signal} cannot be waited for: {error}"
                ))
            })?;
        }
        let shipped = self.inputs.is_empty().then(shipped).transpose()?;
        let named: Vec<&Path> = match &shipped {
            Some((path, _)) => vec![path],
            None => self.inputs.iter().map(PathBuf::as_path).collect(),
        };
        let inputs = Inputs::find(&named).map_err(Failure::new)?;
        // What cannot be written is known before anything starts.
        let counts = self
            .output
            .as_deref()
            .map(|path| Counts::prepare(path, &inputs))
            .transpose()?;
        let options = self.options(inputs, shipped.is_some());
        let program = WordCount {
            tokens: self.tokens.into(),
        };
        let command = super::host_command()?;
        let bar = bar(options.inputs.bytes());
        let told = interrupted.clone();
        let stopped = stop.clone();
        let mut progress = |now: Progress| {
            if told.load(Ordering::Relaxed) {
                stopped.stop();
            }
            show(&bar, &now);
        };
        let outcome = driver::run(
            &options,
            (program.number(), &program),
            command,
            &stop,
            &mut progress,
        );
        bar.finish_and_clear();
        let outcome = outcome.map_err(|error| match error {
            RunError::Impossible { .. } => Failure::Usage(error.to_string()),
            _ => Failure::new(error),
        })?;
        if let Some(counts) = counts {
            counts.write(&outcome)?;
        }
        self.tell(&options, &outcome, shipped.is_some())
    }

    fn options(&self, inputs: Inputs, shipped: bool) -> Options {
        let defaults = Options::new(inputs);
        Options {
            hosts: self.hosts,
            processes: self.processes,
            threads: self.threads,
            kills: self.kill.unwrap_or(if shipped { 2 } else { 0 }),
            kill_at: match self.kill_at {
                When::Commit => KillAt::Commit,
                When::Random => KillAt::Random,
            },
            supervise: match self.supervise {
                Then::Restart => Supervise::Restart,
                Then::None => Supervise::None,
            },
            pod: self.pod.clone(),
            size: self.size,
            unit: self.unit,
            seed: self.seed.unwrap_or(defaults.seed),
            ..defaults
        }
    }

    fn tell(&self, options: &Options, outcome: &Outcome, shipped: bool) -> Result<(), Failure> {
        let summary = Summary::of(self, options, outcome);
        if self.json {
            return output::json(&summary);
        }
        let what = if shipped {
            "the King James Bible".into()
        } else {
            format!("{} files", options.inputs.files().len())
        };
        output::line(format_args!(
            "{} words, {} distinct, in {} of {what}",
            summary.words,
            summary.distinct,
            Bytes(outcome.bytes)
        ))?;
        output::line(format_args!(
            "{:.3} s, {:.3} s of processor time, on {} hosts of {}{} threads; {} units, a pod of {}",
            summary.seconds,
            summary.cpu_seconds,
            options.hosts,
            match options.processes {
                1 => String::new(),
                processes => format!("{processes} processes of "),
            },
            options.threads,
            outcome.units,
            Bytes(outcome.segment_bytes),
        ))?;
        for failure in &summary.failures {
            output::line(failure.sentence(options.hosts))?;
        }
        if outcome.kills_too_late > 0 {
            output::line(format_args!(
                "{} kills came too late: the run was over",
                outcome.kills_too_late
            ))?;
        }
        if !summary.failures.is_empty() {
            output::line(format_args!(
                "nothing was lost; {} units were done again",
                outcome.units_redone
            ))?;
        }
        for top in &summary.top {
            output::line(format_args!("{:>10}  {}", top.count, top.word))?;
        }
        Ok(())
    }
}

/// The shipped text as a file without a name, which other processes open through this one.
fn shipped() -> Result<(PathBuf, File), Failure> {
    let failed = |error: io::Error| {
        Failure::new(format_args!("the shipped text cannot be unpacked: {error}"))
    };
    let file = memfd_create("outlive-text", MemfdFlags::CLOEXEC).map_err(|e| failed(e.into()))?;
    let mut file = File::from(file);
    file.write_all(&shipped_text()).map_err(failed)?;
    let path = format!("/proc/{}/fd/{}", process::id(), file.as_raw_fd());
    Ok((path.into(), file))
}

/// Where the counts are written when there are any.
struct Counts {
    path: PathBuf,
    to: To,
}

enum To {
    /// A file beside the one that was named, which it replaces at the end: a run that fails loses nothing.
    Beside(NamedTempFile),
    /// A pipe, a terminal or the like, which nothing can replace.
    There(File),
}

impl Counts {
    /// Opens what the counts are written to at the end, and changes nothing that is there.
    fn prepare(named: &Path, inputs: &Inputs) -> Result<Self, Failure> {
        let failed = |error: io::Error| cannot_be_written(named, &error);
        let there = match fs::metadata(named) {
            Ok(there) => there,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let beside = beside(named, 0o666).map_err(failed)?;
                let path = named.to_owned();
                return Ok(Self { path, to: beside });
            }
            Err(error) => return Err(failed(error)),
        };
        // Where a file could not be written, it is not replaced either. What is appended to a redirected /dev/stdout
        // comes after what is there.
        let file = OpenOptions::new()
            .append(true)
            .open(named)
            .map_err(failed)?;
        let is_stream = ["/dev", "/proc"].iter().any(|of| named.starts_with(of));
        if is_stream || !there.is_file() {
            let path = named.to_owned();
            return Ok(Self {
                path,
                to: To::There(file),
            });
        }
        let same = |input: &Path| {
            let input = fs::metadata(input);
            input.is_ok_and(|input| (input.dev(), input.ino()) == (there.dev(), there.ino()))
        };
        if inputs.files().iter().any(|input| same(&input.path)) {
            return Err(Failure::new(format_args!(
                "{} is one of the files to be counted, and --output would replace it; name another file",
                named.display()
            )));
        }
        // Not a link to it.
        let path = fs::canonicalize(named).map_err(failed)?;
        let to = beside(&path, there.permissions().mode()).map_err(failed)?;
        Ok(Self { path, to })
    }

    fn write(self, outcome: &Outcome) -> Result<(), Failure> {
        let Self { path, to } = self;
        let done = match to {
            To::There(file) => write(file, outcome),
            To::Beside(mut file) => write(file.as_file_mut(), outcome)
                .and_then(|()| Ok(file.persist(&path).map(drop)?)),
        };
        done.map_err(|error| cannot_be_written(&path, &error))
    }
}

fn cannot_be_written(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format_args!(
        "{} cannot be written: {error}",
        path.display()
    ))
}

/// A new file in the directory of `path`, removed unless it replaces what is there.
fn beside(path: &Path, mode: u32) -> io::Result<To> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    tempfile::Builder::new()
        .prefix(".outlive-counts-")
        .permissions(Permissions::from_mode(mode & 0o777))
        .tempfile_in(directory)
        .map(To::Beside)
}

fn write(file: impl Write, outcome: &Outcome) -> io::Result<()> {
    let mut out = BufWriter::new(file);
    for (word, count) in &outcome.totals {
        write!(out, "{count}\t")?;
        out.write_all(word)?;
        out.write_all(b"\n")?;
    }
    out.flush()
}

/// What came of it, as programs read it.
#[derive(Serialize)]
struct Summary {
    words: u64,
    distinct: usize,
    /// From the creation of the pod to the last total.
    seconds: f64,
    /// Of the driver and of all hosts, the dead ones' included.
    cpu_seconds: f64,
    seconds_to_create: f64,
    seconds_of_work: f64,
    bytes: u64,
    units: u64,
    units_redone: u64,
    hosts: u32,
    /// Of each host.
    processes: u32,
    /// Of each process.
    threads: u32,
    kills: u32,
    kills_too_late: u32,
    pod: PathBuf,
    pod_bytes: u64,
    top: Vec<Top>,
    failures: Vec<Failed>,
}

#[derive(Serialize)]
struct Top {
    word: String,
    count: u64,
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
    lost: Vec<String>,
    /// Not known of a host that died by itself.
    processes_lost: Option<usize>,
    threads_lost: Option<usize>,
    units_redone: usize,
}

impl Summary {
    fn of(command: &Command, options: &Options, outcome: &Outcome) -> Self {
        let top = outcome.totals.iter().take(command.top);
        Self {
            words: outcome.totals.iter().map(|(_, count)| count).sum(),
            distinct: outcome.totals.len(),
            seconds: outcome.seconds,
            cpu_seconds: outcome.cpu_seconds,
            seconds_to_create: outcome.seconds_to_create,
            seconds_of_work: outcome.seconds_of_work,
            bytes: outcome.bytes,
            units: outcome.units,
            units_redone: outcome.units_redone,
            hosts: options.hosts,
            processes: options.processes,
            threads: options.threads,
            kills: options.kills,
            kills_too_late: outcome.kills_too_late,
            pod: outcome.pod.clone(),
            pod_bytes: outcome.segment_bytes,
            top: top
                .map(|(word, count)| Top {
                    word: String::from_utf8_lossy(word).into_owned(),
                    count: *count,
                })
                .collect(),
            failures: outcome.failures.iter().map(Failed::of).collect(),
        }
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
        if let Some(time) = after(self.rejoined_at) {
            said += &format!(", back after {time}");
        }
        format!("{said}; {} units were done again", self.units_redone)
    }
}

impl From<What> for Tokens {
    fn from(what: What) -> Self {
        match what {
            What::Words => Self::Words,
            What::Whitespace => Self::Whitespace,
        }
    }
}

/// A bar on standard error, if that is a terminal.
fn bar(bytes: u64) -> ProgressBar {
    let bar = ProgressBar::new(1);
    bar.set_message(format!("{}", Bytes(bytes)));
    bar.enable_steady_tick(Duration::from_millis(100));
    match ProgressStyle::with_template("{prefix:7} {wide_bar} {pos}/{len} units of {msg} {elapsed}")
    {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn show(bar: &ProgressBar, now: &Progress) {
    bar.set_length(now.units);
    let reading = now.loaded < now.units;
    bar.set_prefix(if reading { "reading" } else { "counting" });
    bar.set_position(if reading { now.loaded } else { now.mapped });
}
