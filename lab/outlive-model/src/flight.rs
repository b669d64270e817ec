//! The verbs in flight. Verbs on one connection take effect in the order in which they were posted,
//! and verbs on different connections in any order.
//!
//! A `WRITE` of several words is several verbs here, so a death may cut it. That a `WRITE` may pass
//! an earlier READ or CAS is not modelled: no batch of `pandora` has such a pair.

use crate::state::{COMPUTE_SERVERS, Entry, Tx, Version};

/// The owner of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Actor {
    /// A compute server.
    Compute(u8),
    /// The recoverer of a compute server.
    Recoverer(u8),
    /// A dead recoverer that was not fenced, or a broken connection that was not drained (unsound
    /// choices).
    Ghost(u8),
}

impl Actor {
    /// The compute server, or the one that is recovered.
    pub const fn of(self) -> usize {
        match self {
            Self::Compute(of) | Self::Recoverer(of) | Self::Ghost(of) => of as usize,
        }
    }
}

/// A verb, or a part of one. Objects are numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// READ of latch and version.
    ReadHead(u8),
    /// READ of the value.
    ReadValue(u8),
    /// READ of latch and version, after the value.
    ReadHeadAgain(u8),
    /// READ of version and value, after a CAS of the latch.
    ReadContents(u8),
    /// READ of the latch, for validation.
    ReadLatch(u8),
    /// READ of the version, for validation or a decision.
    ReadVersion(u8),
    /// CAS of the latch.
    Swap { object: u8, from: Tx, to: Tx },
    /// WRITE of 0 to the latch that a transaction holds.
    Release { object: u8, holder: Tx },
    /// WRITE of one word of the value.
    WriteWord { object: u8, word: u8, value: Tx },
    /// WRITE of both words of the value.
    WriteValue { object: u8, value: [Tx; 2] },
    /// WRITE of the version.
    WriteVersion { object: u8, version: Version },
    /// READ of the log slot.
    ReadLog,
    /// The first part of a WRITE of an entry of this transaction to the log slot. The slot holds no
    /// whole entry then, except another copy of the same one, whose words are the same.
    BeginLog(Tx),
    /// The last part.
    WriteLog(Entry),
    /// WRITE of 0 to the checksum of the log slot.
    Truncate,
}

/// A verb in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Posted {
    pub actor: Actor,
    pub server: u8,
    /// Whether the actor waits for the completion.
    pub is_awaited: bool,
    pub verb: Verb,
}

/// The verbs in flight, by connection, and on each connection in the order of posting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flight(Vec<Posted>);

impl Flight {
    /// Posts a verb.
    pub fn post(&mut self, posted: Posted) {
        let key = |it: &Posted| (it.actor, it.server);
        let at = self.0.partition_point(|it| key(it) <= key(&posted));
        self.0.insert(at, posted);
    }

    /// The connections with verbs in flight.
    pub fn connections(&self) -> impl Iterator<Item = (Actor, u8)> {
        let all = self.0.iter().map(|it| (it.actor, it.server));
        let mut last = None;
        all.filter(move |it| last.replace(*it) != Some(*it))
    }

    /// Returns the first verb of a connection.
    pub fn first(&self, actor: Actor, server: u8) -> Option<&Posted> {
        self.on(actor, server).next()
    }

    /// Removes the first verb of a connection and returns it.
    pub fn take(&mut self, actor: Actor, server: u8) -> Option<Posted> {
        let is_first = |it: &Posted| (it.actor, it.server) == (actor, server);
        let at = self.0.iter().position(is_first)?;
        Some(self.0.remove(at))
    }

    /// The verbs of a connection, in order.
    pub fn on(&self, actor: Actor, server: u8) -> impl Iterator<Item = &Posted> {
        let is_on_it = move |it: &&Posted| (it.actor, it.server) == (actor, server);
        self.0.iter().filter(is_on_it)
    }

    /// Removes all verbs of a connection and returns them.
    pub fn cut(&mut self, actor: Actor, server: u8) -> Vec<Posted> {
        let cut = self.on(actor, server).copied().collect();
        self.0.retain(|it| (it.actor, it.server) != (actor, server));
        cut
    }

    /// Whether the actor waits for a verb.
    pub fn is_awaited(&self, actor: Actor) -> bool {
        self.0.iter().any(|it| it.actor == actor && it.is_awaited)
    }

    /// Drops the verbs of an actor, whose rights are revoked.
    pub fn fence(&mut self, actor: Actor) {
        self.0.retain(|it| it.actor != actor);
    }

    /// Leaves the verbs of a recoverer to a ghost, whose answers are ignored.
    pub fn abandon(&mut self, of: u8) {
        let (gone, rest): (Vec<_>, Vec<_>) = core::mem::take(&mut self.0)
            .into_iter()
            .partition(|it| it.actor == Actor::Recoverer(of));
        self.0 = rest;
        for posted in gone {
            self.post(Posted {
                actor: Actor::Ghost(of),
                is_awaited: false,
                ..posted
            });
        }
    }

    /// Drops the verbs on a memory server that died. Returns the actors that waited for them.
    pub fn lose(&mut self, server: u8) -> Vec<Actor> {
        let on_it = self.0.iter().filter(|it| it.server == server);
        let mut waiting: Vec<_> = { on_it }
            .filter(|it| it.is_awaited)
            .map(|it| it.actor)
            .collect();
        waiting.dedup();
        self.0.retain(|it| it.server != server);
        waiting
    }

    /// Whether a release of the latch of `holder` is in flight that its compute server does not
    /// await.
    pub fn releases(&self, of: u8, server: u8, object: u8, holder: Tx) -> bool {
        let write = Verb::Release { object, holder };
        let swap = Verb::Swap {
            object,
            from: holder,
            to: 0,
        };
        { self.on(Actor::Compute(of), server) }.any(|it| it.verb == write || it.verb == swap)
    }

    /// Whether no verb is in flight.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

const _: () = assert!(COMPUTE_SERVERS <= 8, "known failures are bits of a byte");
