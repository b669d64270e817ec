//! The detectors: they record deaths of compute servers and losses of memory servers in the
//! configuration. Recoverers act only on recorded deaths.

use super::view::Change;
use super::{DETECTOR, World, pause};
use outlive_store::verbs::ServerId;

impl World {
    /// Records deaths and losses, as one of the detectors. If `victim` is a compute server and N,
    /// suspects this server when N words have taken effect, and records it as dead.
    pub(super) async fn detector(&self, compute: usize, victim: Option<(usize, u64)>) {
        while self.is_running() {
            pause().await;
            // The second detector works after the death of the first one, or, with `both_detect`,
            // also at the same time.
            let is_first_alive = (DETECTOR..compute).any(|it| !self.network.is_dead(it));
            if is_first_alive && !self.both_detect.get() {
                continue;
            }
            if let Some((victim, words)) = victim
                && self.network.seen().words >= words
                && !self.is_over.get()
                && self.configuration.borrow().suspected.is_none()
            {
                self.configuration.borrow_mut().suspected = Some(victim);
                self.end_step(compute).await;
            }
            for dead in { 0..DETECTOR }.filter(|it| self.is_out(*it) && !self.is_known_dead(*it)) {
                self.yield_before_record().await;
                let is_new = self.configuration.borrow_mut().dead.insert(dead);
                match is_new {
                    true => self.end_step(compute).await,
                    false => self.counts.borrow_mut().detected_late += 1,
                }
            }
            while let Some(server) = self.new_loss() {
                self.yield_before_record().await;
                match self.note_loss(server) {
                    true => self.end_step(compute).await,
                    false => self.counts.borrow_mut().detected_late += 1,
                }
            }
            if self.plan.forgets_dead {
                let configuration = &mut *self.configuration.borrow_mut();
                let owners = &configuration.owners;
                let is_live =
                    |id: u16| !owners.get(&id).is_some_and(|it| self.network.is_dead(*it));
                { &mut configuration.commits }.retain(|(process, _), _| is_live(*process));
            }
        }
    }

    /// Ends a step of a detector, which may die after it.
    async fn end_step(&self, compute: usize) {
        if compute > DETECTOR {
            self.counts.borrow_mut().detected_again += 1;
        } else if let Some(left) = self.detector_steps.get() {
            self.detector_steps.set(left.checked_sub(1));
            if left == 0 {
                self.network.crash(compute);
                self.counts.borrow_mut().detectors_died_between += 1;
            }
        }
        pause().await;
    }

    /// Yields between the detection of a failure and its record. If both detectors work, the other
    /// one may record the failure first.
    async fn yield_before_record(&self) {
        if self.both_detect.get() {
            pause().await;
        }
    }

    /// Returns a memory server whose loss is not recorded, if there is one.
    fn new_loss(&self) -> Option<ServerId> {
        let configuration = self.configuration.borrow();
        let lost = configuration.lost_now();
        let is_new = |it: &ServerId| self.network.has_crashed(*it) && !lost.contains(it);
        configuration.servers.iter().copied().find(is_new)
    }

    /// Records the loss of a memory server, once: as the store does by a CAS to the end of the
    /// list. Returns `false` if it was recorded before.
    fn note_loss(&self, server: ServerId) -> bool {
        let configuration = &mut *self.configuration.borrow_mut();
        if configuration.lost_now().contains(&server) {
            return false;
        }
        configuration.changes.push(Change::Lost(server));
        self.counts.borrow_mut().lost += 1;
        true
    }

    /// Records all losses of memory servers.
    pub(super) fn note_losses(&self) {
        while let Some(server) = self.new_loss() {
            self.note_loss(server);
        }
    }

    /// Returns whether the death of a compute server is recorded.
    pub(super) fn is_known_dead(&self, compute: usize) -> bool {
        self.configuration.borrow().dead.contains(&compute)
    }
}
