//! The watch of a host: a process takes it, keeps it, loses it, and another one takes it over.

use super::*;
use crate::membership::recovery_thread;
use crate::membership::watch::{self, watcher_of};

/// Returns the settings for one machine, with which a backup's interval is ten heartbeats.
fn relaxed() -> Settings {
    Settings {
        uid: 1000,
        ..Settings::default()
    }
}

#[test]
fn backups_beat_seldom_and_do_nothing_else() {
    let settings = relaxed();
    let (tables, script) = (pod(&settings), Scripted::new(1, IDS));
    let mut first = join(tables, &script, 3);
    first.round();
    let mut second = join(tables, &script, 3);
    let mut other = join(tables, &script, 4);
    pass(&mut [&mut first, &mut second, &mut other], 50 * MS);
    assert_eq!(watcher_of(tables, first.host), Some(first.process));
    assert_eq!(watcher_of(tables, other.host), Some(other.process));
    let beats = |of: Instance| tables.records().beats(of.id);
    let before = (beats(first.process), beats(second.process));
    let time = Duration::from_secs(5);
    pass(&mut [&mut first, &mut second, &mut other], time);
    let (of_first, of_second) = (
        beats(first.process) - before.0,
        beats(second.process) - before.1,
    );
    let of = |interval: Duration| (time.as_millis() / interval.as_millis()) as u64;
    assert!(of_first.abs_diff(of(settings.heartbeat)) <= 2, "{of_first}");
    assert!(
        of_second.abs_diff(of(watch::interval(&settings))) <= 2,
        "{of_second}"
    );
    // Its next round is due when it beats, or when a word that it sleeps on changes.
    let due = second.sentinel.round(second.os);
    assert!(due > script.now() + settings.heartbeat, "{due:?}");
    assert_eq!(second.sentinel.held().len(), 1);
    assert_eq!(second.sentinel.held()[0].0, first.process.id);
}

#[test]
fn a_watcher_that_dies_or_leaves_is_followed_at_once() {
    let (tables, script) = (pod(&relaxed()), Scripted::new(1, IDS));
    let mut actors: Vec<Actor> = (0..3).map(|_| join(tables, &script, 3)).collect();
    actors.iter_mut().for_each(Actor::round);
    let of_host = |actors: &[Actor]| watcher_of(tables, actors[0].host);
    assert_eq!(of_host(&actors), Some(actors[0].process));
    // Its obituary is marked before its process is gone, and the mark wakes its backups.
    script.begin_death(actors[0].identity);
    let slept_on = actors[1].sentinel.held()[0].0;
    assert_eq!(slept_on, actors[0].process.id);
    actors[1].round();
    assert_eq!(of_host(&actors), Some(actors[1].process));
    script.end_death(actors[0].identity);
    actors[1].round();
    let died = (EventKind::ProcessDied, actors[0].process);
    assert!(told(tables).contains(&died));
    // A process that leaves resigns the watch.
    let bell = sentinel::bell_of(actors[2].process.id);
    let before = actors[2].os.bells().read(bell);
    let leaver = &actors[1];
    sentinel::exit(leaver.shared, leaver.os, leaver.host, leaver.process, true);
    assert_eq!(of_host(&actors), None);
    assert_ne!(actors[2].os.bells().read(bell), before, "it sleeps on");
    actors[2].round();
    assert_eq!(of_host(&actors), Some(actors[2].process));
}

#[test]
fn a_stopped_watcher_loses_the_watch_before_its_host_is_suspected() {
    for settings in [relaxed(), super::settings()] {
        let (tables, script) = (pod(&settings), Scripted::new(1, IDS));
        let mut manager = join(tables, &script, 0);
        manager.round();
        let mut stopped = join(tables, &script, 3);
        let mut backup = join(tables, &script, 3);
        pass(&mut [&mut manager, &mut stopped, &mut backup], 500 * MS);
        assert_eq!(watcher_of(tables, stopped.host), Some(stopped.process));
        script.stop(stopped.identity);
        pass(&mut [&mut manager, &mut backup], settings.suspicion * 4);
        assert_eq!(watcher_of(tables, stopped.host), Some(backup.process));
        assert_eq!(tables.generations().current(stopped.host.id), 1);
        assert!(!told(tables).iter().any(|(kind, _)| kind.is_death()));
        // A thread of the backup that dies without a mark is found, which requires a watcher.
        let (thread, _, instance) = backup.thread(Some(9));
        script.kill_thread(thread, false);
        pass(
            &mut [&mut manager, &mut backup],
            Duration::from_millis(1100),
        );
        assert!(told(tables).contains(&(EventKind::ThreadDied, instance)));
        // The process that continues is a backup from now on.
        script.resume(stopped.identity);
        pass(
            &mut [&mut manager, &mut stopped, &mut backup],
            settings.suspicion * 4,
        );
        assert_eq!(watcher_of(tables, stopped.host), Some(backup.process));
        assert!(tables.generations().current(stopped.process.id) == 1);
    }
}

