//! The hash map.

use super::chain::{self, Judgement, Made, Path, Place, Replaced, seek};
use super::check::{Blocks, Report};
use super::create::{SEED, create, open_or_create};
use super::datum::Datum;
use super::directory::sort_of;
use super::error::{CreateError, InsertError, OpenError};
use super::header::{Header, Kind, Sizes};
use super::iterate::{Iter, Walk};
use super::node::{INLINE, Typed};
use crate::heap::buddy::AllocateError;
use crate::heap::{LocalHeap, Pinned};
use core::fmt;
use core::marker::PhantomData;
use outlive_memory::{Memory, Native, Offset};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A hash map in shared memory that any number of members use concurrently. A member may die during
/// any operation.
///
/// A handle is `Copy`. Every operation is lock-free, takes effect in one step or not at all,
/// whenever its caller dies, and is [detectable](crate::recovery): `Outcome` reads from a log which
/// it was. The map grows while it is used, and no operation waits for that. An operation is given
/// the caller's heap handle, and the caller has no other operation running in its log.
///
/// ```
#[doc = include_str!("../example_setup.txt")]
/// use outlive::structures::{InsertError, Map};
///
/// // A word of shared memory, 0 at first, that leads to the map.
/// let map = Map::<str, u64>::create(&heap, cell)?;
/// map.insert(&heap, "ash", &3)?;
/// assert_eq!(map.get(&heap, "ash"), Some(3));
/// assert_eq!(map.insert(&heap, "ash", &4), Err(InsertError::Exists(3)));
/// map.upsert(&heap, "oak", &1, |n| n + 1)?;
/// map.upsert(&heap, "oak", &1, |n| n + 1)?;
/// assert_eq!(map.remove(&heap, "ash"), Some(3));
///
/// // Elsewhere:
/// let same = Map::<str, u64>::open(memory, map.offset())?;
/// assert_eq!(same.iter(&heap).collect::<Vec<_>>(), [("oak".to_owned(), 2)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// In a pod, the cell is under a typed root:
///
/// ```no_run
/// use outlive::{heap::LocalHeap, pod::Pod, structures::Map};
///
/// outlive::shared! { struct Words { map: u64 } }
///
/// # fn example(pod: Pod, heap: LocalHeap<'_>, place: outlive::memory::Offset)
/// # -> Result<(), Box<dyn std::error::Error>> {
/// // Whoever creates the pod: `place` is 8 zeroed bytes of its payload.
/// pod.roots().publish::<Words>("words", place)?;
/// // Each process:
/// let root = pod.roots().find::<Words>("words")?.ok_or("no words")?;
/// let map = Map::<str, u64>::open_or_create(&heap, root.offset())?;
/// # Ok(())
/// # }
/// ```
pub struct Map<K: Datum + ?Sized, V: Datum + ?Sized, M: Memory = Native> {
    pub(super) header: Header<M>,
    types: PhantomData<fn(&K, &V)>,
}

/// The result of a compare-and-exchange. `V` is the type that values are read as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange<V> {
    /// The key had the expected value, and has the new one.
    Done,
    /// The key has this value, and keeps it.
    Different(V),
    /// The key does not exist.
    Absent,
}

impl<K: Datum + ?Sized, V: Datum + ?Sized, M: Memory> Map<K, V, M> {
    fn of(header: Header<M>) -> Self {
        Self {
            header,
            types: PhantomData,
        }
    }

    /// Creates an empty map and stores its place in the word at `cell`, which is 0. Lock-free.
    ///
    /// # Errors
    /// If the cell leads somewhere, or there is no memory. Nothing is changed then.
    ///
    /// # Crash
    /// The cell leads to the map, or no map exists, and nothing is lost.
    pub fn create(heap: &LocalHeap<'_, M>, cell: Offset) -> Result<Self, CreateError> {
        create::<K, V, M>(heap, cell, Kind::Map, Sizes::DEFAULT, SEED).map(Self::of)
    }

    /// Opens the map that the word at `cell` leads to; [creates](Self::create) it if the word is 0.
    /// One of several concurrent callers creates it.
    ///
    /// # Errors
    /// Returns the errors of [`create`](Self::create) and [`open`](Self::open).
    pub fn open_or_create(heap: &LocalHeap<'_, M>, cell: Offset) -> Result<Self, CreateError> {
        open_or_create::<K, V, M>(heap, cell, Kind::Map, Sizes::DEFAULT, SEED).map(Self::of)
    }

    /// Does the same as [`create`](Self::create), with hashes that depend on `seed`: for keys
    /// chosen by an attacker.
    ///
    /// # Errors
    /// Returns the errors of [`create`](Self::create).
    pub fn create_seeded(
        heap: &LocalHeap<'_, M>,
        cell: Offset,
        seed: u64,
    ) -> Result<Self, CreateError> {
        create::<K, V, M>(heap, cell, Kind::Map, Sizes::DEFAULT, seed).map(Self::of)
    }

