//! Pauses of a worker that fails all its tasks.
//!
//! A worker that fails tasks immediately although other workers could do them (its disk is full, a
//! device of its machine is missing) takes more tasks than the others, and ruins job after job. So
//! a worker pauses before it takes another task when its last [`LIMIT`] tasks have all failed
//! finally: a millisecond at first, twice as long after each further failure, at most
//! [`MAX_PAUSE`]. It waits where idle workers wait, and delays no other worker. A task that
//! succeeds ends the pauses.
//!
//! This state is not in the pool.

use core::time::Duration;
use std::time::Instant;

/// The number of consecutive failures after which a worker pauses.
const LIMIT: u32 = 3;
/// The first pause.
const MIN_PAUSE: Duration = Duration::from_millis(1);
/// The longest pause. It is short because tasks that fail on all workers make all of them pause,
/// and other jobs wait for that time.
const MAX_PAUSE: Duration = Duration::from_millis(100);

/// The failures of a worker's last tasks.
#[derive(Debug, Default)]
pub(crate) struct Setback {
    /// The number of failures since the last success.
    failures: u32,
    until: Option<Instant>,
}

impl Setback {
    /// Records that a task has succeeded.
    #[inline]
    pub fn succeeds(&mut self) {
        self.failures = 0;
        self.until = None;
    }

    /// Records that a task has failed finally, at `now`. Returns the time for which the worker
    /// pauses now, if it does.
    pub fn fails(&mut self, now: Instant) -> Option<Duration> {
        self.failures = self.failures.saturating_add(1);
        let beyond = self.failures.checked_sub(LIMIT)?;
        let pause = MIN_PAUSE
            .saturating_mul(1u32.checked_shl(beyond).unwrap_or(u32::MAX))
            .min(MAX_PAUSE);
        self.until = Some(now + pause);
        Some(pause)
    }

    /// Returns whether the worker pauses now.
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
        assert_eq!(setback.fails(now), Some(MAX_PAUSE));
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
        while long_ago.elapsed() < MIN_PAUSE {
            std::hint::spin_loop();
        }
        assert!(!setback.pauses());
        setback.fails(Instant::now() + MAX_PAUSE);
        assert!(setback.pauses());
    }
}
