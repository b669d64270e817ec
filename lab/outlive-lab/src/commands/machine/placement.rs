//! What stands in the shared memory, as it is named on the command line.

use clap::ValueEnum;
use outlive_machine::run::Placement;

/// What of a program's memory stands in the memory nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Place {
    /// All that its threads share, as it has allocated it: whole arrays
    #[default]
    Allocated,
    /// Of that, the lines that several threads touch; the others are in local memory. A run without time finds out before
    /// which these are
    Touched,
}

impl From<Place> for Placement {
    fn from(place: Place) -> Self {
        match place {
            Place::Allocated => Self::Allocated,
            Place::Touched => Self::Touched,
        }
    }
}

/// How it is named.
pub fn name(placement: Placement) -> &'static str {
    match placement {
        Placement::Allocated => "allocated",
        Placement::Touched => "touched",
    }
}
