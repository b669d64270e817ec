//! LUPIN's evaluation (section 5) of its six programs: [`lupin-table3`](table3), how fast they are, and
//! [`lupin-table4`](table4), what it costs them that hosts are killed.
//!
//! The paper's hosts are 16 virtual machines of 2 processors over a CXL module; here a host is a process of this machine, and
//! its memory is all there is. The paper does not say how large its inputs are, so its seconds stand beside ours and are not
//! compared with them; ratios are. Ours are generated, but for the text: the King James Bible again and again, which has some
//! twelve thousand different words (the paper's input has a million).
//!
//! The time of the work begins before the first host is started and ends when the last is gone. Making the pod and copying the
//! input into it comes before, as in the paper, except where the program reads files itself: then reading is part of
//! the work (wordcount, histogram, dedup). So it is with the plain programs, and with those in C ([`c`]).
//!
//! Everybody's result must be the plain program's, or the measurement is void: to the last byte, but for those of C, where
//! [a subject](Subject::expect) says how near they have to be.

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
use outlive_workloads::driver::{KillAt, Options, Outcome, Program, Running, Supervise};
use std::fmt::Display;

/// A program and its input, and what has to come of it.
trait Subject: Sync {
    /// How large the input is, for people.
    fn size(&self) -> String;

    /// The plain program: one thread, ordinary memory.
    fn plain(&self) -> Result<Cost, StudyError>;

    /// So many hosts, some of which may be killed.
    fn in_pod(&self, launcher: &Launcher, crew: Crew) -> Result<Outcome<()>, StudyError>;

    /// What the program in C is told behind its first three arguments; what it reads is written to `files`.
    #[cfg(feature = "lupin")]
    fn for_c(&self, files: &Directory) -> Result<Vec<std::ffi::OsString>, StudyError>;

    /// Fails unless the program in C has left what it should.
    #[cfg(feature = "lupin")]
    fn expect(&self, result: &[u8]) -> Result<(), StudyError>;
}

/// Who works, and how many of the hosts are killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Crew {
    hosts: u32,
    /// Of each host.
    threads: u32,
    kills: u32,
}

impl Crew {
    /// Hosts that live.
    fn of(hosts: u32, threads: u32) -> Self {
        Self {
            hosts,
            threads,
            kills: 0,
        }
    }

    /// As it is called.
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

    /// What came of a run, if its result is the right one and all were killed who were to be.
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
                "{} hosts were to be killed, and {} of these kills came when the run was over",
                self.kills, outcome.kills_missed
            )));
        }
        Ok(outcome)
    }
}

/// Why a result that is not the plain program's is none.
fn differs(who: impl Display) -> StudyError {
    StudyError::void(format!("{who}: another result than the plain program's"))
}

/// Fails unless the result is the right one.
fn same(who: &str, is_right: bool) -> Result<(), StudyError> {
    is_right.then_some(()).ok_or_else(|| differs(who))
}

/// Who computes without a pod.
const PLAIN: &str = "the plain program once more";

/// How large the inputs are.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    /// Of text whose words are counted, in MB.
    text: usize,
    /// To be grouped around 100 centres, in ten iterations.
    points: usize,
    /// Rows and columns of matrices.
    side: usize,
    /// Of a picture of 8,001 points a row.
    rows: u32,
    /// To be priced.
    options: usize,
    /// To be archived, in MB.
    files: usize,
}

/// What goes through all of the code.
const TINY: Sizes = Sizes {
    text: 1,
    points: 2_000,
    side: 64,
    rows: 40,
    options: 2_000,
    files: 1,
};

/// The programs, in the paper's order: what they are called, and how one comes by an input.
const PROGRAMS: [(&str, Make); 6] = [
    ("wordcount", wordcount::make),
    ("kmeans", kmeans::make),
    ("matmul", matmul::make),
    ("histogram", histogram::make),
    ("blackscholes", blackscholes::make),
    ("dedup", dedup::make),
];

/// How many of them, the first, run on MapReduce in the paper.
const MAP_REDUCE: usize = 4;

/// Makes an input of these sizes, and has the plain program say what has to come of it.
type Make = fn(&Sizes) -> Result<Box<dyn Subject>, StudyError>;

/// Numbers as they stand in memory, for a file.
#[cfg(feature = "lupin")]
fn bytes_of(sizes: &[usize], numbers: &[f64]) -> Vec<u8> {
    let sizes = sizes.iter().flat_map(|size| (*size as u64).to_le_bytes());
    let numbers = numbers.iter().flat_map(|number| number.to_le_bytes());
    sizes.chain(numbers).collect()
}

/// The numbers that a file of them has.
#[cfg(feature = "lupin")]
fn numbers_of(bytes: &[u8]) -> impl Iterator<Item = f64> {
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().map(|word| f64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlive_workloads::driver::Turns;

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
        assert!(said(false, 0).contains("another result"));
        assert!(said(true, 1).contains("when the run was over"));
    }
}
