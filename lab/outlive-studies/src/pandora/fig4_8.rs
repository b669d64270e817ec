//! `pandora-fig4.8` to `pandora-fig4.12`: throughput over time while a server fails.
//!
//! Two compute servers execute transactions in an open loop, at 40% of the capacity that both have
//! together without a limit. Each is [kept on a processor](super::caps) of its own, if there are
//! enough, because the server that is left would receive the victim's processor time otherwise. A
//! standby has the victim's processor. Then one of them is killed, with or without a standby
//! that takes its place, or one of the two memory servers is. Bins of 5 ms are aligned to the kill.
//!
//! The longest gap in the commits of the server that is not killed is compared with a sum: 1.2
//! times the longest gap in equally long windows of the same run before the kill, and the time
//! until the victim is fenced. The victims die by SIGKILL, so detection is by obituaries. After the
//! kills, the benchmark's invariant and all tables are checked.

use super::board::Left;
use super::caps::Caps;
use super::failover::{BIN, Outcome, SERVERS, Setting, Stage, Victim};
use super::subject::{Kind, Subject};
use super::{Backend, paper};
use crate::row::{Goal, How, Row};
use crate::statistics::{median, median_estimate};
use crate::{Run, Study, StudyError};
use outlive_store::protocol::Protocol;

/// A figure: a benchmark and the number of coordinators of each compute server.
#[derive(Clone, Copy)]
struct Figure {
    kind: Kind,
    coordinators: u16,
}

macro_rules! figure {
    ($name:ident, $number:literal, $about:literal, $kind:ident, $coordinators:literal) => {
        pub const $name: Study = Study {
            name: concat!("pandora-fig", $number),
            about: concat!(
                $about,
                " while a server fails (Tandem thesis, Figure ",
                $number,
                ")"
            ),
            body: |run| {
                let kind = Kind::$kind;
                let coordinators = $coordinators;
                study(run, Figure { kind, coordinators })
            },
        };
    };
}

figure!(FIG4_8, "4.8", "the microbenchmark", Micro, 64);
figure!(FIG4_9, "4.9", "SmallBank", SmallBank, 64);
figure!(FIG4_10, "4.10", "TATP", Tatp, 64);
figure!(FIG4_11, "4.11", "TPC-C", TpcC, 64);
figure!(
    FIG4_12,
    "4.12",
    "SmallBank with half the coordinators",
    SmallBank,
    32
);

/// The share of the capacity at which the servers work.
const LOAD: f64 = 0.4;
/// The bar for the first stolen latch, with obituaries, in microseconds.
pub const STOLEN: f64 = 1000.0;
/// The time for which the locks of a killed server of TiDB block conflicting transactions, because
/// a lock does not name its holder (issue 70268 of that project), in microseconds.
pub const TIDB: f64 = 20e6;
/// The bar for the longest gap, as a multiple of that in a clean window. The time until the victim
/// is fenced is added to it.
const GAP: f64 = 1.2;
/// The bar for the return of throughput with a standby, in milliseconds.
const RETURN: f64 = 10.0;
/// The bins of the figure: before the kill and after it.
const BINS: (u64, u64) = (5, 15);
/// The length of the windows in which gaps are compared, in nanoseconds.
const WINDOW: u64 = 10 * BIN;

