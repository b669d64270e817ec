//! `recxl-…`: the figures of ReCXL's evaluation, on the simulated machine.
//!
//! The workloads are kernels of the same nature as the paper's programs, and by default shorter; `--full` gives them the
//! paper's lengths. A run repeats to the last digit. What the description leaves to chance (how late a message may be) follows from
//! a seed; where there are several, an interval is what they span.
//!
//! The paper has its figures as pictures; only what its text says in numbers stands in the column `paper`. Where ours is off
//! by more than a quarter, the row says why as far as that has been found out (`reasons.rs`). A first look runs the inputs of
//! tests: it is not judged, and nothing is explained.

mod farm;
mod fig10;
mod fig11;
mod fig12;
mod fig15;
mod fig16;
mod fig17;
mod fig18;
mod fig2;
mod grid;
mod lengths;
mod ours;
mod paper;
mod periods;
mod reasons;
mod tenfold;

pub use fig2::STUDY as FIG2;
pub use fig10::STUDY as FIG10;
pub use fig11::STUDY as FIG11;
pub use fig12::STUDY as FIG12;
pub use fig15::STUDY as FIG15;
pub use fig16::STUDY as FIG16;
pub use fig17::STUDY as FIG17;
pub use fig18::STUDY as FIG18;
pub use ours::STUDY as OURS;
pub use periods::{FIG13, FIG14};
pub use tenfold::STUDY as TENFOLD;

use crate::row::{How, Row};
use crate::statistics::median_estimate;
use outlive_machine::description::{Description, Protocol};

/// The unit of normalised times.
const TIMES_WB: &str = "times write-back";
/// What rows about all workloads are called.
const MEAN: &str = "geometric mean";

/// The machine with another configuration.
fn with(description: &Description, protocol: Protocol) -> Description {
    let mut description = description.clone();
    description.ours.coherence.protocol = protocol;
    description
}

/// A row of a number that each seed has.
fn row(
    case: impl Into<String>,
    metric: impl Into<String>,
    unit: impl Into<String>,
    values: &[f64],
) -> Row {
    Row::new(case, metric, unit)
        .ours_within(median_estimate(values))
        .how(How::Simulated)
}
