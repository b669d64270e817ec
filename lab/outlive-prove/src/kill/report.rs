//! The findings of a sweep.

use super::coverage::{Coverage, PassedPoint, PointKind};
use core::fmt;
use core::time::Duration;

/// The place in its window at which a victim was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum At {
    /// After N instructions.
    Instruction(u64),
    /// After N stores to the memory or past crash points, where instructions were not counted.
    Store(u64),
    /// At the N-th place, from 0, at which it entered (even numbers) or left a system call.
    SystemCall(u64),
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Instruction(count) => write!(f, "after instruction {count}"),
            Self::Store(count) => write!(f, "after store {count}"),
            Self::SystemCall(nth) => write!(
                f,
                "{} system call {}",
                if nth % 2 == 0 { "entering" } else { "leaving" },
                nth / 2
            ),
        }
    }
}

/// The death that a survivor recovers from.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Crash {
    /// The place in the operation at which the victim was killed.
    pub at: At,
    /// Its process id, if a process was really killed and not only its memory copied.
    pub process: Option<u32>,
    /// The crash point that it had passed last.
    pub point: Option<PassedPoint>,
    /// Whether the operation had returned: then its guarantees on return must hold.
    pub returned: bool,
    /// The number of recoverers killed since, each in the middle of recovering: 0 or 1. Their
    /// instances are as dead as the victim's.
    pub recoverers_lost: u32,
}

impl Crash {
    /// Returns a crash of which only the place is known.
    pub(super) fn at(at: At) -> Self {
        Self {
            at,
            process: None,
            point: None,
            returned: false,
            recoverers_lost: 0,
        }
    }

    /// Returns whether the victim's last crash point was `point` or a later one of its operation.
    pub fn passed<P: outlive_memory::CrashPoint>(&self, point: P) -> bool {
        let last = self.point.filter(|last| last.operation() == P::OPERATION);
        last.is_some_and(|last| last.index() >= point.index())
    }
}

/// A fault that a sweep found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// The place in the operation at which the victim was killed.
    pub at: At,
    /// The instruction that it would have executed next, as `binary+0x1a2b3c` for `addr2line`.
    pub instruction: String,
    /// The crash point that it had passed last, as `operation.Point`.
    pub last_point: Option<String>,
    /// The place in the recovery at which a recoverer was killed too, if one was.
    pub recovery_at: Option<At>,
    /// The crash point that the killed recoverer had passed last.
    pub recovery_point: Option<String>,
    /// A description of the fault.
    pub message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "killed {}", self.at)?;
        if let Some(point) = &self.last_point {
            write!(f, ", past {point}")?;
        }
        if let Some(at) = self.recovery_at {
            write!(f, ", its recoverer {at}")?;
            if let Some(point) = &self.recovery_point {
                write!(f, ", past {point}")?;
            }
        }
        write!(f, " (at {}): {}", self.instruction, self.message)
    }
}

/// The result of a sweep. Its [`Display`](fmt::Display) is one line, and one more for each failure.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SweepReport {
    /// The name of the sweep.
    pub operation: String,
    /// The instructions of the operation. A kill was simulated or made after each of them (in a
    /// real sweep: after each that the plan chose).
    pub instructions: u64,
    /// The number of distinct addresses among these instructions.
    pub addresses: u64,
    /// The crash states among them: memory or last crash point differ from the step before. In a
    /// real sweep, where memory is not all: the victims whose worlds a survivor recovered.
    pub images: u64,
    /// Victims that were really killed, by SIGKILL.
    pub kills: u64,
    /// In a real sweep: the number of instructions after which victims were killed, and the number
    /// after which they could have been. The chosen ones are spread evenly, with one more right
    /// after each crash point.
    pub share: Option<(u64, u64)>,
    /// Of the victims really killed, those that took another path than the recorded run, so that
    /// they died at another instruction than the intended one. Each is as good a death.
    pub strayed: u64,
    /// Of the victims really killed, those that strayed, or died in another round of a loop, after
    /// a counted breakpoint; another victim was killed in their place, without counting. Survivors
    /// recover all of them.
    pub killed_again: u64,
    /// Recoveries that survivors ran.
    pub recoveries: u64,
    /// Of the images, those whose recovery was swept in turn.
    pub recoveries_swept: u64,
    /// The instructions of those recoveries, if they were stepped.
    pub recovery_instructions: u64,
    /// The stores of those recoveries to the memory and past crash points, if they were stopped at
    /// these only.
    pub recovery_stores: u64,
    /// The crash states among them: a recoverer killed there, and recovered by a second one.
    pub second_kills: u64,
    /// The faults found, at most as many as the plan allows.
    pub failures: Vec<Failure>,
    /// Whether the last of these ended the sweep, so that it would have found more.
    pub stopped: bool,
    /// Crash points that the sweep declares and at which no kill has fallen, as `operation.Point`.
    pub missing: Vec<String>,
    /// The crash points at which kills have fallen.
    pub coverage: Coverage,
    /// The duration of the sweep.
    pub seconds: f64,
    /// The average cost of one step of a traced child, including reading its memory.
    pub step: Duration,
}

