//! A coordinator: executes transactions one after another, and retries them after conflicts.

use super::commit::CommitError;
use super::transaction::{Sets, Transaction};
use super::view::{Member, Slot};
use super::worker::Worker;
use super::{Abort, Conflict, TransactionError};
use crate::tables::{TableLayout, TransactionId};
use crate::verbs::VerbError;
use core::future::poll_fn;
use core::task::Poll;
use core::time::Duration;
use std::rc::Rc;
use std::time::Instant;

/// A coordinator, which executes one transaction at a time.
#[derive(Debug)]
pub struct Coordinator<V: Member> {
    pub(super) worker: Rc<Worker<V>>,
    slot: Slot,
    pub(super) retry: Retry,
    sets: Sets<V::Connection>,
    random: fastrand::Rng,
}

/// The settings for the retries of a transaction after conflicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// The largest number of attempts.
    pub attempts: u32,
    /// The largest number of polls between two attempts. The number is random, and its bound
    /// doubles with each attempt up to this one.
    pub pause: u32,
    /// The largest number of polls for which an attempt stalls: if a latch that it needs belongs to
    /// a compute server under recovery, the attempt waits instead of ending with a conflict. It
    /// never waits for a live server. (*Tandem* thesis, Figures 4.13 and 4.14.)
    pub stall: u32,
    /// The time after which no attempt begins, except the first one. An attempt that is under way
    /// is not interrupted: its body must bound the time of its own accesses, and its commit ends as
    /// usual.
    pub deadline: Option<Duration>,
}

impl Retry {
    /// Returns the moment of the deadline. Without one, no clock is read.
    pub(super) fn end(&self) -> Option<Instant> {
        self.deadline
            .and_then(|limit| Instant::now().checked_add(limit))
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            attempts: 100_000,
            pause: 1024,
            stall: 0,
            deadline: None,
        }
    }
}

/// Returns whether a deadline is over.
pub(super) fn is_over(end: Option<Instant>) -> bool {
    end.is_some_and(|end| Instant::now() >= end)
}

/// The outcome of a committed transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed<T> {
    /// The value that the body returned.
    pub value: T,
    /// The attempt that was committed.
    pub id: TransactionId,
    /// The number of attempts.
    pub attempts: u32,
}

impl<V: Member> Coordinator<V> {
    pub(super) fn new(worker: Rc<Worker<V>>, slot: Slot) -> Self {
        let seed = TransactionId::new(worker.process, slot.number, 0).to_word();
        Self {
            worker,
            slot,
            retry: Retry::default(),
            sets: Sets::default(),
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// Sets how transactions are retried after conflicts.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Returns the number of the log slot.
    pub fn number(&self) -> u16 {
        self.slot.number
    }

    pub(super) fn layout(&self, table: u8) -> Rc<TableLayout> {
        self.worker.layout(table)
    }

    /// Executes a transaction: runs `body` and commits. After a conflict, the body runs again, so
    /// it must have no effects of its own.
    ///
    /// If the future is dropped before the attempt has a complete log entry, the attempt is
    /// aborted, else it is committed.
    ///
    /// # Errors
    /// [`TransactionError`]. After any but [`Unknown`](TransactionError::Unknown) the transaction
    /// has had no effect.
    ///
    /// # Crash
    /// The transaction has taken effect or has not: recovery decides. If this function has
    /// returned, its outcome is final.
    pub async fn transaction<T>(
        &mut self,
        body: impl AsyncFn(&mut Transaction<V>) -> Result<T, Abort>,
    ) -> Result<Committed<T>, TransactionError> {
        if self.worker.keeps_slot(self.slot.number) {
            return Err(TransactionError::Unresolved);
        }
        self.worker.publish_many();
        let end = self.retry.end();
        for attempts in 1.. {
            if attempts > 1 && is_over(end) {
                return Err(TransactionError::DeadlineExceeded);
            }
            self.slot.attempt = self.slot.attempt.wrapping_add(1);
            let Slot { number, attempt } = self.slot;
            let id = TransactionId::new(self.worker.process, number, attempt);
            self.worker.renew(end).await?;
            self.worker.wait_for_recoveries(end).await?;
            let sets = core::mem::take(&mut self.sets);
            let mut attempt = Transaction::new(Rc::clone(&self.worker), id, sets, self.retry.stall);
            let outcome = match body(&mut attempt).await {
                Ok(value) => attempt.commit().await.map(|()| value),
                Err(abort) => Err(CommitError::Abort(abort)),
            };
            // An aborted client is told after its latches are released.
            let ended = match outcome {
                Err(CommitError::Abort(_)) => attempt.end().await,
                _ => Ok(()),
            };
            let broken = match outcome {
                Err(CommitError::Abort(Abort::Verb(VerbError::Broken { server }))) => Some(server),
                _ => None,
            };
            if ended.is_err() || matches!(outcome, Err(CommitError::Unknown(_))) {
                self.worker.view.leave_latches();
                self.worker.keep_slot(number);
            }
            self.sets = core::mem::take(&mut attempt.sets);
            attempt.forget();
            let abort = match outcome {
                Ok(value) => {
                    self.worker.count(|it| it.committed += 1);
                    return Ok(Committed {
                        value,
                        id,
                        attempts,
                    });
                }
                Err(CommitError::Unknown(source)) => {
                    let transaction = id;
                    return Err(TransactionError::Unknown {
                        transaction,
                        source,
                    });
                }
                // Soon the epoch is over, and the next attempt uses the other replicas; or there is
                // a new connection.
                Err(CommitError::Abort(Abort::Verb(
                    VerbError::ServerDied { .. } | VerbError::Broken { .. },
                ))) => {
                    self.worker.count(|it| it.interrupted += 1);
                    Abort::Conflict(Conflict::Interrupted)
                }
                Err(CommitError::Abort(abort)) => abort,
            };
            match (abort, ended) {
                (Abort::Conflict(_), Ok(())) if attempts < self.retry.attempts => {}
                (Abort::Conflict(last), Ok(())) => {
                    return Err(TransactionError::TooManyConflicts { attempts, last });
                }
                (Abort::Conflict(_), Err(error)) => {
                    return Err(TransactionError::Aborted(Abort::Verb(error)));
                }
                (abort, _) => return Err(TransactionError::Aborted(abort)),
            }
            if let Some(server) = broken {
                match self.worker.reconnect(server).await {
                    Ok(()) | Err(VerbError::ServerDied { .. }) => {}
                    Err(error) => return Err(TransactionError::Aborted(error.into())),
                }
            }
            self.pause(attempts).await;
        }
        unreachable!("the loop ends with an outcome")
    }

    /// Waits for a random number of polls before the next attempt.
    pub(super) async fn pause(&mut self, attempts: u32) {
        let most = 1u32.checked_shl(attempts).unwrap_or(u32::MAX);
        let mut left = self.random.u32(..=most.min(self.retry.pause));
        poll_fn(|context| match left {
            0 => Poll::Ready(()),
            _ => {
                left -= 1;
                if attempts > 6 && left.is_multiple_of(16) {
                    // The holder of the latch may wait for a processor.
                    std::thread::yield_now();
                }
                context.waker().wake_by_ref();
                Poll::Pending
            }
        })
        .await;
    }
}

impl<V: Member> Drop for Coordinator<V> {
    fn drop(&mut self) {
        self.worker.publish();
        let Slot { number, attempt } = self.slot;
        if self.worker.keeps_slot(number) {
            return;
        }
        self.worker.view.return_slot(Slot { number, attempt });
    }
}
