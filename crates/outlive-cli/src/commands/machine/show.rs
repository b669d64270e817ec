//! `outlive machine show`: all parameters of a machine.

use crate::failure::Failure;
use crate::output;
use clap::Args;
use outlive_machine::description::Description;
use std::fs;
use std::path::{Path, PathBuf};

/// A look at a machine's parameters.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive machine show                    # the paper's machine\n  \
    outlive machine show > mine.toml        # to change some of it\n  \
    outlive machine show mine.toml          # with what it leaves out\n\n\
    A file need only have what differs from the paper's machine. Parameters that the paper does not give stand below `ours`, each \
    with the reason for its value.")]
pub struct Show {
    /// A file that describes a machine; without it, the paper's machine
    #[arg(value_name = "FILE")]
    machine: Option<PathBuf>,
}

impl Show {
    pub fn run(self) -> Result<(), Failure> {
        output::print(described(self.machine.as_deref())?)
    }
}

/// The machine in a file, or the paper's.
pub fn described(file: Option<&Path>) -> Result<Description, Failure> {
    let Some(file) = file else {
        return Ok(Description::default());
    };
    let text = fs::read_to_string(file).map_err(|error| {
        Failure::new(format_args!("{} cannot be read: {error}", file.display()))
    })?;
    text.parse()
        .map_err(|error| Failure::new(format_args!("{}: {error}", file.display())))
}
