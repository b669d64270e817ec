//! `pandora-table4.1`: the latency of log recovery by the number of outstanding transactions.
//!
//! In each kill, a process with that many [armed](super::armed) coordinators is killed, and this
//! process recovers it, over the emulated link or on bare memory. The latency is that of the log
//! recovery, as in the thesis: from the first READ of the logs to the last release of a latch,
//! without detection. After the kills, the benchmark's invariant and all tables are checked.
//!
//! The naive scheme is measured too. In the thesis it recovers SmallBank in 2.7 ms, and Pandora in
//! 5.3 ms, although Pandora has less to recover.
//!
//! The verbs of each recovery of `pandora` must equal a closed form in the numbers of log slots,
//! logged transactions, their objects, and f, and the round trips must be within one. Otherwise the
//! measurement is void.

use super::armed::{Armed, Ready};
use super::scratch_store::{REPLICAS, ScratchStore, Shape};
use super::subject::{Kind, Subject};
use super::{Backend, paper};
use crate::children::Part;
use crate::row::{Goal, How, Row};
use crate::statistics::{median, median_estimate};
use crate::{Effort, Run, Study, StudyError};
use outlive_store::protocol::{Protocol, Recovered, SLOTS_PER_GROUP};
use outlive_store::servers::LogRecovery;
use outlive_store::workloads::Books;
use rustix::process::Signal;
use std::time::{Duration, Instant};

pub const STUDY: Study = Study {
    name: "pandora-table4.1",
    about: "log recovery by the number of outstanding transactions (Tandem thesis, Table 4.1)",
    body: study,
};

/// The longest time until a killed server is recovered.
const PATIENCE: Duration = Duration::from_secs(30);
/// The bar for one outstanding transaction on the emulated link, in microseconds.
const ONE: f64 = 10.0;
/// The factor by which bare memory must be faster.
const BARE: f64 = 10.0;

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    run.go_on()?;
    for kind in Kind::ALL {
        let Some(subject) = Subject::of(kind, run.effort()) else {
            let case = format!("{} (not measured: its load takes seconds)", kind.name());
            let paper = paper::recovery_of_512(kind);
            run.answer([Row::paper_alone(case, "log recovery of 512", "us", paper)]);
            continue;
        };
        for (coordinators, paper) in paper::COORDINATORS.into_iter().zip(paper::recovery(kind)) {
            if counts(run.effort()).contains(&coordinators) {
                measure(run, subject, coordinators, paper)?;
            }
        }
        naive(run, subject)?;
    }
    Ok(())
}

/// Measures recoveries of the naive scheme, with the largest number of coordinators.
fn naive(run: &mut Run<'_>, subject: Subject) -> Result<(), StudyError> {
    let coordinators = *counts(run.effort()).last().unwrap_or(&1);
    let backend = Backend::link();
    let case = format!(
        "{}, {coordinators} coordinators, the naive scheme (log-a-latch), {}",
        subject.kind.name(),
        backend.name()
    );
    run.begin(&case);
    let shape = Shape {
        protocol: Protocol::LogALatch,
        compute_servers: 2,
        coordinators,
        books: Books::Program,
    };
    let scratch = ScratchStore::new(subject, shape)?;
    scratch.store().set_recovery_link(backend.to_link());
    let (mut counted, mut times) = (0, Vec::new());
    for seed in 1..=run.effort().of(1, 5, 20) {
        run.go_on()?;
        let armed = Armed {
            store: scratch.path().into(),
            subject,
            coordinators,
            stops: true,
            seed,
        };
        let (ready, recovery) = kill_one(run, &scratch, armed)?;
        counted += ready.change;
        times.push(recovery.duration.as_secs_f64() * 1e6);
    }
    let mut row = Row::new(case, "log recovery", "us")
        .ours_within(median_estimate(&times))
        .how(How::Emulated);
    if coordinators == 512 {
        row = row.paper(paper::naive_recovery_of_512(subject.kind));
    }
    run.answer([row]);
    scratch.check(counted)
}

