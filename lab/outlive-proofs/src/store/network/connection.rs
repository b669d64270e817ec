//! The compute server's end of a connection.

use super::responder::Responder;
use super::{ComputeId, Network};
use core::pin::Pin;
use core::task::{Context, Poll};
use outlive_store::verbs::{Batch, Completed, Connection, Region, ServerId, Verb, VerbError};

/// The outcome of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outcome {
    Done,
    Failed(VerbError),
}

/// The batches of all connections.
#[derive(Debug, Default)]
pub(super) struct Batches(Vec<(Option<Batch>, Option<Outcome>)>);

impl Batches {
    fn add(&mut self, batch: Batch, outcome: Option<Outcome>) -> usize {
        self.0.push((Some(batch), outcome));
        self.0.len() - 1
    }

    pub fn complete(&mut self, number: usize, outcome: Outcome) {
        self.0[number].1 = Some(outcome);
    }

    /// The verbs of a batch that has not completed.
    pub fn verbs(&self, number: usize) -> Vec<Verb> {
        let batch = self.0[number].0.as_ref();
        batch.map_or_else(Vec::new, |batch| batch.verbs().to_vec())
    }

    /// Returns whether the batch has not been returned to its poster.
    pub fn has_buffer(&self, number: usize) -> bool {
        self.0[number].0.is_some()
    }

    /// The local buffer of a batch. Like a network card, the network may write to it even after the
    /// break of the connection was reported to the poster.
    pub fn buffer(&mut self, number: usize) -> &mut [u64] {
        match &mut self.0[number].0 {
            Some(batch) => batch.parts().1,
            None => unreachable!("a batch is taken when no verb of it can take effect any more"),
        }
    }
}

/// A connection of the simulated network.
#[derive(Clone, Debug)]
pub struct Wire {
    network: Network,
    number: usize,
    server: ServerId,
}

impl Wire {
    pub(super) fn new(network: Network, number: usize, server: ServerId) -> Self {
        Self {
            network,
            number,
            server,
        }
    }

    pub(super) fn number(&self) -> usize {
        self.number
    }

    pub(super) fn id(&self) -> ServerId {
        self.server
    }
}

impl Connection for Wire {
    type Completion = Posted;

    const CAN_BREAK: bool = true;

    fn server(&self) -> ServerId {
        self.server
    }

    fn is_broken(&self) -> bool {
        self.network.inner.borrow().responders[self.number].is_broken
    }

    fn region(&self) -> Region {
        self.network.region(self.server)
    }

    fn post(&self, batch: Batch) -> Posted {
        let region = self.region();
        let server = self.server;
        let mut verbs = batch.verbs().iter();
        let refused = verbs.find_map(|verb| region.check(server, verb).err());
        let inner = &mut *self.network.inner.borrow_mut();
        let responder = &mut inner.responders[self.number];
        let is_live = inner.servers[usize::from(server.0)].is_live;
        let failed = match () {
            () if refused.is_some() => refused,
            () if !is_live => Some(VerbError::ServerDied { server }),
            () if responder.is_revoked => Some(VerbError::Revoked { server }),
            () if responder.is_broken => Some(VerbError::Broken { server }),
            () => None,
        };
        let verbs = batch.verbs().to_vec();
        let number = inner.batches.add(batch, failed.map(Outcome::Failed));
        if failed.is_none() {
            responder.post(number, &verbs);
            let from = responder.from;
            let (number, last) = inner.posted.entry(from).or_default();
            *number += 1;
            *last = verbs;
        }
        Posted {
            network: self.network.clone(),
            number,
            rests_until: None,
        }
    }
}

/// The completion of a batch.
#[derive(Debug)]
pub struct Posted {
    network: Network,
    number: usize,
    /// The step until which the poster does not notice the completion.
    rests_until: Option<u64>,
}

impl Future for Posted {
    type Output = Completed;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Completed> {
        let this = self.get_mut();
        let inner = &mut *this.network.inner.borrow_mut();
        // A failure is noticed at once: its poster may be dead, and then no step follows.
        if let Some(Outcome::Done) = inner.batches.0[this.number].1 {
            let until = *this.rests_until.get_or_insert_with(|| inner.late());
            // If nothing else is under way, no step is executed, so the rest ends.
            if until > inner.steps && inner.responders.iter().any(Responder::is_busy) {
                return Poll::Pending;
            }
        }
        let (batch, outcome) = &mut inner.batches.0[this.number];
        let result = match outcome {
            None => return Poll::Pending,
            Some(Outcome::Done) => Ok(()),
            Some(Outcome::Failed(error)) => Err(*error),
        };
        // The network may still write to the buffer of a failed batch, so the poster gets a copy.
        let batch = match result {
            Ok(()) => batch.take(),
            Err(_) => batch.clone(),
        };
        let batch = batch.expect("a completion is not polled after it was ready");
        Poll::Ready(Completed { batch, result })
    }
}

/// The future of a new connection, which replaces a broken one.
#[derive(Debug)]
pub struct Reconnecting {
    network: Network,
    old: usize,
    server: ServerId,
}

impl Reconnecting {
    pub(super) fn new(network: Network, old: usize, server: ServerId) -> Self {
        Self {
            network,
            old,
            server,
        }
    }
}

impl Future for Reconnecting {
    type Output = Wire;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Wire> {
        match self.network.connect_again(self.old, self.server) {
            Some(wire) => Poll::Ready(wire),
            None => Poll::Pending,
        }
    }
}

/// A revocation. Each poll revokes the rights at one more server.
#[derive(Debug)]
pub struct Revoking {
    network: Network,
    compute: ComputeId,
}

impl Revoking {
    pub(super) fn new(network: Network, compute: ComputeId) -> Self {
        Self { network, compute }
    }
}

impl Future for Revoking {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        match self.network.inner.borrow_mut().withdraw(self.compute) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}
