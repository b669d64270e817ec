//! The event queue: a hierarchical timing wheel with a resolution of one picosecond.
//!
//! The time of an event is split into six digits of 11 bits. An event is stored at the level of the
//! highest digit in which its time differs from the present, in the slot that this digit numbers. A
//! slot of level 0 spans one picosecond, and a slot of level 1 spans 2 ns. When level 0 is empty,
//! the present moves to the next slot that has events, and the events of this slot move down to the
//! levels where they now belong. Most events are scheduled less than 4 µs ahead, and move once.
//!
//! A slot is a list in the order of scheduling, or in reverse order, and stays so: an event is put
//! on a lower level than an event of the same time that was scheduled earlier only when the present
//! has entered the slot of both, and then the earlier one has already moved down. So events of one
//! time are handled in the order of scheduling, without a sequence number and without comparing
//! anything, and ten thousand events at one instant cost no more each than a single one.
//!
//! Two-level bitmaps find the next slot by two counts of trailing zeros. Events live in a slab
//! whose free entries are reused, so memory is allocated only if more events are pending than ever
//! before.

use super::Time;

/// The number of bits of a digit.
const DIGIT_BITS: u32 = 11;
const SLOTS: usize = 1 << DIGIT_BITS;
const WORDS: usize = SLOTS / 64;
const LEVELS: usize = u64::BITS.div_ceil(DIGIT_BITS) as usize;
/// Marks the absence of a slab index.
const NONE: u32 = u32::MAX;

/// The pending events, in the order of (time, order of scheduling).
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
    /// The time around which the levels are arranged: the beginning of the 2 ns that level 0 spans.
    /// It is never after `now`, so never after any scheduled event.
    base: u64,
    pending: usize,
    nodes: Vec<Node<E>>,
    /// The first free entry of the slab.
    free: u32,
    wheel: Box<Wheel>,
}

#[derive(Clone, Copy, Debug)]
struct Node<E> {
    time: u64,
    event: E,
    /// The next event in the same slot, or the next free entry.
    next: u32,
    /// Set in the first event of a slot of level 0: the last event of that slot.
    last: u32,
}

#[derive(Clone, Debug)]
struct Wheel {
    /// Bit `w` of level `l` is set if word `w` of its bitmap is not zero.
    words: [u32; LEVELS],
    /// Bit `s` of level `l` is set if slot `s` has events.
    slots: [[u64; WORDS]; LEVELS],
    /// The first event of each slot's list, or `NONE`.
    heads: [[u32; SLOTS]; LEVELS],
}

impl<E: Copy> EventQueue<E> {
    /// Returns an empty queue at time zero.
    pub fn new() -> Self {
        Self::with_capacity(1024)
    }

    /// Returns an empty queue that allocates nothing until more than `pending` events are pending.
    pub fn with_capacity(pending: usize) -> Self {
        let wheel = Wheel {
            words: [0; LEVELS],
            slots: [[0; WORDS]; LEVELS],
            heads: [[NONE; SLOTS]; LEVELS],
        };
        Self {
            now: 0,
            base: 0,
            pending: 0,
            nodes: Vec::with_capacity(pending),
            free: NONE,
            wheel: Box::new(wheel),
        }
    }

    /// Returns the present: the time of the last event taken, or the time that
    /// [`advance_to`](Self::advance_to) moved to.
    pub fn now(&self) -> Time {
        Time::from_picos(self.now)
    }

    /// Returns the number of pending events.
    pub fn len(&self) -> usize {
        self.pending
    }

    /// Returns whether no event is pending.
    pub fn is_empty(&self) -> bool {
        self.pending == 0
    }

    /// Schedules `event` at `delay` from now.
    ///
    /// # Panics
    ///
    /// If its time is past the end of time.
    #[inline]
    pub fn schedule(&mut self, delay: Time, event: E) {
        self.insert((self.now() + delay).picos(), event);
    }

    /// Schedules `event` at `time`.
    ///
    /// # Panics
    ///
    /// If `time` is in the past.
    #[inline]
    pub fn schedule_at(&mut self, time: Time, event: E) {
        assert!(
            time.picos() >= self.now,
            "it is {} and an event is scheduled at {time}",
            self.now()
        );
        self.insert(time.picos(), event);
    }

    /// Removes and returns the next event.
    #[inline]
    pub fn pop(&mut self) -> Option<(Time, E)> {
        self.pop_until(Time::MAX)
    }

    /// Removes and returns the next event if it is not after `limit`.
    #[inline]
    pub fn pop_until(&mut self, limit: Time) -> Option<(Time, E)> {
        while self.wheel.words[0] == 0 {
            if !self.descend(limit.picos()) {
                return None;
            }
        }
        let slot = self.wheel.first(0);
        let place = self.wheel.heads[0][slot];
        let Node {
            time,
            event,
            next,
            last,
        } = self.nodes[place as usize];
        if time > limit.picos() {
            return None;
        }
        if next == NONE {
            self.wheel.clear(0, slot);
        } else {
            self.wheel.heads[0][slot] = next;
            self.nodes[next as usize].last = last;
        }
        self.nodes[place as usize].next = self.free;
        self.free = place;
        self.pending -= 1;
        self.now = time;
        Some((Time::from_picos(time), event))
    }

