//! A simulated network between compute servers and memory servers. It runs in one thread from one
//! seed, and uses every freedom that the rules of [`verbs`](outlive_store::verbs) leave.
//!
//! Time is a sequence of steps. In each step either a task is polled, or one event occurs on the
//! network: a packet arrives, is lost or arrives again; one word of one verb takes effect; a
//! completion arrives; verbs are dropped; or a planned [`Fault`] occurs. All choices are drawn from
//! the seed, so the same seed repeats a run.
//!
//! * A packet may be lost, arrive before an earlier one, or arrive again. The server accepts the
//!   packets of a connection in order, each once.
//! * A READ or WRITE of several words takes effect word by word, in any order, with other steps in
//!   between.
//! * An unfenced WRITE may pass earlier READs and atomics of its connection, and an unfenced CAS or
//!   FAA earlier READs.
//! * A connection that breaks drops a random part of its outstanding verbs. The order of the verbs
//!   holds: if a verb is dropped, a later one has taken effect only if it passed the dropped one.
//! * A network [with stalls](Network::with_stalls) also lets a connection or a task rest for many
//!   steps, and a poster notice a completion late.
//! * A client [connects again](Network::reconnect) only after the server has drained the old
//!   connection.

mod connection;
mod executor;
mod responder;

pub use connection::{Posted, Reconnecting, Revoking, Wire};
pub use executor::{Stuck, Task};

use connection::Batches;
use outlive_store::verbs::{POISON, Region, ServerId, Verb};
use responder::Responder;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// The number of a simulated compute server.
pub type ComputeId = usize;

/// A fault that is injected after a number of executed words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The tasks of a compute server end, and its connections break.
    ComputeCrash(ComputeId),
    /// A memory server dies, and its memory is poisoned.
    MemoryCrash(ServerId),
    /// The connections between a compute server and a memory server break.
    Break(ComputeId, ServerId),
    /// A connection of a compute server breaks that has outstanding verbs. The fault waits until
    /// there is one.
    BreakUsed(ComputeId),
    /// A connection of a compute server breaks on which the answer of a batch is under way.
    LoseAnswer(ComputeId),
}

/// The moment after which a fault is injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// So many words have taken effect.
    Words(u64),
    /// The compute server has posted so many batches.
    Batches(ComputeId, u64),
}

/// The number of times that the network used each freedom, and of injected faults.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Words that took effect.
    pub words: u64,
    /// Verbs that passed an earlier one: WRITEs, CAS and FAA.
    pub passed: u64,
    /// Packets that were lost and sent again.
    pub lost: u64,
    /// Packets that arrived before an earlier one, were dropped by the server and sent again.
    pub reordered: u64,
    /// Packets that arrived again. The server dropped them, unless it is broken.
    pub duplicates: u64,
    /// Batches whose verbs had all taken effect when their completion was lost.
    pub lost_answers: u64,
    /// Verbs that were dropped because their connection broke or its rights were revoked.
    pub dropped: u64,
    /// Faults that were injected.
    pub faults: u64,
}

/// A simulated network with its memory servers.
#[derive(Clone, Debug)]
pub struct Network {
    inner: Rc<RefCell<Inner>>,
}

/// A batch whose connection broke, or whose memory server died, before its completion arrived.
#[derive(Clone, Debug)]
pub struct BrokenBatch {
    /// Its poster.
    pub from: ComputeId,
    /// Its verbs.
    pub verbs: Vec<Verb>,
    /// Whether all of them had taken effect, so that only the answer was lost.
    pub has_taken_effect: bool,
}

#[derive(Debug)]
struct Server {
    words: Vec<u64>,
    is_live: bool,
}

#[derive(Debug)]
struct Inner {
    random: fastrand::Rng,
    servers: Vec<Server>,
    responders: Vec<Responder>,
    batches: Batches,
    faults: Vec<(Due, Fault)>,
    dead: Vec<ComputeId>,
    /// The batches that were outstanding on the connections that broke as planned.
    broken: Vec<BrokenBatch>,
    /// Those that were outstanding at memory servers that died.
    lost: Vec<BrokenBatch>,
    /// The number of batches that each compute server has posted, and the last one.
    posted: HashMap<ComputeId, (u64, Vec<Verb>)>,
    revoked: Vec<(ComputeId, ServerId)>,
    takes_duplicates: bool,
    stalls: bool,
    steps: u64,
    seen: Seen,
}

impl Network {
    /// Returns a network with `servers` memory servers of `words` zero words each.
    pub fn new(seed: u64, servers: usize, words: usize) -> Self {
        let server = || Server {
            words: vec![0; words],
            is_live: true,
        };
        Self {
            inner: Rc::new(RefCell::new(Inner {
                random: fastrand::Rng::with_seed(seed),
                servers: (0..servers).map(|_| server()).collect(),
                responders: Vec::new(),
                batches: Batches::default(),
                faults: Vec::new(),
                dead: Vec::new(),
                broken: Vec::new(),
                lost: Vec::new(),
                posted: HashMap::new(),
                revoked: Vec::new(),
                takes_duplicates: false,
                stalls: false,
                steps: 0,
                seen: Seen::default(),
            })),
        }
    }

