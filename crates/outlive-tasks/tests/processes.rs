//! Pools whose workers are processes, and are killed while they work.
//!
//! A child is this test program again, told by its environment what to be.

use outlive::heap::LocalHeap;
use outlive::membership::{ProcessOptions, Settings};
use outlive::pod::{Pod, PodOptions};
use outlive::supervise::Stop;
use outlive_tasks::{Band, JobState, Options, WorkerPool, task};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// For how long a test waits for something that should take seconds.
const PATIENCE: Duration = Duration::from_secs(120);

task! {
    /// Adds up the numbers of a range, by halves; each leaf takes a little while.
    fn sum(context, round: u32, zero: u32, from: u64, to: u64) {
        let name = format!("{round}: {from}..{to}");
        if to - from <= 4 {
            let since = Instant::now();
            while since.elapsed() < Duration::from_micros(100) {
                std::hint::spin_loop();
            }
            return context.output_of(&name, &(from..to).sum::<u64>());
        }
        let middle = from.midpoint(to);
        let (one, two) = (format!("{round}: {from}..{middle}"), format!("{round}: {middle}..{to}"));
        context.spawn(sum(round, zero, from, middle).writes(&one))?;
        context.spawn(sum(round, zero, middle, to).writes(&two))?;
        context.spawn(add(round, zero, from, to).reads(one).reads(two).writes(name))
    }

    fn add(context, round: u32, _zero: u32, from: u64, to: u64) {
        let middle = from.midpoint(to);
        let one: u64 = context.input_of(&format!("{round}: {from}..{middle}"))?;
        let two: u64 = context.input_of(&format!("{round}: {middle}..{to}"))?;
        context.output_of(&format!("{round}: {from}..{to}"), &(one + two))
    }

    /// A round: the sum, and then another round, with what came of this one.
    fn round(context, number: u32, rounds: u32, len: u64, before: u64) {
        let name = format!("{number}: 0..{len}");
        context.spawn(sum(number, 0, 0, len).writes(&name))?;
        context.spawn(next(number, rounds, len, before).reads(name))
    }

    fn next(context, number: u32, rounds: u32, len: u64, before: u64) {
        let total: u64 = context.input_of(&format!("{number}: 0..{len}"))?;
        let total = before + total;
        if number + 1 == rounds {
            return context.spawn_job("the end", end(total));
        }
        let name = format!("round {}", number + 1);
        context.spawn_job(&name, round(number + 1, rounds, len, total))
    }

    fn end(context, total: u64) {
        context.result_of(&total)
    }
}

/// Not a test: the children's way in. Without a pod it does nothing.
#[test]
fn play() {
    let Ok(path) = std::env::var("OUTLIVE_TEST_POD") else {
        return;
    };
    let number = |name| std::env::var(name).unwrap().parse::<u32>().unwrap();
    let (host, threads) = (number("OUTLIVE_TEST_HOST"), number("OUTLIVE_TEST_THREADS"));
    let is_spare = number("OUTLIVE_TEST_SPARE") != 0;
    let pod = Pod::open(path).unwrap();
    let process = pod.join(ProcessOptions::on_host(host)).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let member = process.enter(None, "worker").unwrap();
                let heap = member.heap(&pod).unwrap();
                let pool = WorkerPool::open(&pod, "pool").unwrap();
                if is_spare {
                    pool.stand_by(&heap, &Stop::default()).unwrap();
                } else {
                    pool.work(&heap, &Stop::default()).unwrap();
                }
            });
        }
    });
}

/// A pod that is destroyed, and its children killed, when the test ends.
struct Scene {
    path: PathBuf,
    pod: Pod,
    children: Vec<(Child, u32)>,
    next_host: u32,
}

impl Scene {
    fn new(name: &str) -> Self {
        let path = format!("/dev/shm/outlive-tasks-{name}-{}", std::process::id());
        let settings = Settings {
            uid: rustix::process::geteuid().as_raw(),
            heartbeat: Duration::from_millis(20),
            poll: Duration::from_millis(40),
            ..Settings::default()
        };
        let options = PodOptions::new()
            .size(128 << 20)
            .ids(256)
            .settings(settings);
        let pod = Pod::create(&path, options).unwrap();
        Self {
            path: path.into(),
            pod,
            children: Vec::new(),
            next_host: 8,
        }
    }

    /// Starts a child with so many workers.
    fn child(&mut self, threads: u32, is_spare: bool) {
        let host = self.next_host;
        self.next_host = if host == 100 { 8 } else { host + 1 };
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["play", "--exact", "--nocapture", "--test-threads=1"])
            .env("OUTLIVE_TEST_POD", &self.path)
            .env("OUTLIVE_TEST_HOST", host.to_string())
            .env("OUTLIVE_TEST_THREADS", threads.to_string())
            .env("OUTLIVE_TEST_SPARE", u32::from(is_spare).to_string())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        self.children.push((child, threads));
    }

    fn kill(&mut self, index: usize) -> u32 {
        let (mut child, threads) = self.children.remove(index);
        assert!(
            child.try_wait().unwrap().is_none(),
            "a child ended by itself"
        );
        child.kill().unwrap();
        child.wait().unwrap();
        threads
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for (child, _) in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        let destroyed = Pod::destroy(&self.path);
        if !std::thread::panicking() {
            destroyed.unwrap();
        }
    }
}

