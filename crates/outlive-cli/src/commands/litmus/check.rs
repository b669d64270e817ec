//! `outlive litmus check`.

use super::read;
use crate::failure::Failure;
use crate::output;
use clap::Args;
use outlive_litmus::consistency::model::{self, Objection, verify};
use outlive_litmus::scalable::prove;
use outlive_litmus::test::Test;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Arguments of `outlive litmus check`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive litmus check my.litmus\n  \
    outlive litmus check tests/*.litmus\n  \
    outlive litmus check my.litmus --instances 3   # may need a minute\n\n\
    An `always` assertion must hold before the first transaction, and after each transaction that is \
    executed alone from a state in which it holds: then no correct execution fails it, with any \
    number of instances. The outcome of a `never` assertion must occur in no serial execution. A test \
    that fails this is printed with a counterexample, and the command exits with 1. The same is \
    true for a test whose assertion fails in a reference model of a level that forbids it, by \
    `forbidden from`.\n\n\
    JSON: an array of objects with file, test, sound, proof, levels and more; docs/json.md says \
    what they mean.")]
pub struct Check {
    /// Files of tests
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Maximum number of concurrent instances of an `always` test in the models [default: 2 for a
    /// test with up to two transactions, otherwise 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=4))]
    instances: Option<u8>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// The result for a test, or for a file without tests.
#[derive(Serialize)]
struct Answer {
    file: String,
    test: Option<String>,
    sound: bool,
    proof: Option<String>,
    problem: Option<String>,
    levels: &'static str,
    shown_by: Vec<&'static str>,
    not_shown: Vec<String>,
    objection: Option<String>,
}

impl Answer {
    /// Returns the result for a file that has no tests because of `problem`.
    fn without_tests(file: String, problem: String) -> Self {
        Self {
            file,
            test: None,
            sound: false,
            proof: None,
            problem: Some(problem),
            levels: "not checked",
            shown_by: Vec::new(),
            not_shown: Vec::new(),
            objection: None,
        }
    }

    /// Checks a test, with up to `instances` instances in the models.
    fn of(file: &str, test: &Test, instances: Option<u8>) -> Self {
        let answer = Self {
            test: Some(test.name.clone()),
            problem: None,
            ..Self::without_tests(file.into(), String::new())
        };
        let proof = match prove(test) {
            Ok(proof) => Some(proof.to_string()),
            Err(problem) => {
                let problem = Some(problem.to_string());
                return Self { problem, ..answer };
            }
        };
        let instances = instances.map_or_else(|| model::instances(test), usize::from);
        let (sound, levels, objection) = match verify(test, instances) {
            Ok(verified) => {
                let not_shown = verified.not_shown.iter().map(ToString::to_string);
                return Self {
                    sound: true,
                    proof,
                    levels: "confirmed",
                    shown_by: verified.shown_by,
                    not_shown: not_shown.collect(),
                    ..answer
                };
            }
            Err(objection @ Objection::Occurs { .. }) => (false, "wrong", objection),
            Err(objection @ Objection::Vacuous { .. }) => (true, "not shown", objection),
            Err(objection @ Objection::TooLarge { .. }) => (true, "not checked", objection),
        };
        Self {
            sound,
            proof,
            levels,
            objection: Some(objection.to_string()),
            ..answer
        }
    }

    fn line(&self) -> String {
        let Some(test) = &self.test else {
            return self.problem.clone().unwrap_or_default();
        };
        let mut line = format!("{}: {test}: ", self.file);
        if let Some(problem) = &self.problem {
            return line + problem;
        }
        line += self.proof.as_deref().unwrap_or_default();
        line += &match &self.objection {
            Some(objection) => format!("; levels {}: {objection}", self.levels),
            None => format!("; levels confirmed, shown by: {}", self.shown_by.join(", ")),
        };
        if !self.not_shown.is_empty() {
            line += &format!("; in no model of {}", self.not_shown.join(", "));
        }
        line
    }
}

impl Check {
    pub fn run(self) -> Result<(), Failure> {
        let mut answers = Vec::new();
        for file in &self.files {
            for answer in checked(file, self.instances) {
                if !self.json {
                    output::line(answer.line())?;
                }
                answers.push(answer);
            }
        }
        if self.json {
            output::json(&answers)?;
        }
        match answers.iter().all(|it| it.sound) {
            true => Ok(()),
            false => Err(Failure::Found),
        }
    }
}

/// Checks the tests of a file.
fn checked(file: &Path, instances: Option<u8>) -> Vec<Answer> {
    let name = output::printable(&file.display());
    match read(file) {
        Err(problem) => vec![Answer::without_tests(name, problem)],
        Ok(tests) if tests.is_empty() => {
            let problem = format!("{name}: the file has no tests");
            vec![Answer::without_tests(name, problem)]
        }
        Ok(tests) => { tests.iter() }
            .map(|it| Answer::of(&name, it, instances))
            .collect(),
    }
}
