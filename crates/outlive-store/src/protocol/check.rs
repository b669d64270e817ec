//! The check of all tables while no transaction runs.

use super::view::View;
use super::worker::Worker;
use crate::tables::{
    BUCKET_WORDS, Bucket, Geometry, HEADER_WORDS, Header, KEYS_PER_BUCKET, ObjectId, Place,
    TransactionId, Version,
};
use crate::verbs::{Batch, VerbError};
use std::collections::HashSet;

/// A partition of a table that has lost replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incomplete {
    /// The number of the table.
    pub table: u8,
    /// The partition.
    pub partition: u8,
    /// The number of live replicas. If it is 0, the keys are lost.
    pub live: usize,
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// The number of keys in all tables.
    pub keys: u64,
    /// The number of extra buckets in chains.
    pub extra: u64,
    /// The number of latches of failed compute servers.
    pub stray: u64,
    /// The number of latches of compute servers that have not failed.
    pub held: u64,
    /// The partitions with fewer live replicas than the store should have.
    pub incomplete: Vec<Incomplete>,
    /// The number of compute servers that have died and whose logs are not recovered.
    pub unrecovered: u64,
    /// The number of log slots that are not empty although their compute server has left or is
    /// recovered.
    pub logs: u64,
    /// The contradictions, at most [`MOST`](Self::MOST) of them.
    pub problems: Vec<String>,
}

impl Checked {
    /// The largest number of contradictions that are described.
    pub const MOST: usize = 20;

    /// Returns the number of partitions with fewer live replicas than the store should have.
    pub fn under_replicated(&self) -> u64 {
        self.incomplete.len() as u64
    }

    /// Returns the number of partitions without a live replica, whose keys are lost.
    pub fn lost(&self) -> u64 {
        self.incomplete.iter().filter(|it| it.live == 0).count() as u64
    }

    fn problem(&mut self, object: ObjectId, what: impl core::fmt::Display) {
        if self.problems.len() < Self::MOST {
            let (table, partition) = (object.table(), object.partition());
            let at = object.offset();
            let place = format!("table {table}, partition {partition}, {at:#x}");
            self.problems.push(format!("{place}: {what}"));
        }
    }
}

/// An object of one replica.
pub(super) struct Copy<'a> {
    pub latch: u64,
    pub version: Version,
    pub value: &'a [u64],
}

/// The words of a partition in one replica.
pub(super) struct Replica(Vec<u64>);

/// The number of words of one READ.
const CHUNK: usize = 1 << 13;

impl Replica {
    /// Reads the whole replica of a partition at `place`.
    pub async fn read<V: View>(
        worker: &Worker<V>,
        place: Place,
        geometry: Geometry,
    ) -> Result<Self, VerbError> {
        let words = geometry.partition_bytes() as usize / 8;
        // Without a capacity: the size of a damaged table may be impossible.
        let mut replica = Vec::new();
        let mut batch = Batch::new();
        while replica.len() < words {
            batch.clear();
            let count = CHUNK.min(words - replica.len());
            let slot = batch.read(place.base + replica.len() as u64 * 8, count);
            batch = worker.repeat(place.server, batch).await?;
            replica.extend_from_slice(batch.words(slot));
        }
        Ok(Self(replica))
    }

    pub fn object(&self, object: ObjectId, words: usize) -> Copy<'_> {
        let at = object.offset() as usize / 8;
        Copy {
            latch: self.0[at],
            version: Version(self.0[at + 1]),
            value: &self.0[at + 2..at + 2 + words],
        }
    }
}

