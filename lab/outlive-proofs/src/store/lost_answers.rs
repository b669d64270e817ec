//! Lost answers of verbs, deaths of servers and revocations of rights, on the simulated network.
//! The poster determines the effect of each verb by the rules of [`verbs`](outlive_store::verbs),
//! and the memory agrees.
//!
//! Clients latch a counter, add to it and release the latch, while their connections break. If
//! clients and servers obey the rules, each addition that a client counts has been made once.
//! Broken clients repeat verbs without checking their effect.

use super::network::{Fault, Network, Seen, Task, Wire};
use outlive_store::verbs::{Batch, Connection, POISON, RemoteOffset, ServerId, VerbError};
use std::cell::Cell;

/// How a client treats a verb of unknown outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// Determines the outcome by the rules.
    Careful,
    /// Broken: takes a CAS without an answer for one that failed, and posts it again.
    RepeatsLatching,
    /// Broken: posts the WRITE that releases the latch again.
    RepeatsReleasing,
    /// Obeys the rules, on a broken network: its servers execute duplicated packets.
    OnBrokenServers,
}

/// The result of a run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The freedoms that the network used.
    pub seen: Seen,
    /// The number of additions that the clients counted.
    pub counted: u64,
}

const SERVER: ServerId = ServerId(0);
const LATCH: RemoteOffset = RemoteOffset::new(0);
const COUNTER: RemoteOffset = RemoteOffset::new(8);
const CLIENTS: usize = 3;
const ROUNDS: u64 = 4;
const STEPS: u64 = 200_000;

/// Runs clients of a kind with the seed `seed` while their connections break.
///
/// # Errors
/// If the counter disagrees with the clients, or one of them waits forever.
pub fn run(client: Client, seed: u64) -> Result<Run, String> {
    let mut network = Network::new(seed, 1, 8);
    if client == Client::OnBrokenServers {
        network = network.with_duplicates_taken();
    }
    let mut random = fastrand::Rng::with_seed(!seed);
    for _ in 0..random.usize(..6) {
        let fault = Fault::Break(random.usize(..CLIENTS), SERVER);
        network.plan(random.u64(..200), fault);
    }
    let counted = Cell::new(0);
    let tasks = (0..CLIENTS).map(|id| -> Task<'_> {
        let teller = Teller {
            network: network.clone(),
            wire: network.connect(id, SERVER),
            client,
            id: id as u64,
        };
        (id, Box::pin(teller.count(&counted)))
    });
    let tasks = tasks.collect();
    let stuck = |_| "a client waits forever for the latch".to_owned();
    network.run(tasks, STEPS).map_err(stuck)?;
    let (counter, latch) = (network.peek(SERVER, 1), network.peek(SERVER, 0));
    if counter != counted.get() {
        return Err(format!(
            "the counter is {counter}, and the clients counted {}",
            counted.get()
        ));
    }
    if latch != 0 {
        return Err(format!("the latch is left at {latch:#x}"));
    }
    Ok(Run {
        seen: network.seen(),
        counted: counter,
    })
}

struct Teller {
    network: Network,
    wire: Wire,
    client: Client,
    id: u64,
}

impl Teller {
    async fn count(mut self, counted: &Cell<u64>) {
        for round in 0..ROUNDS {
            // No two CAS write the same value.
            let word = (self.id + 1) << 32 | (round + 1) << 16;
            let value = self.latch(word).await;
            self.write(COUNTER, value + 1).await;
            counted.set(counted.get() + 1);
            self.release(word).await;
        }
    }

    /// Posts a batch to which `fill` appends the verbs. Returns `Err` if the outcome is unknown;
    /// the client is then connected again.
    async fn post<T>(&mut self, fill: impl Fn(&mut Batch) -> T) -> Result<(Batch, T), ()> {
        let mut batch = Batch::new();
        let slots = fill(&mut batch);
        match self.wire.post(batch).await.finished() {
            Ok(batch) => Ok((batch, slots)),
            Err(VerbError::Broken { .. }) => {
                self.wire = self.network.reconnect(&self.wire).await;
                Err(())
            }
            Err(error) => panic!("{error}"),
        }
    }

