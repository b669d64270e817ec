//! Tests of fabric managers that are late, that leave, and that may not kill.

use super::*;
use crate::membership::request::request_fence;
use crate::membership::{NobodyToFence, State, Status};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

const POLL: Duration = Duration::from_millis(16);

/// An agent that answers only when the test allows it, and then kills `victim`.
struct Agent {
    calls: AtomicU32,
    may_answer: AtomicBool,
    victim: (Scripted, ProcessIdentity),
}

impl Agent {
    fn new(script: &Scripted, victim: ProcessIdentity) -> Arc<Self> {
        Arc::new(Self {
            calls: AtomicU32::new(0),
            may_answer: AtomicBool::new(false),
            victim: (script.clone(), victim),
        })
    }

    fn calls(&self) -> u32 {
        self.calls.load(Ordering::SeqCst)
    }
}

impl FenceAgent for Agent {
    fn fence(&self, _: Instance, _: &str) -> Result<(), String> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        while !self.may_answer.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_micros(100));
        }
        self.victim.0.kill_process(self.victim.1);
        Ok(())
    }
}

/// Returns a pod whose processes have fence agents of their own, two operating systems, a victim on
/// the second one, and a manager on the first one with its agent. That agent has been called to
/// fence the victim's host, and has not answered yet.
fn begun_fence() -> (Tables, [Scripted; 2], Actor, Arc<Agent>, Actor) {
    let settings = Settings {
        fence_agents: true,
        ..settings()
    };
    let (tables, here, there) = (pod(&settings), Scripted::new(1, IDS), Scripted::new(2, IDS));
    let victim = try_join(tables, &there, 1, None, idle(&there)).unwrap();
    let agent = Agent::new(&there, victim.identity);
    let mut manager = try_join(tables, &here, 0, None, Some(agent.clone())).unwrap();
    rounds_until(&mut manager, || agent.calls() == 1);
    (tables, [here, there], victim, agent, manager)
}

/// Returns an agent that is never called.
fn idle(script: &Scripted) -> Option<Arc<dyn FenceAgent>> {
    Some(Agent::new(script, script.spawn_process()))
}

/// Runs rounds of `actor` until `done`; agents run on threads of their own, in real time.
#[track_caller]
fn rounds_until(actor: &mut Actor, done: impl Fn() -> bool) {
    for _ in 0..5000 {
        if done() {
            return;
        }
        pass(&mut [actor], MS);
        std::thread::sleep(Duration::from_micros(100));
    }
    panic!("the condition did not become true");
}

#[test]
fn a_manager_that_is_always_late_suspects_who_is_silent_and_nobody_who_beats() {
    let (tables, script) = (pod(&settings()), Scripted::new(1, IDS));
    let (mut manager, mut beating) = (join(tables, &script, 0), join(tables, &script, 1));
    let silent = join(tables, &script, 2);
    pass(&mut [&mut manager, &mut beating], 4 * MS);
    script.stop(silent.identity);
    let mut rounds = 0;
    while !script.was_told_to_die(silent.identity) {
        // Every round is late by half a poll, and finds one beat of each host that beats.
        script.advance(POLL + POLL / 2);
        beating.round();
        manager.round();
        rounds += 1;
        assert!(rounds < 20, "a silent host is not suspected");
    }
    assert!(rounds > 8, "suspected after {rounds} late rounds");
    for _ in 0..100 {
        script.advance(POLL + POLL / 2);
        beating.round();
        manager.round();
    }
    assert!(!script.was_told_to_die(beating.identity));
}

