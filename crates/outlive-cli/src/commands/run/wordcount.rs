//! `outlive run wordcount`: the main job. Hosts are process trees, and some of them are killed.

use super::flags::Flags;
use super::left_out::{LeftOut, lines, refuse};
use super::play::{Interrupted, loading_unless, play};
use super::report::Report;
use super::unnamed::unnamed;
use crate::amount::{self, Bytes};
use crate::failure::Failure;
use clap::{Args, ValueEnum};
use outlive_workloads::driver::{Options, Outcome};
use outlive_workloads::input::Inputs;
use outlive_workloads::mapreduce::{Counts, MapReduction};
use outlive_workloads::tokens::Tokens;
use outlive_workloads::wordcount::verify::verify;
use outlive_workloads::wordcount::{WordCount, shipped_text};
use serde::Serialize;
use std::io::{self, Write};
use std::path::PathBuf;

/// The counting of words.
#[derive(Args, Debug)]
#[command(mut_arg("kill", |kill| {
    kill.help("How many hosts are killed, spread over the run [default: 2 of the shipped text, 0 of files]")
}))]
#[command(mut_arg("output", |output| {
    output.help("Write all counts there: count, tab, word; by falling count, then by word. What is there stays until all is \
        counted; it cannot be one of the inputs")
}))]
#[command(after_help = "Examples:\n  \
    outlive run wordcount                                   # the King James Bible; two of four hosts are killed\n  \
    outlive run wordcount book.txt notes/ --hosts 8 --kill 3 --verify --output counts.tsv\n  \
    zcat book.gz | outlive run wordcount /dev/stdin\n  \
    outlive run wordcount big.txt --hosts 16 --kill 8 --kill-at random --supervise none --json\n\n\
    A pipe is read to its end first, into a temporary file (TMPDIR), and put into the pod.\n\n\
    Each host is a process tree of its own (--processes), a member of a pod in /dev/shm that is made for the run and removed after it. \
    Killed hosts get SIGKILL. The counts are those of a run without failures.\n\n\
    JSON: words, distinct, left_out (path, why), seconds, cpu_seconds, units, units_redone, seed, pod, top (word, count), failures (host, \
    killed_at, detected_at, detected_by, recovered_at, rejoined_at, units_redone, ...; seconds since the hosts were \
    started) and more: docs/json.md names them all.")]
pub struct Command {
    /// Files and pipes, and directories whose files are counted; without any, the shipped text
    #[arg(value_name = "FILE|DIR")]
    inputs: Vec<PathBuf>,
    #[command(flatten)]
    flags: Flags,
    /// What a word is
    #[arg(long, value_enum, default_value_t = What::Words)]
    tokens: What,
    /// Exit with an error if a directory has an entry that cannot be read, instead of leaving it
    /// out
    #[arg(long)]
    strict: bool,
    /// How many of the most frequent words are printed
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// How much text is counted at a time, at most 1M [default: chosen by the input]
    #[arg(long, value_parser = amount::size)]
    unit: Option<u64>,
    /// Count once more, with one thread and ordinary memory, and compare
    #[arg(long)]
    verify: bool,
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
        let interrupted = Interrupted::listen()?;
        let shipped = self.inputs.is_empty().then(|| unnamed(&shipped_text()));
        let shipped = shipped.transpose()?;
        let named = match &shipped {
            Some(file) => vec![file.path().to_owned()],
            None => self.inputs.clone(),
        };
        let what = "reading the input".into();
        let inputs = loading_unless(&interrupted, what, move || Inputs::find(&named))?;
        let inputs = inputs.map_err(Failure::new)?;
        if self.strict {
            refuse(inputs.left_out())?;
        }
        let read = inputs.files().iter().map(|input| &*input.path);
        let destination = self.flags.destination(read, "counted", &interrupted)?;
        let options = self.flags.options(if shipped.is_some() { 2 } else { 0 });
        let words = WordCount {
            tokens: self.tokens.into(),
        };
        let count = MapReduction::new(words, inputs)
            .unit(self.unit)
            .workers(options.workers())
            .seed(options.seed);
        let what = format!("units of {}", Bytes(count.inputs().bytes()));
        let outcome = play(&options, &count, &interrupted, what)?;
        let wrong = match self.verify {
            true => self.check(count.inputs(), &outcome.result, &interrupted)?,
            false => None,
        };
        // What is wrong replaces nothing.
        if let (Some(destination), None) = (destination, &wrong) {
            destination.write(|out| write(&outcome.result, out))?;
        }
        let verified = self.verify.then_some(wrong.is_none());
        let told = self.tell(
            &options,
            count.inputs(),
            &outcome,
            (shipped.is_some(), verified),
        );
        wrong.map_or(told, Err)
    }

    /// What is wrong, if anything is.
    fn check(
        &self,
        inputs: &Inputs,
        counts: &Counts,
        interrupted: &Interrupted,
    ) -> Result<Option<Failure>, Failure> {
        let (inputs, tokens, counts) = (inputs.clone(), self.tokens.into(), counts.clone());
        match interrupted.unless(move || verify(&inputs, tokens, &counts))? {
            Ok(checked) => Ok(checked.err().map(Failure::new)),
            Err(error) => Err(Failure::new(format_args!(
                "the text cannot be read to count it once more: {error}"
            ))),
        }
    }

    fn tell(
        &self,
        options: &Options,
        inputs: &Inputs,
        outcome: &Outcome<Counts>,
        (shipped, verified): (bool, Option<bool>),
    ) -> Result<(), Failure> {
        let summary = Summary::of(self, options, inputs, outcome, verified);
        let to = self.flags.tell_to();
        if self.flags.json() {
            to.json(&summary)?;
            return summary.report.require_kills();
        }
        let what = if shipped {
            "the King James Bible".into()
        } else {
            format!("{} files", inputs.files().len())
        };
        to.line(format_args!(
            "{} words, {} distinct, in {} of {what}",
            summary.words,
            summary.distinct,
            Bytes(summary.bytes)
        ))?;
        summary.report.tell(to)?;
        lines(inputs.left_out()).try_for_each(|line| to.line(line))?;
        for top in &summary.top {
            to.line(format_args!("{:>10}  {}", top.count, top.word))?;
        }
        if verified == Some(true) {
            to.line("counted another way: the same")?;
        }
        summary.report.require_kills()
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

/// What came of it, as programs read it.
#[derive(Serialize)]
struct Summary {
    words: u64,
    distinct: usize,
    bytes: u64,
    left_out: Vec<LeftOut>,
    verified: Option<bool>,
    top: Vec<Top>,
    #[serde(flatten)]
    report: Report,
}

#[derive(Serialize)]
struct Top {
    word: String,
    count: u64,
}

impl Summary {
    fn of(
        command: &Command,
        options: &Options,
        inputs: &Inputs,
        outcome: &Outcome<Counts>,
        verified: Option<bool>,
    ) -> Self {
        let counts = &outcome.result;
        let top = counts.iter().take(command.top);
        Self {
            words: counts.iter().map(|(_, count)| count).sum(),
            distinct: counts.len(),
            bytes: inputs.bytes(),
            left_out: inputs.left_out().iter().map(LeftOut::of).collect(),
            verified,
            top: top
                .map(|(word, count)| Top {
                    word: String::from_utf8_lossy(word).into_owned(),
                    count: *count,
                })
                .collect(),
            report: Report::of(options, outcome),
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
