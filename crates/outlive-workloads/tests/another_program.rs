//! A program other than WordCount, on worker threads of one process: how often lines of each length come, and which is
//! the longest.

use outlive::membership::ProcessOptions;
use outlive::pod::{Pod, PodOptions};
use outlive_workloads::crew::Crew;
use outlive_workloads::input::Inputs;
use outlive_workloads::key::Key;
use outlive_workloads::mapreduce::{MapReduce, Totals, Worker, results};
use outlive_workloads::run::{Plan, Run};
use outlive_workloads::table::Blocks;
use std::collections::BTreeMap;

/// The longest line that begins with each byte: what is combined need not be a sum.
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

/// A pod's file, removed at the end.
struct Place(String);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = Pod::destroy(&self.0);
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

    let place = Place(format!("/dev/shm/outlive-workloads-{}", std::process::id()));
    let pod = Pod::create(&place.0, PodOptions::new().size(48 << 20).ids(16)).unwrap();
    let heap = pod.heap().unwrap();
    let process = pod.join(ProcessOptions::on_host(0).id(1)).unwrap();
    let plan = Plan {
        inputs: Inputs::find(&[&file]).unwrap(),
        program: 77,
        crew: Crew {
            spares: 0,
            hosts: 1,
            processes: 1,
            threads: 3,
            first_process: 1,
            first_worker: 4,
        },
        unit: 10_000,
        seed: 3,
        kills: 0,
    };
    let memory = pod.segment().memory();
    let run = {
        let member = process.enter(Some(2), "maker").unwrap();
        let local = member.heap(&pod).unwrap();
        let blocks = Blocks {
            buddy: *heap.buddy(),
            member: &member,
            recoverers: member.recoverers().unwrap(),
        };
        let cell = pod.logs().of(2).program_room();
        let run = Run::create(&plan, blocks, memory, cell).unwrap();
        Totals::create(&local, run.totals_cell()).unwrap();
        run
    };
    std::thread::scope(|scope| {
        for number in 0..3 {
            let (pod, process, plan) = (&pod, &process, &plan);
            scope.spawn(move || {
                let member = process
                    .enter(Some(plan.crew.id_of(number)), "worker")
                    .unwrap();
                let local = member.heap(pod).unwrap();
                let blocks = Blocks {
                    buddy: *heap.buddy(),
                    member: &member,
                    recoverers: member.recoverers().unwrap(),
                };
                let mut worker = Worker::new(run, &local, blocks, number);
                worker.work(&LongestLines, |_| ()).unwrap();
            });
        }
    });
    assert!(run.is_done());
    let member = process.enter(Some(2), "reader").unwrap();
    let local = member.heap(&pod).unwrap();
    let found: BTreeMap<Vec<u8>, u64> = results(run, &local).unwrap().into_iter().collect();
    assert_eq!(found, expected);
    drop(local);
    drop(member);
    process.leave().unwrap();
}
