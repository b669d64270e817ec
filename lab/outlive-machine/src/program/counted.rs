//! Threads whose operations are counted on their way to any machine.

use std::cell::RefCell;
use std::rc::Rc;

use super::counts::{Access, Counts, Touches};
use super::{Next, Op, Thread};

/// The operations of several threads, counted together. The threads share it.
#[derive(Clone, Debug)]
pub struct Tally(Rc<RefCell<Sums>>);

#[derive(Debug)]
struct Sums {
    counts: Counts,
    touches: Touches,
}

impl Tally {
    /// Creates an empty tally for threads that share this many words.
    pub fn new(words: u64) -> Self {
        let (counts, touches) = (Counts::default(), Touches::new(words));
        Self(Rc::new(RefCell::new(Sums { counts, touches })))
    }

    /// Returns the counts so far. Operations that a machine has looked ahead to are included.
    pub fn counts(&self) -> Counts {
        let sums = self.0.borrow();
        Counts {
            stores_to_touched_by_several: sums.touches.stores_to_touched_by_several(),
            ..sums.counts
        }
    }

    fn count(&self, thread: usize, op: Op) {
        let mut sums = self.0.borrow_mut();
        sums.counts.count(op);
        match op {
            Op::Load(word) => sums.touches.touch(thread, word, Access::Load),
            Op::Store(word, _) | Op::StorePart(word, ..) => {
                sums.touches.touch(thread, word, Access::Store)
            }
            Op::Atomic(word, _) => sums.touches.touch(thread, word, Access::Atomic),
            _ => {}
        }
    }
}

/// A thread whose operations are counted, with the behaviour of the thread in it. It cannot be
/// cloned, because the operations of a fork would be counted as those of the run.
///
/// ```
/// use outlive_machine::program::{Counted, Op, Script, Tally, Thread, Word};
///
/// let tally = Tally::new(8);
/// let mut thread = Counted::new(Script::new([Op::Store(Word(3), 5), Op::Compute(9)]), 0, &tally);
/// while thread.next() != outlive_machine::program::Next::Ended {}
/// assert_eq!((tally.counts().stores, tally.counts().instructions()), (1, 10));
/// ```
#[derive(Debug)]
pub struct Counted<T> {
    thread: T,
    number: usize,
    tally: Tally,
}

impl<T> Counted<T> {
    /// Creates the thread of this number, counted in `tally`.
    pub fn new(thread: T, number: usize, tally: &Tally) -> Self {
        let tally = tally.clone();
        Self {
            thread,
            number,
            tally,
        }
    }
}

impl<T: Thread> Thread for Counted<T> {
    #[inline]
    fn next(&mut self) -> Next {
        let next = self.thread.next();
        if let Next::Op(op) = next {
            self.tally.count(self.number, op);
        }
        next
    }

    #[inline]
    fn deliver(&mut self, value: u64) {
        self.thread.deliver(value);
    }
}
