//! A transaction that reads, writes, inserts and deletes, killed after every instruction together
//! with the recoveries of its logs, and two that remove a bucket from a chain and use it again; and
//! broken variants, which a sweep must find.

use super::small_store::{
    Pair, SIZE, SURVIVOR, TABLE, VICTIM, recover, set_protocol, transact, whole, worker,
};
use outlive_prove::kill::{Crash, Marked, Suite, Sweep};
use outlive_store::protocol::{Flaw, Policy, Protocol, check};
use outlive_store::verbs::block_on;

/// Adds the sweeps of this file.
pub fn add_to(suite: &mut Suite) {
    for protocol in Protocol::ALL {
        suite.add(Transactions(protocol, Policy::SOUND));
        suite.add(Chain(protocol));
    }
}

/// Returns the sweeps that must fail, each with a part of the expected message.
pub fn broken() -> Vec<(Box<dyn Sweep>, &'static str)> {
    let missing = |protocol| {
        let broken = Transactions(protocol, Flaw::MissingActions.policy());
        (Box::new(broken) as Box<dyn Sweep>, "a slot is in use")
    };
    Protocol::ALL.map(missing).into()
}

/// The transaction, under a protocol and its choices.
pub(super) struct Transactions(pub Protocol, pub Policy);

/// The keys before the transaction.
pub(super) const BEFORE: [Pair; 3] = [(1, Some(10)), (3, None), (2, Some(20))];
/// The keys after it: it writes 1, inserts 3 into a new slot and deletes 2.
pub(super) const AFTER: [Pair; 3] = [(1, Some(11)), (3, Some(30)), (2, None)];
/// A key that exists, and that the transaction only reads.
const READ: u64 = 5;

/// Creates the keys, as the survivor.
pub(super) fn create(memory: Marked, policy: Policy) {
    for keys in [&BEFORE[..], &[(READ, Some(50))]] {
        transact(memory, SURVIVOR, policy, keys).expect("a commit");
    }
}

/// Executes the transaction, as the compute server `process`.
pub(super) fn execute(memory: Marked, process: u16, policy: Policy) {
    let worker = worker(memory, process, policy);
    let mut coordinator = worker.coordinator().expect("a slot");
    let done = coordinator.transaction(async |tx| {
        assert_eq!(whole(tx.read(TABLE, READ).await?), Some(50));
        tx.put(TABLE, 1, &[11; 2]).await?;
        tx.put(TABLE, 3, &[30; 2]).await?;
        tx.delete(TABLE, 2).await
    });
    block_on(done).expect("a commit");
}

/// Requires that the transaction has taken effect or has not, and that `process`, which lives, can
/// write every key.
pub(super) fn require_whole(
    memory: Marked,
    process: u16,
    policy: Policy,
    has_returned: bool,
) -> Result<(), String> {
    let worker = worker(memory, process, policy);
    let mut coordinator = worker.coordinator().expect("a slot");
    let done = coordinator.transaction(async |tx| {
        let mut found = BEFORE;
        for (key, value) in &mut found {
            *value = whole(tx.read(TABLE, *key).await?);
        }
        Ok(found)
    });
    let found = block_on(done).map_err(|error| error.to_string())?.value;
    // The check runs again after a second recovery.
    let is_checked = found == [(1, Some(12)), (3, Some(32)), (2, Some(22))];
    if found != AFTER && (found != BEFORE || has_returned) && !is_checked {
        return Err(format!("the keys are {found:?}"));
    }
    drop(coordinator);
    // Every object can be written: stray latches are stolen.
    let next = [(1, Some(12)), (2, Some(22)), (3, Some(32)), (4, Some(42))];
    transact(memory, process, policy, &next)?;
    transact(memory, process, policy, &[(READ, Some(50))])?;
    let checked = block_on(check(&worker, core::iter::once(0), |_| false));
    let checked = checked.map_err(|error| error.to_string())?;
    if checked.keys != 5 || checked.held > 0 || !checked.problems.is_empty() {
        return Err(format!("{checked:?}"));
    }
    Ok(())
}

