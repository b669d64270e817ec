//! Keys: look-ups, writes, insertions and deletions over the objects of a table.
//!
//! * A key that exists is in exactly one slot, with a version that exists. Its bucket is in the
//!   chain of the key's main bucket, and names the slot. So a look-up may find the slot by any
//!   hint, and relies on the slot alone.
//! * A key that does not exist is in no bucket of its chain. A look-up that relies on that has all
//!   buckets of the chain in its read set.
//! * An insertion relies on the absence of its key, latches a bucket with a free slot, and the
//!   slot. A deletion latches the slot and its bucket. Two insertions of one key conflict: each has
//!   the bucket that the other writes in its read set or write set.
//! * Buckets join chains and leave them: see [`chains`](super::chains).

use super::chains::Walk;
use super::transaction::{Seen, Transaction};
use super::view::Member;
use super::worker::Table;
use super::{Abort, Conflict};
use crate::tables::{BUCKET_WORDS, Bucket, Geometry, KEYS_PER_BUCKET, ObjectId};
use bytemuck::Pod;
use core::ops::Range;

/// The partition of a key.
#[derive(Clone, Copy)]
pub(super) struct Home {
    pub(super) geometry: Geometry,
    pub(super) table: u8,
    partition: u8,
    /// The main bucket of the key.
    pub(super) bucket: u32,
}

impl Home {
    pub(super) fn header(&self) -> ObjectId {
        self.geometry.header(self.table, self.partition)
    }

    pub(super) fn bucket(&self, bucket: u32) -> ObjectId {
        self.geometry.bucket(self.table, self.partition, bucket)
    }

    fn slot(&self, slot: u32) -> ObjectId {
        self.geometry.slot(self.table, self.partition, slot)
    }

    /// Checks the size of the values of the table.
    ///
    /// # Panics
    /// If the values do not have `words` words.
    pub(super) fn assert_words(&self, words: usize) {
        assert_eq!(
            self.geometry.value_words as usize, words,
            "the values of table {} have another size than the program's",
            self.table
        );
    }

    pub(super) fn damaged(&self, bucket: u32, what: &'static str) -> Abort {
        Abort::Damaged {
            object: self.bucket(bucket),
            what,
        }
    }
}

/// The buckets of a chain that are in the read set or the write set, and have no slot for a key.
struct Absence {
    /// A bucket with a free slot and its position.
    free: Option<(u32, usize)>,
    /// The last bucket of the chain.
    last: u32,
}

/// The number of times that a look-up begins again because the index changes.
const SEARCHES: usize = 8;

impl<V: Member> Transaction<V> {
    fn home<T: Pod>(&self, table: Table<T>, key: u64) -> Home {
        let home = self.home_of(table.number(), key);
        home.assert_words(Table::<T>::WORDS);
        home
    }

    pub(super) fn home_of(&self, table: u8, key: u64) -> Home {
        let geometry = self.worker.layout(table).geometry;
        let (partition, bucket) = geometry.home(key);
        Home {
            geometry,
            table,
            partition,
            bucket,
        }
    }

    /// Executes an access of the body. After one that failed, or whose future was dropped, the
    /// attempt can only end: its sets may be incomplete.
    pub(super) async fn access<R>(
        &mut self,
        access: impl AsyncFnOnce(&mut Self) -> Result<R, Abort>,
    ) -> Result<R, Abort> {
        if let Some(doom) = &self.doom {
            return Err(doom.clone());
        }
        if self.worker.has_late_layout() {
            let late = self.interrupted();
            self.doom = Some(late.clone());
            return Err(late);
        }
        self.doom = Some(Abort::Conflict(Conflict::Changed));
        let mut result = access(self).await;
        // After the loss of a server with its latches, the attempt can meet the half of another
        // transaction's writes. It cannot be committed any more.
        if matches!(result, Err(Abort::Damaged { .. } | Abort::TableFull { .. }))
            && self.worker.view.is_over(self.epoch)
        {
            result = Err(self.interrupted());
        }
        self.doom = result.as_ref().err().cloned();
        result
    }

