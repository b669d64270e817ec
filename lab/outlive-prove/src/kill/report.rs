//! What a sweep found.

use super::coverage::{Coverage, PassedPoint, PointKind};
use core::fmt;
use core::time::Duration;

/// Where in its window a victim was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum At {
    /// After so many instructions.
    Instruction(u64),
    /// At the so-manieth place, from 0, where it entered (the even ones) or left a system call.
    SystemCall(u64),
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Instruction(count) => write!(f, "after instruction {count}"),
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
    /// Where in the operation the victim was killed.
    pub at: At,
    /// Its process id, if a process was really killed and not only its memory copied.
    pub process: Option<u32>,
    /// The crash point that it had passed last.
    pub point: Option<PassedPoint>,
    /// Whether the operation had returned: what it promises on return must hold.
    pub returned: bool,
    /// How many recoverers have been killed since, each in the middle of recovering: 0 or 1. Their
    /// instances are as dead as the victim's.
    pub recoverers_lost: u32,
}

impl Crash {
    /// A crash of which no more is known than its place.
    pub(super) fn at(at: At) -> Self {
        Self {
            at,
            process: None,
            point: None,
            returned: false,
            recoverers_lost: 0,
        }
    }

    /// Whether the victim's last crash point was `point` or one that its operation declares after it.
    pub fn passed<P: outlive_memory::CrashPoint>(&self, point: P) -> bool {
        let last = self.point.filter(|last| last.operation() == P::OPERATION);
        last.is_some_and(|last| last.index() >= point.index())
    }
}

/// One thing that a sweep found wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// Where in the operation the victim was killed.
    pub at: At,
    /// The instruction that it would have executed next, as `binary+0x1a2b3c`: what `addr2line` takes.
    pub instruction: String,
    /// The crash point that it had passed last, as `operation.Point`.
    pub last_point: Option<String>,
    /// If a recoverer was killed too: where in the recovery.
    pub recovery_at: Option<At>,
    /// The crash point that the killed recoverer had passed last.
    pub recovery_point: Option<String>,
    /// What is wrong.
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

/// What a sweep did and found. Its [`Display`](fmt::Display) is one line, and one more for each failure.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SweepReport {
    /// What was swept.
    pub operation: String,
    /// The instructions of the operation; a kill was played or made after each of them (for a real
    /// sweep: after each that the plan chose).
    pub instructions: u64,
    /// How many different instructions of the program these were.
    pub addresses: u64,
    /// The crash states among them: memory or last crash point differ from the step before. In a real
    /// sweep, where memory is not all: the victims whose worlds a survivor recovered.
    pub images: u64,
    /// Victims that were really killed, by SIGKILL.
    pub kills: u64,
    /// In a real sweep: after how many instructions victims were killed, and after how many they could
    /// have been; the chosen ones are spread evenly, with one more right after each crash point.
    pub share: Option<(u64, u64)>,
    /// Of the victims really killed, those that had gone another way than the recorded run, so that
    /// they died elsewhere than at the instruction meant for them. Each is as good a death.
    pub strayed: u64,
    /// Of the victims really killed, those that had strayed, or had died in another round of a loop, after a breakpoint that was
    /// counted; another one was killed in their stead, without counting. All of them are survived.
    pub killed_again: u64,
    /// Recoveries that survivors ran.
    pub recoveries: u64,
    /// Of the images, those whose recovery was swept in turn.
    pub recoveries_swept: u64,
    /// The instructions of those recoveries.
    pub recovery_instructions: u64,
    /// The crash states among them: a recoverer killed there, and recovered by a second one.
    pub second_kills: u64,
    /// What was found wrong, at most as many as the plan allows.
    pub failures: Vec<Failure>,
    /// Whether the sweep was ended by the last of these, so that it would have found more.
    pub stopped: bool,
    /// Crash points that the sweep declares and at which no kill has fallen, as `operation.Point`.
    pub missing: Vec<String>,
    /// The crash points at which kills have fallen.
    pub coverage: Coverage,
    /// How long it all took.
    pub seconds: f64,
    /// What one step of a traced child cost on average, looking at its memory included.
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
            write!(
                f,
                "; {} of them swept: {} instructions, {} second kills",
                self.recoveries_swept, self.recovery_instructions, self.second_kills
            )?;
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

    /// Whether nothing is wrong and no declared crash point is missing.
    pub fn is_clean(&self) -> bool {
        self.failures.is_empty() && self.missing.is_empty()
    }

    /// For tests.
    ///
    /// # Panics
    /// With the whole report, if anything is wrong or a declared crash point is missing.
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
