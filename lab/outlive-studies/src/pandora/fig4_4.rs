//! `pandora-fig4.4` to `pandora-fig4.6`: throughput and latency without failures.
//!
//! Figures 4.4 and 4.5: the cost of logging each latch before it is acquired (*log-a-latch*, the
//! thesis's naive scheme), beside `ford`. Their captions say that the baseline is normalised to the
//! naive scheme, and the text the opposite; here the ratio is that of log-a-latch to ford. The text
//! gives 25% for the standard benchmarks, and 24%, 20% and 9% for each of them; Figure 4.5 has
//! latencies, which the text does not mention.
//!
//! Figure 4.6: the cost of implicit latch logging, as long as no server fails: the same protocol,
//! with and without the check of a latch's holder against the failed process ids.
//!
//! `pandora-latch-to-log`: the alternative that section 5.3.3 names and does not measure, an entry
//! in the round trip of the validation, beside `pandora`.

use super::steady::{Round, Steady, Until};
use super::subject::{Kind, Subject};
use super::{Backend, paper};
use crate::paired::{Comparison, Paired};
use crate::row::{Goal, How, Row};
use crate::statistics::Estimate;
use crate::{Run, Study, StudyError};
use outlive_store::protocol::Protocol;
use std::cell::RefCell;
use std::time::Duration;

pub const FIG4_4: Study = Study {
    name: "pandora-fig4.4",
    about: "throughput of log-a-latch beside FORD's (Tandem thesis, Figure 4.4)",
    body: |run| {
        compare(run, Protocol::LogALatch, Protocol::Ford, Metric::Throughput)?;
        contradictions(run);
        Ok(())
    },
};

pub const FIG4_5: Study = Study {
    name: "pandora-fig4.5",
    about: "latency of log-a-latch beside FORD's (Tandem thesis, Figure 4.5)",
    body: |run| {
        compare(run, Protocol::LogALatch, Protocol::Ford, Metric::Latency)?;
        contradictions(run);
        Ok(())
    },
};

pub const LATCH_TO_LOG: Study = Study {
    name: "pandora-latch-to-log",
    about: "logs in the round trip of the validation, not after it (Tandem thesis, section 5.3.3)",
    body: |run| {
        for metric in [Metric::Throughput, Metric::Latency] {
            compare(run, Protocol::LatchToLog, Protocol::Pandora, metric)?;
        }
        Ok(())
    },
};

