//! `lupin-table3`: the speed of the six programs (LUPIN, Table 3).
//!
//! * *Many hosts against one* with the same total number of workers. With as many workers as there
//!   are cores, the wall time is meaningful. With 16 hosts of one worker on fewer cores, only the
//!   processor time is: it includes the cost of starting a host, which weighs more in a short run.
//!   The paper is 3.6% slower by the geometric mean of its four programs on MapReduce, wordcount to
//!   histogram. That is the goal where every worker has a core.
//! * *One worker against the plain program*, and *two against one* ([`scaling`](crate::scaling)).
//! * *Against C*: the same in C with POSIX threads ([`c`](super::c)), with the feature `lupin`.
//! * The paper's numbers of LUPIN and of Phoenix, Metis and CXL-SHM, which it ran on its machine.

use super::c::{Beside, Programs};
use super::{Crew, MAP_REDUCE, PROGRAMS, Sizes, Subject, TINY, paper};
use crate::cost::{CPU, Cost, Costs, Metric, WALL, as_many_as_cores, emulated};
use crate::paired::SAME;
use crate::row::{Goal, Row};
use crate::scaling::{Runs, Scaling};
use crate::statistics::{Estimate, bootstrap, median, median_estimate};
use crate::{Run, Study, StudyError};

pub const STUDY: Study = Study {
    name: "lupin-table3",
    about: "six programs on many hosts and on one, beside plain ones and C (LUPIN Table 3)",
    body: study,
};

/// The number of the paper's hosts.
const HOSTS: u32 = 16;
/// The times of the work, with short names.
const WALL_TIME: Metric = ("wall time", WALL.1);
const CPU_TIME: Metric = ("processor time", CPU.1);
/// The goal for one worker's processor time relative to the plain program's.
const PLAINLY: f64 = 1.1;

const QUICK: Sizes = Sizes {
    text: 30,
    points: 400_000,
    side: 1_600,
    rows: 24_000,
    options: 4_000_000,
    files: 16,
};
/// Sizes that take one worker about a second.
const FULL: Sizes = Sizes {
    text: 120,
    points: 1_500_000,
    side: 2_400,
    rows: 80_000,
    options: 12_000_000,
    files: 50,
};

/// The results of a program.
struct Measured {
    /// The name of the program, and the size of its input.
    name: &'static str,
    size: String,
    /// Many hosts between runs of one, with as many workers as there are cores.
    cores: Costs,
    /// The same with the paper's number of hosts.
    pod: Costs,
    scaling: Scaling,
    beside_c: Option<Beside>,
}

/// Returns a crew of at least `workers` workers, on half as many hosts, from 2 to [`HOSTS`].
fn several(workers: u32) -> Crew {
    let hosts = (workers / 2).clamp(2, HOSTS);
    Crew::of(hosts, workers.div_ceil(hosts))
}

/// Returns a crew of the paper's hosts, with one worker each.
fn pod(run: &Run<'_>) -> Crew {
    Crew::of(run.effort().of(3, HOSTS, HOSTS), 1)
}

/// Returns a crew of one host with the same number of workers.
fn together(crew: Crew) -> Crew {
    Crew::of(1, crew.hosts * crew.threads)
}

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    let sizes = run.effort().of(TINY, QUICK, FULL);
    let programs = Programs::new()?;
    let mut all = Vec::new();
    for (name, make) in PROGRAMS {
        run.go_on()?;
        run.begin(&format!(
            "{name}: an input is created, and the plain program runs"
        ));
        let subject = make(&sizes)?;
        all.push(measure(run, name, &*subject, &programs)?);
    }
    answer(run, &all);
    Ok(())
}

fn measure(
    run: &Run<'_>,
    name: &'static str,
    subject: &dyn Subject,
    programs: &Programs,
) -> Result<Measured, StudyError> {
    let rounds = run.effort().of(1, 2, 8);
    let cores = as_many_as_cores();
    let launcher = run.launcher();
    let go = |crew| Ok(Cost::from(&subject.in_pod(launcher, crew)?));
    let beside_one_host = |crew: Crew, rounds: usize| {
        let case = format!("{name}, {} beside {}", crew.name(), together(crew).name());
        Costs::measure(run, (&case, rounds), || go(crew), || go(together(crew)))
    };
    let one_host = |workers| go(Crew::of(1, workers));
    let runs = Runs {
        workers: &one_host,
        plain: &|| subject.plain(),
    };
    Ok(Measured {
        name,
        size: subject.size(),
        cores: beside_one_host(several(cores), rounds)?,
        pod: beside_one_host(pod(run), run.effort().of(1, 1, 8))?,
        scaling: Scaling::measure(run, (name, rounds), &runs)?,
        beside_c: programs.beside(run, (name, rounds), subject, cores, &one_host)?,
    })
}

