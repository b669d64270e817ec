//! A MapReduce program other than WordCount, on worker threads of one process: the longest line
//! that begins with each byte.

use outlive::membership::ProcessOptions;
use outlive::pod::{Pod, PodOptions};
use outlive::supervise::Stop;
use outlive_programs::key::Key;
use outlive_programs::mapreduce::{MapReduce, MapReduction, OnTasks, tasks};
use outlive_run::input::Inputs;
use outlive_run::on_tasks::{Ended, PoolOf, TaskProgram};
use outlive_tasks::{Call, Options, WorkerPool, task};
use std::collections::BTreeMap;
use std::time::Duration;

/// The longest line that begins with each byte: combining need not be a sum.
struct LongestLines;

impl MapReduce for LongestLines {
    fn divides(&self, byte: u8) -> bool {
        byte == b'\n'
    }

    fn map(&self, text: &[u8], mut emit: impl FnMut(Key<'_>, u64)) {
        for line in text.split(|byte| *byte == b'\n').filter(|l| !l.is_empty()) {
            emit(Key::new(&line[..1]), line.len() as u64);
        }
    }

    fn combine(&self, a: u64, b: u64) -> u64 {
        a.max(b)
    }
}

impl OnTasks for LongestLines {
    const POOL: PoolOf = PoolOf {
        number: 1000,
        name: "longest lines",
    };

    fn of(_: u64) -> Option<Self> {
        Some(Self)
    }

    fn phase(phase: u64) -> Call {
        phase_of_lines(phase)
    }

    fn units(phase: u64, from: u64, to: u64) -> Call {
        units_of_lines(phase, from, to)
    }
}

task! {
    fn phase_of_lines(context, phase: u64) {
        tasks::phase::<LongestLines>(context, phase)
    }

    fn units_of_lines(context, phase: u64, from: u64, to: u64) {
        tasks::units::<LongestLines>(context, phase, from..to)
    }
}

/// A pod's file, removed at the end.
struct Place(String);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = Pod::destroy_forcibly(&self.0);
    }
}

#[test]
fn another_program_fits() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("lines");
    let mut text = String::new();
    let mut expected = BTreeMap::new();
    for n in 0..20_000usize {
        let first = char::from(b'a' + (n % 26) as u8);
        let line = format!("{first}{}", "x".repeat(n * 7919 % 90));
        let longest: &mut u64 = expected.entry(vec![first as u8]).or_default();
        *longest = (*longest).max(line.len() as u64);
        text += &line;
        text += "\n";
    }
    std::fs::write(&file, &text).unwrap();

    let place = Place(format!("/dev/shm/outlive-programs-{}", std::process::id()));
    let pod = Pod::create(&place.0, PodOptions::new().size(48 << 20).ids(16)).unwrap();
    let process = pod.join(ProcessOptions::on_host(0)).unwrap();
    let member = process.enter(None, "maker").unwrap();
    let heap = member.heap(&pod).unwrap();
    let options = Options::new().capacity(5);
    let pool = WorkerPool::create(&pod, &heap, LongestLines::POOL.name, options).unwrap();
    let inputs = Inputs::find(&[&file]).unwrap();
    let reduction = MapReduction::new(LongestLines, inputs);
    let reduction = reduction.unit(10_000).workers(3).seed(3);
    reduction.put(&pool, &heap).unwrap();
    let found = std::thread::scope(|scope| {
        let mut workers = Vec::new();
        for _ in 0..3 {
            workers.push(scope.spawn(|| {
                let member = process.enter(None, "worker").unwrap();
                let heap = member.heap(&pod).unwrap();
                pool.work(&heap, &Stop::default()).unwrap().0.tasks
            }));
        }
        let first = pool.submit(&heap, "round 0", reduction.begin());
        // Each round creates the next one before it is complete.
        let waited: Result<(), String> = first.map_err(|error| error.to_string()).and_then(|_| {
            for round in 0..reduction.rounds() {
                let job = pool.job(&heap, &format!("round {round}"));
                let job = job.ok_or_else(|| format!("there is no round {round}"))?;
                let waited = job.wait(Some(Duration::from_secs(60)));
                waited.map_err(|error| error.to_string())?;
            }
            Ok(())
        });
        pool.resize(&heap, 0).unwrap();
        waited.unwrap();
        let tasks: u64 = workers.into_iter().map(|it| it.join().unwrap()).sum();
        // Each unit twice, each part, and the tasks that spawned them.
        assert!(tasks > 2 * reduction.units() + 16, "{tasks} tasks");
        reduction.result(&pool, &heap, &Ended::default()).unwrap()
    });
    let found: BTreeMap<Vec<u8>, u64> = found.into_iter().collect();
    assert_eq!(found, expected);
    drop(heap);
    drop(member);
    process.leave().unwrap();
}
