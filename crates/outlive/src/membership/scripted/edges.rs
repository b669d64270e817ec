//! Tests of the conclusions that may be drawn across operating systems of one kernel, about
//! processes that call exec, and about copies.

use super::*;
use crate::membership::death::raise;
use crate::membership::request::{NobodyToFence, request_fence};
use crate::membership::{NotBuried, State, Status, bury_by_word};

/// Two operating systems of one kernel that share the pod's file.
fn siblings() -> (Tables, Scripted, Scripted) {
    let (tables, here) = (pod(&settings()), Scripted::on_local_file(1, IDS));
    let there = here.beside();
    (tables, here, there)
}

fn state(tables: Tables, id: InstanceId) -> State {
    tables.generations().state(id).unwrap()
}

#[test]
fn a_whole_operating_system_that_is_gone_is_taken_over_at_once() {
    let (tables, here, there) = siblings();
    let (old, second) = (join(tables, &here, 0), join(tables, &here, 0));
    let (.., thread) = old.thread(None);
    here.kill_process(old.identity);
    here.kill_process(second.identity);
    // The container restarts with another PID namespace and the same host id, and no process that
    // saw the death is left.
    let before = there.now();
    let new = join(tables, &there, 0);
    assert_eq!(there.now(), before, "it waited for something");
    assert_eq!(new.host, Instance::new(0, 3));
    for dead in [old.host, old.process, second.process, thread] {
        assert!(tables.generations().is_dead(dead), "{dead}");
    }
    let events = told(tables);
    assert!(events.contains(&(EventKind::HostDied, old.host)));
    assert!(events.contains(&(EventKind::ThreadDied, thread)));
}

/// Joins with a host of its own.
fn join_anywhere(tables: Tables, script: &Scripted) -> Result<(Instance, Instance), JoinError> {
    let os = script.seen_by(script.main_thread(script.spawn_process()));
    let os: &'static ScriptedOs = Box::leak(Box::new((*os).clone()));
    let entry = Entry {
        host: None,
        host_name: String::new(),
        id: None,
        name: "next".into(),
    };
    sentinel::enter(shared(tables, os, None), os, &entry)
}

/// Fills the ids that are free with threads of `process`.
fn fill(tables: Tables, process: &Actor) -> Vec<(ThreadIdentity, Instance)> {
    let is_free = |id: &InstanceId| state(tables, *id).status == Status::Free;
    let free: Vec<_> = (0..IDS).filter(is_free).collect();
    let threads = free.into_iter().map(|id| process.thread(Some(id)));
    threads
        .map(|(identity, _, thread)| (identity, thread))
        .collect()
}

/// The table shows all ids as live. The next process is of the same operating system, or of a
/// container beside it.
#[test]
fn ids_of_the_dead_are_joined_if_no_other_is_free() {
    for is_beside in [false, true] {
        let (tables, here, there) = siblings();
        let (first, second) = (join(tables, &here, 0), join(tables, &here, 1));
        fill(tables, &first);
        let next = if is_beside { &there } else { &here };
        let full = join_anywhere(tables, next).map(drop);
        assert!(
            matches!(full, Err(JoinError::Full { ids: IDS })),
            "{full:?}"
        );
        here.kill_process(first.identity);
        let (host, process) = join_anywhere(tables, next).expect("the ids of the dead are free");
        assert!(tables.generations().is_dead(first.process));
        assert!(!tables.generations().is_dead(second.process));
        assert_eq!(state(tables, host.id).generation, host.generation);
        assert_eq!(state(tables, process.id).status, Status::Live);
    }
}

/// A host cannot recover a dead thread, but another member will: the pod is not full.
#[test]
fn an_id_that_is_not_recovered_yet_is_worth_another_try() {
    let (tables, here, _) = siblings();
    let mut first = join(tables, &here, 0);
    let dead = &fill(tables, &first)[..2];
    for (identity, _) in dead {
        here.kill_thread(*identity, true);
    }
    first.round();
    assert!({ dead.iter() }.all(|(_, thread)| state(tables, thread.id).status == Status::Dead));
    let refused = join_anywhere(tables, &here).map(drop);
    let ids = dead.iter().map(|(_, thread)| thread.id);
    assert!(
        matches!(refused, Err(JoinError::NotRecovered { id, .. }) if { ids.clone() }.any(|dead| dead == id)),
        "{refused:?}"
    );
    for id in ids {
        let seen = state(tables, id);
        let recovered = State {
            status: Status::Recovered,
            ..seen
        };
        assert!(tables.generations().transition(id, seen, recovered));
    }
    join_anywhere(tables, &here).expect("the ids have been recovered");
}

