//! `outlive doctor`: the features that this machine or container offers.

use crate::failure::Failure;
use crate::output;
use clap::Args;
use outlive::host::Capabilities;
use serde::Serialize;

/// Arguments of `outlive doctor`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive doctor\n  \
    outlive doctor --json | jq '.[] | select(.available | not)'\n\n\
    Exits with 1 if a required feature is missing.")]
pub struct Doctor {
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Found<'a> {
    name: &'a str,
    available: bool,
    needed: bool,
    detail: &'a str,
    /// The consequence of its absence.
    cost: &'a str,
}

impl Doctor {
    pub fn run(self) -> Result<(), Failure> {
        let capabilities = Capabilities::probe();
        if self.json {
            let all = capabilities.all().iter().map(|one| Found {
                name: one.name,
                available: one.available,
                needed: one.needed,
                detail: &one.detail,
                cost: one.cost,
            });
            output::json(&all.collect::<Vec<_>>())?;
        } else {
            output::print(&capabilities)?;
            output::line(match capabilities.missing().count() {
                0 => "nothing is missing".into(),
                missing if capabilities.enough() => {
                    format!("Outlive works here; {missing} optional features are missing")
                }
                _ => "Outlive cannot work here".into(),
            })?;
        }
        if capabilities.enough() {
            Ok(())
        } else {
            Err(Failure::Found)
        }
    }
}
