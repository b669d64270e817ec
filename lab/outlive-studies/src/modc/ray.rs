//! PageRank on Ray (`peers/pagerank_ray.py`), an engine in wide use, for the feature `ray`.
//!
//! The process of a task is killed when it has computed its rows; Ray starts another process, which
//! repeats the task. Ray's times are those of the iterations, processor time being that of all its
//! processes: Ray and its workers are started before. Ours include the starting of processes.
//!
//! Python is `python3`, or the program that the environment variable `OUTLIVE_RAY_PYTHON` names. It
//! must have Ray and numpy.

#[cfg(not(feature = "ray"))]
pub(super) use absent::Ray;
#[cfg(feature = "ray")]
pub(super) use there::Ray;

#[cfg(not(feature = "ray"))]
mod absent {
    use crate::modc::Subject;
    use crate::row::Row;
    use crate::{Run, StudyError};

    /// No Ray.
    pub struct Ray;

    impl Ray {
        pub fn new(_: &Subject, _: u32) -> Result<Self, StudyError> {
            Ok(Self)
        }

        pub fn beside(&self, run: &mut Run<'_>, _: &Subject, _: u32) -> Result<(), StudyError> {
            let case = "Ray (not measured: built without the feature `ray`)";
            let row = Row::new(case, "wall time of the work", "s");
            run.answer([Row { how: None, ..row }]);
            Ok(())
        }
    }
}

#[cfg(feature = "ray")]
mod there {
    use crate::cost::{CPU, Cost, Costs, WALL, emulated, workers_here};
    use crate::engines::timed;
    use crate::modc::Subject;
    use crate::modc::engines::Files;
    use crate::paired::Comparison;
    use crate::row::Row;
    use crate::statistics::median_estimate;
    use crate::{Run, StudyError};
    use std::fs;
    use std::process::{Command, Stdio};

    const SCRIPT: &str = include_str!("../../peers/pagerank_ray.py");
    const PYTHON: &str = "OUTLIVE_RAY_PYTHON";
    const WHO: &str = "PageRank on Ray";
    /// The tasks of each of Ray's workers in an iteration: a task costs Ray about a millisecond.
    const TASKS_EACH: u32 = 4;

    pub struct Ray {
        files: Files,
        python: String,
        workers: u32,
        rows: u32,
    }

    impl Ray {
        pub fn new(subject: &Subject, workers: u32) -> Result<Self, StudyError> {
            let python = std::env::var(PYTHON).unwrap_or_else(|_| "python3".into());
            let found = Command::new(&python)
                .args(["-c", "import numpy, ray"])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            if !found.is_ok_and(|status| status.success()) {
                return Err(StudyError::void(format!(
                    "the feature `ray` needs a Python with Ray and numpy (`pip install ray numpy`), which {python:?} is \
                     not; name one by {PYTHON}"
                )));
            }
            let files = Files::with_graph_of(subject, "ray")?;
            fs::write(files.path("pagerank_ray.py"), SCRIPT)
                .map_err(StudyError::io("writing a script to /dev/shm"))?;
            Ok(Self {
                files,
                python,
                workers,
                rows: subject.graph.vertices().div_ceil(TASKS_EACH * workers),
            })
        }

        /// Compares ours, with tasks of `rows` rows, with Ray's runs before and after it.
        pub fn beside(
            &self,
            run: &mut Run<'_>,
            subject: &Subject,
            rows: u32,
        ) -> Result<(), StudyError> {
            let workers = self.workers;
            let middle = subject.of.iterations / 2;
            let rounds = run.effort().of(1, 1, 4);
            let mut found = Vec::new();
            for kill_in in [None, Some(middle)] {
                let case = match kill_in {
                    None => format!("{}, no failure", workers_here(workers)),
                    Some(middle) => format!(
                        "{}, one killed in iteration {middle}",
                        workers_here(workers)
                    ),
                };
                let ours = || {
                    let outcome = subject.in_pod(run.launcher(), (workers, 1), rows, kill_in)?;
                    Ok(Cost::from(&outcome))
                };
                let costs =
                    Costs::measure(run, (&case, rounds), ours, || self.rank(subject, kill_in))?;
                found.push((case, costs));
            }
            let peer = format!("Ray, tasks of {} rows", self.rows);
            for (case, costs) in &found {
                for (metric, of) in [WALL, CPU] {
                    let comparison = Comparison {
                        case,
                        metric,
                        unit: "s",
                        peer: &peer,
                        paper: None,
                        goal: None,
                    };
                    run.answer(comparison.rows(&costs.paired(of)).map(emulated));
                }
            }
            let walls = |which: usize| found[which].1.paired(WALL.1).before;
            let slower: Vec<f64> = walls(1)
                .iter()
                .zip(walls(0))
                .map(|(with, without)| with / without)
                .collect();
            let case = format!("{peer}, one killed in iteration {middle}");
            run.answer([emulated(Row::new(
                case,
                "Ray's time with a failure to its time without",
                "times",
            ))
            .ours_within(median_estimate(&slower))]);
            Ok(())
        }

        fn rank(&self, subject: &Subject, dies_in: Option<u32>) -> Result<Cost, StudyError> {
            let temporary = self.files.path("t");
            // Files of the run before. (The name is short because Ray puts sockets there.)
            let _ = fs::remove_dir_all(&temporary);
            fs::create_dir(&temporary).map_err(StudyError::io("making a directory for Ray"))?;
            let mut command = Command::new(&self.python);
            command
                .env("RAY_USAGE_STATS_ENABLED", "0")
                .arg(self.files.path("pagerank_ray.py"))
                .arg(self.files.graph())
                .arg(subject.of.iterations.to_string())
                .arg(format!("{:e}", subject.of.damping))
                .args([self.rows.to_string(), self.workers.to_string()])
                .arg(self.files.path("report"))
                .arg(self.files.path("ranks"))
                .arg(&temporary);
            if let Some(iteration) = dies_in {
                command.arg(iteration.to_string());
            }
            let ended = timed(&mut command)?;
            let report = self.files.report()?;
            let mut words = report
                .strip_prefix("done ")
                .unwrap_or("")
                .split_whitespace();
            let mut word = || words.next().and_then(|word| word.parse::<f64>().ok());
            let (iterations, wall, _residual, killed, cpu) =
                (word(), word(), word(), word(), word());
            let is_sound = ended.status.success()
                && iterations == Some(f64::from(subject.of.iterations))
                && killed == Some(if dies_in.is_some() { 1.0 } else { 0.0 });
            let (true, Some(wall), Some(cpu)) = (is_sound, wall, cpu) else {
                return Err(ended.void(WHO));
            };
            self.files.expect_ranks(subject, WHO)?;
            Ok(Cost { wall, cpu })
        }
    }
}
