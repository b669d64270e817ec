//! All possible outcomes of small programs, for litmus tests.

use std::collections::{BTreeSet, HashSet};

use super::reference::{Entry, Reference, ReferenceError, State, waits_for_stores};
use super::{Image, Op, Order, Synchronisation, Thread};

/// One possible outcome of a program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Outcome {
    /// The values of the loads and atomics of each thread, in program order.
    pub loads: Vec<Vec<u64>>,
    /// The final contents of memory.
    pub memory: Vec<u64>,
}

/// Returns all outcomes of a small program. Follows each interleaving to its end, and with
/// [`Order::TotalStore`] each moment at which a store, the release of a lock or the advance of an
/// event count can leave its thread's buffer. The number of states grows exponentially with the
/// threads; programs of a dozen operations take milliseconds.
///
/// If several threads wait for a condition, the oldest is woken.
///
/// ```
/// use outlive_machine::program::{Coroutine, Image, Order, Recording, Synchronisation, Word, outcomes};
///
/// // Two threads write a word each and read the other's.
/// let thread = |thread: usize| {
///     Coroutine::new(thread, 2, Recording::On, move |cpu| {
///         cpu.store(Word(thread as u64), 1);
///         cpu.load(Word(1 - thread as u64));
///     })
/// };
/// let image = Image { words: 2, runs: vec![] };
/// let both_read_zero = |order| {
///     let all = outcomes(&image, &Synchronisation::default(), vec![thread(0), thread(1)], order);
///     all.unwrap().iter().any(|outcome| outcome.loads == [[0], [0]])
/// };
/// assert!(!both_read_zero(Order::Sequential));
/// assert!(both_read_zero(Order::TotalStore));
/// ```
///
/// # Errors
///
/// If any run cannot end, or a thread makes an error.
pub fn outcomes<T: Thread + Clone>(
    image: &Image,
    synchronisation: &Synchronisation,
    threads: Vec<T>,
    order: Order,
) -> Result<BTreeSet<Outcome>, ReferenceError> {
    let mut first = Reference::new(image, synchronisation, threads, order, 0);
    for thread in &mut first.threads {
        thread.seen = Some(Vec::new());
    }
    let mut outcomes = BTreeSet::new();
    let mut known = HashSet::new();
    let mut open = vec![first];
    while let Some(mut world) = open.pop() {
        settle(&mut world)?;
        // The values of its loads and the number of its operations determine a thread's state.
        if !known.insert(key(&world)) {
            continue;
        }
        let threads = world.threads.len();
        let before = open.len();
        for thread in 0..threads {
            let running = &world.threads[thread];
            if !running.buffer.is_empty() {
                let mut next = world.clone();
                next.drain(thread)?;
                open.push(next);
            }
            let State::Runs = running.state else { continue };
            let empty = running.buffer.is_empty();
            match world.peek(thread)? {
                Some(op) if waits_for_stores(op) && !empty => {}
                _ => {
                    let mut next = world.clone();
                    next.step(thread)?;
                    open.push(next);
                }
            }
        }
        if open.len() > before {
            continue;
        }
        if world.threads.iter().any(|one| one.state != State::Ended) {
            return Err(ReferenceError::Deadlock(world.waits()));
        }
        let loads = world.threads.iter_mut().map(|one| one.seen.take());
        outcomes.insert(Outcome {
            loads: loads.map(Option::unwrap_or_default).collect(),
            memory: world.memory,
        });
    }
    Ok(outcomes)
}

/// Executes all operations that concern only their thread. Their order relative to operations of
/// other threads has no effect.
fn settle<T: Thread>(world: &mut Reference<T>) -> Result<(), ReferenceError> {
    for thread in 0..world.threads.len() {
        while world.threads[thread].state == State::Runs {
            match world.peek(thread)? {
                Some(
                    Op::Compute(_)
                    | Op::PrivateLoad(_)
                    | Op::PrivateStore(_)
                    | Op::Acquire(_)
                    | Op::Release(_),
                )
                | None => world.step(thread)?,
                Some(_) => break,
            };
        }
    }
    Ok(())
}

fn key<T>(world: &Reference<T>) -> Vec<u64> {
    let mut key = world.memory.clone();
    for running in &world.threads {
        let (state, object) = match running.state {
            State::Runs => (0, 0),
            State::Lock(lock) => (1, lock.0),
            State::Barrier(barrier) => (2, barrier),
            State::Condition(condition) => (3, condition),
            State::Ended => (4, 0),
            // The awaited count follows from the number of operations done.
            State::EventCount(count, _) => (5, count),
        };
        key.extend([running.done, state, u64::from(object)]);
        // Lengths come first, so that different worlds have different keys.
        let seen = running.seen.as_deref().unwrap_or_default();
        key.push(seen.len() as u64);
        key.extend(seen);
        key.push(running.buffer.len() as u64);
        key.extend(running.buffer.iter().flat_map(|entry| match *entry {
            Entry::Store(word, value) => [0, word.0, value],
            Entry::Unlock(lock) => [1, lock.0.into(), 0],
            Entry::Advance(count) => [2, count.0.into(), 0],
        }));
    }
    let owner = |owner: &Option<usize>| owner.map_or(0, |thread| thread as u64 + 1);
    key.extend(world.owners.iter().map(owner));
    key.extend(
        world
            .barriers
            .iter()
            .map(|(arrived, _)| u64::from(*arrived)),
    );
    key.extend(&world.event_counts);
    for waiting in &world.conditions {
        key.push(waiting.len() as u64);
        key.extend(waiting.iter().map(|thread| *thread as u64));
    }
    key
}
