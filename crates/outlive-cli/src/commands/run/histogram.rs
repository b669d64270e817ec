//! `outlive run histogram`: counts the values of a picture's channels, or of a file's bytes, on hosts that may be killed.

use super::flags::Flags;
use super::generated::{Number, numbers};
use super::play::{Interrupted, loading, loading_unless, play};
use super::unnamed::unnamed;
use crate::amount::{self, Bytes};
use crate::failure::Failure;
use clap::Args;
use outlive_workloads::histogram::{Bins, Counting, Format, generate, verify};
use serde::Serialize;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// The counting of values.
#[derive(Args, Debug)]
#[command(mut_arg("output", |output| {
    output.help("Write all counts there: channel, tab, value, tab, count; of every channel all 256 values. What is there stays \
        until all is done; it cannot be FILE")
}))]
#[command(after_help = "Examples:\n  \
    outlive run histogram photo.bmp --kill 2               # two of four hosts are killed\n  \
    outlive run histogram disk.img --bytes --output counts.tsv --verify\n  \
    zcat disk.img.gz | outlive run histogram /dev/stdin\n  \
    outlive run histogram random:8000:4000 --hosts 2 --json\n\n\
    FILE is a picture (a bitmap of 8, 24 or 32 bits; PPM or PGM, binary, of one byte a value), whose channels are counted apart, \
    without header, padding and alpha, or any other file, whose bytes are counted. A compressed picture (PNG, JPEG and others) is \
    refused unless --bytes is given. A file stays where it is: each host reads the parts that it \
    counts. A pipe or /dev/stdin is read to its end first, into a temporary file (TMPDIR), and put into the pod. random:WIDTH:HEIGHT[:SEED] is a generated bitmap.\n\n\
    Each host is a process tree of its own (--processes), a member of a pod in /dev/shm that is made for the run and removed after it. \
    Killed hosts get SIGKILL. The counts are those of a run without failures.\n\n\
    JSON: result (bytes, values, task_bytes, channels: channel, least, most, mean, mode, times; verified), seconds, cpu_seconds, \
    units, units_redone, seed, pod, failures and more: docs/json.md names them all.")]
pub struct Command {
    /// A bitmap, PPM or PGM, any other file or pipe, or random:WIDTH:HEIGHT[:SEED]
    #[arg(value_name = "FILE")]
    file: OsString,
    #[command(flatten)]
    flags: Flags,
    /// Count the bytes of the file, also if it is a picture
    #[arg(long)]
    bytes: bool,
    /// How much of the file a task counts at most
    #[arg(long, value_name = "SIZE", default_value = "8M", value_parser = amount::size)]
    task_bytes: u64,
    /// Count once more, another way and with one thread, and compare
    #[arg(long)]
    verify: bool,
}

impl Command {
    pub fn run(self) -> Result<(), Failure> {
        let interrupted = Interrupted::listen()?;
        let side = |name| Number {
            name,
            default: None,
            range: 1..=30_000,
        };
        let seed = Number {
            name: "SEED",
            default: Some(1),
            range: 0..=u64::MAX,
        };
        let form = [side("WIDTH"), side("HEIGHT"), seed];
        let generated = match numbers(&self.file, &form)? {
            Some([width, height, seed]) => Some(loading("drawing a picture".into(), || {
                unnamed(&generate::bmp(width as u32, height as u32, seed))
            })?),
            None => None,
        };
        let named = Path::new(&self.file);
        let path = generated.as_ref().map_or(named, |file| file.path());
        let destination = self.flags.destination([path], "counted", &interrupted)?;
        let format = match self.bytes {
            true => Format::Bytes,
            false => Format::Any,
        };
        let (what, opened) = (format!("reading {}", named.display()), path.to_owned());
        let count = loading_unless(&interrupted, what, move || Counting::open(&opened, format))?;
        let count = count.map_err(Failure::new)?;
        let count = count.task_bytes(self.task_bytes);
        let options = self.flags.options(0);
        let what = format!("parts of {}", Bytes(count.file_bytes()));
        let outcome = play(&options, &count, &interrupted, what)?;
        let bins = &outcome.result;
        let wrong = match self.verify {
            true => check(&count, bins, &interrupted)?,
            false => None,
        };
        // What is wrong replaces nothing.
        if let (Some(destination), None) = (destination, &wrong) {
            destination.write(|out| write(count.layout().channels(), bins, out))?;
        }
        let found = Found::of(&self, &count, bins, self.verify.then_some(wrong.is_none()));
        let headline = format!(
            "{} values in {} of {}, counted by parts of {}",
            found.values,
            Bytes(found.bytes),
            named.display(),
            Bytes(self.task_bytes),
        );
        let checked =
            (found.verified == Some(true)).then(|| "counted another way: the same".into());
        // Of a file without a value, there is nothing to say of each channel.
        let channels = found.channels.iter().filter(|_| found.values > 0);
        let empty =
            (found.values == 0).then(|| "the file is empty: there was nothing to count".into());
        let lines = empty.into_iter();
        let lines = lines.chain(channels.map(Channel::line)).chain(checked);
        let told = self.flags.tell(&options, &outcome, &found, headline, lines);
        wrong.map_or(told, Err)
    }
}

/// What is wrong, if anything is.
fn check(
    count: &Counting,
    bins: &Bins,
    interrupted: &Interrupted,
) -> Result<Option<Failure>, Failure> {
    let (count, bins) = (count.clone(), bins.clone());
    let checked = interrupted.unless(move || {
        let file = fs::read(count.path())?;
        if file.len() as u64 != count.file_bytes() {
            return Err(io::Error::other("it has changed since it was counted"));
        }
        Ok(verify::verify(&file, count.layout(), &bins))
    })?;
    match checked {
        Ok(Ok(())) => Ok(None),
        Ok(Err(wrong)) => Ok(Some(Failure::new(wrong))),
        Err(error) => Err(Failure::new(format_args!(
            "the file cannot be read to count it once more: {error}"
        ))),
    }
}

fn write(channels: &[&str], bins: &Bins, out: &mut dyn Write) -> io::Result<()> {
    for (channel, counts) in channels.iter().zip(bins.counts()) {
        for (value, count) in counts.iter().enumerate() {
            writeln!(out, "{channel}\t{value}\t{count}")?;
        }
    }
    Ok(())
}

/// What came of it, as programs read it.
#[derive(Serialize)]
struct Found {
    /// Of the file.
    bytes: u64,
    /// Of all channels.
    values: u64,
    task_bytes: u64,
    channels: Vec<Channel>,
    /// Whether another count found the same, if it was asked for.
    verified: Option<bool>,
}

#[derive(Serialize)]
struct Channel {
    channel: &'static str,
    /// The smallest value that is there, and the largest; null if there is none.
    least: Option<usize>,
    most: Option<usize>,
    mean: Option<f64>,
    /// The most frequent value, the first of several, and how often it is there.
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
                "{:>6}  from {least} to {most}, {mean:.3} in the mean, {mode} most often: {} times",
                self.channel, self.times
            ),
            _ => format!("{:>6}  does not occur", self.channel),
        }
    }
}