/// Checks the tables with these numbers: the replicas of each object are equal; each latch has a
/// holder that has failed, or for which `is_live` holds; each key is in exactly one slot, which its
/// bucket names; each extra bucket that was ever in a chain is in exactly one, and has a slot in
/// use, or is in the list of free ones.
///
/// If transactions run at the same time, it reports contradictions that do not exist.
///
/// # Errors
/// If a verb failed for another reason than the death of a memory server.
pub async fn check<V: View>(
    worker: &Worker<V>,
    tables: impl Iterator<Item = u8>,
    is_live: impl Fn(u16) -> bool,
) -> Result<Checked, VerbError> {
    let mut checked = Checked::default();
    for table in tables {
        let layout = worker.layout(table);
        let geometry = layout.geometry;
        for partition in 0..geometry.partitions {
            let places = &layout.places[usize::from(partition)];
            let mut replicas = Vec::new();
            for place in places.iter().filter(|it| worker.is_complete(it)) {
                match Replica::read(worker, *place, geometry).await {
                    Ok(replica) => replicas.push(replica),
                    Err(VerbError::ServerDied { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            let live = replicas.len();
            if live < places.len() {
                checked.incomplete.push(Incomplete {
                    table,
                    partition,
                    live,
                });
            }
            if let Some((primary, backups)) = replicas.split_first() {
                let mut part = Part {
                    worker,
                    geometry,
                    table,
                    partition,
                    primary,
                    backups,
                    is_live: &is_live,
                    checked: &mut checked,
                };
                part.check();
            }
        }
    }
    Ok(checked)
}

struct Part<'a, V: View> {
    worker: &'a Worker<V>,
    geometry: Geometry,
    table: u8,
    partition: u8,
    primary: &'a Replica,
    backups: &'a [Replica],
    is_live: &'a dyn Fn(u16) -> bool,
    checked: &'a mut Checked,
}

impl<V: View> Part<'_, V> {
    fn check(&mut self) {
        let (geometry, table, partition) = (self.geometry, self.table, self.partition);
        let header = geometry.header(table, partition);
        self.check_object(header, HEADER_WORDS);
        let words = Header(self.primary.object(header, HEADER_WORDS).value);
        let extra = words.used();
        if extra > geometry.extra.into() {
            self.checked
                .problem(header, format_args!("{extra} extra buckets are in use"));
            return;
        }
        for (object, words) in geometry.objects(table, partition).skip(1) {
            self.check_object(object, words);
        }
        let used = geometry.main + extra as u32;
        let mut found = HashSet::new();
        for main in 0..geometry.main {
            self.check_chain(main, used, &mut found);
        }
        self.checked.extra += found.len() as u64;
        self.check_list(words.free(), used, &mut found);
        for bucket in geometry.main..geometry.buckets() {
            let object = geometry.bucket(table, partition, bucket);
            if bucket >= used {
                self.check_free(bucket);
            } else if !found.contains(&bucket) {
                self.checked
                    .problem(object, "an extra bucket is in no chain, and not free");
            }
        }
    }

    /// Checks the latch of an object, and compares its replicas.
    fn check_object(&mut self, object: ObjectId, words: usize) {
        let primary = self.primary.object(object, words);
        if let Some(holder) = TransactionId::from_word(primary.latch) {
            if self.worker.view.failed(holder.process()).is_some() {
                self.checked.stray += 1;
            } else {
                self.checked.held += 1;
                if !(self.is_live)(holder.process()) {
                    let what = format_args!("{holder} holds its latch, and is not alive");
                    self.checked.problem(object, what);
                }
            }
        }
        for backup in self.backups {
            let backup = backup.object(object, words);
            if (backup.version, backup.value) != (primary.version, primary.value) {
                let (one, other) = (primary.version.0, backup.version.0);
                let what = format_args!("replicas differ: versions {one} and {other}");
                self.checked.problem(object, what);
            }
        }
    }

    /// Checks the chain of a main bucket.
    fn check_chain(&mut self, main: u32, used: u32, found: &mut HashSet<u32>) {
        let (geometry, table, partition) = (self.geometry, self.table, self.partition);
        let mut keys = HashSet::new();
        let mut bucket = main;
        loop {
            let object = geometry.bucket(table, partition, bucket);
            let words = Bucket(self.primary.object(object, BUCKET_WORDS).value);
            if bucket != main && words.is_empty() {
                self.checked
                    .problem(object, "an extra bucket in a chain has no slot in use");
            }
            for position in 0..KEYS_PER_BUCKET {
                let number = bucket * KEYS_PER_BUCKET as u32 + position as u32;
                let slot = geometry.slot(table, partition, number);
                let copy = self.primary.object(slot, geometry.slot_words());
                if copy.version.exists() != words.uses(position) {
                    self.checked
                        .problem(slot, "a slot and its bucket disagree on its use");
                }
                if !words.uses(position) {
                    continue;
                }
                let key = words.key(position);
                self.checked.keys += 1;
                if copy.value[0] != key || geometry.home(key) != (partition, main) {
                    self.checked
                        .problem(slot, format_args!("key {key} is in a wrong slot"));
                }
                if !keys.insert(key) {
                    self.checked
                        .problem(slot, format_args!("key {key} is in two slots"));
                }
            }
            match words.next() {
                None => return,
                Some(next) if (geometry.main..used).contains(&next) && found.insert(next) => {
                    bucket = next;
                }
                Some(next) => {
                    let what = format_args!("bucket {next} follows, which is in use elsewhere");
                    return self.checked.problem(object, what);
                }
            }
        }
    }

    /// Checks the list of the free buckets, of which `first` is the first one.
    fn check_list(&mut self, first: Option<u32>, used: u32, found: &mut HashSet<u32>) {
        let (geometry, table, partition) = (self.geometry, self.table, self.partition);
        let mut object = geometry.header(table, partition);
        let mut bucket = first;
        while let Some(free) = bucket {
            if !(geometry.main..used).contains(&free) || !found.insert(free) {
                let what = format_args!("bucket {free} is in the list of free ones, and elsewhere");
                return self.checked.problem(object, what);
            }
            self.check_free(free);
            object = geometry.bucket(table, partition, free);
            bucket = Bucket(self.primary.object(object, BUCKET_WORDS).value).next();
        }
    }

    /// Checks a bucket that is in no chain.
    fn check_free(&mut self, bucket: u32) {
        let (geometry, table, partition) = (self.geometry, self.table, self.partition);
        let object = geometry.bucket(table, partition, bucket);
        let copy = self.primary.object(object, BUCKET_WORDS);
        if copy.version.exists() || !Bucket(copy.value).is_empty() {
            self.checked
                .problem(object, "a bucket is in use, and in no chain");
        }
        for position in 0..KEYS_PER_BUCKET as u32 {
            let slot = geometry.slot(table, partition, bucket * KEYS_PER_BUCKET as u32 + position);
            let copy = self.primary.object(slot, geometry.slot_words());
            if copy.version.exists() {
                self.checked
                    .problem(slot, "a slot is in use, and its bucket in no chain");
            }
        }
    }
}
