//! The buckets of a map: each is an entry point into its list, close to the keys that hash to it.
//!
//! The list is sorted by reversed hashes (Shalev and Shavit's split ordering), so that the entries
//! of a bucket are adjacent, and stay so when the number of buckets is doubled: bucket `b` of `n`
//! splits into `b` and `b + n`, and the second part of the old bucket belongs to the new one. So
//! the map grows by one compare-and-swap of a number. A new bucket is opened, with its neighbours
//! in the directory, by the first insertion into one of them: its two words are linked into the
//! list at the place where its entries begin.
//!
//! Buckets are opened in groups of up to 32 because lookups open nothing. If each bucket were
//! opened when an insertion first needs it, most of the younger half would be closed most of the
//! time, and every lookup there would go by way of an older bucket. The entries of neighbours are
//! far apart in the list, but their words are adjacent, as are those of the buckets that they split
//! from, and one claim serves for all.
//!
//! # The directory
//!
//! The words of the buckets are in pages, in a tree of three levels: the header leads to a page of
//! links, each of these to a page of links, each of these to a page of buckets. A page is allocated
//! when a bucket in it is first needed, and never freed. So no operation zeroes or copies more than
//! a page in one piece.
//!
//! # How a group of buckets is opened
//!
//! 1. *claim*: compare-and-swap the link of its first bucket (bucket 0 is open always, so of bucket
//!    1 in the first group) from 0 to [`CLAIMED`] and the operation's stamp;
//!
//! then for each of its buckets
//!
//! 2. *note* it in the operation;
//! 3. *aim*: store in its link the successor of its place in the list, with [`OPENING`];
//! 4. *link*: compare-and-swap the word before that place to lead to the bucket; if that fails, aim
//!    again;
//! 5. *open*: clear [`OPENING`]. Any member that walks along the list does that too.
//!
//! Only the claimer stores to a bucket that is not in the list, so a plain store suffices. No other
//! member waits for it: a member that finds a bucket closed begins at the bucket that it splits
//! from, which is only further away. A lack of memory for a page therefore does no harm. A dead
//! claimer is found by its operation: [the handler](super::recover) identifies a claim of its own
//! by the note, or before the note exists by the stamp, and continues with the noted bucket: to
//! link a linked bucket again changes nothing.
//!
//! A group may have more buckets than the map needs yet. That does no harm: each is closer to some
//! entries than the bucket that it splits from.

use super::chain::{Judgement, Place, allocate_pending, clear_pending, free_pending, open, seek};
use super::header::{ENTRY_BYTES, Header};
use super::node::{CLAIMED, NEXT, OPENING, SORT, entry_as_node, stamp};
use super::operation::{
    ADD_PAGE, AddPagePoint, DoublePoint, OPEN_BUCKETS, OpenBucketsPoint, PAGE_CELL,
};
use crate::heap::{LocalHeap, Pinned};
use crate::recovery::{OwnLog, RunningOperation};
use outlive_memory::{Memory, Offset, Ordering};

/// Returns the bucket from which `bucket` was split.
fn parent(bucket: u64) -> u64 {
    bucket & !(1 << bucket.ilog2())
}

/// Returns the sort of an entry with this hash: odd.
#[inline(always)]
pub(super) fn sort_of(hash: u64) -> u64 {
    hash.reverse_bits() | 1
}

/// Returns the sort of a bucket: even, and before those of its entries.
pub(super) fn bucket_sort(bucket: u64) -> u64 {
    bucket.reverse_bits()
}

impl<M: Memory> Header<M> {
    #[inline(always)]
    fn follow(&self, slot: Offset) -> Option<Offset> {
        // Acquire: the page's contents were written before it was linked.
        let page: u64 = self.memory.load(slot, Ordering::Acquire);
        (page != 0).then(|| Offset::from_raw(page))
    }

