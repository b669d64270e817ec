//! The handle through which algorithms access a scenario's memory.

use super::engine::access::{Access, Act, Answer};
use super::engine::views::Views;
use super::engine::{self, Model};
use crate::explore::CacheRules;
use crate::explore::caches::Caches;
use outlive_memory::{Memory, Offset, Ordering, Word};

/// A memory that a [`Scenario`](super::Scenario) can run on.
pub trait Proving: Memory {
    /// Returns the handle. It works inside a scenario only.
    #[doc(hidden)]
    fn handle() -> Self;
    /// Returns a memory in its state before the preparation.
    #[doc(hidden)]
    fn world(plan: &Plan) -> World;
}

/// The facts of a scenario that its memory needs.
#[doc(hidden)]
#[derive(Debug)]
pub struct Plan {
    /// The number of threads, main and the manager's hooks.
    pub(crate) actors: usize,
    /// The threads' hosts.
    pub(crate) hosts: Vec<usize>,
    /// In bytes.
    pub(crate) size: u64,
    /// The number of messages that a load chooses among.
    pub(crate) history: usize,
    pub(crate) rules: CacheRules,
}

/// The model behind a memory, for the engine.
#[doc(hidden)]
#[derive(Debug)]
pub struct World(pub(crate) Model);

impl World {
    pub(crate) fn caches(caches: Caches) -> Self {
        Self(Model::Caches(caches))
    }
}

/// Memory in which threads interleave at every access, under release and acquire as in C++20
/// (without promises), and in which any access may be a thread's last.
///
/// The handle stands for the memory of the execution that runs on this operating-system thread;
/// outside the closures of a [`Scenario`](super::Scenario) every access panics.
#[derive(Clone, Copy, Debug)]
pub struct Scheduled(());

impl Proving for Scheduled {
    fn handle() -> Self {
        Self(())
    }

    fn world(plan: &Plan) -> World {
        World(Model::Views(Views::new(plan.actors, plan.history)))
    }
}

/// Makes one access, typed.
pub(crate) fn access<W: Word>(act: Act, at: Offset, order: Ordering) -> W {
    W::from_bits(answer::<W>(act, at, order).value)
}

fn answer<W: Word>(act: Act, at: Offset, order: Ordering) -> Answer {
    engine::answer(Access {
        act,
        at: at.raw(),
        size: W::SIZE as u8,
        order,
    })
}

/// Makes one compare-and-swap, typed.
pub(crate) fn compare_exchange<W: Word>(
    at: Offset,
    current: W,
    new: W,
    success: Ordering,
    failure: Ordering,
) -> Result<W, W> {
    let (expected, new) = (current.to_bits(), new.to_bits());
    let answer = answer::<W>(
        Act::CompareExchange {
            expected,
            new,
            failure,
        },
        at,
        success,
    );
    let found = W::from_bits(answer.value);
    if answer.swapped {
        Ok(found)
    } else {
        Err(found)
    }
}

/// Copies in by relaxed words of 64 bits.
pub(crate) fn copy_in<M: Memory>(memory: M, at: Offset, from: &[u8]) {
    for (i, chunk) in from.chunks(8).enumerate() {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        memory.store(
            at + 8 * i as u64,
            u64::from_ne_bytes(word),
            Ordering::Relaxed,
        );
    }
}

/// Copies out by relaxed words of 64 bits.
pub(crate) fn copy_out<M: Memory>(memory: M, at: Offset, into: &mut [u8]) {
    for (i, chunk) in into.chunks_mut(8).enumerate() {
        let word: u64 = memory.load(at + 8 * i as u64, Ordering::Relaxed);
        chunk.copy_from_slice(&word.to_ne_bytes()[..chunk.len()]);
    }
}

/// Implements `Memory` for a handle of the engine.
macro_rules! memory_of_the_engine {
    ($handle:ty, $domain:ident) => {
        const _: () = {
            use outlive_memory::{CrashPoint, Memory, Offset, Ordering, PersistenceDomain, Word};
            use $crate::schedule::engine::{self, access::Act};
            use $crate::schedule::handle::{access, compare_exchange, copy_in, copy_out};

            // SAFETY: size and domain are those that the execution began with; every access is
            // checked.
            unsafe impl Memory for $handle {
                fn size(self) -> u64 {
                    engine::memory_size()
                }

                fn domain(self) -> PersistenceDomain {
                    PersistenceDomain::$domain
                }

                fn load<W: Word>(self, at: Offset, order: Ordering) -> W {
                    access(Act::Load, at, order)
                }

                fn store<W: Word>(self, at: Offset, value: W, order: Ordering) {
                    access::<W>(Act::Store(value.to_bits()), at, order);
                }

                fn exchange<W: Word>(self, at: Offset, value: W, order: Ordering) -> W {
                    access(Act::Exchange(value.to_bits()), at, order)
                }

                fn compare_exchange<W: Word>(
                    self,
                    at: Offset,
                    current: W,
                    new: W,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<W, W> {
                    compare_exchange(at, current, new, success, failure)
                }

                fn fetch_add<W: Word>(self, at: Offset, value: W, order: Ordering) -> W {
                    access(Act::Add(value.to_bits()), at, order)
                }

                fn fetch_and<W: Word>(self, at: Offset, value: W, order: Ordering) -> W {
                    access(Act::And(value.to_bits()), at, order)
                }

                fn fetch_or<W: Word>(self, at: Offset, value: W, order: Ordering) -> W {
                    access(Act::Or(value.to_bits()), at, order)
                }

                fn copy_in(self, at: Offset, from: &[u8]) {
                    copy_in(self, at, from);
                }

                fn copy_out(self, at: Offset, into: &mut [u8]) {
                    copy_out(self, at, into);
                }

                fn write_back(self, at: Offset, len: u64) {
                    if self.domain() == PersistenceDomain::WriteBack {
                        engine::write_back(at.raw(), len);
                    }
                }

                fn drain(self) {
                    if self.domain() == PersistenceDomain::WriteBack {
                        engine::drain();
                    }
                }

                fn fence(self, order: Ordering) {
                    engine::fence(order);
                }

                fn spin_hint(self) {
                    engine::spin_hint();
                }

                fn crash_point<P: CrashPoint>(self, point: P) {
                    engine::crash_point(point);
                }
            }
        };
    };
}
pub(crate) use memory_of_the_engine;

memory_of_the_engine!(Scheduled, Flushed);
