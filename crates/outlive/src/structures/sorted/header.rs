//! The header of a structure: its kind and types, where it begins, how large it has grown.
//!
//! ```text
//!    0  magic | kind and sizes | seed | fingerprints of key and value | their sizes | checksum
//!   64  buckets (logarithm) | directory
//!  128  head: bucket 0, where the list begins | tail, where it ends
//!  192  counters, a line each
//! ```

use super::datum::Datum;
use super::error::OpenError;
use super::node::{Form, entry_as_node};
use crate::heap::LocalHeap;
use outlive_memory::{Memory, Native, Offset, Ordering};
use xxhash_rust::xxh3::xxh3_64_with_seed;

const MAGIC: u64 = u64::from_le_bytes(*b"outstruc");
const WORDS: u64 = 7;
const CHECKSUM: u64 = WORDS * 8;
const BUCKETS: u64 = 64;
const DIRECTORY: u64 = 72;
const HEAD: u64 = 128;
const TAIL: u64 = 144;
const COUNTERS: u64 = 192;
const COUNTER_BYTES: u64 = 64;

/// The largest number of buckets that one operation opens together, as a logarithm.
const GROUP: u32 = 5;

/// The bytes of a bucket.
pub(super) const ENTRY_BYTES: u64 = 16;

/// The kind of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    List = 1,
    Map = 2,
}

/// The sizes that a structure was created with, as logarithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    /// The number of buckets of a page of buckets.
    pub leaf: u32,
    /// The number of links of a page of links.
    pub page: u32,
    /// The number of counters.
    pub counters: u32,
    /// The number of entries per bucket at which the number of buckets is doubled.
    pub load: u32,
}

impl Sizes {
    /// The default: pages of 4 KiB.
    pub const DEFAULT: Self = Self {
        leaf: 8,
        page: 9,
        counters: 4,
        load: 0,
    };

    fn to_word(self, kind: Kind) -> u64 {
        [self.leaf, self.page, self.counters, self.load]
            .iter()
            .fold(kind as u64, |word, &size| word << 8 | u64::from(size))
    }

    fn from_word(word: u64) -> Option<(Kind, Self)> {
        let byte = |index: u32| (word >> (index * 8)) as u8 as u32;
        let kind = match word >> 32 {
            1 => Kind::List,
            2 => Kind::Map,
            _ => return None,
        };
        let sizes = Self {
            leaf: byte(3),
            page: byte(2),
            counters: byte(1),
            load: byte(0),
        };
        let sound = sizes.leaf <= 8 && sizes.page <= 9 && sizes.counters <= 6 && sizes.load <= 8;
        sound.then_some((kind, sizes))
    }

    /// Returns the number of buckets opened together, less one. The number is half a page of
    /// buckets, but at most 32, so that this is a small piece of work.
    #[inline(always)]
    pub fn last_of_group(self) -> u64 {
        (1 << self.leaf.saturating_sub(1).min(GROUP)) - 1
    }

    /// Returns the largest number of buckets that the directory can hold, as a logarithm.
    pub fn most_buckets(self) -> u32 {
        self.leaf + 2 * self.page
    }
}

/// The description of a structure, read from its header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header<M: Memory = Native> {
    pub memory: M,
    pub at: Offset,
    pub kind: Kind,
    pub sizes: Sizes,
    pub seed: u64,
    pub form: Form,
}

fn size_word(bytes: Option<u64>) -> u64 {
    bytes.map_or(0, |bytes| bytes + 1)
}

/// Returns the words of the header before the checksum.
fn words<K: Datum + ?Sized, V: Datum + ?Sized>(kind: Kind, sizes: Sizes, seed: u64) -> [u64; 7] {
    [
        MAGIC,
        sizes.to_word(kind),
        seed,
        K::FINGERPRINT,
        V::FINGERPRINT,
        size_word(K::BYTES),
        size_word(V::BYTES),
    ]
}

fn checksum(words: [u64; 7]) -> u64 {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    xxh3_64_with_seed(&bytes, 0)
}

impl<M: Memory> Header<M> {
    /// The smallest size of a header in bytes.
    pub const LEAST_BYTES: u64 = COUNTERS + COUNTER_BYTES;

    /// Returns the number of bytes of a header.
    pub fn bytes(sizes: Sizes) -> u64 {
        COUNTERS + (COUNTER_BYTES << sizes.counters)
    }

    /// Writes the header of an empty structure to `at`.
    pub fn write<K: Datum + ?Sized, V: Datum + ?Sized>(
        memory: M,
        at: Offset,
        kind: Kind,
        sizes: Sizes,
        seed: u64,
    ) -> Self {
        let put = |offset: u64, word: u64| memory.store(at + offset, word, Ordering::Relaxed);
        (0..Self::bytes(sizes))
            .step_by(8)
            .for_each(|offset| put(offset, 0));
        let words = words::<K, V>(kind, sizes, seed);
        for (offset, word) in (0..).step_by(8).zip(words) {
            put(offset, word);
        }
        put(CHECKSUM, checksum(words));
        // The list is empty: its head leads to its tail, which leads nowhere.
        put(HEAD, entry_as_node(at + TAIL).raw());
        put(TAIL + 8, u64::MAX);
        memory.persist(at, Self::bytes(sizes));
        Self {
            memory,
            at,
            kind,
            sizes,
            seed,
            form: Form {
                key: K::BYTES,
                value: V::BYTES,
            },
        }
    }

