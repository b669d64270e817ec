//! Resources that members leave behind in ways that they should not.

use crate::{Scene, await_that, settings};
use outlive::membership::{JoinError, Status};
use outlive::recovery::{OperationKind, OwnLog};
use outlive::sync::{RecoverableMutex, Tatas};

/// An operation without a handler in this program stays unfinished, and its id taken, until a
/// program with one comes: retries do not forget it.
#[test]
fn what_nobody_can_finish_is_kept_for_whoever_can() {
    let scene = Scene::new(settings());
    let process = scene.join(0);
    let there = process.clone();
    std::thread::spawn(move || {
        let member = there.enter(Some(9), "operator").expect("a thread joins");
        // Neither finished nor abandoned.
        let _running = OwnLog::of(&member).begin(OperationKind::new(0x7777), &[1, 2]);
        std::mem::forget(member);
    })
    .join()
    .expect("it ends well");
    let generations = scene.pod.tables().generations();
    await_that("its death is reported", || {
        generations
            .state(9)
            .is_ok_and(|state| state.status == Status::Dead)
    });
    for _ in 0..3 {
        let refused = process.enter(Some(9), "heir").map(|_| ());
        assert!(
            matches!(refused, Err(JoinError::NotRecovered { id: 9, .. })),
            "{refused:?}"
        );
        let left = scene.pod.logs().of(9).operation().expect("a sound log");
        assert!(left.is_some_and(|operation| !operation.is_done()));
    }
}

/// A forgotten guard locks no member out once its owner has left.
#[test]
fn a_forgotten_guard_is_taken_from_who_has_left() {
    let scene = Scene::new(settings());
    let process = scene.join(0);
    let at = scene.pod.payload().expect("payload").offset;
    let mutex = RecoverableMutex::<u64>::at(scene.pod.segment().memory(), at);
    let member = process.enter(Some(9), "forgetful").expect("a thread joins");
    std::mem::forget(mutex.lock(&member).expect("a free lock"));
    drop(member);
    let other = process.enter(Some(10), "other").expect("a thread joins");
    let guard = mutex.lock(&other).expect("the lock is free");
    assert_eq!(guard.abandoned_by().map(|owner| owner.id), Some(9));
}

/// A transaction is not committed after a lock under which it stores was released, though it does
/// not borrow that lock's guard.
#[test]
#[should_panic(expected = "was released")]
fn a_transaction_that_outlives_another_lock_is_refused() {
    let scene = Scene::new(settings());
    let process = scene.join(0);
    let member = process.enter(None, "late").expect("a thread joins");
    let (memory, at) = (
        scene.pod.segment().memory(),
        scene.pod.payload().expect("payload").offset,
    );
    let recoverers = outlive::sync::recoverers(scene.pod.logs());
    let [lock, other] = [at, at + 128].map(|at| Tatas::new(memory, at));
    let guard = lock.lock(&member, &recoverers).expect("a free lock");
    let forgotten = other.lock(&member, &recoverers).expect("a free lock");
    let mut redo = guard.redo().expect("a lock is held");
    redo.store(at + 64, 1u64).expect("a word");
    drop(forgotten);
    redo.commit();
}

/// A copy of a pod's file has the original's members in it. It is refused, or adopted; none of the
/// original's members is killed, fenced or reported dead for it.
#[test]
fn a_copy_of_a_pod_is_adopted_and_fences_nobody() {
    use outlive::membership::ProcessOptions;
    use outlive::pod::{Pod, PodError};
    let mut scene = Scene::new(settings());
    let child = scene.child("idle", 1);
    let generations = scene.pod.tables().generations();
    let is_live = || {
        generations
            .state(9)
            .is_ok_and(|state| state.status == Status::Live)
    };
    await_that("the child has joined", is_live);
    let copy = scene.path.with_extension("copy");
    std::fs::copy(&scene.path, &copy).expect("a copy");
    let pod = Pod::open(&copy).expect("a copy is opened");
    // On the very host of the original's members.
    let options = || ProcessOptions::on_host(1);
    let refused = pod.join(options()).map(|_| ());
    assert!(matches!(refused, Err(PodError::Copy { .. })), "{refused:?}");
    let process = pod.join(options().adopt_copy(true)).expect("adopted");
    assert!(pod.number() != scene.pod.number());
    // Its members count as dead there, and only there.
    let in_copy = pod.tables().generations();
    await_that("the original's members are dead in the copy", || {
        !in_copy.state(9).is_ok_and(|state| state.status.may_write())
    });
    std::thread::sleep(scene.pod.settings().suspicion * 3);
    process.leave().expect("it leaves");
    Pod::destroy(&copy).expect("the copy goes");
    assert!(is_live(), "the original was touched");
    let alive = scene.children[child].try_wait().expect("it can be asked");
    assert!(alive.is_none(), "the child was killed: {alive:?}");
}

/// Impossible options are refused before anything is created.
#[test]
fn impossible_pods_leave_nothing_behind() {
    use outlive::pod::{Pod, PodError, PodOptions};
    let path = format!("/dev/shm/outlive-test-impossible-{}", std::process::id());
    for options in [
        PodOptions::new().ids(0),
        PodOptions::new().ids(70_000),
        PodOptions::new().groups(u32::MAX),
        PodOptions::new().events(0),
    ] {
        let refused = Pod::create(&path, options).map(|_| ());
        assert!(
            matches!(refused, Err(PodError::Impossible { .. })),
            "{refused:?}"
        );
        assert!(!std::path::Path::new(&path).exists());
    }
}
