//! The commands that are in `outlive-lab`: proofs, studies and the simulator.

use crate::failure::Failure;
use clap::Args;

/// Where the command is.
#[derive(Args, Debug)]
pub struct Moved {
    /// Its arguments, which are not looked at
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    _arguments: Vec<String>,
}

impl Moved {
    pub fn run(self) -> Result<(), Failure> {
        Err(Failure::Usage(
            "`prove`, `study` and `machine` are commands of `outlive-lab` \
             (`cargo install --path lab/outlive-lab`)"
                .into(),
        ))
    }
}