    /// The first word of every header.
    pub const MAGIC: u64 = MAGIC;

    /// Reads the header at `at` of a structure with any key and value types.
    pub fn read(memory: M, at: Offset) -> Result<Self, OpenError> {
        Self::read_sealed(memory, at, MAGIC)
    }

    /// Reads a header whose first word is `first` by now, like [`read`](Self::read).
    pub fn read_sealed(memory: M, at: Offset, first: u64) -> Result<Self, OpenError> {
        let inside = |bytes: u64| {
            Offset::checked(at.raw(), bytes, 8, memory.size())
                .map_err(|source| OpenError::Outside { at, source })
        };
        inside(COUNTERS)?;
        if at.is_null() {
            return Err(OpenError::NotOne { at, magic: 0 });
        }
        // Relaxed: a thread that was told the place sees the header, which was written before.
        let word = |index: u64| memory.load::<u64>(at + index * 8, Ordering::Relaxed);
        let mut words: [u64; 7] = core::array::from_fn(|index| word(index as u64));
        if words[0] != first {
            let magic = words[0];
            return Err(OpenError::NotOne { at, magic });
        }
        words[0] = MAGIC;
        let (expected, found) = (checksum(words), word(WORDS));
        if expected != found {
            return Err(OpenError::Checksum {
                at,
                expected,
                found,
            });
        }
        let Some((kind, sizes)) = Sizes::from_word(words[1]) else {
            return Err(OpenError::UnknownKind { at, word: words[1] });
        };
        inside(Self::bytes(sizes))?;
        let form = Form {
            key: words[5].checked_sub(1),
            value: words[6].checked_sub(1),
        };
        // Then no sum of sizes overflows.
        for (what, size) in [("keys", form.key), ("values", form.value)] {
            if let Some(bytes) = size.filter(|size| *size > memory.size()) {
                return Err(OpenError::Sizes { at, what, bytes });
            }
        }
        Ok(Self {
            memory,
            at,
            kind,
            sizes,
            seed: words[2],
            form,
        })
    }

    /// Opens the header at `at`, if it is the header of a structure of this kind with keys of type
    /// `K` and values of type `V`.
    pub fn open<K: Datum + ?Sized, V: Datum + ?Sized>(
        memory: M,
        at: Offset,
        kind: Kind,
    ) -> Result<Self, OpenError> {
        let this = Self::read(memory, at)?;
        let wanted = words::<K, V>(kind, this.sizes, this.seed);
        let word = |index: u64| memory.load::<u64>(at + index * 8, Ordering::Relaxed);
        if this.kind != kind {
            let (found, wanted) = (this.kind.name(), kind.name());
            return Err(OpenError::OtherKind { at, found, wanted });
        }
        for (what, indices) in [("keys", [3, 5]), ("values", [4, 6])] {
            if indices.iter().any(|&i| word(i) != wanted[i as usize]) {
                return Err(OpenError::OtherType {
                    at,
                    what,
                    found: word(indices[0]),
                    wanted: wanted[indices[0] as usize],
                });
            }
        }
        Ok(this)
    }

    /// Returns the offset of the word that holds the binary logarithm of the number of buckets.
    pub fn buckets_at(&self) -> Offset {
        self.at + BUCKETS
    }

    /// Returns the offset of the link to the first page of the directory.
    pub fn directory_at(&self) -> Offset {
        self.at + DIRECTORY
    }

    /// Returns the offset of bucket 0.
    pub fn head_at(&self) -> Offset {
        self.at + HEAD
    }

    /// Returns bucket 0, as a node.
    #[inline(always)]
    pub fn head(&self) -> Offset {
        entry_as_node(self.at + HEAD)
    }

    /// Returns the end of the list, as a node.
    pub fn tail(&self) -> Offset {
        entry_as_node(self.at + TAIL)
    }

    /// Adds `by` to the caller's counter and returns its former value.
    #[inline(always)]
    pub fn count(&self, heap: &LocalHeap<'_, M>, by: i64) -> i64 {
        let counter = u64::from(heap.instance().id) & ((1 << self.sizes.counters) - 1);
        let at = self.at + COUNTERS + counter * COUNTER_BYTES;
        // Relaxed: an estimate.
        self.memory
            .fetch_add(at, by as u64, Ordering::Relaxed)
            .cast_signed()
    }

    /// Returns the number of entries, as far as live members have counted.
    pub fn counted(&self) -> u64 {
        let counter = |index: u64| -> u64 {
            let at = self.at + COUNTERS + index * COUNTER_BYTES;
            self.memory.load(at, Ordering::Relaxed)
        };
        let sum = (0..1 << self.sizes.counters)
            .map(counter)
            .fold(0, u64::wrapping_add);
        sum.cast_signed().max(0).cast_unsigned()
    }
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Map => "map",
        }
    }
}
