//! The sorted list.

use super::chain::{self, Judgement, Made, Path, Place, Replaced, seek};
use super::check::{Blocks, Report};
use super::create::{create, open_or_create};
use super::datum::{Datum, OrderedDatum};
use super::error::{CreateError, InsertError, OpenError};
use super::header::{Header, Kind, Sizes};
use super::iterate::Iter;
use super::map::Exchange;
use super::node::Typed;
use crate::heap::buddy::AllocateError;
use crate::heap::{LocalHeap, Pinned};
use core::cmp::Ordering as Order;
use core::fmt;
use core::marker::PhantomData;
use outlive_memory::{Memory, Native, Offset};

/// A sorted list of keys with values, in shared memory (LUPIN's detectable list): for a few
/// entries, or where order matters. Its operations take time in the length of the list;
/// [`Map`](super::Map)'s do not.
///
/// The documentation of [`Map`](super::Map) holds for it too.
///
/// ```
#[doc = include_str!("../example_setup.txt")]
/// use outlive::structures::List;
///
/// let list = List::<u64, u64>::create(&heap, cell)?;
/// for number in [30, 10, 20] {
///     list.insert(&heap, &number, &(number * number))?;
/// }
/// list.remove(&heap, &20);
/// assert_eq!(list.iter(&heap).collect::<Vec<_>>(), [(10, 100), (30, 900)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct List<K: OrderedDatum + ?Sized, V: Datum + ?Sized, M: Memory = Native> {
    pub(super) header: Header<M>,
    types: PhantomData<fn(&K, &V)>,
}

const SIZES: Sizes = Sizes {
    counters: 0,
    ..Sizes::DEFAULT
};

impl<K: OrderedDatum + ?Sized, V: Datum + ?Sized, M: Memory> List<K, V, M> {
    fn of(header: Header<M>) -> Self {
        Self {
            header,
            types: PhantomData,
        }
    }

    /// Creates an empty list and stores its place in the word at `cell`, which is 0. Lock-free.
    ///
    /// # Errors
    /// If the cell leads somewhere, or there is no memory. Nothing is changed then.
    ///
    /// # Crash
    /// The cell leads to the list, or no list exists, and nothing is lost.
    pub fn create(heap: &LocalHeap<'_, M>, cell: Offset) -> Result<Self, CreateError> {
        create::<K, V, M>(heap, cell, Kind::List, SIZES, 0).map(Self::of)
    }

    /// Opens the list that the word at `cell` leads to, or [creates](Self::create) it if that is 0.
    ///
    /// # Errors
    /// Returns the errors of [`create`](Self::create) and [`open`](Self::open).
    pub fn open_or_create(heap: &LocalHeap<'_, M>, cell: Offset) -> Result<Self, CreateError> {
        open_or_create::<K, V, M>(heap, cell, Kind::List, SIZES, 0).map(Self::of)
    }

    /// Opens the list whose header is at `at`, the value of the cell.
    ///
    /// # Errors
    /// If no list is there, its header is damaged, or its keys or values are of other types.
    pub fn open(memory: M, at: Offset) -> Result<Self, OpenError> {
        Header::open::<K, V>(memory, at, Kind::List).map(Self::of)
    }

    /// Returns the offset of the list's header.
    pub fn offset(&self) -> Offset {
        self.header.at
    }

