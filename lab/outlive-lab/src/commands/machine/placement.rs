//! The placement of memory, as named on the command line.

use clap::ValueEnum;
use outlive_machine::run::Placement;

/// The part of a program's memory that is in the memory nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Place {
    /// All memory that its threads share, as the program has allocated it: whole arrays
    #[default]
    Allocated,
    /// Of that, only the lines that several threads touch, which an untimed run finds beforehand;
    /// the others are in local memory
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

/// Returns its name.
pub fn name(placement: Placement) -> &'static str {
    match placement {
        Placement::Allocated => "allocated",
        Placement::Touched => "touched",
    }
}
