//! Real processes on one pod that are killed at random, with SIGKILL, while they work.
//!
//! [`Processes`] starts and kills them, at the moments that `Schedule` draws. The schedule follows
//! from a seed. The instructions at which the processes are killed do not, because the processes
//! run freely. [Chaos over tasks](crate::tasks::chaos) and [over objects](crate::objects::chaos)
//! use it.

mod processes;

pub use processes::{PATIENCE, Processes, pod_of_child};

use core::fmt;
use outlive_run::random::Random;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(crate) fn text(error: impl fmt::Display) -> String {
    error.to_string()
}

/// The end of the kills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After this time.
    Time(Duration),
    /// After this number of kills.
    Kills(u64),
}

/// The result of a run with the progress `P`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report<P> {
    /// The progress made.
    pub progress: P,
    /// The faults found.
    pub failures: Vec<String>,
}

impl<P> Report<P> {
    /// Returns whether no fault was found.
    pub fn is_clean(&self) -> bool {
        self.failures.is_empty()
    }
}

impl<P: fmt::Display> fmt::Display for Report<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {} failures", self.progress, self.failures.len())?;
        for failure in &self.failures {
            write!(f, "\n  {failure}")?;
        }
        Ok(())
    }
}

/// The moments of the kills, from a seed, and the end of a run.
#[derive(Debug)]
pub(crate) struct Schedule {
    until: Until,
    enough: Arc<AtomicBool>,
    random: Random,
    started: Instant,
    next_kill: Instant,
    second: u64,
}

impl Schedule {
    /// Returns a schedule that begins now. Setting `enough` ends it early.
    pub fn new(until: Until, seed: u64, enough: &Arc<AtomicBool>) -> Self {
        let now = Instant::now();
        Self {
            until,
            enough: Arc::clone(enough),
            random: Random::new(seed),
            started: now,
            next_kill: now,
            second: 0,
        }
    }

    /// Draws a number below `bound`.
    pub fn draw(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns the elapsed time if a new second has begun since the last call.
    pub fn new_second(&mut self) -> Option<Duration> {
        let elapsed = self.elapsed();
        let is_new = elapsed.as_secs() != self.second;
        self.second = elapsed.as_secs();
        is_new.then_some(elapsed)
    }

    /// Returns whether the run is over, after `kills` kills.
    pub fn is_over(&self, kills: u64) -> bool {
        self.enough.load(Ordering::Relaxed)
            || match self.until {
                Until::Time(time) => self.elapsed() >= time,
                Until::Kills(most) => kills >= most,
            }
    }

    /// Returns whether a process must be killed now, and if so, draws the moment of the next kill.
    pub fn is_kill_due(&mut self, kills: u64) -> bool {
        let is_due = Instant::now() >= self.next_kill && !self.is_over(kills);
        if is_due {
            self.next_kill = Instant::now() + Duration::from_millis(5 + self.draw(60));
        }
        is_due
    }
}
