//! Membership over scripted operating systems: every order of events, without processes.

mod any_order;
mod edges;
mod managers;
mod watches;

use super::events::GroupEvents;
use super::fence::FenceAgent;
use super::join::{self, Claim, JoinError};
use super::sentinel::{self, Entry, Sentinel};
use super::shared::Shared;
use super::{
    EventKind, Extent, GroupId, Instance, InstanceId, Level, NothingHeld, Settings, Tables,
};
use crate::host::{Os, Presence, ProcessIdentity, Scripted, ScriptedOs, ThreadIdentity};
use core::time::Duration;
use outlive_memory::{Native, PersistenceDomain};
use std::sync::{Arc, Mutex};

const MS: Duration = Duration::from_millis(1);
const IDS: u32 = 32;

fn settings() -> Settings {
    Settings {
        uid: 1000,
        ..Settings::real_hosts()
    }
}

fn pod(settings: &Settings) -> Tables {
    let extent = Extent {
        ids: IDS,
        groups: 2,
        events: 256,
        log_bytes: 0,
    };
    let (places, size) = extent.lay_out();
    let memory = Native::leaked(size, PersistenceDomain::Flushed);
    let tables = Tables::new(memory, extent, places);
    tables.initialise(settings);
    tables
}

/// A process of a scripted operating system that has joined.
struct Actor {
    script: Scripted,
    identity: ProcessIdentity,
    os: &'static ScriptedOs,
    shared: &'static Arc<Shared>,
    host: Instance,
    process: Instance,
    sentinel: Sentinel<'static>,
}

fn shared(
    tables: Tables,
    os: &'static dyn Os,
    agent: Option<Arc<dyn FenceAgent>>,
) -> &'static Arc<Shared> {
    let number = tables.operating_systems().number(os.identity()).unwrap();
    let shared = Shared::new(tables, os, number, agent, Arc::new(NothingHeld));
    shared.keep_system(Presence::new(()));
    Box::leak(Box::new(Arc::new(shared)))
}

fn try_join(
    tables: Tables,
    script: &Scripted,
    host: InstanceId,
    id: Option<InstanceId>,
    agent: Option<Arc<dyn FenceAgent>>,
) -> Result<Actor, JoinError> {
    let identity = script.spawn_process();
    let os: &'static ScriptedOs = Box::leak(Box::new(
        (*script.seen_by(script.main_thread(identity))).clone(),
    ));
    let shared = shared(tables, os, agent);
    let entry = Entry {
        host: Some(host),
        host_name: format!("host {host}"),
        id,
        name: "actor".into(),
    };
    super::admission::refuse_the_unfenceable(shared, os, super::admission::Admission::First, None)?;
    let (host, process) = sentinel::enter(shared, os, &entry)?;
    Ok(Actor {
        script: script.clone(),
        identity,
        os,
        shared,
        host,
        process,
        sentinel: Sentinel::new(shared, host, process),
    })
}

fn join(tables: Tables, script: &Scripted, host: InstanceId) -> Actor {
    try_join(tables, script, host, None, None).expect("joining")
}

impl Actor {
    fn round(&mut self) {
        self.sentinel.round(self.os);
    }

    /// Returns a thread of this process, joined; the thread acts through the handle.
    fn thread(&self, id: Option<InstanceId>) -> (ThreadIdentity, Arc<ScriptedOs>, Instance) {
        let thread = self.script.spawn_thread(self.identity);
        let os = self.script.seen_by(thread);
        let claim = Claim {
            level: Level::Thread,
            host_word: self.host.id as u16,
            host: Some(self.host),
            process: Some(self.process),
            has_cord: false,
            name: "thread",
        };
        let (tables, number) = (self.shared.tables, self.shared.os_number);
        let instance = match id {
            Some(id) => join::join(tables, &*os, number, id, &claim),
            None => join::join_any(tables, &*os, number, &claim),
        };
        let instance = instance.expect("a thread joins");
        self.shared.announce(&*os, instance, Level::Thread);
        (thread, os, instance)
    }
}

/// Returns the events of the pod's own group, as words.
fn told(tables: Tables) -> Vec<(EventKind, Instance)> {
    let log = tables.groups().log(GroupId::POD);
    (1..=log.tail())
        .filter_map(|sequence| log.event(sequence))
        .map(|event| (event.kind, event.instance))
        .collect()
}