    /// Plans `fault` for a random step after `words` words have taken effect.
    pub fn plan(&self, words: u64, fault: Fault) {
        let fault = (Due::Words(words), fault);
        self.inner.borrow_mut().faults.push(fault);
    }

    /// Plans the crash of `compute` for a random step after it has posted `batches` batches.
    pub fn plan_crash(&self, compute: ComputeId, batches: u64) {
        let due = Due::Batches(compute, batches);
        let fault = (due, Fault::ComputeCrash(compute));
        self.inner.borrow_mut().faults.push(fault);
    }

    /// Crashes `compute` now.
    pub fn crash(&self, compute: ComputeId) {
        self.inner.borrow_mut().strike(Fault::ComputeCrash(compute));
    }

    /// Plans the break of a connection of `compute` that has outstanding verbs, for a random step
    /// after it has posted `batches` batches. Every second time, an answer is lost.
    pub fn plan_break(&self, compute: ComputeId, batches: u64) {
        let inner = &mut *self.inner.borrow_mut();
        let fault = match inner.random.bool() {
            true => Fault::BreakUsed(compute),
            false => Fault::LoseAnswer(compute),
        };
        inner.faults.push((Due::Batches(compute, batches), fault));
    }

    /// Makes the planned losses of memory servers due now.
    pub fn hasten(&self) {
        let faults = &mut self.inner.borrow_mut().faults;
        let losses = faults
            .iter_mut()
            .filter(|(_, fault)| matches!(fault, Fault::MemoryCrash(_)));
        losses.for_each(|(due, _)| *due = Due::Words(0));
    }

    /// Cancels all planned faults.
    pub fn cancel_faults(&self) {
        self.inner.borrow_mut().faults.clear();
    }

    /// Breaks the memory servers: they execute a packet that arrives again once more.
    pub fn with_duplicates_taken(self) -> Self {
        self.inner.borrow_mut().takes_duplicates = true;
        self
    }

    /// Lets a random connection or task rest for up to 3,000 steps from time to time.
    pub fn with_stalls(self) -> Self {
        self.inner.borrow_mut().stalls = true;
        self
    }

    /// Returns the step until which a task rests that is about to be polled, if it is to rest.
    fn stall(&self) -> Option<u64> {
        self.inner.borrow_mut().stall()
    }

    fn steps(&self) -> u64 {
        self.inner.borrow().steps
    }

    /// Connects the compute server `from` to `server`. The first connection needs no draining.
    pub fn connect(&self, from: ComputeId, server: ServerId) -> Wire {
        let mut inner = self.inner.borrow_mut();
        let number = inner.responders.len();
        let mut responder = Responder::new(from, server);
        responder.is_revoked = inner.revoked.contains(&(from, server));
        // The tasks of a server that has crashed are dropped after that, and may still connect.
        responder.is_broken = inner.dead.contains(&from);
        inner.responders.push(responder);
        Wire::new(self.clone(), number, server)
    }

    /// Connects again after `broken` has broken, once the server has drained it.
    pub fn reconnect(&self, broken: &Wire) -> Reconnecting {
        Reconnecting::new(self.clone(), broken.number(), broken.id())
    }

    /// Connects again after `broken` has broken, if the server has drained it.
    pub fn try_reconnect(&self, broken: &Wire) -> Option<Wire> {
        self.connect_again(broken.number(), broken.id())
    }

    fn connect_again(&self, old: usize, server: ServerId) -> Option<Wire> {
        let from = {
            let inner = self.inner.borrow();
            let old = &inner.responders[old];
            old.is_drained().then_some(old.from)
        };
        Some(self.connect(from?, server))
    }

    /// The batches that were outstanding on connections of live compute servers when these broke:
    /// [`Fault::BreakUsed`] and [`Fault::LoseAnswer`].
    pub fn broken_batches(&self) -> Vec<BrokenBatch> {
        self.inner.borrow().broken.clone()
    }

    /// The batches of live compute servers that were outstanding at memory servers when these died:
    /// [`Fault::MemoryCrash`].
    pub fn lost_batches(&self) -> Vec<BrokenBatch> {
        self.inner.borrow().lost.clone()
    }

    /// Revokes the rights of `compute` at all live memory servers. The future is ready when every
    /// one of them has acknowledged.
    pub fn revoke(&self, compute: ComputeId) -> Revoking {
        Revoking::new(self.clone(), compute)
    }

    /// The word at `index` of `server`'s region, without a verb: for checks.
    pub fn peek(&self, server: ServerId, index: usize) -> u64 {
        self.inner.borrow().servers[usize::from(server.0)].words[index]
    }

    /// The numbers of freedoms that the network has used.
    pub fn seen(&self) -> Seen {
        self.inner.borrow().seen
    }

    fn region(&self, server: ServerId) -> Region {
        let words = self.inner.borrow().servers[usize::from(server.0)]
            .words
            .len();
        Region {
            key: server.0.into(),
            bytes: words as u64 * 8,
        }
    }

