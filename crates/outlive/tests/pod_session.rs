//! Sessions of several processes: they create one pod, share named objects by name, and are killed.

mod pod_file;

use outlive::heap::buddy::AllocateError;
use outlive::host::Linux;
use outlive::membership::{ProcessOptions, Status};
use outlive::pod::{Pod, PodError, PodOptions};
use outlive::segment::{CreateError, OpenError};
use outlive::structures::InsertError;
use pod_file::PodFile;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
/// The variable by which the test starts its own program as a worker.
const PATH: &str = "OUTLIVE_SESSION_TEST";
/// The variable by which it starts its own program to take all ids of a pod, with this number of
/// hosts.
const CROWD: &str = "OUTLIVE_SESSION_CROWD";

struct Worker(Child);

impl Worker {
    fn start(path: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let command = command.args(["worker", "--exact", "--nocapture"]);
        Self(
            command
                .env(PATH, path)
                .stdout(Stdio::null())
                .spawn()
                .unwrap(),
        )
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn options() -> PodOptions<'static> {
    PodOptions::new().size(16 << 20).ids(64)
}

#[test]
fn large_values_are_replaced_as_often_as_small_ones() {
    let place = PodFile::new("session-large");
    let pod = Pod::create(&place.0, options()).unwrap();
    let session = pod.session().unwrap();
    for bytes in [20 << 10, 300 << 10, 700 << 10, 3 << 20] {
        let value = vec![7; bytes];
        let cell = session.cell::<[u8]>("config", b"").unwrap();
        let pages = session.map::<u64, [u8]>("pages").unwrap();
        for n in 0..100 {
            cell.set(&value).unwrap();
            pages.insert(&n, &value).unwrap();
            pages.remove(&n).unwrap();
        }
        // A reader of an old value holds later ones back. Without it there is space again.
        let seen = cell.read();
        assert!(
            (0..2000).any(|_| cell.set(&value).is_err()),
            "{bytes} bytes"
        );
        drop(seen);
        cell.set(&value).unwrap();
        cell.set(b"").unwrap();
        session.heap().reclaim();
    }
}

/// Counts forever, if the test has started it for that.
#[test]
fn worker() {
    let Ok(path) = std::env::var(PATH) else {
        return;
    };
    let pod = Pod::open_or_create(&path, options()).unwrap();
    let session = pod.session().unwrap();
    let me = session.member().instance().to_string();
    let total = session.mutex("total", [0u64; 2]).unwrap();
    let acknowledged = session.map::<str, u64>("acknowledged").unwrap();
    for n in 1.. {
        // Both numbers change, or none does.
        let mut both = total.lock().unwrap();
        both[0] += 1;
        both[1] += 1;
        drop(both);
        acknowledged.upsert(&me, &n, |_| n).unwrap();
        if n % 64 == 0 {
            // Creates, renames and unlinks a named cell.
            let objects = session.objects();
            let cell = session.cell::<u64>(&me, &n).unwrap();
            cell.set(&(n + 1)).unwrap();
            let other = format!("{me} renamed");
            objects.rename(&me, &other).unwrap();
            assert_eq!(session.cell::<u64>(&other, &0).unwrap().get(), n + 1);
            objects.unlink(&other).unwrap();
        }
    }
}

#[test]
fn workers_that_are_killed_lose_nothing_that_they_acknowledged() {
    let place = PodFile::new("session-workers");
    let mut workers: Vec<Worker> = (0..4).map(|_| Worker::start(&place.0)).collect();
    let until = Instant::now() + LIMIT;
    let pod = loop {
        match Pod::open(&place.0) {
            Ok(pod) => break pod,
            Err(PodError::Open(OpenError::NotFound { .. } | OpenError::Busy { .. })) => {}
            Err(error) => panic!("{error}"),
        }
        assert!(Instant::now() < until, "no worker creates the pod");
        std::thread::sleep(Duration::from_millis(1));
    };
    let session = pod.session().unwrap();
    let total = session.mutex("total", [0u64; 2]).unwrap();
    let count = || total.lock().unwrap()[0];
    for round in 0..12 {
        let (before, until) = (count(), Instant::now() + LIMIT);
        while count() < before + 200 {
            assert!(Instant::now() < until, "no worker counts");
            std::thread::sleep(Duration::from_millis(1));
        }
        workers[round % 4] = Worker::start(&place.0);
    }
    drop(workers);
    // The deaths are recovered: no lease of a worker is left.
    let until = Instant::now() + LIMIT;
    while { session.objects().list().unwrap() }.iter().any(|object| {
        object
            .users
            .iter()
            .any(|id| *id != session.member().instance().id)
    }) {
        assert!(Instant::now() < until, "{:?}", session.objects().list());
        std::thread::sleep(Duration::from_millis(5));
    }
    let acknowledged = session.map::<str, u64>("acknowledged").unwrap();
    let sum: u64 = acknowledged.iter().map(|(_, n)| n).sum();
    let both = *total.lock().unwrap();
    assert_eq!(both[0], both[1]);
    assert!(
        both[0] >= sum && both[0] <= sum + 16,
        "{both:?}, {sum} acknowledged"
    );
    let blocks = session.objects().blocks().unwrap();
    session.heap().reclaim();
    let retired = (0..64).flat_map(|id| pod.heap().unwrap().retired(pod.logs().of(id)));
    let whole = pod
        .heap()
        .unwrap()
        .check_reachable(blocks.into_iter().chain(retired));
    assert!(whole.is_clean(), "{whole}");
}

/// Takes all ids of the pod and sleeps, if a test has started it for that.
#[test]
fn crowd() {
    let Ok(hosts) = std::env::var(CROWD) else {
        return;
    };
    let pod = Pod::open(std::env::var(PATH).unwrap()).unwrap();
    let hosts = 0..hosts.parse().unwrap();
    let hosts = hosts.map(|_| pod.join(ProcessOptions::on_own_host()).unwrap());
    let hosts: Vec<_> = hosts.collect();
    let members = std::iter::from_fn(|| hosts[0].enter(None, "crowd").ok());
    let _members: Vec<_> = members.collect();
    std::thread::sleep(LIMIT);
}

/// The dead members have all ids, and no member is left that could report their deaths.
#[test]
fn the_ids_of_a_pod_whose_members_were_all_killed_are_joined() {
    for hosts in [1, 3] {
        let place = PodFile::new(&format!("session-crowd-{hosts}"));
        let pod = Pod::create(&place.0, options().ids(8)).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["crowd", "--exact"]).stdout(Stdio::null());
        command.env(PATH, &place.0).env(CROWD, hosts.to_string());
        let crowd = Worker(command.spawn().unwrap());
        let generations = pod.tables().generations();
        let is_taken = |id| {
            generations
                .state(id)
                .is_ok_and(|it| it.status == Status::Live)
        };
        let until = Instant::now() + LIMIT;
        while !(0..8).all(is_taken) {
            assert!(Instant::now() < until, "the ids are not taken");
            std::thread::sleep(Duration::from_millis(1));
        }
        let full = pod.session().map(drop).unwrap_err().to_string();
        drop(crowd);
        let session = pod.session().unwrap();
        session.counter("hits").unwrap().add(1);
        assert!(full.contains("outlive pod repair"), "{full}");
    }
}