    fn path<'k>(&self, key: &'k K) -> Path<impl Fn(Offset) -> Judgement + use<'k, K, V, M>> {
        let memory = self.header.memory;
        Path {
            start: self.header.head(),
            sort: key.rank(),
            judge: move |node| {
                let (len, _) = Typed::<K, V>::FORM.lengths(memory, node);
                match key.compare(memory, Typed::<K, V>::FORM.key_at(node), len) {
                    Order::Equal => Judgement::Found,
                    Order::Greater => Judgement::Before,
                    Order::Less => Judgement::Behind,
                }
            },
        }
    }

    pub(super) fn find(&self, pin: &Pinned<'_, M>, key: &K) -> Option<(Offset, u64)> {
        let path = self.path(key);
        match seek(self.header.memory, pin, path.start, path.sort, path.judge) {
            Place::Node { node, value, .. } => Some((node, value)),
            Place::Gap { .. } => None,
        }
    }

    fn value(&self, node: Offset, word: u64) -> V::Owned {
        Typed::<K, V>::value(self.header.memory, node, word)
    }

    /// Returns the value of `key`. Lock-free: it begins again only if another member has changed
    /// the list at the place that it reads.
    pub fn get(&self, heap: &LocalHeap<'_, M>, key: &K) -> Option<V::Owned> {
        let pin = heap.pin();
        let (node, value) = self.find(&pin, key)?;
        Some(self.value(node, value))
    }

    /// Returns whether `key` exists. Lock-free.
    pub fn contains(&self, heap: &LocalHeap<'_, M>, key: &K) -> bool {
        self.find(&heap.pin(), key).is_some()
    }

    /// Inserts `key` with `value`. Lock-free.
    ///
    /// # Errors
    /// If the key exists, with its value; or there is no memory. Nothing is changed then.
    ///
    /// # Crash
    /// The entry exists, or it does not and nothing is lost; the log says which.
    pub fn insert(
        &self,
        heap: &LocalHeap<'_, M>,
        key: &K,
        value: &V,
    ) -> Result<(), InsertError<V::Owned>> {
        {
            let pin = heap.pin();
            chain::insert(&self.header, heap, &pin, self.path(key), (key, value))?;
        }
        self.header.count(heap, 1);
        Ok(())
    }

    /// Removes `key` and returns its value. Lock-free.
    ///
    /// # Crash
    /// The entry is removed or not; the log says which. Its memory is reclaimed either way.
    pub fn remove(&self, heap: &LocalHeap<'_, M>, key: &K) -> Option<V::Owned> {
        let pin = heap.pin();
        let (node, value) = chain::remove(&self.header, heap, &pin, self.path(key), |_, _| true)?;
        self.header.count(heap, -1);
        Some(self.value(node, value))
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
        let (pin, path) = (heap.pin(), self.path(key));
        let want = |_, _| Some(value);
        let replaced = chain::replace::<K, V, M, &V>(&self.header, heap, &pin, path, want)?;
        Ok(match replaced {
            Replaced::Done(node, old) => Some(self.value(node, old)),
            _ => None,
        })
    }

    /// Does the same as [`replace`](Self::replace), but does not read the old value; returns
    /// whether the key exists.
    pub(crate) fn set(
        &self,
        heap: &LocalHeap<'_, M>,
        key: &K,
        value: &V,
    ) -> Result<bool, AllocateError> {
        let (pin, path) = (heap.pin(), self.path(key));
        let want = |_, _| Some(value);
        let replaced = chain::replace::<K, V, M, &V>(&self.header, heap, &pin, path, want)?;
        Ok(matches!(replaced, Replaced::Done(..)))
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
        let (pin, path) = (heap.pin(), self.path(key));
        let want = |node, old| Some(Made(make(self.value(node, old))));
        let replaced = chain::replace::<K, V, M, Made<V>>(&self.header, heap, &pin, path, want)?;
        Ok(match replaced {
            Replaced::Done(node, old) => Some(self.value(node, old)),
            _ => None,
        })
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
        let (pin, path, memory) = (heap.pin(), self.path(key), self.header.memory);
        let want = |node, old| Typed::<K, V>::has_value(memory, node, old, expected).then_some(new);
        let replaced = chain::replace::<K, V, M, &V>(&self.header, heap, &pin, path, want)?;
        Ok(match replaced {
            Replaced::Done(..) => Exchange::Done,
            Replaced::Refused(node, value) => Exchange::Different(self.value(node, value)),
            Replaced::Absent => Exchange::Absent,
        })
    }

    /// Returns the approximate number of entries: a running operation, and the last one of each
    /// dead member, may be counted or not.
    pub fn len(&self) -> u64 {
        self.header.counted()
    }

    /// Returns whether the list is empty. The result is approximate, as that of [`len`](Self::len).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns an iterator over all entries by rising keys: see [`Iter`] for its guarantees.
    pub fn iter<'h>(&self, heap: &'h LocalHeap<'h, M>) -> Iter<'h, K, V, M> {
        Iter::new(self.header, heap)
    }

    /// Checks the whole list and reports damage. Concurrent changes may cause false findings.
    pub fn check(&self) -> Report {
        self.header.check()
    }

    /// Returns every block of the heap that the list consists of, for the check of the heap. No
    /// member may change the list during the call.
    pub fn blocks(&self) -> Blocks {
        self.header.check().into_blocks()
    }
}

impl<K: OrderedDatum + ?Sized, V: Datum + ?Sized, M: Memory> Clone for List<K, V, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: OrderedDatum + ?Sized, V: Datum + ?Sized, M: Memory> Copy for List<K, V, M> {}

impl<K: OrderedDatum + ?Sized, V: Datum + ?Sized, M: Memory> fmt::Debug for List<K, V, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "List({})", self.header.at)
    }
}
