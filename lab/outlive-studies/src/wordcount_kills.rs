//! `wordcount-kills`: the cost of kills of hosts to a word count (LUPIN's Table 4), and the cost of
//! being able to survive kills (against a plain word count, which cannot be continued).
//!
//! *Killed*: 16 hosts of one worker; 8 of them are killed right before they commit a unit of work,
//! which loses the most, and restarted. The peer is the same run without kills. There are more
//! processes than cores, so the cost is counted in processor time, including that of dead
//! processes, and in re-executed units; wall time is reported too. *Alone*: one host of one worker
//! against a program of one thread with the standard library's hash map; two workers against one;
//! and the limit of that, two concurrent runs of one worker, each on one half of the text, which
//! share only the machine. A run of one worker precedes and follows each of the others.
//!
//! The text is repeated copies of the King James Bible ([`text`](crate::text)), made once. The
//! plain program counts it first; every run must have the same counts, word for word, or the
//! measurement is void.

use crate::children::Launcher;
use crate::paired::{Comparison, Paired};
use crate::row::{Goal, How, Row};
use crate::statistics::{Estimate, longest, median, median_estimate};
use crate::text::{Text, counting};
use crate::{Run, Study, StudyError, machine};
use outlive_programs::mapreduce::Counts;
use outlive_run::driver::{KillAt, Options, Outcome, Supervise};
use outlive_run::input::Inputs;

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
    run.begin(&format!("{megabytes} MB of text are written to memory"));
    let text = Text::of(megabytes * MB)?;
    run.begin("the plain program counts them");
    let whole = text.count_alone()?.1;
    let half = halved(&whole)?;
    killed(run, &text, &whole, megabytes)?;
    alone(run, &text, [&whole, &half], megabytes)
}

/// Returns the counts of one of two equal halves.
fn halved(whole: &Counts) -> Result<Counts, StudyError> {
    if whole.iter().any(|(_, count)| count % 2 != 0) {
        return Err(StudyError::void("two generations of the text differ"));
    }
    Ok(whole
        .iter()
        .map(|(word, count)| (word.clone(), count / 2))
        .collect())
}

/// Counts with hosts that may be killed.
fn count_in_pod(
    launcher: &Launcher,
    inputs: &Inputs,
    expected: &Counts,
    [hosts, threads, kills]: [u32; 3],
) -> Result<Outcome<Counts>, StudyError> {
    let options = Options {
        hosts,
        threads,
        kills,
        kill_at: KillAt::Commit,
        supervise: Supervise::Restart,
        seed: 1,
        ..Options::default()
    };
    let count = counting(inputs, &options);
    let outcome = crate::hosts::run(launcher, &options, &count)?;
    if outcome.result != *expected {
        return Err(StudyError::void(format!(
            "{hosts} hosts, of which {kills} were killed, counted differently from the plain program"
        )));
    }
    Ok(outcome)
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
    let count = |run: &Run<'_>, kills| {
        run.go_on()?;
        count_in_pod(run.launcher(), &text.whole, expected, [hosts, 1, kills])
    };
    // Each run with kills is between two without.
    for pair in 0..=pairs {
        run.begin(&format!("{case}: pair {pair} of {pairs}"));
        without.push(count(run, 0)?);
        if pair < pairs {
            with.push(count(run, kills)?);
        }
    }
    let paired = |of: fn(&Outcome<Counts>) -> f64| Paired {
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
        "processor time, including dead workers",
        None,
        Some(Goal::ratio_at_most(1.05)),
        &paired(|outcome| outcome.cpu_seconds),
    ));
    let cost = |paired: &Paired| {
        let one = |more: f64| more * 1e3 / f64::from(kills);
        let costs: Vec<f64> = paired.more().into_iter().map(one).collect();
        median_estimate(&costs)
    };
    run.answer([Row::new(&case, "processor time of one kill", "ms")
        .how(How::Emulated)
        .ours_within(cost(&paired(|outcome| outcome.cpu_seconds)))]);
    // LUPIN, Table 4: 2.9 % slower with 8 crashes. (With more hosts than cores, wall time means
    // little here.)
    run.answer(compare(
        "wall time (the paper: 16 machines)",
        Some(1.029),
        None,
        &paired(|outcome| outcome.seconds),
    ));
    let redone: Vec<f64> = with.iter().map(|o| o.units_redone as f64).collect();
    let killed = with.iter().map(|o| f64::from(kills - o.kills_missed));
    let killed: Vec<f64> = killed.collect();
    let units = with[0].units;
    let row = |metric: &str| Row::new(&case, metric, "units").how(How::Emulated);
    run.answer([
        row("units re-executed, the maximum of all runs")
            .ours_within(Estimate::exactly(longest(&redone)))
            .peer("threads killed", median(&killed))
            .goal(Goal::ours_at_most(median(&killed))),
        row("units in all").ours(units as f64),
        Row::new(
            &case,
            "kills after the end of the run, in all runs",
            "kills",
        )
        .how(How::Emulated)
        .ours(with.iter().map(|o| f64::from(o.kills_missed)).sum()),
    ]);
    let detection: Vec<f64> = with
        .iter()
        .flat_map(|outcome| &outcome.failures)
        .filter_map(|failure| Some((failure.detected_at? - failure.killed_at?) * 1e6))
        .collect();
    if !detection.is_empty() {
        run.answer([
            Row::new(&case, "from a host's kill to its notification", "us")
                .how(How::Emulated)
                .ours_within(median_estimate(&detection)),
        ]);
    }
    Ok(())
}

