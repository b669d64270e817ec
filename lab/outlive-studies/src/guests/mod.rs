//! `guests`: a pod of two operating systems, like that of LUPIN's evaluation with 16 virtual
//! machines.
//!
//! Two guests of QEMU, emulated (TCG, `-smp 2`), see one memory as the BAR of a PCI device
//! (`ivshmem-plain`). They share nothing else, in particular no kernel. So a death in one guest is
//! not reported to the other by a lock or a futex, but detected by missing heartbeats, and
//! confirmed by the fence command. The fence command sends a request through a serial port to the
//! study, which controls the guests' monitors. The study ends the virtual machine, waits until its
//! process is gone, and answers. So a host is certainly off when its generation rises.
//!
//! First both guests increment the same words: an emulator may translate atomic instructions into
//! plain ones, and then no other result is valid. Then workers of both guests count words, and the
//! counts are compared with a plain count. Then, several times, one guest is killed by its monitor
//! while its worker counts; it is restarted and joins again. Finally it is only stopped: the first
//! fence is refused, so its generation must not rise, and the guest continues; the second fence
//! ends it.
//!
//! The hosts send heartbeats every 8 ms, which are polled every 16 ms, as in the paper (`pod create
//! --real-hosts`). A host is suspected after [`SUSPICION`] and not after 16 ms: emulated processors
//! share the machine's, and a process that starts in a guest translates its code first. With 16 ms
//! a healthy host was fenced or killed in each of six word counts; with 50 ms in none of five, with
//! 100 to 500 ms in none of eight. A poll that is late counts as no silence at first, so detection
//! takes longer than the suspicion.
//!
//! The study takes all times itself, from lines that guests write to serial ports.

mod archive;
mod guest;
mod lab;
mod needs;
mod part;
mod program;
mod scenes;

pub use part::InGuest;

use crate::row::{Goal, How, Row};
use crate::statistics::{Estimate, longest, median, median_estimate};
use crate::{Run, Study, StudyError};
use lab::Lab;
use needs::Needs;
use scenes::{Death, Stop};
use std::time::Duration;

pub const STUDY: Study = Study {
    name: "guests",
    about: "a pod of two virtual machines, of which one is killed (LUPIN section 2.2)",
    body: study,
};

/// The time for which a guest may be silent.
const SUSPICION: Duration = Duration::from_secs(1);
/// The number of further kills while no unit was re-executed.
const MORE_KILLS: u32 = 20;

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    run.go_on()?;
    let needs = Needs::find(run.lab())?;
    let copies = run.effort().of(8, 16, 16);
    let kills = run.effort().of(1, 2, 10);
    run.begin("two guests are started");
    let mut lab = Lab::start(run, needs, copies)?;
    let expected = scenes::expected(copies);
    let case = "two guests of QEMU, emulated, with one memory";
    let count = |metric: &str, unit: &str, value: f64| {
        let value = Estimate::exactly(value);
        Row::new(case, metric, unit)
            .how(How::Emulated)
            .ours_within(value)
    };
    run.begin("both increment the same words");
    let times = run.effort().of(10_000, 100_000, 1_000_000);
    let lost = scenes::increment(run, &mut lab, times)?;
    run.answer([count(
        "lost increments, of both guests to the same words",
        "increments",
        lost as f64,
    )
    .goal(Goal::ours_at_most(0.0))]);
    if lost > 0 {
        return Err(StudyError::void(
            "atomic instructions of the two guests are not atomic for each other, so no pod can be shared",
        ));
    }
    let mut boots = vec![lab.stays.boot, lab.goes.boot];

    run.begin("words are counted in both guests");
    let together = scenes::count_together(run, &mut lab, &expected)?;
    let mut differing = u32::from(!together.is_exact);
    run.answer([count(
        "tasks of a word count that the second guest executed",
        "tasks",
        together.tasks as f64,
    )]);

    let mut deaths = Vec::new();
    let redone = |deaths: &[Death]| deaths.iter().map(|death| death.redone).sum::<u64>();
    for number in 1..=kills + MORE_KILLS {
        if number > kills && redone(&deaths) > 0 {
            break;
        }
        run.begin(&format!("one guest is killed: {number} of {kills}"));
        let death = scenes::kill(run, &mut lab, &expected)?;
        differing += u32::from(!death.is_exact);
        boots.push(death.boot);
        deaths.push(death);
    }
    run.begin("one guest is stopped");
    let stop = scenes::stop(run, &mut lab, &expected)?;
    differing += u32::from(!stop.is_exact);

    let counts = 2 + deaths.len();
    run.answer([count(
        &format!("counts that differ from a plain program's, of {counts}"),
        "counts",
        differing.into(),
    )
    .goal(Goal::ours_at_most(0.0))]);
    answer_deaths(run, case, &deaths, &boots);
    answer_stop(run, case, &stop);
    match redone(&deaths) + stop.redone {
        0 => Err(StudyError::void(
            "no guest was killed while it counted, so nothing was re-executed",
        )),
        _ => Ok(()),
    }
}

