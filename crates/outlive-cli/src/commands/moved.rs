//! The commands that are in `outlive-lab`: proofs, studies and the simulator.

use crate::failure::Failure;
use clap::Args;

/// Arguments of the commands that are now in `outlive-lab`.
#[derive(Args, Debug)]
pub struct Moved {
    /// Ignored arguments
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
