//! A pool that resizes itself: how its workers react to the [load](super::load).
//!
//! No single worker is responsible. Every worker checks the load at intervals, when it beats. A
//! worker that gets the same result several times in a row changes the wanted number, by one
//! compare-and-swap from the value that it has read. No worker changes the number until the pool
//! has the size that was wanted last. So a change of the load is answered once, by any worker, and
//! each change of the number has time to take effect. A worker that dies has changed the number or
//! not.

use super::load::{Advice, Load};
use crate::PoolError;
use crate::store::band::Elastic;
use crate::store::layout::{Hand, Layout};
use core::time::Duration;
use std::time::Instant;

/// The interval between two checks of one worker.
const LOOKS: Duration = Duration::from_millis(10);
/// The number of equal results in a row that lead to a change.
const SAME: u32 = 3;

/// The state with which one worker takes part in the resizing of its pool.
#[derive(Debug)]
pub struct Resizer {
    elastic: Option<Elastic>,
    next: Option<Instant>,
    /// Whether the last checks asked for more workers, and how many in a row did so.
    found: (bool, u32),
}

impl Resizer {
    pub fn new(layout: Layout) -> Self {
        Self {
            elastic: layout.elastic(),
            next: None,
            found: (false, 0),
        }
    }

    /// Checks the load at its interval. Makes a system call only when it changes the number.
    #[inline]
    pub fn look(&mut self, layout: Layout, hand: Hand<'_>) -> Result<(), PoolError> {
        match self.elastic {
            None => Ok(()),
            Some(elastic) => self.check_load(elastic, layout, hand),
        }
    }

    #[cold]
    fn check_load(
        &mut self,
        elastic: Elastic,
        layout: Layout,
        hand: Hand<'_>,
    ) -> Result<(), PoolError> {
        let now = Instant::now();
        if self.next.is_some_and(|next| now < next) {
            return Ok(());
        }
        self.next = Some(now + LOOKS);
        let member = hand.heap.member();
        let wanted = layout.wanted();
        let load = Load::of(layout, member.generations())?;
        let most = elastic.most.min(layout.slots.settings().capacity);
        let Some(better) = better(&load, Elastic { most, ..elastic }, wanted) else {
            self.found.1 = 0;
            return Ok(());
        };
        let more = better > wanted;
        self.found = match self.found {
            (before, times) if before == more => (more, times + 1),
            _ => (more, 1),
        };
        if self.found.1 >= SAME {
            self.found.1 = 0;
            if layout.want_instead(wanted, better) {
                tracing::debug!(wanted, better, ?load, "the pool resizes itself");
                // Spares and workers that are surplus now sleep on the barrier's wake-up futex.
                layout.barrier.interrupt(member)?;
            }
        }
        Ok(())
    }
}

/// Returns the number of workers that would be better than `wanted`.
fn better(load: &Load, elastic: Elastic, wanted: u32) -> Option<u32> {
    let own = load.own();
    if wanted < own {
        // Some workers are leaving.
        return None;
    }
    // Workers that are missing because they died are not waited for.
    let have_come = wanted <= own + load.dead;
    // Guests do not take up places of own workers.
    let room = elastic.most.saturating_sub(own);
    let better = match load.advice(elastic.band, room) {
        Advice::Grow(more) if have_come => wanted + more,
        Advice::Shrink(fewer) if have_come => wanted - fewer,
        // No more workers can come, or not yet, and those that are there are too many.
        Advice::Shrink(fewer) => own.saturating_sub(fewer),
        _ => return None,
    };
    let better = better.clamp(elastic.least.min(elastic.most), elastic.most);
    (better != wanted).then_some(better)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Band;

    #[test]
    fn nothing_is_said_before_the_last_word_shows() {
        let elastic = Elastic {
            least: 2,
            most: 8,
            band: Band {
                failed: 0.25,
                fewest: 1.0,
                most: 4.0,
            },
        };
        let load = |living, dead, ready, waiting| Load {
            living,
            guests: 0,
            dead,
            ready,
            waiting,
            is_open: true,
        };
        assert_eq!(better(&load(2, 0, 100, 0), elastic, 2), Some(4));
        // Two are still coming.
        assert_eq!(better(&load(2, 0, 100, 0), elastic, 4), None);
        assert_eq!(better(&load(3, 0, 100, 0), elastic, 4), None);
        assert_eq!(better(&load(4, 0, 100, 0), elastic, 4), Some(8));
        assert_eq!(better(&load(8, 0, 100, 0), elastic, 8), None);
        // One died, and may stay dead; or it is replaced, and then there are as many as are wanted.
        assert_eq!(better(&load(3, 1, 100, 0), elastic, 4), Some(7));
        assert_eq!(better(&load(4, 0, 1, 3), elastic, 4), Some(2));
        assert_eq!(better(&load(4, 0, 1, 1), elastic, 4), Some(3));
        // One is leaving.
        assert_eq!(better(&load(4, 0, 1, 1), elastic, 3), None);
        assert_eq!(better(&load(2, 0, 1, 1), elastic, 2), None);
        // Eight were wanted, and half of them never came.
        assert_eq!(better(&load(4, 0, 1, 1), elastic, 8), Some(3));
        assert_eq!(better(&load(4, 0, 100, 0), elastic, 8), None);
    }

    #[test]
    fn guests_keep_nobody_away_and_send_nobody_off() {
        let elastic = Elastic {
            least: 1,
            most: 4,
            band: Band {
                failed: 0.25,
                fewest: 1.0,
                most: 4.0,
            },
        };
        let load = |own, guests, ready, waiting| Load {
            living: own + guests,
            guests,
            dead: 0,
            ready,
            waiting,
            is_open: true,
        };
        assert_eq!(better(&load(2, 2, 10_000, 0), elastic, 2), Some(4));
        // All that wait may be guests. The last own worker stays in any case.
        assert_eq!(better(&load(1, 2, 0, 2), elastic, 1), None);
        assert_eq!(better(&load(3, 2, 1, 2), elastic, 3), None);
        assert_eq!(better(&load(3, 2, 1, 4), elastic, 3), Some(1));
        assert_eq!(better(&load(1, 2, 0, 3), elastic, 1), None);
    }
}
