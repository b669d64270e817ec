//! The scripted operating system keeps to its script.

use core::time::Duration;
use outlive::host::{Liveness, Obituary, Os, Scripted};

const MS: Duration = Duration::from_millis(1);

#[test]
fn what_is_scheduled_ends_a_wait_and_time_stands_where_it_happened() {
    let os = Scripted::new(1, 8);
    let (watcher, victim) = (os.spawn_process(), os.spawn_process());
    let seen = os.seen_by(os.main_thread(watcher));
    os.seen_by(os.main_thread(victim))
        .hold_obituary(2)
        .unwrap()
        .unwrap();
    os.at(5 * MS, move |os| os.begin_death(victim));
    os.at(9 * MS, move |os| os.end_death(victim));
    let handle = seen.open_process(victim).unwrap().unwrap();
    let held = [(2, victim.pid)];
    seen.wait_for_news(&held, 0, 0, 3 * MS);
    assert_eq!(
        (os.now(), seen.obituary(2)),
        (3 * MS, Obituary::Held { tid: victim.pid })
    );
    seen.wait_for_news(&held, 0, 0, 10 * MS);
    assert_eq!(
        (os.now(), seen.obituary(2)),
        (5 * MS, Obituary::Marked { tid: victim.pid })
    );
    assert!(!handle.is_gone());
    assert!(handle.wait_gone(10 * MS));
    assert_eq!(os.now(), 9 * MS);
    let next = os.recycle_pid(victim);
    assert_eq!(next.pid, victim.pid);
    assert!(seen.open_process(victim).unwrap().is_none());
    assert!(seen.clear_obituary(2, Obituary::Marked { tid: victim.pid }));
}

#[test]
fn deaths_that_do_not_come_and_marks_that_are_missing() {
    let os = Scripted::new(1, 8);
    let (watcher, victim) = (os.spawn_process(), os.spawn_process());
    let seen = os.seen_by(os.main_thread(watcher));
    let thread = os.spawn_thread(victim);
    os.seen_by(thread).hold_obituary(1).unwrap().unwrap();
    os.kill_thread(thread, false);
    assert_eq!(seen.obituary(1), Obituary::Held { tid: thread.tid });
    assert_eq!(seen.thread_liveness(thread), Liveness::Gone);
    let handle = seen.open_process(victim).unwrap().unwrap();
    os.refuse_kills(victim, true);
    assert!(!handle.send_kill());
    os.refuse_kills(victim, false);
    os.make_unkillable(victim, true);
    assert!(handle.send_kill());
    assert!(!handle.wait_gone(2 * MS));
    os.make_unkillable(victim, false);
    assert!(handle.is_gone());
}
