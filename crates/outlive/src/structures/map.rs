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

/// A hash map in shared memory that any number of members use at once, and that any of them may die in.
///
/// A handle is `Copy`. Every operation is lock-free, takes effect in one step or not at all, whenever its
/// caller dies, and is [detectable](crate::recovery): `Outcome` reads from a log which it was. The
/// map grows while it is used, and nobody waits for that. An operation is given the caller's way to the heap, and
/// the caller has no other operation running in its log.
///
/// ```
#[doc = include_str!("example_setup.txt")]
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
/// In a pod, the cell stands under a typed root:
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
/// // Everybody:
/// let root = pod.roots().find::<Words>("words")?.ok_or("no words")?;
/// let map = Map::<str, u64>::open_or_create(&heap, root.offset())?;
/// # Ok(())
/// # }
/// ```
pub struct Map<K: Datum + ?Sized, V: Datum + ?Sized, M: Memory = Native> {
    header: Header<M>,
    types: PhantomData<fn(&K, &V)>,
}

/// What came of a compare-and-exchange. `V` is what values are read as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange<V> {
    /// The key had the expected value, and has the new one.
    Done,
    /// It has this value, and keeps it.
    Different(V),
    /// There is no such key.
    Absent,
}

impl<K: Datum + ?Sized, V: Datum + ?Sized, M: Memory> Map<K, V, M> {
    fn of(header: Header<M>) -> Self {
        Self {
            header,
            types: PhantomData,
        }
    }

    /// Makes an empty map, and has the word at `cell`, which is 0, lead to it. Lock-free.
    ///
    /// # Errors
    /// If the cell leads somewhere, or there is no memory. Nothing is changed then.
    ///
    /// # Crash
    /// The cell leads to the map, or there is none, and nothing is lost.
    pub fn create(heap: &LocalHeap<'_, M>, cell: Offset) -> Result<Self, CreateError> {
        create::<K, V, M>(heap, cell, Kind::Map, Sizes::DEFAULT, SEED).map(Self::of)
    }

    /// The map that the word at `cell` leads to; [makes](Self::create) it if the word is 0. Of several that do this
    /// at once one makes it.
    ///
    /// # Errors
    /// As [`create`](Self::create) and [`open`](Self::open).
    pub fn open_or_create(heap: &LocalHeap<'_, M>, cell: Offset) -> Result<Self, CreateError> {
        open_or_create::<K, V, M>(heap, cell, Kind::Map, Sizes::DEFAULT, SEED).map(Self::of)
    }

