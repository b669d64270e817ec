//! One worker beside the plain program, and two beside one: what it costs that a program runs in a pod at all, and what a
//! second worker gives.
//!
//! The limit of the latter is the plain program run twice at once, by two threads that share what they read and the
//! machine: where even that has less than twice as much done, nobody can.

use crate::cost::{Cost, Costs, WALL, emulated, faster};
use crate::row::{Goal, Row};
use crate::statistics::{Estimate, median};
use crate::{Run, StudyError, machine};

/// How many times as fast as one worker two are to be, where the machine allows it.
const TWO: f64 = 1.8;
/// The limit, as it is called.
pub const LIMIT: &str = "the plain program twice at once, by two threads";

/// What there is to be run.
pub struct Runs<'r> {
    /// So many workers in a pod.
    pub workers: &'r dyn Fn(u32) -> Result<Cost, StudyError>,
    /// The plain program.
    pub plain: &'r (dyn Fn() -> Result<Cost, StudyError> + Sync),
}

/// What came of it.
pub struct Scaling {
    /// One worker between runs of the plain program.
    pub one: Costs,
    /// Where there are two cores.
    pub two: Option<Two>,
}

/// Two at once.
pub struct Two {
    /// Two workers between runs of one.
    pub workers: Costs,
    /// The plain program twice between runs of it alone.
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

    /// How many times as fast two workers are, with its goal if the machine allows that.
    pub fn row(&self, case: &str, metric: &str) -> Row {
        let paired = self.workers.paired(WALL.1);
        let row = emulated(Row::new(case, metric, "s"))
            .ours(median(&paired.ours))
            .peer("1 worker", paired.peer())
            .ratio(faster(1.0, paired.ratio()));
        // Where even the plain program cannot have it, nobody can.
        match self.allowed().high >= TWO {
            true => row.goal(Goal::ratio_at_least(TWO)),
            false => row,
        }
    }

    /// The limit of that.
    pub fn limit(&self, case: &str, metric: &str) -> Row {
        let paired = self.plain.paired(WALL.1);
        Row::new(case, metric, "s")
            .ours(median(&paired.ours))
            .peer("the plain program once", paired.peer())
            .ratio(self.allowed())
    }
}
