//! Programs that outlive the hosts running them: MapReduce over a pod, and the counting of words.
//!
//! A run has a *driver*, which makes a pod and starts *hosts*, process trees of their own. Each of their processes has
//! worker threads. They do tasks that anyone may do: of a word count, for example, they read files into the shared memory, map
//! them and reduce what they found (LUPIN §3.5, §4). Hosts may be killed at any instruction: what they had committed
//! stands, what they had not is done again, and the totals are those of a run without failures.
//!
//! * [`driver`] runs it all, and kills hosts if it is asked to; [`host`] is what the hosts' processes do. Neither knows
//!   the program: that is a [`driver::Program`] to one and [`host::Work`] to the other, [`crew`] says who works, and
//!   [`header`] is what every run begins with in the pod.
//! * [`on_tasks`] makes programs of tasks ones that a driver runs: all of them are.
//! * [`mapreduce`] is three rounds of tasks, for any program that is a [`MapReduce`](mapreduce::MapReduce). Its
//!   [`table`]s count units so that a unit's counts are committed by one word, its [result](mapreduce::results):
//!   the argument stands there, and [`sweeps`] and [`scenarios`] prove it.
//! * [`wordcount`] is such a program, and the plain count that it is compared with; [`tokens`] says what a word
//!   is.
//! * [`kmeans`], [`matmul`], [`histogram`], [`blackscholes`] and [`dedup`] are the other programs of LUPIN's Tables 3 and 4: each has its input,
//!   the work of one task as a function over slices, what puts together what tasks made, a plain program with one thread, and a
//!   check that shares no line with it. Whoever does what, and however often, the result is the same to the last byte.
//! * [`graph`] reads graphs, and generates them; [`pagerank`] ranks their vertices. [`compressed`]
//!   unpacks files while they are read.
//!
//! ```no_run
//! use outlive_workloads::driver::{self, Options};
//! use outlive_workloads::input::Inputs;
//! use outlive_workloads::mapreduce::MapReduction;
//! use outlive_workloads::wordcount::WordCount;
//! use outlive::supervise::Stop;
//! use std::process::Command;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let options = Options { kills: 1, ..Options::default() };
//! let count = MapReduction::new(WordCount::default(), Inputs::find(&["book.txt"])?).workers(options.workers());
//! // A program that calls `host::work(&Place::from_env()?, programs::of, host)`.
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
pub mod crew;
pub mod dedup;
pub mod driver;
mod fixtures;
pub mod graph;
pub mod header;
pub mod histogram;
pub mod host;
pub mod input;
pub mod key;
pub mod kmeans;
pub mod mapreduce;
pub mod matmul;
pub mod npy;
mod number;
pub mod on_tasks;
pub mod pagerank;
pub mod programs;
pub mod random;
pub mod scenarios;
pub mod size;
pub mod sweeps;
pub mod table;
pub mod tokens;
pub mod whole_file;
mod wide;
pub mod wordcount;
