//! The levels of a test, checked by the models.

use super::{Model, explore};
use crate::level::Level;
use crate::test::{Assertion, Test};
use thiserror::Error;

/// The result for a test whose levels agree with the models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The strongest models in which the assertion fails.
    pub shown_by: Vec<&'static str>,
    /// The strongest levels that allow a failing assertion, and that no model shows: each model
    /// that is at least as strong is stricter than its level.
    pub not_shown: Vec<Level>,
    /// The number of states that all explorations reached.
    pub states: usize,
}

/// The reason why the levels of a test are wrong.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Objection {
    /// The assertion fails in a model that gives a level that forbids it.
    #[error(
        "test `{test}`: {level} forbids that the assertion fails, but it fails in the model \
         `{model}`; correct the levels after `forbidden from`"
    )]
    Occurs {
        /// The test.
        test: String,
        /// The model.
        model: &'static str,
        /// Its level.
        level: Level,
    },
    /// The assertion fails in no model.
    #[error(
        "test `{test}`: the assertion fails in no model, so the test cannot find a violation; \
         write an assertion that a weaker level violates"
    )]
    Vacuous {
        /// The test.
        test: String,
    },
    /// The test is too large to enumerate.
    #[error(
        "test `{test}`: the executions in the model `{model}` are too many to enumerate; write \
         fewer transactions or steps, or check fewer instances"
    )]
    TooLarge {
        /// The test.
        test: String,
        /// The model.
        model: &'static str,
    },
}

/// Returns a number of instances whose executions are enumerated in a short time: two of a test
/// with up to two transactions, otherwise one.
pub fn instances(test: &Test) -> usize {
    if test.transactions.len() > 2 { 1 } else { 2 }
}

/// Executes the test in the models, the strongest first, with up to `instances` concurrent
/// instances, and compares the results with [`Test::forbidden_from`]. A test with
/// [`Assertion::Never`] is executed with one instance.
pub fn verify(test: &Test, instances: usize) -> Result<Verified, Objection> {
    let name = || test.name.clone();
    let most = match test.assertion {
        Assertion::Always(_) => instances,
        Assertion::Never(_) => 1,
    };
    let mut shown = Vec::new();
    let mut states = 0;
    for model in Model::ALL.iter().rev() {
        // A stronger model that fails has shown that the level of this one allows it.
        if shown
            .iter()
            .any(|it: &&Model| it.level.implies(model.level))
        {
            continue;
        }
        for instances in 1..=most {
            let found = explore(test, instances, model).ok_or_else(|| Objection::TooLarge {
                test: name(),
                model: model.name,
            })?;
            states += found.states;
            if found.fails && test.is_forbidden_at(model.level) {
                return Err(Objection::Occurs {
                    test: name(),
                    model: model.name,
                    level: model.level,
                });
            }
            if found.fails {
                shown.push(model);
                break;
            }
        }
    }
    if shown.is_empty() {
        return Err(Objection::Vacuous { test: name() });
    }
    let allowing: Vec<Level> = Level::all()
        .filter(|&it| !test.is_forbidden_at(it))
        .collect();
    let is_strongest = |&&level: &&Level| {
        { allowing.iter() }.all(|&other| other == level || !other.implies(level))
    };
    let is_shown = |level: Level| shown.iter().any(|it| it.level.implies(level));
    let not_shown = allowing.iter().filter(is_strongest).copied();
    Ok(Verified {
        shown_by: shown.iter().map(|it| it.name).collect(),
        not_shown: not_shown.filter(|&it| !is_shown(it)).collect(),
        states,
    })
}
