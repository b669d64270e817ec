//! A transaction that steals latches, and the scan that releases them before the process id of
//! their holder is used again, killed after every instruction; and broken variants, which a sweep
//! must find.

use super::small_store::{
    GEOMETRY, OTHER, SIZE, SURVIVOR, VICTIM, end_incarnation, incarnation, latch, recover_as,
    release, set_protocol, worker,
};
use super::transaction_sweeps::{create, execute, require_whole};
use outlive_memory::{Memory, Ordering};
use outlive_prove::kill::{Crash, Marked, Suite, Sweep};
use outlive_store::protocol::{Flaw, Policy, Protocol};
use outlive_store::tables::{ObjectId, TransactionId};

/// Adds the sweeps of this file.
pub fn add_to(suite: &mut Suite) {
    for protocol in [Protocol::Pandora, Protocol::LatchToLog] {
        suite.add(Steal(protocol, Policy::SOUND));
    }
    suite.add(Release(Order::LatchesFirst));
}

/// Returns the sweeps that must fail, each with a part of the expected message.
pub fn broken() -> Vec<(Box<dyn Sweep>, &'static str)> {
    let missing = Steal(Protocol::Pandora, Flaw::MissingActions.policy());
    vec![
        (Box::new(missing), "a slot is in use"),
        (
            Box::new(Release(Order::IdFirst)),
            "a latch of an earlier owner",
        ),
    ]
}

/// The latches that the victim has left: those of two slots and of the bucket.
fn stray() -> [ObjectId; 3] {
    let slot = |number| GEOMETRY.slot(0, 0, number);
    [slot(0), slot(1), GEOMETRY.bucket(0, 0, 0)]
}

/// Gives the latches to the victim, which has failed. Its logs are recovered.
fn leave_stray(memory: Marked) {
    for (attempt, object) in (1..).zip(stray()) {
        let holder = TransactionId::new(VICTIM, 0, attempt);
        memory.store(latch(object), holder.to_word(), Ordering::Release);
    }
    end_incarnation(memory, VICTIM);
}

/// The thief dies.
struct Steal(Protocol, Policy);

impl Sweep for Steal {
    fn name(&self) -> String {
        match self.0 {
            Protocol::Pandora => "store Steal".into(),
            protocol => format!("store Steal, {protocol}"),
        }
    }

    fn size(&self) -> u64 {
        SIZE
    }

    fn prepare(&self, memory: Marked) {
        set_protocol(memory, self.0);
        create(memory, self.1);
        leave_stray(memory);
    }

    fn operate(&self, memory: Marked) {
        execute(memory, SURVIVOR, self.1);
    }

    fn recover(&self, memory: Marked, _: &Crash) {
        recover_as(memory, SURVIVOR, || worker(memory, SURVIVOR, self.1));
    }

    fn check(&self, memory: Marked, crash: &Crash) -> Result<(), String> {
        require_whole(memory, OTHER, self.1, crash.returned)
    }
}

/// The order of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    LatchesFirst,
    /// Broken: the process id can be used again before its latches are released.
    IdFirst,
}

/// The scan dies, and the next one begins anew.
struct Release(Order);

impl Release {
    fn recycle(&self, memory: Marked, process: u16) {
        if self.0 == Order::IdFirst {
            end_incarnation(memory, VICTIM);
        }
        release(memory, process, Policy::SOUND);
        if self.0 == Order::LatchesFirst {
            end_incarnation(memory, VICTIM);
        }
    }
}

impl Sweep for Release {
    fn name(&self) -> String {
        "store Release".into()
    }

    fn size(&self) -> u64 {
        SIZE
    }

    fn prepare(&self, memory: Marked) {
        create(memory, Policy::SOUND);
        leave_stray(memory);
    }

    fn operate(&self, memory: Marked) {
        self.recycle(memory, SURVIVOR);
    }

    fn recover(&self, memory: Marked, _: &Crash) {
        if incarnation(memory, VICTIM) % 2 == 1 {
            self.recycle(memory, OTHER);
        }
    }

    fn check(&self, memory: Marked, _: &Crash) -> Result<(), String> {
        for object in stray() {
            let word = memory.load::<u64>(latch(object), Ordering::Acquire);
            if TransactionId::from_word(word).is_some_and(|it| it.attempt() < 1000) {
                return Err(format!("a latch of an earlier owner is left: {word:#x}"));
            }
        }
        // The next owner of the process id can write; the transaction was not executed.
        require_whole(memory, VICTIM, Policy::SOUND, false)
    }
}
