//! `wordcount-kills`: what it costs a word count that its hosts are killed (LUPIN's Table 4), and what it costs
//! that they may be (beside a word count that nobody could go on with).
//!
//! *Killed*: 16 hosts of one worker, 8 of them killed right before they commit a unit of work, which loses the
//! most, and started again; beside the same run without kills. There are more processes than cores, so the
//! cost is counted in processor time, the dead's included, and in units done again; wall time stands beside it.
//! *Alone*: one host of one worker beside a program of one thread with the standard library's hash map; two
//! workers beside one, and the same program counting two halves at once, for what the machine lets two do.
//!
//! The text is the King James Bible, again and again, in a file without a name. Every run's counts must be those
//! of the plain program, word for word, or the measurement is void.

use crate::children::Part;
use crate::paired::{Comparison, Paired};
use crate::row::{Goal, How, Row};
use crate::statistics::{median, median_estimate};
use crate::{Run, Study, StudyError, machine};
use outlive::supervise::{Place, Stop};
use outlive_workloads::driver::{self, KillAt, Options, Outcome, Supervise};
use outlive_workloads::host;
use outlive_workloads::input::Inputs;
use outlive_workloads::tokens::Tokens;
use outlive_workloads::wordcount::{WordCount, count_alone, shipped_text, sort};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

pub const STUDY: Study = Study {
    name: "wordcount-kills",
    about: "a word count while its hosts are killed (LUPIN Table 4), and beside a plain one",
    body: study,
};

const HOSTS: u32 = 16;
const KILLS: u32 = 8;
const MB: usize = 1_000_000;

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    let megabytes = run.effort().of(1, 50, 520);
    let text = Text::of(megabytes * MB, 1)?;
    run.begin("the plain program counts");
    let expected = text.count_alone()?.1;
    killed(run, &text, &expected, megabytes)?;
    alone(run, &text, &expected, megabytes)
}

type Counts = Vec<(Vec<u8>, u64)>;

/// Text in files without names, which other processes open through this one.
struct Text {
    files: Vec<File>,
    inputs: Inputs,
}

impl Text {
    /// At least `bytes` of text in `parts` files of whole copies.
    fn of(bytes: usize, parts: usize) -> Result<Self, StudyError> {
        let copy = shipped_text();
        // Of less than a copy whole lines, so that a test need not count all of it.
        let cut = bytes.min(copy.len());
        let end = copy[..cut].iter().rposition(|byte| *byte == b'\n');
        let copy = &copy[..end.map_or(cut, |at| at + 1)];
        // An even number, so that halves are halves.
        let copies = bytes.div_ceil(copy.len()).next_multiple_of(2);
        let make = |_| {
            let file = memfd_create("outlive-study-text", MemfdFlags::CLOEXEC)?;
            let mut file = File::from(file);
            for _ in 0..copies / parts {
                file.write_all(copy)?;
            }
            Ok(file)
        };
        let files: std::io::Result<Vec<File>> = (0..parts).map(make).collect();
        let files = files.map_err(StudyError::io("writing the text to memory"))?;
        let paths: Vec<PathBuf> = files.iter().map(path).collect();
        let inputs = Inputs::find(&paths).map_err(|error| StudyError::void(error.to_string()))?;
        Ok(Self { files, inputs })
    }

    /// The seconds of the plain program, each file on a thread of its own, and what it counted in the first.
    fn count_alone(&self) -> Result<(f64, Counts), StudyError> {
        let began = Instant::now();
        let counted: Vec<std::io::Result<Counts>> = std::thread::scope(|scope| {
            let threads: Vec<_> = self
                .files
                .iter()
                .map(|file| scope.spawn(|| count(&path(file))))
                .collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread.join().expect("a thread that counts")
            };
            threads.into_iter().map(join).collect()
        });
        let seconds = began.elapsed().as_secs_f64();
        let first = counted.into_iter().collect::<Result<Vec<_>, _>>();
        let mut first = first.map_err(StudyError::io("reading the text"))?;
        Ok((seconds, first.swap_remove(0)))
    }
}

fn path(file: &File) -> PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into()
}

fn count(path: &Path) -> std::io::Result<Counts> {
    let counts = count_alone(path, Tokens::default())?;
    let mut counts: Counts = counts
        .into_iter()
        .map(|(word, count)| (word.into_vec(), count))
        .collect();
    sort(&mut counts);
    Ok(counts)
}

/// Counts with hosts that may be killed.
fn count_in_pod(
    run: &Run<'_>,
    text: &Text,
    expected: &Counts,
    [hosts, threads, kills]: [u32; 3],
) -> Result<Outcome, StudyError> {
    run.go_on()?;
    let options = Options {
        hosts,
        threads,
        kills,
        kill_at: KillAt::Commit,
        supervise: Supervise::Restart,
        seed: 1,
        ..Options::new(text.inputs.clone())
    };
    let program = WordCount::default();
    let launcher = run.launcher().clone();
    let command = move || launcher.command(&Part::Host);
    let outcome = driver::run(
        &options,
        (program.number(), &program),
        command,
        &Stop::default(),
        &mut |_| (),
    );
    let outcome = outcome.map_err(|error| StudyError::void(error.to_string()))?;
    if outcome.totals != *expected {
        return Err(StudyError::void(format!(
            "{hosts} hosts, of which {kills} were killed, counted differently from the plain program"
        )));
    }
    Ok(outcome)
}

/// A host of a run.
pub fn play_host() -> Result<(), StudyError> {
    let place = Place::from_env().map_err(|error| StudyError::void(error.to_string()))?;
    host::work(&place, WordCount::of).map_err(|error| StudyError::Part {
        what: error.to_string(),
    })
}

