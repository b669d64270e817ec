//! The programs of `outlive run`: their inputs, their tasks, and the verification of their results.
//!
//! The crate `outlive-run` runs them on hosts that may be killed at any instruction (LUPIN §3.5,
//! §4).
//!
//! * [`mapreduce`] is three rounds of tasks, for any program that implements
//!   [`MapReduce`](mapreduce::MapReduce). Its [`table`]s count units so that one word, the unit's
//!   [result](mapreduce::results), commits a unit's counts; the argument is there. Proofs:
//!   lab/outlive-proofs/src/wordcount.
//! * [`wordcount`] is such a program, with the plain count that it is compared with; [`tokens`]
//!   defines a word.
//! * [`kmeans`], [`matmul`], [`histogram`], [`blackscholes`] and [`dedup`] are the other programs
//!   of LUPIN's Tables 3 and 4. Each has its input, the work of one task as a function over slices,
//!   a function that combines the tasks' outputs, a plain program with one thread, and a check that
//!   shares no line with it. The result is the same to the last byte, whichever workers run the
//!   tasks, and however often.
//! * [`graph`] reads and generates graphs; [`pagerank`] ranks their vertices. [`compressed`]
//!   decompresses files while they are read.
//!
//! ```no_run
//! use outlive_run::driver::{self, Options};
//! use outlive_run::input::Inputs;
//! use outlive_programs::mapreduce::MapReduction;
//! use outlive_programs::wordcount::WordCount;
//! use outlive::supervise::Stop;
//! use std::process::Command;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let options = Options { kills: 1, ..Options::default() };
//! let count = MapReduction::new(WordCount::default(), Inputs::find(&["book.txt"])?).workers(options.workers());
//! // A program that calls `host::work(&Place::from_env()?, outlive_programs::by_number, host)`.
//! let host = || Command::new("/usr/local/bin/count-host");
//! let outcome = driver::run(&options, &count, host, &Stop::default(), &mut |_| {})?;
//! for (word, count) in outcome.result.iter().take(10) {
//!     println!("{count:>8} {}", String::from_utf8_lossy(word));
//! }
//! # Ok(())
//! # }
//! ```

pub mod blackscholes;
pub mod compressed;
pub mod dedup;
pub mod graph;
pub mod histogram;
pub mod key;
pub mod kmeans;
pub mod mapreduce;
pub mod matmul;
pub mod npy;
mod number;
pub mod pagerank;
mod programs;
pub mod table;
pub mod tokens;
pub mod whole_file;
mod wide;
pub mod wordcount;

pub use programs::by_number;
