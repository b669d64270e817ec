//! Shared by the tests of the cluster: machines with judges, and sums of latencies.

// Each test uses a part of this.
#![allow(dead_code)]

pub mod latency;
pub mod replicated;
pub mod tiny;

use outlive_machine::cluster::{self, Cluster, Workload};
use outlive_machine::description::Description;
use outlive_machine::engine::Simulation;
use outlive_machine::program::{Image, Op, Script, Synchronisation, Thread};

/// A workload of one thread with these operations, and 4,096 words.
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

/// A machine in which a judge checks each load, and each commit if it replicates.
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

/// Runs to the end. Then nothing may be left, memory must hold the last stores, and the logs must
/// hold the committed ones.
pub fn finish<T: Thread>(simulation: &mut Simulation<Cluster<T>>) {
    if let Err(stuck) = cluster::run(simulation) {
        panic!("{stuck}\n{}", simulation.machine().life().join("\n"));
    }
    let quiet = simulation.machine().check_quiet();
    quiet.unwrap_or_else(|what| panic!("{what}\n{}", simulation.machine().life().join("\n")));
}
