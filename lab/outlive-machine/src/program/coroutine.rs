//! Threads that are Rust code: each runs on a stack of its own, and leaves it when it has
//! operations for the machine or needs a value from it.

use std::hash::{Hash, Hasher};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::{any, fmt, mem};

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine as Switch, CoroutineResult};
use thiserror::Error;

use super::cpu::Exchange;
use super::{Cpu, Next, Op, Thread};

/// The code of a thread.
pub type Body = Arc<dyn Fn(&mut Cpu<'_>) + Send + Sync>;

/// Bytes of a thread's stack: address space, of which the kernel commits only the touched pages.
const STACK: usize = 512 << 10;

/// Whether a thread keeps the values delivered to it, so that it can be cloned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recording {
    /// It keeps 8 bytes per load, for ever.
    On,
    /// It keeps none and cannot be cloned; for long runs.
    Off,
}

/// The error for cloning a thread that was made with [`Recording::Off`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "thread {thread} cannot be cloned: it does not record the values of its loads; create it with \
     Recording::On"
)]
pub struct NotRecorded {
    /// The thread.
    pub thread: usize,
}

/// A thread that is Rust code.
///
/// A clone runs the code from the beginning when it is first asked for an operation, with the
/// values of the original's loads. So the code must be a function of these (see [`Cpu`]); a clone
/// that detects that it is not panics.
///
/// A thread that is dropped in the middle of its code unwinds it: the values on its stack are
/// dropped.
///
/// ```
/// use outlive_machine::program::{Coroutine, Next, Op, Recording, Thread, Word};
///
/// let mut thread = Coroutine::new(0, 1, Recording::On, |cpu| {
///     let sum = cpu.load(Word(0)) + cpu.load(Word(1));
///     cpu.compute(1);
///     cpu.store(Word(2), sum);
/// });
/// assert_eq!(thread.next(), Next::Op(Op::Load(Word(0))));
/// assert_eq!(thread.next(), Next::Waits);
/// thread.deliver(3);
/// assert_eq!(thread.next(), Next::Op(Op::Load(Word(1))));
/// let mut fork = thread.clone();
/// for (thread, value) in [(&mut thread, 4), (&mut fork, 5)] {
///     thread.deliver(value);
///     assert_eq!(thread.next(), Next::Op(Op::Compute(1)));
///     assert_eq!(thread.next(), Next::Op(Op::Store(Word(2), 3 + value)));
///     assert_eq!(thread.next(), Next::Ended);
/// }
/// ```
pub struct Coroutine {
    body: Body,
    thread: usize,
    threads: usize,
    run: Run,
    exchange: Exchange,
    /// The index of the next operation of the exchange.
    head: usize,
    /// The number of loads and atomics given to the machine.
    asked: u64,
    record: Option<Record>,
}

/// The state of the code.
enum Run {
    /// Not begun; or a clone, which first has to catch up with the record.
    Behind,
    Under(Switch<Exchange, Exchange, Exchange>),
    Ended,
}

#[derive(Clone, Default)]
struct Record {
    /// All values that were delivered.
    values: Vec<u64>,
    /// The number of operations given to the machine, and their fingerprint.
    given: u64,
    fingerprint: Fingerprint,
}

