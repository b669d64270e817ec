//! A child dies after its n-th instruction, for every n; a survivor recovers.
//!
//! A [`Sweep`] is an operation over shared memory with its recovery and with what must hold afterwards;
//! [`sweep()`] runs it. An operation that only touches memory leaves nothing but memory behind when it is
//! killed, so one stepped run suffices: the engine looks at the memory after each instruction, and
//! whatever differs from the look before is a state in which a kill leaves it. Survivors recover and check each
//! of these images. Recovery is swept in turn: it is stepped from each image, and a second recoverer goes
//! over what the first one left after each of *its* instructions. Some victims are really killed, to see
//! that they leave the very images that the survivors were given.

mod cases;
mod child;
mod control;
mod coverage;
mod error;
mod lease;
mod marked;
mod modules;
mod plan;
mod real;
mod report;
mod sweep;
mod tracer;

pub use coverage::{Coverage, PassedPoint, PointKind};
pub use error::{KillError, PtraceForbidden};
pub use marked::Marked;
pub use plan::{Plan, RealPlan, Sample};
pub use real::{RealSweep, sweep_for_real};
pub use report::{At, Crash, Failure, SweepReport};
pub use sweep::{Sweep, sweep};
pub use tracer::Window;
