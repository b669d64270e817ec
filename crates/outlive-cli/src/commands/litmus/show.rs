//! `outlive litmus show`.

use super::tests;
use crate::failure::Failure;
use crate::output;
use clap::Args;
use outlive_litmus::text;
use std::path::PathBuf;

/// Arguments of `outlive litmus show`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive litmus show lost-update\n  \
    outlive litmus show litmus-2 > mine.litmus      # a test to start from\n  \
    outlive litmus show my-test my.litmus\n\n\
    docs/litmus.md explains the format.")]
pub struct Show {
    /// The name of the test, as `outlive litmus list` prints it
    name: String,
    /// A file of tests instead of the shipped ones
    file: Option<PathBuf>,
}

impl Show {
    pub fn run(self) -> Result<(), Failure> {
        let tests = tests(self.file.as_deref())?;
        match tests.iter().find(|it| it.name == self.name) {
            Some(test) => output::print(text::print(test)),
            None => {
                let names = tests.iter().map(|it| &*it.name);
                let alike: Vec<&str> = names.filter(|it| it.contains(&self.name)).collect();
                let alike = match alike.is_empty() {
                    true => "`outlive litmus list` lists all tests".into(),
                    false => format!("similar names: {}", alike.join(", ")),
                };
                let name = output::printable(&self.name);
                Err(Failure::new(format_args!(
                    "no test has the name `{name}`; {alike}"
                )))
            }
        }
    }
}
