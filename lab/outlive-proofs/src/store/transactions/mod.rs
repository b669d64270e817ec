//! Transactions on the simulated network: compute servers execute random transactions, and some of
//! them die. Recoverers recover their logs, and detectors record deaths and losses; both may die as
//! well. A memory server may be lost, and restorers may restore its replicas and die, before a
//! second one is lost. Connections may break. The process ids of dead compute servers may be
//! assigned to new ones. The history is checked for strict serializability, and the memory for
//! consistency.

mod aftermath;
mod chains;
mod deaths;
mod detectors;
mod history;
mod plan;
mod recoverers;
mod restorers;
mod successors;
mod view;

pub use deaths::{Step, Steps, Victim};
pub use history::{Access, History, Outcome, Record};
pub use plan::{Counts, Plan};

use super::network::{Fault, Network, Task};
use core::cell::{Cell, RefCell};
use outlive_store::protocol::{
    Abort, Coordinator, LastCommit, Outcome as Resolved, Protocol, Retry, Slot, Table, Transaction,
    TransactionError, Worker,
};
use outlive_store::tables::{TransactionId, choose};
use outlive_store::verbs::{ServerId, Verb};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;
use view::{Configuration, Simulated, attempt_before, incarnation, log_of, owners, places, words};

/// The number of compute servers that execute transactions. The two that follow recover.
const CLIENTS: usize = 3;
const RECOVERERS: usize = 2;
/// The two that follow these restore lost replicas.
const RESTORER: usize = CLIENTS + RECOVERERS;
const RESTORERS: usize = 2;
/// The two that follow these receive the process ids of dead ones.
const SUCCESSOR: usize = RESTORER + RESTORERS;
const SUCCESSORS: usize = 2;
/// The two that follow these detect the deaths of the others, and the losses of memory servers.
const DETECTOR: usize = SUCCESSOR + SUCCESSORS;
const DETECTORS: usize = 2;
/// The observer reads all keys at the end.
const OBSERVER: usize = DETECTOR + DETECTORS;
const COORDINATORS: u16 = 2;
/// Short pauses, so that readers meet the states of a recovery.
const RETRY: Retry = Retry {
    attempts: 100_000,
    pause: 16,
    stall: 0,
    deadline: None,
};
const STEPS: u64 = 3_000_000;

/// The kind of an access.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Read,
    Write,
    Insert,
    Delete,
}

/// A run.
struct World {
    network: Network,
    plan: Plan,
    configuration: Rc<RefCell<Configuration>>,
    history: History,
    next_value: Cell<u64>,
    /// Errors that no sound run has.
    errors: RefCell<Vec<String>>,
    counts: RefCell<Counts>,
    is_over: Cell<bool>,
    /// The number of restorers that are copying.
    restoring: Cell<usize>,
    /// The number of successors that are at work, and whether one has executed its transactions.
    succeeding: Cell<usize>,
    has_succeeded: Cell<bool>,
    /// The number of steps that the first detector survives; it dies after the next one. `None` if
    /// it does not die after a step.
    detector_steps: Cell<Option<u64>>,
    /// Whether the second detector works while the first one lives: one of them is stale.
    both_detect: Cell<bool>,
}

/// A value consists of two equal words.
const TABLE: Table<[u64; 2]> = Table::new(0);

/// The value in messages if the words of a value differ.
const TORN: u64 = u64::MAX;

fn whole(value: Option<[u64; 2]>) -> Option<u64> {
    value.map(|[one, other]| if one == other { one } else { TORN })
}

impl World {
    /// Returns a worker of `compute` that works in the place of `of`.
    fn worker(&self, compute: usize, of: usize) -> Rc<Worker<Simulated>> {
        let view = Simulated {
            network: self.network.clone(),
            compute,
            plan: self.plan,
            configuration: Rc::clone(&self.configuration),
            slots: RefCell::new(
                (0..COORDINATORS)
                    .map(|it| Slot::new(it, attempt_before(compute)))
                    .collect(),
            ),
        };
        let (id, log) = {
            let configuration = self.configuration.borrow();
            (configuration.ids[of], configuration.logs[of].clone())
        };
        let worker = Worker::new(view, id, log_of(self.plan.protocol, of, log), 4);
        worker.set_policy(self.plan.policy);
        worker
    }

