//! The control thread.

use crate::stage::{OFFICE, SUPERVISOR, Stage, brisk};
use outlive::membership::Process;
use outlive::supervise::{Failure, GaveUp, Outcome, Outlook, Report, ThreadSupervisor, What};
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Told = Arc<Mutex<Vec<Report>>>;

fn listen(supervisor: ThreadSupervisor) -> (ThreadSupervisor, Told) {
    let told = Told::default();
    let tell = Arc::clone(&told);
    let supervisor = supervisor.on_report(move |report| tell.lock().unwrap().push(report.clone()));
    (supervisor, told)
}

fn failures(told: &Told) -> Vec<Failure> {
    let told = told.lock().unwrap();
    told.iter()
        .filter_map(|report| match &report.what {
            What::Failed { how, .. } | What::GaveUp { how, .. } => Some(how.clone()),
            _ => None,
        })
        .collect()
}

#[test]
fn a_thread_that_panics_comes_back_under_its_id() {
    let stage = Stage::new();
    let process = stage.join(SUPERVISOR);
    let incarnations = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&incarnations);
    let (mut supervisor, told) = listen(
        ThreadSupervisor::new(process.clone())
            .policy(brisk(3))
            .thread(20, "clumsy", move |member, attempt| {
                seen.lock().unwrap().push(member.instance());
                match attempt.number() {
                    0 => std::panic::panic_any(7u8),
                    1 => panic!("attempt {}", 1),
                    2 => Outcome::Failed,
                    _ => Outcome::Finished,
                }
            }),
    );
    assert_eq!(supervisor.run(), [(20, Outlook::Finished)]);
    let incarnations: Vec<_> = incarnations
        .lock()
        .unwrap()
        .iter()
        .map(|instance| (instance.id, instance.generation))
        .collect();
    // It left in good order each time: no death was raised in between.
    assert_eq!(incarnations, [(20, 1), (20, 2), (20, 3), (20, 4)]);
    let panicked = |message: &str| Failure::Panicked {
        message: message.into(),
    };
    assert_eq!(
        failures(&told),
        [
            panicked("no message"),
            panicked("attempt 1"),
            Failure::Unfinished
        ]
    );
    drop(supervisor);
    process.leave().unwrap();
}

#[test]
fn a_thread_that_cannot_go_on_is_given_up() {
    let stage = Stage::new();
    let process = stage.join(SUPERVISOR);
    let other = process.enter(Some(21), "has the id").unwrap();
    let (mut supervisor, told) = listen(
        ThreadSupervisor::new(process.clone())
            .policy(brisk(2))
            .thread(20, "hopeful", |_, _| Outcome::Failed)
            .thread(21, "late", |_, _| unreachable!("the id is in use"))
            .thread(64, "nobody", |_, _| unreachable!("there is no such id")),
    );
    let outlooks = supervisor.run();
    assert!(
        outlooks
            .iter()
            .all(|(_, outlook)| *outlook == Outlook::GaveUp)
    );
    let told = told.lock().unwrap();
    let of = |id: u32| {
        let whats: Vec<_> = told
            .iter()
            .filter(|report| report.id == id)
            .map(|report| report.what.clone())
            .collect();
        whats
    };
    for id in [20, 21] {
        let whats = of(id);
        let starts = |what: &&What| matches!(what, What::Started { .. });
        assert_eq!(whats.iter().filter(starts).count(), 3, "{whats:?}");
        assert!(
            matches!(
                whats.last(),
                Some(What::GaveUp {
                    why: GaveUp::Limit { restarts: 2 },
                    ..
                })
            ),
            "{whats:?}"
        );
    }
    assert!(matches!(
        &of(64)[..],
        [
            What::Started { .. },
            What::GaveUp {
                why: GaveUp::Hopeless,
                ..
            }
        ]
    ));
    drop(other);
}

#[test]
fn a_supervisor_that_is_stopped_waits_for_its_bodies() {
    let stage = Stage::new();
    let mut supervisor =
        ThreadSupervisor::new(stage.join(SUPERVISOR)).thread(20, "patient", |_, attempt| {
            while !attempt.is_stopping() {
                std::thread::sleep(Duration::from_millis(1));
            }
            Outcome::Failed
        });
    let stop = supervisor.stopper();
    let supervising = std::thread::spawn(move || supervisor.run());
    stage.next(20, 0);
    stop.stop();
    assert_eq!(
        supervising.join().unwrap(),
        [(20, Outlook::Unsettled)],
        "it is not started again"
    );
}

/// Run in a child, because such an end leaks the values on the thread's stack.
pub fn threads_that_the_kernel_ends(process: &Process) {
    let generations = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&generations);
    let (mut supervisor, told) = listen(
        ThreadSupervisor::new(process.clone())
            .policy(brisk(3))
            .thread(20, "gone", move |member, attempt| {
                seen.lock().unwrap().push(member.instance().generation);
                if attempt.number() < 2 {
                    // SAFETY: ends this thread alone, with nothing of it unwound and no lock held.
                    unsafe { libc::syscall(libc::SYS_exit, 0) };
                }
                Outcome::Finished
            }),
    );
    assert_eq!(supervisor.run(), [(20, Outlook::Finished)]);
    assert_eq!(*generations.lock().unwrap(), [1, 3, 5]);
    assert_eq!(failures(&told), vec![Failure::Died { status: None }; 2]);
    std::process::exit(42);
}

#[test]
fn a_thread_that_the_kernel_ends_comes_back_as_the_next_generation() {
    let stage = Stage::new();
    let status = stage.start("threads", 10, OFFICE).wait().unwrap();
    assert_eq!(status.code(), Some(42));
}
