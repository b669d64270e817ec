//! The common part of all figures: workloads, each run on variants of the machine with seeds.

use super::farm::{self, Job};
use super::lengths::Lengths;
use crate::row::Row;
use crate::statistics::{Estimate, median_estimate};
use crate::{Run, StudyError};
use outlive_machine::description::Description;
use outlive_machine::engine::Time;
use outlive_machine::program::Scale;
use outlive_machine::run::{Crash, Outcome, Placement};

/// A machine to run on, and the parameters of its runs.
#[derive(Clone, Debug)]
pub struct Variant {
    pub name: String,
    pub description: Description,
    /// The times of intermediate statistics.
    pub looks: Vec<Time>,
    /// The time at which a run is ended; by default at the program's end.
    pub until: Option<Time>,
    /// The nodes that die, and the times.
    pub crashes: Vec<Crash>,
    /// The data that is placed in shared memory.
    pub placement: Placement,
}

impl Variant {
    /// Returns a variant whose runs last to the end of the program.
    pub fn new(name: impl Into<String>, description: Description) -> Self {
        Self {
            name: name.into(),
            description,
            looks: Vec::new(),
            until: None,
            crashes: Vec::new(),
            placement: Placement::default(),
        }
    }
}

/// All runs of a figure.
#[derive(Clone, Debug)]
pub struct Grid {
    pub workloads: Vec<&'static str>,
    pub scale: Scale,
    pub variants: Vec<Variant>,
    /// The number of seeds, from 1.
    pub seeds: u64,
}

/// A workload on a variant: an outcome for each seed.
#[derive(Clone, Debug)]
pub struct Cell {
    pub description: Description,
    pub outcomes: Vec<Outcome>,
}

impl Cell {
    /// Returns a number of each outcome.
    pub fn each(&self, number: impl Fn(&Outcome) -> f64) -> Vec<f64> {
        self.outcomes.iter().map(number).collect()
    }

    /// Returns the simulated time of each seed, in seconds.
    pub fn seconds(&self) -> Vec<f64> {
        self.each(|outcome| outcome.end.as_seconds())
    }

    /// Returns the time of each seed as a multiple of that of `base`.
    pub fn times(&self, base: &Self) -> Vec<f64> {
        let both = self.seconds().into_iter().zip(base.seconds());
        both.map(|(ours, base)| ours / base).collect()
    }
}

/// A workload on all variants, in their order.
#[derive(Clone, Debug)]
pub struct Line {
    pub workload: &'static str,
    pub cells: Vec<Cell>,
}

impl Grid {
    /// Returns a grid of `variants`, with the workloads, the scale and the seeds of `lengths`.
    pub fn new(lengths: &Lengths, variants: Vec<Variant>) -> Self {
        Self {
            workloads: lengths.workloads.clone(),
            scale: lengths.scale,
            variants,
            seeds: lengths.seeds,
        }
    }

    /// Runs the grid. The rows that `rows` makes of a workload are added to the answer when it and
    /// all before it are done, so that they are available when a later run fails.
    ///
    /// # Errors
    ///
    /// The first failing run's, or [`StudyError::Stopped`].
    pub fn measure(
        &self,
        run: &mut Run<'_>,
        rows: impl Fn(&Line) -> Vec<Row>,
    ) -> Result<Vec<Line>, StudyError> {
        let seeds = self.seeds as usize;
        let each = self.variants.len() * seeds;
        let mut outcomes: Vec<Option<Outcome>> = vec![None; self.workloads.len() * each];
        let mut lines: Vec<Line> = Vec::new();
        farm::all(run, &self.jobs(), |run, place, outcome| {
            outcomes[place] = Some(outcome);
            while let Some(&workload) = self.workloads.get(lines.len()) {
                let of = lines.len() * each;
                let these = &outcomes[of..of + each];
                let Some(these) = these.iter().cloned().collect::<Option<Vec<_>>>() else {
                    break;
                };
                let cells = these.chunks(seeds).zip(&self.variants);
                let line = Line {
                    workload,
                    cells: cells
                        .map(|(outcomes, variant)| Cell {
                            description: variant.description.clone(),
                            outcomes: outcomes.to_vec(),
                        })
                        .collect(),
                };
                run.answer(rows(&line));
                lines.push(line);
            }
        })?;
        Ok(lines)
    }

    fn jobs(&self) -> Vec<Job> {
        let mut jobs = Vec::new();
        for &workload in &self.workloads {
            for variant in &self.variants {
                jobs.extend((1..=self.seeds).map(|seed| Job {
                    workload,
                    scale: self.scale,
                    variant: variant.name.clone(),
                    description: variant.description.clone(),
                    seed,
                    looks: variant.looks.clone(),
                    until: variant.until,
                    crashes: variant.crashes.clone(),
                    placement: variant.placement,
                }));
            }
        }
        jobs
    }
}