#[test]
fn one_of_many_creates_the_pod() {
    let place = PodFile::new("session-one");
    let open = || Pod::open_or_create(&place.0, options()).unwrap().number();
    let numbers: Vec<u128> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(numbers.iter().all(|number| *number == numbers[0]));
}

#[test]
fn the_real_error_is_reported() {
    let place = PodFile::new("session-error");
    match Pod::open_or_create(&place.0, PodOptions::new().size(1 << 46)) {
        Err(PodError::Create(CreateError::NoRoom(_))) => {}
        other => panic!("{other:?}"),
    }
    std::fs::write(&place.0, "a file of another program").unwrap();
    match Pod::open_or_create(&place.0, options()) {
        Err(PodError::Open(OpenError::Refused { .. })) => {}
        other => panic!("{other:?}"),
    }
    std::fs::remove_file(&place.0).unwrap();
}

#[test]
fn each_session_has_a_host_of_its_own_and_leaves_it() {
    let place = PodFile::new("session-hosts");
    let pod = Pod::open_or_create(&place.0, options()).unwrap();
    let first = pod.session().unwrap();
    let second = pod.session().unwrap();
    assert_ne!(first.process().host(), second.process().host());
    // Further threads are of the same process.
    let process = first.process().clone();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let session = pod.session_of(&process).unwrap();
            session.counter("hits").unwrap().add(1);
        });
    });
    assert_eq!(second.counter("hits").unwrap().get(), 1);
    let shared = pod.join(ProcessOptions::on_host(7)).unwrap();
    drop((first, process));
    drop(second);
    shared.leave().unwrap();
    pod.close().unwrap();
}