    fn kind(&self, random: &mut fastrand::Rng) -> Kind {
        match random.u8(..100) < self.plan.reads {
            true => Kind::Read,
            false => *random
                .choice(&[Kind::Write, Kind::Insert, Kind::Delete])
                .expect("a kind"),
        }
    }

    fn value(&self) -> u64 {
        self.next_value.set(self.next_value.get() + 1);
        self.next_value.get()
    }

    /// Executes random transactions.
    async fn client(
        &self,
        compute: usize,
        (worker, mut coordinator): (Rc<Worker<Simulated>>, Coordinator<Simulated>),
        name: String,
        seed: u64,
    ) {
        let mut random = fastrand::Rng::with_seed(seed);
        for number in 0..self.plan.transactions {
            if self.plan.snapshots > 0 && random.u8(..100) < self.plan.snapshots {
                let record = self.history.begin(format!("{name}.{number}"), compute);
                let is_complete = self.snapshot(&mut coordinator, record).await;
                if !is_complete && self.is_out(compute) {
                    return;
                }
                continue;
            }
            let accesses: Vec<(Kind, u64, u64)> = (0..random.usize(1..=self.plan.accesses))
                .map(|_| {
                    (
                        self.kind(&mut random),
                        random.u64(..self.plan.keys),
                        self.value(),
                    )
                })
                .collect();
            let is_aborted = random.u8(..20) == 0;
            let record = self.history.begin(format!("{name}.{number}"), compute);
            let done = coordinator.transaction(async |tx| {
                self.history.restart(record, Some(tx.id()));
                let is_recovering = !self.configuration.borrow().recovering.is_empty();
                if self.plan.protocol == Protocol::Ford && is_recovering {
                    let error = "an attempt began during a recovery".into();
                    self.errors.borrow_mut().push(error);
                }
                for (kind, key, value) in &accesses {
                    let access = execute(tx, *kind, *key, *value).await?;
                    if let Access::Read(_, Some(TORN)) | Access::Delete(_, Some(TORN)) = access {
                        self.errors.borrow_mut().push("a value was torn".into());
                    }
                    self.history.add(record, access);
                }
                if is_aborted {
                    return Err(tx.abort());
                }
                self.history.complete(record);
                Ok(())
            });
            let outcome = match done.await {
                Ok(_) => Outcome::Committed,
                Err(
                    TransactionError::Unknown { .. } | TransactionError::Aborted(Abort::Verb(_)),
                ) if self.is_out(compute) => Outcome::Unknown,
                Err(TransactionError::Aborted(Abort::User)) => Outcome::Aborted,
                // A fenced server cannot release the latches of an attempt that its user aborted.
                Err(TransactionError::Unresolved) if self.is_out(compute) => Outcome::Aborted,
                Err(error) => {
                    self.errors.borrow_mut().push(error.to_string());
                    Outcome::Aborted
                }
            };
            if outcome == Outcome::Unknown {
                let is_live = !self.network.is_dead(compute);
                self.counts.borrow_mut().fenced += u64::from(is_live);
                return;
            }
            self.history.end(record, outcome);
        }
        if self.plan.drops_workers {
            return;
        }
        if let Err(error) = worker.finish().await
            && !self.is_out(compute)
        {
            self.errors.borrow_mut().push(error.to_string());
        }
    }

    /// Returns whether a compute server has died, or is taken for dead.
    fn is_out(&self, compute: usize) -> bool {
        let is_suspected = self.configuration.borrow().suspected == Some(compute);
        is_suspected || self.network.is_dead(compute)
    }

    /// Reads all keys at one moment. Returns whether that succeeded.
    async fn snapshot(&self, coordinator: &mut Coordinator<Simulated>, record: usize) -> bool {
        self.history.restart(record, None);
        let rows = match coordinator.snapshot(&[TABLE.number()]).await {
            Ok(tables) => tables.into_iter().next().expect("the rows of one table"),
            Err(TransactionError::Aborted(Abort::Verb(_))) => {
                self.history.end(record, Outcome::Aborted);
                return false;
            }
            Err(error) => {
                self.errors.borrow_mut().push(error.to_string());
                return false;
            }
        };
        for key in 0..self.plan.keys {
            let value = rows.get(&key).map(|words| [words[0], words[1]]);
            self.history.add(record, Access::Read(key, whole(value)));
        }
        self.history.end(record, Outcome::Committed);
        self.counts.borrow_mut().snapshots += 1;
        true
    }