    /// Returns the next event if it is on level 0, so that finding it moves nothing.
    #[inline]
    pub(super) fn at_hand(&self) -> Option<&E> {
        if self.wheel.words[0] == 0 {
            return None;
        }
        let place = self.wheel.heads[0][self.wheel.first(0)];
        Some(&self.nodes[place as usize].event)
    }

    /// Returns the time of the next event.
    pub fn next_time(&self) -> Option<Time> {
        let level = self.wheel.lowest()?;
        Some(Time::from_picos(
            self.earliest(self.wheel.heads[level][self.wheel.first(level)]),
        ))
    }

    /// Advances the time to `time`, unless it is already later.
    ///
    /// # Panics
    ///
    /// If an event before `time` is pending.
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
        let node = Node {
            time,
            event,
            next: NONE,
            last: NONE,
        };
        self.pending += 1;
        let place = self.free;
        let place = if place == NONE {
            let place = self.nodes.len();
            assert!(
                place < NONE as usize,
                "more than four billion events are pending"
            );
            self.nodes.push(node);
            place as u32
        } else {
            self.free = std::mem::replace(&mut self.nodes[place as usize], node).next;
            place
        };
        self.append(place, time);
    }

    /// Appends the node at `place`, which has time `time`, to its slot as seen from the base.
    #[inline]
    fn append(&mut self, place: u32, time: u64) {
        let level = (((time ^ self.base) | 1).ilog2() / DIGIT_BITS) as usize;
        let slot = slot_of(time, level);
        let head = self.wheel.heads[level][slot];
        if head == NONE {
            self.wheel.mark(level, slot);
        } else if level == 0 {
            let last = std::mem::replace(&mut self.nodes[head as usize].last, place);
            self.nodes[last as usize].next = place;
            self.nodes[place as usize].next = NONE;
            return;
        }
        // An upper list has its latest event first. A single event is both first and last.
        self.wheel.heads[level][slot] = place;
        let node = &mut self.nodes[place as usize];
        (node.next, node.last) = (head, place);
    }

    /// Moves the base to the next slot of an upper level that has events, and these events down.
    /// Returns `false` if no event is due by `limit`. Level 0 must be empty.
    #[inline(never)]
    fn descend(&mut self, limit: u64) -> bool {
        let Some(level) = self.wheel.lowest() else {
            return false;
        };
        let slot = self.wheel.first(level);
        let mut place = self.wheel.heads[level][slot];
        let span = (1 << (level as u32 * DIGIT_BITS)) - 1;
        let begin = self.nodes[place as usize].time & !span;
        // The base moves only if an event is taken now: else one may still be scheduled before it.
        if limit < begin || limit - begin < span && self.earliest(place) > limit {
            return false;
        }
        self.base = begin;
        self.wheel.clear(level, slot);
        if level == 1 {
            // Level 0 was empty. Events come latest first, so each goes in front of earlier ones.
            while place != NONE {
                let node = &mut self.nodes[place as usize];
                let (slot, next) = (slot_of(node.time, 0), node.next);
                let head = std::mem::replace(&mut self.wheel.heads[0][slot], place);
                self.wheel.mark(0, slot);
                node.next = head;
                node.last = place;
                if head != NONE {
                    self.nodes[place as usize].last = self.nodes[head as usize].last;
                }
                place = next;
            }
            return true;
        }
        let mut earlier = NONE;
        while place != NONE {
            let next = std::mem::replace(&mut self.nodes[place as usize].next, earlier);
            (earlier, place) = (place, next);
        }
        while earlier != NONE {
            let Node { time, next, .. } = self.nodes[earlier as usize];
            self.append(earlier, time);
            earlier = next;
        }
        true
    }

    /// Returns the earliest time in a list.
    fn earliest(&self, mut place: u32) -> u64 {
        let mut earliest = u64::MAX;
        while place != NONE {
            let node = &self.nodes[place as usize];
            (earliest, place) = (earliest.min(node.time), node.next);
        }
        earliest
    }
}

/// Returns the slot of a time on a level.
#[inline]
fn slot_of(time: u64, level: usize) -> usize {
    (time >> (level as u32 * DIGIT_BITS)) as usize % SLOTS
}

impl<E: Copy> Default for EventQueue<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl Wheel {
    /// Returns the lowest level that has events. They precede those of all other levels, whose
    /// slots lie after the slot that holds this level.
    #[inline]
    fn lowest(&self) -> Option<usize> {
        self.words.iter().position(|words| *words != 0)
    }

    /// Returns the first slot of a level that has events. None is before the present, since a level
    /// spans one round.
    #[inline]
    fn first(&self, level: usize) -> usize {
        let word = self.words[level].trailing_zeros() as usize % WORDS;
        word * 64 + self.slots[level][word].trailing_zeros() as usize % 64
    }

    #[inline]
    fn mark(&mut self, level: usize, slot: usize) {
        self.slots[level][slot / 64] |= 1 << (slot % 64);
        self.words[level] |= 1 << (slot / 64);
    }

    #[inline]
    fn clear(&mut self, level: usize, slot: usize) {
        self.heads[level][slot] = NONE;
        // Without a branch, since whether a word has become empty is unpredictable.
        let word = &mut self.slots[level][slot / 64];
        *word &= !(1 << (slot % 64));
        self.words[level] &= !(u32::from(*word == 0) << (slot / 64));
    }
}
