//! Interleavings of a read with a death and its recovery that are too rare for random runs.
//!
//! The victim has written 11 to the key 1, which was 10: its commit has reached the primary and not
//! the backup, so its recovery undoes the write. No read may return 11.

use super::small_store::{
    Actions, Moment, SIZE, SURVIVOR, Servers, TABLE, VICTIM, first_latch, recover, scripted,
    table_words, transact, whole,
};
use outlive_memory::{Memory, Native, Ordering, PersistenceDomain};
use outlive_store::protocol::{Coordinator, Policy};
use outlive_store::verbs::block_on;
use std::cell::RefCell;
use std::rc::Rc;

/// Where a read meets the death and the recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// The victim is recovered after the read, before the reader asks whether it has failed.
    BeforeAnswer,
    /// The same, and another coordinator of the reader's worker learns of the failure first.
    AfterSibling,
    /// The victim writes after the first READ of the object, and is recovered after the second one,
    /// that of the value.
    BetweenReads,
}

impl Meeting {
    /// All meetings.
    pub const ALL: [Self; 3] = [Self::BeforeAnswer, Self::AfterSibling, Self::BetweenReads];
}

/// The victim's write that does not reach the backup.
fn write_half(memory: Native) {
    let words = |server| table_words(server).map(|at| memory.load::<u64>(at, Ordering::Relaxed));
    let backup: Vec<u64> = words(1).collect();
    let id = transact(memory, VICTIM, Policy::SOUND, &[(1, Some(11))]).expect("a commit");
    for (at, word) in table_words(1).zip(backup) {
        memory.store(at, word, Ordering::Relaxed);
    }
    memory.store(first_latch(), id.to_word(), Ordering::Relaxed);
}

/// Executes a read at the meeting.
///
/// # Errors
/// If it returns the value that was undone.
pub fn read(meeting: Meeting, policy: Policy) -> Result<(), String> {
    let memory = Native::leaked(SIZE, PersistenceDomain::Flushed);
    transact(
        memory,
        SURVIVOR,
        Policy::SOUND,
        &[(1, Some(10)), (2, Some(20))],
    )?;
    // With the second coordinator of the reader's worker, if it takes part.
    let sibling = Rc::new(RefCell::new(None::<Coordinator<Servers<Native>>>));
    let recovering = move |memory| recover(memory, policy);
    let other = Rc::clone(&sibling);
    let script: Actions<Native> = match meeting {
        Meeting::BeforeAnswer => vec![(Moment::Answer, Box::new(recovering))],
        Meeting::AfterSibling => vec![(
            Moment::Reads(4),
            Box::new(move |memory| {
                // The victim also holds a latch that is not logged, on key 2.
                let latch = first_latch() + 48;
                memory.store(latch, u64::from(VICTIM) << 48 | 77, Ordering::Relaxed);
                recover(memory, policy);
                let mut other = other.borrow_mut();
                let other = other.as_mut().expect("a sibling");
                let done = other.transaction(async |tx| tx.write(TABLE, 2, &[22; 2]).await);
                assert!(
                    block_on(done).expect("a commit").value,
                    "a stray latch is stolen"
                );
            }),
        )],
        Meeting::BetweenReads => vec![
            (Moment::Reads(1), Box::new(write_half)),
            (Moment::Reads(2), Box::new(recovering)),
        ],
    };
    if meeting != Meeting::BetweenReads {
        write_half(memory);
    }
    let worker = scripted(memory, SURVIVOR, policy, script);
    let mut reader = worker.coordinator().expect("a slot");
    *sibling.borrow_mut() = Some(worker.coordinator().expect("a slot"));
    let read = reader.transaction(async |tx| tx.read(TABLE, 1).await);
    let value = block_on(read).map_err(|error| error.to_string())?.value;
    *sibling.borrow_mut() = None;
    match whole(value) {
        Some(10) => Ok(()),
        other => Err(format!(
            "{other:?} was read after the write of 11 was undone"
        )),
    }
}