    /// Does the same as [`create`](Self::create), with pages so small that a few entries make every
    /// part of the map grow: for the proofs.
    ///
    /// # Errors
    /// Returns the errors of [`create`](Self::create).
    #[doc(hidden)]
    pub fn create_small(heap: &LocalHeap<'_, M>, cell: Offset) -> Result<Self, CreateError> {
        let sizes = Sizes {
            leaf: 2,
            page: 3,
            counters: 0,
            load: 0,
        };
        create::<K, V, M>(heap, cell, Kind::Map, sizes, SEED).map(Self::of)
    }

    /// Does the same as [`create_small`](Self::create_small), but it does not grow before it has
    /// 256 entries.
    ///
    /// # Errors
    /// Returns the errors of [`create`](Self::create).
    #[doc(hidden)]
    pub fn create_roomy(heap: &LocalHeap<'_, M>, cell: Offset) -> Result<Self, CreateError> {
        let sizes = Sizes {
            leaf: 2,
            page: 3,
            counters: 0,
            load: 8,
        };
        create::<K, V, M>(heap, cell, Kind::Map, sizes, SEED).map(Self::of)
    }

    /// Opens the map whose header is at `at`, the value of the cell.
    ///
    /// # Errors
    /// If no map is there, its header is damaged, or its keys or values are of other types.
    pub fn open(memory: M, at: Offset) -> Result<Self, OpenError> {
        Header::open::<K, V>(memory, at, Kind::Map).map(Self::of)
    }

    /// Returns the offset of the map's header.
    pub fn offset(&self) -> Offset {
        self.header.at
    }

    #[inline(always)]
    fn hash(&self, key: &K) -> u64 {
        xxh3_64_with_seed(key.bytes(), self.header.seed)
    }