    /// Whether recoverers and detectors are needed. A restorer may be copying when the observer
    /// has ended, and wait for the recovery of another one or for the record of a loss. A successor
    /// may be executing transactions then.
    fn is_running(&self) -> bool {
        let works = self.restoring.get() + self.succeeding.get() > 0;
        !self.is_over.get() || works || !self.are_recovered()
    }

    /// Resolves, as their clients do, the transactions without an answer of the dead compute
    /// servers that `which` selects: by the outcomes of their last attempts.
    fn resolve(&self, which: impl Fn(usize) -> bool) {
        self.history.resolve(|compute, attempt| {
            let configuration = self.configuration.borrow();
            // The words of a process id are those of its last owner.
            let is_owner = configuration.owners.get(&attempt.process()) == Some(&compute);
            if !is_owner || !which(compute) {
                return None;
            }
            let failed = configuration.failed.get(&attempt.process());
            let has_failed = failed == Some(&incarnation(compute));
            let coordinator = (attempt.process(), attempt.coordinator());
            let last = configuration.last.get(&coordinator).copied();
            let before = attempt_before(compute);
            let last = last.unwrap_or(LastCommit {
                begun: TransactionId::new(coordinator.0, coordinator.1, before),
                committed: None,
            });
            match last.outcome(attempt, has_failed) {
                Resolved::Committed => Some(Outcome::Committed),
                Resolved::NoEffect => Some(Outcome::NoEffect),
                Resolved::Unknown => None,
            }
        });
    }

    /// Waits until the recoveries are complete, and reads all keys.
    async fn observer(&self) {
        let worker = self.worker(OBSERVER, OBSERVER);
        let mut coordinator = worker.coordinator().expect("a free slot");
        loop {
            pause().await;
            let is_restored = !self.plan.restores || self.is_restored();
            if is_restored && self.are_recovered() && self.is_succeeded() {
                break;
            }
        }
        self.resolve(|_| true);
        let record = self.history.begin("observer".into(), OBSERVER);
        let done = coordinator.transaction(async |tx| {
            self.history.restart(record, None);
            for key in 0..self.plan.keys {
                let value = whole(tx.read(TABLE, key).await?);
                self.history.add(record, Access::Read(key, value));
            }
            Ok(())
        });
        done.await.expect("the observer commits");
        self.history.end(record, Outcome::Committed);
        self.counts.borrow_mut().stolen += worker.counts().stolen;
    }
}

async fn execute(
    tx: &mut Transaction<Simulated>,
    kind: Kind,
    key: u64,
    value: u64,
) -> Result<Access, Abort> {
    let words = [value; 2];
    Ok(match kind {
        Kind::Read => Access::Read(key, whole(tx.read(TABLE, key).await?)),
        Kind::Write => Access::Write(key, value, tx.write(TABLE, key, &words).await?),
        Kind::Insert => Access::Insert(key, value, tx.insert(TABLE, key, &words).await?),
        Kind::Delete => Access::Delete(key, whole(tx.delete(TABLE, key).await?)),
    })
}

/// The compute servers that are recovered if they die.
fn mortals() -> impl Iterator<Item = usize> {
    (0..CLIENTS).chain(RESTORER..DETECTOR)
}

/// Lets others run.
async fn pause() {
    let mut has_paused = false;
    core::future::poll_fn(|_| match core::mem::replace(&mut has_paused, true) {
        true => core::task::Poll::Ready(()),
        false => core::task::Poll::Pending,
    })
    .await;
}

