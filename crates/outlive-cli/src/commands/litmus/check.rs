//! `outlive litmus check`.

use super::read;
use crate::failure::Failure;
use crate::output;
use clap::Args;
use outlive_litmus::scalable::prove;
use std::path::PathBuf;

/// Arguments of `outlive litmus check`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive litmus check my.litmus\n  \
    outlive litmus check tests/*.litmus\n\n\
    An `always` assertion must hold before the first transaction, and after each transaction that is \
    executed alone from a state in which it holds: then no correct execution fails it, with any \
    number of instances. The outcome of a `never` assertion must occur in no serial execution. A test \
    that fails this is printed with a counterexample, and the command exits with 1.")]
pub struct Check {
    /// Files of tests
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

impl Check {
    pub fn run(self) -> Result<(), Failure> {
        let mut is_sound = true;
        for file in &self.files {
            let name = output::printable(&file.display());
            let tests = match read(file) {
                Ok(tests) => tests,
                Err(problem) => {
                    is_sound = false;
                    output::line(problem)?;
                    continue;
                }
            };
            if tests.is_empty() {
                is_sound = false;
                output::line(format_args!("{name}: the file has no tests"))?;
            }
            for test in &tests {
                let result = prove(test);
                is_sound &= result.is_ok();
                match result {
                    Ok(proof) => output::line(format_args!("{name}: {}: {proof}", test.name))?,
                    Err(problem) => output::line(format_args!("{name}: {}: {problem}", test.name))?,
                }
            }
        }
        match is_sound {
            true => Ok(()),
            false => Err(Failure::Found),
        }
    }
}
