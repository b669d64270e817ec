//! Threads with random operations, to expose races in a machine.

use super::{Barrier, BarrierId, Image, LockId, Next, Op, Synchronisation, Thread, Update, Word};
use crate::engine::Random;

/// A thread that draws its operations: loads, stores and atomics of the same words as others,
/// private accesses, fences, pauses. No other thread stores the same values. At times it waits for
/// the values of its loads.
#[derive(Clone, Debug)]
pub struct Walker {
    random: Random,
    number: u64,
    left: u32,
    words: u64,
    /// Loads and atomics whose values have not been delivered.
    open: u32,
    added: u64,
    seen: u64,
}

impl Walker {
    /// Creates thread `number`, with `ops` operations on `words` shared words and on a counter word
    /// behind them.
    pub fn new(seed: u64, number: u64, ops: u32, words: u64) -> Self {
        Self {
            random: Random::new(seed * 1_000 + number),
            number,
            left: ops,
            words,
            open: 0,
            added: 0,
            seen: 0,
        }
    }

    /// Returns how often it has added one to the counter word.
    pub fn added(&self) -> u64 {
        self.added
    }

    /// Returns a hash of the values of its loads and atomics.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Returns a value that only this thread stores.
    fn own_value(&self) -> u64 {
        self.number << 32 | u64::from(self.left)
    }
}

impl Thread for Walker {
    fn next(&mut self) -> Next {
        if self.open > 0 && self.random.below(16) == 0 {
            return Next::Waits;
        }
        if self.left == 0 {
            return Next::Ended;
        }
        self.left -= 1;
        let word = Word(self.random.below(self.words));
        let value = self.own_value();
        let private = self.random.below(1024) * 8;
        let op = match self.random.below(100) {
            0..38 => Op::Load(word),
            38..75 => Op::Store(word, value),
            75..80 => Op::Atomic(word, Update::Exchange(value)),
            80..84 => {
                self.added += 1;
                Op::Atomic(Word(self.words), Update::Add(1))
            }
            84..86 => Op::Fence,
            86..90 => Op::PrivateLoad(private),
            90..94 => Op::PrivateStore(private),
            _ => Op::Compute(self.random.below(200) as u32),
        };
        self.open += u32::from(matches!(op, Op::Load(_) | Op::Atomic(..)));
        Next::Op(op)
    }

    fn deliver(&mut self, value: u64) {
        self.open -= 1;
        self.seen = self.seen.rotate_left(5) ^ value;
    }
}

/// A [`Walker`] that acquires one of two locks three times, writes and reads the word that it
/// protects, and meets all others at a barrier each time. It panics if it does not read the value
/// that it wrote, because then another thread was in the critical section.
///
/// ```
/// use outlive_machine::program::{Neighbour, Order, Reference};
///
/// let (threads, image, synchronisation) = Neighbour::all(7, 4, 5, 60);
/// let mut machine = Reference::new(&image, &synchronisation, threads, Order::TotalStore, 1);
/// machine.run()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Neighbour {
    walker: Walker,
    /// The number of its own operations between two meetings.
    every: u32,
    since: u32,
    meetings: u32,
    /// The remaining operations of a meeting, the last first.
    turn: Vec<Op>,
    /// The first word protected by a lock.
    protected: u64,
    /// The value that it has last written there.
    written: u64,
    /// The number of values delivered before that of its protected load, and the expected value.
    expected: Option<(u32, u64)>,
}

const LOCKS: u64 = 2;
const MEETINGS: u32 = 3;

impl Neighbour {
    /// Returns this many threads, with this many shared lines and operations each, and their memory
    /// and synchronisation.
    pub fn all(
        seed: u64,
        threads: u32,
        lines: u64,
        ops: u32,
    ) -> (Vec<Self>, Image, Synchronisation) {
        let words = lines * Word::PER_LINE;
        let line = |number: u64| Word(words + number * Word::PER_LINE);
        let one = |number| Self {
            walker: Walker::new(seed, u64::from(number), ops, words),
            every: ops / MEETINGS,
            since: 0,
            meetings: MEETINGS,
            turn: Vec::new(),
            protected: line(LOCKS + 3).0,
            written: 0,
            expected: None,
        };
        // Lines for the counter, each lock, the barrier (two), and the word of each lock.
        let image = Image {
            words: line(2 * LOCKS + 3).0,
            runs: vec![(Word(3), vec![5, 6, 7])],
        };
        let synchronisation = Synchronisation {
            locks: (1..=LOCKS).map(line).collect(),
            barriers: vec![Barrier {
                counter: line(LOCKS + 1),
                threads,
            }],
            ..Synchronisation::default()
        };
        ((0..threads).map(one).collect(), image, synchronisation)
    }

    fn meet(&mut self) -> Op {
        (self.since, self.meetings) = (0, self.meetings - 1);
        let lock = LockId(self.walker.random.below(LOCKS) as u32);
        let protected = self.protected + u64::from(lock.0) * Word::PER_LINE;
        let value = self.walker.own_value() | u64::from(self.meetings + 1) << 24;
        self.turn = vec![
            Op::Barrier(BarrierId(0)),
            Op::Unlock(lock),
            Op::Load(Word(protected)),
            // Without this the load would take the value from the thread's own store buffer.
            Op::Fence,
            Op::Store(Word(protected), value),
            Op::Load(Word(u64::from(lock.0))),
        ];
        Op::Lock(lock)
    }
}

impl Thread for Neighbour {
    fn next(&mut self) -> Next {
        if let Some(op) = self.turn.pop() {
            match op {
                Op::Store(_, value) => self.written = value,
                Op::Load(Word(word)) if word >= self.protected => {
                    self.expected = Some((self.walker.open, self.written));
                }
                _ => {}
            }
            self.walker.open += u32::from(matches!(op, Op::Load(_)));
            return Next::Op(op);
        }
        if self.since == self.every && self.meetings > 0 {
            return Next::Op(self.meet());
        }
        match self.walker.next() {
            Next::Ended if self.meetings > 0 => Next::Op(self.meet()),
            next => {
                self.since += u32::from(matches!(next, Next::Op(_)));
                next
            }
        }
    }

    fn deliver(&mut self, value: u64) {
        match &mut self.expected {
            Some((0, own)) => {
                let thread = self.walker.number;
                assert_eq!(value, *own, "thread {thread} was not alone with its lock");
                self.expected = None;
            }
            Some((before, _)) => *before -= 1,
            None => {}
        }
        self.walker.deliver(value);
    }
}
