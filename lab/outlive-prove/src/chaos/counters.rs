//! Counters under locks.
//!
//! ```text
//!  Tatas, queue lock:  lock | 0x80 count | 0x100 the same | 0x200 each worker's last intent carried out
//!  mutex:              a value with all of it
//! ```
//!
//! Under logged locks, a redo transaction stores all words and finishes the operation's descriptor.

use super::ledger::{COUNTERS, Intent};
use super::stage::{COUNT, MOST_WORKERS, Stage, text};
use super::worker::Hands;
use bytemuck::{Pod, Zeroable};
use outlive::membership::Member;
use outlive::recovery::{OwnLog, Progress, Recoverers, Redo, RedoError};
use outlive::sync::{Abandoned, QueueLock, RecoverableMutex, Repair, Tatas};
use outlive_memory::{Memory, Offset, Ordering};

const COUNT_AT: u64 = 0x80;
const MIRROR_AT: u64 = 0x100;
const LAST_AT: u64 = 0x200;

/// The kind of lock of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Tatas,
    Queue,
    Mutex,
}

/// Returns the kind of counter `number`.
pub fn kind(number: u64) -> Kind {
    [Kind::Tatas, Kind::Queue, Kind::Mutex][number as usize % 3]
}

/// A counter behind a mutex.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Purse {
    count: u64,
    mirror: u64,
    last: [u64; MOST_WORKERS as usize],
}

impl Repair for Purse {
    fn repair(&mut self, _: Abandoned) {
        // A change is made by one commit, so there is nothing to repair.
    }
}

fn last_at(at: Offset, worker: u32) -> Offset {
    at + LAST_AT + u64::from(worker) * 8
}

/// Carries out `intent`, which is to count.
pub fn count(hands: &Hands<'_>, intent: Intent) -> Result<bool, String> {
    let (stage, member) = (hands.stage, hands.member);
    let at = stage.counter(intent.which);
    match kind(intent.which) {
        Kind::Tatas => {
            let lock = Tatas::new(stage.memory, at);
            let held = lock.lock(member, hands.recoverers).map_err(text)?;
            add(hands, at, intent, || held.redo())?;
        }
        Kind::Queue => {
            let lock = QueueLock::new(stage.memory, at);
            let held = lock.lock(member, hands.recoverers).map_err(text)?;
            add(hands, at, intent, || held.redo())?;
        }
        Kind::Mutex => {
            let mutex = RecoverableMutex::<Purse>::at(stage.memory, at);
            let mut purse = mutex.lock(member).map_err(text)?;
            if purse.count != purse.mirror {
                return Err(format!(
                    "counter {} is half-done: {} and {}",
                    intent.which, purse.count, purse.mirror
                ));
            }
            purse.count += 1;
            purse.mirror += 1;
            purse.last[hands.worker as usize] = intent.sequence;
            hands.dawdle(256);
            purse.commit();
            hands.dawdle(256);
        }
    }
    Ok(true)
}

fn add<'g>(
    hands: &Hands<'_>,
    at: Offset,
    intent: Intent,
    redo: impl FnOnce() -> Result<Redo<'g>, RedoError>,
) -> Result<(), String> {
    let log = OwnLog::of(hands.member);
    let operation = log.begin(COUNT, &[intent.sequence, intent.which]);
    let mut redo = redo().map_err(text)?;
    let (count, mirror): (u64, u64) = (redo.load(at + COUNT_AT), redo.load(at + MIRROR_AT));
    if count != mirror {
        return Err(format!(
            "counter {} is half-done: {count} and {mirror}",
            intent.which
        ));
    }
    redo.store(at + COUNT_AT, count + 1).map_err(text)?;
    redo.store(last_at(at, hands.worker), intent.sequence)
        .map_err(text)?;
    redo.store(at + MIRROR_AT, count + 1).map_err(text)?;
    operation.finish_by(&mut redo, &[count + 1]).map_err(text)?;
    hands.dawdle(256);
    redo.commit();
    hands.dawdle(256);
    Ok(())
}

/// Returns whether `intent`, inherited from a former incarnation, took effect.
pub fn ask(hands: &Hands<'_>, intent: Intent) -> Result<bool, String> {
    let at = hands.stage.counter(intent.which);
    if kind(intent.which) == Kind::Mutex {
        let mutex = RecoverableMutex::<Purse>::at(hands.stage.memory, at);
        let purse = mutex.lock(hands.member).map_err(text)?;
        return Ok(purse.last[hands.worker as usize] == intent.sequence);
    }
    let inherited = OwnLog::of(hands.member).log().inherited().map_err(text)?;
    let ours = inherited.filter(|operation| {
        operation.kind == COUNT && operation.arguments[..2] == [intent.sequence, intent.which]
    });
    let told = match ours {
        None => false,
        Some(operation) => match operation.progress {
            Progress::Done => true,
            Progress::Undone => false,
            Progress::Running => {
                return Err(format!(
                    "intent {} was inherited without being settled",
                    intent.sequence
                ));
            }
        },
    };
    // The second source: a word that only this worker's transactions write.
    let last: u64 = hands
        .stage
        .memory
        .load(last_at(at, hands.worker), Ordering::Acquire);
    if told != (last == intent.sequence) {
        return Err(format!(
            "whether intent {} at counter {} took effect: the descriptor says {told}, but the last \
             executed intent is {last}",
            intent.sequence, intent.which
        ));
    }
    Ok(told)
}

/// Returns the faults in the counters, compared with the sums of the tallies.
pub fn audit(
    stage: Stage,
    member: &Member,
    recoverers: &Recoverers,
    expected: &[u64; COUNTERS],
) -> Vec<String> {
    let mut wrong = Vec::new();
    for (number, expected) in (0..).zip(*expected) {
        let at = stage.counter(number);
        let word = |offset| stage.memory.load::<u64>(at + offset, Ordering::Acquire);
        let (count, mirror, held) = match kind(number) {
            Kind::Tatas => {
                let held = Tatas::new(stage.memory, at).holder().is_some();
                (word(COUNT_AT), word(MIRROR_AT), held)
            }
            Kind::Queue => {
                let held = QueueLock::new(stage.memory, at).is_held(recoverers.logs());
                (word(COUNT_AT), word(MIRROR_AT), held)
            }
            Kind::Mutex => {
                let mutex = RecoverableMutex::<Purse>::at(stage.memory, at);
                match mutex.lock(member) {
                    Ok(purse) => (purse.count, purse.mirror, false),
                    Err(error) => {
                        wrong.push(error.to_string());
                        continue;
                    }
                }
            }
        };
        let kind = kind(number);
        if held {
            wrong.push(format!(
                "counter {number} ({kind:?}): its lock is held, though all members have left"
            ));
        }
        if count != mirror {
            wrong.push(format!(
                "counter {number} ({kind:?}) is half-done: {count} and {mirror}"
            ));
        }
        if count != expected {
            wrong.push(format!(
                "counter {number} ({kind:?}) stands at {count}, but {expected} counts were \
                 confirmed"
            ));
        }
    }
    wrong
}
