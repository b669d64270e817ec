//! What tests of the cluster share: machines that are judged, and sums of latencies.

// Each test takes what it needs.
#![allow(dead_code)]

pub mod latency;
pub mod tiny;

use outlive_machine::cluster::{self, Cluster, Workload};
use outlive_machine::description::Description;
use outlive_machine::engine::Simulation;
use outlive_machine::program::{Image, Op, Script, Synchronisation, Thread};

/// One thread that does this, and 4,096 words.
pub fn one_thread(ops: impl IntoIterator<Item = Op>) -> Workload<Script> {
    Workload {
        threads: vec![Script::new(ops.into_iter().collect::<Vec<_>>())],
        image: Image {
            words: 1 << 12,
            ..Image::default()
        },
        synchronisation: Synchronisation::default(),
    }
}

/// A machine in which each load is judged, and in one that replicates each commit.
pub fn judged<T: Thread>(
    description: &Description,
    workload: Workload<T>,
    seed: u64,
) -> Simulation<Cluster<T>> {
    let image = workload.image.clone();
    let mut simulation = Cluster::simulation(description, workload, seed).unwrap();
    simulation.machine_mut().judge_values(&image);
    simulation
}

/// Runs it to its end, where nothing may be left, memory must hold what was stored last, and logs what was committed.
pub fn finish<T: Thread>(simulation: &mut Simulation<Cluster<T>>) {
    if let Err(stuck) = cluster::run(simulation) {
        panic!("{stuck}\n{}", simulation.machine().life().join("\n"));
    }
    let quiet = simulation.machine().check_quiet();
    quiet.unwrap_or_else(|what| panic!("{what}\n{}", simulation.machine().life().join("\n")));
}
