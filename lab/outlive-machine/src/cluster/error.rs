//! Errors of a cluster that cannot be made, or whose threads deadlock.

use crate::description::Impossible;
use crate::engine::Time;
use crate::program::{Image, Synchronisation, Word};
use crate::protocol::MAX_NODES;

/// The reason why a cluster cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterError {
    /// Such a machine cannot exist.
    #[error("this machine is not possible: {0}")]
    Impossible(Impossible),
    /// A directory cannot tell the nodes apart.
    #[error(
        "a machine has at most {MAX_NODES} compute nodes, and this one has {0}; describe fewer"
    )]
    TooManyNodes(u32),
    /// The machine has fewer cores than the workload has threads.
    #[error(
        "{threads} threads (of a trace, with the main one) do not fit on {cores} cores; describe more nodes, or more cores of each (--machine)"
    )]
    TooManyThreads {
        /// Threads of the workload.
        threads: usize,
        /// Cores of the machine.
        cores: usize,
    },
    /// The workload names a word outside shared memory.
    #[error("{what} is {word:?}, and shared memory has {words} words; enlarge the image")]
    OutsideMemory {
        /// The item that names the word.
        what: &'static str,
        /// The word.
        word: Word,
        /// The number of words of shared memory.
        words: u64,
    },
}

/// The threads deadlock: each waits for an action that no thread will do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("deadlock at {at}: no event is pending, and {} threads have not ended: {}", .threads.len(), .threads.join("; "))]
pub struct Stuck {
    /// The time of the last event.
    pub at: Time,
    /// Each thread that has not ended, and the object that it waits for, as far as that is known.
    pub threads: Vec<String>,
}

/// Checks that the words that the workload names are in its memory.
pub(super) fn check_workload(
    image: &Image,
    synchronisation: &Synchronisation,
) -> Result<(), ClusterError> {
    let outside = |what, word: Word| {
        (word.0 >= image.words).then_some(ClusterError::OutsideMemory {
            what,
            word,
            words: image.words,
        })
    };
    let ends = image.runs.iter().filter(|(_, values)| !values.is_empty());
    let last = |(first, values): &(Word, Vec<u64>)| first.offset(values.len() as u64 - 1);
    let runs = ends.filter_map(|run| outside("the end of a run of the image", last(run)));
    let locks = synchronisation
        .locks
        .iter()
        .filter_map(|word| outside("a lock", *word));
    let conditions = synchronisation.conditions.iter();
    let conditions = conditions.filter_map(|word| outside("a condition", *word));
    let barriers = synchronisation.barriers.iter();
    let barriers = barriers.filter_map(|barrier| {
        let flag = Word((barrier.counter.line().0 + 1) * Word::PER_LINE);
        outside("a barrier's flag", flag)
    });
    match runs.chain(locks).chain(conditions).chain(barriers).next() {
        Some(error) => Err(error),
        None => Ok(()),
    }
}
