//! `pandora-fig4.13` and `pandora-fig4.14`: accesses that meet a latch of a server under recovery
//! wait for its end, with few and with many hot objects, and with a fast and a slow recovery.
//!
//! One of two compute servers is killed at full load. The slow recovery is the same one over an
//! emulated link with a long round trip, as a stand-in for recoveries that scan the store.

use super::Backend;
use super::failover::{BIN, Outcome, SERVERS, Setting, Stage, Victim};
use super::fig4_8::timeline;
use super::subject::{Kind, Subject};
use crate::row::{How, Row};
use crate::statistics::median_estimate;
use crate::{Run, Study, StudyError};
use outlive_store::protocol::Protocol;
use outlive_store::verbs::Link;
use std::time::Duration;

pub const FIG4_13: Study = Study {
    name: "pandora-fig4.13",
    about: "stalling with 1,000 hot objects, fast and slow recovery (Tandem thesis, Figure 4.13)",
    body: |run| study(run, 1000),
};

pub const FIG4_14: Study = Study {
    name: "pandora-fig4.14",
    about: "stalling with 100,000 hot objects, fast and slow recovery (Tandem thesis, Figure 4.14)",
    body: |run| study(run, 100_000),
};

/// The number of coordinators of each compute server.
const COORDINATORS: u16 = 64;
/// The round trip of the slow recovery, which has seven.
const SLOW: Duration = Duration::from_millis(10);

fn study(run: &mut Run<'_>, hot: u64) -> Result<(), StudyError> {
    run.go_on()?;
    let subject = Subject::of(Kind::Micro, run.effort());
    let mut subject = subject.ok_or_else(|| StudyError::void("there is no microbenchmark"))?;
    subject.hot = hot.min(subject.size);
    let setting = Setting {
        subject,
        protocol: Protocol::Pandora,
        backend: Backend::link(),
        coordinators: run.effort().of(4, COORDINATORS, COORDINATORS),
        // Longer than any recovery here.
        stall: u32::MAX,
        caps: None,
        recovery: Backend::link(),
        before: run.effort().of(12, 40, 40) * BIN,
        after: run.effort().of(22, 40, 40) * BIN,
    };
    let kills = run.effort().of(1, 5, 20);
    let slow = Backend::Link(Link {
        round_trip: SLOW,
        ..Link::default()
    });
    let mut stage = Stage::new(run, setting, (2 * kills, false))?;
    for (what, recovery) in [("fast", Backend::link()), ("slow", slow)] {
        let case = format!(
            "micro, {} hot keys, {what} recovery, {} coordinators on each of {SERVERS} compute \
             servers, {}",
            subject.hot,
            setting.coordinators,
            setting.backend.name()
        );
        stage.set_recovery(recovery);
        let mut outcomes = Vec::new();
        for kill in 1..=kills {
            run.go_on()?;
            run.begin(&format!("{case}: kill {kill} of {kills}"));
            outcomes.push(stage.run(run, Victim::Compute, None)?);
        }
        run.answer(rows(&case, &outcomes));
        run.answer(timeline(&case, &outcomes));
    }
    stage.check()
}

fn rows(case: &str, outcomes: &[Outcome]) -> Vec<Row> {
    let estimate = |metric, unit, of: &dyn Fn(&Outcome) -> f64| {
        let values: Vec<f64> = outcomes.iter().map(of).collect();
        Row::new(case, metric, unit)
            .ours_within(median_estimate(&values))
            .how(How::Emulated)
    };
    let usual = |it: &Outcome| {
        let from = it.warm();
        it.commits(from, it.killed) as f64 / (it.killed - from) as f64
    };
    let lowest = |it: &Outcome| {
        let bins = (0..20).map(|bin| {
            let from = it.killed + bin * BIN;
            it.commits(from, from + BIN) as f64 / BIN as f64
        });
        bins.fold(f64::INFINITY, f64::min) / usual(it)
    };
    let after = |it: &Outcome| {
        let (from, to) = (it.killed, it.killed + 20 * BIN);
        it.commits(from, to) as f64 / (to - from) as f64 / usual(it)
    };
    let stalled: u64 = { outcomes.iter().flat_map(|it| &it.lanes) }
        .map(|lane| lane.stalled)
        .sum();
    vec![
        estimate("from the kill to the end of recovery", "us", &|it| {
            (it.recovered - it.killed) as f64 / 1e3
        }),
        estimate(
            "the lowest throughput in 5 ms of the 100 ms after the kill to that before",
            "times",
            &lowest,
        ),
        estimate("throughput in these 100 ms to that before", "times", &after),
        Row::new(case, "accesses that waited, in all runs", "accesses")
            .ours(stalled as f64)
            .how(How::Emulated),
    ]
}