impl SweepReport {
    pub(super) fn new(operation: &str) -> Self {
        Self {
            operation: operation.to_owned(),
            instructions: 0,
            addresses: 0,
            images: 0,
            kills: 0,
            share: None,
            strayed: 0,
            killed_again: 0,
            recoveries: 0,
            recoveries_swept: 0,
            recovery_instructions: 0,
            recovery_stores: 0,
            second_kills: 0,
            failures: Vec::new(),
            stopped: false,
            missing: Vec::new(),
            coverage: Coverage::new(),
            seconds: 0.0,
            step: Duration::ZERO,
        }
    }

    pub(super) fn find_missing(&mut self, declared: &[&'static PointKind]) {
        for kind in declared {
            let missing = self.coverage.missing_of(kind).into_iter();
            let missing = missing.map(|name| format!("{}.{name}", kind.operation()));
            self.missing.extend(missing);
        }
    }

    pub(super) fn write_without_missing(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} instructions ({} addresses), {} images, {} kills, {} recoveries",
            self.operation,
            self.instructions,
            self.addresses,
            self.images,
            self.kills,
            self.recoveries,
        )?;
        if let Some((killed, places)) = self.share {
            let stride = places as f64 / killed.max(1) as f64;
            match (killed, killed == places) {
                (0, _) => write!(f, "; killed after no instruction, at system calls only"),
                (_, true) => write!(f, "; killed after every instruction"),
                _ => write!(
                    f,
                    "; killed after every {stride:.1}th instruction on average"
                ),
            }?;
        }
        if self.recoveries_swept != 0 {
            write!(f, "; {} of them swept: ", self.recoveries_swept)?;
            match self.recovery_stores {
                0 => write!(f, "{} instructions", self.recovery_instructions)?,
                stores => write!(f, "{stores} stores")?,
            }
            write!(f, ", {} second kills", self.second_kills)?;
        }
        if self.strayed != 0 {
            write!(f, "; {} kills strayed", self.strayed)?;
        }
        if self.killed_again != 0 {
            write!(f, ", {} killed again", self.killed_again)?;
        }
        let micros = self.step.as_secs_f64() * 1e6;
        write!(
            f,
            "; {} failures{}; {:.2} s, {micros:.1} us a step",
            self.failures.len(),
            if self.stopped { " and stopped" } else { "" },
            self.seconds
        )?;
        for failure in &self.failures {
            write!(f, "\n  {failure}")?;
        }
        Ok(())
    }

    /// Returns whether there is no fault and no declared crash point is missing.
    pub fn is_clean(&self) -> bool {
        self.failures.is_empty() && self.missing.is_empty()
    }

    /// Asserts that the sweep is clean, for tests.
    ///
    /// # Panics
    /// With the whole report, if there is a fault or a declared crash point is missing.
    #[track_caller]
    pub fn assert_clean(&self) {
        assert!(self.is_clean(), "{self}");
    }
}

impl fmt::Display for SweepReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_without_missing(f)?;
        for missing in &self.missing {
            write!(f, "\n  not covered: {missing}")?;
        }
        Ok(())
    }
}