/// Returns the geometric mean of `number` over the workloads, seed by seed.
pub fn geometric_mean(lines: &[Line], number: impl Fn(&Line) -> Vec<f64>) -> Estimate {
    mean(lines, number, |values| {
        let logarithms = values.iter().map(|value| value.ln());
        (logarithms.sum::<f64>() / values.len() as f64).exp()
    })
}

/// Returns the arithmetic mean of `number` over the workloads, seed by seed.
pub fn arithmetic_mean(lines: &[Line], number: impl Fn(&Line) -> Vec<f64>) -> Estimate {
    mean(lines, number, |values| {
        values.iter().sum::<f64>() / values.len() as f64
    })
}

fn mean(
    lines: &[Line],
    number: impl Fn(&Line) -> Vec<f64>,
    of: impl Fn(&[f64]) -> f64,
) -> Estimate {
    let numbers: Vec<Vec<f64>> = lines.iter().map(number).collect();
    let seeds = numbers.first().map_or(0, Vec::len);
    let of_seed = |seed: usize| {
        let values: Vec<f64> = numbers.iter().map(|numbers| numbers[seed]).collect();
        of(&values)
    };
    median_estimate(&(0..seeds).map(of_seed).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::super::{row, with};
    use super::*;
    use crate::{Effort, Launcher, Plan, Progress, Study};
    use outlive_machine::description::Protocol;
    use outlive_machine::run::{self, Subject, unwatched};

    fn grid(run: &Run<'_>, workloads: Vec<&'static str>) -> Grid {
        let lengths = Lengths::of(run);
        let variant = |protocol: Protocol| {
            Variant::new(protocol.name(), with(&lengths.description, protocol))
        };
        let variants = [Protocol::WriteBack, Protocol::Baseline].map(variant);
        Grid {
            workloads,
            seeds: 2,
            ..Grid::new(&lengths, variants.to_vec())
        }
    }

    /// Each run has the same outcome alone as at the same time as others. The rows are in the order
    /// of the workloads.
    const ALONE: Study = Study {
        name: "alone",
        about: "runs at once beside the same runs alone",
        body: |run| {
            let grid = grid(run, vec!["ocean-cp", "ycsb", "streamcluster"]);
            let lines = grid.measure(run, |line| {
                let times = line.cells[1].times(&line.cells[0]);
                assert_eq!(line.cells[0].times(&line.cells[0]), [1.0, 1.0]);
                vec![row(line.workload, "baseline", "times wb", &times)]
            })?;
            for line in &lines {
                for (cell, variant) in line.cells.iter().zip(&grid.variants) {
                    for (seed, outcome) in (1..).zip(&cell.outcomes) {
                        let workload =
                            outlive_kernels::by_name(line.workload, 4, grid.scale).unwrap();
                        let alone = run::Run::new(&variant.description, seed);
                        let alone = alone.of(&Subject::program(workload), &mut unwatched);
                        assert_eq!(alone.as_ref(), Ok(outcome));
                    }
                }
            }
            let mean = geometric_mean(&lines, |line| line.cells[1].times(&line.cells[0]));
            let product = |seed: usize| -> f64 {
                let times = |line: &Line| line.cells[1].times(&line.cells[0])[seed];
                lines.iter().map(times).product::<f64>().powf(1.0 / 3.0)
            };
            assert!((mean.value - (product(0) + product(1)) / 2.0).abs() < 1e-9);
            assert!(mean.low <= mean.value && mean.value <= mean.high && mean.value > 1.0);
            Ok(())
        },
    };

    const MISSING: Study = Study {
        name: "missing",
        about: "a run that fails",
        body: |run| {
            let grid = grid(run, vec!["ocean-cp", "perpetual-motion"]);
            grid.measure(run, |_| Vec::new()).map(drop)
        },
    };

    fn plan() -> Plan {
        Plan::new(Effort::Tiny, Launcher::this_program([]).unwrap())
    }

    #[test]
    fn runs_at_once_are_as_they_are_alone() {
        let rows = ALONE.run(&plan(), &mut |_| ()).unwrap();
        let cases: Vec<&str> = rows.iter().map(|row| row.case.as_str()).collect();
        assert_eq!(cases[..3], ["ocean-cp", "ycsb", "streamcluster"]);
    }

    #[test]
    fn a_run_that_fails_ends_the_study_and_is_named() {
        let mut said = Vec::new();
        let failed = MISSING.run(&plan(), &mut |progress| {
            if let Progress::Begins(what) = progress {
                said.push(what.to_owned());
            }
        });
        let error = failed.unwrap_err().error.to_string();
        assert!(error.contains("perpetual-motion, wb, seed 1"), "{error}");
        assert!(said[0].starts_with("0 of 8 runs"), "{said:?}");
    }
}