#[test]
fn whatever_stands_in_the_watch_word_a_process_takes_it() {
    let (tables, script) = (pod(&relaxed()), Scripted::new(1, IDS));
    let mut actor = join(tables, &script, 3);
    let (host, me) = (actor.host, actor.process);
    let other = join(tables, &script, 4);
    let named = |instance: Instance| instance.to_word();
    for word in [
        1,
        u64::MAX,
        named(Instance::new(me.id, me.generation + 1)),
        named(host),
        named(other.process),
        named(Instance::new(IDS, 1)),
        named(Instance::new(u32::MAX, 1)),
    ] {
        let seen = tables.records().watch(host.id);
        assert!(tables.records().change_watch(host.id, seen, word));
        actor.round();
        assert_eq!(watcher_of(tables, host), Some(me), "{word:#x}");
    }
}

#[test]
fn a_joining_process_is_watched_by_the_others_from_its_first_round_on() {
    let (tables, script) = (pod(&relaxed()), Scripted::new(1, IDS));
    let mut watcher = join(tables, &script, 0);
    watcher.round();
    let bell = sentinel::bell_of(watcher.process.id);
    let before = watcher.os.bells().read(bell);
    let mut newcomer = join(tables, &script, 1);
    newcomer.round();
    assert_ne!(watcher.os.bells().read(bell), before, "it sleeps on");
    watcher.round();
    let held = watcher.sentinel.held();
    assert!(held.iter().any(|(id, _)| *id == newcomer.process.id));
}

#[test]
fn a_manager_whose_obituary_is_missing_is_followed() {
    let (tables, script) = (pod(&relaxed()), Scripted::new(1, IDS));
    let mut manager = join(tables, &script, 0);
    let (mut first, mut second) = (join(tables, &script, 1), join(tables, &script, 2));
    pass(&mut [&mut manager, &mut first, &mut second], 200 * MS);
    assert_eq!(tables.role().holder(), Some(manager.process));
    // The process is gone, and none of its obituaries is marked.
    script.end_death(manager.identity);
    pass(&mut [&mut first, &mut second], Duration::from_millis(2500));
    let died = |of: Instance| tables.generations().is_dead(of);
    assert!(died(manager.process) && died(manager.host));
    let roles = [Some(first.process), Some(second.process)];
    assert!(roles.contains(&tables.role().holder()));
}

#[test]
fn what_no_watcher_serves_is_found_although_a_watcher_is_stopped() {
    let settings = Settings {
        suspicion: Duration::from_secs(60),
        ..relaxed()
    };
    let (tables, script) = (pod(&settings), Scripted::new(1, IDS));
    let mut lowest = join(tables, &script, 0);
    let (mut first, mut dead) = (join(tables, &script, 1), join(tables, &script, 2));
    pass(&mut [&mut lowest, &mut first, &mut dead], 200 * MS);
    script.stop(lowest.identity);
    script.end_death(dead.identity);
    pass(&mut [&mut first], Duration::from_millis(2500));
    assert!(tables.generations().is_dead(dead.process));
}

#[test]
fn a_death_that_stays_unrecovered_wakes_the_recovery_thread_once() {
    let (tables, script) = (pod(&relaxed()), Scripted::new(1, IDS));
    let (mut watcher, victim) = (join(tables, &script, 0), join(tables, &script, 1));
    pass(&mut [&mut watcher], 200 * MS);
    // A process that has no recovery thread yet, as here, has this one's futex.
    let bell = recovery_thread::bell_of(u32::MAX);
    let bells = script.clone();
    let wakes = || crate::host::Bells::read(&bells, bell);
    let before = wakes();
    script.kill_process(victim.identity);
    pass(&mut [&mut watcher], 200 * MS);
    let after = wakes();
    assert_ne!(before, after, "the death has woken no recovery thread");
    pass(&mut [&mut watcher], Duration::from_secs(5));
    assert_eq!(wakes(), after, "it is woken again and again");
}

#[test]
fn a_process_waits_for_each_holder_of_the_join_lock_and_not_for_all_of_them_together() {
    for holders in [1, 4] {
        let (tables, script) = (pod(&relaxed()), Scripted::new(1, IDS));
        let first = join(tables, &script, 3);
        let threads: Vec<_> = (0..holders)
            .map(|_| script.seen_by(script.spawn_thread(first.identity)))
            .collect();
        assert!(matches!(threads[0].hold_obituary(3), Ok(Ok(()))));
        // Each holder has it for less than the patience of 10 s, except for a single one, which
        // keeps it.
        for turn in 1..=threads.len() {
            let (last, next) = (Arc::clone(&threads[turn - 1]), threads.get(turn).cloned());
            if holders > 1 {
                script.at(Duration::from_secs(8) * turn as u32, move |_| {
                    last.release_obituary(3);
                    if let Some(next) = next {
                        assert!(matches!(next.hold_obituary(3), Ok(Ok(()))));
                    }
                });
            }
        }
        let joined = try_join(tables, &script, 3, None, None).map(|_| ());
        match holders {
            1 => assert!(matches!(joined, Err(JoinError::InUse { .. })), "{joined:?}"),
            _ => assert!(joined.is_ok(), "{joined:?}"),
        }
    }
}
