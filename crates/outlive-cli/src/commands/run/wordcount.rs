//! `outlive run wordcount`: counts words on hosts, and some of them are killed.

use super::destination::Destination;
use super::flags::Flags;
use super::left_out::{LeftOut, lines, refuse};
use super::play::loading_unless;
use super::steps::{Run, Steps, Text, Verdict};
use super::unnamed::unnamed;
use crate::amount::{self, Bytes};
use crate::failure::Failure;
use clap::{Args, ValueEnum};
use outlive_programs::mapreduce::{Counts, MapReduction};
use outlive_programs::tokens::Tokens;
use outlive_programs::wordcount::verify::verify;
use outlive_programs::wordcount::{WordCount, shipped_text};
use outlive_run::input::Inputs;
use serde::Serialize;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

/// Arguments of `outlive run wordcount`.
#[derive(Args, Debug)]
#[command(mut_arg("kill", |kill| {
    kill.help("Number of hosts to kill, spread over the run; the command exits with 1 if fewer are \
        killed [default: 2 for the included text, 0 for files]")
}))]
#[command(mut_arg("output", |output| {
    output.help("Write all counts to this file, one per line: count, tab, word; in descending order of \
        count, then by word. An existing file is replaced only after all is done; it cannot be an input")
}))]
#[command(after_help = "Examples:\n  \
    outlive run wordcount                                   # the King James Bible; two of four hosts are killed\n  \
    outlive run wordcount book.txt notes/ --hosts 8 --kill 3 --verify --output counts.tsv\n  \
    zcat book.gz | outlive run wordcount /dev/stdin\n  \
    outlive run wordcount big.txt --hosts 16 --kill 8 --kill-at random --supervise none --json\n\n\
    A pipe is first read to its end into a temporary file (in TMPDIR), and then put into the \
    pod.\n\n\
    Each host is a process tree of its own (--processes) and a member of a pod in /dev/shm that is \
    created for the run and removed after it. Hosts are killed by SIGKILL. The counts are \
    identical to those of a run without failures.\n\n\
    JSON: words, distinct, left_out (path, why), seconds, cpu_seconds, units, units_redone, seed, \
    pod, top (word, count), failures (host, killed_at, detected_at, detected_by, recovered_at, \
    rejoined_at, units_redone, ...; seconds since the hosts were started) and more: docs/json.md \
    names them all.")]
pub struct Command {
    /// Files, pipes, and directories with all their files [default: the included King James Bible]
    #[arg(value_name = "FILE|DIR")]
    inputs: Vec<PathBuf>,
    #[command(flatten)]
    flags: Flags,
    /// Definition of a word
    #[arg(long, value_enum, default_value_t = What::Words)]
    tokens: What,
    /// Exit with an error if a directory has an entry that cannot be read, instead of leaving it
    /// out
    #[arg(long)]
    strict: bool,
    /// Number of the most frequent words that are printed
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// Size of a unit, the text that one task counts, at most 1M [default: depends on the input]
    #[arg(long, value_parser = amount::size)]
    unit: Option<u64>,
    /// Count again with one thread and ordinary memory, and compare
    #[arg(long)]
    verify: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// Runs of alphanumeric characters, in lower case
    Words,
    /// Text between white space, as `tr -s '[:space:]' '\n' | sort | uniq -c` counts it in the C
    /// locale: an empty word if the text begins with white space. The end of a file ends a word
    Whitespace,
}

impl Command {
    pub fn run(self) -> Result<(), Failure> {
        let kills = if self.inputs.is_empty() { 2 } else { 0 };
        let mut run = Run::begin(&self.flags, kills, self.verify)?;
        let shipped = self.inputs.is_empty().then(|| unnamed(&shipped_text()));
        let shipped = shipped.transpose()?;
        let named = match &shipped {
            Some(file) => vec![file.path().to_owned()],
            None => self.inputs.clone(),
        };
        let what = "reading the input".into();
        let inputs = loading_unless(&run.interrupted, what, move || Inputs::find(&named))?;
        let inputs = inputs.map_err(Failure::new)?;
        if self.strict {
            refuse(inputs.left_out())?;
        }
        let read = inputs.files().iter().map(|input| &*input.path);
        run.open_destination(read, "counted")?;
        let words = WordCount {
            tokens: self.tokens.into(),
        };
        let count = MapReduction::new(words, inputs)
            .unit(self.unit)
            .workers(run.options.workers())
            .seed(run.options.seed);
        let steps = Steps {
            units: format!("units of {}", Bytes(count.inputs().bytes())),
            check: {
                let (inputs, tokens) = (count.inputs().clone(), self.tokens.into());
                move |counts: Arc<Counts>| match verify(&inputs, tokens, &counts) {
                    Ok(checked) => Ok(Verdict::of(
                        checked,
                        "verified: counting in another way gave the same result",
                    )),
                    Err(error) => Err(Failure::new(format_args!(
                        "the text cannot be read again for --verify: {error}"
                    ))),
                }
            },
            write: |counts: &Counts, destination: Destination| {
                destination.write(|out| write(counts, out))
            },
            describe: |counts: &Counts, verdict: Option<&Verdict>| {
                let inputs = count.inputs();
                let found = Found::of(counts, inputs, self.top, verdict);
                let what = match &shipped {
                    Some(_) => "the King James Bible".into(),
                    None => format!("{} files", inputs.files().len()),
                };
                let headline = format!(
                    "{} words, {} distinct, in {} of {what}",
                    found.words,
                    found.distinct,
                    Bytes(found.bytes)
                );
                let top = found.top.iter();
                let top = top.map(|top| format!("{:>10}  {}", top.count, top.word));
                Text {
                    is_flat: true,
                    headline,
                    lines: lines(inputs.left_out()).chain(top).collect(),
                    found,
                }
            },
        };
        run.play(&count, steps)
    }
}

fn write(counts: &Counts, out: &mut dyn Write) -> io::Result<()> {
    for (word, count) in counts {
        write!(out, "{count}\t")?;
        out.write_all(word)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// The result for JSON.
#[derive(Serialize)]
struct Found {
    words: u64,
    distinct: usize,
    bytes: u64,
    left_out: Vec<LeftOut>,
    verified: Option<bool>,
    top: Vec<Top>,
}

#[derive(Serialize)]
struct Top {
    word: String,
    count: u64,
}

impl Found {
    fn of(counts: &Counts, inputs: &Inputs, top: usize, verdict: Option<&Verdict>) -> Self {
        let top = counts.iter().take(top).map(|(word, count)| Top {
            word: String::from_utf8_lossy(word).into_owned(),
            count: *count,
        });
        Self {
            words: counts.iter().map(|(_, count)| count).sum(),
            distinct: counts.len(),
            bytes: inputs.bytes(),
            left_out: inputs.left_out().iter().map(LeftOut::of).collect(),
            verified: verdict.map(Verdict::is_right),
            top: top.collect(),
        }
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
