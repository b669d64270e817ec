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
    pub length: Length,
}

/// How long runs are, and so what they may be held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// As tests: too short to be judged, or compared with the paper.
    Test,
    /// As the studies usually are. What is off has been investigated at this length.
    Study,
    /// As in the paper, where the study usually is shorter.
    Paper,
}

impl Lengths {
    /// To the ends of the programs.
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
                    workloads::ALL.iter().map(|(name, _)| *name).collect()
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

    /// For what is seen at certain times of a run: inputs that last until then.
    pub fn lasting(run: &Run<'_>) -> Self {
        Self {
            scale: run.effort().of(Scale::Test, Scale::Study, Scale::Full),
            seeds: run.effort().of(2, 1, 1),
            length: match run.effort() {
                Effort::Tiny | Effort::Quick => Length::Test,
                // They are the paper's, whether its lengths were asked for or not.
                Effort::Full => Length::Study,
            },
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Launcher, Plan, Study};
    use std::sync::Mutex;

    static SEEN: Mutex<Vec<[Length; 2]>> = Mutex::new(Vec::new());

    const LENGTHS: Study = Study {
        name: "lengths",
        about: "what lengths there are",
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
