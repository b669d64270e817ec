//! Membership, killed at every instruction; joining and leaving, by real deaths.

use outlive_proofs::membership::joining::{self, ComeAndClose, World};
use outlive_proofs::membership::sweeps as membership;
use outlive_prove::kill::{
    Crash, Plan, PointKind, RealSweep, Sample, Window, assert_clean, assert_found, sweep_for_real,
    unless_forbidden,
};

#[test]
fn telling_burying_and_taking_roles_survive_a_death_at_every_instruction() {
    assert_clean(membership::add_to, &Plan::quick());
}

#[test]
fn a_fence_whose_note_is_lost_is_found() {
    assert_found(membership::broken());
}

#[test]
fn joining_and_leaving_survive_real_deaths() {
    let mut plan = Plan::quick();
    // A recovery here is the join and leave of two processes: half a million instructions, one by
    // one.
    plan.real.recoveries = Sample::UpTo(1);
    // They took longer than a minute on a loaded computer.
    plan.patience = 300;
    assert_clean(joining::add_to, &plan);
}

/// A process that comes and goes like [`ComeAndClose`] with a file beside it, which it alone
/// removes.
struct ComeAndLitter;

impl RealSweep for ComeAndLitter {
    type World = World;

    fn name(&self) -> String {
        "pod.join, leave and litter".into()
    }

    fn declares(&self) -> Vec<&'static PointKind> {
        Vec::new()
    }

    fn prepare(&self) -> Result<World, String> {
        ComeAndClose.prepare()
    }

    fn operate(&self, world: &World, window: Window) {
        let name = format!("/dev/shm/outlive-litter-{}", world.number());
        std::fs::write(&name, "").expect("/dev/shm can be written to");
        ComeAndClose.operate(world, window);
        std::fs::remove_file(name).expect("it is there");
    }

    fn recover(&self, world: &World, window: Window, crash: &Crash) {
        ComeAndClose.recover(world, window, crash);
    }

    fn check(&self, world: &World, crash: &Crash) -> Result<(), String> {
        ComeAndClose.check(world, crash)
    }
}

#[test]
fn a_file_that_is_left_of_a_pod_is_found() {
    let mut plan = Plan::quick();
    plan.real.kills = Sample::UpTo(4);
    plan.real.call_kills = Sample::UpTo(4);
    plan.real.recoveries = Sample::NONE;
    let Some(report) = unless_forbidden(sweep_for_real(&ComeAndLitter, &plan)) else {
        return;
    };
    let mut found = report.failures.iter();
    assert!(
        found.any(|failure| failure.message.contains("is left of a pod")),
        "{report}"
    );
}