/// Runs rounds of all `actors`, a millisecond apart, for `time`.
fn pass(actors: &mut [&mut Actor], time: Duration) {
    let script = actors[0].script.clone();
    let until = script.now() + time;
    while script.now() < until {
        for actor in actors.iter_mut() {
            actor.round();
        }
        script.advance(MS);
    }
}

#[test]
fn a_process_comes_with_its_host_and_the_last_one_takes_it_along() {
    let (tables, script) = (pod(&settings()), Scripted::new(1, IDS));
    let (first, second) = (join(tables, &script, 3), join(tables, &script, 3));
    assert_eq!(first.host, Instance::new(3, 1));
    assert_eq!(second.host, first.host);
    sentinel::exit(first.shared, first.os, first.host, first.process, true);
    assert!(!told(tables).contains(&(EventKind::Left, first.host)));
    sentinel::exit(second.shared, second.os, second.host, second.process, true);
    let left = (EventKind::Left, second.host);
    assert_eq!(told(tables).last(), Some(&left));
    let third = join(tables, &script, 3);
    assert_eq!(third.host, Instance::new(3, 2));
    assert!(told(tables).contains(&(EventKind::Rejoined, third.host)));
    assert!(!told(tables).iter().any(|(kind, _)| kind.is_death()));
}

#[test]
fn a_thread_is_told_by_its_obituary_its_process_by_being_gone_the_host_by_its_last_process() {
    let (tables, script) = (pod(&settings()), Scripted::new(1, IDS));
    let mut watcher = join(tables, &script, 0);
    let victim = join(tables, &script, 1);
    let (.., thread) = victim.thread(Some(9));
    script.begin_death(victim.identity);
    watcher.round();
    let died = |what: EventKind, who| told(tables).contains(&(what, who));
    assert!(died(EventKind::ThreadDied, thread));
    assert_eq!(tables.generations().current(9), 2);
    assert!(!died(EventKind::ProcessDied, victim.process));
    assert_eq!(tables.generations().current(victim.process.id), 1);
    script.end_death(victim.identity);
    watcher.round();
    assert!(died(EventKind::ProcessDied, victim.process));
    pass(&mut [&mut watcher], 20 * MS);
    assert!(died(EventKind::HostDied, victim.host));
    for dead in [thread, victim.process, victim.host] {
        let by = tables.records().proven_by(dead);
        assert_eq!(by, Some(watcher.process), "{dead}");
    }
    assert!(
        script.take_wakes().contains(&9),
        "the others were not woken"
    );
}

#[test]
fn a_thread_whose_obituary_is_missing_is_found_by_its_absence() {
    let (tables, script) = (pod(&settings()), Scripted::new(1, IDS));
    let mut watcher = join(tables, &script, 0);
    let mut victim = join(tables, &script, 1);
    let (thread, _, instance) = victim.thread(Some(9));
    script.kill_thread(thread, false);
    watcher.round();
    pass(
        &mut [&mut watcher, &mut victim],
        Duration::from_millis(1100),
    );
    assert!(told(tables).contains(&(EventKind::ThreadDied, instance)));
    // Its id is available again: the unmarked obituary is cleared.
    let (.., again) = victim.thread(Some(9));
    assert_eq!((again.id, again.generation), (9, 3));
}

