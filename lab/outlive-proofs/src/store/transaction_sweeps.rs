//! A transaction that writes, inserts and deletes, killed after every instruction together with the
//! recoveries of its logs; and broken variants, which a sweep must find.

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

struct Transactions(Protocol, Policy);

/// The keys before the transaction.
const BEFORE: [Pair; 3] = [(1, Some(10)), (3, None), (2, Some(20))];
/// The keys after it: it writes 1, inserts 3 into a new slot and deletes 2.
const AFTER: [Pair; 3] = [(1, Some(11)), (3, Some(30)), (2, None)];

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
        transact(memory, SURVIVOR, self.1, &BEFORE).expect("a commit");
    }

    fn operate(&self, memory: Marked) {
        transact(memory, VICTIM, self.1, &AFTER).expect("a commit");
    }

    fn recover(&self, memory: Marked, _: &Crash) {
        recover(memory, self.1);
    }

    fn check(&self, memory: Marked, crash: &Crash) -> Result<(), String> {
        let worker = worker(memory, SURVIVOR, self.1);
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
        if found != AFTER && (found != BEFORE || crash.returned) && !is_checked {
            return Err(format!("the keys are {found:?}"));
        }
        drop(coordinator);
        // Every object can be written: stray latches are stolen.
        let next = [(1, Some(12)), (2, Some(22)), (3, Some(32)), (4, Some(42))];
        transact(memory, SURVIVOR, self.1, &next)?;
        let checked = block_on(check(&worker, core::iter::once(0), |_| false));
        let checked = checked.map_err(|error| error.to_string())?;
        if checked.keys != 4 || checked.held > 0 || !checked.problems.is_empty() {
            return Err(format!("{checked:?}"));
        }
        Ok(())
    }
}