fn await_that(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What is allocated is the pool's, and the word that leads to it.
fn assert_nothing_leaks(pod: &Pod, heap: &LocalHeap<'_>, pool: Option<WorkerPool>) {
    let mut blocks = pool.map_or_else(Vec::new, |pool| pool.blocks(heap).unwrap());
    let roots = pod.roots().list().unwrap();
    blocks.extend(roots.iter().map(|root| root.offset));
    // What has been retired is freed in time.
    let report = pod.heap().unwrap().check_reachable(blocks);
    assert!(report.is_clean(), "{report}");
}

/// Runs rounds of sums while workers are killed and others come; the result is what it should be.
fn survive(name: &str, seed: u64, spares: u32, kills: u32) {
    const LEN: u64 = 2000;
    const ROUNDS: u32 = 4;
    let mut scene = Scene::new(name);
    let pod = scene.pod.clone();
    let process = pod.join(ProcessOptions::on_host(1)).unwrap();
    let member = process.enter(None, "caller").unwrap();
    let heap = member.heap(&pod).unwrap();
    let options = Options::new().workers(3);
    let pool = WorkerPool::create(&pod, &heap, "pool", options).unwrap();
    // A worker that comes when spares have its place already is one too many, and leaves: so all are spares, or none.
    scene.child(1, spares > 0);
    scene.child(2, spares > 0);
    (0..spares).for_each(|_| scene.child(1, true));
    pool.submit(&heap, "round 0", round(0, ROUNDS, LEN, 0))
        .unwrap();
    let mut random = seed;
    let mut draw = |bound: u64| {
        random = random
            .wrapping_mul(0x5851_F42D_4C95_7F2D)
            .wrapping_add(0x1405_7B7E_F767_814F);
        (random >> 33) % bound
    };
    let mut killed = 0;
    let since = Instant::now();
    let end = loop {
        if let Some(end) = pool.job(&heap, "the end")
            && end.state().is_over()
        {
            break end;
        }
        for job in pool.jobs(&heap) {
            assert!(job.state() != JobState::Failed, "{:?}", job.error());
        }
        if since.elapsed() > PATIENCE {
            panic!("{:#?}\n{:#?}", pool.status(&pod).unwrap(), pod.status());
        }
        std::thread::sleep(Duration::from_millis(5 + draw(60)));
        if killed < kills {
            let index = draw(scene.children.len() as u64) as usize;
            let threads = scene.kill(index);
            scene.child(threads, spares > 0);
            killed += 1;
        }
    };
    assert_eq!(
        end.wait_for::<u64>(Some(PATIENCE)).unwrap(),
        Some(u64::from(ROUNDS) * LEN * (LEN - 1) / 2)
    );
    println!("{killed} killed in {:?}", since.elapsed());
    // All die; their logs are recovered, and nothing is left but the pool.
    while !scene.children.is_empty() {
        scene.kill(0);
    }
    await_that("the dead are recovered", || {
        let generations = pod.tables().generations();
        (0..256).all(|id| {
            let state = generations.state(id).unwrap();
            state.status != outlive::membership::Status::Dead
                && (id == process.instance().id
                    || id == process.host().id
                    || id == member.instance().id
                    || !state.status.may_write())
        })
    });
    assert_nothing_leaks(&pod, &heap, Some(pool));
    let check = pod.check();
    assert!(check.is_clean(), "{:#?}", check.violations);
    WorkerPool::destroy(&pod, &heap, "pool").unwrap();
    assert_nothing_leaks(&pod, &heap, None);
    drop(heap);
    drop(member);
    process.leave().unwrap();
}

#[test]
fn results_are_exact_while_workers_are_killed() {
    survive("killed", 1, 0, 8);
}

#[test]
fn spares_take_the_places_of_the_dead() {
    survive("spares", 2, 2, 6);
}

/// A pool without its own way of resizing replaces each; this one when more than half are gone.
#[test]
fn some_of_the_dead_are_not_replaced_if_that_is_wanted() {
    let mut scene = Scene::new("accepted");
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
    (0..4).for_each(|_| scene.child(1, true));
    await_that("all work", || status().living() == 4);
    (0..2).for_each(|_| scene.child(1, true));
    scene.kill(0);
    scene.kill(0);
    await_that("two are dead", || status().living() == 2);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(status().living(), 2);
    scene.kill(0);
    await_that("a spare has come", || {
        let status = status();
        let dead = status.workers.len() as u32 - status.living();
        status.living() == 2 && dead == 2
    });
    while !scene.children.is_empty() {
        scene.kill(0);
    }
    drop(heap);
    drop(member);
    process.leave().unwrap();
}
