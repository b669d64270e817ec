//! PageRank as an MPI program with checkpoints (`peers/pagerank_mpi.c`), for the feature `mpi`.
//!
//! A rank is killed when it has computed its rows in an iteration. The job dies with it, is
//! restarted, and continues from the newest checkpoint; one is made after every four iterations. As
//! in the paper, the time of a run is that of its iterations, including repeated ones, and of
//! writing and reading checkpoints. It does not include starting the job, which is in another row.
//! Ours includes the starting of processes, first and again.

#[cfg(not(feature = "mpi"))]
pub(super) use absent::Mpi;
#[cfg(feature = "mpi")]
pub(super) use there::Mpi;

/// The paper's comparisons (MODC, section 5.3), and its numbers: at its best, when the failure
/// comes right after a checkpoint, and at its worst.
const TO_ITSELF: (&str, [f64; 2]) = (
    "MPI's time with a failure to its time without",
    [1.06, 1.35],
);
const TO_OURS: (&str, [f64; 2]) = ("MPI's time to ours, both with a failure", [1.19, 1.51]);
const ENDS: [&str; 2] = ["at its best", "at its worst"];

#[cfg(not(feature = "mpi"))]
mod absent {
    use super::{ENDS, TO_ITSELF, TO_OURS};
    use crate::modc::Subject;
    use crate::modc::fig4::Step;
    use crate::row::Row;
    use crate::{Run, StudyError};

    /// No MPI program.
    pub struct Mpi;

    impl Mpi {
        pub fn new(_: &Subject, _: u32) -> Result<Self, StudyError> {
            Ok(Self)
        }

        pub fn go(&mut self, _: &Subject, _: u32) -> Result<(), StudyError> {
            Ok(())
        }

        pub fn answer(&self, run: &mut Run<'_>, _: &[Step]) {
            let case = "MPI with checkpoints (not measured: built without the feature `mpi`)";
            for (what, papers) in [TO_ITSELF, TO_OURS] {
                for (end, paper) in ENDS.iter().zip(papers) {
                    let metric = format!("{what}, {end}");
                    run.answer([Row::paper_alone(case, metric, "times", paper)]);
                }
            }
        }
    }
}

#[cfg(feature = "mpi")]
mod there {
    use super::{ENDS, TO_ITSELF, TO_OURS};
    use crate::cost::{CPU, Cost, Costs, WALL, emulated};
    use crate::engines::{Ended, timed};
    use crate::modc::Subject;
    use crate::modc::engines::Files;
    use crate::modc::fig4::Step;
    use crate::paired::Comparison;
    use crate::row::{Goal, Row};
    use crate::statistics::{Estimate, median, median_estimate};
    use crate::{Run, StudyError};
    use std::io::ErrorKind;
    use std::process::{Command, Stdio};

    /// The program that `build.rs` has compiled.
    const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pagerank_mpi"));
    /// The rows of the paper's sets, and its interval of checkpoints in iterations.
    const PAPERS_SET: u32 = 10_000;
    const EVERY: u32 = 4;

    /// The times of a run.
    #[derive(Clone, Copy, Debug, Default)]
    struct Took {
        /// Seconds as the paper counts them.
        counted: f64,
        /// From the start of `mpirun` to its end; with a failure, the sum of both starts.
        whole: Cost,
    }

    impl Took {
        /// Returns the cost as the paper counts it; its processor time is that of the whole run.
        fn counted(self) -> Cost {
            Cost {
                wall: self.counted,
                ..self.whole
            }
        }
    }

    /// MPI's runs that belong to a [`Step`] of ours.
    struct Beside {
        iteration: u32,
        bare: Took,
        free: Took,
        failed: Took,
    }

    pub struct Mpi {
        files: Files,
        ranks: u32,
        set: u32,
        iterations: u32,
        beside: Vec<Beside>,
    }

    impl Mpi {
        pub fn new(subject: &Subject, ranks: u32) -> Result<Self, StudyError> {
            let found = Command::new("mpirun")
                .arg("--version")
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            match found {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    return Err(StudyError::void(
                        "the feature `mpi` needs mpirun, which is not in PATH (on Debian: openmpi-bin)",
                    ));
                }
                other => other.map_err(StudyError::io("starting mpirun"))?,
            };
            let files = Files::with_graph_of(subject, "mpi")?;
            files.write_program("pagerank_mpi", PROGRAM)?;
            Ok(Self {
                files,
                ranks,
                set: subject.scaled(PAPERS_SET),
                iterations: subject.of.iterations,
                beside: Vec::new(),
            })
        }