/// Executes a run with the seed `seed`.
///
/// # Errors
/// If the history is not strictly serializable, the tables are not consistent, or a transaction
/// does not end.
pub fn run(plan: Plan, seed: u64) -> Result<Counts, String> {
    let mut random = fastrand::Rng::with_seed(!seed);
    let servers: Vec<ServerId> = (0..=plan.replicas as u16).map(ServerId).collect();
    let network = Network::new(seed, servers.len(), words(&plan)).with_stalls();
    // With the logs at the replicas, each memory server is a log server.
    let log_servers = |compute| match plan.protocol {
        Protocol::Pandora | Protocol::LatchToLog => {
            choose(1000 + compute as u64, &servers, plan.replicas)
        }
        Protocol::Ford | Protocol::LogALatch => servers.clone(),
    };
    let configuration = Configuration {
        dead: BTreeSet::new(),
        ids: (0..=OBSERVER).map(view::first_id).collect(),
        owners: owners(),
        failed: BTreeMap::new(),
        free: BTreeSet::new(),
        recovered: BTreeSet::new(),
        changes: Vec::new(),
        places: places(&plan, &servers),
        commits: HashMap::new(),
        last: HashMap::new(),
        logs: (0..=OBSERVER).map(log_servers).collect(),
        servers: servers.clone(),
        recoveries: 0,
        recovering: HashSet::new(),
        left_latches: 0,
        suspected: None,
    };
    let world = World {
        network: network.clone(),
        plan,
        configuration: Rc::new(RefCell::new(configuration)),
        history: History::default(),
        next_value: Cell::new(0),
        errors: RefCell::default(),
        counts: RefCell::default(),
        is_over: Cell::new(false),
        restoring: Cell::new(0),
        succeeding: Cell::new(0),
        has_succeeded: Cell::new(false),
        detector_steps: Cell::new(None),
        both_detect: Cell::new(false),
    };
    if plan.chains {
        world.load()?;
    }
    let begin = network.seen().words;
    let mut victims: Vec<usize> = (0..CLIENTS).collect();
    random.shuffle(&mut victims);
    for victim in victims.into_iter().take(plan.deaths) {
        // A large READ has many words, and each WRITE of a commit only some: half of the victims
        // die after a number of batches.
        match random.bool() {
            true => network.plan(begin + random.u64(..2500), Fault::ComputeCrash(victim)),
            false => network.plan_crash(victim, random.u64(..60)),
        }
    }
    for _ in 0..plan.breaks {
        match random.u8(..if plan.restores { 4 } else { 3 }) {
            3 => network.plan_break(RESTORER + random.usize(..RESTORERS), random.u64(..40)),
            0 => network.plan_break(CLIENTS + random.usize(..RECOVERERS), random.u64(..40)),
            _ => network.plan_break(random.usize(..CLIENTS), random.u64(..80)),
        }
    }
    if plan.recoverer_dies {
        network.plan_crash(CLIENTS, random.u64(..40));
    }
    if plan.restores && random.bool() {
        network.plan(begin + random.u64(..6000), Fault::ComputeCrash(RESTORER));
    }
    if plan.recycles {
        // The scan posts few batches.
        match random.u8(..3) {
            0 => network.plan(begin + random.u64(..6000), Fault::ComputeCrash(SUCCESSOR)),
            1 => network.plan_crash(SUCCESSOR, random.u64(..5)),
            _ => network.plan_crash(SUCCESSOR, random.u64(..60)),
        }
    }
    if plan.detector_dies {
        match random.bool() {
            true => network.plan(begin + random.u64(..2500), Fault::ComputeCrash(DETECTOR)),
            false => world.detector_steps.set(Some(random.u64(..4))),
        }
    }
    if plan.memory_dies {
        let server = ServerId(random.u16(..servers.len() as u16));
        // Early, so that transactions run beside the restoration.
        let latest = if plan.restores { 1000 } else { 3000 };
        network.plan(begin + random.u64(..latest), Fault::MemoryCrash(server));
    }
    let mut workers: Vec<_> = (0..CLIENTS).map(|it| world.worker(it, it)).collect();
    let running = Cell::new(CLIENTS * usize::from(COORDINATORS));
    let mut tasks: Vec<Task<'_>> = Vec::new();
    for (compute, worker) in workers.iter().enumerate() {
        for number in 0..COORDINATORS {
            let coordinator = worker.coordinator().expect("a free slot");
            let stall = if plan.stalls { 10_000 } else { 0 };
            let coordinator = coordinator.retry(Retry { stall, ..RETRY });
            let (world, worker, seed) = (&world, Rc::clone(worker), random.u64(..));
            let name = format!("{compute}.{number}");
            let running = End(&running);
            tasks.push((
                compute,
                Box::pin(async move {
                    let _running = running;
                    let client = (worker, coordinator);
                    world.client(compute, client, name, seed).await;
                }),
            ));
        }
    }
    if plan.drops_workers {
        // The last coordinator of a worker drops it.
        workers.clear();
    }
    for recoverer in CLIENTS..CLIENTS + RECOVERERS {
        tasks.push((recoverer, Box::pin(world.recoverer(recoverer))));
    }
    if plan.restores {
        for restorer in RESTORER..SUCCESSOR {
            let task = world.restorer(restorer, random.u64(..3000));
            tasks.push((restorer, Box::pin(task)));
        }
    }
    if plan.recycles {
        for successor in SUCCESSOR..DETECTOR {
            let task = world.successor(successor, random.u64(..));
            tasks.push((successor, Box::pin(task)));
        }
    }
    let suspicion = plan
        .suspects
        .then(|| (random.usize(..CLIENTS), begin + random.u64(..2500)));
    world.both_detect.set(plan.detector_dies && random.bool());
    for detector in DETECTOR..OBSERVER {
        tasks.push((detector, Box::pin(world.detector(detector, suspicion))));
    }
    let (all, ends) = (&world, &running);
    tasks.push((
        OBSERVER,
        Box::pin(async move {
            while ends.get() > 0 {
                pause().await;
            }
            all.observer().await;
            // A server that died now might find no recoverer any more.
            all.network.cancel_faults();
            all.is_over.set(true);
        }),
    ));
    let ended = network.run(tasks, STEPS);
    ended.map_err(|stuck| format!("{} tasks did not end", stuck.tasks))?;
    let mut counts = world.counts.take();
    for worker in &workers {
        let it = worker.counts();
        counts.conflicts += it.latched + it.changed + it.torn;
        counts.stolen += it.stolen;
        counts.interrupted += it.interrupted;
        counts.stalled += it.stalled;
    }
    counts.committed = world.history.count(|it| it.outcome == Outcome::Committed);
    counts.unknown = world
        .history
        .count(|it| it.outcome == Outcome::Unknown || it.was_resolved);
    let resolved = |outcome| move |it: &Record| it.was_resolved && it.outcome == outcome;
    counts.found_committed = world.history.count(resolved(Outcome::Committed));
    counts.found_without_effect = world.history.count(resolved(Outcome::NoEffect));
    let is_successor = |it: &Record| (SUCCESSOR..DETECTOR).contains(&it.compute);
    counts.recycled_commits = world
        .history
        .count(|it| it.outcome == Outcome::Committed && is_successor(it));
    counts.detectors_died = u64::from(network.is_dead(DETECTOR));
    counts.moved = world.moves();
    counts.words = network.seen().words;
    counts.left_latches = world.configuration.borrow().left_latches;
    let add = |all: &mut Steps, compute: usize, batch: &[Verb]| {
        let victim = match compute {
            ..CLIENTS | SUCCESSOR..DETECTOR => Victim::Client,
            CLIENTS..RESTORER => Victim::Recoverer,
            RESTORER..SUCCESSOR => Victim::Restorer,
            // The observer does not die.
            _ => return,
        };
        if let Some(step) = Step::of(batch, &plan) {
            *all.entry((victim, step)).or_default() += 1;
        }
    };
    for compute in { 0..DETECTOR }.filter(|it| network.is_dead(*it)) {
        if let Some(batch) = network.last_batch(compute) {
            add(&mut counts.deaths, compute, &batch);
        }
    }
    for broken in network.broken_batches() {
        add(&mut counts.breaks, broken.from, &broken.verbs);
        counts.lost_answers += u64::from(broken.has_taken_effect);
    }
    for lost in network.lost_batches() {
        add(&mut counts.losses, lost.from, &lost.verbs);
    }
    let registered = world.configuration.borrow().commits.len();
    if registered > 0 {
        return Err(format!("{registered} commits are still registered"));
    }
    if let Some(error) = world.errors.borrow().first() {
        return Err(error.clone());
    }
    world.history.check()?;
    aftermath::check_tables(&world)?;
    aftermath::write_all(&world)?;
    aftermath::check_tables(&world)?;
    Ok(counts)
}

/// Counts a task that ends, also by the death of its server.
struct End<'a>(&'a Cell<usize>);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
