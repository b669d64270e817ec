//! The memory server's end of a connection: the verbs that have been posted, and how they take
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
    /// The verbs that have not taken effect completely, in posting order.
    queue: VecDeque<Request>,
    /// The batches whose completions have not arrived, in posting order.
    open: VecDeque<usize>,
    /// The sequence number of the next verb that is posted.
    next: u64,
    /// Whether the poster has been told that the connection broke.
    pub is_broken: bool,
    /// Whether the server has withdrawn the rights.
    pub is_revoked: bool,
}

#[derive(Debug)]
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
            queue: VecDeque::new(),
            open: VecDeque::new(),
            next: 0,
            is_broken: false,
            is_revoked: false,
        }
    }

    pub fn post(&mut self, batch: usize, verbs: &[Verb]) {
        self.open.push_back(batch);
        for verb in verbs {
            self.queue.push_back(Request {
                sequence: self.next,
                batch,
                verb: *verb,
                left: (0..verb.words() as usize).collect(),
            });
            self.next += 1;
        }
    }

    /// Whether no verb of the connection can take effect any more.
    pub fn is_drained(&self) -> bool {
        self.queue.is_empty()
    }

    /// The places in the queue whose verbs may take effect now.
    fn eligible(&self) -> Vec<usize> {
        let mut places = Vec::new();
        let mut has_write = false;
        for (place, request) in self.queue.iter().enumerate() {
            let is_write = request.verb.kind == VerbKind::Write;
            let may_pass = is_write && !has_write && !request.verb.is_fenced;
            if place == 0 || may_pass {
                places.push(place);
            }
            if request.verb.is_fenced && place > 0 {
                // Nothing passes a verb that waits.
                break;
            }
            has_write |= is_write;
        }
        places
    }
}

impl Inner {
    /// Whether anything can happen on this connection.
    pub(super) fn is_busy(&self, number: usize) -> bool {
        let responder = &self.responders[number];
        !responder.queue.is_empty() || !responder.open.is_empty()
    }

    /// Lets one thing happen on the connection `number`.
    pub(super) fn advance(&mut self, number: usize) {
        let responder = &self.responders[number];
        if responder.is_broken || responder.is_revoked {
            // What was under way takes effect, up to some verb.
            if responder.queue.is_empty() || responder.is_revoked || self.random.u8(..4) == 0 {
                let responder = &mut self.responders[number];
                self.seen.dropped += responder.queue.len() as u64;
                responder.queue.clear();
                responder.open.clear();
                return;
            }
        } else {
            let first = responder.open.front().copied();
            let is_executed = |batch| !responder.queue.iter().any(|it| it.batch == batch);
            let complete = first.filter(|batch| is_executed(*batch));
            if let Some(batch) = complete
                && (responder.queue.is_empty() || self.random.bool())
            {
                self.responders[number].open.pop_front();
                self.batches.complete(batch, Outcome::Done);
                return;
            }
        }
        match self.random.u8(..8) {
            // The packet of the next verb is lost, and sent again later.
            0 => self.seen.lost += 1,
            1 => self.duplicate(number),
            _ => self.take_effect(number),
        }
    }

    /// A packet arrives that arrived before: the verb is not the next one, so it is dropped.
    fn duplicate(&mut self, number: usize) {
        let responder = &self.responders[number];
        let first_left = responder
            .queue
            .front()
            .map_or(responder.next, |it| it.sequence);
        if first_left == 0 {
            return;
        }
        let again = self.random.u64(..first_left);
        let is_expected = responder.queue.iter().any(|it| it.sequence == again);
        assert!(
            !is_expected,
            "a verb that took effect is not expected again"
        );
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

    /// Breaks connections: their posters learn that the outcome of each batch is unknown.
    pub(super) fn break_connections(&mut self, which: impl Fn(&Responder) -> bool) {
        for responder in &mut self.responders {
            if which(responder) && !responder.is_broken {
                responder.is_broken = true;
                for batch in responder.open.drain(..) {
                    if !responder.queue.iter().any(|it| it.batch == batch) {
                        self.seen.lost_answers += 1;
                    }
                    let server = responder.server;
                    let error = VerbError::Broken { server };
                    self.batches.complete(batch, Outcome::Failed(error));
                }
            }
        }
    }

    /// Ends the connections to a dead server.
    pub(super) fn end_connections_to(&mut self, server: ServerId) {
        for responder in self.responders.iter_mut().filter(|it| it.server == server) {
            responder.queue.clear();
            for batch in responder.open.drain(..) {
                let error = VerbError::ServerDied { server };
                self.batches.complete(batch, Outcome::Failed(error));
            }
        }
    }

    /// One server withdraws the rights of `compute`. Returns whether all have.
    pub(super) fn withdraw(&mut self, compute: ComputeId) -> bool {
        let left = |it: &&mut Responder| it.from == compute && !it.is_revoked;
        let mut left: Vec<_> = self.responders.iter_mut().filter(left).collect();
        if left.is_empty() {
            return true;
        }
        let which = self.random.usize(..left.len());
        let responder = &mut left[which];
        let server = responder.server;
        responder.is_revoked = true;
        self.seen.dropped += responder.queue.len() as u64;
        responder.queue.clear();
        for batch in responder.open.drain(..) {
            let error = VerbError::Revoked { server };
            self.batches.complete(batch, Outcome::Failed(error));
        }
        false
    }
}
