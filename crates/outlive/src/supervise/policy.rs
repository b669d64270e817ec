//! The limits and delays of restarts after failures.

use core::time::Duration;
use std::collections::VecDeque;

/// The number and delay of the restarts of one supervised thread or process after failures.
///
/// The first restart is immediate: most failures come alone, and the state of the dead member is
/// waiting. If restarts follow one another within [`window`](Self::window), the second waits for
/// [`backoff`](Self::backoff) and each further one twice as long as the one before, up to
/// [`longest`](Self::longest). When a failure would need more than [`most`](Self::most) restarts
/// within a window, the supervisor gives up on this thread or process, reports it, and continues
/// with the others.
///
/// The waits are not random: one supervisor restarts its threads or processes one after the other,
/// so there is no herd to scatter, and a run is repeatable.
///
/// ```
/// use outlive::supervise::{RestartPolicy, Restarts, Verdict};
/// use std::time::Duration;
///
/// let policy = RestartPolicy { most: 2, ..RestartPolicy::default() };
/// let mut restarts = Restarts::new(policy);
/// let second = Duration::from_secs(1);
/// assert_eq!(restarts.failed(second), Verdict::RestartAt(second));
/// assert_eq!(restarts.failed(2 * second), Verdict::RestartAt(2 * second + policy.backoff));
/// assert_eq!(restarts.failed(3 * second), Verdict::GiveUp { restarts: 2 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartPolicy {
    /// The maximum number of restarts within a window.
    pub most: u32,
    /// The time for which a restart counts.
    pub window: Duration,
    /// The delay of the second restart within a window.
    pub backoff: Duration,
    /// The longest delay of a restart.
    pub longest: Duration,
}

impl Default for RestartPolicy {
    /// Returns the policy of five restarts a minute, after delays of 0, 100, 200, 400 and 800 ms.
    fn default() -> Self {
        Self {
            most: 5,
            window: Duration::from_secs(60),
            backoff: Duration::from_millis(100),
            longest: Duration::from_secs(10),
        }
    }
}

impl RestartPolicy {
    /// The policy that reports failures and never restarts.
    pub const NEVER: Self = Self {
        most: 0,
        window: Duration::ZERO,
        backoff: Duration::ZERO,
        longest: Duration::ZERO,
    };

    /// Returns the wait of a restart that follows `before` others of its window.
    fn wait(&self, before: usize) -> Duration {
        let Some(doublings) = before.checked_sub(1) else {
            return Duration::ZERO;
        };
        let factor = u32::try_from(doublings)
            .ok()
            .and_then(|doublings| 1u32.checked_shl(doublings));
        factor
            .and_then(|factor| self.backoff.checked_mul(factor))
            .map_or(self.longest, |wait| wait.min(self.longest))
    }
}

/// The consequence of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The thread or process is restarted at this time, on the clock of the caller's `now`.
    RestartAt(Duration),
    /// The thread or process has been restarted as often as the policy allows.
    GiveUp {
        /// The number of its restarts that count now.
        restarts: u32,
    },
}

/// The restarts of one supervised thread or process that still count.
///
/// Pure logic: the time is passed in, by any clock that does not go back.
#[derive(Clone, Debug)]
pub struct Restarts {
    policy: RestartPolicy,
    /// The times at which the restarts were due, at most `policy.most` of them, in order.
    counted: VecDeque<Duration>,
}

impl Restarts {
    /// Returns the state without restarts.
    pub fn new(policy: RestartPolicy) -> Self {
        Self {
            policy,
            counted: VecDeque::new(),
        }
    }

    /// Judges a failure at time `now`.
    ///
    /// A restart counts for one window from its due time, so no half-open window contains more
    /// restarts than the policy allows.
    pub fn failed(&mut self, now: Duration) -> Verdict {
        while let Some(oldest) = self.counted.front()
            && oldest.saturating_add(self.policy.window) <= now
        {
            self.counted.pop_front();
        }
        let before = self.counted.len();
        if before >= self.policy.most as usize {
            return Verdict::GiveUp {
                restarts: before as u32,
            };
        }
        let mut due = now.saturating_add(self.policy.wait(before));
        if let Some(last) = self.counted.back() {
            // It can fail before it was due only if another process started it.
            due = due.max(*last);
        }
        self.counted.push_back(due);
        Verdict::RestartAt(due)
    }

