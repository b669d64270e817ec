//! A child dies after its n-th instruction, for every n; a survivor recovers.
//!
//! A [`Sweep`] is an operation over shared memory, its recovery, and the conditions that must hold
//! afterwards; [`sweep()`] runs it. An operation that only touches memory leaves only memory behind
//! when it is killed, so one stepped run suffices: the engine compares the memory after each
//! instruction with that before it, and each difference is a state in which a kill leaves it.
//! Survivors recover and check each of these images, and then recover once more, since recovery
//! must be idempotent. Recovery is swept in turn: it runs from each image, and a second recoverer
//! handles the state that the first one left after each of *its* stores to the memory. (Between two
//! stores the memory does not change, so the recovery need not be stepped.) Some victims are really
//! killed, to check that they leave exactly the images that the survivors were given.
//!
//! A [`RealSweep`] is an operation with system calls: [`sweep_for_real`] kills a fresh victim for
//! every point that is tried, after an instruction or where a system call is entered or left.
//!
//! A [`Suite`] judges several sweeps together: it reports each declared crash point at which none
//! of them has killed.
//!
//! ```
//! use outlive_memory::{Memory, Offset, Ordering::{Relaxed, Release}};
//! use outlive_prove::kill::{self, Crash, Marked, Plan, Sweep};
//!
//! /// Moves 10 from one account to another; `INTENT` says what is to be completed.
//! struct Transfer;
//! const INTENT: Offset = Offset::new(0);
//! const ACCOUNTS: [Offset; 2] = [Offset::new(64), Offset::new(128)];
//!
//! fn complete<M: Memory>(memory: M) {
//!     if memory.load::<u64>(INTENT, Relaxed) == 1 {
//!         memory.store(ACCOUNTS[0], 90u64, Relaxed);
//!         memory.store(ACCOUNTS[1], 10u64, Relaxed);
//!         memory.store(INTENT, 0u64, Release);
//!     }
//! }
//!
//! impl Sweep for Transfer {
//!     fn name(&self) -> String {
//!         "transfer".to_owned()
//!     }
//!     fn prepare(&self, memory: Marked) {
//!         memory.store(ACCOUNTS[0], 100u64, Relaxed);
//!     }
//!     fn operate(&self, memory: Marked) {
//!         memory.store(INTENT, 1u64, Release);
//!         complete(memory);
//!     }
//!     fn recover(&self, memory: Marked, _: &Crash) {
//!         complete(memory);
//!     }
//!     fn check(&self, memory: Marked, crash: &Crash) -> Result<(), String> {
//!         match ACCOUNTS.map(|account| memory.load::<u64>(account, Relaxed)) {
//!             [90, 10] => Ok(()),
//!             [100, 0] if !crash.returned => Ok(()),
//!             other => Err(format!("{other:?}")),
//!         }
//!     }
//! }
//!
//! if let Some(report) = kill::unless_forbidden(kill::sweep(&Transfer, &Plan::quick())) {
//!     report.assert_clean();
//! }
//! ```
//!
//! # What it does not show
//!
//! A sweep takes one path through the operation, alone: other threads, other orders of their
//! accesses and lost caches are the subject of [`schedule`](crate::schedule) and
//! [`explore`](crate::explore). It steps the machine code of this build. Its images are exact for
//! memory and do not cover files, futexes or robust lists.
//!
//! # How long it takes
//!
//! A step is two switches between processes and a trap, some 20 us on a virtual machine. Reading
//! its effect on the memory costs little, since the instruction tells beforehand where it stores.
//! A recovery that is swept in turn is stopped at its stores only: of thousands of instructions,
//! some hundred are stores to the memory. (On processors other than x86-64 it is stepped, too.)
//! Code compiled without optimisation has ten to twenty times as many instructions: tests that
//! sweep gain by `opt-level = 1`.

mod assertions;
mod cases;
mod child;
mod control;
mod coverage;
mod effect;
mod error;
mod marked;
mod modules;
mod plan;
mod real;
mod report;
mod shared_memory;
mod stores;
mod suite;
mod sweep;
mod touched;
mod tracer;
mod traps;
mod turns;
mod watch;

pub use assertions::{assert_clean, assert_found};
pub(crate) use child::capture_panic;
pub use coverage::{Coverage, PassedPoint, PointKind};
pub use effect::{KillsDoNothing, require_effective_kills};
pub use error::{KillError, PtraceForbidden, unless_forbidden};
pub use marked::Marked;
pub use plan::{Plan, RealPlan, Sample};
pub use real::{RealSweep, sweep_for_real};
pub use report::{At, Crash, Failure, SweepReport};
pub use suite::{Suite, SuiteReport};
pub use sweep::{Sweep, sweep};
pub use tracer::Window;
