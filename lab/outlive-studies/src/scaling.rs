//! Compares one worker with the plain program, and two workers with one: the cost of running a
//! program in a pod at all, and the gain from a second worker.
//!
//! The limit of the latter is the plain program run twice at once, by two threads that share their
//! input and the machine. Where even that does less than twice the work, no two workers can.

use crate::cost::{Cost, Costs, WALL, emulated, faster};
use crate::row::{Goal, Row};
use crate::statistics::{Estimate, median};
use crate::{Run, StudyError, machine};

/// The goal for the speed of two workers relative to one, where the machine allows it.
const TWO: f64 = 1.8;
/// The name of the limit.
pub const LIMIT: &str = "two concurrent plain programs, on two threads";

/// The two kinds of runs.
pub struct Runs<'r> {
    /// A run of the given number of workers in a pod.
    pub workers: &'r dyn Fn(u32) -> Result<Cost, StudyError>,
    /// A run of the plain program.
    pub plain: &'r (dyn Fn() -> Result<Cost, StudyError> + Sync),
}

/// The results of all rounds.
pub struct Scaling {
    /// One worker, between runs of the plain program.
    pub one: Costs,
    /// Two at once; `None` on a machine with one core.
    pub two: Option<Two>,
}

/// The results with two threads at once.
pub struct Two {
    /// Two workers, between runs of one.
    pub workers: Costs,
    /// The plain program twice at once, between runs of it alone.
    pub plain: Costs,
}

impl Scaling {
    pub fn measure(
        run: &Run<'_>,
        (case, rounds): (&str, usize),
        runs: &Runs<'_>,
    ) -> Result<Self, StudyError> {
        let Runs { workers, plain } = runs;
        let named = |who: &str| format!("{case}, {who}");
        let one = named("1 worker beside the plain program");
        let one = Costs::measure(run, (&one, rounds), || workers(1), plain)?;
        if machine::cores() < 2 {
            return Ok(Self { one, two: None });
        }
        let (twice, both) = (named(LIMIT), || Cost::of_two(plain));
        let plain = Costs::measure(run, (&twice, rounds), both, plain)?;
        let two = named("2 workers beside 1");
        let (two_of, one_of) = (|| workers(2), || workers(1));
        let workers = Costs::measure(run, (&two, rounds), two_of, one_of)?;
        let two = Some(Two { workers, plain });
        Ok(Self { one, two })
    }
}

impl Two {
    fn allowed(&self) -> Estimate {
        faster(2.0, self.plain.paired(WALL.1).ratio())
    }

    /// Returns the row of two workers' speed relative to one, with its goal where that is possible.
    pub fn row(&self, case: &str, metric: &str) -> Row {
        let paired = self.workers.paired(WALL.1);
        let row = emulated(Row::new(case, metric, "s"))
            .ours(median(&paired.ours))
            .peer("1 worker", paired.peer())
            .ratio(faster(1.0, paired.ratio()));
        // Where even two plain programs at once miss the goal, no two workers can reach it.
        match self.allowed().high >= TWO {
            true => row.goal(Goal::ratio_at_least(TWO)),
            false => row,
        }
    }

    /// Returns the row of the limit of that speed.
    pub fn limit(&self, case: &str, metric: &str) -> Row {
        let paired = self.plain.paired(WALL.1);
        Row::new(case, metric, "s")
            .ours(median(&paired.ours))
            .peer("the plain program once", paired.peer())
            .ratio(self.allowed())
    }
}
