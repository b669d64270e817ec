//! Crash sweeps: a machine is crashed at many points of a run, and the outcome is judged each time.
//!
//! Each worker simulates the run once and forks it at each of its points; nodes of the fork die,
//! and it recovers and continues. The judge is the one that the tests use. Each load must return
//! the value stored last, each commit must be in the logs of all living replicas, and a repaired
//! line that a dead node owned must hold the values committed to it. After the recovery no
//! directory may name a dead node. If the goal is that all threads end, they must end, and memory
//! must hold the values stored last.
//!
//! ```
//! use outlive_machine::cluster::Workload;
//! use outlive_machine::crash::{Goal, Points, Sweep};
//! use outlive_machine::program::{Image, Op, Script, Synchronisation, Word};
//!
//! let text = "[system]\ncompute_nodes = 3\nmemory_nodes = 1\ncores_per_node = 1\n[l3]\nsize = \"4 KiB\"\nways = 2
//!     [l2]\nsize = \"1 KiB\"\n[l1]\nsize = \"512 B\"\nways = 2
//!     [logging_unit]\nreplication_factor = 2\n[ours.coherence]\nprotocol = \"recxl-parallel\"";
//! let thread = |own: u64| Script::new((0..8).map(|n| Op::Store(Word(n % 4 * 8 + own), n)).collect::<Vec<_>>());
//! let workload = || Workload {
//!     threads: (0..3).map(thread).collect(),
//!     image: Image { words: 32, ..Image::default() },
//!     synchronisation: Synchronisation::default(),
//! };
//! let description = text.parse()?;
//! let sweep = Sweep { points: Points::Drawn(50), ..Sweep::new(&description, 1) };
//! let report = sweep.run(&workload, &|_| {})?;
//! assert_eq!((report.points, report.failed), (50, 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod point;
mod sweep;

pub use point::{Death, Point, silence_judges};
pub(crate) use point::{is_of_a_program, judging, told};
pub use sweep::{Failed, Goal, Points, Report, Sweep, SweepError};
