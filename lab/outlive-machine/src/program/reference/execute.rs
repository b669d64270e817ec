//! The effect of each operation on the machine without time.

use super::super::counts::Access;
use super::super::{LockId, Next, Op, Thread, Word};
use super::{Entry, Order, Reference, ReferenceError, State};

impl<T: Thread> Reference<T> {
    /// Returns the next operation of the thread.
    pub(in crate::program) fn peek(&mut self, thread: usize) -> Result<Option<Op>, ReferenceError> {
        let running = &mut self.threads[thread];
        if running.op.is_none() {
            match running.source.next() {
                Next::Op(op) => {
                    self.counts.count(op);
                    running.op = Some(op);
                }
                Next::Waits => return Err(ReferenceError::Mute { thread }),
                Next::Ended => {}
            }
        }
        Ok(running.op)
    }

    /// Lets the thread do one operation. Returns whether it did: it may have to wait, or have
    /// ended.
    pub(in crate::program) fn step(&mut self, thread: usize) -> Result<bool, ReferenceError> {
        let Some(op) = self.peek(thread)? else {
            self.threads[thread].state = State::Ended;
            return Ok(false);
        };
        if waits_for_stores(op) {
            self.drain_all(thread)?;
        }
        if !self.execute(thread, op)? {
            return Ok(false);
        }
        // A thread that waited with a lock has to acquire it again.
        self.threads[thread].op = match op {
            Op::Wait(_, lock) => Some(Op::Lock(lock)),
            _ => None,
        };
        self.threads[thread].done += 1;
        Ok(true)
    }

    fn execute(&mut self, thread: usize, op: Op) -> Result<bool, ReferenceError> {
        match op {
            Op::Compute(_) | Op::PrivateLoad(_) | Op::PrivateStore(_) | Op::Fence => {}
            Op::Acquire(_) | Op::Release(_) => {}
            Op::Load(word) => {
                let old = self.access(thread, word, op, Access::Load)?;
                self.give(thread, old);
            }
            Op::Store(word, value) | Op::StorePart(word, value, _) => {
                self.access(thread, word, op, Access::Store)?;
                self.buffer(thread, Entry::Store(word, value))?;
            }
            Op::Atomic(word, update) => {
                let old = self.access(thread, word, op, Access::Atomic)?;
                self.memory[word.0 as usize] = update.apply(old);
                self.give(thread, old);
            }
            Op::Lock(lock) => {
                let owner = object(&mut self.owners, lock.0, thread, op)?;
                if owner.is_some() {
                    self.threads[thread].state = State::Lock(lock);
                    return Ok(false);
                }
                *owner = Some(thread);
            }
            Op::Unlock(lock) => {
                object(&mut self.owners, lock.0, thread, op)?;
                self.buffer(thread, Entry::Unlock(lock))?;
            }
            Op::Barrier(barrier) => {
                let (arrived, threads) = object(&mut self.barriers, barrier.0, thread, op)?;
                *arrived += 1;
                self.threads[thread].state = State::Barrier(barrier.0);
                if *arrived == *threads {
                    *arrived = 0;
                    self.wake(State::Barrier(barrier.0));
                }
            }
            Op::Wait(condition, lock) => {
                object(&mut self.conditions, condition.0, thread, op)?.push_back(thread);
                self.unlock(thread, lock, op)?;
                self.threads[thread].state = State::Condition(condition.0);
            }
            Op::Signal(condition) => {
                if let Some(woken) =
                    object(&mut self.conditions, condition.0, thread, op)?.pop_front()
                {
                    self.threads[woken].state = State::Runs;
                }
            }
            Op::Broadcast(condition) => {
                object(&mut self.conditions, condition.0, thread, op)?.clear();
                self.wake(State::Condition(condition.0));
            }
            Op::Await(count, wanted) => {
                if *object(&mut self.event_counts, count.0, thread, op)? < wanted {
                    self.threads[thread].state = State::EventCount(count.0, wanted);
                    return Ok(false);
                }
            }
            Op::Advance(count) => {
                object(&mut self.event_counts, count.0, thread, op)?;
                self.buffer(thread, Entry::Advance(count))?;
            }
        }
        Ok(true)
    }