#[test]
fn fenced_before_it_is_raised_a_silent_host_is_found_within_two_polls() {
    let (tables, script) = (pod(&settings()), Scripted::new(1, IDS));
    let mut manager = join(tables, &script, 0);
    let mut victim = join(tables, &script, 1);
    let (.., thread) = victim.thread(None);
    pass(&mut [&mut manager, &mut victim], 100 * MS);
    assert_eq!(tables.role().holder(), Some(manager.process));
    assert!(!told(tables).iter().any(|(kind, _)| kind.is_death()));
    script.stop(victim.identity);
    script.make_unkillable(victim.identity, true);
    let silent_since = script.now();
    while !script.was_told_to_die(victim.identity) {
        pass(&mut [&mut manager], MS);
        // At most a heartbeat before the first of the two polls begins.
        assert!(script.now() - silent_since <= 2 * 16 * MS + 8 * MS, "late");
    }
    // A process that was sent a signal is not dead: nothing is raised or reported, and no process
    // joins the host.
    pass(&mut [&mut manager], 100 * MS);
    assert_eq!(tables.generations().current(victim.host.id), 1);
    assert_eq!(tables.generations().current(thread.id), 1);
    let refused = try_join(tables, &script, 1, None, None).map(|_| ());
    assert!(
        matches!(refused, Err(JoinError::Gone { .. })),
        "{refused:?}"
    );
    let patience = settings().fence_timeout;
    pass(&mut [&mut manager], patience);
    assert!(told(tables).contains(&(EventKind::HostSuspected, victim.host)));
    script.make_unkillable(victim.identity, false);
    pass(&mut [&mut manager], 40 * MS);
    let events = told(tables);
    let place = |kind, who| {
        events
            .iter()
            .position(|event| *event == (kind, who))
            .unwrap_or_else(|| panic!("{kind:?} of {who} was not reported: {events:?}"))
    };
    let died = place(EventKind::HostDied, victim.host);
    place(EventKind::ProcessDied, victim.process);
    place(EventKind::ThreadDied, thread);
    // The reason is reported, for the host.
    let log = tables.groups().log(GroupId::POD);
    let event = log.event(died as u64 + 1).expect("it was reported");
    assert!(
        event.fenced && event.to_string().ends_with("died: fenced"),
        "{event}"
    );
    let fenced = (1..=log.tail()).filter(|n| log.event(*n).is_some_and(|event| event.fenced));
    assert_eq!(fenced.count(), 1);
}

#[test]
fn fenced_hosts_die_host_first_then_processes_then_threads_where_an_agent_does_it() {
    struct Agent(Mutex<Vec<Instance>>, Scripted, ProcessIdentity);
    impl FenceAgent for Agent {
        fn fence(&self, host: Instance, name: &str) -> Result<(), String> {
            assert_eq!(name, "host 1");
            let mut calls = self.0.lock().unwrap();
            calls.push(host);
            if calls.len() == 1 {
                return Err("the switch is stuck".into());
            }
            self.1.kill_process(self.2);
            Ok(())
        }
    }
    let settings = Settings {
        fence_agents: true,
        fence_timeout: 50 * MS,
        ..settings()
    };
    let tables = pod(&settings);
    let (here, there) = (Scripted::new(1, IDS), Scripted::new(2, IDS));
    struct Never;
    impl FenceAgent for Never {
        fn fence(&self, _: Instance, _: &str) -> Result<(), String> {
            Err("never".into())
        }
    }
    let victim = try_join(tables, &there, 1, None, Some(Arc::new(Never))).unwrap();
    let (.., thread) = victim.thread(None);
    let agent = Arc::new(Agent(Mutex::default(), there.clone(), victim.identity));
    let mut manager = try_join(tables, &here, 0, None, Some(agent.clone())).unwrap();
    for _ in 0..2000 {
        pass(&mut [&mut manager], MS);
        // The agent runs on a thread of its own.
        std::thread::sleep(Duration::from_micros(200));
        if tables.generations().is_dead(victim.host) {
            break;
        }
    }
    pass(&mut [&mut manager], 40 * MS);
    assert_eq!(*agent.0.lock().unwrap(), [victim.host; 2]);
    let deaths: Vec<_> = told(tables)
        .into_iter()
        .filter(|(kind, _)| kind.is_death() || *kind == EventKind::HostSuspected)
        .collect();
    assert_eq!(
        deaths,
        [
            (EventKind::HostSuspected, victim.host),
            (EventKind::HostDied, victim.host),
            (EventKind::ProcessDied, victim.process),
            (EventKind::ThreadDied, thread),
        ]
    );
}

#[test]
fn a_second_operating_system_is_refused_where_nobody_could_fence_it() {
    let tables = pod(&settings());
    let _first = join(tables, &Scripted::new(1, IDS), 0);
    let refused = try_join(tables, &Scripted::new(2, IDS), 1, None, None).map(|_| ());
    assert!(
        matches!(refused, Err(JoinError::Unfenceable { .. })),
        "{refused:?}"
    );
}

#[test]
fn an_id_that_a_process_has_is_no_host_and_is_not_waited_for() {
    let (tables, script) = (pod(&settings()), Scripted::new(1, IDS));
    let taken = join(tables, &script, 0).process.id;
    let before = script.now();
    let refused = try_join(tables, &script, taken, None, None).map(|_| ());
    assert!(
        matches!(refused, Err(JoinError::InUse { id, .. }) if id == taken),
        "{refused:?}"
    );
    assert_eq!(script.now(), before);
}

