//! The successors: new compute servers that receive the process ids of dead ones, and execute
//! transactions under them.

use super::view::{Configuration, Simulated, incarnation};
use super::{COORDINATORS, DETECTOR, End, RETRY, SUCCESSOR, World, pause};
use core::cell::RefCell;
use core::future::poll_fn;
use core::pin::Pin;
use core::task::Poll;
use outlive_store::protocol::{LogArea, Retry, Worker, release_stray};
use outlive_store::verbs::VerbError;
use std::collections::BTreeMap;
use std::rc::Rc;

impl Configuration {
    /// Marks the process id of a compute server whose logs are recovered as failed.
    pub(super) fn fail(&mut self, dead: usize) {
        self.failed.insert(self.ids[dead], incarnation(dead));
    }

    /// Assigns the lowest free process id to `compute`, if there is one.
    fn take(&mut self, compute: usize) -> bool {
        let Some(id) = self.free.pop_first() else {
            return false;
        };
        self.ids[compute] = id;
        self.owners.insert(id, compute);
        true
    }
}

impl World {
    /// Recycles the process ids that have failed, takes one of them, and executes transactions.
    pub(super) async fn successor(&self, compute: usize, seed: u64) {
        loop {
            pause().await;
            if self.is_over.get() {
                return;
            }
            // The second successor works after the death of the first one.
            let is_alone = (SUCCESSOR..compute).all(|it| self.is_known_dead(it));
            if is_alone && self.can_succeed() {
                break;
            }
        }
        self.succeeding.set(self.succeeding.get() + 1);
        let _succeeding = End(&self.succeeding);
        let failed = self.configuration.borrow().failed.clone();
        if !self.plan.skips_scan && !self.release_latches(compute, &failed).await {
            return;
        }
        // The successor may die between two of these steps.
        pause().await;
        self.free(&failed);
        pause().await;
        if !self.configuration.borrow_mut().take(compute) {
            return;
        }
        self.counts.borrow_mut().recycled += 1;
        pause().await;
        self.execute_transactions(compute, seed).await;
        self.has_succeeded.set(true);
    }

    /// Returns whether a process id can be assigned again.
    fn can_succeed(&self) -> bool {
        let configuration = self.configuration.borrow();
        !configuration.failed.is_empty() || !configuration.free.is_empty()
    }

    /// Returns whether no successor is at work or will be.
    pub(super) fn is_succeeded(&self) -> bool {
        let is_live = |it: usize| !self.network.is_dead(it);
        let is_any = (SUCCESSOR..DETECTOR).any(is_live);
        let will_begin = is_any && !self.has_succeeded.get() && self.can_succeed();
        !self.plan.recycles || (self.succeeding.get() == 0 && !will_begin)
    }

    /// Releases all latches of these process ids and incarnations. Returns whether that succeeded.
    async fn release_latches(&self, compute: usize, failed: &BTreeMap<u16, u64>) -> bool {
        loop {
            let view = Simulated {
                network: self.network.clone(),
                compute,
                plan: self.plan,
                configuration: Rc::clone(&self.configuration),
                slots: RefCell::default(),
            };
            let worker = Worker::new(view, 0, LogArea::default(), 0);
            worker.set_policy(self.plan.policy);
            let is_stray = |id: u16, incarnation| failed.get(&id) == Some(&incarnation);
            match release_stray(&worker, core::iter::once(0), is_stray).await {
                Ok(released) => {
                    self.counts.borrow_mut().released += released;
                    return true;
                }
                // The loss is not recorded yet.
                Err(VerbError::ServerDied { .. }) => pause().await,
                Err(_) if self.network.is_dead(compute) => return false,
                Err(error) => {
                    self.errors.borrow_mut().push(error.to_string());
                    return false;
                }
            }
        }
    }

    /// Makes the process ids that failed with these incarnations available again. Before that, the
    /// clients of their owners look up outcomes, because the next owners overwrite them.
    fn free(&self, failed: &BTreeMap<u16, u64>) {
        for (id, incarnation) in failed {
            let owner = {
                let configuration = self.configuration.borrow();
                let is_same = configuration.failed.get(id) == Some(incarnation);
                is_same.then(|| configuration.owners[id])
            };
            let Some(owner) = owner else {
                continue;
            };
            self.resolve(|it| it == owner);
            let configuration = &mut *self.configuration.borrow_mut();
            configuration.failed.remove(id);
            configuration.owners.remove(id);
            configuration.last.retain(|(it, _), _| it != id);
            configuration.free.insert(*id);
        }
    }

    /// Executes random transactions with all coordinators of a successor.
    async fn execute_transactions(&self, compute: usize, seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed);
        let worker = self.worker(compute, compute);
        let stall = if self.plan.stalls { 10_000 } else { 0 };
        let mut clients: Vec<Pin<Box<dyn Future<Output = ()> + '_>>> = Vec::new();
        for number in 0..COORDINATORS {
            let coordinator = worker.coordinator().expect("a free slot");
            let client = (
                Rc::clone(&worker),
                coordinator.retry(Retry { stall, ..RETRY }),
            );
            let name = format!("{compute}.{number}");
            clients.push(Box::pin(self.client(compute, client, name, random.u64(..))));
        }
        poll_fn(|context| {
            let which = random.usize(..clients.len());
            if clients[which].as_mut().poll(context).is_ready() {
                drop(clients.swap_remove(which));
            }
            match clients.is_empty() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
        self.counts.borrow_mut().stolen += worker.counts().stolen;
    }
}