fn study(run: &mut Run<'_>, figure: Figure) -> Result<(), StudyError> {
    run.go_on()?;
    let name = figure.kind.name();
    let Some(subject) = Subject::of(figure.kind, run.effort()) else {
        let case = format!("{name} (not measured: its load takes seconds)");
        run.begin(&case);
        let row = |metric, paper| Row::paper_alone(&case, metric, "ms", paper);
        run.answer([
            row("the failed coordinators work again", paper::BROUGHT_BACK),
            row("recovery, three replicated detectors", paper::REPLICATED),
        ]);
        return Ok(());
    };
    let setting = Setting {
        subject,
        protocol: Protocol::Pandora,
        backend: Backend::link(),
        coordinators: run.effort().of(4, figure.coordinators, figure.coordinators),
        stall: 0,
        caps: Caps::choose(),
        recovery: Backend::link(),
        before: run.effort().of(16, 60, 60) * BIN,
        after: run.effort().of(12, 30, 30) * BIN,
    };
    let kills = run.effort().of(1, 5, 20);
    run.begin(&format!("{name}: the tables are filled"));
    let mut stage = Stage::new(run, setting, (2 * kills + 1, false))?;
    run.begin(&format!("{name}: the capacity"));
    let rate = capacity(&stage.run(run, Victim::None, None)?);
    let all = format!(
        "{name}, {} coordinators on each of {SERVERS} compute servers, {}, {}",
        setting.coordinators,
        Caps::describe(setting.caps),
        setting.backend.name()
    );
    run.answer([
        Row::new(&all, "capacity of a compute server", "transactions/s")
            .ours(rate)
            .how(How::Emulated),
    ]);
    let rate = Some(LOAD * rate);
    for victim in [Victim::Compute, Victim::Replaced, Victim::Memory] {
        let what = match victim {
            Victim::Compute => "a compute server killed",
            Victim::Replaced => "a compute server killed and replaced",
            Victim::Memory => "a memory server killed",
            Victim::None => unreachable!("a server is killed"),
        };
        let case = format!("{what}: {all}");
        let mut outcomes = Vec::new();
        // Each loss of a memory server needs a store of its own.
        let kills = if victim == Victim::Memory {
            kills.min(5)
        } else {
            kills
        };
        for kill in 1..=kills {
            run.go_on()?;
            run.begin(&format!("{case}: kill {kill} of {kills}"));
            let outcome = match victim {
                Victim::Memory => {
                    let mut stage = Stage::new(run, setting, (1, true))?;
                    let outcome = stage.run(run, victim, rate)?;
                    stage.check()?;
                    outcome
                }
                _ => stage.run(run, victim, rate)?,
            };
            outcomes.push(outcome);
        }
        let rows = rows(&case, figure, victim, &outcomes);
        run.answer(rows.into_iter().map(|row| row.how(How::Emulated)));
        run.answer(timeline(&case, &outcomes));
    }
    stage.check()
}

/// The committed transactions of a compute server in a second, in a run without a limit and without
/// a kill.
fn capacity(outcome: &Outcome) -> f64 {
    let from = outcome.warm();
    let seconds = (outcome.end - from) as f64 * 1e-9;
    outcome.commits(from, outcome.end) as f64 / seconds / SERVERS as f64
}

fn rows(case: &str, figure: Figure, victim: Victim, outcomes: &[Outcome]) -> Vec<Row> {
    let column = |of: &dyn Fn(&Outcome) -> Option<f64>| -> Vec<f64> {
        outcomes.iter().filter_map(of).collect()
    };
    let since_kill = |it: &Outcome, time: u64| time.saturating_sub(it.killed) as f64 / 1e3;
    let time =
        |metric, times: &[f64]| Row::new(case, metric, "us").ours_within(median_estimate(times));
    let mut rows = vec![
        time(
            "from the kill to its detection",
            &column(&|it| Some(since_kill(it, it.detected))),
        ),
        time(
            "from the kill to the end of recovery",
            &column(&|it| Some(since_kill(it, it.recovered))),
        ),
    ];
    if victim != Victim::Memory {
        let stolen = column(&|it| Some(since_kill(it, it.first_stolen()?)));
        let kills = outcomes.len() as f64;
        rows.push(
            Row::new(case, "kills after which a latch was stolen", "kills")
                .ours(stolen.len() as f64)
                .peer("kills", kills),
        );
        if !stolen.is_empty() {
            rows.push(
                time("from the kill to the first stolen latch", &stolen)
                    .peer("locks of a dead TiDB server, as cited (not run here)", TIDB)
                    .goal(Goal::ours_at_most(STOLEN)),
            );
        }
    }
    let sum = |of: fn(&Left) -> u64| {
        let lanes = outcomes.iter().flat_map(|it| &it.lanes);
        lanes.map(of).sum::<u64>() as f64
    };
    rows.extend([
        Row::new(case, "latches stolen, in all runs", "latches").ours(sum(|it| it.stolen)),
        Row::new(case, "attempts aborted, in all runs", "attempts")
            .ours(sum(|it| it.aborted))
            .peer("committed transactions", sum(|it| it.times.len() as u64)),
    ]);
    rows.push(gap(case, victim, outcomes));
    let throughput = |it: &Outcome, from: u64, to: u64| {
        it.commits(from, to) as f64 / (to.saturating_sub(from).max(1)) as f64
    };
    let ratios = column(&|it| {
        let before = throughput(it, it.warm(), it.killed);
        // Without the time in which a standby begins.
        let after = throughput(it, it.killed + 4 * BIN, it.end);
        Some(after / before)
    });
    let mut after = Row::new(case, "throughput after the kill to that before", "times")
        .ours_within(median_estimate(&ratios));
    if figure.kind == Kind::Micro && victim == Victim::Compute {
        after = after.paper(paper::WITHOUT_REUSE);
    }
    rows.push(after);
    if victim == Victim::Replaced {
        let returned = column(&|it| Some(it.return_of_throughput()? as f64 / 1e6));
        let never = outcomes.len() - returned.len();
        rows.push(
            Row::new(case, "kills after which throughput did not return", "kills")
                .ours(never as f64),
        );
        if !returned.is_empty() {
            rows.push(
                Row::new(case, "from recovery to the return of throughput", "ms")
                    .ours_within(median_estimate(&returned))
                    .paper(paper::BROUGHT_BACK)
                    .goal(Goal::ours_at_most(RETURN)),
            );
        }
    }
    rows
}

