//! The sizes of workloads, as named on the command line.

use clap::ValueEnum;
use outlive_machine::program::Scale;

/// The size of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Size {
    /// Well below a second on this computer
    Test,
    /// Tens of millions of instructions: some seconds
    Study,
    /// Ten times as long
    Tenfold,
    /// As in the paper: thousands of millions of instructions
    Full,
}

impl From<Size> for Scale {
    fn from(size: Size) -> Self {
        match size {
            Size::Test => Self::Test,
            Size::Study => Self::Study,
            Size::Tenfold => Self::Tenfold,
            Size::Full => Self::Full,
        }
    }
}
