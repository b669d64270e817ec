//! The layout of a table's partitions.

use super::{ObjectId, VALUE};

/// The number of slots of a bucket.
pub const KEYS_PER_BUCKET: usize = 8;
/// The number of value words of a bucket.
pub const BUCKET_WORDS: usize = 2 + KEYS_PER_BUCKET;
/// The number of value words of a partition's header.
pub const HEADER_WORDS: usize = 2;

const BUCKET_BYTES: u64 = VALUE + BUCKET_WORDS as u64 * 8;
const BUCKETS: u64 = VALUE + HEADER_WORDS as u64 * 8;
/// The number of slots of a main bucket that are planned to be in use.
const PLANNED: u64 = 5;

/// The sizes of a table, from which the offsets of all objects follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// The number of words of a value.
    pub value_words: u32,
    /// The number of partitions, at most [`MAX_PARTITIONS`](Self::MAX_PARTITIONS).
    pub partitions: u8,
    /// The number of main buckets of a partition: one for each hash value.
    pub main: u32,
    /// The number of extra buckets of a partition, which extend full main buckets.
    pub extra: u32,
}

impl Geometry {
    /// The largest number of partitions.
    pub const MAX_PARTITIONS: u8 = 64;
    /// The largest number of words of a value: 8 KiB.
    pub const MAX_VALUE_WORDS: u32 = 1024;
    /// The largest number of keys for which a table can be created.
    pub const MAX_KEYS: u64 = 1 << 33;

    /// Returns the sizes of a table for `keys` keys with values of `value_words` words.
    ///
    /// Buckets are planned with 5 of 8 slots in use, and a quarter of extra buckets. With hashed
    /// keys, that is room for all `keys` and about half as many in addition.
    pub fn for_keys(keys: u64, value_words: u32, partitions: u8) -> Self {
        let each = keys.div_ceil(partitions.into());
        let main = each.div_ceil(PLANNED).clamp(1, (u32::MAX / 2).into()) as u32;
        Self {
            value_words,
            partitions,
            main,
            extra: main / 4 + 4,
        }
    }

    /// Returns whether the sizes are in their ranges.
    pub fn is_sound(&self) -> bool {
        (1..=Self::MAX_VALUE_WORDS).contains(&self.value_words)
            && (1..=Self::MAX_PARTITIONS).contains(&self.partitions)
            && self.main > 0
            && self
                .main
                .checked_add(self.extra)
                .is_some_and(|all| all < 1 << 29)
    }

    /// Returns the number of words of a slot's value: the key and the value.
    pub fn slot_words(&self) -> usize {
        1 + self.value_words as usize
    }

    fn slot_bytes(&self) -> u64 {
        (VALUE + self.slot_words() as u64 * 8).next_multiple_of(16)
    }

    /// Returns the number of buckets of a partition.
    pub fn buckets(&self) -> u32 {
        self.main + self.extra
    }

    /// Returns the largest number of keys [for which](Self::for_keys) a table has these sizes.
    pub fn keys(&self) -> u64 {
        let keys = u64::from(self.main) * PLANNED * u64::from(self.partitions);
        keys.min(Self::MAX_KEYS)
    }

    /// Returns the number of slots of the table.
    pub fn slots(&self) -> u64 {
        u64::from(self.partitions) * u64::from(self.buckets()) * KEYS_PER_BUCKET as u64
    }

    /// Returns the number of bytes of a partition.
    pub fn partition_bytes(&self) -> u64 {
        let each = BUCKET_BYTES + KEYS_PER_BUCKET as u64 * self.slot_bytes();
        BUCKETS + u64::from(self.buckets()) * each
    }

    /// Returns the header of a partition.
    pub fn header(&self, table: u8, partition: u8) -> ObjectId {
        ObjectId::new(table, partition, 0)
    }

    /// Returns the object of a bucket.
    pub fn bucket(&self, table: u8, partition: u8, bucket: u32) -> ObjectId {
        ObjectId::new(table, partition, BUCKETS + u64::from(bucket) * BUCKET_BYTES)
    }

    /// Returns the object of a slot: slot `8 * b + i` belongs to bucket `b`.
    pub fn slot(&self, table: u8, partition: u8, slot: u32) -> ObjectId {
        let first = BUCKETS + u64::from(self.buckets()) * BUCKET_BYTES;
        ObjectId::new(
            table,
            partition,
            first + u64::from(slot) * self.slot_bytes(),
        )
    }

