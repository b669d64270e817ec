//! A host that was only slow is fenced before its generation rises, and never writes afterwards.

use crate::child::counter;
use crate::{Scene, await_event, await_that, settings};
use outlive::membership::{EventKind, GroupId, Settings, State, Status};
use outlive::memory::{Memory, Ordering};
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

fn impatient() -> Settings {
    Settings {
        suspicion: Duration::from_millis(300),
        ..settings()
    }
}

#[test]
fn fenced_a_stopped_host_is_killed_before_it_is_raised_and_never_writes_again() {
    let mut scene = Scene::new(impatient());
    let process = scene.join(0);
    let mut events = process.events();
    let child = scene.child("scribble", 1);
    await_event(&mut events, EventKind::Joined, Some(1));
    let (memory, at) = (scene.pod.segment().memory(), counter(&scene.pod));
    await_that("it writes", || {
        memory.load::<u64>(at, Ordering::Relaxed) > 1000
    });
    let pid = Pid::from_raw(scene.children[child].id() as i32).expect("a pid");
    kill_process(pid, Signal::STOP).expect("it can be stopped");
    let generations = scene.pod.tables().generations();
    // From the moment that the generation rises, and not before, it cannot write any more.
    await_that("its generation rises", || generations.current(1) != 1);
    let written = memory.load::<u64>(at, Ordering::Relaxed);
    // It would continue now if it could.
    let _ = kill_process(pid, Signal::CONT);
    await_event(&mut events, EventKind::HostDied, Some(1));
    // Its process and thread are reported too: before, by their own ends, or after.
    let log = scene.pod.tables().groups().log(GroupId::POD);
    for kind in [EventKind::ProcessDied, EventKind::ThreadDied] {
        await_that("the ends of all its members are reported", || {
            (1..=log.tail()).any(|event| log.event(event).is_some_and(|event| event.kind == kind))
        });
    }
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(memory.load::<u64>(at, Ordering::Relaxed), written);
    let status = scene.children[child].wait().expect("it is gone");
    assert!(!status.success());
    scene.assert_sound();
}

/// As after a fence command that succeeds although the host is not off.
#[test]
fn fenced_a_process_that_is_declared_dead_ends() {
    let mut scene = Scene::new(settings());
    let process = scene.join(0);
    let mut events = process.events();
    let child = scene.child("scribble", 1);
    let thread = await_event(&mut events, EventKind::Joined, None).instance;
    // The host joins first, and its thread last.
    let (memory, at) = (scene.pod.segment().memory(), counter(&scene.pod));
    await_that("it writes", || {
        memory.load::<u64>(at, Ordering::Relaxed) > 0
    });
    assert_eq!(scene.children[child].try_wait().expect("a child"), None);
    let generations = scene.pod.tables().generations();
    let live = generations.state(1).expect("the state of its host");
    let dead = State {
        generation: live.generation + 1,
        status: Status::Dead,
        ..live
    };
    // SAFETY: the contract is broken, as a wrong fence command breaks it. No other member depends
    // on what the child writes.
    assert!(unsafe { generations.assume_state(1, live, dead) });
    let status = scene.children[child].wait().expect("it ends");
    assert_eq!(status.signal(), Some(Signal::KILL.as_raw()));
    await_that("its thread is notified as dead", || {
        generations.is_dead(thread)
    });
}

/// Its heartbeat advances all the time, but fencing is requested.
#[test]
fn fenced_on_request_a_host_is_killed_before_it_is_raised_and_never_writes_again() {
    let mut scene = Scene::new(settings());
    let process = scene.join(0);
    let mut events = process.events();
    let child = scene.child("scribble", 1);
    let thread = await_event(&mut events, EventKind::Joined, None).instance;
    let (memory, at) = (scene.pod.segment().memory(), counter(&scene.pod));
    await_that("it writes", || {
        memory.load::<u64>(at, Ordering::Relaxed) > 1000
    });
    let host = process.fence(thread).expect("it lives");
    assert_eq!(host.id, 1);
    let generations = scene.pod.tables().generations();
    await_that("its generation rises", || generations.is_dead(host));
    let written = memory.load::<u64>(at, Ordering::Relaxed);
    await_event(&mut events, EventKind::HostDied, Some(1));
    assert!(!scene.children[child].wait().expect("it is gone").success());
    assert_eq!(memory.load::<u64>(at, Ordering::Relaxed), written);
    assert!(process.fence(thread).is_err());
    scene.assert_sound();
}

#[test]
fn fenced_a_host_that_is_stopped_for_a_short_time_lives_on() {
    let mut scene = Scene::new(Settings {
        suspicion: Duration::from_secs(30),
        ..settings()
    });
    let process = scene.join(0);
    let mut events = process.events();
    let child = scene.child("scribble", 1);
    await_event(&mut events, EventKind::Joined, Some(1));
    let (memory, at) = (scene.pod.segment().memory(), counter(&scene.pod));
    await_that("it writes", || {
        memory.load::<u64>(at, Ordering::Relaxed) > 1000
    });
    let pid = Pid::from_raw(scene.children[child].id() as i32).expect("a pid");
    kill_process(pid, Signal::STOP).expect("it can be stopped");
    std::thread::sleep(Duration::from_millis(400));
    kill_process(pid, Signal::CONT).expect("it can go on");
    let written = memory.load::<u64>(at, Ordering::Relaxed);
    await_that("it writes again", || {
        memory.load::<u64>(at, Ordering::Relaxed) > written
    });
    assert_eq!(scene.pod.tables().generations().current(1), 1);
}

/// The manager itself is stopped: a backup kills it and takes the role; no other member is hurt.
#[test]
fn fenced_a_stopped_manager_is_killed_before_its_role_is_taken() {
    let mut scene = Scene::new(impatient());
    let first = scene.child("scribble", 1);
    let role = scene.pod.tables().role();
    await_that("there is a manager", || role.holder().is_some());
    let stopped = role.holder().expect("just seen");
    let process = scene.join(0);
    let mut events = process.events();
    let pid = Pid::from_raw(scene.children[first].id() as i32).expect("a pid");
    kill_process(pid, Signal::STOP).expect("it can be stopped");
    let taken = await_event(&mut events, EventKind::RoleChanged, None);
    assert_eq!(taken.instance, process.instance());
    assert!(scene.pod.tables().generations().is_dead(stopped));
    let status = scene.children[first].wait().expect("it is gone");
    assert!(!status.success());
    scene.assert_sound();
}