/// While the operator's word is checked, the host that it means ends and its id is joined again, or
/// becomes that of a process.
#[test]
fn the_operators_word_is_not_about_a_later_incarnation() {
    let (tables, here, _) = siblings();
    let old = join(tables, &here, 0);
    here.kill_process(old.identity);
    let next = core::cell::OnceCell::new();
    let is_present = |_: InstanceId| {
        next.get_or_init(|| join(tables, &here, 0));
        false
    };
    let bells = old.os.bells();
    let refused = bury_by_word(tables, bells, 0, MS, is_present).unwrap_err();
    assert_eq!(refused, NotBuried::Changed(old.host));
    let next = next.get().unwrap();
    assert!(next.host.id == 0 && !tables.generations().is_dead(next.host));
    assert!(!tables.generations().is_dead(next.process));

    here.kill_process(next.identity);
    raise(tables, 0, state(tables, 0), None).unwrap();
    let third = try_join(tables, &here, 1, Some(0), None).unwrap();
    let refused = bury_by_word(tables, bells, 0, MS, |_| false).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("not a host that is up: process"),
        "{refused}"
    );
    assert!(!tables.generations().is_dead(third.process));
}

#[test]
fn one_that_died_while_it_was_joining_is_taken_over_too() {
    for status in [Status::Joining, Status::Fencing] {
        let (tables, here, there) = siblings();
        let old = join(tables, &here, 0);
        let seen = state(tables, 0);
        assert!(
            tables
                .generations()
                .transition(0, seen, State { status, ..seen })
        );
        here.kill_process(old.identity);
        let new = join(tables, &there, 0);
        assert_eq!(new.host.generation, 3, "{status:?}");
        assert!(tables.generations().is_dead(old.process));
    }
}

#[test]
fn a_living_host_of_a_sibling_is_left_alone_and_its_id_refused() {
    let (tables, here, there) = siblings();
    let (old, mut other) = (join(tables, &here, 0), join(tables, &there, 1));
    // It is stopped for less than the suspicion.
    here.stop(old.identity);
    let refused = try_join(tables, &there, 0, None, None).map(|_| ());
    assert!(
        matches!(refused, Err(JoinError::InUse { .. })),
        "{refused:?}"
    );
    let refused = try_join(tables, &there, 2, Some(old.process.id), None).map(|_| ());
    assert!(
        matches!(refused, Err(JoinError::InUse { .. })),
        "{refused:?}"
    );
    other.round();
    assert!(!tables.generations().is_dead(old.host));
    assert!(!here.was_told_to_die(old.identity));
}

#[test]
fn a_process_of_a_sibling_that_died_is_found_within_a_second() {
    let (tables, here, there) = siblings();
    let mut watcher = join(tables, &there, 1);
    let victim = join(tables, &here, 0);
    let (.., thread) = victim.thread(None);
    pass(&mut [&mut watcher], 5 * MS);
    here.kill_process(victim.identity);
    pass(&mut [&mut watcher], 1100 * MS);
    for dead in [victim.host, victim.process, thread] {
        assert!(tables.generations().is_dead(dead), "{dead}");
    }
}

#[test]
fn members_of_a_dead_host_are_found_also_if_its_id_is_that_of_a_thread() {
    let (tables, here, there) = siblings();
    let mut manager = join(tables, &there, 1);
    let old = join(tables, &here, 0);
    let (.., thread) = old.thread(None);
    here.kill_process(old.identity);
    // The survivor that raised the host died before it reached the members.
    raise(tables, 0, state(tables, 0), None).unwrap();
    let (.., next) = manager.thread(Some(0));
    for member in [old.process, thread] {
        assert_eq!(
            request_fence(tables, member),
            Err(NobodyToFence(member)),
            "the thread would be fenced"
        );
    }
    pass(&mut [&mut manager], 50 * MS);
    for dead in [old.process, thread] {
        assert!(tables.generations().is_dead(dead), "{dead}");
    }
    assert!(!tables.generations().is_dead(next));
}