    /// Returns the place of the words of `bucket`, if its page exists.
    #[inline(always)]
    pub(super) fn bucket_at(&self, bucket: u64) -> Option<Offset> {
        if bucket == 0 {
            return Some(self.head_at());
        }
        let (leaf, page) = (self.sizes.leaf, self.sizes.page);
        let number = bucket >> leaf;
        let first = self.follow(self.directory_at())?;
        let second = self.follow(first + (number >> page) * 8)?;
        let buckets = self.follow(second + (number & ((1 << page) - 1)) * 8)?;
        Some(buckets + (bucket & ((1 << leaf) - 1)) * ENTRY_BYTES)
    }

    /// Returns `bucket` as a node to begin at, if it is open.
    #[inline(always)]
    pub(super) fn opened(&self, bucket: u64) -> Option<Offset> {
        self.opened_at(self.bucket_at(bucket)?)
    }

    /// Returns the bucket whose words are at `at` as a node to begin at, if it is open.
    #[inline(always)]
    fn opened_at(&self, at: Offset) -> Option<Offset> {
        // Acquire: it is in the list.
        let next: u64 = self.memory.load(at, Ordering::Acquire);
        (next != 0 && next & (CLAIMED | OPENING) == 0).then(|| entry_as_node(at))
    }

    /// Returns the bucket of `hash`.
    #[inline(always)]
    pub(super) fn bucket_of(&self, hash: u64) -> u64 {
        // Relaxed: a bucket of any size will do. No checksum covers the number; the limit keeps a
        // damaged one from leading beyond the directory.
        let buckets: u64 = self.memory.load(self.buckets_at(), Ordering::Relaxed);
        hash & ((1 << buckets.min(self.sizes.most_buckets().into())) - 1)
    }

    /// Returns the starting node for `hash`, without opening anything.
    pub(super) fn nearest(&self, hash: u64) -> Offset {
        self.nearest_to(self.bucket_of(hash))
    }

    fn nearest_to(&self, mut bucket: u64) -> Offset {
        loop {
            match self.opened(bucket) {
                Some(start) => return start,
                None if bucket == 0 => return self.head(),
                None => bucket = parent(bucket),
            }
        }
    }

    /// Returns the starting node for `hash`; opens the bucket if it is closed.
    #[inline(always)]
    pub(super) fn start(&self, heap: &LocalHeap<'_, M>, pin: &Pinned<'_, M>, hash: u64) -> Offset {
        let bucket = self.bucket_of(hash);
        match self.opened(bucket) {
            Some(start) => start,
            None => self.split(heap, pin, bucket),
        }
    }

    /// Returns the starting node of a lookup of `hash`. A lookup opens nothing: the bucket that
    /// this one splits from is near.
    #[inline(always)]
    pub(super) fn start_to_look(&self, hash: u64) -> Offset {
        let bucket = self.bucket_of(hash);
        match self.opened(bucket) {
            Some(start) => start,
            None => self.nearest_to(parent(bucket)),
        }
    }

    /// Opens `bucket` and the closed buckets that it was split from; returns the starting node.
    #[cold]
    #[inline(never)]
    fn split(&self, heap: &LocalHeap<'_, M>, pin: &Pinned<'_, M>, bucket: u64) -> Offset {
        // The nearest of these that is open; bucket 0 is. Most often it is the first.
        let mut opened = parent(bucket);
        while opened != 0 && self.opened(opened).is_none() {
            opened = parent(opened);
        }
        // Then back, with one more bit of the bucket's number each time.
        while opened != bucket {
            let rest = bucket & !opened;
            opened |= 1 << rest.trailing_zeros();
            if self.open_group(heap, pin, opened).is_none() {
                break;
            }
        }
        self.nearest_to(bucket)
    }

