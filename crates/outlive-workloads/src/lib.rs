//! Programs that outlive the hosts running them: MapReduce over a pod, and the counting of words.
//!
//! A run has a *driver*, which makes a pod and starts *hosts*, process trees of their own. Each of their processes has
//! worker threads. They read files into the shared memory, map them and reduce what they found, in units that anyone
//! may do (LUPIN §3.5, §4). Hosts may be killed at any instruction: what they had committed stands, what they had not is
//! done again, and the totals are those of a run without failures.
//!
//! * [`driver`] runs it all, and kills hosts if it is asked to; [`host`] is what the hosts' processes do.
//! * [`mapreduce`] is what a worker does, for any program that is a [`MapReduce`](mapreduce::MapReduce).
//! * [`work_list`] gives out units, [`table`] counts them so that a unit's counts are committed by one word:
//!   the argument stands there, and [`sweeps`] and [`scenarios`] prove it.
//! * [`wordcount`] is the program, and the plain count that it is compared with; [`tokens`] says what a word
//!   is.
//!
//! ```no_run
//! use outlive_workloads::driver::{self, Options};
//! use outlive_workloads::input::Inputs;
//! use outlive_workloads::wordcount::WordCount;
//! use outlive::supervise::Stop;
//! use std::process::Command;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let options = Options { kills: 1, ..Options::new(Inputs::find(&["book.txt"])?) };
//! let program = WordCount::default();
//! // A program that calls `host::work(&Place::from_env()?, WordCount::of, host)`.
//! let host = || Command::new("/usr/local/bin/count-host");
//! let outcome =
//!     driver::run(&options, (program.number(), &program), host, &Stop::default(), &mut |_| {})?;
//! for (word, count) in outcome.totals.iter().take(10) {
//!     println!("{count:>8} {}", String::from_utf8_lossy(word));
//! }
//! # Ok(())
//! # }
//! ```

pub mod driver;
pub mod host;
pub mod input;
pub mod key;
pub mod mapreduce;
pub mod run;
pub mod scenarios;
pub mod size;
pub mod sweeps;
pub mod table;
pub mod tokens;
pub mod wordcount;
pub mod work_list;
