//! A pod that is opened for an observer, which writes nothing and does not hinder other processes.

mod pod_file;

use outlive::membership::{GroupId, Instance, ProcessOptions, Subscription};
use outlive::memory::{Memory, Offset, Ordering};
use outlive::pod::{Pod, PodError, PodOptions};
use pod_file::PodFile;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

/// The environment variable with the path of the pod, for [`scribbler`].
const PATH: &str = "OUTLIVE_OBSERVE_TEST";

fn options() -> PodOptions<'static> {
    PodOptions::new().size(16 << 20).ids(32)
}

#[test]
fn an_observer_sees_all_and_changes_nothing() {
    let place = PodFile::new("observe-all");
    let pod = Pod::create(&place.0, options()).unwrap();
    // No process has joined, and the observer creates no side file.
    let seen = Pod::observe(&place.0).unwrap();
    assert!(seen.observe_os().unwrap().is_none());
    assert!(seen.check().is_clean());
    let session = pod.session().unwrap();
    session.counter("hits").unwrap().add(1);
    let seen = Pod::observe(&place.0).unwrap();
    assert!(seen.segment().is_read_only() && !pod.segment().is_read_only());
    let me = session.member().instance().id;
    let os = seen.observe_os().unwrap().unwrap();
    assert_eq!(os.identity(), pod.identity().unwrap());
    assert!(os.is_held(me) && !os.is_held(31));
    assert!(seen.is_present(session.process().instance().id).unwrap());
    assert!(!seen.is_present(31).unwrap());
    assert!(seen.status().members.iter().any(|it| it.id == me));
    assert!(seen.check().is_clean());
    let tables = seen.tables();
    let log = tables.groups().log(GroupId::POD);
    let mut events = Subscription::new(log, tables.extent().ids, 0).observing();
    assert!(events.poll().is_some());
    while events.poll().is_some() {}
    for refused in [
        seen.join(ProcessOptions::on_host(5)).map(drop),
        seen.session().map(drop),
        seen.os().map(drop),
        seen.repair().map(drop),
        seen.bury_host(0).map(drop),
    ] {
        assert!(
            matches!(refused, Err(PodError::ReadOnly { .. })),
            "{refused:?}"
        );
    }
    if outlive::memory::Native::wide_loads_only_read() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let mut own = maps.lines().filter(|line| line.ends_with(&place.0));
        assert!(own.any(|line| line.contains(" r--s ")), "{maps}");
    }
    drop(session);
    pod.close().unwrap();
    drop(pod);
    // An observer does not prevent a repair.
    let repaired = Pod::open(&place.0).unwrap().repair().unwrap();
    assert!(repaired.check.is_clean());
    assert!(seen.check().is_clean());
    let none = Pod::observe("/dev/shm/outlive-no-such-pod").unwrap_err();
    assert!(none.to_string().contains("outlive-no-such-pod"));
}

#[test]
fn a_copy_has_no_members_and_its_holes_are_filled() {
    let (place, copy) = (
        PodFile::new("observe-original"),
        PodFile::new("observe-copy"),
    );
    let pod = Pod::create(&place.0, options()).unwrap();
    let session = pod.session().unwrap();
    session.counter("hits").unwrap().add(1);
    let mut command = Command::new("cp");
    let command = command.args(["--sparse=always", &place.0, &copy.0]);
    assert!(command.status().unwrap().success());
    let seen = Pod::observe(&copy.0).unwrap();
    assert!(seen.observe_os().unwrap().is_none());
    assert!(!seen.is_present(session.process().instance().id).unwrap());
    assert!(seen.segment().is_read_only());
    assert!(matches!(seen.session(), Err(PodError::ReadOnly { .. })));
    use std::os::unix::fs::MetadataExt;
    let file = std::fs::metadata(&copy.0).unwrap();
    assert!(
        file.blocks() * 512 >= file.len(),
        "an access to a hole can be a SIGBUS"
    );
}

#[test]
fn an_impossible_number_of_events_ends_a_subscription() {
    let place = PodFile::new("observe-events");
    let pod = Pod::create(&place.0, options()).unwrap();
    drop(pod.session().unwrap());
    let log = pod.tables().groups().log(GroupId::POD);
    let tail = log.tail();
    let memory = pod.segment().memory();
    let groups = pod
        .segment()
        .area(outlive::segment::AreaKind::Groups)
        .unwrap();
    let words = (0..groups.size / 8).map(|at| groups.offset + at * 8);
    let word = words.into_iter().find(|at| {
        let before: u64 = memory.load(*at, Ordering::Relaxed);
        memory.store(*at, u64::MAX, Ordering::Relaxed);
        let is_it = before == tail && log.tail() == u64::MAX;
        if !is_it {
            memory.store(*at, before, Ordering::Relaxed);
        }
        is_it
    });
    assert!(word.is_some(), "the tail is a word of the groups");
    let ids = pod.tables().extent().ids;
    assert_eq!(Subscription::new(log, ids, 0).observing().poll(), None);
    assert!(!pod.check().is_clean());
}

#[test]
fn an_instance_of_a_damaged_event_has_no_record() {
    let place = PodFile::new("record");
    let pod = Pod::create(&place.0, options()).unwrap();
    let records = pod.tables().records();
    for id in [32, 1 << 20, u32::MAX] {
        assert!(records.read(Instance::new(id, 1)).is_none());
    }
}

/// Stores through an observer's mapping, if [`an_observer_cannot_scribble`] has started it.
#[test]
fn scribbler() {
    if let Ok(path) = std::env::var(PATH) {
        let memory = Pod::observe(path).unwrap().segment().memory();
        memory.store(Offset::new(memory.size() - 8), 1u64, Ordering::Relaxed);
    }
}

#[test]
fn an_observer_cannot_scribble() {
    if !outlive::memory::Native::wide_loads_only_read() {
        eprintln!("skipped: this processor maps an observer's memory writable");
        return;
    }
    let place = PodFile::new("observe-scribble");
    let pod = Pod::create(&place.0, options()).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    let command = command.args(["scribbler", "--exact"]).env(PATH, &place.0);
    let ended = command.output().unwrap().status;
    assert_eq!(ended.signal(), Some(libc::SIGSEGV), "{ended}");
    let memory = pod.segment().memory();
    assert_eq!(
        memory.load::<u64>(Offset::new(memory.size() - 8), Ordering::Relaxed),
        0
    );
}
