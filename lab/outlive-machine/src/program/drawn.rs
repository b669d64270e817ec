//! Threads that draw what they do: for machines that are to meet every race.

use super::{Barrier, BarrierId, Image, LockId, Next, Op, Synchronisation, Thread, Update, Word};
use crate::engine::Random;

/// A thread that draws its operations: loads, stores and atomics of the same words as others, private accesses, fences, pauses. What it
/// stores, nobody else does. Now and then it waits for the values of its loads.
#[derive(Clone, Debug)]
pub struct Walker {
    random: Random,
    number: u64,
    left: u32,
    words: u64,
    /// Loads and atomics whose values have not come.
    open: u32,
    added: u64,
    seen: u64,
}

impl Walker {
    /// Thread `number` of those that share so many words and, behind them, one to count in; it has so many operations.
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

    /// How often it has added one to the word behind all others.
    pub fn added(&self) -> u64 {
        self.added
    }

    /// What its loads and atomics got, as one number.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// A value that only this thread stores.
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

/// A [`Walker`] that takes one of two locks three times, writes and reads what it protects, and meets all others at a barrier each
/// time. What it reads there must be what it has written: it panics if somebody else was in the critical section.
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
    /// It meets the others after each so many of its own operations.
    every: u32,
    since: u32,
    meetings: u32,
    /// What is left of its turn in the critical section, the last first.
    turn: Vec<Op>,
    /// What locks protect stands from this word on.
    protected: u64,
    /// What it has written there last.
    written: u64,
    /// How many values come before the one that it reads there, and what that must be.
    expected: Option<(u32, u64)>,
}

const LOCKS: u64 = 2;
const MEETINGS: u32 = 3;

impl Neighbour {
    /// So many of them, who share so many lines and have so many operations each; and what they need.
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
        // A line to count in, one for each lock, the barrier's two, and what each lock protects.
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
            // Else it would have the value from its own store buffer.
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
