//! The queue of events: a hierarchical timing wheel, to the picosecond.
//!
//! The time of an event is cut into six digits of 11 bits. An event stands on the level of the highest digit in which its time
//! differs from the present, in the slot that this digit names; so a slot of the ground level is one picosecond, and
//! one of the next is 2 ns. When the ground level is empty, the present moves to the next slot that is not, and the events of
//! this slot go down to where they stand now. Most that a machine waits for is less than 4 µs away, and moves once.
//!
//! A slot is a list in the order of scheduling, or the reverse of it, and stays so: an event is put on a lower level than an earlier one of the
//! same time only when the present has entered the slot of both, and then the earlier one has gone down before. So
//! events of one time come in the order of scheduling, without a sequence number and without comparing anything, and ten
//! thousand at one instant cost no more than one.
//!
//! Bitmaps of two storeys find the next slot by two counts of zeros. Events live in a slab; freed places are used again, so
//! nothing is allocated unless more are pending than ever before.

use super::Time;

/// A digit has this many bits.
const DIGIT_BITS: u32 = 11;
const SLOTS: usize = 1 << DIGIT_BITS;
const WORDS: usize = SLOTS / 64;
const LEVELS: usize = u64::BITS.div_ceil(DIGIT_BITS) as usize;
/// No place in the slab.
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
    /// What the levels are arranged around: the beginning of the 2 ns that the ground level shows. It is never after `now`,
    /// so never after what is scheduled.
    base: u64,
    pending: usize,
    nodes: Vec<Node<E>>,
    /// The first free place of the slab.
    free: u32,
    wheel: Box<Wheel>,
}

#[derive(Clone, Copy, Debug)]
struct Node<E> {
    time: u64,
    event: E,
    /// The next in its slot, or the next free place.
    next: u32,
    /// Of the first in a slot of the ground level: the last there.
    last: u32,
}

#[derive(Clone, Debug)]
struct Wheel {
    /// Bit `w` of level `l`: word `w` of its bitmap is not zero.
    words: [u32; LEVELS],
    /// Bit `s` of level `l`: slot `s` has events.
    slots: [[u64; WORDS]; LEVELS],
    /// The first event of each slot's list, if it has any.
    heads: [[u32; SLOTS]; LEVELS],
}

impl<E: Copy> EventQueue<E> {
    /// An empty queue at time zero.
    pub fn new() -> Self {
        Self::with_capacity(1024)
    }

    /// An empty queue that allocates nothing until more than `pending` events are.
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
        assert!(
            time.picos() >= self.now,
            "it is {} and an event is scheduled at {time}",
            self.now()
        );
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

    /// The next event, if that is known without moving anything: it is among those of the same 2 ns.
    #[inline]
    pub(super) fn at_hand(&self) -> Option<&E> {
        if self.wheel.words[0] == 0 {
            return None;
        }
        let place = self.wheel.heads[0][self.wheel.first(0)];
        Some(&self.nodes[place as usize].event)
    }

    /// When the next event is.
    pub fn next_time(&self) -> Option<Time> {
        let level = self.wheel.lowest()?;
        Some(Time::from_picos(
            self.earliest(self.wheel.heads[level][self.wheel.first(level)]),
        ))
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

    /// Puts the node at `place`, whose time this is, where it belongs, seen from the base: behind all that are there.
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
        // An upper list has its latest first. One that is alone is first and last.
        self.wheel.heads[level][slot] = place;
        let node = &mut self.nodes[place as usize];
        (node.next, node.last) = (head, place);
    }

    /// Moves the base to the next slot of an upper level, and its events down; `false` if none is due by `limit`. The ground
    /// level is empty.
    #[inline(never)]
    fn descend(&mut self, limit: u64) -> bool {
        let Some(level) = self.wheel.lowest() else {
            return false;
        };
        let slot = self.wheel.first(level);
        let mut place = self.wheel.heads[level][slot];
        let span = (1 << (level as u32 * DIGIT_BITS)) - 1;
        let begin = self.nodes[place as usize].time & !span;
        // Unless one of them is taken now, the base stays: somebody may still schedule before it.
        if limit < begin || limit - begin < span && self.earliest(place) > limit {
            return false;
        }
        self.base = begin;
        self.wheel.clear(level, slot);
        if level == 1 {
            // All below was empty, so what comes, the latest first, goes in front of what has come.
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

    /// The earliest time in a list.
    fn earliest(&self, mut place: u32) -> u64 {
        let mut earliest = u64::MAX;
        while place != NONE {
            let node = &self.nodes[place as usize];
            (earliest, place) = (earliest.min(node.time), node.next);
        }
        earliest
    }
}

/// The slot of a time on a level.
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
    /// The lowest level that has events. They come before those of all other levels, whose slots lie after the one that
    /// holds this level.
    #[inline]
    fn lowest(&self) -> Option<usize> {
        self.words.iter().position(|words| *words != 0)
    }

    /// The first slot of a level that has events. None lies before the present, since a level shows one round.
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
        // Without a branch: whether a word has become empty is anybody's guess.
        let word = &mut self.slots[level][slot / 64];
        *word &= !(1 << (slot % 64));
        self.words[level] &= !(u32::from(*word == 0) << (slot / 64));
    }
}
