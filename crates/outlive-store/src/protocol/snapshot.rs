//! Snapshots: all rows of tables as they were at one moment, read while transactions run.
//!
//! A snapshot reads all words of the primaries four times, one after another:
//!
//! 1. of each partition, READ A for the versions, then READ B for the values;
//! 2. after all partitions, READ C for the latches, then READ D for the versions again.
//!
//! It is the state of the tables between the two passes if each latch in C is free or stray, and
//! each version in D is that in A. Otherwise it is read again. The argument for one object with
//! version v in A:
//!
//! * A commit holds the latch while it writes the value and then the version, and versions rise.
//!   The words in B are therefore those of v or of later versions.
//! * A transaction that had acquired the latch before C has released it before C, so its version is
//!   written, and D would see it if it were later than v. So no later version is written before C,
//!   and B has the value of v.
//! * A transaction that acquires the latch after C takes effect after that, because its validation
//!   follows. So v is the last version between the passes.
//!
//! A failed compute server's undone writes have fresh versions, and a latch that becomes stray
//! under the snapshot is read again.
//!
//! # Epochs
//!
//! An attempt belongs to the epoch of its worker at its beginning. After its last READ it checks
//! whether that epoch [is over](Member::is_over). If not, no later one had begun before, because
//! changes are only appended. So each layout that was read is that of the epoch, all READs were on
//! its primaries, and no primary of a later epoch was used. If the epoch is over, the attempt
//! counts as interrupted, regardless of its result. Even an error may be false:
//!
//! * The place of a replica that was lost after the end of the epoch may be overwritten by that of
//!   a replica which the epoch does not use. In a layout that is read after that, another replica
//!   seems to be the primary, or none is left: [`Abort::Lost`], although another replica has the
//!   keys.
//! * Another coordinator of the worker may have begun the next epoch between two READs. They may
//!   then be on different replicas, of which a later one need not have the writes of an earlier
//!   epoch yet: [`Abort::Damaged`], although no replica is damaged.
//!
//! The next attempt begins in a later epoch. An error that is true is found again there, and is
//! returned as soon as no change interrupts the attempt.

use super::coordinator::{Coordinator, is_over};
use super::transaction::Latch;
use super::view::Member;
use super::worker::Worker;
use super::{Abort, Conflict, TransactionError, check::Replica};
use crate::tables::{BUCKET_WORDS, Bucket, Geometry, KEYS_PER_BUCKET, Version};
use crate::verbs::VerbError;
use std::collections::BTreeMap;

/// The rows of a table: the words of each key's value.
pub type Rows = BTreeMap<u64, Box<[u64]>>;

impl<V: Member> Coordinator<V> {
    /// Reads all rows of the tables with these numbers, as they were at one moment of this call: a
    /// transaction that only reads. The rows of table `tables[i]` are element i of the result.
    ///
    /// The tables are read until no transaction changes them meanwhile, as often as the coordinator
    /// [retries](super::Retry) a transaction. The memory of the caller holds the rows, 8 bytes for
    /// each object (each free slot is one), and two copies of one partition. On mapped memory an
    /// attempt is one poll, during which the thread's other coordinators wait.
    ///
    /// # Errors
    /// [`TransactionError`], of which `Unknown` does not occur. After `TooManyConflicts`, the last
    /// conflict tells whether transactions changed the tables or a server had died.
    ///
    /// # Panics
    /// If there is no table with one of the numbers.
    pub async fn snapshot(&mut self, tables: &[u8]) -> Result<Vec<Rows>, TransactionError> {
        let end = self.retry.end();
        let mut attempts = 0;
        loop {
            self.worker.renew(end).await?;
            let epoch = self.worker.epoch();
            self.worker.wait_for_recoveries(end).await?;
            attempts += 1;
            let last = match collect(&self.worker, tables).await {
                _ if self.worker.view.is_over(epoch) => Conflict::Interrupted,
                Ok(rows) => return Ok(rows),
                Err(Abort::Conflict(conflict)) => conflict,
                Err(Abort::Verb(VerbError::ServerDied { .. })) => Conflict::Interrupted,
                Err(abort) => return Err(TransactionError::Aborted(abort)),
            };
            if attempts >= self.retry.attempts {
                return Err(TransactionError::TooManyConflicts { attempts, last });
            }
            if is_over(end) {
                return Err(TransactionError::DeadlineExceeded);
            }
            self.pause(attempts).await;
        }
    }
}

