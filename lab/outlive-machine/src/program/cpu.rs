//! The processor, through which a thread's code acts on the machine.

use std::marker::PhantomData;
use std::mem;

use corosensei::Yielder;

use super::{BarrierId, ConditionId, LockId, Op, Update, Word};

/// The number of operations handed over by one switch.
pub(super) const BATCH: usize = 64;

/// The number of latest values that are kept for [`Cpu::value`].
pub(super) const WINDOW: u64 = 512;

/// The data that a thread's code and the machine exchange at a switch: by value, so that each side
/// has it while it runs.
#[derive(Default)]
pub(super) struct Exchange {
    /// The operations since the last switch.
    pub ops: Vec<Op>,
    /// The last [`WINDOW`] values that were delivered: value i at i modulo `WINDOW`.
    pub values: Vec<u64>,
    /// The number of values delivered.
    pub delivered: u64,
    /// The number of values that must be delivered before the thread's code can go on.
    pub needed: u64,
}

impl Exchange {
    pub fn new() -> Self {
        Self {
            ops: Vec::with_capacity(BATCH),
            values: vec![0; WINDOW as usize],
            ..Self::default()
        }
    }

    #[inline]
    pub fn deliver(&mut self, value: u64) {
        self.values[(self.delivered % WINDOW) as usize] = value;
        self.delivered += 1;
    }
}

/// A type of values in words of shared memory.
pub trait Value: Copy + 'static {
    /// Returns the word that represents `self`.
    fn to_word(self) -> u64;

    /// Returns the value that the word represents.
    fn from_word(word: u64) -> Self;
}

impl Value for u64 {
    #[inline]
    fn to_word(self) -> u64 {
        self
    }

    #[inline]
    fn from_word(word: u64) -> Self {
        word
    }
}

impl Value for i64 {
    #[inline]
    fn to_word(self) -> u64 {
        self.cast_unsigned()
    }

    #[inline]
    fn from_word(word: u64) -> Self {
        word.cast_signed()
    }
}

impl Value for f64 {
    #[inline]
    fn to_word(self) -> u64 {
        self.to_bits()
    }

    #[inline]
    fn from_word(word: u64) -> Self {
        Self::from_bits(word)
    }
}

/// A load that has been issued; [`Cpu::value`] waits for its value. The value need not be asked
/// for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the value of this load is not used: write `let _ =` to discard it"]
pub struct Pending<T = u64> {
    load: u64,
    value: PhantomData<T>,
}

/// The processor that a thread's code runs on: its operations are executed by the simulated
/// machine.
///
/// All other work of the code costs no simulated time and must be declared: arithmetic by
/// [`compute`](Self::compute), accesses to data of its own by [`private_load`](Self::private_load)
/// and [`private_store`](Self::private_store).
///
/// The code must be a function of the values of its loads: no clock, no addresses of the host,
/// nothing shared with other threads except through the simulated memory.
pub struct Cpu<'a> {
    yielder: &'a Yielder<Exchange, Exchange>,
    exchange: Exchange,
    /// The number of loads and atomics so far.
    loads: u64,
    /// Instructions that access no memory, not yet passed to the machine.
    compute: u32,
    thread: usize,
    threads: usize,
}

impl<'a> Cpu<'a> {
    pub(super) fn new(
        yielder: &'a Yielder<Exchange, Exchange>,
        exchange: Exchange,
        thread: usize,
        threads: usize,
    ) -> Self {
        Self {
            yielder,
            exchange,
            loads: 0,
            compute: 0,
            thread,
            threads,
        }
    }

    /// Passes on the remaining instructions and returns the exchange, at the end of the code.
    pub(super) fn into_exchange(mut self) -> Exchange {
        self.flush();
        self.exchange
    }

    /// Returns the number of this thread, from 0.
    pub fn thread(&self) -> usize {
        self.thread
    }

    /// Returns the number of threads.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Reads a word and waits for its value.
    #[inline]
    pub fn load(&mut self, word: Word) -> u64 {
        let pending = self.load_later(word);
        self.value(pending)
    }

    /// Reads a word as an `f64` and waits for its value.
    #[inline]
    pub fn load_f64(&mut self, word: Word) -> f64 {
        f64::from_bits(self.load(word))
    }

    /// Reads a word; [`value`](Self::value) waits for its value later. So loads overlap.
    #[inline]
    pub fn load_later(&mut self, word: Word) -> Pending {
        self.load_later_as(word)
    }

    /// As [`load_later`](Self::load_later), for an `f64`.
    #[inline]
    pub fn load_later_f64(&mut self, word: Word) -> Pending<f64> {
        self.load_later_as(word)
    }

    #[inline]
    pub(super) fn load_later_as<T: Value>(&mut self, word: Word) -> Pending<T> {
        self.push(Op::Load(word));
        self.pending()
    }