    /// Returns the path to `key` for an operation that changes the map.
    #[inline(always)]
    fn path<'k>(
        &self,
        heap: &LocalHeap<'_, M>,
        pin: &Pinned<'_, M>,
        key: &'k K,
    ) -> Path<impl Fn(Offset) -> Judgement + use<'k, K, V, M>> {
        let hash = self.hash(key);
        self.path_from(self.header.start(heap, pin, hash), hash, key)
    }

    #[inline(always)]
    fn path_from<'k>(
        &self,
        start: Offset,
        hash: u64,
        key: &'k K,
    ) -> Path<impl Fn(Offset) -> Judgement + use<'k, K, V, M>> {
        let memory = self.header.memory;
        Path {
            start,
            sort: sort_of(hash),
            judge: move |node| {
                if Typed::<K, V>::has_key(memory, node, key) {
                    Judgement::Found
                } else {
                    Judgement::Before
                }
            },
        }
    }

    #[inline(always)]
    pub(super) fn find(&self, pin: &Pinned<'_, M>, key: &K) -> Option<(Offset, u64)> {
        let hash = self.hash(key);
        let path = self.path_from(self.header.start_to_look(hash), hash, key);
        match seek(self.header.memory, pin, path.start, path.sort, path.judge) {
            Place::Node { node, value, .. } => Some((node, value)),
            Place::Gap { .. } => None,
        }
    }

    /// Returns the value of `key`. Lock-free: it begins again only if another member has changed
    /// the map at the place that it reads.
    #[inline]
    pub fn get(&self, heap: &LocalHeap<'_, M>, key: &K) -> Option<V::Owned> {
        let pin = heap.pin();
        let (node, value) = self.find(&pin, key)?;
        Some(Typed::<K, V>::value(self.header.memory, node, value))
    }

    /// Returns the offset of the value that `key` was inserted with, unless it has been replaced.
    /// The value is inside the entry and consists of whole words, so that atomic operations can
    /// change it in place. It stays there until the entry is removed. Lock-free.
    ///
    /// For maps whose entries are not removed while such an offset is in use. A value that is
    /// changed in place may be torn in the results of [`get`](Self::get) and [`iter`](Self::iter):
    /// its words may be of several moments.
    pub fn place(&self, heap: &LocalHeap<'_, M>, key: &K) -> Option<Offset> {
        let pin = heap.pin();
        let (node, value) = self.find(&pin, key)?;
        let memory = self.header.memory;
        Typed::<K, V>::is_inline(value).then(|| Typed::<K, V>::FORM.value(memory, node, value).0)
    }

    /// Returns the [places](Self::place) of all values that have not been replaced, in arbitrary
    /// order; each entry that exists during the whole iteration is returned once. The iterator
    /// copies no values, so it is many times as fast as [`iter`](Self::iter). Lock-free.
    ///
    /// A caller that reads at a returned place holds a [pin](LocalHeap::pin) from before the
    /// iteration, or knows otherwise that the entry is not removed: the iteration's own pins are
    /// short.
    pub fn places<'h>(
        &self,
        heap: &'h LocalHeap<'h, M>,
    ) -> impl Iterator<Item = Offset> + use<'h, K, V, M> {
        Walk::new(self.header, heap, |memory, node, value| {
            Typed::<K, V>::is_inline(value)
                .then(|| Typed::<K, V>::FORM.value(memory, node, value).0)
        })
    }

    /// Returns whether `key` exists. Lock-free.
    pub fn contains(&self, heap: &LocalHeap<'_, M>, key: &K) -> bool {
        self.find(&heap.pin(), key).is_some()
    }

    /// Inserts `key` with `value`. Lock-free.
    ///
    /// A caller that repeats the insertion after a death, with a value that follows from the key,
    /// gets the same map as after one insertion.
    ///
    /// # Errors
    /// If the key exists, with its value; or there is no memory. Nothing is changed then.
    ///
    /// # Crash
    /// The entry exists, or it does not and nothing is lost; the log says which.
    #[inline]
    pub fn insert(
        &self,
        heap: &LocalHeap<'_, M>,
        key: &K,
        value: &V,
    ) -> Result<(), InsertError<V::Owned>> {
        self.insert_at(heap, key, value).map(drop)
    }

    /// Inserts `key` with `value` and returns the [place](Self::place) of the value. A
    /// [pin](LocalHeap::pin) from before keeps the place valid even if another member removes the
    /// entry immediately afterwards; then [`place`](Self::place) finds nothing, or a later entry.
    ///
    /// # Errors
    /// Returns the errors of [`insert`](Self::insert).
    ///
    /// # Crash
    /// The outcome is that of a crash in [`insert`](Self::insert).
    #[inline]
    pub fn insert_at(
        &self,
        heap: &LocalHeap<'_, M>,
        key: &K,
        value: &V,
    ) -> Result<Offset, InsertError<V::Owned>> {
        let place = {
            let pin = heap.pin();
            let path = self.path(heap, &pin, key);
            let node = chain::insert(&self.header, heap, &pin, path, (key, value))?;
            // The place where it was written, even if it has been replaced since.
            Typed::<K, V>::FORM
                .value(self.header.memory, node, INLINE)
                .0
        };
        self.header.count_one_more(heap);
        Ok(place)
    }

    /// Returns the value of `key`, after inserting `value` if it had none. Lock-free.
    ///
    /// # Errors
    /// If there is no memory.
    ///
    /// # Crash
    /// The outcome is that of a crash in [`insert`](Self::insert).
    pub fn get_or_insert(
        &self,
        heap: &LocalHeap<'_, M>,
        key: &K,
        value: &V,
    ) -> Result<V::Owned, AllocateError> {
        match self.insert(heap, key, value) {
            Ok(()) => Ok(value.owned()),
            Err(InsertError::Exists(there)) => Ok(there),
            Err(InsertError::Heap(error)) => Err(error),
        }
    }

    /// Removes `key` and returns its value. Lock-free.
    ///
    /// # Crash
    /// The entry is removed or not; the log says which. Its memory is reclaimed either way.
    pub fn remove(&self, heap: &LocalHeap<'_, M>, key: &K) -> Option<V::Owned> {
        self.remove_if(heap, key, |_| true)
    }

    /// [Removes](Self::remove) `key` if `wanted` accepts its value, and returns the value. `wanted`
    /// may be called more than once, when other members are faster. Lock-free.
    ///
    /// For a value that is [changed in place](Self::place), `wanted` should test a condition that
    /// does not change any more once it is true. The removed entry is the tested one, even if the
    /// key has a new entry by then.
    ///
    /// # Crash
    /// The outcome is that of a crash in [`remove`](Self::remove).
    pub fn remove_if(
        &self,
        heap: &LocalHeap<'_, M>,
        key: &K,
        mut wanted: impl FnMut(V::Owned) -> bool,
    ) -> Option<V::Owned> {
        let pin = heap.pin();
        let path = self.path(heap, &pin, key);
        let (node, value) = chain::remove(&self.header, heap, &pin, path, |node, value| {
            wanted(self.value(node, value))
        })?;
        self.header.count(heap, -1);
        Some(Typed::<K, V>::value(self.header.memory, node, value))
    }

    /// Replaces the value of `key`, if the key exists, and returns the old value. Lock-free.
    ///
    /// # Errors
    /// If there is no memory; nothing is changed then.
    ///
    /// # Crash
    /// The key has the new value, or the old one; the log says which, and nothing is lost.
    pub fn replace(
        &self,
        heap: &LocalHeap<'_, M>,
        key: &K,
        value: &V,
    ) -> Result<Option<V::Owned>, AllocateError> {
        let pin = heap.pin();
        let path = self.path(heap, &pin, key);
        let replaced =
            chain::replace::<K, V, M, &V>(&self.header, heap, &pin, path, |_, _| Some(value))?;
        Ok(match replaced {
            Replaced::Done(node, old) => Some(self.value(node, old)),
            _ => None,
        })
    }

    /// Replaces the value of `key`, if the key exists, by the one that `make` computes from it, and
    /// returns the old value. `make` is called again when another member is faster. Lock-free.
    ///
    /// # Errors
    /// Returns the errors of [`replace`](Self::replace).
    ///
    /// # Crash
    /// The outcome is that of a crash in [`replace`](Self::replace).
    pub fn update(
        &self,
        heap: &LocalHeap<'_, M>,
        key: &K,
        mut make: impl FnMut(V::Owned) -> V::Owned,
    ) -> Result<Option<V::Owned>, AllocateError> {
        let pin = heap.pin();
        let path = self.path(heap, &pin, key);
        let replaced =
            chain::replace::<K, V, M, Made<V>>(&self.header, heap, &pin, path, |node, old| {
                Some(Made(make(self.value(node, old))))
            })?;
        Ok(match replaced {
            Replaced::Done(node, old) => Some(self.value(node, old)),
            _ => None,
        })
    }

    /// [Updates](Self::update) `key` by `make`, or inserts it with `first`. Lock-free.
    ///
    /// # Errors
    /// Returns the errors of [`replace`](Self::replace).
    ///
    /// # Crash
    /// The outcome is that of a crash in [`insert`](Self::insert) or [`replace`](Self::replace).
    pub fn upsert(
        &self,
        heap: &LocalHeap<'_, M>,
        key: &K,
        first: &V,
        mut make: impl FnMut(V::Owned) -> V::Owned,
    ) -> Result<(), AllocateError> {
        loop {
            if self.update(heap, key, &mut make)?.is_some() {
                return Ok(());
            }
            match self.insert(heap, key, first) {
                Err(InsertError::Exists(_)) => {}
                Err(InsertError::Heap(error)) => return Err(error),
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Replaces the value of `key` by `new` if it is `expected`. Lock-free.
    ///
    /// # Errors
    /// Returns the errors of [`replace`](Self::replace).
    ///
    /// # Crash
    /// The outcome is that of a crash in [`replace`](Self::replace).
    pub fn compare_exchange(
        &self,
        heap: &LocalHeap<'_, M>,
        key: &K,
        expected: &V,
        new: &V,
    ) -> Result<Exchange<V::Owned>, AllocateError> {
        let (pin, memory) = (heap.pin(), self.header.memory);
        let path = self.path(heap, &pin, key);
        let replaced =
            chain::replace::<K, V, M, &V>(&self.header, heap, &pin, path, |node, old| {
                Typed::<K, V>::has_value(memory, node, old, expected).then_some(new)
            })?;
        Ok(match replaced {
            Replaced::Done(..) => Exchange::Done,
            Replaced::Refused(node, value) => Exchange::Different(self.value(node, value)),
            Replaced::Absent => Exchange::Absent,
        })
    }

    fn value(&self, node: Offset, word: u64) -> V::Owned {
        Typed::<K, V>::value(self.header.memory, node, word)
    }

    /// Returns the approximate number of entries: a running operation, and the last one of each
    /// dead member, may be counted or not.
    pub fn len(&self) -> u64 {
        self.header.counted()
    }

    /// Returns whether the map is empty. The result is approximate, as that of [`len`](Self::len).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns an iterator over all entries, in arbitrary order: see [`Iter`] for its guarantees.
    pub fn iter<'h>(&self, heap: &'h LocalHeap<'h, M>) -> Iter<'h, K, V, M> {
        Iter::new(self.header, heap)
    }

    /// Checks the whole map and reports damage. Concurrent changes may cause false findings.
    pub fn check(&self) -> Report {
        self.header.check()
    }

    /// Returns every block of the heap that the map consists of, for the check of the heap. No
    /// member may change the map during the call.
    pub fn blocks(&self) -> Blocks {
        self.header.check().into_blocks()
    }
}

impl<K: Datum + ?Sized, V: Datum + ?Sized, M: Memory> Clone for Map<K, V, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: Datum + ?Sized, V: Datum + ?Sized, M: Memory> Copy for Map<K, V, M> {}

impl<K: Datum + ?Sized, V: Datum + ?Sized, M: Memory> fmt::Debug for Map<K, V, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Map({})", self.header.at)
    }
}
