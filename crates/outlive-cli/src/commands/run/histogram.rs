//! `outlive run histogram`: counts the values of a picture's channels, or of a file's bytes, on
//! hosts that may be killed.

use super::destination::Destination;
use super::flags::Flags;
use super::generated::{Number, numbers};
use super::play::{loading, loading_unless};
use super::steps::{Run, Steps, Text, Verdict};
use super::unnamed::unnamed;
use crate::amount::{self, Bytes};
use crate::failure::Failure;
use clap::Args;
use outlive_programs::histogram::{Bins, Counting, Format, generate, verify};
use serde::Serialize;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

/// Arguments of `outlive run histogram`.
#[derive(Args, Debug)]
#[command(mut_arg("output", |output| {
    output.help("Write all counts to this file, one per line: channel, tab, value, tab, count; for \
        each channel all 256 values. An existing file is replaced only after all is done; it \
        cannot be the input")
}))]
#[command(after_help = "Examples:\n  \
    outlive run histogram photo.bmp --kill 2               # two of four hosts are killed\n  \
    outlive run histogram disk.img --bytes --output counts.tsv --verify\n  \
    zcat disk.img.gz | outlive run histogram /dev/stdin\n  \
    outlive run histogram random:8000:4000 --hosts 2 --json\n\n\
    FILE is a picture (a bitmap of 8, 24 or 32 bits; or a binary PPM or PGM with one byte per \
    value), whose channels are counted separately, without header, padding and alpha channel, or \
    any other file, whose bytes are counted. A compressed picture (PNG, JPEG and others) is \
    refused unless --bytes is given. A file is not copied: each host reads the parts that it \
    counts. A pipe or /dev/stdin is first read to its end into a temporary file (in TMPDIR), and \
    then put into the pod. random:WIDTH:HEIGHT[:SEED] generates a bitmap.\n\n\
    Each host is a process tree of its own (--processes) and a member of a pod in /dev/shm that is \
    created for the run and removed after it. Hosts are killed by SIGKILL. The counts are those of \
    a run without failures.\n\n\
    JSON: result (bytes, values, task_bytes, channels: channel, least, most, mean, mode, times; \
    verified), seconds, cpu_seconds, units, units_redone, seed, pod, failures and more: \
    docs/json.md names them all.")]
pub struct Command {
    /// A bitmap, PPM or PGM, any other file or pipe, or random:WIDTH:HEIGHT[:SEED]
    #[arg(value_name = "FILE")]
    file: OsString,
    #[command(flatten)]
    flags: Flags,
    /// Count the bytes of the file, even if it is a picture
    #[arg(long)]
    bytes: bool,
    /// Maximum size of the part of the file that a task counts
    #[arg(long, value_name = "SIZE", default_value = "8M", value_parser = amount::size)]
    task_bytes: u64,
    /// Count again in another way with one thread, and compare
    #[arg(long)]
    verify: bool,
}

impl Command {
    pub fn run(self) -> Result<(), Failure> {
        let mut run = Run::begin(&self.flags, 0, self.verify)?;
        let side = |name| Number::up_to(30_000, name);
        let form = [side("WIDTH"), side("HEIGHT"), Number::SEED];
        let generated = match numbers(&self.file, &form)? {
            Some([width, height, seed]) => Some(loading("generating a picture".into(), || {
                unnamed(&generate::bmp(width as u32, height as u32, seed))
            })?),
            None => None,
        };
        let named = Path::new(&self.file);
        let path = generated.as_ref().map_or(named, |file| file.path());
        run.open_destination([path], "counted")?;
        let format = match self.bytes {
            true => Format::Bytes,
            false => Format::Any,
        };
        let (what, opened) = (format!("reading {}", named.display()), path.to_owned());
        let count = loading_unless(&run.interrupted, what, move || {
            Counting::open(&opened, format)
        })?;
        let count = count.map_err(Failure::new)?;
        let count = count.task_bytes(self.task_bytes);
        let checked = count.clone();
        let steps = Steps {
            units: format!("parts of {}", Bytes(count.file_bytes())),
            check: move |bins: Arc<Bins>| check(&checked, &bins),
            write: |bins: &Bins, destination: Destination| {
                destination.write(|out| write(count.layout().channels(), bins, out))
            },
            describe: |bins: &Bins, verdict: Option<&Verdict>| {
                let found = Found::of(&self, &count, bins, verdict.map(Verdict::is_right));
                let headline = format!(
                    "{} values in {} of {}, counted in parts of {}",
                    found.values,
                    Bytes(found.bytes),
                    named.display(),
                    Bytes(self.task_bytes),
                );
                // If the file has no value, there is no line for each channel.
                let lines = match found.values {
                    0 => vec!["the file is empty: there was nothing to count".into()],
                    _ => found.channels.iter().map(Channel::line).collect(),
                };
                Text {
                    found,
                    is_flat: false,
                    headline,
                    lines,
                }
            },
        };
        run.play(&count, steps)
    }
}

