//! `outlive-lab machine show`: all parameters of a machine.

use crate::failure::Failure;
use crate::output;
use clap::Args;
use outlive_machine::description::{Description, Protocol};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// The command that shows a machine's parameters.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive-lab machine show                    # the paper's machine\n  \
    outlive-lab machine show > mine.toml        # a copy to be changed\n  \
    outlive-lab machine show mine.toml          # completed by the defaults\n\n\
    A file needs only the parameters that differ from the paper's machine. Parameters that the \
    paper does not give are below `ours`, each with the reason for its value.")]
pub struct Show {
    /// A file that describes a machine [default: the paper's machine]
    #[arg(value_name = "FILE")]
    machine: Option<PathBuf>,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

impl Show {
    pub fn run(self) -> Result<(), Failure> {
        let description = described(self.machine.as_deref(), None)?;
        if !self.json {
            return output::print(description);
        }
        // As in a file, where each quantity has its unit.
        let values: Value = toml::from_str(&description.to_string()).map_err(Failure::new)?;
        output::json(&values)
    }
}

/// Returns the machine in a file, or the paper's, with this configuration if one is given.
pub fn described(
    file: Option<&Path>,
    configuration: Option<Protocol>,
) -> Result<Description, Failure> {
    let Some(file) = file else {
        let mut papers = Description::default();
        papers.ours.coherence.protocol = configuration.unwrap_or(papers.ours.coherence.protocol);
        return Ok(papers);
    };
    let text = fs::read_to_string(file).map_err(|error| {
        let hint = match outlive_kernels::ALL
            .iter()
            .any(|(name, _)| file == Path::new(name))
        {
            true => "; this is a workload: give a file that describes a machine",
            false => "",
        };
        Failure::new(format_args!(
            "{} cannot be read: {error}{hint}",
            file.display()
        ))
    })?;
    Description::read(&text, configuration)
        .map_err(|error| Failure::new(format_args!("{}: {error}", file.display())))
}