/// Compares the longest gap in the commits of the servers that are not killed with that of clean
/// windows before the kill.
fn gap(case: &str, victim: Victim, outcomes: &[Outcome]) -> Row {
    let others = match victim {
        Victim::Memory | Victim::None => SERVERS as usize,
        Victim::Compute | Victim::Replaced => SERVERS as usize - 1,
    };
    let mut ours = Vec::new();
    let mut clean = Vec::new();
    let mut fences = Vec::new();
    for it in outcomes {
        let window = WINDOW.min(it.end - it.killed);
        ours.push(it.longest_gap(others, it.killed, it.killed + window) as f64 / 1e6);
        let count = (it.killed - it.warm()) / window;
        let gaps: Vec<f64> = (0..count)
            .map(|number| {
                let end = it.killed - number * window;
                it.longest_gap(others, end - window, end) as f64 / 1e6
            })
            .collect();
        // The windows of a run are long enough for one at least.
        clean.push(median(&gaps));
        // A death is detected when the victim is fenced.
        fences.push(it.detected.saturating_sub(it.killed) as f64 / 1e6);
    }
    let allowed: Vec<f64> = { clean.iter().zip(&fences) }
        .map(|(clean, fence)| GAP * clean + fence)
        .collect();
    let ratios: Vec<f64> = { ours.iter().zip(&allowed) }
        .map(|(ours, allowed)| ours / allowed)
        .collect();
    Row::new(
        case,
        format!(
            "longest gap in the others' commits, {} ms",
            WINDOW / 1_000_000
        ),
        "ms",
    )
    .ours(median(&ours))
    .peer(
        format!(
            "{GAP} times that of clean windows ({:.2}), plus the time until the fence ({:.2})",
            median(&clean),
            median(&fences)
        ),
        median(&allowed),
    )
    .ratio(median_estimate(&ratios))
    .goal(Goal::ratio_at_most(1.0))
}

/// The committed transactions in each bin within all runs, the median of all kills.
pub fn timeline(case: &str, outcomes: &[Outcome]) -> Vec<Row> {
    let (before, after) = (BINS.0 as i64, BINS.1 as i64);
    let start = |it: &Outcome, bin: i64| it.killed.saturating_add_signed(bin * BIN as i64);
    let bins = (-before..after).filter(|bin| {
        let mut outcomes = outcomes.iter();
        outcomes.all(|it| start(it, *bin) >= it.start && start(it, *bin) + BIN <= it.end)
    });
    bins.map(|bin| {
        let commits = outcomes.iter().map(|it| {
            let from = start(it, bin);
            it.commits(from, from + BIN) as f64
        });
        let commits: Vec<f64> = commits.collect();
        let metric = format!("commits in 5 ms from {:+} ms", bin * 5);
        Row::new(case, metric, "transactions")
            .ours(median(&commits))
            .how(How::Emulated)
    })
    .collect()
}