fn killed(
    run: &mut Run<'_>,
    text: &Text,
    expected: &Counts,
    megabytes: usize,
) -> Result<(), StudyError> {
    let (hosts, kills) = run.effort().of((4, 1), (HOSTS, KILLS), (HOSTS, KILLS));
    let pairs = run.effort().of(1, 6, 12);
    let case = format!("{megabytes} MB, {hosts} hosts, {kills} killed right before a commit");
    let (mut with, mut without) = (Vec::new(), Vec::new());
    // A run without kills stands on both sides of each with kills.
    for pair in 0..=pairs {
        run.begin(&format!("{case}: pair {pair} of {pairs}"));
        without.push(count_in_pod(run, text, expected, [hosts, 1, 0])?);
        if pair < pairs {
            with.push(count_in_pod(run, text, expected, [hosts, 1, kills])?);
        }
    }
    let paired = |of: fn(&Outcome) -> f64| Paired {
        ours: with.iter().map(of).collect(),
        before: without[..pairs].iter().map(of).collect(),
        after: without[1..].iter().map(of).collect(),
    };
    let peer = "the same run without kills";
    let compare = |metric, paper, goal, paired: &Paired| {
        let comparison = Comparison {
            case: &case,
            metric,
            unit: "s",
            peer,
            paper,
            goal,
        };
        comparison.rows(paired).map(|row| row.how(How::Emulated))
    };
    run.answer(compare(
        "processor time, the dead's included",
        None,
        Some(Goal::ratio_at_most(1.05)),
        &paired(|outcome| outcome.cpu_seconds),
    ));
    // LUPIN, Table 4: 2.9 % slower with 8 crashes. (More hosts than cores make nothing of wall time here.)
    run.answer(compare(
        "wall time (the paper: 16 machines)",
        Some(1.029),
        None,
        &paired(|outcome| outcome.seconds),
    ));
    let redone: Vec<f64> = with.iter().map(|o| o.units_redone as f64).collect();
    let killed = with.iter().map(|o| f64::from(kills - o.kills_too_late));
    let killed: Vec<f64> = killed.collect();
    let units = with[0].units;
    let row = |metric: &str| Row::new(&case, metric, "units").how(How::Emulated);
    run.answer([
        row("units done again, the most of all runs")
            .ours_within(whole(&redone))
            .peer("threads killed", median(&killed))
            .goal(Goal::ours_at_most(median(&killed))),
        row("units in all").ours(units as f64),
        Row::new(&case, "kills that came too late in all runs", "kills")
            .how(How::Emulated)
            .ours(with.iter().map(|o| f64::from(o.kills_too_late)).sum()),
    ]);
    let detection: Vec<f64> = with
        .iter()
        .flat_map(|outcome| &outcome.failures)
        .filter_map(|failure| Some((failure.detected_at? - failure.killed_at?) * 1e6))
        .collect();
    if !detection.is_empty() {
        run.answer([
            Row::new(&case, "from a host's kill to its being told", "us")
                .how(How::Emulated)
                .ours_within(median_estimate(&detection)),
        ]);
    }
    Ok(())
}

/// The largest of what must not be larger in any run.
fn whole(data: &[f64]) -> crate::statistics::Estimate {
    let value = crate::statistics::longest(data);
    crate::statistics::Estimate {
        value,
        low: value,
        high: value,
    }
}

fn alone(
    run: &mut Run<'_>,
    text: &Text,
    expected: &Counts,
    megabytes: usize,
) -> Result<(), StudyError> {
    let rounds = run.effort().of(1, 5, 15);
    let case = format!("{megabytes} MB, one host of one worker");
    run.begin(&case);
    let seconds = |threads| {
        let outcome = count_in_pod(run, text, expected, [1, threads, 0])?;
        Ok(outcome.seconds)
    };
    let paired = Paired::measure(run, rounds, || seconds(1), || Ok(text.count_alone()?.0))?;
    let comparison = Comparison {
        case: &case,
        metric: "wall time, the making of the pod included",
        unit: "s",
        peer: "one thread, the standard library's hash map",
        paper: None,
        goal: Some(Goal::ratio_at_most(1.5)),
    };
    run.answer(comparison.rows(&paired));
    let case = format!("{megabytes} MB, one host of two workers");
    let seconds = |threads| {
        let outcome = count_in_pod(run, text, expected, [1, threads, 0])?;
        Ok(outcome.seconds)
    };
    run.begin(&case);
    // One worker's time by two workers': who is divided by stands second.
    let paired = Paired::measure(run, rounds, || seconds(1), || seconds(2))?;
    let goal = Goal::ratio_at_least(1.7);
    let faster = "how many times faster than one worker";
    let row = Row::new(&case, faster, "s")
        .ours(paired.peer())
        .peer("one worker", median(&paired.ours))
        .ratio(paired.ratio());
    let same = Row::new(&case, "A/A: ours beside itself", "s")
        .ours(paired.peer())
        .ratio(paired.same());
    run.answer([row.goal(goal), same]);
    let limit = format!(
        "{megabytes} MB, the limit: the plain program, two halves at once on {} cores",
        machine::cores()
    );
    run.begin(&limit);
    let halves = Text::of(megabytes * MB, 2)?;
    let paired = Paired::measure(
        run,
        rounds,
        || Ok(text.count_alone()?.0),
        || Ok(halves.count_alone()?.0),
    )?;
    run.answer([
        Row::new(limit, "how many times faster than the whole at once", "s")
            .peer("two threads", paired.peer())
            .ratio(paired.ratio()),
    ]);
    Ok(())
}
