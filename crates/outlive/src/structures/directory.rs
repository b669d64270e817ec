//! The buckets of a map: places in its list from which a key is near.
//!
//! The list is sorted by reversed hashes (Shalev and Shavit's split ordering), so that the entries of a
//! bucket stand together, and stay together when the number of buckets is doubled: bucket `b` of `n` splits
//! into `b` and `b + n`, and what belongs to the new one is the second part of the old one. So the map grows
//! by one compare-and-swap of a number. A new bucket is opened when somebody first wants it: its two words
//! are linked into the list at the place where its entries begin.
//!
//! # The directory
//!
//! The words of the buckets stand in pages, in a tree of three levels: the header leads to a page of links, each
//! of these to a page of links, each of these to a page of buckets. A page is allocated when a bucket in it is
//! first wanted, and never freed. So nobody ever zeroes or copies more than a page.
//!
//! # How a bucket is opened
//!
//! 1. *claim*: compare-and-swap its link from 0 to [`CLAIMED`] and the operation's stamp;
//! 2. *aim*: store there what stands behind its place in the list, with [`OPENING`];
//! 3. *link*: compare-and-swap the word before that place to lead to the bucket; if it has changed, aim again;
//! 4. *open*: take [`OPENING`] away. Whoever comes along the list does that too.
//!
//! Only the claimer stores to a bucket that is not in the list, hence the plain store. Nobody waits for it:
//! whoever finds a bucket that is not open begins at the one that it splits from, which is only further away.
//! So neither does it matter when there is no memory for a page. A claimer that dies is found by its
//! operation: [the handler](super::recover) tells a claim of its own by the stamp or the note, and completes
//! it.

use super::chain::{Judgement, Place, drop_from_hand, open, release_hand, seek, take_into_hand};
use super::header::{ENTRY_BYTES, Header};
use super::node::{CLAIMED, NEXT, OPENING, SORT, entry_as_node, stamp};
use super::operation::{
    ADD_PAGE, AddPagePoint, DoublePoint, OPEN_BUCKET, OpenBucketPoint, PAGE_HAND,
};
use crate::heap::{LocalHeap, Pinned};
use crate::recovery::{OwnLog, RunningOperation};
use outlive_memory::{Memory, Offset, Ordering};

/// The bucket from which `bucket` was split.
fn parent(bucket: u64) -> u64 {
    bucket & !(1 << bucket.ilog2())
}

/// The claim is noted.
pub(super) const NOTED: u64 = 1;

/// The sort of an entry with this hash: odd.
#[inline(always)]
pub(super) fn sort_of(hash: u64) -> u64 {
    hash.reverse_bits() | 1
}

/// The sort of a bucket: even, and before those of its entries.
pub(super) fn bucket_sort(bucket: u64) -> u64 {
    bucket.reverse_bits()
}

impl<M: Memory> Header<M> {
    #[inline(always)]
    fn follow(&self, slot: Offset) -> Option<Offset> {
        // Acquire: what the page holds was written before it was linked.
        let page: u64 = self.memory.load(slot, Ordering::Acquire);
        (page != 0).then(|| Offset::from_raw(page))
    }

    /// The words of `bucket`, if its page is there.
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

    /// `bucket` as a node to begin at, if it is open.
    #[inline(always)]
    pub(super) fn opened(&self, bucket: u64) -> Option<Offset> {
        let at = self.bucket_at(bucket)?;
        // Acquire: it is in the list.
        let next: u64 = self.memory.load(at, Ordering::Acquire);
        (next != 0 && next & (CLAIMED | OPENING) == 0).then(|| entry_as_node(at))
    }

    /// The bucket of `hash`.
    #[inline(always)]
    pub(super) fn bucket_of(&self, hash: u64) -> u64 {
        // Relaxed: a bucket of any size will do. No checksum covers the number: a damaged one leads to no bucket
        // that the directory has no place for.
        let buckets: u64 = self.memory.load(self.buckets_at(), Ordering::Relaxed);
        hash & ((1 << buckets.min(self.sizes.most_buckets().into())) - 1)
    }

    /// Where to begin for `hash`, without opening anything.
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

    /// Where to begin for `hash`; opens the bucket if nobody has.
    #[inline(always)]
    pub(super) fn start(&self, heap: &LocalHeap<'_, M>, pin: &Pinned<'_, M>, hash: u64) -> Offset {
        let bucket = self.bucket_of(hash);
        match self.opened(bucket) {
            Some(start) => start,
            None => self.split(heap, pin, bucket),
        }
    }

    /// Where to begin to look for `hash`. Whoever looks opens nothing: the bucket that it splits from is near.
    #[inline(always)]
    pub(super) fn start_to_look(&self, hash: u64) -> Offset {
        let bucket = self.bucket_of(hash);
        match self.opened(bucket) {
            Some(start) => start,
            None => self.nearest_to(parent(bucket)),
        }
    }

    /// Opens `bucket` and those that it was split from, as far as they are not; says where to begin.
    #[cold]
    #[inline(never)]
    fn split(&self, heap: &LocalHeap<'_, M>, pin: &Pinned<'_, M>, bucket: u64) -> Offset {
        // The next of them that is open; bucket 0 is. Most often it is the first.
        let mut opened = parent(bucket);
        let mut start = loop {
            match self.opened(opened) {
                Some(start) => break start,
                None if opened == 0 => return self.head(),
                None => opened = parent(opened),
            }
        };
        // Back, one bit of the bucket's number more each time.
        while opened != bucket {
            let rest = bucket & !opened;
            opened |= 1 << rest.trailing_zeros();
            match self.open_bucket(heap, pin, opened, start) {
                Some(next) => start = next,
                None => return start,
            }
        }
        start
    }

