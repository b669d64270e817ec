//! The queue of events: a timing wheel.
//!
//! Time is cut into buckets of 256 ps. The ground level has one list of events for each of the 4,096 buckets in the aligned
//! window (about 1 µs) that holds the present, and a bitmap of two storeys that finds the next list which is not empty by
//! two counts of zeros. Above it stand eight levels of 64 slots each; a slot of one spans all that lies below it. An event
//! goes to the level at which its time first differs from the present, so that a slot never holds two laps, and moves
//! down when the present enters its slot: at most eight times, and hardly ever in practice, since what machines wait
//! for is mostly within the window.
//!
//! A list is in no order. An event alone in its bucket, the common case, is simply taken. A bucket that holds several is
//! emptied into a small binary heap of (time within the bucket, sequence number) before the first is taken; what is
//! scheduled into this bucket meanwhile joins the heap. So a thousand events at one instant cost what they cost a heap.
//!
//! Events live in a slab; freed places are used again, so nothing is allocated unless more are pending than ever before.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Time;

/// A bucket is this many bits of picoseconds wide.
const BUCKET_BITS: u32 = 8;
/// The ground level has this many bits of buckets.
const GROUND_BITS: u32 = 12;
const BUCKETS: usize = 1 << GROUND_BITS;
/// From here on, the upper levels divide the bits of time.
const GROUND_SPAN: u32 = BUCKET_BITS + GROUND_BITS;
/// A slot of an upper level is found by this many bits.
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
const LEVELS: usize = (u64::BITS - GROUND_SPAN).div_ceil(SLOT_BITS) as usize;
/// A sequence number shares a word with the time inside a bucket; at 50 million events a second it lasts for 45 years.
const SEQUENCE_BITS: u32 = u64::BITS - BUCKET_BITS;
/// The end of a list.
const NONE: u32 = u32::MAX;

/// What is still to happen, in the order of (time, order of scheduling).
///
/// ```
/// use outlive_machine::engine::{EventQueue, Time};
///
/// let mut queue = EventQueue::new();
/// queue.schedule(Time::from_nanos(5), "later");
/// queue.schedule(Time::from_nanos(1), "first");
/// queue.schedule(Time::from_nanos(1), "second");
/// assert_eq!(queue.pop(), Some((Time::from_nanos(1), "first")));
/// assert_eq!(queue.pop(), Some((Time::from_nanos(1), "second")));
/// queue.schedule(Time::ZERO, "now");
/// assert_eq!(queue.pop(), Some((Time::from_nanos(1), "now")));
/// assert_eq!(queue.pop_until(Time::from_nanos(4)), None);
/// assert_eq!(queue.pop(), Some((Time::from_nanos(5), "later")));
/// assert_eq!(queue.pop(), None);
/// ```
#[derive(Clone, Debug)]
pub struct EventQueue<E> {
    now: u64,
    /// The beginning of the bucket that the levels are arranged around: not after `now`, so not after any event.
    base: u64,
    sequence: u64,
    pending: usize,
    nodes: Vec<Node<E>>,
    free: u32,
    ground: Box<Ground>,
    upper: Box<Upper>,
    /// The events of the bucket at `base` that are waiting in order, if it held several.
    due: BinaryHeap<Reverse<Due>>,
}

#[derive(Clone, Copy, Debug)]
struct Node<E> {
    time: u64,
    sequence: u64,
    next: u32,
    event: E,
}

/// (Time within the bucket and sequence number, place in the slab).
type Due = (u64, u32);

#[derive(Clone, Debug)]
struct Ground {
    /// Bit `w`: word `w` of `occupied` is not zero.
    words: u64,
    occupied: [u64; BUCKETS / 64],
    heads: [u32; BUCKETS],
}

#[derive(Clone, Debug)]
struct Upper {
    /// Bit `l`: level `l` has events.
    levels: u32,
    occupied: [u64; LEVELS],
    heads: [[u32; SLOTS]; LEVELS],
}

impl<E: Copy> EventQueue<E> {
    /// An empty queue at time zero.
    pub fn new() -> Self {
        Self::with_capacity(1024)
    }