fn answer(run: &mut Run<'_>, all: &[Measured]) {
    let case = "the inputs";
    run.answer(all.iter().map(|it| {
        // The plain program's time shows how large the input is.
        let plain = it.scaling.one.paired(CPU.1).peer();
        Row::new(case, format!("{}, {}: plain", it.name, it.size), "s").ours(plain)
    }));
    let cores = several(as_many_as_cores());
    let goal = Goal::ours_at_most(paper::SLOWER);
    let means = |goal, paper| Means { goal, paper };
    let papers = Some(paper::SLOWER);
    let on_cores: Vec<Line<'_>> = all.iter().map(|it| (it.name, &it.cores)).collect();
    let in_pods: Vec<Line<'_>> = all.iter().map(|it| (it.name, &it.pod)).collect();
    let pod = pod(run);
    // The paper's workers have processors of their own.
    for (crew, lines, metric, means) in [
        (cores, &on_cores, WALL_TIME, means(Some(goal), papers)),
        (cores, &on_cores, CPU_TIME, means(None, None)),
        (pod, &in_pods, CPU_TIME, means(None, None)),
        (pod, &in_pods, WALL_TIME, means(None, None)),
    ] {
        let block = Block {
            ours: &crew.name(),
            peer: &format!("1 host of {}", together(crew).threads),
            metric,
            goal: None,
        };
        run.answer(block.rows(lines));
        run.answer(block.means(lines, &means));
    }
    let case = format!(
        "{}: processor time of each host except the first",
        pod.name()
    );
    run.answer(in_pods.iter().map(|(name, costs)| {
        emulated(Row::new(&case, *name, "ms")).ours_within(of_a_host(costs, pod.hosts))
    }));
    let one: Vec<Line<'_>> = all.iter().map(|it| (it.name, &it.scaling.one)).collect();
    for (metric, goal) in [
        (CPU_TIME, Some(Goal::ratio_at_most(PLAINLY))),
        (WALL_TIME, None),
    ] {
        let block = Block {
            ours: "1 worker",
            peer: "the plain program",
            metric,
            goal,
        };
        run.answer(block.rows(&one));
    }
    let twos = || {
        all.iter()
            .filter_map(|it| Some((it.name, it.scaling.two.as_ref()?)))
    };
    let rows: Vec<Row> =
        twos()
            .map(|(name, two)| two.row("2 workers: speedup over 1", name))
            .chain(twos().map(|(name, two)| {
                two.limit("the limit of that: two concurrent plain programs", name)
            }))
            .collect();
    run.answer(rows);
    beside_c(run, all);
    run.answer(paper::table_3());
}

fn beside_c(run: &mut Run<'_>, all: &[Measured]) {
    let lines = |of: fn(&Beside) -> &Costs| -> Vec<Line<'_>> {
        let beside = all
            .iter()
            .filter_map(|it| Some((it.name, it.beside_c.as_ref()?)));
        beside.map(|(name, beside)| (name, of(beside))).collect()
    };
    let (many, one) = (lines(|it| &it.all), lines(|it| &it.one));
    if many.is_empty() {
        let case = "beside C (not measured: built without the feature `lupin`)";
        let metrics = [WALL_TIME, CPU_TIME].map(|(metric, _)| Row {
            how: None,
            ..Row::new(case, metric, "s")
        });
        run.answer(metrics);
        return;
    }
    let cores = as_many_as_cores();
    let ours = Crew::of(1, cores).name();
    let threads = format!("C, {cores} threads");
    for (ours, peer, metric, lines) in [
        (ours.as_str(), threads.as_str(), WALL_TIME, &many),
        (&ours, &threads, CPU_TIME, &many),
        ("1 worker", "C, 1 thread", CPU_TIME, &one),
        ("1 worker", "C, 1 thread", WALL_TIME, &one),
    ] {
        let block = Block {
            ours,
            peer,
            metric,
            goal: None,
        };
        run.answer(block.rows(lines));
        run.answer(block.means(lines, &Means::default()));
    }
}

/// Returns the processor time in milliseconds that each host but the first costs.
fn of_a_host(costs: &Costs, hosts: u32) -> Estimate {
    let more = costs.paired(CPU.1).more();
    let each: Vec<f64> = more
        .iter()
        .map(|more| more * 1e3 / f64::from(hosts - 1))
        .collect();
    median_estimate(&each)
}