    /// Opens `bucket`, which belongs behind `start`, unless another is about to.
    fn open_bucket(
        &self,
        heap: &LocalHeap<'_, M>,
        pin: &Pinned<'_, M>,
        bucket: u64,
        start: Offset,
    ) -> Option<Offset> {
        let (at, memory) = (self.place(heap, bucket)?, self.memory);
        if memory.load::<u64>(at, Ordering::Relaxed) != 0 {
            return None;
        }
        let operation = OwnLog::of(heap.member()).begin(OPEN_BUCKET, &[self.at.raw(), bucket]);
        let claim = CLAIMED | stamp(heap.instance().id, operation.sequence());
        let claimed = memory.compare_exchange(at, 0, claim, Ordering::Relaxed, Ordering::Relaxed);
        if claimed.is_err() {
            operation.abandon(&[]);
            return None;
        }
        memory.crash_point(OpenBucketPoint::Claimed);
        operation.note(NOTED);
        memory.crash_point(OpenBucketPoint::Noted);
        self.link_bucket(pin, bucket, at, start);
        operation.finish(&[]);
        Some(entry_as_node(at))
    }

    /// Everything after the claim.
    fn link_bucket(&self, pin: &Pinned<'_, M>, bucket: u64, at: Offset, start: Offset) {
        let (memory, node) = (self.memory, entry_as_node(at));
        loop {
            // Nothing else has its sort.
            let place = seek(memory, pin, start, bucket_sort(bucket), |found| {
                assert!(found == node, "two buckets {bucket}, at {node} and {found}");
                Judgement::Behind
            });
            let Place::Gap { link, next } = place else {
                unreachable!("a bucket has no value")
            };
            if next == node.raw() {
                // Linked before whoever claimed it died. The walk has opened it.
                break;
            }
            memory.store(at, next | OPENING, Ordering::Relaxed);
            memory.persist(at, 8);
            memory.crash_point(OpenBucketPoint::Aimed);
            let order = (Ordering::AcqRel, Ordering::Relaxed);
            let linked = memory.compare_exchange(link, next, node.raw(), order.0, order.1);
            if linked.is_ok() {
                memory.persist(link, 8);
                memory.crash_point(OpenBucketPoint::Linked);
                open(memory, node, next | OPENING);
                memory.crash_point(OpenBucketPoint::Opened);
                break;
            }
        }
    }

    /// What a recoverer does about a bucket that the dead was opening.
    pub(super) fn recover_bucket(
        &self,
        pin: &Pinned<'_, M>,
        bucket: u64,
        claim: u64,
        running: RunningOperation<'_, M>,
    ) {
        let Some(at) = self.bucket_at(bucket) else {
            return running.abandon(&[]);
        };
        let found: u64 = self.memory.load(at, Ordering::Acquire);
        if found != claim && running.noted() != NOTED {
            // It is another's.
            return running.abandon(&[]);
        }
        running.note(NOTED);
        if found & (CLAIMED | OPENING) != 0 {
            self.link_bucket(pin, bucket, at, self.nearest_to(parent(bucket)));
        }
        running.finish(&[]);
    }

    /// The words of `bucket`; adds the pages on the way to it. `None` if there is no memory for them.
    fn place(&self, heap: &LocalHeap<'_, M>, bucket: u64) -> Option<Offset> {
        let (leaf, page) = (self.sizes.leaf, self.sizes.page);
        let number = bucket >> leaf;
        let first = self.page(heap, self.directory_at(), None)?;
        let second = self.page(heap, first + (number >> page) * 8, None)?;
        let slot = second + (number & ((1 << page) - 1)) * 8;
        let buckets = self.page(heap, slot, Some(number << leaf))?;
        Some(buckets + (bucket & ((1 << leaf) - 1)) * ENTRY_BYTES)
    }

    /// How many bytes a page has.
    pub(super) fn page_bytes(&self, of_buckets: bool) -> u64 {
        if of_buckets {
            ENTRY_BYTES << self.sizes.leaf
        } else {
            8 << self.sizes.page
        }
    }

    /// The page that `slot` leads to; adds it if there is none: one of buckets from a first one on, or one
    /// of links.
    fn page(&self, heap: &LocalHeap<'_, M>, slot: Offset, buckets: Option<u64>) -> Option<Offset> {
        if let Some(page) = self.follow(slot) {
            return Some(page);
        }
        let (memory, bytes) = (self.memory, self.page_bytes(buckets.is_some()));
        let page = take_into_hand(heap, bytes, PAGE_HAND).ok()?;
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
                release_hand(heap, PAGE_HAND);
                memory.crash_point(AddPagePoint::Released);
                operation.finish(&[]);
                Some(page)
            }
            Err(others) => {
                operation.abandon(&[]);
                drop_from_hand(heap, PAGE_HAND);
                Some(Offset::from_raw(others))
            }
        }
    }

    /// Counts an entry more, and doubles the buckets if there are too many for them.
    #[inline(always)]
    pub(super) fn count_one_more(&self, heap: &LocalHeap<'_, M>) {
        let before = self.count(heap, 1);
        // The sum takes a look at every counter, so it is made now and then only; often in a map that is
        // made for a few.
        let often = if self.sizes.counters == 0 { 0 } else { 31 };
        if before & often == often {
            self.double();
        }
    }

    /// Doubles the buckets until there are enough.
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
