//! Deaths by SIGKILL, and endings that are not deaths.

use crate::child::counter;
use crate::work::{Ledger, ledger_at};
use crate::{Scene, await_event, await_that, settings};
use outlive::membership::{EventKind, Instance, Status};
use outlive::memory::{Memory, Ordering};
use outlive::sync::RecoverableMutex;
use std::time::Duration;

#[test]
fn a_killed_host_is_told_thread_process_and_host() {
    let mut scene = Scene::new(settings());
    let process = scene.join(0);
    let mut events = process.events();
    let child = scene.child("idle", 1);
    let joined = await_event(&mut events, EventKind::Joined, Some(9));
    assert_eq!(joined.instance, Instance::new(9, 1));
    scene.kill(child);
    let thread = await_event(&mut events, EventKind::ThreadDied, Some(9));
    assert_eq!(thread.instance, joined.instance);
    assert!(scene.pod.tables().generations().is_dead(joined.instance));
    await_event(&mut events, EventKind::ProcessDied, None);
    await_event(&mut events, EventKind::HostDied, Some(1));
    // Its ids come back under the next generation, after its locks have been recovered.
    let again = scene.child("idle", 1);
    let host = await_event(&mut events, EventKind::Rejoined, Some(1));
    let thread = await_event(&mut events, EventKind::Rejoined, Some(9));
    assert!(host.instance.generation > 1 && thread.instance.generation > 1);
    scene.assert_sound();
    scene.kill(again);
}

/// The number of its operating system, on which the evidence of a death is based, may be another
/// system's after it has left.
#[test]
fn the_events_of_a_process_that_has_left_detect_no_death() {
    let mut scene = Scene::new(settings());
    let process = scene.join(0);
    let mut events = process.events();
    let child = scene.child("idle", 1);
    let joined = await_event(&mut events, EventKind::Joined, Some(9));
    process.leave().expect("it has no members");
    scene.kill(child);
    scene.children[child].wait().expect("a child");
    let until = std::time::Instant::now() + Duration::from_secs(1);
    while std::time::Instant::now() < until {
        let _ = events.wait_for(Duration::from_millis(20));
        assert!(!scene.pod.tables().generations().is_dead(joined.instance));
    }
    // A member does.
    let _next = scene.join(2);
    await_that("the death is detected", || {
        scene.pod.tables().generations().is_dead(joined.instance)
    });
}

#[test]
fn leaving_is_told_apart_from_dying() {
    let mut scene = Scene::new(settings());
    let process = scene.join(0);
    let mut events = process.events();
    scene.child("leave", 1);
    await_event(&mut events, EventKind::Left, Some(9));
    await_event(&mut events, EventKind::Left, Some(1));
    let state = scene.pod.tables().generations().state(9).expect("a state");
    assert_eq!((state.status, state.generation), (Status::Left, 1));
    scene.assert_sound();
}

#[test]
fn a_thread_that_ends_while_it_is_a_member_dies_alone() {
    let mut scene = Scene::new(settings());
    let process = scene.join(0);
    let mut events = process.events();
    scene.child("enter and end", 1);
    await_event(&mut events, EventKind::ThreadDied, Some(9));
    let alive = scene.pod.status().members.into_iter().any(|member| {
        member.state.status == Status::Live
            && member
                .record
                .is_some_and(|record| record.name == "enter and end")
    });
    assert!(alive, "its process goes on");
    scene.assert_sound();
}

#[test]
fn a_lock_that_its_owner_died_with_is_had_at_once_and_its_value_whole() {
    let mut scene = Scene::new(settings());
    let process = scene.join(0);
    let member = process.enter(None, "survivor").expect("a thread joins");
    let memory = scene.pod.segment().memory();
    let mutex = RecoverableMutex::<Ledger>::at(memory, ledger_at(&scene.pod));
    let mut events = process.events();
    let child = scene.child("hold", 1);
    let at = counter(&scene.pod);
    await_that("the child holds the lock", || {
        memory.load::<u64>(at, Ordering::Acquire) == 1
    });
    assert!(mutex.try_lock(&member).expect("a sound lock").is_none());
    scene.kill(child);
    let died = await_event(&mut events, EventKind::ThreadDied, Some(9));
    let ledger = mutex.lock(&member).expect("a dead member does not keep it");
    assert_eq!(ledger.abandoned_by(), Some(died.instance));
    assert_eq!(ledger.entries[0], 0, "an uncommitted store is visible");
    drop(ledger);
    await_that("the dead member is recovered", || {
        let state = scene.pod.tables().generations().state(9);
        state.is_ok_and(|state| state.status == Status::Recovered)
    });
    scene.assert_sound();
}

#[test]
fn the_fabric_manager_dies_and_another_takes_its_place() {
    let mut scene = Scene::new(settings());
    let first = scene.child("idle", 1);
    let role = scene.pod.tables().role();
    await_that("there is a manager", || role.holder().is_some());
    let manager = role.holder();
    let process = scene.join(0);
    let mut events = process.events();
    scene.kill(first);
    let taken = await_event(&mut events, EventKind::RoleChanged, None);
    assert_eq!(taken.instance, process.instance());
    assert_ne!(manager, role.holder());
    scene.assert_sound();
}

#[test]
fn a_group_is_joined_by_those_who_know_its_secret() {
    let mut scene = Scene::new(settings());
    let process = scene.join(0);
    let guard = outlive::membership::Guard {
        secret: Some(b"sesame".to_vec()),
        ..Default::default()
    };
    let member = process.enter(None, "host").expect("a thread joins");
    process
        .create_group(&member, "secret", &guard)
        .expect("enough free space");
    let mut events = process
        .join_group(&member, "secret", Some(b"sesame"))
        .expect("the right word");
    let child = scene.child("guess", 1);
    let joined = loop {
        let event = await_event(&mut events, EventKind::Joined, None);
        if event.level == Some(outlive::membership::Level::Thread)
            && event.instance != member.instance()
        {
            break event;
        }
    };
    scene.kill(child);
    let died = await_event(&mut events, EventKind::ThreadDied, None);
    assert_eq!(died.instance, joined.instance);
    await_event(&mut events, EventKind::HostDied, Some(1));
}

/// A pod of dead members is joined again under the same ids.
#[test]
fn a_pod_outlives_all_its_members() {
    let mut scene = Scene::new(settings());
    let generations = scene.pod.tables().generations();
    for generation in [1, 3, 5] {
        let child = scene.child("idle", 1);
        await_that("the thread has joined", || {
            generations
                .state(9)
                .is_ok_and(|state| state.status == Status::Live && state.generation == generation)
        });
        scene.kill(child);
        scene.children[child].wait().expect("it is dead");
        std::thread::sleep(Duration::from_millis(5));
    }
    scene.assert_sound();
}