fn counts(effort: Effort) -> &'static [u16] {
    effort.of(&[1, 8], &[1, 64, 512], &paper::COORDINATORS)
}

/// Measures the recoveries of one number of coordinators, on both backends.
fn measure(
    run: &mut Run<'_>,
    subject: Subject,
    coordinators: u16,
    paper: f64,
) -> Result<(), StudyError> {
    let name = format!("{}, {coordinators} coordinators", subject.kind.name());
    run.begin(&format!("{name}: the tables are filled"));
    let shape = Shape {
        protocol: Protocol::Pandora,
        compute_servers: 2,
        coordinators,
        books: Books::Program,
    };
    let scratch = ScratchStore::new(subject, shape)?;
    let kills = match coordinators {
        1 => run.effort().of(2, 25, 100),
        _ => run.effort().of(1, 5, 20),
    };
    let (mut counted, mut seed) = (0, 0);
    // One transaction is rolled back, or forward, in series of their own.
    let series: &[bool] = if coordinators == 1 {
        &[true, false]
    } else {
        &[true]
    };
    for stops in series {
        let mut backends = [Backend::link(), Backend::Bare].map(|it| (it, Vec::new()));
        for kill in 1..=kills {
            run.begin(&format!("{name}: kill {kill} of {kills}"));
            for (backend, recoveries) in &mut backends {
                run.go_on()?;
                seed += 1;
                scratch.store().set_recovery_link(backend.to_link());
                let armed = Armed {
                    store: scratch.path().into(),
                    subject,
                    coordinators,
                    stops: *stops,
                    seed,
                };
                let (ready, recovery) = kill_one(run, &scratch, armed)?;
                counted += ready.change;
                require_closed_form(coordinators.into(), &recovery.recovered)?;
                recoveries.push(recovery);
            }
        }
        for (backend, recoveries) in &backends {
            let series = match (coordinators, *stops) {
                (1, true) => ", killed between log and commit",
                (1, false) => ", killed after its commit",
                _ => "",
            };
            let case = format!("{name}{series}, {}", backend.name());
            let goal = match (coordinators, backend) {
                (1, Backend::Link(_)) => Some(ONE),
                (1, Backend::Bare) => Some(ONE / BARE),
                (512, Backend::Link(_)) => Some(paper::recovery_of_512(subject.kind)),
                (512, Backend::Bare) => Some(paper::recovery_of_512(subject.kind) / BARE),
                _ => None,
            };
            let paper = matches!(backend, Backend::Link(_)).then_some(paper);
            run.answer(rows(&case, recoveries, (paper, goal)));
        }
    }
    scratch.check(counted)
}