    /// Returns the value of a load; waits until it is delivered.
    ///
    /// # Panics
    ///
    /// If 512 or more loads have been issued since: their values have replaced it.
    #[inline]
    pub fn value<T: Value>(&mut self, pending: Pending<T>) -> T {
        // Flushes even if the value is here: that depends on the machine's timing, and the
        // operations must not.
        self.flush();
        assert!(
            self.loads - pending.load <= WINDOW,
            "thread {} asks for the value of its load {} after {} later ones: at most {} are kept; ask earlier",
            self.thread,
            pending.load,
            self.loads - pending.load - 1,
            WINDOW - 1,
        );
        while self.exchange.delivered <= pending.load {
            self.switch(pending.load + 1);
        }
        T::from_word(self.exchange.values[(pending.load % WINDOW) as usize])
    }

    /// Reads all these words, overlapping, and waits for their values.
    #[inline]
    pub fn load_all<const N: usize>(&mut self, words: [Word; N]) -> [u64; N] {
        const { assert!(N as u64 <= WINDOW) };
        let pending = words.map(|word| self.load_later(word));
        pending.map(|pending| self.value(pending))
    }

    /// Writes a word.
    #[inline]
    pub fn store(&mut self, word: Word, value: u64) {
        self.push(Op::Store(word, value));
    }

    /// Writes an `f64`.
    #[inline]
    pub fn store_f64(&mut self, word: Word, value: f64) {
        self.store(word, value.to_bits());
    }

    /// Updates a word atomically, with a full fence before and after, and waits for its old value.
    #[inline]
    pub fn atomic(&mut self, word: Word, update: Update) -> u64 {
        self.push(Op::Atomic(word, update));
        let pending = self.pending();
        self.value(pending)
    }

    /// Makes later loads wait until earlier stores are done.
    #[inline]
    pub fn fence(&mut self) {
        self.push(Op::Fence);
    }

    /// Executes this many instructions that access no memory.
    #[inline]
    pub fn compute(&mut self, instructions: u32) {
        match self.compute.checked_add(instructions) {
            Some(sum) => self.compute = sum,
            None => {
                self.flush();
                self.compute = instructions;
            }
        }
    }

    /// Reads data of the thread's own, at this byte address of its own address space.
    #[inline]
    pub fn private_load(&mut self, address: u64) {
        self.push(Op::PrivateLoad(address));
    }

    /// Writes data of the thread's own.
    #[inline]
    pub fn private_store(&mut self, address: u64) {
        self.push(Op::PrivateStore(address));
    }

    /// Acquires a lock; waits while another thread holds it.
    pub fn lock(&mut self, lock: LockId) {
        self.push(Op::Lock(lock));
    }

    /// Releases a lock.
    pub fn unlock(&mut self, lock: LockId) {
        self.push(Op::Unlock(lock));
    }

    /// Waits until all threads of the barrier have arrived.
    pub fn barrier(&mut self, barrier: BarrierId) {
        self.push(Op::Barrier(barrier));
    }

    /// Releases the lock, waits for a signal or broadcast, and acquires the lock again. The awaited
    /// condition may not hold then: check it in a loop.
    pub fn wait(&mut self, condition: ConditionId, lock: LockId) {
        self.push(Op::Wait(condition, lock));
    }

    /// Wakes one waiting thread, if there is one.
    pub fn signal(&mut self, condition: ConditionId) {
        self.push(Op::Signal(condition));
    }

    /// Wakes all waiting threads.
    pub fn broadcast(&mut self, condition: ConditionId) {
        self.push(Op::Broadcast(condition));
    }

    /// Marks an acquire for persistency models.
    pub fn acquire(&mut self, word: Word) {
        self.push(Op::Acquire(word));
    }

    /// Marks a release for persistency models.
    pub fn release(&mut self, word: Word) {
        self.push(Op::Release(word));
    }

    #[inline]
    fn pending<T>(&mut self) -> Pending<T> {
        let load = self.loads;
        self.loads += 1;
        Pending {
            load,
            value: PhantomData,
        }
    }

    #[inline]
    fn flush(&mut self) {
        if self.compute > 0 {
            let instructions = mem::take(&mut self.compute);
            self.put(Op::Compute(instructions));
        }
    }

    #[inline]
    fn push(&mut self, op: Op) {
        self.flush();
        self.put(op);
    }

    #[inline]
    fn put(&mut self, op: Op) {
        if self.exchange.ops.len() == BATCH {
            self.switch(0);
        }
        self.exchange.ops.push(op);
    }

    /// Lets the machine run; returns when this many values are delivered.
    #[inline(never)]
    fn switch(&mut self, needed: u64) {
        let mut exchange = mem::take(&mut self.exchange);
        exchange.needed = needed;
        self.exchange = self.yielder.suspend(exchange);
    }
}
