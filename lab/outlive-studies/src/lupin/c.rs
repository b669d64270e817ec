//! The six programs written in C with POSIX threads (`peers/lupin/`), for the feature `lupin`.
//!
//! Each gets the number of threads, the files for its report of the work's time and for its result,
//! and then its inputs: the files that ours read, or files with the data that ours have in the pod.
//! The clock starts when threads are started and stops when the result exists. Data that is in
//! memory beforehand for ours is so in C, and reading is part of the work where it is with ours.
//! Ours includes the starting of processes.
//!
//! Loops that add up many numbers are compiled for any processor and for those with AVX2, as ours
//! are. Products are not fused with sums (compilers do that by default, and the last digits differ
//! then). The differences:
//!
//! * wordcount knows ASCII only. Words are hashed byte by byte into a table per thread, and the
//!   tables are merged.
//! * kmeans adds up coordinates as they are, so its last digits depend on the division of the work;
//!   ours are counted in whole steps.
//! * blackscholes takes logarithms and powers from the C library, ours from the crate `libm`, whose
//!   bytes are the same everywhere.
//! * dedup has all files in memory at once, where ours have a window of them. It takes SHA-256 from
//!   libcrypto and DEFLATE, at the same level, from zlib, ours from the crates `sha2` and
//!   `miniz_oxide`.

#[cfg(not(feature = "lupin"))]
pub use absent::Programs;
#[cfg(feature = "lupin")]
pub use there::Programs;

use crate::cost::Costs;

/// The name of the C program in errors.
#[cfg(feature = "lupin")]
pub const WHO: &str = "the program in C";

/// Our runs between runs of the program in C.
pub struct Beside {
    /// As many workers, or threads in C, as there are cores.
    pub all: Costs,
    /// One worker, or thread in C.
    pub one: Costs,
}

#[cfg(not(feature = "lupin"))]
mod absent {
    use super::Beside;
    use crate::cost::Cost;
    use crate::lupin::Subject;
    use crate::{Run, StudyError};

    /// No programs.
    pub struct Programs;

    impl Programs {
        pub fn new() -> Result<Self, StudyError> {
            Ok(Self)
        }

        pub fn beside(
            &self,
            _: &Run<'_>,
            _: (&str, usize),
            _: &dyn Subject,
            _: u32,
            _: &dyn Fn(u32) -> Result<Cost, StudyError>,
        ) -> Result<Option<Beside>, StudyError> {
            Ok(None)
        }
    }
}

#[cfg(feature = "lupin")]
mod there {
    use super::{Beside, WHO};
    use crate::cost::{Cost, Costs};
    use crate::engines::timed;
    use crate::lupin::{PROGRAMS, Subject};
    use crate::scratch::Directory;
    use crate::{Run, StudyError};
    use std::ffi::OsString;
    use std::process::Command;

    macro_rules! built {
        ($($name:literal),*) => {
            // The programs that `build.rs` has compiled, in the order of `PROGRAMS`.
            [$(include_bytes!(concat!(env!("OUT_DIR"), "/lupin-", $name)).as_slice()),*]
        };
    }

    static BUILT: [&[u8]; 6] = built!(
        "wordcount",
        "kmeans",
        "matmul",
        "histogram",
        "blackscholes",
        "dedup"
    );

    /// The programs, as executable files.
    pub struct Programs {
        files: Directory,
    }

    impl Programs {
        pub fn new() -> Result<Self, StudyError> {
            let files = Directory::new("c")?;
            for ((name, _), program) in PROGRAMS.iter().zip(BUILT) {
                files.write_program(name, program)?;
            }
            Ok(Self { files })
        }

        /// Compares `workers`, which is ours, with runs of `name`: with as many threads as there
        /// are `cores`, and with one.
        pub fn beside(
            &self,
            run: &Run<'_>,
            (name, rounds): (&str, usize),
            subject: &dyn Subject,
            cores: u32,
            workers: &dyn Fn(u32) -> Result<Cost, StudyError>,
        ) -> Result<Option<Beside>, StudyError> {
            // A drop removes the program's inputs.
            let inputs = Directory::new(name)?;
            let arguments = subject.for_c(&inputs)?;
            let measure = |threads: u32| {
                let case = format!("{name} beside the same in C, {threads} threads");
                let c = || self.go(name, threads, &arguments, subject);
                Costs::measure(run, (&case, rounds), || workers(threads), c)
            };
            let all = measure(cores)?;
            let one = measure(1)?;
            Ok(Some(Beside { all, one }))
        }

        /// Runs the program, whose result must be the right one. Returns the cost of the work.
        fn go(
            &self,
            name: &str,
            threads: u32,
            arguments: &[OsString],
            subject: &dyn Subject,
        ) -> Result<Cost, StudyError> {
            let (cost, result) = self.start(name, threads, arguments)?;
            subject.expect(&result)?;
            Ok(cost)
        }

        /// Runs the program. Returns the cost of the work, and the result.
        fn start(
            &self,
            name: &str,
            threads: u32,
            arguments: &[OsString],
        ) -> Result<(Cost, Vec<u8>), StudyError> {
            self.files.remove(&["report", "result"])?;
            let mut command = Command::new(self.files.path(name));
            command
                .arg(threads.to_string())
                .arg(self.files.path("report"))
                .arg(self.files.path("result"))
                .args(arguments);
            let ended = timed(&mut command)?;
            let report = self.files.report()?;
            let mut words = report
                .strip_prefix("done ")
                .unwrap_or("")
                .split_whitespace();
            let mut word = || words.next().and_then(|word| word.parse::<f64>().ok());
            let (Some(wall), Some(cpu), true) = (word(), word(), ended.status.success()) else {
                return Err(ended.void(WHO));
            };
            // These are different clocks of the kernel; the other one may be counted in ticks.
            if wall > ended.cost.wall || cpu > ended.cost.cpu + 0.02 {
                return Err(StudyError::void(format!(
                    "{WHO} reports {wall} s, {cpu} s of processor time, but took {:?} in total",
                    ended.cost
                )));
            }
            Ok((Cost { wall, cpu }, self.files.take("result")?))
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::lupin::TINY;

        #[test]
        fn each_finds_what_the_plain_one_does_and_another_result_is_refused() {
            let programs = Programs::new().unwrap();
            for (name, make) in PROGRAMS {
                let (subject, inputs) = (make(&TINY).unwrap(), Directory::new("test-c").unwrap());
                let arguments = subject.for_c(&inputs).unwrap();
                for threads in [1, 2, 5] {
                    let (_, result) = programs.start(name, threads, &arguments).unwrap();
                    let found = subject.expect(&result);
                    found.unwrap_or_else(|error| panic!("{name}, {threads} threads: {error}"));
                    // The upper byte of a number, a letter of a text, a byte of an archive.
                    for part in 0..8 {
                        let mut wrong = result.clone();
                        let at = (result.len() / 8 - 1) * part / 7 * 8 + 7;
                        wrong[at] ^= 0x40;
                        assert!(subject.expect(&wrong).is_err(), "{name}, byte {at}");
                    }
                    let cut = &result[..result.len() - 8];
                    assert!(subject.expect(cut).is_err() && subject.expect(&[]).is_err());
                }
            }
        }

        #[test]
        fn what_it_says_is_said() {
            let programs = Programs::new().unwrap();
            let error = programs.start("matmul", 1, &["/nowhere".into(), "/nowhere".into()]);
            let said = error.unwrap_err().to_string();
            assert!(said.contains("opening /nowhere: No such file"), "{said}");
        }
    }
}