    /// Returns all objects of a partition with the numbers of their value words: the header, the
    /// buckets, the slots.
    pub fn objects(self, table: u8, partition: u8) -> impl Iterator<Item = (ObjectId, usize)> {
        let header = (self.header(table, partition), HEADER_WORDS);
        let buckets = (0..self.buckets())
            .map(move |bucket| (self.bucket(table, partition, bucket), BUCKET_WORDS));
        let slots = (0..self.buckets() * KEYS_PER_BUCKET as u32)
            .map(move |slot| (self.slot(table, partition, slot), self.slot_words()));
        core::iter::once(header).chain(buckets).chain(slots)
    }

    /// Returns whether an object of a partition begins at `offset`.
    pub fn has_object(&self, offset: u64) -> bool {
        let first = BUCKETS + u64::from(self.buckets()) * BUCKET_BYTES;
        match offset {
            0 => true,
            1..BUCKETS => false,
            _ if offset < first => (offset - BUCKETS).is_multiple_of(BUCKET_BYTES),
            _ => {
                (offset - first).is_multiple_of(self.slot_bytes())
                    && offset < self.partition_bytes()
            }
        }
    }

    /// Returns the partition and the main bucket of `key`.
    pub fn home(&self, key: u64) -> (u8, u32) {
        let hash = mix(key);
        let partition = ((hash >> 32) * u64::from(self.partitions)) >> 32;
        let bucket = ((hash & 0xFFFF_FFFF) * u64::from(self.main)) >> 32;
        (partition as u8, bucket as u32)
    }
}

/// Applies the finaliser of SplitMix64, a bijection that distributes dense keys.
pub(super) const fn mix(key: u64) -> u64 {
    let key = key.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let key = (key ^ key >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let key = (key ^ key >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    key ^ key >> 31
}

/// The value words of a partition's header.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a>(pub &'a [u64]);

impl Header<'_> {
    /// Returns the number of extra buckets that were ever in a chain. They are the first ones.
    pub fn used(&self) -> u64 {
        self.0[0]
    }

    /// Returns the number of the first bucket in the list of free ones: those that have left their
    /// chains.
    pub fn free(&self) -> Option<u32> {
        (self.0[1] as u32).checked_sub(1)
    }
}

/// The value words of a bucket.
#[derive(Clone, Copy, Debug)]
pub struct Bucket<'a>(pub &'a [u64]);

impl Bucket<'_> {
    /// Returns the number of the next bucket of the chain, or of the list of free ones.
    pub fn next(&self) -> Option<u32> {
        (self.0[0] as u32).checked_sub(1)
    }

    /// Returns the position of the slot for `key`, if the bucket has one.
    pub fn find(&self, key: u64) -> Option<usize> {
        (0..KEYS_PER_BUCKET).find(|it| self.uses(*it) && self.key(*it) == key)
    }

    /// Returns the position of a slot that is not in use.
    pub fn free(&self) -> Option<usize> {
        (0..KEYS_PER_BUCKET).find(|it| !self.uses(*it))
    }

    /// Returns the key of the slot at `position`, if that is in use.
    pub fn key(&self, position: usize) -> u64 {
        self.0[2 + position]
    }

    /// Returns whether no slot is in use.
    pub fn is_empty(&self) -> bool {
        self.0[1] == 0
    }

    /// Returns whether the slot at `position` is in use.
    pub fn uses(&self, position: usize) -> bool {
        self.0[1] >> position & 1 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_do_not_overlap() {
        let geometry = Geometry::for_keys(1000, 3, 4);
        assert!(geometry.is_sound());
        assert!(geometry.bucket(0, 0, 0).offset() >= VALUE + 8 * HEADER_WORDS as u64);
        let last = geometry.bucket(0, 0, geometry.buckets() - 1).offset();
        assert_eq!(last + BUCKET_BYTES, geometry.slot(0, 0, 0).offset());
        let slots = geometry.buckets() * KEYS_PER_BUCKET as u32;
        let end = geometry.slot(0, 0, slots).offset();
        assert_eq!(end, geometry.partition_bytes());
        let starts = (0..end + 64).filter(|it| geometry.has_object(*it));
        let objects = geometry.objects(0, 0).map(|(object, _)| object.offset());
        assert!(starts.eq(objects));
    }

    #[test]
    fn dense_keys_are_spread_over_partitions_and_buckets() {
        let geometry = Geometry::for_keys(1 << 16, 1, 16);
        let mut keys = vec![vec![0u32; geometry.main as usize]; 16];
        for key in 0..1 << 16 {
            let (partition, bucket) = geometry.home(key);
            keys[usize::from(partition)][bucket as usize] += 1;
        }
        for buckets in keys {
            let all: u32 = buckets.iter().sum();
            assert!((3900..4300).contains(&all), "{all}");
            let overflowing = buckets.iter().filter(|keys| **keys > 8).count() as u32;
            assert!(overflowing < geometry.extra / 2, "{overflowing}");
        }
    }
}