impl Sweep for Transactions {
    fn name(&self) -> String {
        match self.0 {
            Protocol::Pandora => "store Transaction".into(),
            protocol => format!("store Transaction, {protocol}"),
        }
    }

    fn size(&self) -> u64 {
        SIZE
    }

    fn prepare(&self, memory: Marked) {
        set_protocol(memory, self.0);
        create(memory, self.1);
    }

    fn operate(&self, memory: Marked) {
        execute(memory, VICTIM, self.1);
    }

    fn recover(&self, memory: Marked, _: &Crash) {
        recover(memory, self.1);
    }

    fn check(&self, memory: Marked, crash: &Crash) -> Result<(), String> {
        require_whole(memory, SURVIVOR, self.1, crash.returned)
    }
}

/// The deletion of the only key of an extra bucket, and the insertion of another key.
struct Chain(Protocol);

/// The keys that fill the main bucket.
const MAIN: core::ops::Range<u64> = 11..19;

impl Chain {
    /// Gives a key a value, or deletes it, in a transaction of the survivor.
    fn put(memory: Marked, pair: Pair) -> Result<(), String> {
        transact(memory, SURVIVOR, Policy::SOUND, &[pair]).map(drop)
    }

    /// Requires that `keys` keys exist, and that `extra` buckets extend the chain.
    fn expect(memory: Marked, keys: u64, extra: u64) -> Result<(), String> {
        let worker = worker(memory, SURVIVOR, Policy::SOUND);
        let checked = block_on(check(&worker, core::iter::once(0), |_| false));
        let checked = checked.map_err(|error| error.to_string())?;
        match checked.held == 0 && checked.problems.is_empty() {
            true if (checked.keys, checked.extra) == (keys, extra) => Ok(()),
            _ => Err(format!("{checked:?}")),
        }
    }
}

impl Sweep for Chain {
    fn name(&self) -> String {
        match self.0 {
            Protocol::Pandora => "store Chain".into(),
            protocol => format!("store Chain, {protocol}"),
        }
    }

    fn size(&self) -> u64 {
        SIZE
    }

    fn prepare(&self, memory: Marked) {
        set_protocol(memory, self.0);
        for key in MAIN.chain([2]) {
            Self::put(memory, (key, Some(20))).expect("a commit");
        }
    }

    fn operate(&self, memory: Marked) {
        let worker = worker(memory, VICTIM, Policy::SOUND);
        let mut coordinator = worker.coordinator().expect("a slot");
        let deleting = coordinator.transaction(async |tx| tx.delete(TABLE, 2).await);
        block_on(deleting).expect("a commit");
        let inserting = coordinator.transaction(async |tx| tx.insert(TABLE, 3, &[30; 2]).await);
        block_on(inserting).expect("a commit");
    }

    fn recover(&self, memory: Marked, _: &Crash) {
        recover(memory, Policy::SOUND);
    }

    fn check(&self, memory: Marked, crash: &Crash) -> Result<(), String> {
        let worker = worker(memory, SURVIVOR, Policy::SOUND);
        let mut coordinator = worker.coordinator().expect("a slot");
        let done = coordinator.transaction(async |tx| {
            let second = whole(tx.read(TABLE, 2).await?);
            Ok((second, whole(tx.read(TABLE, 3).await?)))
        });
        let found = block_on(done).map_err(|error| error.to_string())?.value;
        drop(coordinator);
        match found {
            // The second one is left by an earlier check of this memory.
            (None, Some(30 | 32)) => {}
            (Some(20), None) | (None, None) if !crash.returned => {}
            _ => return Err(format!("the keys 2 and 3 are {found:?}")),
        }
        // The bucket can leave the chain and join it, also with stray latches.
        Self::put(memory, (2, None))?;
        Self::put(memory, (3, None))?;
        Self::expect(memory, 8, 0)?;
        Self::put(memory, (3, Some(32)))?;
        Self::expect(memory, 9, 1)
    }
}