/// The times of another run, each between two runs of one worker.
#[derive(Default)]
struct Between {
    them: Vec<f64>,
    before: Vec<f64>,
    after: Vec<f64>,
}

impl Between {
    /// Returns the ratio of one worker's time to the other run's.
    fn ratio(&self) -> Estimate {
        let ones = self.before.iter().zip(&self.after);
        let ratio =
            |(it, (before, after)): (&f64, (&f64, &f64))| f64::midpoint(*before, *after) / it;
        let ratios: Vec<f64> = self.them.iter().zip(ones).map(ratio).collect();
        median_estimate(&ratios)
    }
}

fn alone(
    run: &mut Run<'_>,
    text: &Text,
    [whole, half]: [&Counts; 2],
    megabytes: usize,
) -> Result<(), StudyError> {
    let rounds = run.effort().of(1, 6, 9);
    let case = format!("{megabytes} MB, one host of one worker");
    let (launcher, inputs) = (run.launcher().clone(), &text.whole);
    let seconds = |threads| {
        let outcome = count_in_pod(&launcher, inputs, whole, [1, threads, 0])?;
        Ok(outcome.seconds)
    };
    let half_of = |inputs: &Inputs| {
        let outcome = count_in_pod(&launcher, inputs, half, [1, 1, 0])?;
        Ok::<f64, StudyError>(outcome.seconds)
    };
    let two_halves = || {
        std::thread::scope(|scope| {
            let other = scope.spawn(|| half_of(&text.halves[1]));
            let first = half_of(&text.halves[0]);
            let other = other
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            Ok(first?.max(other?))
        })
    };
    let others: [&dyn Fn() -> Result<f64, StudyError>; 3] = [
        &|| Ok(text.count_alone()?.0.wall),
        &|| seconds(2),
        &two_halves,
    ];
    let mut between: [Between; 3] = Default::default();
    let mut ones = vec![seconds(1)?];
    for round in 1..=rounds {
        run.begin(&format!("{case}, beside others: round {round} of {rounds}"));
        for (other, between) in others.iter().zip(&mut between) {
            run.go_on()?;
            between.before.extend(ones.last());
            between.them.push(other()?);
            ones.push(seconds(1)?);
            between.after.extend(ones.last());
        }
    }
    let [plain, two, halves] = between;
    let one = median(&ones);
    let same: Vec<f64> = ones.windows(2).map(|pair| pair[1] / pair[0]).collect();
    let plainly = plain.ratio();
    let faster = "speedup over one worker";
    run.answer([
        Row::new(&case, "wall time, including the creation of the pod", "s")
            .ours(one)
            .peer(
                "one thread, the standard library's hash map",
                median(&plain.them),
            )
            .ratio(plainly)
            .goal(Goal::ratio_at_most(1.5)),
        Row::new(&case, "A/A: ours beside itself", "s")
            .ours(one)
            .ratio(median_estimate(&same)),
        Row::new(
            format!("{megabytes} MB, one host of two workers"),
            faster,
            "s",
        )
        .ours(median(&two.them))
        .peer("one worker", one)
        .ratio(two.ratio())
        .goal(Goal::ratio_at_least(1.7)),
        Row::new(
            format!(
                "{megabytes} MB, the limit: two concurrent runs of one worker, each with half the \
                 input, on {} cores",
                machine::cores()
            ),
            faster,
            "s",
        )
        .ours(median(&halves.them))
        .peer("one worker", one)
        .ratio(halves.ratio()),
    ]);
    Ok(())
}
