//! `notify`: the time from a death until a blocked member of the group runs with the event,
//! compared with the kernel's bare means (LUPIN §5, failure detection and notification).
//!
//! * *Told*: the victim is a member of the pod in a process of its own; the watcher is blocked in
//!   [`GroupEvents::wait_for`]. The time is from just before the signal is sent until the watcher
//!   runs with the event.
//! * *EOWNERDEAD*: the same with a bare robust mutex between two processes. No mechanism on top of
//!   the kernel's robust list can take less.
//! * *A wake*: a blocked thread running after a futex wake. The bound is the bare mutex and two of
//!   these, measured in the same round.
//! * *pidfd*: polling the victim's pidfd, which is readable only when the victim's memory is freed.
//!
//! [`GroupEvents::wait_for`]: outlive::membership::GroupEvents::wait_for

mod mutex;
mod silent;
mod victim;

pub use silent::Watcher;
pub use victim::Victim;

use crate::row::{Goal, Row};
use crate::scratch::ScratchPod;
use crate::statistics::{bootstrap_of, median, median_estimate};
use crate::{Run, Study, StudyError, clock};
use mutex::SharedMutex;
use outlive::membership::{EventKind, News, Process, Settings};
use rustix::process::Signal;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use victim::{Role, Scene};

pub const STUDY: Study = Study {
    name: "notify",
    about: "from a death to its notification (LUPIN section 5, failure detection and notification)",
    body: study,
};

const MIB: usize = 1 << 20;
const TOLD: &str = "from SIGKILL to the notification";
const LIMIT: &str = "bare robust mutex EOWNERDEAD + 2 futex wakes";

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    let scratch = ScratchPod::new(8 << 20, Settings::default())?;
    let process = scratch.join(0)?;
    let mutex = SharedMutex::create()?;
    let scene = Scene {
        pod: scratch.path(),
        mutex: mutex.path(),
        launcher: run.launcher(),
    };
    let answered = killed(run, &scene, &process, &mutex)
        .and_then(|rows| Ok((rows, faulted(run, &scene, &process, &mutex)?)));
    process.leave()?;
    let (killed, faulted) = answered?;
    run.answer(killed);
    run.answer(faulted);
    let silent = silent::study(run)?;
    run.answer(silent);
    Ok(())
}

/// One round of one size, in microseconds.
#[derive(Clone, Copy, Debug)]
struct Round {
    told: f64,
    mutex: f64,
    mutex_again: f64,
    pidfd: f64,
    /// Two wakes, and two more.
    wakes: f64,
    wakes_again: f64,
}

impl Round {
    fn measure(
        scene: &Scene<'_>,
        process: &Process,
        mutex: &SharedMutex,
        touched: usize,
    ) -> Result<Self, StudyError> {
        let die = |role, told: &mut dyn FnMut()| scene.die(role, touched, Signal::KILL, told);
        let mutex_before = die(Role::Mutex, &mut || mutex.lock_dead())?;
        let wakes = wake() + wake();
        let told = die(Role::Member, &mut || be_told(process))?;
        let pidfd = scene.pidfd(touched)?;
        let mutex_after = die(Role::Mutex, &mut || mutex.lock_dead())?;
        Ok(Self {
            told,
            mutex: mutex_before,
            mutex_again: mutex_after,
            pidfd,
            wakes,
            wakes_again: wake() + wake(),
        })
    }

    fn limit(&self) -> f64 {
        f64::midpoint(self.before(), self.after())
    }

    fn before(&self) -> f64 {
        self.mutex + self.wakes
    }

    fn after(&self) -> f64 {
        self.mutex_again + self.wakes_again
    }

    fn bare(&self) -> f64 {
        f64::midpoint(self.mutex, self.mutex_again)
    }
}

fn column(rounds: &[Round], of: impl Fn(&Round) -> f64) -> Vec<f64> {
    rounds.iter().map(of).collect()
}