    async fn read(&mut self, at: RemoteOffset) -> u64 {
        loop {
            if let Ok((batch, slot)) = self.post(|batch| batch.read(at, 1)).await {
                return batch.value(slot);
            }
        }
    }

    async fn write(&mut self, at: RemoteOffset, value: u64) {
        // The client holds the latch, so the WRITE may be posted again.
        while self.post(|batch| batch.write(at, &[value])).await.is_err() {}
    }

    /// Takes the latch, and returns the counter.
    async fn latch(&mut self, word: u64) -> u64 {
        for attempt in 0.. {
            let word = word | attempt;
            let posted =
                self.post(|batch| (batch.compare_swap(LATCH, 0, word), batch.read(COUNTER, 1)));
            match posted.await {
                Ok((batch, (latch, counter))) if batch.value(latch) == 0 => {
                    self.note(word);
                    return batch.value(counter);
                }
                Ok(_) => {}
                Err(()) if self.client == Client::RepeatsLatching => {}
                Err(()) => {
                    if self.read(LATCH).await == word {
                        self.note(word);
                        return self.read(COUNTER).await;
                    }
                }
            }
        }
        unreachable!("attempts do not end")
    }

    /// Keeps the number of the successful attempt, a part of the latch word, in the id.
    fn note(&mut self, word: u64) {
        self.id = self.id & 0xFFFF | (word & 0xFFFF) << 16;
    }

    async fn release(&mut self, word: u64) {
        let word = word | self.id >> 16;
        self.id &= 0xFFFF;
        let release = |batch: &mut Batch| batch.write(LATCH, &[0]);
        let mut first = self.post(release).await;
        while first.is_err() {
            if self.client == Client::RepeatsReleasing {
                first = self.post(release).await;
                continue;
            }
            // Another client may hold the latch by now.
            let swap = |batch: &mut Batch| {
                batch.compare_swap(LATCH, word, 0);
            };
            first = self.post(swap).await;
        }
    }
}