    /// Opens the group of buckets that `bucket` is in, unless another member has opened or claimed
    /// it. A claimer that stops in the middle does not keep others from opening the buckets that
    /// are split from this group. Returns `None` if there is no memory.
    fn open_group(&self, heap: &LocalHeap<'_, M>, pin: &Pinned<'_, M>, bucket: u64) -> Option<()> {
        let (first, memory) = (self.first_of_group(bucket), self.memory);
        let at = self.place(heap, first)?;
        if memory.load::<u64>(at, Ordering::Relaxed) != 0 {
            return Some(());
        }
        let operation = OwnLog::of(heap.member()).begin(OPEN_BUCKETS, &[self.at.raw(), first]);
        let claim = CLAIMED | stamp(heap.instance().id, operation.sequence());
        // Relaxed: a claim announces nothing.
        let order = (Ordering::Relaxed, Ordering::Relaxed);
        if memory
            .compare_exchange(at, 0, claim, order.0, order.1)
            .is_err()
        {
            operation.abandon(&[]);
            return Some(());
        }
        memory.persist(at, 8);
        memory.crash_point(OpenBucketsPoint::Claimed);
        self.open_from(pin, first, at, &operation);
        operation.finish(&[]);
        Some(())
    }

    /// Returns the bucket whose claim is the claim of the group that `bucket` is in: the first of
    /// the group, or 1 in the first group, because bucket 0 is always open.
    fn first_of_group(&self, bucket: u64) -> u64 {
        (bucket & !self.sizes.last_of_group()).max(1)
    }

    /// Opens a claimed group, from `first` on, whose words are at `at`.
    fn open_from(
        &self,
        pin: &Pinned<'_, M>,
        first: u64,
        at: Offset,
        operation: &RunningOperation<'_, M>,
    ) {
        let (memory, from) = (self.memory, parent(first));
        // The buckets that these split from are adjacent too, except that bucket 0 is apart and the
        // first group is split from itself.
        let together = from != 0 && first > self.sizes.last_of_group();
        let from_at = if together { self.bucket_at(from) } else { None };
        for index in 0..=self.sizes.last_of_group() - (first & self.sizes.last_of_group()) {
            let (bucket, after) = (first + index, index * ENTRY_BYTES);
            operation.note(bucket);
            memory.crash_point(OpenBucketsPoint::Noted);
            let start = from_at.and_then(|from_at| self.opened_at(from_at + after));
            let start = start.unwrap_or_else(|| self.nearest_to(parent(bucket)));
            self.link_bucket(pin, bucket, at + after, start);
        }
    }

    /// Links and opens one bucket of a claimed group.
    fn link_bucket(&self, pin: &Pinned<'_, M>, bucket: u64, at: Offset, start: Offset) {
        let (memory, node) = (self.memory, entry_as_node(at));
        loop {
            // No other node has its sort.
            let place = seek(memory, pin, start, bucket_sort(bucket), |found| {
                assert!(
                    found == node,
                    "bucket {bucket} exists twice, at {node} and {found}"
                );
                Judgement::Behind
            });
            let Place::Gap { link, next } = place else {
                unreachable!("a bucket has no value")
            };
            if next == node.raw() {
                // Linked before its claimer died. The walk has opened it.
                break;
            }
            memory.store(at, next | OPENING, Ordering::Relaxed);
            memory.persist(at, 8);
            memory.crash_point(OpenBucketsPoint::Aimed);
            let order = (Ordering::AcqRel, Ordering::Relaxed);
            let linked = memory.compare_exchange(link, next, node.raw(), order.0, order.1);
            if linked.is_ok() {
                memory.persist(link, 8);
                memory.crash_point(OpenBucketsPoint::Linked);
                open(memory, node, next | OPENING);
                memory.crash_point(OpenBucketsPoint::Opened);
                break;
            }
        }
    }

    /// Recovers the group of buckets from `first` on, which the dead member was opening.
    pub(super) fn recover_buckets(
        &self,
        pin: &Pinned<'_, M>,
        first: u64,
        claim: u64,
        running: RunningOperation<'_, M>,
    ) {
        let noted = running.noted();
        let bucket = if noted == 0 { first } else { noted };
        // All of this is true except in a damaged memory.
        let possible = bucket >> self.sizes.most_buckets() == 0
            && first != 0
            && self.first_of_group(bucket) == first;
        let at = if possible {
            self.bucket_at(bucket)
        } else {
            None
        };
        match at {
            // Noted: it was claimed. Otherwise the claim itself shows that; other words are not
            // ours.
            Some(at) if noted != 0 || self.memory.load::<u64>(at, Ordering::Acquire) == claim => {
                self.open_from(pin, bucket, at, &running);
                running.finish(&[]);
            }
            _ => running.abandon(&[]),
        }
    }