/// Returns the number of side files of the pod with this number.
fn side_files(number: u128) -> usize {
    let files = Linux::side_files().unwrap();
    files.iter().filter(|file| file.pod == number).count()
}

#[test]
fn a_pod_that_was_destroyed_is_not_joined() {
    let place = PodFile::new("session-destroyed");
    let pod = Pod::create(&place.0, options()).unwrap();
    drop(pod.session().unwrap());
    Pod::destroy(&place.0).unwrap();
    let number = pod.number();
    let refusals = [
        pod.session().map(drop),
        pod.join(ProcessOptions::on_host(3)).map(drop),
        pod.repair().map(drop),
        pod.os().map(drop),
        pod.identity().map(drop),
    ];
    for refused in refusals {
        let is_removed = matches!(refused, Err(PodError::Removed { .. }));
        assert!(is_removed, "{refused:?}");
    }
    assert_eq!(side_files(number), 0);
    // A pod of the same path is another one.
    let next = Pod::create(&place.0, options()).unwrap();
    assert!(matches!(pod.session(), Err(PodError::Removed { .. })));
    drop(next.session().unwrap());
    pod.close().unwrap();
}

#[test]
fn a_pod_whose_file_another_program_removed_is_not_joined() {
    let place = PodFile::new("session-unlinked");
    let pod = Pod::create(&place.0, options()).unwrap();
    let second = Pod::open(&place.0).unwrap();
    let process = pod.join(ProcessOptions::on_host(3)).unwrap();
    std::fs::remove_file(&place.0).unwrap();
    let refused = second.session().unwrap_err().to_string();
    assert!(refused.contains("was removed"), "{refused}");
    assert_eq!(side_files(pod.number()), 1);
    // The members go on, with further threads.
    let session = pod.session_of(&process).unwrap();
    session.counter("hits").unwrap().add(1);
    drop(session);
    process.leave().unwrap();
    assert!(matches!(pod.session(), Err(PodError::Removed { .. })));
    assert_eq!(side_files(pod.number()), 0);
}

#[test]
fn a_pod_without_a_name_is_joined() {
    let pod = Pod::create("memfd:session", options()).unwrap();
    pod.session().unwrap().counter("hits").unwrap().add(1);
    Linux::remove_side_file(pod.number()).unwrap();
}

#[test]
fn the_error_for_a_client_in_use_names_its_user() {
    let place = PodFile::new("session-client");
    let pod = Pod::create(&place.0, options()).unwrap();
    let (first, second) = (pod.session().unwrap(), pod.session().unwrap());
    let client = first.client("teller").unwrap();
    let (user, host) = (first.member().instance(), first.process().host());
    let named = format!(
        "member {user} on host {} (pid {}",
        host.id,
        std::process::id()
    );
    let opened = second.objects().client("teller").unwrap_err();
    let unlinked = second.objects().unlink("teller").unwrap_err();
    for refused in [opened.to_string(), unlinked.to_string()] {
        assert!(refused.contains(&named), "{refused}");
    }
    let own = first.objects().client("teller").unwrap_err().to_string();
    assert!(own.contains("this session"), "{own}");
    drop(client);
    second.client("teller").unwrap();
}

#[test]
fn a_full_heap_says_what_is_free_and_what_is_retired() {
    let place = PodFile::new("session-full");
    let pod = Pod::create(&place.0, options()).unwrap();
    let session = pod.session().unwrap();
    let cell = session.cell::<[u8]>("config", b"").unwrap();
    let value = vec![7; 700 << 10];
    cell.set(&value).unwrap();
    let seen = cell.read();
    let full = (0..100).find_map(|_| cell.set(&value).err()).unwrap();
    // The old values take most of the heap.
    let AllocateError::HeapFull { retired, heap, .. } = full else {
        panic!("{full}");
    };
    assert!((heap / 2..heap).contains(&retired), "{full}");
    let text = format!("{retired} bytes that this thread has retired");
    assert!(full.to_string().contains(&text), "{full}");
    drop(seen);
    cell.set(b"").unwrap();
    session.heap().reclaim();

    let words = session.map::<u64, u64>("words").unwrap();
    let full = (0..1 << 20).find_map(|n| words.insert(&n, &n).err());
    let Some(InsertError::Heap(full @ AllocateError::HeapFull { retired: 0, .. })) = full else {
        panic!("{full:?}");
    };
    let text = full.to_string();
    assert!(!text.contains("retired"), "{text}");
    assert!(text.contains("outlive pod create"), "{text}");
}