fn answer_deaths(run: &mut Run<'_>, case: &str, deaths: &[Death], boots: &[Duration]) {
    let row = |metric: &str, unit: &str| Row::new(case, metric, unit).how(How::Emulated);
    let redone: Vec<f64> = deaths.iter().map(|death| death.redone as f64).collect();
    let early = deaths.iter().filter(|death| death.told < death.answered);
    let time = |metric: &str, of: fn(&Death) -> Duration| {
        let times: Vec<f64> = { deaths.iter() }
            .map(|death| of(death).as_secs_f64() * 1e3)
            .collect();
        row(metric, "ms").ours_within(median_estimate(&times))
    };
    let seconds: Vec<f64> = boots.iter().map(Duration::as_secs_f64).collect();
    let suspicion = SUSPICION.as_millis();
    let silences: Vec<f64> = { deaths.iter() }
        .map(|death| death.silence.as_secs_f64() * 1e3)
        .collect();
    run.answer([
        row("units re-executed after a kill, the maximum", "units")
            .ours_within(Estimate::exactly(longest(&redone)))
            .peer("threads killed", 1.0)
            .goal(Goal::ours_at_most(1.0)),
        row("units re-executed after a kill", "units").ours(median(&redone)),
        row("generations that rose before the fence had answered", "kills")
            .ours_within(Estimate::exactly(early.count() as f64))
            .goal(Goal::ours_at_most(0.0)),
        row("the longest silence of a guest before it counts", "ms")
            .ours(longest(&silences))
            .peer("the suspicion", suspicion as f64),
        time(
            &format!("from a guest's kill to the fence command's question ({suspicion} ms of silence; the paper: 16)"),
            |death| death.asked,
        )
        .paper(16.0)
        .why("a late poll does not count as silence at first, and an emulated processor is often \
              late"),
        time("from the question to its answer, when the virtual machine has ended", |death| {
            death.answered - death.asked
        }),
        time(
            "from the answer to the report of the death (the paper: interrupts to all machines)",
            |death| death.told.saturating_sub(death.answered),
        )
        .paper(0.3),
        time("from a guest's kill to the recovery of its members", |death| {
            death.recovered
        }),
        time("from a guest's kill to the end of the count", |death| death.done),
        row("start of a guest until its shell is ready", "s").ours_within(median_estimate(&seconds)),
        time(
            "start of a guest until it has joined again (the paper: a KVM virtual machine)",
            |death| death.rejoined,
        )
        .paper(79_000.0),
    ]);
}

fn answer_stop(run: &mut Run<'_>, case: &str, stop: &Stop) {
    let row = |metric: &str, unit: &str| Row::new(case, metric, unit).how(How::Emulated);
    let rose = u32::from(stop.rose_without_fence) + u32::from(stop.told < stop.answered);
    run.answer([
        row(
            "generations of a stopped guest that rose before a fence had succeeded",
            "generations",
        )
        .ours_within(Estimate::exactly(rose.into()))
        .goal(Goal::ours_at_most(0.0)),
        row("from the stop to the question that is refused", "ms").ours(millis(stop.refused)),
        row("from the stop to the answer that succeeds", "ms").ours(millis(stop.answered)),
        row("from that answer to the report of the death", "ms")
            .ours(millis(stop.told.saturating_sub(stop.answered))),
    ]);
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
