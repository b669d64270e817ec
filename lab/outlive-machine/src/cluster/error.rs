//! Why a cluster cannot be made, or does not come to an end.

use crate::description::Impossible;
use crate::engine::Time;
use crate::program::{Image, Synchronisation, Word};
use crate::protocol::MAX_NODES;

/// Why a cluster cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterError {
    /// There is no such machine.
    #[error("no such machine can be: {0}")]
    Impossible(Impossible),
    /// A directory cannot tell the nodes apart.
    #[error("a directory tells {MAX_NODES} compute nodes apart, and these are {0}; describe fewer")]
    TooManyNodes(u32),
    /// There are not as many cores.
    #[error(
        "{threads} threads (of a trace, with the main one) do not fit on {cores} cores; describe more nodes, or more cores of each (--machine)"
    )]
    TooManyThreads {
        /// Of the workload.
        threads: usize,
        /// Of the machine.
        cores: usize,
    },
    /// The workload names a word that shared memory has not.
    #[error("{what} is {word:?}, and shared memory has {words} words; enlarge the image")]
    OutsideMemory {
        /// What stands there.
        what: &'static str,
        /// Where.
        word: Word,
        /// How many there are.
        words: u64,
    },
}

/// Threads wait for what nobody will do: a workload that deadlocks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nothing happens any more at {at}, and {} threads have not ended: {}", .threads.len(), .threads.join("; "))]
pub struct Stuck {
    /// When the last event was.
    pub at: Time,
    /// Each thread that has not ended, and what it waits for as far as that is known.
    pub threads: Vec<String>,
}

/// Whether what the workload names is in its memory.
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
