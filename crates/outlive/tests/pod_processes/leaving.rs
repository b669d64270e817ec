//! A process that leaves while it is the fabric manager and a recovery takes long.

use crate::{Scene, await_that, settings};
use outlive::membership::{EventKind, GroupId, Process, ProcessOptions, Settings, Status};
use outlive::pod::Pod;
use outlive::recovery::{
    Operation, OperationKind, OwnLog, RecoverError, RecoverOperation, Recovering,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const KIND: OperationKind = OperationKind::new(0x7777);
/// The duration of the recovery: many times the limit for a silent manager.
const RECOVERY: Duration = Duration::from_secs(3);
static RECOVERS: AtomicBool = AtomicBool::new(false);

/// Recovers an operation after a long time.
struct Slow;

impl RecoverOperation<outlive::memory::Native> for Slow {
    fn recover(&self, dead: &Recovering<'_>, operation: &Operation) -> Result<(), RecoverError> {
        RECOVERS.store(true, Ordering::Release);
        std::thread::sleep(RECOVERY);
        dead.running(operation).abandon(&[]);
        Ok(())
    }
}

/// Plays the child that dies in an operation.
pub fn operate(process: &Process) -> ! {
    let member = process.enter(Some(9), "operator").expect("a thread joins");
    // Neither finished nor abandoned.
    let _running = OwnLog::of(&member).begin(KIND, &[1, 2]);
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

/// Plays the child that leaves: it does so while its recovery thread finishes an operation of a
/// dead process.
pub fn leave_slowly(pod: &Pod, host: u32) {
    let options = ProcessOptions::on_host(host).name("leave slowly");
    let process = pod
        .join_with(options, |recoverers| recoverers.operation(KIND, Slow))
        .expect("the child joins");
    await_that("it recovers", || RECOVERS.load(Ordering::Acquire));
    process.leave().expect("no thread is a member");
}

#[test]
fn a_manager_that_waits_for_its_recovery_to_leave_is_not_killed() {
    let mut scene = Scene::new(Settings {
        suspicion: Duration::from_millis(300),
        ..settings()
    });
    let child = scene.child("leave slowly", 1);
    let role = scene.pod.tables().role();
    await_that("the child is the manager", || role.holder().is_some());
    let _backup = scene.join(0);
    let operator = scene.child("operate", 2);
    let logs = scene.pod.logs();
    await_that("it operates", || {
        logs.of(9)
            .operation()
            .is_ok_and(|operation| operation.is_some())
    });
    scene.kill(operator);
    let status = scene.children[child].wait().expect("it ends");
    assert!(status.success(), "{status}");
    let log = scene.pod.tables().groups().log(GroupId::POD);
    let died = (1..=log.tail()).any(|event| {
        log.event(event)
            .is_some_and(|event| event.kind == EventKind::HostDied && event.instance.id == 1)
    });
    assert!(!died, "its host was fenced");
    assert_eq!(
        scene
            .pod
            .tables()
            .generations()
            .state(1)
            .expect("a state")
            .status,
        Status::Left
    );
    scene.assert_sound();
}