    /// Forgets all restarts, after an intervention from outside.
    pub fn forget(&mut self) {
        self.counted.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn policies() -> impl Strategy<Value = RestartPolicy> {
        (0u32..6, 0u64..50, 0u64..10, 0u64..40).prop_map(|(most, window, backoff, longest)| {
            RestartPolicy {
                most,
                window: Duration::from_millis(window),
                backoff: Duration::from_millis(backoff),
                longest: Duration::from_millis(longest),
            }
        })
    }

    /// Simulates a process that fails each given time after a start. Returns its restart times.
    fn play(policy: RestartPolicy, lives: &[u64]) -> (Vec<(Duration, Duration)>, bool) {
        let (mut restarts, mut now) = (Restarts::new(policy), Duration::ZERO);
        let mut granted = Vec::new();
        for life in lives {
            let failed = now + Duration::from_millis(*life);
            match restarts.failed(failed) {
                Verdict::RestartAt(due) => {
                    granted.push((failed, due));
                    now = due;
                }
                Verdict::GiveUp { .. } => return (granted, true),
            }
        }
        (granted, false)
    }

    proptest! {
        #[test]
        fn no_window_holds_more_restarts_than_the_most(
            policy in policies(), lives in prop::collection::vec(0u64..40, 0..40)
        ) {
            let (granted, _) = play(policy, &lives);
            for many in granted.windows(policy.most as usize + 1) {
                let (first, last) = (many[0].1, many[policy.most as usize].1);
                prop_assert!(last - first >= policy.window, "{first:?} to {last:?}");
            }
        }

        #[test]
        fn it_gives_up_only_when_the_window_is_full(
            policy in policies(), lives in prop::collection::vec(0u64..40, 1..40)
        ) {
            let (granted, gave_up) = play(policy, &lives);
            if gave_up {
                let failed = granted.last().map_or(Duration::ZERO, |last| last.1)
                    + Duration::from_millis(lives[granted.len()]);
                let counted = granted
                    .iter()
                    .filter(|(_, due)| *due + policy.window > failed)
                    .count();
                prop_assert_eq!(counted, policy.most as usize);
            } else {
                prop_assert_eq!(granted.len(), lives.len());
            }
        }

        #[test]
        fn waits_double_within_a_window_and_start_anew_after_it(
            policy in policies(), lives in prop::collection::vec(0u64..40, 0..40)
        ) {
            let (granted, _) = play(policy, &lives);
            for (i, (failed, due)) in granted.iter().enumerate() {
                let before = granted[..i]
                    .iter()
                    .filter(|(_, due)| *due + policy.window > *failed)
                    .count();
                let expected = match before {
                    0 => Duration::ZERO,
                    n => (policy.backoff * 2u32.pow(n as u32 - 1)).min(policy.longest),
                };
                prop_assert_eq!(*due - *failed, expected);
            }
        }

        #[test]
        fn no_number_overflows(most: u32, times in prop::collection::vec(any::<u64>(), 0..80)) {
            let mut restarts = Restarts::new(RestartPolicy {
                most,
                window: Duration::MAX,
                backoff: Duration::MAX,
                longest: Duration::MAX,
            });
            let mut times = times;
            times.sort_unstable();
            for time in times {
                restarts.failed(Duration::from_nanos(time));
            }
        }
    }

    #[test]
    fn the_defaults_are_what_they_say() {
        let (granted, gave_up) = play(RestartPolicy::default(), &[1; 6]);
        let waits: Vec<_> = granted
            .iter()
            .map(|(failed, due)| (*due - *failed).as_millis())
            .collect();
        assert_eq!((waits, gave_up), (vec![0, 100, 200, 400, 800], true));
        let (granted, gave_up) = play(RestartPolicy::NEVER, &[1]);
        assert!(granted.is_empty() && gave_up);
    }
}
