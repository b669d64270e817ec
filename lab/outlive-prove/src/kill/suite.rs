//! Several sweeps, judged together.

use super::coverage::{Coverage, PointKind};
use super::error::KillError;
use super::plan::Plan;
use super::real::{RealSweep, sweep_for_real};
use super::report::SweepReport;
use super::sweep::{Sweep, sweep};
use crate::parallel::{Event, in_lanes};
use core::fmt;
use core::ops::ControlFlow;
use outlive_memory::CrashPoint;

/// The sweeps of a crate or of a command, and the crash points that they must cover together.
///
/// One sweep takes one path through an operation (a lock that is free, a node that is the last), so
/// several sweeps cover its points. A crash point that is declared to the suite, by a sweep or by
/// [`declare`](Self::declare), and at which no kill of any sweep has fallen is reported as missing.
#[derive(Default)]
pub struct Suite {
    sweeps: Vec<Box<dyn Entry>>,
    declared: Vec<&'static PointKind>,
}

/// The result of a suite.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SuiteReport {
    /// The report of each sweep, in order. Their own missing points are those of the sweep alone.
    pub reports: Vec<SweepReport>,
    /// The crash points at which no kill of any sweep has fallen, as `operation.Point`.
    pub missing: Vec<String>,
    /// The crash points at which kills of some sweep have fallen.
    pub coverage: Coverage,
}

impl Suite {
    /// Returns a suite without sweeps.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a sweep by images.
    pub fn add(&mut self, sweep: impl Sweep + 'static) -> &mut Self {
        self.sweeps.push(Box::new(ByImages(sweep)));
        self
    }

    /// Adds a sweep by real kills.
    pub fn add_real(&mut self, sweep: impl RealSweep + 'static) -> &mut Self {
        self.sweeps.push(Box::new(ByRealKills(sweep)));
        self
    }

    /// Demands that the points of `P` are covered.
    pub fn declare<P: CrashPoint>(&mut self) -> &mut Self {
        self.declared.push(PointKind::of::<P>());
        self
    }

    /// Returns the names of the sweeps, in order.
    pub fn names(&self) -> Vec<String> {
        self.sweeps.iter().map(|sweep| sweep.name()).collect()
    }

    /// Runs the sweeps that `choose` chooses by name, several at once (each keeps to one
    /// processor), and calls `tell` when one begins and with its report when it ends. After a
    /// [`ControlFlow::Break`] no other begins. Only the points that the completed sweeps declare
    /// can be missing; those [declared](Self::declare) to the suite count if all sweeps were
    /// completed.
    ///
    /// # Errors
    /// At the first sweep that is not possible; no other begins then.
    pub fn run(
        &self,
        plan: &Plan,
        mut choose: impl FnMut(&str) -> bool,
        mut tell: impl FnMut(&str, Event<&SweepReport>) -> ControlFlow<()>,
    ) -> Result<SuiteReport, KillError> {
        let chosen = self.sweeps.iter().map(|sweep| (sweep, sweep.name()));
        let chosen: Vec<_> = chosen.filter(|(_, name)| choose(name)).collect();
        let mut made: Vec<Option<SweepReport>> = vec![None; chosen.len()];
        let mut failed = None;
        in_lanes(
            &chosen,
            |(sweep, _)| sweep.run(plan),
            |at, event| {
                let name = &chosen[at].1;
                match event {
                    Event::Begins => tell(name, Event::Begins),
                    Event::Ends(Ok(report)) => tell(name, Event::Ends(made[at].insert(report))),
                    Event::Ends(Err(error)) => {
                        failed = Some(error);
                        ControlFlow::Break(())
                    }
                }
            },
        );
        if let Some(error) = failed {
            return Err(error);
        }
        let mut reports = Vec::new();
        let mut coverage = Coverage::new();
        let mut declared = Vec::new();
        for ((sweep, _), report) in chosen.iter().zip(made) {
            let Some(report) = report else { continue };
            coverage.merge(&report.coverage);
            declared.extend(sweep.declares());
            reports.push(report);
        }
        if reports.len() == self.sweeps.len() {
            declared.extend(&self.declared);
        }
        let mut missing: Vec<String> = Vec::new();
        for kind in declared {
            let names = coverage.missing_of(kind).into_iter();
            missing.extend(names.map(|name| format!("{}.{name}", kind.operation())));
        }
        missing.sort();
        missing.dedup();
        Ok(SuiteReport {
            reports,
            missing,
            coverage,
        })
    }
}

impl fmt::Debug for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

impl SuiteReport {
    /// Returns whether there is no fault and no declared crash point is missing.
    pub fn is_clean(&self) -> bool {
        self.missing.is_empty() && self.reports.iter().all(|report| report.failures.is_empty())
    }

    /// Asserts that the suite is clean, for tests.
    ///
    /// # Panics
    /// With all reports, if there is a fault or a declared crash point is missing.
    #[track_caller]
    pub fn assert_clean(&self) {
        assert!(self.is_clean(), "{self}");
    }
}

impl fmt::Display for SuiteReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for report in &self.reports {
            report.write_without_missing(f)?;
            writeln!(f)?;
        }
        for missing in &self.missing {
            writeln!(f, "not covered by any sweep: {missing}")?;
        }
        let failures = self.reports.iter().map(|report| report.failures.len());
        let instructions: u64 = self.reports.iter().map(|report| report.instructions).sum();
        write!(
            f,
            "{} operations, {instructions} instructions swept, {} failures",
            self.reports.len(),
            failures.sum::<usize>()
        )
    }
}

/// A sweep of either kind.
trait Entry: Sync {
    fn name(&self) -> String;
    fn declares(&self) -> Vec<&'static PointKind>;
    fn run(&self, plan: &Plan) -> Result<SweepReport, KillError>;
}

struct ByImages<S>(S);

impl<S: Sweep> Entry for ByImages<S> {
    fn name(&self) -> String {
        self.0.name()
    }

    fn declares(&self) -> Vec<&'static PointKind> {
        self.0.declares()
    }

    fn run(&self, plan: &Plan) -> Result<SweepReport, KillError> {
        sweep(&self.0, plan)
    }
}

struct ByRealKills<S>(S);

impl<S: RealSweep> Entry for ByRealKills<S> {
    fn name(&self) -> String {
        self.0.name()
    }

    fn declares(&self) -> Vec<&'static PointKind> {
        self.0.declares()
    }

    fn run(&self, plan: &Plan) -> Result<SweepReport, KillError> {
        sweep_for_real(&self.0, plan)
    }
}