    /// An empty queue that allocates nothing until more than `pending` events are.
    pub fn with_capacity(pending: usize) -> Self {
        Self {
            now: 0,
            base: 0,
            sequence: 0,
            pending: 0,
            nodes: Vec::with_capacity(pending),
            free: NONE,
            ground: Box::new(Ground { words: 0, occupied: [0; BUCKETS / 64], heads: [NONE; BUCKETS] }),
            upper: Box::new(Upper { levels: 0, occupied: [0; LEVELS], heads: [[NONE; SLOTS]; LEVELS] }),
            due: BinaryHeap::with_capacity(pending),
        }
    }

    /// What time it is: that of the last event taken, or where [`advance_to`](Self::advance_to) went.
    pub fn now(&self) -> Time {
        Time::from_picos(self.now)
    }

    /// How many events are pending.
    pub fn len(&self) -> usize {
        self.pending
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.pending == 0
    }

    /// How many events have been scheduled since the beginning.
    pub fn scheduled(&self) -> u64 {
        self.sequence
    }

    /// `event` shall happen `delay` from now.
    ///
    /// # Panics
    ///
    /// If that is past the end of time.
    #[inline]
    pub fn schedule(&mut self, delay: Time, event: E) {
        self.insert((self.now() + delay).picos(), event);
    }

    /// `event` shall happen at `time`.
    ///
    /// # Panics
    ///
    /// If `time` is past.
    #[inline]
    pub fn schedule_at(&mut self, time: Time, event: E) {
        assert!(time.picos() >= self.now, "it is {} and an event is scheduled at {time}", self.now());
        self.insert(time.picos(), event);
    }

    /// Takes the next event.
    #[inline]
    pub fn pop(&mut self) -> Option<(Time, E)> {
        self.pop_until(Time::MAX)
    }

    /// Takes the next event if it is not after `limit`.
    #[inline]
    pub fn pop_until(&mut self, limit: Time) -> Option<(Time, E)> {
        let limit = limit.picos();
        loop {
            if let Some(Reverse((key, place))) = self.due.peek().copied() {
                if self.base + (key >> SEQUENCE_BITS) > limit {
                    return None;
                }
                self.due.pop();
                return Some(self.take(place));
            }
            if self.ground.words == 0 {
                if !self.descend(limit) {
                    return None;
                }
                continue;
            }
            let bucket = self.ground.first();
            let place = self.ground.heads[bucket];
            let node = &self.nodes[place as usize];
            let (time, alone) = (node.time, node.next == NONE);
            // Unless one of them is taken now, the base stays: somebody may still schedule before it.
            if time > limit && (alone || self.earliest(place) > limit) {
                return None;
            }
            self.base = bucket_of(time);
            self.ground.clear(bucket);
            if alone {
                return Some(self.take(place));
            }
            self.line_up(place);
        }
    }

    /// When the next event is.
    pub fn next_time(&self) -> Option<Time> {
        if let Some(Reverse((key, _))) = self.due.peek() {
            return Some(Time::from_picos(self.base + (key >> SEQUENCE_BITS)));
        }
        let head = if self.ground.words != 0 {
            self.ground.heads[self.ground.first()]
        } else if self.upper.levels != 0 {
            let (level, slot) = self.upper.first();
            self.upper.heads[level][slot]
        } else {
            return None;
        };
        Some(Time::from_picos(self.earliest(head)))
    }

    /// Lets time pass until `time`, unless it is later already.
    ///
    /// # Panics
    ///
    /// If an event is pending that should have happened before.
    pub fn advance_to(&mut self, time: Time) {
        if time.picos() > self.now {
            assert!(
                self.next_time().is_none_or(|next| next >= time),
                "time cannot pass until {time} while an event is pending at {}",
                self.next_time().unwrap_or(time)
            );
            self.now = time.picos();
        }
    }

    #[inline]
    fn insert(&mut self, time: u64, event: E) {
        let node = Node { time, sequence: self.sequence, next: NONE, event };
        self.sequence += 1;
        self.pending += 1;
        let place = self.free;
        let place = if place == NONE {
            let place = self.nodes.len();
            assert!(place < NONE as usize, "more than four billion events are pending");
            self.nodes.push(node);
            place as u32
        } else {
            self.free = std::mem::replace(&mut self.nodes[place as usize], node).next;
            place
        };
        self.place(place);
    }