#[test]
fn a_silent_host_of_a_sibling_is_killed_by_its_cord_before_it_is_raised() {
    let (tables, here, there) = siblings();
    let mut manager = join(tables, &there, 1);
    let (first, second) = (join(tables, &here, 0), join(tables, &here, 0));
    here.make_unkillable(second.identity, true);
    pass(&mut [&mut manager], 100 * MS);
    assert!(here.is_gone(first.identity), "the cord was not pulled");
    assert!(here.was_told_to_die(second.identity));
    // One of its processes still exists.
    assert!(!tables.generations().is_dead(first.host));
    here.make_unkillable(second.identity, false);
    pass(&mut [&mut manager], 40 * MS);
    assert!(tables.generations().is_dead(first.host));
    assert!(!there.was_told_to_die(manager.identity));
}

#[test]
fn a_process_that_called_exec_is_dead_and_what_it_became_is_not_killed() {
    let (tables, here, _) = siblings();
    let mut manager = join(tables, &here, 1);
    let victim = join(tables, &here, 0);
    pass(&mut [&mut manager], 5 * MS);
    here.exec(victim.identity);
    pass(&mut [&mut manager], 100 * MS);
    assert!(tables.generations().is_dead(victim.process));
    assert!(tables.generations().is_dead(victim.host));
    assert!(!here.is_gone(victim.identity) && !here.was_told_to_die(victim.identity));
    // The same if the process joins again itself before its death was noticed.
    let again = join(tables, &here, 0);
    here.exec(again.identity);
    let third = join(tables, &here, 0);
    assert_eq!(third.host.generation, again.host.generation + 2);
    assert!(!here.was_told_to_die(again.identity));
}

#[test]
fn on_memory_that_kernels_share_an_absent_process_may_live_elsewhere() {
    // Two virtual machines that were resumed from one snapshot have the same boot id.
    let (tables, here) = (pod(&settings()), Scripted::new(1, IDS));
    let other_kernel = Scripted::new(1, IDS).beside();
    let old = join(tables, &here, 0);
    let (records, id) = (tables.records(), old.host.id);
    for beat in 1..100 {
        other_kernel.at(beat * 5 * MS, move |_| records.beat(id));
    }
    let refused = try_join(tables, &other_kernel, 0, None, None).map(|_| ());
    assert!(
        matches!(
            refused,
            Err(JoinError::Unfenceable { .. } | JoinError::InUse { .. })
        ),
        "{refused:?}"
    );
    assert!(!tables.generations().is_dead(old.host));
}

#[test]
fn numbers_of_operating_systems_that_are_gone_are_given_away() {
    let (tables, first, _) = siblings();
    let mut watcher = join(tables, &first, 31);
    let most = u32::from(crate::membership::OperatingSystems::<Native>::MOST);
    // A container is restarted until the table would be full twice.
    for round in 0..2 * most {
        let here = first.beside();
        let thread = here.main_thread(here.spawn_process());
        let os = here.seen_by(thread);
        let (number, system) =
            crate::membership::operating_systems::enter_system(tables, &*os, os.identity())
                .expect("a number");
        assert_ne!(
            number, watcher.shared.os_number,
            "round {round}: a number that is used"
        );
        assert!(
            tables
                .operating_systems()
                .absence_is_proof(number, watcher.shared.os_number)
        );
        drop(system);
    }
    // A number that a process has taken and no host is on yet is not given away. Nor is a number
    // given to an operating system that reaches the pod by memory of several kernels.
    let last = first.beside();
    let os = last.seen_by(last.main_thread(last.spawn_process()));
    let kept: Vec<_> = (0..most - 1)
        .map(|_| {
            let here = first.beside();
            let os = here.seen_by(here.main_thread(here.spawn_process()));
            crate::membership::operating_systems::enter_system(tables, &*os, os.identity())
                .expect("a number")
        })
        .collect();
    let full = crate::membership::operating_systems::enter_system(tables, &*os, os.identity());
    assert!(matches!(full, Err(JoinError::TooManyBoots(_))), "{full:?}");
    drop(kept);
    let shared = crate::host::OsIdentity {
        one_kernel: false,
        ..os.identity()
    };
    let full = crate::membership::operating_systems::enter_system(tables, &*os, shared);
    assert!(matches!(full, Err(JoinError::TooManyBoots(_))), "{full:?}");
    watcher.round();
    assert!(!tables.generations().is_dead(watcher.process));
}
