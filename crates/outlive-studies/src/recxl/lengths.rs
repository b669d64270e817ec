//! How much of a figure is measured: which machine, which workloads, how long.

use crate::{Effort, Run};
use outlive_machine::description::{Bytes, Description};
use outlive_machine::engine::Time;
use outlive_machine::program::{Scale, workloads};

/// How much of a figure is measured.
#[derive(Clone, Debug)]
pub struct Lengths {
    pub description: Description,
    pub workloads: Vec<&'static str>,
    pub scale: Scale,
    pub seeds: u64,
}

impl Lengths {
    /// To the ends of the programs.
    pub fn of(run: &Run<'_>) -> Self {
        let effort = run.effort();
        let scale = match run.at_full_length() {
            true => Scale::Full,
            false => effort.of(Scale::Test, Scale::Test, Scale::Study),
        };
        Self {
            description: effort.of(small(), Description::default(), Description::default()),
            workloads: match effort {
                Effort::Tiny => vec!["ycsb", "ocean-cp"],
                Effort::Quick | Effort::Full => {
                    workloads::ALL.iter().map(|(name, _)| *name).collect()
                }
            },
            scale,
            seeds: effort.of(2, 3, 1),
        }
    }

    /// For what is seen at certain times of a run: inputs that last until then.
    pub fn lasting(run: &Run<'_>) -> Self {
        Self {
            scale: run.effort().of(Scale::Test, Scale::Study, Scale::Full),
            seeds: run.effort().of(2, 1, 1),
            ..Self::of(run)
        }
    }
}

/// A machine with as little as a cluster has. Its logs are dumped often.
fn small() -> Description {
    let mut small = Description::default();
    (small.system.compute_nodes, small.system.memory_nodes) = (4, 2);
    small.system.cores_per_node = 1;
    small.l3.size = Bytes::kibi(64);
    small.logging_unit.dump_period = Time::from_micros(20);
    small
}
