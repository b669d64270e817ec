//! Threads whose operations are counted on their way to a machine, whichever machine it is.

use std::cell::RefCell;
use std::rc::Rc;

use super::counts::{Access, Counts, Touches};
use super::{Next, Op, Thread};

/// What threads have done together. Each of them has a share in it.
#[derive(Clone, Debug)]
pub struct Tally(Rc<RefCell<Sums>>);

#[derive(Debug)]
struct Sums {
    counts: Counts,
    touches: Touches,
}

impl Tally {
    /// Nothing so far, for threads that share so many words.
    pub fn new(words: u64) -> Self {
        let (counts, touches) = (Counts::default(), Touches::new(words));
        Self(Rc::new(RefCell::new(Sums { counts, touches })))
    }

    /// So much so far. What a machine has looked ahead to counts as done.
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

/// A thread whose operations are counted. It does what the thread in it does. It cannot be cloned: what a fork of a run did would be
/// counted as the run's.
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
    /// The thread of this number, counted in `tally`.
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
