//! The bounds of an exploration.

use super::engine::Limits;
use core::fmt;

/// Bounds on an exploration: which executions it tries, and when it stops.
///
/// Every bound except the number of executions defines "complete": a complete exploration has tried
/// every execution *within these bounds*. Few preemptions find most bugs (Musuvathi and Qadeer,
/// PLDI '07); when a thread waits, ends or dies, another runs without a preemption.
#[derive(Clone, Debug)]
pub struct Bounds {
    preemptions: u32,
    stale_reads: u32,
    deaths: u32,
    steps: u32,
    history: usize,
    executions: u64,
    unreduced: bool,
}

impl Default for Bounds {
    /// Two preemptions, two stale reads, one death; up to ten million executions of 20,000
    /// accesses.
    fn default() -> Self {
        Self {
            preemptions: 2,
            stale_reads: 2,
            deaths: 1,
            steps: 20_000,
            history: 8,
            executions: 10_000_000,
            unreduced: false,
        }
    }
}

impl fmt::Display for Bounds {
    /// Writes the bounds of an execution, for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for (number, what) in [
            (self.preemptions, "preemption"),
            (self.stale_reads, "stale read"),
            (self.deaths, "death"),
        ] {
            if !core::mem::take(&mut first) {
                f.write_str(", ")?;
            }
            match number {
                0 => write!(f, "no {what}")?,
                1 => write!(f, "1 {what}")?,
                u32::MAX => write!(f, "any {what}s")?,
                several => write!(f, "{several} {what}s")?,
            }
        }
        Ok(())
    }
}

impl Bounds {
    /// No bound on preemptions and stale reads: for litmus tests and very small scenarios.
    pub fn exhaustive() -> Self {
        Self {
            preemptions: u32::MAX,
            stale_reads: u32::MAX,
            ..Self::default()
        }
    }

    /// Sets how often per execution a runnable thread is interrupted for another.
    pub fn preemptions(self, preemptions: u32) -> Self {
        Self {
            preemptions,
            ..self
        }
    }

    /// Sets how often per execution a load reads a message that is not the newest, or a store is
    /// placed before a newer one.
    pub fn stale_reads(self, stale_reads: u32) -> Self {
        Self {
            stale_reads,
            ..self
        }
    }

    /// Sets the number of hosts that die in one execution.
    pub fn deaths(self, deaths: u32) -> Self {
        Self { deaths, ..self }
    }

    /// Sets the number of accesses after which an execution is assumed never to end.
    pub fn steps(self, steps: u32) -> Self {
        Self { steps, ..self }
    }

    /// Sets how many of a word's newest messages a load may choose among.
    pub fn history(self, history: usize) -> Self {
        Self {
            history: history.max(1),
            ..self
        }
    }

    /// Returns these bounds, each raised to that of `least` if it is narrower.
    pub fn at_least(self, least: &Self) -> Self {
        Self {
            preemptions: self.preemptions.max(least.preemptions),
            stale_reads: self.stale_reads.max(least.stale_reads),
            deaths: self.deaths.max(least.deaths),
            steps: self.steps.max(least.steps),
            history: self.history.max(least.history),
            executions: self.executions.max(least.executions),
            unreduced: self.unreduced || least.unreduced,
        }
    }

    /// Sets the number of executions after which the exploration stops, complete or not.
    pub fn executions(self, executions: u64) -> Self {
        Self { executions, ..self }
    }

    /// Interrupts and kills before every access, also where that cannot make a difference: to check
    /// that it does not.
    pub fn unreduced(self) -> Self {
        Self {
            unreduced: true,
            ..self
        }
    }

    pub(crate) fn is_unreduced(&self) -> bool {
        self.unreduced
    }

    pub(crate) fn limits(&self) -> Limits {
        Limits {
            preemptions: self.preemptions,
            stale: self.stale_reads,
            deaths: self.deaths,
            steps: self.steps,
            everywhere: self.unreduced,
        }
    }

    pub(crate) fn budget(&self) -> u64 {
        self.executions
    }

    pub(crate) fn messages(&self) -> usize {
        self.history
    }
}
