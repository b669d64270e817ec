//! LUPIN's evaluation (section 5) with its six programs: [`lupin-table3`](table3), their speed, and
//! [`lupin-table4`](table4), the cost of kills of hosts.
//!
//! The paper's hosts are 16 virtual machines of 2 processors over a CXL module; here a host is a
//! process of this machine, and all memory is this machine's. The paper does not give the sizes of
//! its inputs. So its seconds are listed with ours but not compared with them; ratios are. Our
//! inputs are generated, except the text: repeated copies of the King James Bible, with some twelve
//! thousand different words (the paper's input has a million).
//!
//! The time of the work begins before the first host is started and ends when the last has ended.
//! Making the pod and copying the input into it come before that, as in the paper, except where the
//! program reads files itself: then reading is part of the work (wordcount, histogram, dedup). The
//! same holds for the plain programs, and for those in C ([`c`]).
//!
//! Every result must be the plain program's to the last byte, or the measurement is void. For the
//! programs in C [a subject](Subject::expect) says how close the result has to be.

mod blackscholes;
mod c;
mod dedup;
mod histogram;
mod kmeans;
mod matmul;
mod paper;
mod table3;
mod table4;
mod wordcount;

pub use table3::STUDY as TABLE3;
pub use table4::STUDY as TABLE4;

use crate::children::Launcher;
use crate::cost::Cost;
#[cfg(feature = "lupin")]
use crate::scratch::Directory;
use crate::{StudyError, hosts};
use outlive_run::driver::{KillAt, Options, Outcome, Program, Running, Supervise};
use std::fmt::Display;

/// A program with its input and its expected result.
trait Subject: Sync {
    /// Returns the size of the input, for people.
    fn size(&self) -> String;

    /// Runs the plain program: one thread, ordinary memory.
    fn plain(&self) -> Result<Cost, StudyError>;

    /// Runs the program on the hosts of `crew`, some of which may be killed.
    fn in_pod(&self, launcher: &Launcher, crew: Crew) -> Result<Outcome<()>, StudyError>;

    /// Returns the arguments of the C program after the first three, and writes its inputs to
    /// `files`.
    #[cfg(feature = "lupin")]
    fn for_c(&self, files: &Directory) -> Result<Vec<std::ffi::OsString>, StudyError>;

    /// Fails unless `result`, of the program in C, is close enough to the expected one.
    #[cfg(feature = "lupin")]
    fn expect(&self, result: &[u8]) -> Result<(), StudyError>;
}

/// The hosts and their workers, and the number of hosts that are killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Crew {
    hosts: u32,
    /// Threads of each host.
    threads: u32,
    kills: u32,
}

impl Crew {
    /// Returns a crew without kills.
    fn of(hosts: u32, threads: u32) -> Self {
        Self {
            hosts,
            threads,
            kills: 0,
        }
    }

    /// Returns a description.
    fn name(self) -> String {
        let many = |count: u32, what: &str| match count {
            1 => format!("1 {what}"),
            count => format!("{count} {what}s"),
        };
        let (hosts, workers) = (many(self.hosts, "host"), many(self.threads, "worker"));
        format!("{hosts} of {workers}")
    }

    fn options(self) -> Options {
        Options {
            hosts: self.hosts,
            threads: self.threads,
            kills: self.kills,
            kill_at: KillAt::Commit,
            supervise: Supervise::Restart,
            seed: 1,
            ..Options::default()
        }
    }

    /// Runs `program`, whose result must be `expected`.
    fn run<P: Program>(
        self,
        launcher: &Launcher,
        program: &P,
        expected: &<P::Running as Running>::Result,
    ) -> Result<Outcome<()>, StudyError>
    where
        <P::Running as Running>::Result: PartialEq,
    {
        let (result, outcome) = hosts::run(launcher, &self.options(), program)?.split();
        self.settled(result == *expected, outcome)
    }

