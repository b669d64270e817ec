//! `pandora-fig4.7`: throughput while servers fail again and again.
//!
//! In runs as long as the mean time to failure, one of two compute servers is killed in the middle,
//! and a standby takes its place. The peer is a run of the same length without a failure. (The
//! thesis stops half of the coordinators of its setup, and lets them work again.)

use super::Backend;
use super::failover::{BIN, Outcome, SERVERS, Setting, Stage, Victim};
use super::subject::{Kind, Subject};
use crate::paired::{Comparison, Paired};
use crate::row::How;
use crate::{Run, Study, StudyError};
use outlive_store::protocol::Protocol;
use std::cell::RefCell;

pub const STUDY: Study = Study {
    name: "pandora-fig4.7",
    about: "throughput with failures every 10, 2 and 1 s (Tandem thesis, Figure 4.7)",
    body: study,
};

/// The number of coordinators of each compute server; half of the thesis's 16.
const COORDINATORS: u16 = 8;

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    run.go_on()?;
    let subject = Subject::of(Kind::Micro, run.effort());
    let subject = subject.ok_or_else(|| StudyError::void("there is no microbenchmark"))?;
    let times: &[(u64, usize)] = run.effort().of(
        &[(100, 1)],
        &[(2000, 2), (1000, 4)],
        &[(10_000, 6), (2000, 10), (1000, 20)],
    );
    for (milliseconds, rounds) in times {
        let half = milliseconds * 1_000_000 / 2;
        let setting = Setting {
            subject,
            protocol: Protocol::Pandora,
            backend: Backend::link(),
            coordinators: COORDINATORS,
            stall: 0,
            caps: None,
            recovery: Backend::link(),
            before: half.max(5 * BIN),
            after: half.max(5 * BIN),
        };
        let case = format!(
            "micro, a failure every {} s, {COORDINATORS} coordinators on each of {SERVERS} compute \
             servers, {}",
            *milliseconds as f64 / 1e3,
            setting.backend.name()
        );
        run.begin(&case);
        let runs = 3 * *rounds as u16 + 1;
        let stage = RefCell::new(Stage::new(run, setting, (runs, false))?);
        let throughput = |victim| {
            let outcome: Outcome = stage.borrow_mut().run(run, victim, None)?;
            let seconds = (outcome.end - outcome.start) as f64 * 1e-9;
            Ok(outcome.commits(outcome.start, outcome.end) as f64 / seconds)
        };
        let paired = Paired::measure(
            run,
            *rounds,
            || throughput(Victim::Replaced),
            || throughput(Victim::None),
        )?;
        let comparison = Comparison {
            case: &case,
            metric: "throughput",
            unit: "transactions/s",
            peer: "without failures",
            paper: None,
            goal: None,
        };
        run.answer(comparison.rows(&paired).map(|row| row.how(How::Emulated)));
        stage.borrow().check()?;
    }
    Ok(())
}