/// Kills an armed compute server, and waits for its recovery.
pub fn kill_one(
    run: &Run<'_>,
    scratch: &ScratchStore,
    armed: Armed,
) -> Result<(Ready, LogRecovery), StudyError> {
    let coordinators = u64::from(armed.coordinators);
    let mut child = run.launcher().start(&Part::Armed(armed))?;
    let ready: Ready = child.hear()?;
    child.signal(Signal::KILL)?;
    child.wait()?;
    let begin = Instant::now();
    while !(scratch.store().configuration()).has_failed(ready.process) {
        if begin.elapsed() > PATIENCE {
            return Err(StudyError::void(
                "a compute server was killed and not recovered",
            ));
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    let last = scratch.store().last_recovery();
    let last = last.filter(|it| it.process == ready.process);
    let last = last.ok_or_else(|| StudyError::void("the recovery was not that of the victim"))?;
    let Recovered { forward, back, .. } = last.recovered;
    // In the other protocols an entry lasts until the coordinator's next attempt.
    let protocol = scratch.store().configuration().sizes().protocol;
    let is_whole = forward + back == coordinators || protocol != Protocol::Pandora;
    if back != ready.stopped || !is_whole {
        return Err(StudyError::void(format!(
            "{} of {coordinators} coordinators were between log and commit, and recovery rolled \
             {back} transactions back and {forward} forward",
            ready.stopped
        )));
    }
    Ok((ready, last))
}

/// The verbs of a recovery: each log slot is read and truncated in f + 1 servers; each entry is
/// read in one, and written there with the decision to undo it, if that is the decision; the
/// version of each object is read at each replica; undoing one takes two WRITEs at each replica;
/// each latch is released by a CAS on the primary.
fn verbs(slots: u64, it: &Recovered) -> u64 {
    let entries = it.forward + it.back;
    let in_each = 2 * slots + it.back + it.objects + 2 * it.undone;
    u64::from(REPLICAS) * in_each + entries + it.objects
}

/// The smallest and the largest number of round trips of a recovery. For each group of slots, there
/// is one for each of reading headers, entries and versions, truncating and unlatching, and if it
/// has transactions that are rolled back, for each of writing that and undoing.
fn round_trips(slots: u64, it: &Recovered) -> (u64, u64) {
    let groups = slots.div_ceil(SLOTS_PER_GROUP.into());
    let back = |groups: u64| groups.min(it.back) + groups.min(it.undone);
    (5 * groups + back(1), 5 * groups + back(groups))
}

/// Requires that a recovery of `slots` log slots posted exactly the verbs of the closed form.
///
/// # Errors
/// [`StudyError::Void`] with both numbers.
fn require_closed_form(slots: u64, it: &Recovered) -> Result<(), StudyError> {
    let (verbs, (least, most)) = (verbs(slots, it), round_trips(slots, it));
    if it.verbs == verbs && (least..=most).contains(&it.round_trips) {
        return Ok(());
    }
    Err(StudyError::void(format!(
        "a recovery of {slots} log slots posted {} verbs in {} round trips; the closed form says \
         {verbs} and {least} to {most}",
        it.verbs, it.round_trips
    )))
}

fn rows(
    case: &str,
    recoveries: &[LogRecovery],
    (paper, goal): (Option<f64>, Option<f64>),
) -> Vec<Row> {
    let column =
        |of: &dyn Fn(&LogRecovery) -> f64| -> Vec<f64> { recoveries.iter().map(of).collect() };
    let mut time =
        Row::new(case, "log recovery", "us").ours_within(median_estimate(&column(&|it| {
            it.duration.as_secs_f64() * 1e6
        })));
    if let Some(goal) = goal {
        time = time.goal(Goal::ours_at_most(goal));
    }
    time.paper = paper;
    let count = |metric, unit, of: fn(&Recovered) -> u64| {
        let counts = column(&|it| of(&it.recovered) as f64);
        Row::new(case, metric, unit).ours(median(&counts))
    };
    let rows = [
        time,
        count("rolled forward", "transactions", |it| it.forward),
        count("rolled back", "transactions", |it| it.back),
        count("objects in the logs", "objects", |it| it.objects),
        count("verbs", "verbs", |it| it.verbs),
        count("round trips", "round trips", |it| it.round_trips),
    ];
    rows.map(|row| row.how(How::Emulated)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recovery_with_another_number_of_verbs_is_void() {
        // Two slots with an entry each, of two objects; one transaction of one object is undone.
        let right = Recovered {
            forward: 1,
            back: 1,
            objects: 3,
            undone: 1,
            verbs: 2 * (4 + 1 + 3 + 2) + 2 + 3,
            round_trips: 7,
        };
        require_closed_form(2, &right).unwrap();
        let verbs = right.verbs + 1;
        let error = require_closed_form(2, &Recovered { verbs, ..right }).unwrap_err();
        assert!(error.to_string().contains("26 verbs"), "{error}");
        let groups = 2 * u64::from(SLOTS_PER_GROUP);
        assert_eq!(round_trips(groups, &right), (12, 12));
        let round_trips = 8;
        let slow = Recovered {
            round_trips,
            ..right
        };
        require_closed_form(2, &slow).unwrap_err();
    }
}
