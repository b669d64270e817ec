//! The control process.

use crate::stage::{OFFICE, SUPERVISOR, Stage, brisk, program, wait_for};
use outlive::membership::{InstanceId, Status};
use outlive::supervise::{
    Child, Failure, GaveUp, Launch, Launched, Outlook, Place, ProcessSupervisor, Report,
    ThisMachine, What, home,
};
use std::collections::HashMap;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::{Arc, Mutex};

type Told = Arc<Mutex<Vec<Report>>>;

fn listen(supervisor: ProcessSupervisor) -> (ProcessSupervisor, Told) {
    let told = Told::default();
    let tell = Arc::clone(&told);
    let supervisor = supervisor.on_report(move |report| tell.lock().unwrap().push(report.clone()));
    (supervisor, told)
}

/// Returns the reports of `id`, without place and time.
fn story(told: &Told, id: InstanceId) -> Vec<What> {
    let told = told.lock().unwrap();
    told.iter()
        .filter(|report| report.id == id)
        .map(|report| report.what.clone())
        .collect()
}

fn failures(told: &Told, id: InstanceId) -> Vec<Failure> {
    story(told, id)
        .into_iter()
        .filter_map(|what| match what {
            What::Failed { how, .. } | What::GaveUp { how, .. } => Some(how),
            _ => None,
        })
        .collect()
}

fn starts(told: &Told, id: InstanceId) -> usize {
    let is_start = |what: &What| matches!(what, What::Started { .. });
    story(told, id).iter().filter(|what| is_start(what)).count()
}

#[test]
fn a_child_that_is_killed_comes_back_under_its_id_until_the_limit() {
    let stage = Stage::new();
    let (mut supervisor, told) = listen(stage.supervisor().policy(brisk(3)).child(Child::new(
        10,
        OFFICE,
        || program("stay"),
    )));
    let supervising = std::thread::spawn(move || supervisor.run());
    let (mut generation, mut pids) = (0, Vec::new());
    for _ in 0..4 {
        let child = stage.next(10, generation);
        // The death raises the generation once, the next incarnation once more.
        assert!(generation == 0 || child.generation == generation + 2);
        generation = child.generation;
        pids.push(stage.kill(child));
    }
    assert_eq!(supervising.join().unwrap(), [(10, Outlook::GaveUp)]);
    let killed = Failure::Died {
        status: Some(ExitStatusExt::from_raw(libc::SIGKILL)),
    };
    assert_eq!(failures(&told, 10), vec![killed; 4]);
    assert_eq!(starts(&told, 10), 4);
    assert!(matches!(
        story(&told, 10).last(),
        Some(What::GaveUp {
            why: GaveUp::Limit { restarts: 3 },
            ..
        })
    ));
    for pid in pids {
        let left = std::path::PathBuf::from(format!("/proc/{pid}")).exists();
        assert!(!left, "{pid} was not reaped");
    }
}

#[test]
fn how_a_child_ends_decides_whether_it_comes_back() {
    let stage = Stage::new();
    let (mut supervisor, told) = listen(
        stage
            .supervisor()
            .policy(brisk(1))
            .child(Child::new(10, OFFICE, || program("leave")))
            .child(Child::new(11, OFFICE, || program("leave and fail")))
            .child(Child::new(12, OFFICE, || {
                program("succeed without leaving")
            }))
            .child(Child::new(13, OFFICE, || program("fail before joining")))
            .child(Child::new(14, OFFICE, || Command::new("/no/such/program")))
            .child(Child::new(64, OFFICE, || program("leave")))
            .child(Child::new(OFFICE, 2, || program("leave"))),
    );
    let outlooks: HashMap<_, _> = supervisor.run().into_iter().collect();
    assert_eq!(outlooks[&10], Outlook::Finished);
    assert_eq!(failures(&told, 10), []);
    for id in [11, 12, 13, 14, 64, OFFICE] {
        assert_eq!(outlooks[&id], Outlook::GaveUp, "{id}");
    }
    let exit = |code: i32| ExitStatusExt::from_raw(code << 8);
    let exited = |code| Failure::Exited { status: exit(code) };
    let died = Failure::Died {
        status: Some(exit(0)),
    };
    assert_eq!(failures(&told, 11), vec![exited(3); 2]);
    assert_eq!(failures(&told, 12), vec![died; 2]);
    assert_eq!(failures(&told, 13), vec![exited(4); 2]);
    assert_eq!(failures(&told, 14).len(), 2);
    for id in [64, OFFICE] {
        let hopeless = GaveUp::Hopeless;
        assert_eq!(starts(&told, id), 0);
        assert!(matches!(&story(&told, id)[..], [What::GaveUp { why, .. }] if *why == hopeless));
    }
}

