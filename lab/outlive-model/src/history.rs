//! The answers to clients and the reads of transactions: the record on which the properties are
//! judged. It has no effect on the protocol.

use crate::state::{OBJECTS, Tx};

/// The largest number of transactions.
pub const TRANSACTIONS: usize = 4;

/// The answer to the client of a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The transaction has not begun, or has no answer yet. If its compute server has died, it
    /// never gets one.
    #[default]
    None,
    Committed,
    Aborted,
}

/// Events that must not happen, 1 bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A verb of a compute server took effect after its recovery began.
    AccessAfterRecovery = 1,
    /// A latch was stolen whose transaction has a log entry.
    StolenLogged = 2,
    /// A version was set back.
    EarlierVersion = 4,
    /// A transaction relied on a value of which another one had written a part.
    TornValue = 8,
}

/// The record of the transactions. Number 0 is the initial state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct History {
    pub answers: [Answer; TRANSACTIONS + 1],
    /// The transaction whose value each transaction read from each object, for those that were
    /// logged or committed.
    pub reads: [[Option<Tx>; OBJECTS]; TRANSACTIONS + 1],
    /// The transactions that were committed before each one began, 1 bit each.
    pub before: [u8; TRANSACTIONS + 1],
    pub faults: u8,
}

impl History {
    pub fn fault(&mut self, fault: Fault) {
        self.faults |= fault as u8;
    }

    pub fn has(&self, fault: Fault) -> bool {
        self.faults & fault as u8 != 0
    }

    /// The transactions that were committed and acknowledged, 1 bit each.
    pub fn committed(&self) -> u8 {
        (1..=TRANSACTIONS)
            .filter(|it| self.answers[*it] == Answer::Committed)
            .fold(0, |bits, it| bits | 1 << it)
    }

    /// Whether an object whose value is that of `value` has the write of `tx`: it is that value, or
    /// one that a later transaction wrote in its place.
    pub fn includes(&self, value: Tx, object: usize, tx: Tx) -> bool {
        let mut value = value;
        // A chain that is longer than this is a cycle.
        for _ in 0..=TRANSACTIONS {
            if value == tx {
                return true;
            }
            match self.reads[usize::from(value)][object] {
                Some(before) if value != 0 => value = before,
                _ => return false,
            }
        }
        false
    }

    /// Whether the transactions in `set` are strictly serializable. `writes` tells whether a
    /// transaction writes an object.
    pub fn is_serializable(&self, set: u8, writes: impl Fn(usize, usize) -> bool) -> bool {
        let members = || (1..=TRANSACTIONS).filter(|it| set >> it & 1 != 0);
        // The transactions that must come after each one, 1 bit each.
        let mut after = [0u8; TRANSACTIONS + 1];
        for tx in members() {
            for earlier in members().filter(|it| self.before[tx] >> it & 1 != 0) {
                after[earlier] |= 1 << tx;
            }
            for object in 0..OBJECTS {
                let Some(from) = self.reads[tx][object] else {
                    continue;
                };
                after[usize::from(from)] |= 1 << tx;
                let replaced = |it: &usize| {
                    *it != tx && writes(*it, object) && self.reads[*it][object] == Some(from)
                };
                for other in members().filter(replaced) {
                    after[tx] |= 1 << other;
                }
            }
        }
        for via in members() {
            for tx in members()
                .filter(|it| after[*it] >> via & 1 != 0)
                .collect::<Vec<_>>()
            {
                after[tx] |= after[via];
            }
        }
        members().all(|tx| after[tx] >> tx & 1 == 0)
    }
}
