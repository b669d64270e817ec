//! The memory server's end of a connection: the posted verbs, and the steps by which they take
//! effect.

use super::connection::Outcome;
use super::{ComputeId, Inner};
use outlive_store::verbs::{ServerId, Verb, VerbError, VerbKind};
use std::collections::VecDeque;

/// The end of a connection at its server.
#[derive(Debug)]
pub(super) struct Responder {
    pub from: ComputeId,
    pub server: ServerId,
    /// The verbs whose packets have not arrived, in posting order. The sender repeats them.
    sent: VecDeque<Request>,
    /// The verbs that have arrived and not taken effect completely, in posting order.
    queue: VecDeque<Request>,
    /// All verbs that have arrived, from which packets that arrive again are chosen.
    arrived: Vec<Request>,
    /// The batches whose completions have not arrived, in posting order.
    open: VecDeque<usize>,
    /// The sequence number of the next verb that is posted.
    next: u64,
    /// The sequence number of the packet that the server expects. It drops other packets.
    expected: u64,
    /// Whether the connection is broken, and that is reported to the poster.
    pub is_broken: bool,
    /// Whether the server has revoked the rights.
    pub is_revoked: bool,
    /// The step until which no verb of the connection makes progress.
    pub rests_until: u64,
}

#[derive(Clone, Debug)]
struct Request {
    sequence: u64,
    batch: usize,
    verb: Verb,
    /// The indices of the words that have not taken effect.
    left: Vec<usize>,
}

impl Responder {
    pub fn new(from: ComputeId, server: ServerId) -> Self {
        Self {
            from,
            server,
            sent: VecDeque::new(),
            queue: VecDeque::new(),
            arrived: Vec::new(),
            open: VecDeque::new(),
            next: 0,
            expected: 0,
            is_broken: false,
            is_revoked: false,
            rests_until: 0,
        }
    }

    pub fn post(&mut self, batch: usize, verbs: &[Verb]) {
        self.open.push_back(batch);
        for verb in verbs {
            self.sent.push_back(Request {
                sequence: self.next,
                batch,
                verb: *verb,
                left: (0..verb.words() as usize).collect(),
            });
            self.next += 1;
        }
    }

    /// Returns whether no posted verb of the connection can take effect any more.
    pub fn is_drained(&self) -> bool {
        self.sent.is_empty() && self.queue.is_empty()
    }

    /// Returns whether a step is possible.
    pub fn is_busy(&self) -> bool {
        !self.is_drained() || !self.open.is_empty()
    }

    /// The batches whose completions have not arrived, if the connection is in use.
    pub fn open(&self) -> impl Iterator<Item = usize> {
        let is_used = !self.is_broken && !self.is_revoked;
        self.open.iter().copied().filter(move |_| is_used)
    }

    /// Returns whether a completion is under way: all verbs of the first batch have taken effect.
    pub fn has_answer(&self) -> bool {
        let first = self.open.front();
        first.is_some_and(|batch| !self.has_left(*batch))
    }

    /// Returns whether a verb of `batch` has not taken effect completely.
    pub fn has_left(&self, batch: usize) -> bool {
        let mut left = self.sent.iter().chain(&self.queue);
        left.any(|it| it.batch == batch)
    }

    /// Drops all verbs that have not taken effect. Returns their number.
    fn drop_left(&mut self) -> u64 {
        let dropped = self.sent.len() + self.queue.len();
        self.sent.clear();
        self.queue.clear();
        dropped as u64
    }

    /// Accepts a packet that arrives, and returns `true`, if its sequence number is the expected
    /// one. Drops a packet that has arrived before, or that arrives before an earlier one. With
    /// `takes_all`, the server is broken and accepts every packet.
    fn arrive(&mut self, request: Request, takes_all: bool) -> bool {
        if request.sequence != self.expected && !takes_all {
            return false;
        }
        self.expected = self.expected.max(request.sequence + 1);
        self.arrived.push(request.clone());
        self.queue.push_back(request);
        true
    }

    /// Returns the indices in the queue of the verbs that may take effect now.
    fn eligible(&self) -> Vec<usize> {
        let mut places = Vec::new();
        let (mut has_write, mut has_atomic) = (false, false);
        for (place, request) in self.queue.iter().enumerate() {
            if request.verb.is_fenced && place > 0 {
                // The verb waits, and later verbs wait for it.
                break;
            }
            let may_pass = match request.verb.kind {
                VerbKind::Read => false,
                VerbKind::Write => !has_write,
                VerbKind::CompareSwap { .. } | VerbKind::FetchAdd { .. } => {
                    !has_write && !has_atomic
                }
            };
            if place == 0 || may_pass {
                places.push(place);
            }
            match request.verb.kind {
                VerbKind::Read => {}
                VerbKind::Write => has_write = true,
                VerbKind::CompareSwap { .. } | VerbKind::FetchAdd { .. } => has_atomic = true,
            }
            if request.verb.is_fenced {
                // The fenced verb is at the head of the queue, and no verb passes it.
                break;
            }
        }
        places
    }
}