/// Blocks until a thread's death is reported.
fn be_told(process: &Process) {
    let mut events = process.events();
    loop {
        if let Some(News::Event(event)) = events.wait_for(Duration::from_secs(60))
            && event.kind == EventKind::ThreadDied
        {
            return;
        }
    }
}

fn killed(
    run: &Run<'_>,
    scene: &Scene<'_>,
    process: &Process,
    mutex: &SharedMutex,
) -> Result<Vec<Row>, StudyError> {
    let effort = run.effort();
    // The bytes that the victim had touched, and the number of rounds.
    let sizes = effort.of(
        [(0, 2), (MIB, 2), (4 * MIB, 2)],
        [(0, 25), (64 * MIB, 15), (1024 * MIB, 8)],
        [(0, 120), (64 * MIB, 80), (1024 * MIB, 40)],
    );
    let mut rows = Vec::new();
    let mut all = Vec::new();
    for (touched, rounds) in sizes {
        let case = format!("victim had touched {} MiB", touched / MIB);
        run.begin(&case);
        let mut measured = Vec::new();
        for _ in 0..rounds {
            run.go_on()?;
            measured.push(Round::measure(scene, process, mutex, touched)?);
        }
        let limit = median(&column(&measured, Round::limit));
        let ratio = column(&measured, |round| round.told / round.limit());
        let same = column(&measured, |round| round.after() / round.before());
        rows.push(
            Row::new(&case, TOLD, "us")
                .ours(median(&column(&measured, |round| round.told)))
                .peer(LIMIT, limit)
                .ratio(median_estimate(&ratio))
                .goal(Goal::ratio_at_most(1.0)),
        );
        rows.push(
            Row::new(&case, crate::paired::SAME, "us")
                .peer(LIMIT, limit)
                .ratio(median_estimate(&same)),
        );
        let alone = column(&measured, Round::bare);
        for (name, times) in [
            ("bare robust mutex EOWNERDEAD", alone),
            ("pidfd readable", column(&measured, |round| round.pidfd)),
            (
                "futex wake to running",
                column(&measured, |round| round.wakes / 2.0),
            ),
        ] {
            let metric = format!("the kernel's means: {name}");
            rows.push(Row::new(&case, metric, "us").peer(name, median(&times)));
        }
        all.push((touched, measured));
    }
    let (Some((from, none)), Some((to, most))) = (all.first(), all.last()) else {
        return Ok(rows);
    };
    rows.push(growth(*from / MIB, none, *to / MIB, most));
    let paper = |metric: &str, paper| {
        Row::paper_alone(
            "the paper's kernel (ours detects and notifies in one step)",
            metric,
            "us",
            paper,
        )
    };
    rows.push(paper("detection of a process's death", 175.0));
    rows.push(paper("notification through netlink", 106.0));
    Ok(rows)
}

/// Returns the row that compares the growth of our delay with that of the bare mutex, from a victim
/// that had touched little memory to one that had touched much.
fn growth(from: usize, none: &[Round], to: usize, most: &[Round]) -> Row {
    let growth = |of: fn(&Round) -> f64, [small, large]: [&[Round]; 2]| {
        let median_of = |rounds: &[Round]| median(&rounds.iter().map(of).collect::<Vec<_>>());
        median_of(large) - median_of(small)
    };
    let told = |round: &Round| round.told;
    let ratio = |sizes: [&[Round]; 2]| {
        // No ratio is defined if the delay of the bare mutex does not grow.
        match growth(Round::bare, sizes) {
            bare if bare > 0.0 => growth(told, sizes) / bare,
            _ => f64::INFINITY,
        }
    };
    let sizes = [none, most];
    let row = Row::new(
        format!("victim had touched {to} MiB instead of {from}"),
        "additional time to the notification",
        "us",
    )
    .ours(growth(told, sizes))
    .peer("additional time to EOWNERDEAD", growth(Round::bare, sizes));
    let estimate = bootstrap_of(sizes, ratio);
    if [estimate.low, estimate.value, estimate.high]
        .iter()
        .all(|value| value.is_finite())
    {
        row.ratio(estimate).goal(Goal::ratio_at_most(1.2))
    } else {
        // No ratio: the delay of the bare mutex did not grow in some of the resamples.
        row
    }
}