        /// Executes three runs: without checkpoints, with them, and with a failure in `iteration`.
        pub fn go(&mut self, subject: &Subject, iteration: u32) -> Result<(), StudyError> {
            let bare = self.rank(subject, 0, None)?;
            let free = self.rank(subject, EVERY, None)?;
            let failed = self.rank(subject, EVERY, Some(iteration))?;
            self.beside.push(Beside {
                iteration,
                bare,
                free,
                failed,
            });
            Ok(())
        }

        fn rank(
            &self,
            subject: &Subject,
            every: u32,
            dies_in: Option<u32>,
        ) -> Result<Took, StudyError> {
            const WHO: &str = "the MPI program";
            // Files of earlier runs.
            self.files.remove(&["checkpoint", "report", "ranks"])?;
            let mut took = Took::default();
            let mut from = 0;
            if let Some(iteration) = dies_in {
                // The last rank, which has no other duties.
                let ended = self.start(subject, every, Some((self.ranks - 1, iteration)))?;
                let report = self.files.report()?;
                let died = report.strip_prefix(&format!("died {iteration} "));
                let seconds = died.and_then(|seconds| seconds.trim().parse::<f64>().ok());
                let Some(seconds) = seconds.filter(|_| !ended.status.success()) else {
                    return Err(ended.void(WHO));
                };
                took.counted += seconds;
                took.whole.add(ended.cost);
                from = (iteration - 1) / EVERY * EVERY;
            }
            let ended = self.start(subject, every, None)?;
            let report = self.files.report()?;
            let mut words = report
                .strip_prefix("done ")
                .unwrap_or("")
                .split_whitespace();
            let mut word = || words.next().and_then(|word| word.parse::<f64>().ok());
            let (iterations, seconds, _residual) = (word(), word(), word());
            let (_checkpoints, began_from) = (word(), word());
            let is_sound = ended.status.success()
                && iterations == Some(f64::from(subject.of.iterations))
                && began_from == Some(f64::from(from));
            let Some(seconds) = seconds.filter(|_| is_sound) else {
                return Err(ended.void(WHO));
            };
            took.counted += seconds;
            took.whole.add(ended.cost);
            self.files.expect_ranks(subject, WHO)?;
            self.files.remove(&["checkpoint"])?;
            Ok(took)
        }

        fn start(
            &self,
            subject: &Subject,
            every: u32,
            dies: Option<(u32, u32)>,
        ) -> Result<Ended, StudyError> {
            let directory = self.files.whole();
            let mut command = Command::new("mpirun");
            command
                // No remote launcher: all ranks are processes of this machine.
                .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
                .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
                .env("OMPI_MCA_plm", "isolated")
                .env("OMPI_MCA_btl", "self,vader")
                .env("OMPI_MCA_btl_vader_single_copy_mechanism", "none")
                // Files of a killed job are in this directory, and are removed with it.
                .env("TMPDIR", directory)
                .env("OMPI_MCA_btl_vader_backing_directory", directory)
                .env("OMPI_MCA_osc_sm_backing_store", directory)
                .args(["--oversubscribe", "--bind-to", "none", "-np"])
                .arg(self.ranks.to_string())
                .arg(self.files.path("pagerank_mpi"))
                .arg(self.files.graph())
                .arg(subject.of.iterations.to_string())
                .arg(format!("{:e}", subject.of.damping))
                .arg(self.set.to_string())
                .arg(self.files.path("checkpoint"))
                .arg(every.to_string())
                .arg(self.files.path("report"))
                .arg(self.files.path("ranks"));
            if let Some((rank, iteration)) = dies {
                command.args([rank.to_string(), iteration.to_string()]);
            }
            timed(&mut command)
        }