pub const FIG4_6: Study = Study {
    name: "pandora-fig4.6",
    about: "the cost of implicit latch logging (Tandem thesis, Figure 4.6)",
    body: implicit,
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Metric {
    Throughput,
    Latency,
}

/// The number of coordinators of a thread, as in the thesis.
const COORDINATORS: u16 = 7;
/// The number of coordinators of Figure 4.6.
const IMPLICIT: u16 = 16;
/// The bar of Figure 4.6, if two equal rounds differ by less.
const COST: f64 = 1.01;

/// Measures `first` beside `second` without failures, with each benchmark.
fn compare(
    run: &mut Run<'_>,
    first: Protocol,
    second: Protocol,
    metric: Metric,
) -> Result<(), StudyError> {
    run.go_on()?;
    let printed = |kind| {
        let is_printed = first == Protocol::LogALatch && metric == Metric::Throughput;
        is_printed.then(|| paper::naive_throughput(kind))
    };
    for kind in Kind::ALL {
        let Some(subject) = Subject::of(kind, run.effort()) else {
            let case = format!("{} (not measured: its load takes seconds)", kind.name());
            if let Some(paper) = printed(kind) {
                run.answer([Row::paper_alone(case, "throughput", "times FORD's", paper)]);
            }
            continue;
        };
        let backend = Backend::link();
        let case = format!(
            "{}, {COORDINATORS} coordinators, {}",
            kind.name(),
            backend.name()
        );
        run.begin(&format!("{case}: the tables are filled"));
        let side = |protocol| {
            let side = Steady::new(subject, protocol, backend, COORDINATORS);
            Ok::<_, StudyError>(RefCell::new(side?))
        };
        let (ours, peer) = (side(first)?, side(second)?);
        let until = Until::Time(Duration::from_millis(run.effort().of(10, 60, 200)));
        let rounds = run.effort().of(2, 12, 40);
        run.begin(&case);
        let verbs = |side: &RefCell<Steady>| Ok(side.borrow_mut().round(until)?.verbs_each());
        // The first rounds fill the caches of addresses.
        let each: [f64; 2] = {
            let [ours, peer]: [Result<f64, StudyError>; 2] = [verbs(&ours), verbs(&peer)];
            [ours?, peer?]
        };
        let of = |round: Round| match metric {
            Metric::Throughput => round.throughput(),
            Metric::Latency => round.latency,
        };
        let measure = |side: &RefCell<Steady>| Ok(of(side.borrow_mut().round(until)?));
        let paired = Paired::measure(run, rounds, || measure(&ours), || measure(&peer))?;
        let is_throughput = metric == Metric::Throughput;
        let comparison = Comparison {
            case: &case,
            metric: if is_throughput {
                "throughput"
            } else {
                "mean latency"
            },
            unit: if is_throughput {
                "transactions/s"
            } else {
                "us"
            },
            peer: second.name(),
            paper: printed(kind),
            goal: None,
        };
        run.answer(comparison.rows(&paired).map(|row| row.how(How::Emulated)));
        run.answer(
            [Row::new(&case, "verbs of a committed transaction", "verbs")
                .ours(each[0])
                .peer(second.name(), each[1])
                .how(How::Emulated)],
        );
        ours.into_inner().check()?;
        peer.into_inner().check()?;
    }
    Ok(())
}

/// Prints the numbers of the thesis that contradict each other.
fn contradictions(run: &mut Run<'_>) {
    let contradicts = "the thesis contradicts itself: see the text on Figure 4.4";
    run.answer(paper::NAIVE_OVERHEADS.map(|(of, percent)| {
        let metric = format!("overhead of log-a-latch, {of}");
        Row::paper_alone(contradicts, metric, "%", percent)
    }));
    run.answer([
        Row::paper_alone(contradicts, "share of writes in TPC-C, the text", "%", 95.0),
        Row::paper_alone(contradicts, "share of writes in TPC-C, its mix", "%", 92.0),
        Row::paper_alone(contradicts, "log recovery of SmallBank, naive", "ms", 2.7),
        Row::paper_alone(contradicts, "log recovery of SmallBank, Pandora", "ms", 5.3),
    ]);
}

fn implicit(run: &mut Run<'_>) -> Result<(), StudyError> {
    run.go_on()?;
    let Some(subject) = Subject::of(Kind::Micro, run.effort()) else {
        return Err(StudyError::void(
            "the microbenchmark has a size for each effort",
        ));
    };
    for backend in [Backend::link(), Backend::Bare] {
        let case = format!("micro, {IMPLICIT} coordinators, {}", backend.name());
        run.begin(&format!("{case}: the tables are filled"));
        let steady = Steady::new(subject, Protocol::Pandora, backend, IMPLICIT)?;
        let steady = RefCell::new(steady);
        let until = Until::Time(Duration::from_millis(run.effort().of(10, 60, 200)));
        let rounds = run.effort().of(2, 12, 40);
        run.begin(&case);
        steady.borrow_mut().round(until)?;
        let measure = |steals, of: fn(&Round) -> f64| {
            let mut steady = steady.borrow_mut();
            steady.set_steals_latches(steals);
            Ok(of(&steady.round(until)?))
        };
        let (of, metric, unit): (fn(&Round) -> f64, _, _) = match backend {
            // The processor waits for the link, so its time is that of the link.
            Backend::Link(_) => (|it| 1e6 / it.throughput(), "time of a transaction", "us"),
            Backend::Bare => (Round::cpu_each, "processor time of a transaction", "us"),
        };
        let paired = Paired::measure(run, rounds, || measure(true, of), || measure(false, of))?;
        let comparison = Comparison {
            case: &case,
            metric,
            unit,
            peer: "without the check of failed ids",
            paper: None,
            goal: Some(Goal::ratio_at_most(COST.max(paired.same().high))),
        };
        run.answer(comparison.rows(&paired).map(|row| row.how(How::Emulated)));
        let steady = steady.into_inner();
        let counts = steady.counts();
        run.answer([Row::new(
            &case,
            "latches of live holders that were met",
            "per 1000 commits",
        )
        .ours(1e3 * counts.latched as f64 / counts.committed.max(1) as f64)
        .how(How::Emulated)]);
        steady.check()?;
    }
    verbs(run, subject)
}

/// Counts the verbs of the same transactions with and without the check.
fn verbs(run: &mut Run<'_>, subject: Subject) -> Result<(), StudyError> {
    let transactions = run.effort().of(100, 10_000, 100_000);
    let case = format!("micro, the same {transactions} transactions, one coordinator");
    run.begin(&case);
    let count = |steals| {
        let mut steady = Steady::new(subject, Protocol::Pandora, Backend::Bare, 1)?;
        steady.set_steals_latches(steals);
        let round = steady.round(Until::Transactions(transactions))?;
        steady.check()?;
        Ok::<_, StudyError>(round.verbs as f64)
    };
    let (with, without) = (count(true)?, count(false)?);
    run.answer([Row::new(&case, "verbs", "verbs")
        .ours(with)
        .peer("without the check of failed ids", without)
        .ratio(Estimate::exactly(with / without))
        .goal(Goal::ratio_at_most(1.0))
        .how(How::Emulated)]);
    Ok(())
}
