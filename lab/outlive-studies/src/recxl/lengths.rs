//! The amount of a figure that is measured: the machine, the workloads, the length of runs.

use crate::{Effort, Run};
use outlive_machine::description::{Bytes, Description};
use outlive_machine::engine::Time;
use outlive_machine::program::Scale;

/// The amount of a figure that is measured.
#[derive(Clone, Debug)]
pub struct Lengths {
    pub description: Description,
    pub workloads: Vec<&'static str>,
    pub scale: Scale,
    pub seeds: u64,
    pub length: Length,
}

/// The length of runs, which determines what they may be compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// As in tests: too short to be judged or compared with the paper.
    Test,
    /// The usual length of the studies. Deviations have been investigated at this length.
    Study,
    /// The paper's length, where the study is usually shorter.
    Paper,
}

impl Lengths {
    /// Returns the lengths for runs to the ends of the programs.
    pub fn of(run: &Run<'_>) -> Self {
        let effort = run.effort();
        let length = match (effort, run.at_full_length()) {
            (_, true) => Length::Paper,
            (Effort::Tiny | Effort::Quick, false) => Length::Test,
            (Effort::Full, false) => Length::Study,
        };
        Self {
            description: effort.of(small(), Description::default(), Description::default()),
            workloads: match effort {
                Effort::Tiny => vec!["ycsb", "ocean-cp"],
                Effort::Quick | Effort::Full => {
                    outlive_kernels::ALL.iter().map(|(name, _)| *name).collect()
                }
            },
            scale: match length {
                Length::Test => Scale::Test,
                Length::Study => Scale::Study,
                Length::Paper => Scale::Full,
            },
            seeds: effort.of(2, 3, 1),
            length,
        }
    }

    /// Returns the lengths for measurements at certain times of a run: the inputs last until then.
    pub fn lasting(run: &Run<'_>) -> Self {
        Self {
            scale: run.effort().of(Scale::Test, Scale::Study, Scale::Full),
            seeds: run.effort().of(2, 1, 1),
            length: match run.effort() {
                Effort::Tiny | Effort::Quick => Length::Test,
                // The inputs are the paper's, whether its lengths were requested or not.
                Effort::Full => Length::Study,
            },
            ..Self::of(run)
        }
    }
}

/// Returns a machine that is as small as a cluster can be. Its logs are dumped often.
fn small() -> Description {
    let mut small = Description::default();
    (small.system.compute_nodes, small.system.memory_nodes) = (4, 2);
    small.system.cores_per_node = 1;
    small.l3.size = Bytes::kibi(64);
    small.logging_unit.dump_period = Time::from_micros(20);
    small
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Launcher, Plan, Study};
    use std::sync::Mutex;

    static SEEN: Mutex<Vec<[Length; 2]>> = Mutex::new(Vec::new());

    const LENGTHS: Study = Study {
        name: "lengths",
        about: "the lengths",
        body: |run| {
            let both = [Lengths::of(run), Lengths::lasting(run)];
            SEEN.lock()
                .unwrap()
                .push(both.map(|lengths| lengths.length));
            Ok(())
        },
    };

    #[test]
    fn first_looks_are_of_a_length_that_is_not_judged() {
        use Length::{Paper, Study, Test};
        for (effort, full_length) in [
            (Effort::Tiny, false),
            (Effort::Quick, false),
            (Effort::Full, false),
            (Effort::Full, true),
        ] {
            let plan = Plan::new(effort, Launcher::this_program([]).unwrap());
            let plan = Plan {
                full_length,
                ..plan
            };
            LENGTHS.run(&plan, &mut |_| ()).unwrap();
        }
        let expected = [[Test, Test], [Test, Test], [Study, Study], [Paper, Study]];
        assert_eq!(*SEEN.lock().unwrap(), expected);
    }
}