    /// Puts the node at `place` where its time belongs, seen from the base.
    #[inline]
    fn place(&mut self, place: u32) {
        let node = &mut self.nodes[place as usize];
        let differs = node.time ^ self.base;
        if differs >> BUCKET_BITS == 0 && !self.due.is_empty() {
            let key = due_key(node);
            self.due.push(Reverse((key, place)));
        } else if differs >> GROUND_SPAN == 0 {
            let bucket = (node.time >> BUCKET_BITS) as usize % BUCKETS;
            node.next = self.ground.heads[bucket];
            self.ground.heads[bucket] = place;
            self.ground.occupied[bucket / 64] |= 1 << (bucket % 64);
            self.ground.words |= 1 << (bucket / 64);
        } else {
            let level = ((differs.ilog2() - GROUND_SPAN) / SLOT_BITS) as usize;
            let slot = (node.time >> (GROUND_SPAN + SLOT_BITS * level as u32)) as usize % SLOTS;
            node.next = self.upper.heads[level][slot];
            self.upper.heads[level][slot] = place;
            self.upper.occupied[level] |= 1 << slot;
            self.upper.levels |= 1 << level;
        }
    }

    /// Brings the events of the next slot of an upper level down; `false` if none is due by `limit`. The ground is empty.
    #[cold]
    fn descend(&mut self, limit: u64) -> bool {
        if self.upper.levels == 0 {
            return false;
        }
        let (level, slot) = self.upper.first();
        let mut place = self.upper.heads[level][slot];
        // To the first event at once, not level by level: one that is alone needs no other move.
        let earliest = self.earliest(place);
        if earliest > limit {
            return false;
        }
        self.base = bucket_of(earliest);
        self.upper.clear(level, slot);
        while place != NONE {
            let next = self.nodes[place as usize].next;
            self.place(place);
            place = next;
        }
        true
    }

    /// The events of a list, all of the bucket at the base, shall be taken in order.
    fn line_up(&mut self, mut place: u32) {
        // What was collected is made a heap at once, in linear time.
        let mut due = std::mem::take(&mut self.due).into_vec();
        while place != NONE {
            let node = &self.nodes[place as usize];
            due.push(Reverse((due_key(node), place)));
            place = node.next;
        }
        self.due = BinaryHeap::from(due);
    }

    /// Frees the node at `place`, which is in no list any more.
    #[inline]
    fn take(&mut self, place: u32) -> (Time, E) {
        let node = &mut self.nodes[place as usize];
        node.next = self.free;
        self.free = place;
        self.pending -= 1;
        self.now = node.time;
        (Time::from_picos(node.time), node.event)
    }

    fn earliest(&self, mut place: u32) -> u64 {
        let mut earliest = u64::MAX;
        while place != NONE {
            let node = &self.nodes[place as usize];
            earliest = earliest.min(node.time);
            place = node.next;
        }
        earliest
    }
}

impl<E: Copy> Default for EventQueue<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl Ground {
    /// The first bucket that is not empty. All lie at or after the base, in its window.
    #[inline]
    fn first(&self) -> usize {
        let word = self.words.trailing_zeros() as usize % (BUCKETS / 64);
        word * 64 + self.occupied[word].trailing_zeros() as usize % 64
    }

    #[inline]
    fn clear(&mut self, bucket: usize) {
        self.heads[bucket] = NONE;
        let word = &mut self.occupied[bucket / 64];
        *word &= !(1 << (bucket % 64));
        if *word == 0 {
            self.words &= !(1 << (bucket / 64));
        }
    }
}

impl Upper {
    /// The slot with the next events: on the lowest level that has any, since that lies inside one slot of the next.
    fn first(&self) -> (usize, usize) {
        let level = self.levels.trailing_zeros() as usize;
        (level, self.occupied[level].trailing_zeros() as usize)
    }

    fn clear(&mut self, level: usize, slot: usize) {
        self.heads[level][slot] = NONE;
        self.occupied[level] &= !(1 << slot);
        if self.occupied[level] == 0 {
            self.levels &= !(1 << level);
        }
    }
}

#[inline]
fn bucket_of(time: u64) -> u64 {
    time >> BUCKET_BITS << BUCKET_BITS
}

#[inline]
fn due_key<E>(node: &Node<E>) -> u64 {
    node.time << SEQUENCE_BITS | node.sequence
}
