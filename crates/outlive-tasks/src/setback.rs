//! A worker whose tasks all fail takes a step back.
//!
//! A worker that fails at once what others could do (its disk is full, a device of its machine is gone) takes more tasks
//! than those who work at them, and ruins job after job. So a worker whose last [`LIMIT`] tasks have failed for good, one
//! after the other, pauses before it takes another one: a millisecond at first, twice as long after each further failure, at
//! most [`LONGEST`]. It waits where those wait who find nothing to do, and holds nobody up. A task that succeeds ends it.
//!
//! Nothing of it stands in the pool.

use core::time::Duration;
use std::time::Instant;

/// So many failures in a row are no accident.
const LIMIT: u32 = 3;
/// The first pause.
const FIRST: Duration = Duration::from_millis(1);
/// The longest pause. It is short because failing tasks make all workers pause, and good jobs wait meanwhile.
const LONGEST: Duration = Duration::from_millis(100);

/// How a worker's last tasks went.
#[derive(Debug, Default)]
pub(crate) struct Setback {
    /// How many have failed since one succeeded.
    failures: u32,
    until: Option<Instant>,
}

impl Setback {
    /// A task has succeeded.
    #[inline]
    pub fn succeeds(&mut self) {
        self.failures = 0;
        self.until = None;
    }

    /// A task has failed for good, at `now`. Returns for how long the worker pauses now.
    pub fn fails(&mut self, now: Instant) -> Option<Duration> {
        self.failures = self.failures.saturating_add(1);
        let beyond = self.failures.checked_sub(LIMIT)?;
        let pause = FIRST
            .saturating_mul(1u32.checked_shl(beyond).unwrap_or(u32::MAX))
            .min(LONGEST);
        self.until = Some(now + pause);
        Some(pause)
    }

    /// Whether the worker takes no task now.
    #[inline]
    pub fn pauses(&mut self) -> bool {
        match self.until {
            None => false,
            Some(until) => {
                let pauses = Instant::now() < until;
                if !pauses {
                    self.until = None;
                }
                pauses
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_from_the_third_failure_in_a_row_up_to_the_longest() {
        let (mut setback, now) = (Setback::default(), Instant::now());
        let millis: Vec<Option<u128>> = (0..16)
            .map(|_| setback.fails(now).map(|pause| pause.as_millis()))
            .collect();
        let expected = [
            0, 0, 1, 2, 4, 8, 16, 32, 64, 100, 100, 100, 100, 100, 100, 100,
        ];
        let expected = expected.map(|millis| (millis > 0).then_some(millis));
        assert_eq!(millis, expected);
        setback.succeeds();
        assert_eq!(setback.fails(now), None);
        for _ in 0..100 {
            setback.fails(now);
        }
        assert_eq!(setback.fails(now), Some(LONGEST));
        setback.succeeds();
        assert!(!setback.pauses());
    }

    #[test]
    fn a_pause_ends() {
        let (mut setback, long_ago) = (Setback::default(), Instant::now());
        assert!(!setback.pauses());
        for _ in 0..LIMIT {
            setback.fails(long_ago);
        }
        while long_ago.elapsed() < FIRST {
            std::hint::spin_loop();
        }
        assert!(!setback.pauses());
        setback.fails(Instant::now() + LONGEST);
        assert!(setback.pauses());
    }
}