    /// Reads the value of `key`; `None` if the key does not exist.
    ///
    /// # Errors
    /// [`Abort`], which the body passes on.
    pub async fn read<T: Pod>(&mut self, table: Table<T>, key: u64) -> Result<Option<T>, Abort> {
        let home = self.home(table, key);
        let found = self.access(async |tx| tx.find(home, key).await).await?;
        Ok(found.map(|(_, value)| self.decode(value)))
    }

    /// Writes the value of `key`, if the key exists. Returns whether it does.
    ///
    /// # Errors
    /// [`Abort`], which the body passes on.
    pub async fn write<T: Pod>(
        &mut self,
        table: Table<T>,
        key: u64,
        value: &T,
    ) -> Result<bool, Abort> {
        Ok(self.update(table, key, |_| *value).await?.is_some())
    }

    /// Latches `key`, and replaces its value by the value that `change` returns, if the key exists.
    /// Returns the previous value. Takes one round trip less than a read and a write.
    ///
    /// # Errors
    /// [`Abort`], which the body passes on.
    pub async fn update<T: Pod>(
        &mut self,
        table: Table<T>,
        key: u64,
        change: impl FnOnce(T) -> T,
    ) -> Result<Option<T>, Abort> {
        let home = self.home(table, key);
        let latched = self
            .access(async |tx| tx.latch_key(home, key).await)
            .await?;
        let Some((slot, value)) = latched else {
            return Ok(None);
        };
        let old = self.decode(value);
        encode(&change(old), &mut self.rewrite(slot, true)[1..]);
        Ok(Some(old))
    }

    /// Inserts `key` with `value`, if the key does not exist. Returns whether it was inserted.
    ///
    /// # Errors
    /// [`Abort`], which the body passes on.
    pub async fn insert<T: Pod>(
        &mut self,
        table: Table<T>,
        key: u64,
        value: &T,
    ) -> Result<bool, Abort> {
        let home = self.home(table, key);
        let inserted = self
            .access(async |tx| tx.insert_key(home, key).await)
            .await?;
        let Some(slot) = inserted else {
            return Ok(false);
        };
        encode(value, &mut self.rewrite(slot, true)[1..]);
        Ok(true)
    }

    /// Inserts a key, whose value the caller writes. Returns the index of its slot in the write
    /// set, or `None` if the key exists.
    pub(super) async fn insert_key(
        &mut self,
        home: Home,
        key: u64,
    ) -> Result<Option<usize>, Abort> {
        let absence = match self.search(home, key).await? {
            Ok(_) => return Ok(None),
            Err(absence) => absence,
        };
        let (bucket, position) = match absence.free {
            Some(free) => free,
            None => (self.extend(home, absence.last).await?, 0),
        };
        let index = self.latch(home.bucket(bucket), BUCKET_WORDS).await?;
        let words = self.rewrite(index, true);
        words[1] |= 1 << position;
        words[2 + position] = key;
        let slot = bucket * KEYS_PER_BUCKET as u32 + position as u32;
        let index = self
            .latch(home.slot(slot), home.geometry.slot_words())
            .await?;
        if self.sets.writes[index].new.exists() {
            return Err(home.damaged(bucket, "a slot is in use that its bucket does not use"));
        }
        self.rewrite(index, true)[0] = key;
        Ok(Some(index))
    }

    /// Writes the value of `key`, whether or not the key exists.
    ///
    /// # Errors
    /// [`Abort`], which the body passes on.
    pub async fn put<T: Pod>(&mut self, table: Table<T>, key: u64, value: &T) -> Result<(), Abort> {
        if !self.write(table, key, value).await? {
            self.insert(table, key, value).await?;
        }
        Ok(())
    }