#[test]
fn a_process_that_leaves_keeps_role_and_heart_until_its_agent_has_answered() {
    let (tables, _, victim, agent, mut manager) = begun_fence();
    assert!(
        !manager.sentinel.leave_off(manager.os),
        "an agent is at work"
    );
    let (mut host_beats, mut role_beats) = (0, 0);
    for _ in 0..20 {
        pass(&mut [&mut manager], 2 * POLL);
        assert!(!manager.sentinel.leave_off(manager.os));
        let now = (
            tables.records().beats(manager.host.id),
            tables.role().beats(),
        );
        assert!(
            now.0 > host_beats && now.1 > role_beats,
            "a heartbeat has stopped"
        );
        (host_beats, role_beats) = now;
    }
    assert_eq!(
        tables.role().holder(),
        Some(manager.process),
        "a second manager would fence too"
    );
    agent.may_answer.store(true, Ordering::SeqCst);
    let mut left = false;
    for _ in 0..5000 {
        left = manager.sentinel.leave_off(manager.os);
        if left {
            break;
        }
        pass(&mut [&mut manager], MS);
        std::thread::sleep(Duration::from_micros(100));
    }
    assert!(left, "the agent has answered");
    assert_eq!(tables.role().holder(), None);
    assert!(
        tables.generations().is_dead(victim.host),
        "the agent's success is not lost"
    );
    assert_eq!(agent.calls(), 1);
}

#[test]
fn an_agent_is_asked_for_a_process_that_may_not_be_killed() {
    let settings = Settings {
        fence_agents: true,
        ..settings()
    };
    let (tables, script) = (pod(&settings), Scripted::new(1, IDS));
    let victim = try_join(tables, &script, 1, None, idle(&script)).unwrap();
    let agent = Agent::new(&script, victim.identity);
    agent.may_answer.store(true, Ordering::SeqCst);
    let mut manager = try_join(tables, &script, 0, None, Some(agent.clone())).unwrap();
    pass(&mut [&mut manager], 4 * MS);
    script.refuse_kills(victim.identity, true);
    rounds_until(&mut manager, || tables.generations().is_dead(victim.host));
    assert_eq!(agent.calls(), 1);
    assert!(script.is_gone(victim.identity));
}

#[test]
fn a_stall_of_everything_suspects_no_host_also_of_a_manager_that_is_always_late() {
    for late_before in [0, 20] {
        let (tables, script) = (pod(&settings()), Scripted::new(1, IDS));
        let (mut manager, mut other) = (join(tables, &script, 0), join(tables, &script, 1));
        pass(&mut [&mut manager, &mut other], 4 * POLL);
        for _ in 0..late_before {
            script.advance(POLL + POLL / 2);
            other.round();
            manager.round();
        }
        for stalls in 1..=8 {
            // The manager is the first to run after each of these stalls.
            for _ in 0..stalls {
                script.advance(Duration::from_secs(5));
                manager.round();
            }
            let is_killed = script.was_told_to_die(other.identity);
            assert!(
                !is_killed,
                "after {stalls} stalls, {late_before} late rounds before"
            );
            other.round();
            script.advance(POLL);
            manager.round();
        }
    }
}

#[test]
fn a_process_that_leaves_begins_no_fence_and_waits_for_an_agent_whose_fence_is_over() {
    let (tables, [_, there], victim, agent, mut manager) = begun_fence();
    // The host's death is proven in another way, and a second host falls silent.
    let seen = tables.generations().state(victim.host.id).unwrap();
    there.kill_process(victim.identity);
    assert!(crate::membership::death::raise(tables, victim.host.id, seen, None).is_some());
    let silent = try_join(tables, &there, 2, None, idle(&there)).unwrap();
    assert!(!manager.sentinel.leave_off(manager.os), "the agent lingers");
    for _ in 0..20 {
        pass(&mut [&mut manager], POLL);
        assert!(!manager.sentinel.leave_off(manager.os), "the agent lingers");
    }
    let state = tables.generations().state(silent.host.id).unwrap();
    assert_eq!(state.status, crate::membership::Status::Live);
    agent.may_answer.store(true, Ordering::SeqCst);
    let has_left = (0..5000).any(|_| {
        std::thread::sleep(Duration::from_micros(100));
        manager.sentinel.leave_off(manager.os)
    });
    assert!(has_left, "the agent has answered");
    assert_eq!((tables.role().holder(), agent.calls()), (None, 1));
    // It is not a candidate for the role again.
    pass(&mut [&mut manager], 4 * POLL);
    assert_eq!(tables.role().holder(), None);
}

