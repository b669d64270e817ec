//! `pandora-…`: the evaluation of Pandora (*Tandem* thesis, section 4.5), on this machine.
//!
//! The thesis has a cluster of five machines with 72 cores each and a network card. Here, each
//! server is a process (or a member of one), and the network is an *emulated link*: mapped memory
//! behind a round trip of 2 µs and 100 Gb/s, whose verbs the posting thread executes itself. Cases
//! say so, and rows are *emulated*. On bare mapped memory a verb takes some 100 ns, so that the
//! thesis's milliseconds would be met by the memory alone; it is measured beside the link.
//!
//! The thesis has most of its figures as pictures; the column `paper` has only numbers from its
//! text and from Table 4.1.

mod armed;
mod blocking;
mod board;
mod caps;
mod failover;
mod fig4_13;
mod fig4_4;
mod fig4_7;
mod fig4_8;
mod flat;
mod paper;
mod scratch_store;
mod server;
mod steady;
mod stolen;
mod subject;
mod table4_1;

pub use armed::Armed;
pub use blocking::STUDY as BLOCKING;
pub use fig4_4::{FIG4_4, FIG4_5, FIG4_6, LATCH_TO_LOG};
pub use fig4_7::STUDY as FIG4_7;
pub use fig4_8::{FIG4_8, FIG4_9, FIG4_10, FIG4_11, FIG4_12};
pub use fig4_13::{FIG4_13, FIG4_14};
pub use flat::STUDY as FLAT;
pub use server::{Compute, Memory};
pub use stolen::{Latcher, STUDY as STOLEN};
pub use table4_1::STUDY as TABLE4_1;

use outlive_store::verbs::Link;

/// Where the verbs of a measurement go.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Backend {
    /// Mapped memory behind an emulated link.
    Link(Link),
    /// Mapped memory.
    Bare,
}

impl Backend {
    /// The emulated link with its defaults.
    fn link() -> Self {
        Self::Link(Link::default())
    }

    fn to_link(self) -> Option<Link> {
        match self {
            Self::Link(link) => Some(link),
            Self::Bare => None,
        }
    }

    /// The name in cases.
    fn name(self) -> String {
        match self {
            Self::Link(link) => format!(
                "emulated link of {} us, {} Gb/s",
                link.round_trip.as_secs_f64() * 1e6,
                link.bits_per_second / 1_000_000_000
            ),
            Self::Bare => "bare mapped memory".into(),
        }
    }
}