impl Coroutine {
    /// Creates thread number `thread` of `threads`, which executes `body`.
    pub fn new(
        thread: usize,
        threads: usize,
        recording: Recording,
        body: impl Fn(&mut Cpu<'_>) + Send + Sync + 'static,
    ) -> Self {
        Self::with_body(thread, threads, recording, Arc::new(body))
    }

    /// As [`new`](Self::new); several threads can share their code.
    pub fn with_body(thread: usize, threads: usize, recording: Recording, body: Body) -> Self {
        let record = match recording {
            Recording::On => Some(Record::default()),
            Recording::Off => None,
        };
        Self {
            body,
            thread,
            threads,
            run: Run::Behind,
            exchange: Exchange::default(),
            head: 0,
            asked: 0,
            record,
        }
    }

    /// Returns a thread at the same point.
    ///
    /// # Errors
    ///
    /// If it was made with [`Recording::Off`].
    pub fn try_clone(&self) -> Result<Self, NotRecorded> {
        let Some(record) = &self.record else {
            return Err(NotRecorded {
                thread: self.thread,
            });
        };
        let ended = matches!(self.run, Run::Ended) && self.head == self.exchange.ops.len();
        Ok(Self {
            body: Arc::clone(&self.body),
            thread: self.thread,
            threads: self.threads,
            run: if ended { Run::Ended } else { Run::Behind },
            exchange: Exchange::default(),
            head: 0,
            asked: self.asked,
            record: Some(record.clone()),
        })
    }

    /// Lets the code run until it has operations or needs a value; begins it if necessary. Returns
    /// whether there was code to run.
    #[inline(never)]
    fn resume(&mut self) -> bool {
        match &mut self.run {
            Run::Ended => return false,
            Run::Behind => {
                self.begin();
                self.catch_up();
                return true;
            }
            Run::Under(_) => {}
        }
        self.switch();
        true
    }

    fn begin(&mut self) {
        let (body, thread, threads) = (Arc::clone(&self.body), self.thread, self.threads);
        let stack = DefaultStack::new(STACK).unwrap_or_else(|error| {
            panic!("no memory for the stack of thread {thread} ({STACK} bytes): {error}")
        });
        self.run = Run::Under(Switch::with_stack(stack, move |yielder, exchange| {
            let mut cpu = Cpu::new(yielder, exchange, thread, threads);
            body(&mut cpu);
            cpu.into_exchange()
        }));
        self.exchange = Exchange::new();
        self.head = 0;
    }

    fn switch(&mut self) {
        let Run::Under(switch) = &mut self.run else {
            return;
        };
        let mut exchange = mem::take(&mut self.exchange);
        exchange.ops.clear();
        self.head = 0;
        // Unwind safe: after a panic nothing of the code's state is left, except state that it
        // shares with no other code.
        match panic::catch_unwind(AssertUnwindSafe(|| switch.resume(exchange))) {
            Ok(CoroutineResult::Yield(exchange)) => self.exchange = exchange,
            Ok(CoroutineResult::Return(mut exchange)) => {
                exchange.needed = 0;
                self.exchange = exchange;
                self.run = Run::Ended;
            }
            Err(reason) => {
                self.run = Run::Ended;
                // The panic has already been printed.
                panic::resume_unwind(Box::new(format!(
                    "thread {} panicked: {}",
                    self.thread,
                    message(&*reason)
                )))
            }
        }
    }

    /// Runs code that has just begun up to the point that the record describes.
    fn catch_up(&mut self) {
        let Some(record) = self.record.take() else {
            return;
        };
        let mut fingerprint = Fingerprint::default();
        let mut values = record.values.iter();
        self.asked = 0;
        for given in 0..record.given {
            let Next::Op(op) = self.step() else {
                panic!(
                    "thread {} ends or waits after {given} operations when it is run again; it had \
                     {} with the same values: its code must be a function of the values of its \
                     loads",
                    self.thread, record.given,
                );
            };
            op.hash(&mut fingerprint);
            if is_load(op)
                && let Some(value) = values.next()
            {
                self.exchange.deliver(*value);
            }
        }
        assert!(
            fingerprint == record.fingerprint,
            "thread {} does something else when it is run again with the same values: its code \
             must be a function of the values of its loads",
            self.thread,
        );
        self.record = Some(record);
    }

    /// [`Thread::next`] without a record.
    #[inline]
    fn step(&mut self) -> Next {
        loop {
            if let Some(&op) = self.exchange.ops.get(self.head) {
                self.head += 1;
                self.asked += u64::from(is_load(op));
                return Next::Op(op);
            }
            if self.exchange.delivered < self.exchange.needed {
                return Next::Waits;
            }
            if !self.resume() {
                return Next::Ended;
            }
        }
    }
}

impl Thread for Coroutine {
    /// # Panics
    ///
    /// If its code panics, with its message; and as described at [`Coroutine`] for clones.
    #[inline]
    fn next(&mut self) -> Next {
        let next = self.step();
        if let (Some(record), Next::Op(op)) = (&mut self.record, next) {
            record.given += 1;
            op.hash(&mut record.fingerprint);
        }
        next
    }

    /// # Panics
    ///
    /// If no load waits for a value.
    #[inline]
    fn deliver(&mut self, value: u64) {
        let delivered = match &self.record {
            Some(record) => record.values.len() as u64,
            None => self.exchange.delivered,
        };
        assert!(
            delivered < self.asked,
            "thread {} is given a value, but none of its loads waits for one",
            self.thread,
        );
        match self.run {
            Run::Under(_) => self.exchange.deliver(value),
            // An ended thread ignores it; a clone takes it from the record when it catches up.
            Run::Behind | Run::Ended => self.exchange.delivered += 1,
        }
        if let Some(record) = &mut self.record {
            record.values.push(value);
        }
    }
}

impl Clone for Coroutine {
    /// # Panics
    ///
    /// If it was made with [`Recording::Off`]; [`try_clone`](Coroutine::try_clone) returns an error
    /// instead.
    fn clone(&self) -> Self {
        self.try_clone().unwrap_or_else(|error| panic!("{error}"))
    }
}

impl fmt::Debug for Coroutine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coroutine")
            .field("thread", &self.thread)
            .field("threads", &self.threads)
            .field("delivered", &self.exchange.delivered)
            .field("ended", &matches!(self.run, Run::Ended))
            .finish_non_exhaustive()
    }
}

#[inline]
const fn is_load(op: Op) -> bool {
    matches!(op, Op::Load(_) | Op::Atomic(..))
}

fn message(reason: &(dyn any::Any + Send)) -> &str {
    let owned = reason.downcast_ref::<String>().map(String::as_str);
    owned
        .or_else(|| reason.downcast_ref::<&str>().copied())
        .unwrap_or("(no message)")
}

/// A 64-bit hash of a sequence of operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Fingerprint(u64);

impl Hasher for Fingerprint {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    #[inline]
    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    #[inline]
    fn write_isize(&mut self, value: isize) {
        // The number of an enum's variant.
        self.write_u64(value.cast_unsigned() as u64);
    }
}