    /// Deletes `key`. Returns its value, or `None` if the key does not exist.
    ///
    /// # Errors
    /// [`Abort`], which the body passes on.
    pub async fn delete<T: Pod>(&mut self, table: Table<T>, key: u64) -> Result<Option<T>, Abort> {
        let home = self.home(table, key);
        let deleted = self
            .access(async |tx| tx.delete_key(home, key).await)
            .await?;
        Ok(deleted.map(|value| self.decode(value)))
    }

    /// Deletes a key. Returns the indices of its previous value.
    pub(super) async fn delete_key(
        &mut self,
        home: Home,
        key: u64,
    ) -> Result<Option<Range<usize>>, Abort> {
        let Some((index, value)) = self.latch_key(home, key).await? else {
            return Ok(None);
        };
        self.rewrite(index, false);
        let slot = self.slot_number(home, self.sets.writes[index].object);
        let (bucket, position) = (
            slot / KEYS_PER_BUCKET as u32,
            slot as usize % KEYS_PER_BUCKET,
        );
        let object = home.bucket(bucket);
        let seen = match self.worker.policy().empties_under_latch {
            true => None,
            false => Some(self.peek(object, BUCKET_WORDS).await?),
        };
        let seen = seen.map(|words| self.sets.words[words.start + 1]);
        let index = self.latch(object, BUCKET_WORDS).await?;
        let words = self.rewrite(index, true);
        if words[1] >> position & 1 == 0 || words[2 + position] != key {
            return Err(home.damaged(bucket, "a bucket does not name a key in its slot"));
        }
        words[1] &= !(1 << position);
        let is_empty = seen.map_or(words[1] == 0, |seen| seen == 1 << position);
        if is_empty && bucket >= home.geometry.main {
            self.unlink(home, bucket).await?;
        }
        Ok(Some(value))
    }

    fn slot_number(&self, home: Home, slot: ObjectId) -> u32 {
        let first = home.slot(0).offset();
        let each = home.slot(1).offset() - first;
        ((slot.offset() - first) / each) as u32
    }

    fn decode<T: Pod>(&self, value: Range<usize>) -> T {
        let words = &self.sets.words[value.start + 1..value.end];
        bytemuck::pod_read_unaligned(&bytemuck::cast_slice(words)[..size_of::<T>()])
    }

    /// Finds the slot of `key`, and adds it, or the absence of the key, to the read set.
    pub(super) async fn find(&mut self, home: Home, key: u64) -> Result<Option<Seen>, Abort> {
        if let Some(slot) = self.worker.cached_slot(home.table, key)
            && let Some(seen) = self.load_key(home, key, slot).await?
        {
            return Ok(Some(seen));
        }
        if let Some(slot) = self.hint(home, key).await?
            && let Some(seen) = self.load_key(home, key, slot).await?
        {
            self.worker.cache_slot(home.table, key, slot);
            return Ok(Some(seen));
        }
        Ok(self.search(home, key).await?.ok())
    }

    /// Reads a slot. If `key` is in it, adds it to the read set and returns it.
    async fn load_key(&mut self, home: Home, key: u64, slot: u32) -> Result<Option<Seen>, Abort> {
        let object = home.slot(slot);
        let seen = self.load(object, home.geometry.slot_words()).await?;
        if !seen.0.exists() || self.sets.words[seen.1.start] != key {
            return Ok(None);
        }
        self.keep(object, seen.clone());
        Ok(Some(seen))
    }

    /// Returns the slot that the buckets name for `key`, without a check.
    async fn hint(&mut self, home: Home, key: u64) -> Result<Option<u32>, Abort> {
        let mut bucket = home.bucket;
        let mut walk = Walk::from(bucket);
        loop {
            let words = self.peek(home.bucket(bucket), BUCKET_WORDS).await?;
            let words = Bucket(&self.sets.words[words]);
            if let Some(position) = words.find(key) {
                return Ok(Some(bucket * KEYS_PER_BUCKET as u32 + position as u32));
            }
            match words.next() {
                Some(next) if next < home.geometry.buckets() && !walk.returns_to(next) => {
                    bucket = next;
                }
                _ => return Ok(None),
            }
        }
    }