/// Reads the tables once. The result is valid only if the epoch is not over after it.
async fn collect<V: Member>(worker: &Worker<V>, tables: &[u8]) -> Result<Vec<Rows>, Abort> {
    let (mut collected, mut versions) = (Vec::new(), Vec::new());
    let mut damage = None;
    for table in tables {
        let geometry = worker.layout(*table).geometry;
        let mut rows = Rows::new();
        for partition in 0..geometry.partitions {
            let first = primary(worker, *table, partition).await?;
            let second = primary(worker, *table, partition).await?;
            let objects = geometry.objects(*table, partition);
            versions.extend(objects.map(|(object, words)| first.object(object, words).version));
            let found = rows_of(geometry, (*table, partition), (&first, &second), &mut rows);
            damage = damage.or(found.err());
        }
        collected.push(rows);
    }
    let mut versions = versions.into_iter();
    for table in tables {
        for partition in 0..worker.layout(*table).geometry.partitions {
            confirm(worker, *table, partition, &mut versions).await?;
        }
    }
    // Before the state was confirmed, a contradiction could be a transaction under way.
    match damage {
        Some(damage) => Err(damage),
        None => Ok(collected),
    }
}

/// Adds the rows of a partition: those of the slots that exist in `first`, with the values in
/// `second`.
///
/// # Errors
/// [`Abort::Damaged`] if a slot and its bucket contradict each other. The rows are added all the
/// same.
fn rows_of(
    geometry: Geometry,
    (table, partition): (u8, u8),
    (first, second): (&Replica, &Replica),
    rows: &mut Rows,
) -> Result<(), Abort> {
    let mut result = Ok(());
    for bucket in 0..geometry.buckets() {
        let object = geometry.bucket(table, partition, bucket);
        let words = Bucket(second.object(object, BUCKET_WORDS).value);
        for position in 0..KEYS_PER_BUCKET {
            let slot = bucket * KEYS_PER_BUCKET as u32 + position as u32;
            let slot = geometry.slot(table, partition, slot);
            let exists = { first.object(slot, geometry.slot_words()).version }.exists();
            let value = second.object(slot, geometry.slot_words()).value;
            let is_right = exists == words.uses(position)
                && (!exists || words.key(position) == value[0])
                && (!exists || rows.insert(value[0], value[1..].into()).is_none());
            if !is_right {
                let what = "a slot and its bucket disagree, or its key is in another one as well";
                result = Err(Abort::Damaged { object: slot, what });
            }
        }
    }
    result
}

/// Confirms that the objects of a partition have the next of these versions still, and that no
/// transaction holds their latches.
async fn confirm<V: Member>(
    worker: &Worker<V>,
    table: u8,
    partition: u8,
    versions: &mut impl Iterator<Item = Version>,
) -> Result<(), Abort> {
    let geometry = worker.layout(table).geometry;
    let policy = worker.policy();
    let versions: Vec<_> = { versions.by_ref() }
        .take(geometry.objects(table, partition).count())
        .collect();
    if !policy.collects_twice {
        return Ok(());
    }
    'again: loop {
        let known = worker.known_failures();
        let first = primary(worker, table, partition).await?;
        let second = primary(worker, table, partition).await?;
        let objects = geometry.objects(table, partition);
        for ((object, words), version) in objects.zip(&versions) {
            match worker.latch_state(first.object(object, words).latch, known) {
                Latch::Free => {}
                _ if !policy.collects_latches => {}
                Latch::NewlyStray => continue 'again,
                Latch::Held(holder) => return Err(Abort::Conflict(Conflict::Latched(holder))),
            }
            if second.object(object, words).version != *version {
                return Err(Abort::Conflict(Conflict::Changed));
            }
        }
        return Ok(());
    }
}

/// Reads the primary of a partition.
async fn primary<V: Member>(
    worker: &Worker<V>,
    table: u8,
    partition: u8,
) -> Result<Replica, Abort> {
    let geometry = worker.layout(table).geometry;
    let object = geometry.header(table, partition);
    let place = worker.primary(object).ok_or(Abort::Lost { object })?;
    Ok(Replica::read(worker, place, geometry).await?)
}
