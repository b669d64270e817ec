//! `outlive litmus serve`: a connection to a store as a child process.

use crate::failure::Failure;
use crate::target;
use clap::Args;
use outlive_litmus::driver::exec;
use std::io;

/// Arguments of `outlive litmus serve`.
#[derive(Args, Debug)]
#[command(after_help = format!("Examples:\n  \
    outlive litmus run 'exec:outlive litmus serve sqlite:/tmp/x.db'\n\n\
    Each connection of the tester is then a process, which the tester kills to simulate a crash \
    of the client. docs/litmus-driver.md describes the requests and answers.\n\n{}",
    target::help()))]
pub struct Serve {
    /// The store: a driver and its address, such as `sqlite:FILE`
    target: String,
}

impl Serve {
    pub fn run(self) -> Result<(), Failure> {
        let driver = target::open(&self.target)?;
        Ok(exec::serve(
            &*driver,
            io::stdin().lock(),
            io::stdout().lock(),
        )?)
    }
}
