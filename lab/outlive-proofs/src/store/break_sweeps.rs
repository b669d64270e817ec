//! The transaction of [`transaction_sweeps`](super::transaction_sweeps) on connections that break,
//! killed after every instruction together with the recoveries of its logs, whose connections break
//! too; and broken variants, which a sweep must find.
//!
//! The first batch of each kind to each memory server is cut. The transaction takes some attempts,
//! because an attempt ends if its CAS, its validation or its log has no answer. After the release
//! of its latches, another server latches one of the objects before the connection opens again.

use super::breaking::{Breaking, Part, end_foreign};
use super::small_store::{SIZE, VICTIM, linked, recover_as, transact_on};
use super::transaction_sweeps::{AFTER, Transactions};
use outlive_prove::kill::{Crash, Marked, Suite, Sweep};
use outlive_store::protocol::{Flaw, Policy, Protocol, Retry};
use outlive_store::verbs::block_on;

/// Adds the sweeps of this file.
pub fn add_to(suite: &mut Suite) {
    for protocol in Protocol::ALL {
        suite.add(Breaks::new(protocol, Policy::SOUND, Part::Everything));
    }
    for part in [Part::Nothing, Part::Half] {
        suite.add(Breaks::new(Protocol::Pandora, Policy::SOUND, part));
    }
}

/// Returns the sweeps that must fail, each with a part of the expected message.
pub fn broken() -> Vec<(Box<dyn Sweep>, &'static str)> {
    [
        (Flaw::RepeatsLatching, "the keys are"),
        (Flaw::RepeatsReleasing, "a live transaction lost its latch"),
    ]
    .map(|(flaw, message)| -> (Box<dyn Sweep>, _) {
        let broken = Breaks::new(Protocol::Pandora, flaw.policy(), Part::Everything);
        (Box::new(broken), message)
    })
    .into()
}

struct Breaks {
    transactions: Transactions,
    part: Part,
}

impl Breaks {
    fn new(protocol: Protocol, policy: Policy, part: Part) -> Self {
        Self {
            transactions: Transactions(protocol, policy),
            part,
        }
    }
}

impl Sweep for Breaks {
    fn name(&self) -> String {
        match (self.transactions.0, self.part) {
            (Protocol::Pandora, Part::Everything) => "store Breaks".into(),
            (protocol, Part::Everything) => format!("store Breaks, {protocol}"),
            (_, Part::Nothing) => "store Breaks, lost batches".into(),
            (_, Part::Half) => "store Breaks, cut batches".into(),
        }
    }

    fn size(&self) -> u64 {
        SIZE
    }

    fn prepare(&self, memory: Marked) {
        self.transactions.prepare(memory);
    }

    fn operate(&self, memory: Marked) {
        let worker = linked(
            memory,
            VICTIM,
            self.transactions.1,
            Breaking::new(self.part),
        );
        // A broken variant does not commit. The check finds that.
        let retry = Retry {
            attempts: 12,
            pause: 1,
            ..Retry::default()
        };
        let _ = transact_on(&worker, retry, &AFTER);
        block_on(worker.finish()).expect("live memory servers");
    }

    fn recover(&self, memory: Marked, _: &Crash) {
        let links = Breaking::new(self.part);
        recover_as(memory, VICTIM, || {
            linked(memory, VICTIM, self.transactions.1, links)
        });
    }

    fn check(&self, memory: Marked, crash: &Crash) -> Result<(), String> {
        end_foreign(memory)?;
        self.transactions.check(memory, crash)
    }
}