    /// Searches `key` in all buckets of its chain. Adds the slot of the key to the read set and
    /// returns it, or adds the buckets and returns the absence.
    async fn search(&mut self, home: Home, key: u64) -> Result<Result<Seen, Absence>, Abort> {
        'again: for _ in 0..SEARCHES {
            let (mut bucket, mut free) = (home.bucket, None);
            let mut walk = Walk::from(bucket);
            loop {
                let object = home.bucket(bucket);
                let seen = self.load(object, BUCKET_WORDS).await?;
                let words = Bucket(&self.sets.words[seen.1.clone()]);
                let (found, next) = (words.find(key), words.next());
                free = free.or_else(|| words.free().map(|position| (bucket, position)));
                if let Some(position) = found {
                    let slot = bucket * KEYS_PER_BUCKET as u32 + position as u32;
                    match self.load_key(home, key, slot).await? {
                        Some(seen) => return Ok(Ok(seen)),
                        // The key was deleted after its bucket was read.
                        None => continue 'again,
                    }
                }
                if self.worker.policy().validates_absence {
                    self.keep(object, seen);
                }
                match next {
                    None => return Ok(Err(Absence { free, last: bucket })),
                    Some(next) if next >= home.geometry.buckets() => {
                        return Err(home.damaged(bucket, "a bucket names none as its next"));
                    }
                    Some(next) if walk.returns_to(next) => {
                        // Buckets may have moved during the walk.
                        self.validate().await?;
                        return Err(home.damaged(bucket, "a chain of buckets has a cycle"));
                    }
                    Some(next) => bucket = next,
                }
            }
        }
        Err(self.changed())
    }

    /// Latches the slot of `key`. Returns its index in the write set and the indices of its current
    /// value. If the key does not exist, adds its absence to the read set and returns `None`.
    pub(super) async fn latch_key(
        &mut self,
        home: Home,
        key: u64,
    ) -> Result<Option<(usize, Range<usize>)>, Abort> {
        if let Some(slot) = self.worker.cached_slot(home.table, key)
            && let Some(latched) = self.latch_slot(home, key, slot).await?
        {
            return Ok(Some(latched));
        }
        for _ in 0..SEARCHES {
            if let Some(slot) = self.hint(home, key).await?
                && let Some(latched) = self.latch_slot(home, key, slot).await?
            {
                self.worker.cache_slot(home.table, key, slot);
                return Ok(Some(latched));
            }
            if self.search(home, key).await?.is_err() {
                return Ok(None);
            }
            // The key was inserted after its buckets were read without a check.
        }
        Err(self.changed())
    }

    /// Latches a slot. Puts the latch back if `key` is not in it.
    async fn latch_slot(
        &mut self,
        home: Home,
        key: u64,
        slot: u32,
    ) -> Result<Option<(usize, Range<usize>)>, Abort> {
        let object = home.slot(slot);
        let is_held = self.written(object).is_some();
        if let Some((version, value)) = self.known(object)
            && !(version.exists() && self.sets.words[value.start] == key)
        {
            // A latch that is put back would remove another key from the read set.
            return Ok(None);
        }
        let index = self.latch(object, home.geometry.slot_words()).await?;
        let write = &self.sets.writes[index];
        let value = write.new_value.clone();
        if write.new.exists() && self.sets.words[value.start] == key {
            return Ok(Some((index, value)));
        }
        if !is_held {
            self.put_back().await?;
        }
        Ok(None)
    }
}

fn encode<T: Pod>(value: &T, words: &mut [u64]) {
    let bytes = bytemuck::bytes_of(value);
    bytemuck::cast_slice_mut(words)[..bytes.len()].copy_from_slice(bytes);
}