/// A host dies in another way while an agent is at work against it: its next incarnation would be
/// hit.
#[test]
fn a_host_comes_back_only_when_no_agent_is_at_work_against_it() {
    let (tables, [_, there], victim, agent, mut manager) = begun_fence();
    let manager_id = manager.process.id;
    let seen = tables.generations().state(victim.host.id).unwrap();
    there.kill_process(victim.identity);
    assert!(crate::membership::death::raise(tables, victim.host.id, seen, None).is_some());
    // The manager's host beats while the other waits.
    for beats in 1..1000 {
        there.at(there.now() + beats * POLL, move |_| {
            tables.records().beat(0)
        });
    }
    let refused = try_join(tables, &there, 1, None, idle(&there))
        .map(|_| ())
        .unwrap_err();
    assert!(refused.to_string().contains("a fence agent"), "{refused}");
    // Another host can be joined at the same time.
    assert!(try_join(tables, &there, 2, None, idle(&there)).is_ok());
    agent.may_answer.store(true, Ordering::SeqCst);
    rounds_until(&mut manager, || tables.records().agents(manager_id) == 0);
    let next = try_join(tables, &there, 1, None, idle(&there)).unwrap();
    assert_eq!(next.host, Instance::new(1, 3));
}

/// The caller of an agent loses role and watch to others while the agent is at work.
#[test]
fn an_agent_that_has_returned_is_withdrawn_also_by_a_process_that_is_off_watch() {
    let (tables, [here, there], _victim, agent, mut caller) = begun_fence();
    let other = try_join(tables, &here, 0, None, idle(&there)).unwrap();
    let (records, role) = (tables.records(), tables.role());
    assert!(records.change_watch(0, records.watch(0), other.process.to_word()));
    role.resign(caller.process);
    assert!(role.take(tables.generations(), other.process));
    let seen = tables.generations().state(1).unwrap();
    assert!(crate::membership::death::raise(tables, 1, seen, None).is_some());
    agent.may_answer.store(true, Ordering::SeqCst);
    let withdrawn = (0..500).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        caller.round();
        records.agents(caller.process.id) == 0
    });
    assert!(withdrawn, "its host could never be joined again");
}

/// All processes die while an agent is at work: the agents that dead processes published do not
/// prevent a join.
#[test]
fn the_agent_of_a_dead_process_is_not_waited_for() {
    let (tables, [here, there], victim, agent, manager) = begun_fence();
    for (script, identity) in [(&here, manager.identity), (&there, victim.identity)] {
        script.kill_process(identity);
    }
    let next = try_join(tables, &there, 1, None, idle(&there)).unwrap();
    assert_eq!(next.host, Instance::new(1, 3));
    agent.may_answer.store(true, Ordering::SeqCst);
}

/// Requests a fence of the host of `asked`, of which `victim` is a process; `others` continue.
#[track_caller]
fn is_fenced_on_request(
    tables: Tables,
    victim: &Actor,
    asked: Instance,
    others: &mut [&mut Actor],
) {
    let fenced = request_fence(tables, asked);
    assert_eq!(fenced, Ok(victim.host));
    assert_eq!(request_fence(tables, asked), fenced, "asked twice");
    for _ in 0..100 {
        pass(others, POLL);
        if tables.generations().is_dead(victim.host) {
            assert!(victim.script.is_gone(victim.identity), "raised too early");
            assert_eq!(request_fence(tables, asked), Err(NobodyToFence(asked)));
            return;
        }
    }
    panic!("it is not fenced");
}

/// A process that is stopped while it brings a host to life may be about to write the host's
/// record.
#[test]
fn a_host_without_a_record_is_not_fenced_while_a_process_has_its_join_lock() {
    let (tables, script) = (pod(&settings()), Scripted::new(1, IDS));
    let mut manager = join(tables, &script, 0);
    let joining = script.spawn_process();
    let os = script.seen_by(script.main_thread(joining));
    let lock = os.claim_presence_briefly(1).unwrap().unwrap();
    let fencing = State {
        generation: 1,
        host: manager.shared.os_number,
        level: Some(Level::Host),
        status: Status::Fencing,
    };
    assert!(tables.generations().transition(1, State::FREE, fencing));
    pass(&mut [&mut manager], 20 * POLL);
    assert_eq!(tables.generations().state(1), Ok(fencing));
    drop(lock);
    pass(&mut [&mut manager], 20 * POLL);
    assert!(tables.generations().is_dead(Instance::new(1, 1)));
}

