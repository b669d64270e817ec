//! The restorers of lost replicas, and the loss of a second memory server after them.

use super::super::network::Fault;
use super::view::{Change, base};
use super::{End, RESTORER, World, pause};
use outlive_store::protocol::copy_partition;
use outlive_store::tables::{Place, choose};
use outlive_store::verbs::ServerId;

impl World {
    /// Restores lost replicas. Another memory server is lost `delay` words after the end of the
    /// first restoration, or, if that leaves a replica, soon after its beginning: one that has
    /// primaries, or the one that receives the copies.
    pub(super) async fn restorer(&self, compute: usize, delay: u64) {
        while !self.is_over.get() {
            pause().await;
            // The second restorer works after the death of the first one.
            if (RESTORER..compute).any(|it| !self.is_known_dead(it)) {
                continue;
            }
            if self.is_over.get() {
                return;
            }
            self.restoring.set(self.restoring.get() + 1);
            let _restoring = End(&self.restoring);
            let steps = self.configuration.borrow().steps_now();
            if steps.is_multiple_of(2) {
                if !self.reserve(steps + 1) {
                    continue;
                }
                // The restorer may die between the two.
                pause().await;
                self.configuration.borrow_mut().changes.push(Change::Step);
                if steps == 0 && self.plan.replicas > 2 {
                    // A primary, or the server that receives the copies.
                    let step = if delay.is_multiple_of(2) {
                        0
                    } else {
                        steps + 1
                    };
                    self.lose_after(step, delay / 8);
                }
            }
            let step = steps | 1;
            let worker = self.worker(compute, compute);
            let mut coordinator = worker.coordinator().expect("a free slot");
            let places = self.configuration.borrow().places.clone();
            let is_new = |places: &[Place]| places.iter().any(|it| it.step == step);
            for (partition, _) in (0..).zip(&places).filter(|(_, it)| is_new(it)) {
                match copy_partition(&mut coordinator, 0, partition).await {
                    Ok(copied) => self.counts.borrow_mut().copied += copied.objects,
                    Err(_) if self.network.is_dead(compute) => return,
                    Err(error) => {
                        self.errors.borrow_mut().push(error.to_string());
                        return;
                    }
                }
            }
            if let Err(error) = worker.finish().await {
                if !self.network.is_dead(compute) {
                    self.errors.borrow_mut().push(error.to_string());
                }
                return;
            }
            self.configuration.borrow_mut().changes.push(Change::Step);
            let mut counts = self.counts.borrow_mut();
            counts.restored += 1;
            counts.restored_again += u64::from(compute > RESTORER);
            if step == 1 && self.plan.replicas == 2 {
                self.lose_after(0, delay);
            }
        }
    }

    /// Plans the loss of a server with replicas that are there since `step`.
    fn lose_after(&self, step: u8, delay: u64) {
        if let Some(server) = self.server_since(step) {
            let words = self.network.seen().words;
            self.network.plan(words + delay, Fault::MemoryCrash(server));
        }
    }

    /// Reserves places for lost replicas. Returns whether there are any.
    fn reserve(&self, step: u8) -> bool {
        let configuration = &mut *self.configuration.borrow_mut();
        let lost = configuration.lost_now();
        let (mut is_any, servers) = (false, configuration.servers.clone());
        for (partition, places) in (0..).zip(&mut configuration.places) {
            let used: Vec<ServerId> = places.iter().map(|it| it.server).collect();
            for place in places.iter_mut() {
                let is_spare = |it: &ServerId| !lost.contains(it) && !used.contains(it);
                let spare: Vec<ServerId> = servers.iter().copied().filter(is_spare).collect();
                if lost.contains(&place.server)
                    && let [server] = choose(partition.into(), &spare, 1)[..]
                {
                    *place = Place {
                        server,
                        base: base(&self.plan, partition),
                        step,
                    };
                }
                is_any |= place.step == step;
            }
        }
        is_any
    }

    /// Returns a live server with replicas that are there since `step`.
    fn server_since(&self, step: u8) -> Option<ServerId> {
        let configuration = self.configuration.borrow();
        let lost = configuration.lost_now();
        let mut places = configuration.places.iter().flatten();
        let found = places.find(|it| it.step == step && !lost.contains(&it.server));
        found.map(|it| it.server)
    }

    /// Returns whether the replicas of the first lost server are restored, and a second one is
    /// lost. Ends the life of that one, if its death was planned for later.
    pub(super) fn is_restored(&self) -> bool {
        let configuration = self.configuration.borrow();
        let lost = configuration.lost_now();
        let is_unknown = |it: &ServerId| self.network.has_crashed(*it) && !lost.contains(it);
        if configuration.servers.iter().any(is_unknown) {
            return false;
        }
        let mut places = configuration.places.iter().flatten();
        let is_unaffected = places.all(|it| it.step == 0 && !lost.contains(&it.server));
        match lost.len() {
            _ if is_unaffected => true,
            1 if configuration.steps_now() < 2 => false,
            1 => {
                self.network.hasten();
                false
            }
            _ => configuration.steps_now().is_multiple_of(2),
        }
    }
}
