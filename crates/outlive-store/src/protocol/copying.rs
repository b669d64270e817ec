//! The copy of a partition to replicas that are being filled, while transactions run.
//!
//! Each object is copied in an attempt of its own, which latches the object and reads it, as for a
//! write, and is [registered](super::Member::enter_commit) before it writes the object to the new
//! replica: the value, and then the version. No other transaction writes the object in between:
//!
//! * In the epoch of the attempt, it would need the latch.
//! * In a later epoch, in which the latch may be lost with the primary, it waits until the attempt
//!   has ended, or the attempt's server is recovered.
//!
//! The commits of the epochs since the replica joined write it as well, so it has the newest value
//! of each object that was copied or written since. A commit that began before that does not: but
//! the epoch of the copy is settled, so it has ended.
//!
//! An object with version 0 was never written, so it equals the zeroed memory of the new replica.
//! It is not latched. Each later write of it goes to the new replica too.
//!
//! # Crash
//!
//! The latch is stray, and the object at the new replica may have parts of two values. The replica
//! is not complete, so nothing reads them, and the next copy writes the object again.

use super::transaction::Transaction;
use super::view::Member;
use super::{Abort, Coordinator, TransactionError};
use crate::tables::{ObjectId, VALUE, VERSION, Version};
use crate::verbs::{Batch, ServerId, VerbError};

/// The amounts that were copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// The number of objects.
    pub objects: u64,
    /// The number of bytes of their versions and values.
    pub bytes: u64,
}

impl core::ops::AddAssign for Copied {
    fn add_assign(&mut self, other: Self) {
        self.objects += other.objects;
        self.bytes += other.bytes;
    }
}

/// The number of versions that are read in one batch.
const VERSIONS: usize = 64;

/// Connects to the servers with these numbers, unless they are dead. Call this before writers use
/// the replicas there: a copy to an unreachable server would never end.
///
/// # Errors
/// The first live server that cannot be reached.
pub fn reach<V: Member>(
    coordinator: &Coordinator<V>,
    servers: impl IntoIterator<Item = ServerId>,
) -> Result<(), TransactionError> {
    for server in servers {
        match coordinator.worker.connection(server) {
            Ok(_) | Err(VerbError::ServerDied { .. }) => {}
            Err(error) => return Err(TransactionError::Aborted(error.into())),
        }
    }
    Ok(())
}

/// Copies the objects of a partition to its replicas that are being filled. If this succeeds, each
/// of these that is not lost is complete from the next step of the restoration on.
///
/// The caller has appended the step with which these replicas joined. A latch of another
/// transaction is waited for.
///
/// # Errors
/// [`Abort::Lost`] if no complete replica is left. Otherwise, the copy must be repeated.
///
/// # Crash
/// Some objects are copied. The next copy begins again.
pub async fn copy_partition<V: Member>(
    coordinator: &mut Coordinator<V>,
    table: u8,
    partition: u8,
) -> Result<Copied, TransactionError> {
    let geometry = coordinator.layout(table).geometry;
    let mut objects = geometry.objects(table, partition);
    let mut copied = Copied::default();
    loop {
        let some: Vec<_> = objects.by_ref().take(VERSIONS).collect();
        if some.is_empty() {
            return Ok(copied);
        }
        let used = retried(coordinator, async |tx| tx.used(&some).await).await?;
        for (object, words) in used {
            retried(coordinator, async |tx| tx.copy(object, words).await).await?;
            copied += Copied {
                objects: 1,
                bytes: 8 + words as u64 * 8,
            };
        }
    }
}

/// Executes a transaction until no other one is in its way.
async fn retried<V: Member, T>(
    coordinator: &mut Coordinator<V>,
    body: impl AsyncFn(&mut Transaction<V>) -> Result<T, Abort>,
) -> Result<T, TransactionError> {
    loop {
        match coordinator.transaction(&body).await {
            Err(TransactionError::TooManyConflicts { .. }) => {}
            Err(error) => return Err(error),
            Ok(done) => {
                // The transactions of a restoration do not count as commits of a program.
                coordinator.worker.count(|it| it.committed -= 1);
                return Ok(done.value);
            }
        }
    }
}

impl<V: Member> Transaction<V> {
    /// Returns those of the objects of one partition that were written before. If all replicas are
    /// lost, none can be filled, and the result is empty.
    async fn used(
        &mut self,
        objects: &[(ObjectId, usize)],
    ) -> Result<Vec<(ObjectId, usize)>, Abort> {
        self.access(async |tx| tx.read_versions(objects).await)
            .await
    }

    async fn read_versions(
        &self,
        objects: &[(ObjectId, usize)],
    ) -> Result<Vec<(ObjectId, usize)>, Abort> {
        let object = objects[0].0;
        let Some(_) = self.worker.joining(object).next() else {
            return Ok(Vec::new());
        };
        let place = self.worker.primary(object).ok_or(Abort::Lost { object })?;
        let mut batch = Batch::new();
        let read = |it: &(ObjectId, usize)| (*it, batch.read(place.of(it.0, VERSION), 1));
        let read: Vec<_> = objects.iter().map(read).collect();
        let batch = self.worker.repeat(place.server, batch).await?;
        let used = read
            .into_iter()
            .filter(|(_, slot)| Version(batch.value(*slot)) != Version(0));
        Ok(used.map(|(object, _)| object).collect())
    }

    /// Plans to copy an object with `words` value words.
    async fn copy(&mut self, object: ObjectId, words: usize) -> Result<(), Abort> {
        if !self.worker.policy().copies_under_latch {
            return self.copy_unlatched(object, words).await;
        }
        self.access(async |tx| tx.latch(object, words).await)
            .await?;
        self.copies = true;
        Ok(())
    }

    /// Copies an object as it is read.
    async fn copy_unlatched(&mut self, object: ObjectId, words: usize) -> Result<(), Abort> {
        let (version, value) = self.load(object, words).await?;
        self.sets.fanout.clear();
        for place in self.worker.joining(object) {
            let batch = self.sets.fanout.to(place.server).1;
            batch.write(place.of(object, VALUE), &self.sets.words[value.clone()]);
            batch.write(place.of(object, VERSION), &[version.0]);
        }
        Ok(self.sets.fanout.post_to_live(&self.worker).await?)
    }
}