#[test]
fn a_host_that_beats_is_fenced_on_request_of_any_of_its_members() {
    let (tables, script) = (pod(&settings()), Scripted::new(1, IDS));
    let mut manager = join(tables, &script, 0);
    for level in [Level::Host, Level::Process, Level::Thread] {
        let victim = join(tables, &script, 1);
        let (_, _, thread) = victim.thread(None);
        let asked = match level {
            Level::Host => victim.host,
            Level::Process => victim.process,
            Level::Thread => thread,
        };
        pass(&mut [&mut manager], 4 * MS);
        is_fenced_on_request(tables, &victim, asked, &mut [&mut manager]);
        // A process that joins there afterwards is of another incarnation and is not killed.
        let mut next = join(tables, &script, 1);
        assert_eq!(request_fence(tables, asked), Err(NobodyToFence(asked)));
        pass(&mut [&mut manager, &mut next], 4 * POLL);
        assert!(!script.was_told_to_die(next.identity));
        script.kill_process(next.identity);
        pass(&mut [&mut manager], 4 * POLL);
    }
}

#[test]
fn the_managers_own_host_is_fenced_on_request_and_a_backup_goes_on() {
    let (tables, script) = (pod(&settings()), Scripted::new(1, IDS));
    let (mut manager, mut backup) = (join(tables, &script, 0), join(tables, &script, 1));
    pass(&mut [&mut manager, &mut backup], 4 * POLL);
    assert_eq!(tables.role().holder(), Some(manager.process));
    assert_eq!(request_fence(tables, manager.process), Ok(manager.host));
    for _ in 0..100 {
        if !script.was_told_to_die(manager.identity) {
            manager.round();
        }
        pass(&mut [&mut backup], POLL);
        if tables.generations().is_dead(manager.host) {
            assert!(script.is_gone(manager.identity), "raised too early");
            assert_eq!(tables.role().holder(), Some(backup.process));
            return;
        }
    }
    panic!("it is not fenced");
}

#[test]
fn a_manager_that_a_kill_does_not_end_is_reported() {
    let (tables, script) = (pod(&settings()), Scripted::new(1, IDS));
    let (mut manager, mut backup) = (join(tables, &script, 0), join(tables, &script, 1));
    pass(&mut [&mut manager, &mut backup], 4 * POLL);
    assert_eq!(tables.role().holder(), Some(manager.process));
    // Frozen, or in a system call that cannot be interrupted: the signal is sent, and nothing ends.
    script.stop(manager.identity);
    script.make_unkillable(manager.identity, true);
    let suspected = (EventKind::HostSuspected, manager.host);
    let patience = settings().suspicion + settings().fence_timeout;
    pass(&mut [&mut backup], patience / 2);
    assert!(!told(tables).contains(&suspected), "it may still end");
    pass(&mut [&mut backup], patience * 2);
    assert!(told(tables).contains(&suspected));
    assert!(!tables.generations().is_dead(manager.host), "it may write");
    script.make_unkillable(manager.identity, false);
    pass(&mut [&mut backup], 8 * POLL);
    assert!(tables.generations().is_dead(manager.host));
    assert_eq!(tables.role().holder(), Some(backup.process));
}

#[test]
fn a_host_that_beats_is_not_taken_for_silent_because_its_manager_is() {
    let tables = pod(&settings());
    // Two machines with one id: each takes the other for an earlier boot of itself.
    let (one, two) = (
        Scripted::on_machine(77, 1, IDS),
        Scripted::on_machine(77, 2, IDS),
    );
    let (mut manager, other) = (join(tables, &one, 0), join(tables, &one, 0));
    pass(&mut [&mut manager], 4 * POLL);
    assert_eq!(tables.role().holder(), Some(manager.process));
    let mut backup = join(tables, &two, 1);
    // The manager is stopped. The other process of its host beats for the host.
    let beats = settings().suspicion + settings().fence_timeout * 3;
    for _ in 0..beats.as_millis() as u32 {
        tables.records().beat(other.host.id);
        pass(&mut [&mut backup], MS);
    }
    assert!(!tables.generations().is_dead(other.host), "it beats");
    pass(&mut [&mut backup], settings().suspicion * 4);
    assert!(tables.generations().is_dead(other.host));
}