#[test]
fn an_earlier_boot_of_this_machine_is_dead_and_a_beating_one_is_another_machine() {
    let tables = pod(&settings());
    let (before, after) = (
        Scripted::on_machine(77, 1, IDS),
        Scripted::on_machine(77, 2, IDS),
    );
    let old = join(tables, &before, 1);
    let (.., thread) = old.thread(None);
    let new = join(tables, &after, 1);
    assert_eq!(new.host, Instance::new(1, 3));
    assert!(tables.generations().is_dead(thread));
    assert!(told(tables).contains(&(EventKind::HostDied, old.host)));
    // Two machines with one machine id: the host that beats is not taken for dead.
    let clone = Scripted::on_machine(77, 3, IDS);
    let (records, id) = (tables.records(), new.host.id);
    clone.at(5 * MS, move |_| records.beat(id));
    let refused = try_join(tables, &clone, 1, None, None).map(|_| ());
    assert!(
        matches!(refused, Err(JoinError::Unfenceable { .. })),
        "{refused:?}"
    );
    assert!(!tables.generations().is_dead(new.host));
}

#[test]
fn two_machines_with_one_id_that_join_at_once_are_not_both_admitted() {
    let tables = pod(&settings());
    let (one, two) = (
        Scripted::on_machine(77, 1, IDS),
        Scripted::on_machine(77, 2, IDS),
    );
    let late = two.spawn_process();
    let late: &'static ScriptedOs =
        Box::leak(Box::new((*two.seen_by(two.main_thread(late))).clone()));
    let shared = shared(tables, late, None);
    let admitted = |stage| super::admission::refuse_the_unfenceable(shared, late, stage, None);
    // It checks, and sees no other host yet.
    admitted(super::admission::Admission::First).unwrap();
    let first = join(tables, &one, 1);
    let refused = admitted(super::admission::Admission::Seen);
    assert!(
        matches!(refused, Err(JoinError::Unfenceable { .. })),
        "{refused:?}"
    );
    assert!(!tables.generations().is_dead(first.host));
}

#[test]
fn a_silent_host_of_an_earlier_boot_is_left_to_the_agent_of_a_host_that_beats() {
    /// The machine of the pod's host 0 is never switched off by this.
    struct Stuck;
    impl FenceAgent for Stuck {
        fn fence(&self, _: Instance, _: &str) -> Result<(), String> {
            Err("the switch is stuck".into())
        }
    }
    let settings = Settings {
        fence_agents: true,
        ..settings()
    };
    let tables = pod(&settings);
    let (one, two, three) = (
        Scripted::on_machine(77, 1, IDS),
        Scripted::on_machine(77, 2, IDS),
        Scripted::on_machine(88, 3, IDS),
    );
    let join = |script, host| try_join(tables, script, host, None, Some(Arc::new(Stuck)));
    let victim = join(&one, 0).unwrap();
    let other = join(&three, 1).unwrap();
    // Host 0 may be a machine with a copied id that is stopped. Host 1 fences it, or does not.
    let (records, id) = (tables.records(), other.host.id);
    two.at(5 * MS, move |_| records.beat(id));
    let refused = join(&two, 0).map(drop);
    let why = refused.expect_err("it may live").to_string();
    assert!(why.contains("host 1 is fencing"), "{why}");
    assert!(!tables.generations().is_dead(victim.host));
    // All have lost their power: the first machine that is up again continues.
    let next = join(&two, 0).unwrap();
    assert!(tables.generations().is_gone(victim.host));
    assert!(next.host.generation > victim.host.generation);
}

#[test]
fn a_machine_with_a_copied_id_is_fenced_on_request_only_when_it_is_silent() {
    let tables = pod(&settings());
    let (one, two) = (
        Scripted::on_machine(77, 1, IDS),
        Scripted::on_machine(77, 2, IDS),
    );
    let (mut manager, other) = (join(tables, &two, 0), join(tables, &one, 1));
    let (records, id) = (tables.records(), other.host.id);
    let request = super::request::request_fence(tables, other.process);
    assert_eq!(request, Ok(other.host));
    for _ in 0..200 {
        records.beat(id);
        pass(&mut [&mut manager], settings().heartbeat);
    }
    assert!(!tables.generations().is_dead(other.host), "it beats");
    // A pause of both machines: no poll and no beat.
    two.advance(settings().poll * 1000);
    manager.round();
    assert!(!tables.generations().is_dead(other.host), "it was paused");
    pass(&mut [&mut manager], settings().suspicion * 4);
    assert!(tables.generations().is_dead(other.host));
}