        /// Adds the rows that compare MPI with our `steps`, which alternated with its runs.
        pub fn answer(&self, run: &mut Run<'_>, steps: &[Step]) {
            let (ranks, set, all) = (self.ranks, self.set, self.iterations);
            let who = format!("MPI, {ranks} ranks, sets of {set} rows (the paper: {PAPERS_SET})");
            let pairs: Vec<(&Beside, &Step)> = self.beside.iter().zip(steps).collect();
            self.answer_failure_free(run, &pairs);
            let mut iterations: Vec<u32> = pairs.iter().map(|(it, _)| it.iteration).collect();
            iterations.sort_unstable();
            iterations.dedup();
            let (mut to_itself, mut to_ours, mut to_ours_whole) = (vec![], vec![], vec![]);
            for iteration in &iterations {
                let here = || pairs.iter().filter(|(it, _)| it.iteration == *iteration);
                let ratio = |of: &dyn Fn(&Beside, &Step) -> f64| {
                    let ratios: Vec<f64> = here().map(|(it, step)| of(it, step)).collect();
                    median_estimate(&ratios)
                };
                let itself = ratio(&|it, _| it.failed.counted / it.free.counted);
                let ours = ratio(&|it, step| it.failed.counted / step.failed.wall);
                let whole = ratio(&|it, step| it.failed.whole.wall / step.failed.wall);
                let of = |what: &dyn Fn(&Beside) -> f64| {
                    median(&here().map(|(it, _)| what(it)).collect::<Vec<_>>())
                };
                let case = format!("{who}, one killed in iteration {iteration} of {all}");
                let row = |metric| emulated(Row::new(&case, metric, "times"));
                run.answer([
                    Row::new(&case, "MPI's wall time, as the paper counts", "s")
                        .ours(of(&|it| it.failed.counted))
                        .peer("MPI without a failure", of(&|it| it.free.counted))
                        .ratio(itself),
                    row(TO_OURS.0).ours_within(ours),
                    row("the same with the time that MPI takes to start").ours_within(whole),
                ]);
                to_itself.push((*iteration, itself));
                to_ours.push((*iteration, ours));
                to_ours_whole.push((*iteration, whole));
            }
            for (what, papers, all) in [
                (TO_ITSELF.0, TO_ITSELF.1.map(Some), to_itself),
                (TO_OURS.0, TO_OURS.1.map(Some), to_ours),
                (
                    "the same with the time that MPI takes to start",
                    [None; 2],
                    to_ours_whole,
                ),
            ] {
                let by_value =
                    |a: &&(u32, Estimate), b: &&(u32, Estimate)| a.1.value.total_cmp(&b.1.value);
                let ends = [all.iter().min_by(by_value), all.iter().max_by(by_value)];
                for ((end, found), paper) in ENDS.iter().zip(ends).zip(papers) {
                    let Some((_, found)) = found else { continue };
                    let case = format!("{who}, one killed in any iteration");
                    let row = emulated(Row::new(case, format!("{what}, {end}"), "times"));
                    let row = row.ours_within(*found);
                    run.answer([Row { paper, ..row }]);
                }
            }
        }

        /// Compares ours without a failure with MPI's.
        fn answer_failure_free(&self, run: &mut Run<'_>, pairs: &[(&Beside, &Step)]) {
            let case = format!("no failure, as many workers as ranks: {}", self.ranks);
            let costs = |of: fn(&Beside) -> Cost| {
                let mut costs = Costs::default();
                // Each of our runs is compared with the MPI runs before it, of the step before, and
                // after it. Before the first there is none.
                let mut before = pairs.first().map(|(first, _)| of(first));
                for (it, step) in pairs {
                    let after = of(it);
                    costs.push(before.unwrap_or(after), step.after, after);
                    before = Some(after);
                }
                costs
            };
            for (metric, peer, goal, paired) in [
                (
                    WALL.0,
                    "MPI with checkpoints, as the paper counts",
                    Some(Goal::ratio_at_most(1.0)),
                    costs(|it| it.free.counted()).paired(WALL.1),
                ),
                (
                    WALL.0,
                    "MPI without checkpoints, as the paper counts",
                    None,
                    costs(|it| it.bare.counted()).paired(WALL.1),
                ),
                (
                    WALL.0,
                    "MPI with checkpoints, its start included",
                    None,
                    costs(|it| it.free.whole).paired(WALL.1),
                ),
                (
                    CPU.0,
                    "MPI with checkpoints, its start included",
                    None,
                    costs(|it| it.free.whole).paired(CPU.1),
                ),
            ] {
                let comparison = Comparison {
                    case: &case,
                    metric,
                    unit: "s",
                    peer,
                    paper: None,
                    goal,
                };
                let [row, same] = comparison.rows(&paired);
                run.answer([emulated(row)]);
                if goal.is_some() {
                    run.answer([same]);
                }
            }
        }
    }
}
