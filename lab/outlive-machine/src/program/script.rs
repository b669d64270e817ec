//! Threads that are plain lists of operations.

use std::sync::Arc;

use super::{Next, Op, Thread};

/// A thread that executes a list of operations and keeps the values of its loads and atomics.
/// Clones share the list.
///
/// ```
/// use outlive_machine::program::{Next, Op, Script, Thread, Word};
///
/// let mut script = Script::new([Op::Load(Word(3)), Op::Compute(5)]);
/// assert_eq!(script.next(), Next::Op(Op::Load(Word(3))));
/// assert_eq!(script.next(), Next::Op(Op::Compute(5)));
/// script.deliver(7);
/// assert_eq!((script.next(), script.results()), (Next::Ended, &[7][..]));
/// ```
#[derive(Clone, Debug)]
pub struct Script {
    ops: Arc<[Op]>,
    next: usize,
    /// Loads and atomics that have begun.
    begun: usize,
    results: Vec<u64>,
    dependent: bool,
}

impl Script {
    /// Creates a thread that never waits for a value.
    pub fn new(ops: impl Into<Arc<[Op]>>) -> Script {
        let ops = ops.into();
        let values = ops.iter().filter(|op| Script::has_result(op)).count();
        Script {
            ops,
            next: 0,
            begun: 0,
            results: Vec::with_capacity(values),
            dependent: false,
        }
    }

    /// Creates a thread that waits for each value before it goes on, as if following pointers.
    pub fn dependent(ops: impl Into<Arc<[Op]>>) -> Script {
        Script {
            dependent: true,
            ..Script::new(ops)
        }
    }

    fn has_result(op: &Op) -> bool {
        matches!(op, Op::Load(_) | Op::Atomic(..))
    }

    /// Returns the values of its loads and atomics so far, in program order.
    pub fn results(&self) -> &[u64] {
        &self.results
    }
}

impl Thread for Script {
    fn next(&mut self) -> Next {
        if self.dependent && self.results.len() < self.begun {
            return Next::Waits;
        }
        let Some(op) = self.ops.get(self.next) else {
            return Next::Ended;
        };
        self.next += 1;
        self.begun += usize::from(Script::has_result(op));
        Next::Op(*op)
    }

    fn deliver(&mut self, value: u64) {
        self.results.push(value);
    }
}
