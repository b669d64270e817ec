//! Runs the checker.

use crate::describe;
use crate::flaws::Flaw;
use crate::model::Commit;
use crate::scenarios::{self, Scenario};
use stateright::{Checker, CheckerBuilder, HasDiscoveries, Model};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The result of an exploration.
#[derive(Clone, Debug)]
pub struct Report {
    /// The number of different states.
    pub states: usize,
    /// The number of steps, from all states.
    pub steps: usize,
    /// The number of states on the longest path.
    pub depth: usize,
    /// The time that the exploration took.
    pub time: Duration,
    /// Whether all states were explored.
    pub is_complete: bool,
    /// The assertions that do not hold, each with the steps that lead to a state in which it does
    /// not.
    pub violated: Vec<(&'static str, Vec<String>)>,
    /// The events that must happen in some run, and did not.
    pub missed: Vec<&'static str>,
}

impl Report {
    /// Whether the scenario is proved.
    pub fn holds(&self) -> bool {
        self.is_complete && self.violated.is_empty() && self.missed.is_empty()
    }
}

/// Explores all states of a scenario, without a flaw. Ends early after `limit`.
pub fn prove(scenario: Scenario, threads: usize, limit: Option<Duration>) -> Report {
    let model = Commit {
        scenario,
        flaw: None,
    };
    let builder = model.checker().finish_when(HasDiscoveries::AnyFailures);
    let Some(limit) = limit else {
        return explore(builder.threads(threads));
    };
    // The checker looks at the time when its threads share work, so there must be two.
    let mut report = explore(builder.threads(threads.max(2)).timeout(limit));
    // It does not tell why it ended.
    report.is_complete &= report.time < limit;
    report
}

/// Searches the scenario of a flaw until its assertion fails. The steps of the counterexample are
/// the fewest possible.
pub fn find(flaw: Flaw) -> Report {
    let (scenario, property) = flaw.finder();
    let scenario = scenarios::named(scenario).expect("flaws name scenarios that exist");
    find_in(flaw, scenario, property)
}

/// The same in a scenario, for an assertion.
pub fn find_in(flaw: Flaw, scenario: Scenario, property: &'static str) -> Report {
    let model = Commit {
        scenario,
        flaw: Some(flaw),
    };
    let only = || HasDiscoveries::AllOf(BTreeSet::from([property]));
    let mut best = explore(model.clone().checker().finish_when(only()));
    // The checker ends after a block of states, and keeps the last counterexample of the block.
    while let Some(steps) = best.steps_to(property) {
        let shorter = model.clone().checker().finish_when(only());
        let report = explore(shorter.target_max_depth(steps.len() + 1));
        if report.steps_to(property).is_none() {
            break;
        }
        best = report;
    }
    best.violated.retain(|it| it.0 == property);
    best
}

impl Report {
    /// The steps to a violation of an assertion, if there is one.
    pub fn steps_to(&self, property: &str) -> Option<&[String]> {
        let mut all = self.violated.iter();
        let (_, steps) = all.find(|it| it.0 == property)?;
        Some(steps)
    }
}

fn explore(builder: CheckerBuilder<Commit>) -> Report {
    let begun = Instant::now();
    let checker = builder.spawn_bfs().join();
    let time = begun.elapsed();
    let mut violated = Vec::new();
    let mut missed = Vec::new();
    let discoveries = checker.discoveries();
    for property in checker.model().properties() {
        match (discoveries.get(property.name), &property.expectation) {
            (None, stateright::Expectation::Sometimes) => missed.push(property.name),
            (Some(path), stateright::Expectation::Always) => {
                let steps = describe::path(checker.model(), path.clone());
                violated.push((property.name, steps));
            }
            _ => {}
        }
    }
    violated.sort_by_key(|(_, steps)| steps.len());
    Report {
        states: checker.unique_state_count(),
        steps: checker.state_count(),
        depth: checker.max_depth(),
        time,
        is_complete: checker.is_done(),
        violated,
        missed,
    }
}