impl Inner {
    /// Executes one step on the connection `number`.
    pub(super) fn advance(&mut self, number: usize) {
        let responder = &mut self.responders[number];
        if responder.is_broken || responder.is_revoked {
            // Verbs under way take effect until the rest are dropped, at a random step.
            if responder.is_drained() || responder.is_revoked || self.random.u8(..4) == 0 {
                self.seen.dropped += responder.drop_left();
                responder.open.clear();
                return;
            }
        } else if let Some(batch) = responder.open.front().copied()
            && !responder.has_left(batch)
            && (responder.is_drained() || self.random.bool())
        {
            responder.open.pop_front();
            self.batches.complete(batch, Outcome::Done);
            return;
        }
        let can_arrive = !self.responders[number].sent.is_empty();
        let can_execute = !self.responders[number].queue.is_empty();
        match self.random.u8(..8) {
            0 => self.repeat(number),
            1..=4 if can_arrive => self.deliver(number),
            _ if can_execute => self.take_effect(number),
            _ => self.deliver(number),
        }
    }

    /// Delivers or loses the packet of one of the next three verbs. The server drops a packet that
    /// arrives before an earlier one. The sender repeats the packets that are not acknowledged.
    fn deliver(&mut self, number: usize) {
        let responder = &mut self.responders[number];
        let which = self.random.usize(..responder.sent.len().clamp(1, 3));
        let Some(request) = responder.sent.get(which).cloned() else {
            return;
        };
        if self.random.u8(..8) == 0 {
            self.seen.lost += 1;
            return;
        }
        match responder.arrive(request, false) {
            true => drop(responder.sent.remove(which)),
            false => self.seen.reordered += 1,
        }
    }

    /// Delivers a packet again that has arrived: the network has duplicated it, or the sender has
    /// repeated it because the acknowledgement was lost.
    fn repeat(&mut self, number: usize) {
        let takes_all = self.takes_duplicates;
        let responder = &mut self.responders[number];
        if responder.arrived.is_empty() {
            return;
        }
        let which = self.random.usize(..responder.arrived.len());
        let request = responder.arrived[which].clone();
        // Even a broken server does not write to a buffer that was returned to the poster.
        if takes_all && !self.batches.has_buffer(request.batch) {
            return;
        }
        responder.arrive(request, takes_all);
        self.seen.duplicates += 1;
    }

    fn take_effect(&mut self, number: usize) {
        let responder = &mut self.responders[number];
        let places = responder.eligible();
        let place = places[self.random.usize(..places.len())];
        let request = &mut responder.queue[place];
        let which = self.random.usize(..request.left.len().max(1));
        if place > 0 && request.left.len() as u64 == request.verb.words() {
            self.seen.passed += 1;
        }
        if !request.left.is_empty() {
            let word = request.left.swap_remove(which);
            let local = request.verb.local().start + word;
            let index = request.verb.at.get() as usize / 8 + word;
            let remote = &mut self.servers[usize::from(responder.server.0)].words[index];
            let buffer = self.batches.buffer(request.batch);
            match request.verb.kind {
                VerbKind::Read => buffer[local] = *remote,
                VerbKind::Write => *remote = buffer[local],
                VerbKind::CompareSwap { expected, new } => {
                    buffer[local] = *remote;
                    if *remote == expected {
                        *remote = new;
                    }
                }
                VerbKind::FetchAdd { add } => {
                    buffer[local] = *remote;
                    *remote = remote.wrapping_add(add);
                }
            }
            self.seen.words += 1;
        }
        if request.left.is_empty() {
            responder.queue.remove(place);
        }
    }

    /// Breaks connections. Their open batches complete with [`VerbError::Broken`].
    pub(super) fn break_connections(&mut self, which: impl Fn(usize, &Responder) -> bool) {
        for (number, responder) in self.responders.iter_mut().enumerate() {
            if which(number, responder) && !responder.is_broken {
                responder.is_broken = true;
                let open = core::mem::take(&mut responder.open);
                for batch in open {
                    if !responder.has_left(batch) {
                        self.seen.lost_answers += 1;
                    }
                    let server = responder.server;
                    let error = VerbError::Broken { server };
                    self.batches.complete(batch, Outcome::Failed(error));
                }
            }
        }
    }

    /// Ends the connections to a dead server. Their open batches complete with
    /// [`VerbError::ServerDied`].
    pub(super) fn end_connections_to(&mut self, server: ServerId) {
        for responder in self.responders.iter_mut().filter(|it| it.server == server) {
            responder.drop_left();
            for batch in responder.open.drain(..) {
                let error = VerbError::ServerDied { server };
                self.batches.complete(batch, Outcome::Failed(error));
            }
        }
    }

    /// Revokes the rights of `compute` at one live server. Returns `true` if no live server is left
    /// at which it has rights.
    pub(super) fn withdraw(&mut self, compute: ComputeId) -> bool {
        let has_rights = |index: &usize| {
            let server = ServerId(*index as u16);
            self.servers[*index].is_live && !self.revoked.contains(&(compute, server))
        };
        let left: Vec<usize> = (0..self.servers.len()).filter(has_rights).collect();
        if left.is_empty() {
            return true;
        }
        let server = ServerId(left[self.random.usize(..left.len())] as u16);
        self.revoked.push((compute, server));
        let of_it = |it: &&mut Responder| it.from == compute && it.server == server;
        for responder in self.responders.iter_mut().filter(of_it) {
            responder.is_revoked = true;
            self.seen.dropped += responder.drop_left();
            for batch in responder.open.drain(..) {
                let error = VerbError::Revoked { server };
                self.batches.complete(batch, Outcome::Failed(error));
            }
        }
        false
    }
}
