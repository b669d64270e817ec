//! Joins, deaths, stops and fences in any order: no member that can still write is raised.

use super::{Actor, IDS, MS, pod, settings, told, try_join};
use crate::host::{Scripted, ThreadIdentity};
use crate::membership::sentinel;
use crate::membership::{EventKind, Instance, Status};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Act {
    Join(u8),
    Thread(u8),
    Round(u8),
    KillProcess(u8),
    KillThread(u8, bool),
    Stop(u8),
    Resume(u8),
    Leave(u8),
    Pass(u8),
}

fn acts() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (0..4u8).prop_map(Act::Join),
        3 => (0..8u8).prop_map(Act::Thread),
        8 => (0..8u8).prop_map(Act::Round),
        1 => (0..8u8).prop_map(Act::KillProcess),
        2 => ((0..8u8), any::<bool>()).prop_map(|(who, marked)| Act::KillThread(who, marked)),
        1 => (0..8u8).prop_map(Act::Stop),
        2 => (0..8u8).prop_map(Act::Resume),
        1 => (0..8u8).prop_map(Act::Leave),
        6 => (1..40u8).prop_map(Act::Pass),
    ]
}

/// One process of the random script, with its state in the script.
struct Player {
    actor: Actor,
    threads: Vec<(ThreadIdentity, Instance)>,
    gone: bool,
    stopped: bool,
    left: bool,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Checks that no member that can still write is raised, in any order of events; and that after
    /// a quiet time every dead member has been raised and reported, once.
    #[test]
    fn nobody_is_raised_who_lives_and_everybody_dead_is_told(script in prop::collection::vec(acts(), 1..120)) {
        let (tables, os) = (pod(&settings()), Scripted::new(1, IDS));
        let mut players: Vec<Player> = Vec::new();
        let mut dead_threads: Vec<Instance> = Vec::new();
        for act in script {
            let pick = |who: u8, players: &Vec<Player>| {
                (!players.is_empty()).then(|| who as usize % players.len())
            };
            match act {
                Act::Join(host) => {
                    if players.len() < 6
                        && let Ok(actor) = try_join(tables, &os, host.into(), None, None)
                    {
                        players.push(Player { actor, threads: vec![], gone: false, stopped: false, left: false });
                    }
                }
                Act::Thread(who) => {
                    if let Some(at) = pick(who, &players) {
                        let player = &mut players[at];
                        let host_lives = tables.generations().state(player.actor.host.id)
                            .is_ok_and(|state| state.status == Status::Live);
                        if !player.gone && !player.left && !player.stopped && host_lives
                            && player.threads.len() < 3
                            && !tables.generations().is_dead(player.actor.process)
                        {
                            let (thread, _, instance) = player.actor.thread(None);
                            player.threads.push((thread, instance));
                        }
                    }
                }
                Act::Round(who) => {
                    if let Some(at) = pick(who, &players) {
                        let player = &mut players[at];
                        if !player.gone && !player.stopped && !player.left {
                            player.actor.round();
                        }
                    }
                }
                Act::KillProcess(who) => {
                    if let Some(at) = pick(who, &players) {
                        os.kill_process(players[at].actor.identity);
                    }
                }
                Act::KillThread(who, marked) => {
                    if let Some(at) = pick(who, &players)
                        && let Some((thread, instance)) = players[at].threads.pop()
                    {
                        os.kill_thread(thread, marked);
                        dead_threads.push(instance);
                    }
                }
                Act::Stop(who) => {
                    if let Some(at) = pick(who, &players) {
                        players[at].stopped = true;
                    }
                }
                Act::Resume(who) => {
                    if let Some(at) = pick(who, &players) {
                        players[at].stopped = false;
                    }
                }
                Act::Leave(who) => {
                    if let Some(at) = pick(who, &players) {
                        let player = &mut players[at];
                        if !player.gone && !player.stopped && !player.left && player.threads.is_empty() {
                            let actor = &player.actor;
                            sentinel::exit(actor.shared, actor.os, actor.host, actor.process, true);
                            player.left = true;
                        }
                    }
                }
                Act::Pass(time) => os.advance(u32::from(time) * MS),
            }
            for player in &mut players {
                let handle = player.actor.os.scripted().clone();
                player.gone |= handle.is_gone(player.actor.identity);
                if player.gone {
                    dead_threads.extend(player.threads.drain(..).map(|(_, instance)| instance));
                } else if !player.left {
                    // The property under test.
                    prop_assert!(!tables.generations().is_dead(player.actor.process), "{act:?} raised a live process");
                    prop_assert!(!tables.generations().is_dead(player.actor.host), "{act:?} raised a live host");
                    for (_, instance) in &player.threads {
                        prop_assert!(!tables.generations().is_dead(*instance), "{act:?} raised a live thread");
                    }
                }
            }
        }
        // A quiet time: one more process runs rounds while time passes.
        let mut last = None;
        for _ in 0..50 {
            match try_join(tables, &os, 5, None, None) {
                Ok(actor) => { last = Some(actor); break }
                Err(_) => os.advance(MS),
            }
        }
        let mut last = last.expect("the pod can be joined");
        for _ in 0..3000 {
            for player in players.iter_mut().filter(|player| !player.left) {
                if !player.gone && !os.is_gone(player.actor.identity) && !player.stopped {
                    player.actor.round();
                }
                player.gone |= os.is_gone(player.actor.identity);
            }
            last.round();
            os.advance(MS);
        }
        let events = told(tables);
        for player in &players {
            if player.gone && !player.left {
                prop_assert!(tables.generations().is_dead(player.actor.process));
                let died = (EventKind::ProcessDied, player.actor.process);
                prop_assert_eq!(events.iter().filter(|event| **event == died).count(), 1);
            }
        }
        for thread in &dead_threads {
            prop_assert!(tables.generations().is_dead(*thread), "{} is dead and not raised", thread);
            let died = (EventKind::ThreadDied, *thread);
            prop_assert_eq!(events.iter().filter(|event| **event == died).count(), 1, "{}", thread);
        }
    }
}
