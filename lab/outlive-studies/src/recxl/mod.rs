//! `recxl-…`: the figures of ReCXL's evaluation, on the simulated machine.
//!
//! The workloads are kernels of the same nature as the paper's programs, and by default shorter;
//! `--full` gives them the paper's lengths. A run repeats to the last digit. Random quantities of
//! the description (such as the delay of a message) follow from a seed. With several seeds, an
//! interval is the range of their values.
//!
//! The paper has its figures as pictures; the column `paper` has only numbers from its text. Where
//! ours differs by more than a quarter, the row gives the reason as far as it is known
//! (`reasons.rs`). A first look runs the inputs of tests: it is not judged, and not explained.

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
/// The case of rows about all workloads.
const MEAN: &str = "geometric mean";

/// Returns the machine with another protocol.
fn with(description: &Description, protocol: Protocol) -> Description {
    let mut description = description.clone();
    description.ours.coherence.protocol = protocol;
    description
}

/// Returns a row with a number of each seed.
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
