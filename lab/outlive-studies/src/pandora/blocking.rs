//! `pandora-blocking`: the time for which the baseline (`ford`) stops the store after a failure,
//! because it has to find the latches of the dead server by a scan of all tables.

use super::armed::Armed;
use super::scratch_store::{ScratchStore, Shape};
use super::subject::{Kind, Subject};
use super::table4_1::kill_one;
use super::{Backend, paper};
use crate::row::{How, Row};
use crate::statistics::median_estimate;
use crate::{Run, Study, StudyError};
use outlive_store::protocol::Protocol;
use outlive_store::workloads::Books;

pub const STUDY: Study = Study {
    name: "pandora-blocking",
    about: "how long the baseline stops the store to find latches (Tandem thesis, section 4.5.1)",
    body: study,
};

const COORDINATORS: u16 = 8;

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    run.go_on()?;
    let subject = Subject::of(Kind::Micro, run.effort());
    let mut subject = subject.ok_or_else(|| StudyError::void("there is no microbenchmark"))?;
    subject.size = run.effort().of(2_000, 200_000, 1_000_000);
    let kills = run.effort().of(1, 3, 20);
    for protocol in [Protocol::Ford, Protocol::Pandora] {
        let shape = Shape {
            protocol,
            compute_servers: 2,
            coordinators: COORDINATORS,
            books: Books::Program,
        };
        run.begin(&format!("{protocol}: the tables are filled"));
        let scratch = ScratchStore::new(subject, shape)?;
        let (mut counted, mut seed) = (0, 0);
        for backend in [Backend::link(), Backend::Bare] {
            let case = format!(
                "{protocol}, micro, {} keys, {COORDINATORS} coordinators, {}",
                subject.size,
                backend.name()
            );
            scratch.store().set_recovery_link(backend.to_link());
            let mut seconds = Vec::new();
            for kill in 1..=kills {
                run.go_on()?;
                run.begin(&format!("{case}: kill {kill} of {kills}"));
                seed += 1;
                let armed = Armed {
                    store: scratch.path().into(),
                    subject,
                    coordinators: COORDINATORS,
                    stops: true,
                    seed,
                };
                let (ready, recovery) = kill_one(run, &scratch, armed)?;
                counted += ready.change;
                seconds.push(recovery.duration.as_secs_f64());
            }
            let each = |it: &f64| it * 1e6 / subject.size as f64;
            let per_million: Vec<f64> = seconds.iter().map(each).collect();
            let millis: Vec<f64> = seconds.iter().map(|it| it * 1e3).collect();
            let mut rows = vec![
                Row::new(&case, "log recovery, with the scan of the baseline", "ms")
                    .ours_within(median_estimate(&millis)),
            ];
            if protocol == Protocol::Ford {
                let row = Row::new(&case, "time for a million keys", "s");
                let row = row.ours_within(median_estimate(&per_million));
                rows.push(match backend {
                    Backend::Link(_) => row.paper(paper::SCAN_OF_A_MILLION),
                    Backend::Bare => row,
                });
            }
            run.answer(rows.into_iter().map(|row| row.how(How::Emulated)));
        }
        scratch.check(counted)?;
    }
    Ok(())
}