/// Measures deaths by a fault and an abort. If core dumps are on, the kernel writes one first.
fn faulted(
    run: &Run<'_>,
    scene: &Scene<'_>,
    process: &Process,
    mutex: &SharedMutex,
) -> Result<Vec<Row>, StudyError> {
    let mut rows = Vec::new();
    let rounds = run.effort().of(1, 8, 30);
    let touched = run.effort().of(MIB, 64 * MIB, 64 * MIB);
    for (signal, death) in [(Signal::SEGV, "SIGSEGV"), (Signal::ABORT, "an abort")] {
        for (dumps, touched) in [(true, 0), (true, touched), (false, touched)] {
            let state = match (dumps, scene.dumps_can_be_on()) {
                (false, _) => "off",
                (true, true) => "on",
                (true, false) => "on, but off because of this machine's hard limit",
            };
            let case = format!(
                "death by {death}, core dumps {state}, {} MiB touched",
                touched / MIB
            );
            run.begin(&case);
            let (mut told, mut bare) = (Vec::new(), Vec::new());
            for _ in 0..rounds {
                run.go_on()?;
                let scene = scene.with_dumps(dumps);
                bare.push(scene.die(Role::Mutex, touched, signal, &mut || mutex.lock_dead())?);
                told.push(scene.die(Role::Member, touched, signal, &mut || be_told(process))?);
            }
            let ratios: Vec<f64> = told.iter().zip(&bare).map(|(t, b)| t / b).collect();
            rows.push(
                Row::new(case, "from the signal to the notification", "us")
                    .ours(median(&told))
                    .peer("bare robust mutex EOWNERDEAD", median(&bare))
                    .ratio(median_estimate(&ratios)),
            );
        }
    }
    Ok(rows)
}

/// Returns the microseconds from a futex wake until the blocked thread runs.
fn wake() -> f64 {
    let word = AtomicU32::new(0);
    let rung = AtomicU64::new(0);
    let mut end = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The waiter blocks first.
            std::thread::sleep(Duration::from_millis(3));
            rung.store(clock::now(), Ordering::SeqCst);
            word.store(1, Ordering::SeqCst);
            // SAFETY: a valid futex word.
            unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
        });
        while word.load(Ordering::SeqCst) == 0 {
            let timeout = core::ptr::null::<libc::timespec>();
            // SAFETY: a valid futex word; no timeout.
            unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, 0, timeout) };
        }
        end = clock::now();
    });
    clock::micros(rung.load(Ordering::SeqCst), end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(told: f64, mutex: f64) -> Round {
        Round {
            told,
            mutex,
            mutex_again: mutex,
            pidfd: 1.0,
            wakes: 20.0,
            wakes_again: 20.0,
        }
    }

    #[test]
    fn growth_is_the_ratio_of_differences() {
        let none: Vec<_> = (0..20)
            .map(|i| round(200.0 + f64::from(i % 3), 180.0))
            .collect();
        let most: Vec<_> = (0..20)
            .map(|i| round(280.0 + f64::from(i % 3), 260.0 + f64::from(i % 2)))
            .collect();
        let row = growth(0, &none, 1024, &most);
        assert_eq!(row.ours, Some(80.0));
        assert!((row.ratio.unwrap() - 80.0 / 80.5).abs() < 0.02, "{row:?}");
        assert_eq!(row.holds, Some(true));
        // Nothing grew, so there is nothing to compare.
        let row = growth(0, &none, 1024, &none);
        assert_eq!((row.ratio, row.goal), (None, None));
    }
}