fn check(count: &Counting, bins: &Bins) -> Result<Verdict, Failure> {
    let read =
        fs::read(count.path()).and_then(|file| match file.len() as u64 == count.file_bytes() {
            true => Ok(file),
            false => Err(io::Error::other("it has changed since it was counted")),
        });
    let file = read.map_err(|error| {
        Failure::new(format_args!(
            "the file cannot be read again for --verify: {error}"
        ))
    })?;
    let checked = verify::verify(&file, count.layout(), bins);
    Ok(Verdict::of(
        checked,
        "verified: counting in another way gave the same result",
    ))
}

fn write(channels: &[&str], bins: &Bins, out: &mut dyn Write) -> io::Result<()> {
    for (channel, counts) in channels.iter().zip(bins.counts()) {
        for (value, count) in counts.iter().enumerate() {
            writeln!(out, "{channel}\t{value}\t{count}")?;
        }
    }
    Ok(())
}

/// The result for JSON.
#[derive(Serialize)]
struct Found {
    /// The size of the file.
    bytes: u64,
    /// The number of values of all channels.
    values: u64,
    task_bytes: u64,
    channels: Vec<Channel>,
    /// Whether another way of counting found the same, if `--verify` was given.
    verified: Option<bool>,
}

#[derive(Serialize)]
struct Channel {
    channel: &'static str,
    /// The smallest and the largest value that occurs; null if there is none.
    least: Option<usize>,
    most: Option<usize>,
    mean: Option<f64>,
    /// The most frequent value, the first of several, and how often it occurs.
    mode: Option<usize>,
    times: u64,
}

impl Found {
    fn of(command: &Command, count: &Counting, bins: &Bins, verified: Option<bool>) -> Self {
        let channels = count.layout().channels().iter().zip(bins.counts());
        Self {
            bytes: count.file_bytes(),
            values: bins.total(),
            task_bytes: command.task_bytes,
            channels: channels
                .map(|(name, counts)| Channel::of(name, counts))
                .collect(),
            verified,
        }
    }
}

impl Channel {
    fn of(channel: &'static str, counts: &[u64; 256]) -> Self {
        let total: u64 = counts.iter().sum();
        let sum: u128 = (0..)
            .zip(counts)
            .map(|(value, count)| value * u128::from(*count))
            .sum();
        let times = counts.iter().max().copied().unwrap_or(0);
        Self {
            channel,
            least: counts.iter().position(|count| *count > 0),
            most: counts.iter().rposition(|count| *count > 0),
            mean: (total > 0).then(|| sum as f64 / total as f64),
            mode: counts.iter().position(|count| *count == times && times > 0),
            times,
        }
    }

    fn line(&self) -> String {
        match (self.least, self.most, self.mean, self.mode) {
            (Some(least), Some(most), Some(mean), Some(mode)) => format!(
                "{:>6}  from {least} to {most}, mean {mean:.3}, most frequent {mode}: {} times",
                self.channel, self.times
            ),
            _ => format!("{:>6}  does not occur", self.channel),
        }
    }
}
