//! The release of stray latches, so that the process ids of failed compute servers can be assigned
//! again (*Tandem* thesis, section 4.3.1.2).
//!
//! The logs of these servers are recovered, so no operation of theirs takes effect any more, and
//! each of their latches is stray. A stray latch is released by a CAS from the word that was read,
//! as it is stolen: a WRITE could release the latch of a writer that has stolen it.
//!
//! # Why the next owner's latches are safe
//!
//! The thesis lets each compute server keep a bit for each failed id, which then has to be cleared
//! everywhere before the id is assigned. Here a worker asks for the *incarnation* that has failed
//! each time it meets a latch ([`View::failed`]). The next owner's latch words are read after it
//! has received the id. The worker that reads one therefore finds another incarnation, which has
//! not failed. A CAS from a word of the previous owner fails, because the attempts of the next one
//! begin elsewhere.

use super::view::View;
use super::worker::Worker;
use crate::tables::{LATCH, ObjectId, TransactionId};
use crate::verbs::{Batch, VerbError};

/// The number of latches that are read in one batch.
const LATCHES: usize = 64;

/// Releases all latches in the tables with these numbers that are held by compute servers which
/// failed in an incarnation for which `is_stray` holds. Transactions may run at the same time.
/// Returns the number of released latches.
///
/// # Errors
/// If a verb failed. After [`VerbError::ServerDied`], a worker of the next epoch repeats the scan.
///
/// # Crash
/// Some latches are released.
pub async fn release_stray<V: View>(
    worker: &Worker<V>,
    tables: impl Iterator<Item = u8>,
    is_stray: impl Fn(u16, u64) -> bool,
) -> Result<u64, VerbError> {
    // Called after the READ of a latch: see the module.
    let is_stray = |holder: TransactionId| {
        let failed = worker.view.failed(holder.process());
        failed.is_some_and(|incarnation| is_stray(holder.process(), incarnation))
    };
    let mut released = 0;
    for table in tables {
        for partition in 0..worker.layout(table).geometry.partitions {
            released += scan(worker, table, partition, &is_stray).await?;
        }
    }
    Ok(released)
}

/// Releases the latches on objects of a partition with holders for which `is_stray` holds. Returns
/// their number.
pub(super) async fn scan<V: View>(
    worker: &Worker<V>,
    table: u8,
    partition: u8,
    is_stray: impl Fn(TransactionId) -> bool,
) -> Result<u64, VerbError> {
    let geometry = worker.layout(table).geometry;
    let mut objects = geometry.objects(table, partition).map(|(object, _)| object);
    let mut released = 0;
    loop {
        let some: Vec<_> = objects.by_ref().take(LATCHES).collect();
        if some.is_empty() {
            return Ok(released);
        }
        released += release(worker, &some, &is_stray).await?;
    }
}

/// Releases stray latches of objects of one partition.
async fn release<V: View>(
    worker: &Worker<V>,
    objects: &[ObjectId],
    is_stray: impl Fn(TransactionId) -> bool,
) -> Result<u64, VerbError> {
    // A partition without replicas has no latches.
    let Some(place) = worker.primary(objects[0]) else {
        return Ok(0);
    };
    let mut batch = Batch::new();
    let latches = objects.iter().map(|it| place.of(*it, LATCH));
    let read: Vec<_> = latches.map(|at| (at, batch.read(at, 1))).collect();
    let batch = worker.repeat(place.server, batch).await?;
    let mut release = Batch::new();
    let mut swaps = Vec::new();
    for (at, slot) in read {
        let word = batch.value(slot);
        let Some(holder) = TransactionId::from_word(word) else {
            continue;
        };
        if is_stray(holder) {
            match worker.policy().recycles_by_swaps {
                true => swaps.push((release.compare_swap(at, word, 0), word)),
                false => release.write(at, &[0]),
            }
        }
    }
    if release.is_empty() {
        return Ok(0);
    }
    let release = worker.repeat(place.server, release).await?;
    let is_released = |(swap, word): &(_, u64)| release.value(*swap) == *word;
    Ok(swaps.iter().filter(|it| is_released(it)).count() as u64)
}