    /// Makes an entry visible to other threads: at once, or when it leaves the thread's buffer.
    fn buffer(&mut self, thread: usize, entry: Entry) -> Result<(), ReferenceError> {
        match self.order {
            Order::Sequential => self.commit(thread, entry),
            Order::TotalStore => {
                self.threads[thread].buffer.push_back(entry);
                Ok(())
            }
        }
    }

    /// Makes an entry visible to other threads.
    pub(super) fn commit(&mut self, thread: usize, entry: Entry) -> Result<(), ReferenceError> {
        match entry {
            Entry::Store(word, value) => self.memory[word.0 as usize] = value,
            Entry::Unlock(lock) => self.unlock(thread, lock, Op::Unlock(lock))?,
            Entry::Advance(count) => {
                let is = &mut self.event_counts[count.0 as usize];
                *is += 1;
                let is = *is;
                self.wake(State::EventCount(count.0, is));
            }
        }
        Ok(())
    }

    /// Returns the value of the word as the thread sees it.
    fn access(
        &mut self,
        thread: usize,
        word: Word,
        op: Op,
        access: Access,
    ) -> Result<u64, ReferenceError> {
        let words = self.memory.len() as u64;
        let Some(value) = self.memory.get(word.0 as usize) else {
            return Err(ReferenceError::Outside { thread, op, words });
        };
        self.touches.touch(thread, word, access);
        let mut youngest_first = self.threads[thread].buffer.iter().rev();
        let own = youngest_first.find_map(|entry| match entry {
            Entry::Store(other, value) => (*other == word).then_some(*value),
            Entry::Unlock(_) | Entry::Advance(_) => None,
        });
        Ok(own.unwrap_or(*value))
    }

    fn give(&mut self, thread: usize, value: u64) {
        let running = &mut self.threads[thread];
        running.source.deliver(value);
        if let Some(seen) = &mut running.seen {
            seen.push(value);
        }
    }

    fn unlock(&mut self, thread: usize, lock: LockId, op: Op) -> Result<(), ReferenceError> {
        let owner = object(&mut self.owners, lock.0, thread, op)?;
        if *owner != Some(thread) && !self.anybody_unlocks {
            return Err(ReferenceError::NotOwner { thread, op });
        }
        *owner = None;
        // All waiting threads try again; the first one acquires it.
        self.wake(State::Lock(lock));
        Ok(())
    }

    fn wake(&mut self, state: State) {
        for running in &mut self.threads {
            if running.state == state {
                running.state = State::Runs;
            }
        }
    }
}

/// Returns whether the operation waits until all earlier stores of its thread are visible.
pub(in crate::program) const fn waits_for_stores(op: Op) -> bool {
    match op {
        Op::Atomic(..)
        | Op::Fence
        | Op::Lock(_)
        | Op::Barrier(_)
        | Op::Wait(..)
        | Op::Signal(_)
        | Op::Broadcast(_) => true,
        Op::Compute(_)
        | Op::Load(_)
        | Op::Store(..)
        | Op::StorePart(..)
        | Op::PrivateLoad(_)
        | Op::PrivateStore(_)
        | Op::Acquire(_)
        | Op::Release(_)
        | Op::Unlock(_)
        | Op::Await(..)
        | Op::Advance(_) => false,
    }
}

fn object<O>(
    objects: &mut [O],
    number: u32,
    thread: usize,
    op: Op,
) -> Result<&mut O, ReferenceError> {
    let error = ReferenceError::NoSuchObject { thread, op };
    objects.get_mut(number as usize).ok_or(error)
}