    /// Returns the place of the words of `bucket`, adding the pages on the way to it. `None` if
    /// there is no memory for them.
    fn place(&self, heap: &LocalHeap<'_, M>, bucket: u64) -> Option<Offset> {
        let (leaf, page) = (self.sizes.leaf, self.sizes.page);
        let number = bucket >> leaf;
        let first = self.page(heap, self.directory_at(), None)?;
        let second = self.page(heap, first + (number >> page) * 8, None)?;
        let slot = second + (number & ((1 << page) - 1)) * 8;
        let buckets = self.page(heap, slot, Some(number << leaf))?;
        Some(buckets + (bucket & ((1 << leaf) - 1)) * ENTRY_BYTES)
    }

    /// Returns the number of bytes of a page.
    pub(super) fn page_bytes(&self, of_buckets: bool) -> u64 {
        if of_buckets {
            ENTRY_BYTES << self.sizes.leaf
        } else {
            8 << self.sizes.page
        }
    }

    /// Returns the page that `slot` leads to. Adds it if it does not exist: a page of buckets from
    /// the given first one on, or one of links.
    fn page(&self, heap: &LocalHeap<'_, M>, slot: Offset, buckets: Option<u64>) -> Option<Offset> {
        if let Some(page) = self.follow(slot) {
            return Some(page);
        }
        let (memory, bytes) = (self.memory, self.page_bytes(buckets.is_some()));
        let page = allocate_pending(heap, bytes, PAGE_CELL).ok()?;
        for offset in (0..bytes).step_by(8) {
            let word = match buckets {
                Some(first) if offset % ENTRY_BYTES == SORT - NEXT => {
                    bucket_sort(first + offset / ENTRY_BYTES)
                }
                _ => 0,
            };
            memory.store(page + offset, word, Ordering::Relaxed);
        }
        memory.persist(page, bytes);
        memory.crash_point(AddPagePoint::Filled);
        let arguments = [self.at.raw(), slot.raw(), page.raw()];
        let operation = OwnLog::of(heap.member()).begin(ADD_PAGE, &arguments);
        // Release: the page is written.
        let order = (Ordering::Release, Ordering::Acquire);
        match memory.compare_exchange(slot, 0, page.raw(), order.0, order.1) {
            Ok(_) => {
                memory.persist(slot, 8);
                memory.crash_point(AddPagePoint::Linked);
                clear_pending(heap, PAGE_CELL);
                memory.crash_point(AddPagePoint::Released);
                operation.finish(&[]);
                Some(page)
            }
            Err(others) => {
                operation.abandon(&[]);
                free_pending(heap, PAGE_CELL);
                Some(Offset::from_raw(others))
            }
        }
    }

    /// Counts one more entry, and doubles the buckets if there are too many entries for them.
    #[inline(always)]
    pub(super) fn count_one_more(&self, heap: &LocalHeap<'_, M>) {
        let before = self.count(heap, 1);
        // The sum reads every counter, so it is computed for one in 32 insertions only; for every
        // one in a map for a few entries.
        let often = if self.sizes.counters == 0 { 0 } else { 31 };
        if before & often == often {
            self.double();
        }
    }

    /// Doubles the number of buckets until there are enough.
    #[cold]
    fn double(&self) {
        let (memory, at) = (self.memory, self.buckets_at());
        let entries = self.counted();
        let mut buckets: u64 = memory.load(at, Ordering::Relaxed);
        while buckets < u64::from(self.sizes.most_buckets())
            && entries > 1 << (buckets + u64::from(self.sizes.load))
        {
            // Relaxed: the number announces nothing.
            let order = (Ordering::Relaxed, Ordering::Relaxed);
            buckets = match memory.compare_exchange(at, buckets, buckets + 1, order.0, order.1) {
                Ok(_) => {
                    memory.persist(at, 8);
                    memory.crash_point(DoublePoint::Doubled);
                    buckets + 1
                }
                Err(others) => others,
            };
        }
    }
}