#[test]
fn the_role_passes_from_a_dead_manager_and_from_a_silent_one_that_is_fenced_first() {
    let (tables, script) = (pod(&settings()), Scripted::new(1, IDS));
    let (mut a, mut b, mut c) = (
        join(tables, &script, 0),
        join(tables, &script, 1),
        join(tables, &script, 2),
    );
    pass(&mut [&mut a, &mut b, &mut c], 40 * MS);
    assert_eq!(tables.role().holder(), Some(a.process));
    script.kill_process(a.identity);
    pass(&mut [&mut b, &mut c], 60 * MS);
    assert_eq!(tables.role().holder(), Some(b.process));
    assert!(told(tables).contains(&(EventKind::RoleChanged, b.process)));
    // The next one is only stopped. It must be killed before the role is taken from it.
    script.stop(b.identity);
    script.make_unkillable(b.identity, true);
    pass(&mut [&mut c], 200 * MS);
    assert!(script.was_told_to_die(b.identity));
    assert_eq!(tables.role().holder(), Some(b.process));
    script.make_unkillable(b.identity, false);
    pass(&mut [&mut c], 60 * MS);
    assert_eq!(tables.role().holder(), Some(c.process));
    assert!(!script.was_told_to_die(c.identity));
}

#[test]
fn what_the_manager_missed_itself_counts_against_nobody() {
    let (tables, script) = (pod(&settings()), Scripted::new(1, IDS));
    let (mut manager, mut other) = (join(tables, &script, 0), join(tables, &script, 1));
    pass(&mut [&mut manager, &mut other], 40 * MS);
    for pause in [17, 20, 24, 25, 31, 40, 100, 5000] {
        for phase in 0..16 {
            // All processes are held up, as by a paused virtual machine. The manager wakes first.
            pass(&mut [&mut other, &mut manager], (32 + phase) * MS);
            script.advance(pause * MS);
            manager.round();
            let killed = script.was_told_to_die(other.identity);
            assert!(!killed, "after {pause} ms, {phase} ms after a poll");
        }
    }
    assert!(!told(tables).iter().any(|(kind, _)| kind.is_death()));
}

#[test]
fn a_host_whose_processes_all_died_at_once_comes_back_as_another() {
    let (tables, script) = (pod(&settings()), Scripted::new(1, IDS));
    let mut watcher = join(tables, &script, 0);
    let (first, second) = (join(tables, &script, 1), join(tables, &script, 1));
    script.kill_process(first.identity);
    script.kill_process(second.identity);
    let again = join(tables, &script, 1);
    assert_eq!(again.host, Instance::new(1, 3));
    pass(&mut [&mut watcher], 20 * MS);
    let events = told(tables);
    for died in [
        (EventKind::HostDied, first.host),
        (EventKind::ProcessDied, first.process),
        (EventKind::ProcessDied, second.process),
    ] {
        assert!(events.contains(&died), "{died:?} in {events:?}");
    }
    assert!(events.contains(&(EventKind::Rejoined, again.host)));
}

#[test]
fn a_waiting_member_finds_the_death_itself() {
    let (tables, script) = (pod(&settings()), Scripted::new(1, IDS));
    let watcher = join(tables, &script, 0);
    let victim = join(tables, &script, 1);
    let (_, _, thread) = victim.thread(None);
    let log = tables.groups().log(GroupId::POD);
    let subscription = super::Subscription::new(log, IDS, log.tail());
    let mut events = GroupEvents::new(
        Arc::clone(watcher.shared),
        watcher.process,
        watcher.host,
        GroupId::POD,
        subscription,
    );
    let identity = victim.identity;
    script.at(script.now() + 5 * MS, move |os| os.begin_death(identity));
    // No sentinel runs.
    let news = events.wait_for(50 * MS);
    assert!(
        matches!(&news, Some(super::News::Event(event))
            if event.kind == EventKind::ThreadDied && event.instance == thread),
        "{news:?}"
    );
    assert!(script.now() < 8 * MS);
}