/// A program, and its costs against a peer.
type Line<'m> = (&'static str, &'m Costs);

/// The parameters of the rows that compare all programs with a peer.
struct Block<'b> {
    ours: &'b str,
    peer: &'b str,
    metric: Metric,
    /// The goal of each program.
    goal: Option<Goal>,
}

/// The parameters of the rows of means.
#[derive(Default)]
struct Means {
    /// The goal for the mean of the programs on MapReduce, and that mean in the paper.
    goal: Option<Goal>,
    paper: Option<f64>,
}

impl Block<'_> {
    fn case(&self) -> String {
        format!("{} beside {}: {}", self.ours, self.peer, self.metric.0)
    }

    /// Returns a row for each program, and one for all peers compared with themselves.
    fn rows(&self, lines: &[Line<'_>]) -> Vec<Row> {
        let (case, of) = (self.case(), self.metric.1);
        let mut same = Vec::new();
        let mut rows: Vec<Row> = lines
            .iter()
            .map(|(name, costs)| {
                let paired = costs.paired(of);
                same.extend(paired.same_ratios());
                let row = emulated(Row::new(&case, *name, "s"))
                    .ours(median(&paired.ours))
                    .peer(self.peer, paired.peer())
                    .ratio(paired.ratio());
                match self.goal {
                    Some(goal) => row.goal(goal),
                    None => row,
                }
            })
            .collect();
        rows.push(Row::new(&case, SAME, "s").ratio(median_estimate(&same)));
        rows
    }

    fn means(&self, lines: &[Line<'_>], said: &Means) -> [Row; 2] {
        let ratios: Vec<Vec<f64>> = lines
            .iter()
            .map(|(_, costs)| costs.paired(self.metric.1).ratios())
            .collect();
        let row = |what: &str, ratios: &[Vec<f64>]| {
            let metric = format!("geometric mean of {what}");
            emulated(Row::new(self.case(), metric, "times")).ours_within(geometric_mean(ratios))
        };
        let mut four = row("wordcount to histogram", &ratios[..MAP_REDUCE]);
        four.paper = said.paper;
        if let Some(goal) = said.goal {
            four = four.goal(goal);
        }
        [four, row("all six", &ratios)]
    }
}

/// Returns the geometric mean of the programs' median ratios, with an interval by resampling.
fn geometric_mean(programs: &[Vec<f64>]) -> Estimate {
    let rounds = programs.iter().map(Vec::len).min().unwrap_or(0);
    let rounds: Vec<usize> = (0..rounds).collect();
    let mean = |drawn: &[usize]| {
        let logarithms = programs.iter().map(|ratios| {
            let drawn: Vec<f64> = drawn.iter().map(|round| ratios[*round]).collect();
            median(&drawn).ln()
        });
        (logarithms.sum::<f64>() / programs.len() as f64).exp()
    };
    let Estimate { value, low, high } = bootstrap(&rounds, mean);
    Estimate {
        value,
        // With few rounds, the interval from resampling may not include the value.
        low: low.min(value),
        high: high.max(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_costs_what_several_take_more() {
        let mut costs = Costs::default();
        let cost_of = |cpu| Cost { wall: 1.0, cpu };
        costs.push(cost_of(1.0), cost_of(1.4), cost_of(1.2));
        assert!((of_a_host(&costs, 16).value - 20.0).abs() < 1e-9);
    }

    #[test]
    fn workers_are_dealt_to_as_many_hosts_as_the_paper_has() {
        for (workers, hosts, threads) in [(1, 2, 1), (2, 2, 1), (4, 2, 2), (32, 16, 2), (64, 16, 4)]
        {
            let crew = several(workers);
            assert_eq!((crew.hosts, crew.threads), (hosts, threads), "{workers}");
            assert_eq!(together(crew).threads, hosts * threads);
        }
    }

    #[test]
    fn the_geometric_mean_is_that_of_medians() {
        let programs = [vec![1.0, 2.0, 9.0], vec![8.0, 8.0, 8.0]];
        let mean = geometric_mean(&programs);
        assert!((mean.value - 4.0).abs() < 1e-9, "{mean:?}");
        assert!(mean.low <= mean.value && mean.value <= mean.high);
        let one = geometric_mean(&[vec![1.1], vec![1.1]]);
        assert!((one.value - 1.1).abs() < 1e-9 && one.low <= one.high);
    }
}