    /// Returns whether the compute server has crashed.
    pub fn is_dead(&self, compute: ComputeId) -> bool {
        self.inner.borrow().dead.contains(&compute)
    }

    /// The batch that a compute server posted last, if it has posted one.
    pub fn last_batch(&self, compute: ComputeId) -> Option<Vec<Verb>> {
        let inner = self.inner.borrow();
        inner.posted.get(&compute).map(|(_, last)| last.clone())
    }

    /// Returns whether the memory server has crashed.
    pub fn has_crashed(&self, server: ServerId) -> bool {
        !self.inner.borrow().servers[usize::from(server.0)].is_live
    }

    /// Executes one step. Returns `false` if none is possible.
    fn step(&self) -> bool {
        self.inner.borrow_mut().step()
    }
}

/// The largest number of steps for which a connection or a task rests.
const STALL: u64 = 3000;

impl Inner {
    fn stall(&mut self) -> Option<u64> {
        let stalls = self.stalls && self.random.u16(..400) == 0;
        stalls.then(|| self.steps + self.random.u64(..STALL))
    }

    /// Returns the step before which a poster does not notice a completion.
    fn late(&mut self) -> u64 {
        match self.stalls && self.random.u8(..32) == 0 {
            true => self.steps + self.random.u64(..STALL / 4),
            false => 0,
        }
    }

    fn step(&mut self) -> bool {
        self.steps += 1;
        let posted = |compute| self.posted.get(&compute).map_or(0, |(number, _)| *number);
        let is_due = |due: Due| match due {
            Due::Words(words) => words <= self.seen.words,
            Due::Batches(compute, batches) => batches <= posted(compute),
        };
        let is_possible = |fault: Fault| match fault {
            Fault::BreakUsed(compute) => self.used(compute).next().is_some(),
            Fault::LoseAnswer(compute) => self.answered(compute).next().is_some(),
            _ => true,
        };
        let mut faults = self.faults.iter();
        let due = faults.position(|(due, fault)| is_due(*due) && is_possible(*fault));
        // The fault is injected some steps after the word, so that it can also follow completions.
        if let Some(due) = due.filter(|_| self.random.u8(..4) == 0) {
            let (_, fault) = self.faults.swap_remove(due);
            self.strike(fault);
            return true;
        }
        let mut busy: Vec<usize> = (0..self.responders.len())
            .filter(|number| self.responders[*number].is_busy())
            .collect();
        if busy.is_empty() {
            return false;
        }
        let is_awake = |number: &usize| self.responders[*number].rests_until <= self.steps;
        if busy.iter().any(is_awake) {
            busy.retain(is_awake);
        }
        let number = busy[self.random.usize(..busy.len())];
        if let Some(until) = self.stall() {
            self.responders[number].rests_until = until;
            return true;
        }
        self.advance(number);
        true
    }

    /// The numbers of the connections of `compute` that have outstanding verbs.
    fn used(&self, compute: ComputeId) -> impl Iterator<Item = usize> {
        let responders = self.responders.iter().enumerate();
        let used = responders.filter(move |(_, it)| it.from == compute);
        let used = used.filter(|(_, it)| it.open().next().is_some());
        used.map(|(number, _)| number)
    }

    /// Those on which an answer is under way.
    fn answered(&self, compute: ComputeId) -> impl Iterator<Item = usize> {
        let used = self.used(compute);
        used.filter(|number| self.responders[*number].has_answer())
    }

    /// Breaks one of these connections.
    fn break_one(&mut self, among: &[usize]) {
        let number = among[self.random.usize(..among.len())];
        let outstanding = self.outstanding(number);
        self.broken.extend(outstanding);
        self.break_connections(|number_of, _| number_of == number);
    }

    /// The batches that are outstanding on a connection in use.
    fn outstanding(&self, number: usize) -> Vec<BrokenBatch> {
        let responder = &self.responders[number];
        let batches = responder.open().map(|batch| BrokenBatch {
            from: responder.from,
            verbs: self.batches.verbs(batch),
            has_taken_effect: !responder.has_left(batch),
        });
        batches.collect()
    }

    fn strike(&mut self, fault: Fault) {
        self.seen.faults += 1;
        match fault {
            Fault::ComputeCrash(compute) => {
                self.dead.push(compute);
                self.break_connections(|_, it| it.from == compute);
            }
            Fault::MemoryCrash(server) => {
                let it = &mut self.servers[usize::from(server.0)];
                it.is_live = false;
                it.words.fill(POISON);
                let to_it = |it: &usize| self.responders[*it].server == server;
                for number in { 0..self.responders.len() }.filter(to_it) {
                    let outstanding = self.outstanding(number);
                    self.lost.extend(outstanding);
                }
                self.end_connections_to(server);
            }
            Fault::BreakUsed(compute) => {
                let used: Vec<usize> = self.used(compute).collect();
                self.break_one(&used);
            }
            Fault::LoseAnswer(compute) => {
                let answered: Vec<usize> = self.answered(compute).collect();
                self.break_one(&answered);
            }
            Fault::Break(compute, server) => {
                self.break_connections(|_, it| it.from == compute && it.server == server);
            }
        }
    }
}
