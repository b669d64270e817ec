//! Explanations of the violations of a run: in a report as JSON, and as a page in HTML.

use super::report::Named;
use crate::failure::Failure;
use outlive_litmus::explain::{self, Explanation, Fault, Finding, Page, Tested};
use outlive_litmus::run::{Report, TestReport};
use outlive_litmus::test::{Assertion, Test};
use outlive_litmus::text;
use serde::Serialize;
use std::path::Path;

/// A run, with an explanation for each violation of each of its tests.
pub struct Explained<'r> {
    pub report: &'r Report,
    tests: &'r [Test],
    explanations: Vec<Vec<Explanation>>,
}

impl<'r> Explained<'r> {
    /// Explains all violations of a run of `tests`.
    pub fn new(tests: &'r [Test], report: &'r Report) -> Self {
        let of_test = |of: &TestReport| match named(tests, of) {
            Some(test) => {
                let violations = of.violations.iter();
                violations.map(|it| explain::explain(test, it)).collect()
            }
            None => Vec::new(),
        };
        Self {
            report,
            tests,
            explanations: report.tests.iter().map(of_test).collect(),
        }
    }

    /// Returns the results of the tests with their explanations.
    pub fn tests(&self) -> impl Iterator<Item = (&TestReport, &[Explanation])> {
        let explanations = self.explanations.iter().map(Vec::as_slice);
        self.report.tests.iter().zip(explanations)
    }

    /// Writes the page. `level` is the level that the store gave, if it was judged.
    pub fn write(
        &self,
        path: &Path,
        target: &str,
        level: Option<&str>,
        faults: &[&str],
        repeat: &impl Fn(&TestReport) -> String,
    ) -> Result<(), Failure> {
        let tested = |(report, explanations)| Tested {
            report,
            assertion: named(self.tests, report).map(assertion).unwrap_or_default(),
            explanations,
            repeat: repeat(report),
        };
        let page = explain::page(&Page {
            target,
            level,
            faults,
            seed: self.report.seed,
            tests: self.tests().map(tested).collect(),
        });
        std::fs::write(path, page).map_err(|error| {
            let path = path.display();
            Failure::new(format_args!("{path} cannot be written: {error}"))
        })
    }
}

fn named<'t>(tests: &'t [Test], report: &TestReport) -> Option<&'t Test> {
    tests.iter().find(|it| it.name == report.name)
}

/// Returns an assertion as it stands in the file of its test.
fn assertion(test: &Test) -> String {
    let (word, condition) = match &test.assertion {
        Assertion::Always(condition) => ("always", condition),
        Assertion::Never(condition) => ("never", condition),
    };
    format!("{word} {}", text::assertion(condition, test))
}

/// An explanation as JSON.
#[derive(Debug, Serialize)]
pub struct Printed {
    result: &'static str,
    /// Always true: the store is a black box.
    inferred: bool,
    sentence: String,
    anomaly: Option<&'static str>,
    forbidden_from: Vec<String>,
    faults: Vec<PrintedFault>,
    start: Option<Vec<Named>>,
    interleaving: Vec<Step>,
    cycle: Vec<Dependency>,
    observed: Vec<Named>,
    serial: Vec<Serial>,
}

#[derive(Debug, Serialize)]
struct PrintedFault {
    fault: &'static str,
    transaction: String,
    write: String,
}

#[derive(Debug, Serialize)]
struct Step {
    transaction: String,
    step: String,
    note: Option<String>,
}

#[derive(Debug, Serialize)]
struct Dependency {
    from: String,
    to: String,
    kind: &'static str,
    object: Option<String>,
    meaning: String,
}

#[derive(Debug, Serialize)]
struct Serial {
    order: Vec<String>,
    values: Vec<Named>,
}

impl Printed {
    pub fn new(explanation: &Explanation) -> Self {
        let name = |it: usize| explanation.transactions[it].name.clone();
        let (result, faults) = match &explanation.result {
            Finding::Interleaving => ("interleaving", &[][..]),
            Finding::Fault(faults) => ("fault", &faults[..]),
            Finding::Unexplained => ("unexplained", &[][..]),
        };
        let step = |it: &explain::Moment| Step {
            transaction: name(it.transaction),
            step: it.step.clone(),
            note: (!it.note.is_empty()).then(|| it.note.clone()),
        };
        let dependency = |it: &explain::Dependency| Dependency {
            from: name(it.from),
            to: name(it.to),
            kind: it.kind,
            object: it.object.clone(),
            meaning: it.meaning.clone(),
        };
        let serial = |it: &explain::Serial| {
            let names = explanation.observed.iter().map(|it| it.0.clone());
            let values: Vec<_> = names.zip(it.values.iter().copied()).collect();
            Serial {
                order: it.order.clone(),
                values: Named::all(&values),
            }
        };
        let levels = explanation.forbidden_from.iter();
        Self {
            result,
            inferred: true,
            sentence: explanation.sentence(),
            anomaly: (!explanation.anomaly.is_empty()).then_some(explanation.anomaly),
            forbidden_from: levels.map(ToString::to_string).collect(),
            faults: faults.iter().map(PrintedFault::new).collect(),
            start: explanation.start.as_ref().map(|it| Named::all(it)),
            interleaving: explanation.steps.iter().map(step).collect(),
            cycle: explanation.cycle.iter().map(dependency).collect(),
            observed: Named::all(&explanation.observed),
            serial: explanation.serial.iter().map(serial).collect(),
        }
    }
}

impl PrintedFault {
    fn new(fault: &Fault) -> Self {
        let (fault, transaction, write) = match fault {
            Fault::Lost {
                transaction, write, ..
            } => ("lost", transaction, write.clone()),
            Fault::Kept {
                transaction, write, ..
            } => ("kept", transaction, write.clone()),
            Fault::Invented {
                transaction,
                object,
                value,
            } => {
                let value = value.map_or_else(|| "absent".into(), |it| it.to_string());
                ("invented", transaction, format!("{object} = {value}"))
            }
        };
        Self {
            fault,
            transaction: transaction.clone(),
            write,
        }
    }
}