    /// Returns the outcome of a run if its result is right and no kill came too late.
    fn settled(self, is_right: bool, outcome: Outcome<()>) -> Result<Outcome<()>, StudyError> {
        if !is_right {
            return Err(differs(format_args!(
                "{}, {} of them killed",
                self.name(),
                self.kills
            )));
        }
        if outcome.kills_missed > 0 {
            return Err(StudyError::void(format!(
                "{} hosts were to be killed, but {} of these kills came after the end of the run",
                self.kills, outcome.kills_missed
            )));
        }
        Ok(outcome)
    }
}

/// Returns the error for a result that differs from the plain program's.
fn differs(who: impl Display) -> StudyError {
    StudyError::void(format!(
        "{who}: the result differs from the plain program's"
    ))
}

/// Fails unless the result is the right one.
fn same(who: &str, is_right: bool) -> Result<(), StudyError> {
    is_right.then_some(()).ok_or_else(|| differs(who))
}

/// The name of the plain program in errors.
const PLAIN: &str = "the plain program once more";

/// The sizes of the inputs.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    /// MB of text.
    text: usize,
    /// Points to be grouped around 100 centres, in ten iterations.
    points: usize,
    /// Rows and columns of the matrices.
    side: usize,
    /// Rows of a picture of 8,001 points a row.
    rows: u32,
    /// Options to be priced.
    options: usize,
    /// MB of files to be archived.
    files: usize,
}

/// The least that goes through all of the code.
const TINY: Sizes = Sizes {
    text: 1,
    points: 2_000,
    side: 64,
    rows: 40,
    options: 2_000,
    files: 1,
};

/// The programs, in the paper's order: their names, and the functions that make their inputs.
const PROGRAMS: [(&str, Make); 6] = [
    ("wordcount", wordcount::make),
    ("kmeans", kmeans::make),
    ("matmul", matmul::make),
    ("histogram", histogram::make),
    ("blackscholes", blackscholes::make),
    ("dedup", dedup::make),
];

/// The number of programs, the first ones, that run on MapReduce in the paper.
const MAP_REDUCE: usize = 4;

/// Makes an input of the given sizes, and computes the expected result with the plain program.
type Make = fn(&Sizes) -> Result<Box<dyn Subject>, StudyError>;

/// Returns sizes and numbers as they are in memory, for a file.
#[cfg(feature = "lupin")]
fn bytes_of(sizes: &[usize], numbers: &[f64]) -> Vec<u8> {
    let sizes = sizes.iter().flat_map(|size| (*size as u64).to_le_bytes());
    let numbers = numbers.iter().flat_map(|number| number.to_le_bytes());
    sizes.chain(numbers).collect()
}

/// Returns the numbers in a file's content.
#[cfg(feature = "lupin")]
fn numbers_of(bytes: &[u8]) -> impl Iterator<Item = f64> {
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().map(|word| f64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlive_run::driver::Turns;

    #[test]
    fn crews_are_called_what_they_are() {
        let name = |hosts, threads| Crew::of(hosts, threads).name();
        assert_eq!(name(1, 2), "1 host of 2 workers");
        assert_eq!(name(16, 1), "16 hosts of 1 worker");
    }

    #[test]
    fn another_result_and_a_kill_too_late_are_void() {
        let outcome = |kills_missed| Outcome {
            result: (),
            seconds: 1.0,
            seconds_to_create: 0.0,
            seconds_of_work: 1.0,
            cpu_seconds: 1.0,
            cpu_seconds_of_work: 1.0,
            units: 1,
            segment_bytes: 1,
            pod: "p".into(),
            no_room: None,
            failures: Vec::new(),
            units_redone: 0,
            kills_missed,
            turns: Turns::default(),
        };
        let crew = Crew {
            kills: 1,
            ..Crew::of(2, 1)
        };
        assert!(crew.settled(true, outcome(0)).is_ok());
        let said = |is_right, late| {
            crew.settled(is_right, outcome(late))
                .unwrap_err()
                .to_string()
        };
        assert!(said(false, 0).contains("the result differs"));
        assert!(said(true, 1).contains("after the end of the run"));
    }
}