/// Runs clients of two memory servers, one of which dies. Returns the number of batches that
/// completed with the error of its death.
///
/// # Errors
/// If poison is returned as a value, a client waits for the dead server, or the other server loses
/// an addition.
pub fn memory_crash(seed: u64) -> Result<u64, String> {
    let network = Network::new(seed, 2, 64);
    network.plan(
        fastrand::Rng::with_seed(seed).u64(..600),
        Fault::MemoryCrash(SERVER),
    );
    let (deaths, poisoned) = (Cell::new(0), Cell::new(false));
    let tasks = (0..CLIENTS).map(|id| -> Task<'_> {
        let wires = [0, 1].map(|server| network.connect(id, ServerId(server)));
        let (deaths, poisoned) = (&deaths, &poisoned);
        let task = async move {
            for _ in 0..20 {
                for wire in &wires {
                    let mut batch = Batch::new();
                    let slot = batch.read(RemoteOffset::new(0), 8);
                    batch.fetch_add(RemoteOffset::new(64), 1);
                    match wire.post(batch).await.finished() {
                        Ok(batch) if batch.words(slot).contains(&POISON) => poisoned.set(true),
                        Ok(_) => {}
                        Err(VerbError::ServerDied { server }) if server == SERVER => {
                            deaths.set(deaths.get() + 1);
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        };
        (id, Box::pin(task))
    });
    let stuck = |_| "a client waits for a dead server".to_owned();
    network.run(tasks.collect(), STEPS).map_err(stuck)?;
    if poisoned.get() {
        return Err("the memory of a dead server was read".into());
    }
    let survivor = network.peek(ServerId(1), 8);
    match survivor {
        60 => Ok(deaths.get()),
        other => Err(format!("the other server counted {other} of 60")),
    }
}

/// Revokes the rights of a compute server with verbs under way, and then reads the words to which
/// it adds, six times. Returns the number of its verbs that were dropped.
///
/// # Errors
/// If one of its verbs takes effect after the revocation, or the revocation is not reported to it.
///
/// # Panics
/// If a batch of that server completes with another error.
pub fn revocation(seed: u64) -> Result<u64, String> {
    let network = Network::new(seed, 2, 64);
    let late = Cell::new(None);
    let victim = {
        let wires = [0, 1].map(|server| network.connect(0, ServerId(server)));
        async move {
            for turn in 0.. {
                let mut batch = Batch::new();
                for _ in 0..3 {
                    batch.fetch_add(COUNTER, 1);
                }
                match wires[turn % 2].post(batch).await.result {
                    Ok(()) => {}
                    Err(VerbError::Revoked { .. }) => return,
                    Err(error) => panic!("{error}"),
                }
            }
        }
    };
    let manager = {
        let (network, late) = (network.clone(), &late);
        let wires = [0, 1].map(|server| network.connect(1, ServerId(server)));
        let delay = fastrand::Rng::with_seed(seed).usize(..12);
        async move {
            let read = async || {
                let mut sum = 0;
                for wire in &wires {
                    let mut batch = Batch::new();
                    let slot = batch.read(COUNTER, 1);
                    let batch = wire.post(batch).await.finished().expect("no failure");
                    sum += batch.value(slot);
                }
                sum
            };
            for _ in 0..delay {
                read().await;
            }
            network.revoke(0).await;
            let before = read().await;
            for _ in 0..5 {
                let after = read().await;
                if after != before {
                    late.set(Some((before, after)));
                }
            }
        }
    };
    let tasks: Vec<Task<'_>> = vec![(0, Box::pin(victim)), (1, Box::pin(manager))];
    let stuck = |_| "the revocation was not reported to the revoked server".to_owned();
    network.run(tasks, STEPS).map_err(stuck)?;
    match late.get() {
        None => Ok(network.seen().dropped),
        Some((before, after)) => Err(format!(
            "{} verbs took effect after the revocation",
            after - before
        )),
    }
}

/// Runs clients of which one crashes with verbs under way. Another server then revokes its rights,
/// and frees its latch by a CAS from the word that it read. Returns whether the latch was held.
///
/// # Errors
/// If the counter disagrees with the clients, or the other clients wait forever.
pub fn compute_crash(seed: u64) -> Result<bool, String> {
    let network = Network::new(seed, 1, 8);
    network.plan(
        fastrand::Rng::with_seed(seed).u64(..60),
        Fault::ComputeCrash(0),
    );
    let (counted, was_held) = (Cell::new(0), Cell::new(false));
    let mut tasks: Vec<Task<'_>> = Vec::new();
    for id in 0..CLIENTS {
        let teller = Teller {
            network: network.clone(),
            wire: network.connect(id, SERVER),
            client: Client::Careful,
            id: id as u64,
        };
        tasks.push((id, Box::pin(teller.count(&counted))));
    }
    let recovery = {
        let (network, was_held) = (network.clone(), &was_held);
        let wire = network.connect(CLIENTS, SERVER);
        async move {
            core::future::poll_fn(|_| match network.is_dead(0) {
                true => core::task::Poll::Ready(()),
                false => core::task::Poll::Pending,
            })
            .await;
            network.revoke(0).await;
            let mut batch = Batch::new();
            let slot = batch.read(LATCH, 1);
            let batch = wire.post(batch).await.finished().expect("no failure");
            let word = batch.value(slot);
            // The upper half of client 0's latch words is 1.
            if word >> 32 == 1 {
                let mut batch = Batch::new();
                let slot = batch.compare_swap(LATCH, word, 0);
                let batch = wire.post(batch).await.finished().expect("no failure");
                was_held.set(batch.value(slot) == word);
            }
        }
    };
    tasks.push((CLIENTS, Box::pin(recovery)));
    let stuck = |_| "a survivor waits forever for the latch of the dead client".to_owned();
    network.run(tasks, STEPS).map_err(stuck)?;
    let counter = network.peek(SERVER, 1);
    // The last addition of the dead client may have been made without being counted.
    match counter.checked_sub(counted.get()) {
        Some(0 | 1) => Ok(was_held.get()),
        _ => Err(format!(
            "the counter is {counter}, and the clients counted {}",
            counted.get()
        )),
    }
}
