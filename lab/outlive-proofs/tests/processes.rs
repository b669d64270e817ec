//! Pools with workers that are processes, and are killed while they work.
//!
//! A child is this test program again; its environment tells it its role.

use outlive::membership::ProcessOptions;
use outlive_proofs::tasks::chaos::{self, PATIENCE, Role, Scene, Until};
use outlive_tasks::{Band, Options, WorkerPool};
use std::process::Command;
use std::time::{Duration, Instant};

outlive_proofs::chaos_tasks!();

/// Not a test: the entry point of the children. Without a pod it does nothing.
#[test]
fn play() {
    chaos::work().unwrap();
}

/// The command of a child.
fn command() -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["play", "--exact", "--nocapture", "--test-threads=1"]);
    command
}

fn await_that(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs graphs while workers are killed and others come; the results are exact.
fn survive(name: &str, seed: u64, spares: u32, kills: u64) {
    let mut options = chaos::Options::new(Until::Kills(kills), seed);
    options.processes = vec![1, 2];
    options.spares = spares;
    options.stand_by = spares > 0;
    let report = chaos::run(name, &options, chaos_round, command, |_| ()).unwrap();
    println!("{report}");
    assert!(report.is_clean(), "{report}");
    let progress = report.progress;
    assert!(progress.kills >= kills && progress.graphs > 0 && progress.tasks > 100);
}

#[test]
fn results_are_exact_while_workers_are_killed() {
    survive("killed", 1, 0, 8);
}

#[test]
fn spares_take_the_places_of_the_dead() {
    survive("spares", 2, 2, 6);
}

/// A pool that does not resize itself replaces each dead worker; this one when over half are gone.
#[test]
fn some_of_the_dead_are_not_replaced_if_that_is_wanted() {
    let mut scene = Scene::new("accepted", 64 << 20, command).unwrap();
    let pod = scene.pod.clone();
    let process = pod.join(ProcessOptions::on_host(1)).unwrap();
    let member = process.enter(None, "caller").unwrap();
    let heap = member.heap(&pod).unwrap();
    let band = Band {
        failed: 0.5,
        ..Band::default()
    };
    let options = Options::new().elastic(4..=4, band);
    let pool = WorkerPool::create(&pod, &heap, "pool", options).unwrap();
    let status = || pool.status(&pod).unwrap();
    (0..4).for_each(|_| scene.start(1, Role::StandsBy).unwrap());
    await_that("all work", || status().living() == 4);
    (0..2).for_each(|_| scene.start(1, Role::StandsBy).unwrap());
    scene.kill(0).unwrap();
    scene.kill(0).unwrap();
    await_that("two are dead", || status().living() == 2);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(status().living(), 2);
    scene.kill(0).unwrap();
    // One or both: several spares may come after the same death.
    await_that("a spare has come", || {
        let status = status();
        let dead = status.workers.len() as u32 - status.living();
        status.living() >= 2 && status.living() + dead == 4
    });
    while scene.children() > 0 {
        scene.kill(0).unwrap();
    }
    drop(heap);
    drop(member);
    process.leave().unwrap();
}

/// A guest is not one of the workers that the pool wants: when one of these dies a spare comes,
/// though as many work as are wanted.
#[test]
fn who_works_besides_replaces_nobody() {
    let mut scene = Scene::new("guests", 64 << 20, command).unwrap();
    let pod = scene.pod.clone();
    let process = pod.join(ProcessOptions::on_host(1)).unwrap();
    let member = process.enter(None, "caller").unwrap();
    let heap = member.heap(&pod).unwrap();
    let pool = WorkerPool::create(&pod, &heap, "pool", Options::new().workers(2)).unwrap();
    let living = |is_guest: bool| {
        let workers = pool.status(&pod).unwrap().workers;
        let those = { workers.into_iter() }.filter(|it| it.lives && it.is_guest == is_guest);
        those.map(|it| it.worker).collect::<Vec<_>>()
    };
    (0..2).for_each(|_| scene.start(1, Role::Works).unwrap());
    await_that("two work", || living(false).len() == 2);
    scene.start(1, Role::Besides).unwrap();
    await_that("a guest works", || living(true).len() == 1);
    let before = living(false);
    scene.start(1, Role::StandsBy).unwrap();
    scene.kill(0).unwrap();
    await_that("the spare has come", || {
        let now = living(false);
        now.len() == 2 && now != before
    });
    assert!(living(false).iter().any(|it| before.contains(it)));
    // One guest more, and another death: no spare is left.
    scene.start(1, Role::Besides).unwrap();
    await_that("two guests work", || living(true).len() == 2);
    scene.kill(0).unwrap();
    await_that("one works, and two guests", || {
        (living(false).len(), living(true).len()) == (1, 2)
    });
    scene.clear();
    drop(heap);
    drop(member);
    process.leave().unwrap();
}