#[test]
fn children_outlive_their_supervisor_and_the_next_one_adopts_them() {
    let stage = Stage::new();
    let mut first = stage.start("supervise", SUPERVISOR, OFFICE);
    let (ten, eleven) = (stage.next(10, 0), stage.next(11, 0));
    let generation = stage.next(SUPERVISOR, 0).generation;
    first.kill().unwrap();
    first.wait().unwrap();
    let dead = |id, status| (status != Status::Live && stage.lives(id).is_none()).then_some(());
    wait_for("the supervisor's death", || {
        dead(SUPERVISOR, stage.status(SUPERVISOR))
    });
    // A child dies while no supervisor runs.
    stage.kill(eleven);
    wait_for("the child's death", || dead(11, stage.status(11)));
    assert_eq!(stage.lives(10), Some(ten));
    let before = stage.reported().len();

    let mut second = stage.start("supervise", SUPERVISOR, OFFICE);
    stage.next(SUPERVISOR, generation);
    stage.next(11, eleven.generation);
    let reported = wait_for("the first reports", || {
        let reported = stage.reported().split_off(before);
        (reported.len() >= 2).then_some(reported)
    });
    assert!(
        reported[0].starts_with(&format!("process 10 lives as {ten}")),
        "{reported:?}"
    );
    assert!(
        !reported
            .iter()
            .any(|line| line.starts_with("process 10 started"))
    );
    assert_eq!(stage.lives(10), Some(ten));
    // The adopted child is watched.
    stage.kill(ten);
    let ten = stage.next(10, ten.generation);

    // A second supervisor is refused while one lives; and one in this process takes over when it is
    // dead.
    second.kill().unwrap();
    second.wait().unwrap();
    let (supervisor, told) = listen(stage.supervisor());
    let mut supervisor = supervisor
        .child(Child::new(10, 2, || program("stay")))
        .child(Child::new(11, 3, || program("stay")));
    let stop = supervisor.stopper();
    let supervising = std::thread::spawn(move || {
        let outlooks = supervisor.run();
        (supervisor, outlooks)
    });
    wait_for("both to be adopted", || {
        (told.lock().unwrap().len() >= 2).then_some(())
    });
    stop.stop();
    let (mut supervisor, outlooks) = supervising.join().unwrap();
    assert_eq!(
        outlooks,
        [(10, Outlook::Unsettled), (11, Outlook::Unsettled)]
    );
    assert_eq!((starts(&told, 10), starts(&told, 11)), (0, 0));
    assert_eq!(stage.lives(10), Some(ten));
    assert_eq!(supervisor.kill_children(), []);
    for id in [10, 11] {
        wait_for("the killed process to be seen dead", || {
            dead(id, stage.status(id))
        });
    }
}

/// Starts processes here and remembers where they were to run.
struct Remembering(Arc<Mutex<Vec<(InstanceId, InstanceId)>>>);

impl Launch for Remembering {
    fn launch(&self, place: &Place, command: Command) -> io::Result<Box<dyn Launched>> {
        let told: HashMap<_, _> = command
            .get_envs()
            .filter_map(|(name, value)| Some((name.to_str()?, value?.to_str()?)))
            .collect();
        assert_eq!(told[Place::ID], place.id.to_string());
        assert_eq!(told[Place::HOST], place.host.to_string());
        self.0.lock().unwrap().push((place.id, place.host));
        ThisMachine.launch(place, command)
    }
}

#[test]
fn the_children_of_a_host_that_failed_go_to_the_survivor_with_the_fewest() {
    let stage = Stage::new();
    let launched = Arc::default();
    let (supervisor, told) = listen(stage.supervisor().policy(brisk(5)));
    let mut supervisor = supervisor
        .launch(Remembering(Arc::clone(&launched)))
        .child(Child::new(10, 2, || program("stay")))
        .child(Child::new(11, 3, || program("stay")))
        .child(Child::new(12, 3, || program("stay")))
        .child(Child::new(13, 4, || program("stay")));
    let stop = supervisor.stopper();
    let supervising = std::thread::spawn(move || {
        supervisor.run();
        supervisor.kill_children()
    });
    let ten = stage.next(10, 0);
    let thirteen = stage.next(13, 0);
    stage.next(11, 0);
    stage.next(12, 0);
    // Host 2 loses its only process; host 4 has fewer children than host 3.
    stage.kill(ten);
    stage.next(10, ten.generation);
    assert_eq!(stage.host_of(10), 4);
    // The move is reported right after the child is started, which may have joined by then.
    wait_for("the move to be reported", || {
        let moved = What::Moved { from: 2, to: 4 };
        story(&told, 10).contains(&moved).then_some(())
    });
    // Host 4 does not fail while one of its two lives: the other stays.
    stage.kill(thirteen);
    stage.next(13, thirteen.generation);
    assert_eq!(stage.host_of(13), 4);
    let launched = launched.lock().unwrap().clone();
    assert_eq!(
        launched,
        [(10, 2), (11, 3), (12, 3), (13, 4), (10, 4), (13, 4)]
    );
    stop.stop();
    assert_eq!(supervising.join().unwrap(), []);
}

#[test]
fn with_no_host_left_children_go_to_the_supervisor_s_own_or_home() {
    for (goes_home, expected) in [(false, OFFICE), (true, 2)] {
        let stage = Stage::new();
        let mut supervisor = stage
            .supervisor()
            .child(Child::new(10, 2, || program("stay")));
        if goes_home {
            supervisor = supervisor.placement(home);
        }
        let stop = supervisor.stopper();
        let supervising = std::thread::spawn(move || {
            supervisor.run();
            supervisor.kill_children()
        });
        let child = stage.next(10, 0);
        stage.kill(child);
        stage.next(10, child.generation);
        assert_eq!(stage.host_of(10), expected);
        stop.stop();
        assert_eq!(supervising.join().unwrap(), []);
    }
}