    /// As [`create`](Self::create), with hashes that follow from `seed`: for keys that an enemy chooses.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_seeded(
        heap: &LocalHeap<'_, M>,
        cell: Offset,
        seed: u64,
    ) -> Result<Self, CreateError> {
        create::<K, V, M>(heap, cell, Kind::Map, Sizes::DEFAULT, seed).map(Self::of)
    }

    /// As [`create`](Self::create), with pages so small that a few entries let every part of it grow: for
    /// the proofs.
    ///
    /// # Errors
    /// As [`create`](Self::create).
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

    /// As [`create_small`](Self::create_small), but it does not grow before it has 256 entries.
    ///
    /// # Errors
    /// As [`create`](Self::create).
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

    /// The map whose header stands at `at`: what the cell holds.
    ///
    /// # Errors
    /// If there is none, or its header is damaged, or its keys or values are of other types.
    pub fn open(memory: M, at: Offset) -> Result<Self, OpenError> {
        Header::open::<K, V>(memory, at, Kind::Map).map(Self::of)
    }

    /// Where its header is.
    pub fn offset(&self) -> Offset {
        self.header.at
    }

    #[inline(always)]
    fn hash(&self, key: &K) -> u64 {
        xxh3_64_with_seed(key.bytes(), self.header.seed)
    }

    /// The way to `key` for whoever changes something.
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
    fn find(&self, pin: &Pinned<'_, M>, key: &K) -> Option<(Offset, u64)> {
        let hash = self.hash(key);
        let path = self.path_from(self.header.start_to_look(hash), hash, key);
        match seek(self.header.memory, pin, path.start, path.sort, path.judge) {
            Place::Node { node, value, .. } => Some((node, value)),
            Place::Gap { .. } => None,
        }
    }

    /// The value of `key`. Lock-free: it begins again only when others have changed the list where it reads.
    #[inline]
    pub fn get(&self, heap: &LocalHeap<'_, M>, key: &K) -> Option<V::Owned> {
        let pin = heap.pin();
        let (node, value) = self.find(&pin, key)?;
        Some(Typed::<K, V>::value(self.header.memory, node, value))
    }

    /// Where the value of `key` stands that it was inserted with, if nobody has replaced it: in the entry itself, whole
    /// words, for values that are changed in place by the words' own operations. It stays there until the entry is
    /// removed. Lock-free.
    ///
    /// For maps whose entries are not removed while somebody uses such a place. What
    /// [`get`](Self::get) and [`iter`](Self::iter) return of a value that is changed in place may be of several moments.
    pub fn place(&self, heap: &LocalHeap<'_, M>, key: &K) -> Option<Offset> {
        let pin = heap.pin();
        let (node, value) = self.find(&pin, key)?;
        let memory = self.header.memory;
        Typed::<K, V>::is_inline(value).then(|| Typed::<K, V>::FORM.value(memory, node, value).0)
    }

    /// The [places](Self::place) of all values that nobody has replaced, in no order that means anything: of what is there during
    /// the whole iteration, each once. It copies nothing, so it is many times as quick as [`iter`](Self::iter). Lock-free.
    ///
    /// Who reads at a place that it gives has a [pin](LocalHeap::pin) from before the iteration, or knows otherwise that the entry is not
    /// removed: the pins of the iteration itself are short.
    pub fn places<'h>(
        &self,
        heap: &'h LocalHeap<'h, M>,
    ) -> impl Iterator<Item = Offset> + use<'h, K, V, M> {
        Walk::new(self.header, heap, |memory, node, value| {
            Typed::<K, V>::is_inline(value)
                .then(|| Typed::<K, V>::FORM.value(memory, node, value).0)
        })
    }

    /// Whether `key` is there. Lock-free.
    pub fn contains(&self, heap: &LocalHeap<'_, M>, key: &K) -> bool {
        self.find(&heap.pin(), key).is_some()
    }

    /// Inserts `key` with `value`. Lock-free.
    ///
    /// Whoever does it again after a death, with a value that follows from the key, has the same as if it had
    /// been done once.
    ///
    /// # Errors
    /// If the key is there, with its value; or there is no memory. Nothing is changed then.
    ///
    /// # Crash
    /// The entry is there, or it is not and nothing is lost; the log says which.
    #[inline]
    pub fn insert(
        &self,
        heap: &LocalHeap<'_, M>,
        key: &K,
        value: &V,
    ) -> Result<(), InsertError<V::Owned>> {
        self.insert_at(heap, key, value).map(drop)
    }

    /// The same, and says the [place](Self::place) of the value. A [pin](LocalHeap::pin) from before keeps it, should another remove the
    /// entry at once: by then [`place`](Self::place) finds nothing, or an entry that came later.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    ///
    /// # Crash
    /// As [`insert`](Self::insert).
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
            // Where it was written, whether or not somebody has replaced it by now.
            Typed::<K, V>::FORM
                .value(self.header.memory, node, INLINE)
                .0
        };
        self.header.count_one_more(heap);
        Ok(place)
    }

    /// The value of `key`, after inserting `value` if it had none. Lock-free.
    ///
    /// # Errors
    /// If there is no memory.
    ///
    /// # Crash
    /// As [`insert`](Self::insert).
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
    /// The entry is gone, or it is not; the log says which. Its memory is reclaimed either way.
    pub fn remove(&self, heap: &LocalHeap<'_, M>, key: &K) -> Option<V::Owned> {
        self.remove_if(heap, key, |_| true)
    }

    /// [Removes](Self::remove) `key` if it has a value that `wanted` says yes to, and returns its value. `wanted` may be
    /// called more than once, when others are faster. Lock-free.
    ///
    /// Of a value that is [changed in place](Self::place) `wanted` should ask what does not change any more once it is so:
    /// the entry that is removed is the one that was asked about, whatever has its key by then.
    ///
    /// # Crash
    /// As [`remove`](Self::remove).
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

    /// Gives `key`, if it is there, the value `value`, and returns what it had. Lock-free.
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

    /// Gives `key`, if it is there, what `make` makes of its value, and returns what it had. `make` may be called
    /// more than once, when others are faster. Lock-free.
    ///
    /// # Errors
    /// As [`replace`](Self::replace).
    ///
    /// # Crash
    /// As [`replace`](Self::replace).
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
    /// As [`replace`](Self::replace).
    ///
    /// # Crash
    /// As [`insert`](Self::insert) or [`replace`](Self::replace), whichever was running.
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

    /// Gives `key` the value `new` if it has the value `expected`. Lock-free.
    ///
    /// # Errors
    /// As [`replace`](Self::replace).
    ///
    /// # Crash
    /// As [`replace`](Self::replace).
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

    /// How many entries there are, about: an operation that runs now, and the last one of each dead member, may
    /// count or not.
    pub fn len(&self) -> u64 {
        self.header.counted()
    }

    /// Whether it is empty, as far as [`len`](Self::len) can tell.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All entries, in no order that means anything: see [`Iter`] for what it guarantees.
    pub fn iter<'h>(&self, heap: &'h LocalHeap<'h, M>) -> Iter<'h, K, V, M> {
        Iter::new(self.header, heap)
    }

    /// Walks everything and says what is wrong. While it is being changed, findings may be false.
    pub fn check(&self) -> Report {
        self.header.check()
    }

    /// Every block of the heap that the map consists of, for
    /// the check of the heap; while nobody changes it.
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
