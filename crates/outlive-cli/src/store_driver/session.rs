//! A connection to a store, with transactions that are executed step by step.
//!
//! The store executes a transaction as the body of [`Coordinator::transaction`], a future. The
//! session is one future that executes transactions one after another. Each body takes its steps
//! from an [`Exchange`], and leaves the answers there. A step of the connection is a request in the
//! exchange, and as many polls of the future as the answer needs: no thread and no executor.
//!
//! A dropped connection drops the future, and with it the attempt, which releases its latches.

use outlive_litmus::driver::{Connection, Key, StepError};
use outlive_store::protocol::{
    Abort, Coordinator, Member, Table, Transaction, TransactionError, Worker,
};
use outlive_store::verbs::block_on;
use std::cell::Cell;
use std::future::poll_fn;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

/// The number of keys that a transaction reads to count the objects among them.
const MAX_COUNTED: u64 = 4096;

/// A request of the connection to its session.
#[derive(Clone, Copy, Debug)]
enum Step {
    Begin,
    Read(Key),
    Write(Key, i64),
    Insert(Key, i64),
    Delete(Key),
    Commit,
    Abort,
}

/// The value that was read, if the step is a read.
type Answer = Result<Option<i64>, StepError>;

/// The step under way, and its answer.
#[derive(Default)]
struct Exchange {
    step: Cell<Option<Step>>,
    answer: Cell<Option<Answer>>,
}

impl Exchange {
    /// Waits for the next step.
    async fn next(&self) -> Step {
        poll_fn(|_| self.step.take().map_or(Poll::Pending, Poll::Ready)).await
    }

    fn answer(&self, answer: Answer) {
        self.answer.set(Some(answer));
    }
}

/// A connection to a store.
pub(super) struct Session {
    exchange: Rc<Exchange>,
    /// Executes transactions, and never ends.
    executing: Pin<Box<dyn Future<Output = ()>>>,
}

impl Session {
    /// Returns a connection. `coordinator`, of `worker`, executes its transactions, once each.
    pub fn new<V: Member + 'static>(
        worker: Rc<Worker<V>>,
        coordinator: Coordinator<V>,
        table: Table<i64>,
    ) -> Self {
        let exchange = Rc::new(Exchange::default());
        Self {
            executing: Box::pin(execute(worker, coordinator, table, Rc::clone(&exchange))),
            exchange,
        }
    }

    /// Executes a step to its end.
    fn step(&mut self, step: Step) -> Answer {
        self.exchange.step.set(Some(step));
        block_on(poll_fn(|context| {
            // Polled again only if it has not ended, which it never does.
            let _ = self.executing.as_mut().poll(context);
            self.exchange
                .answer
                .take()
                .map_or(Poll::Pending, Poll::Ready)
        }))
    }
}

/// Executes transactions one after another.
async fn execute<V: Member>(
    worker: Rc<Worker<V>>,
    mut coordinator: Coordinator<V>,
    table: Table<i64>,
    exchange: Rc<Exchange>,
) {
    loop {
        match exchange.next().await {
            Step::Begin => {}
            _ => {
                exchange.answer(Err(StepError::Lost("no transaction was begun".into())));
                continue;
            }
        }
        let refused = Cell::new(false);
        let executed = coordinator.transaction(async |tx| {
            let ended = steps(tx, table, &exchange).await?;
            refused.set(matches!(ended, End::Refused));
            match ended {
                End::Commit => Ok(()),
                End::Abort | End::Refused => Err(tx.abort()),
            }
        });
        let executed = executed.await;
        // The client may be idle now. An error is that of the next transaction, too.
        let _ = worker.finish().await;
        let answer = match executed {
            Ok(_) => Ok(None),
            Err(TransactionError::Aborted(Abort::User)) if refused.get() => Err(StepError::Refused),
            Err(TransactionError::Aborted(Abort::User)) => Ok(None),
            Err(error) => Err(step_error(&error)),
        };
        exchange.answer(answer);
    }
}

/// The way in which the steps of a transaction end.
enum End {
    Commit,
    Abort,
    /// A step is refused.
    Refused,
}

/// Executes the steps of a transaction up to its end. The last step is answered after the attempt.
async fn steps<V: Member>(
    tx: &mut Transaction<V>,
    table: Table<i64>,
    exchange: &Exchange,
) -> Result<End, Abort> {
    exchange.answer(Ok(None)); // to `begin`
    loop {
        let answer = match exchange.next().await {
            Step::Read(key) => tx.read(table, key).await?,
            Step::Write(key, value) => match tx.write(table, key, &value).await? {
                true => None,
                false => return Ok(End::Refused),
            },
            Step::Insert(key, value) => match tx.insert(table, key, &value).await? {
                true => None,
                false => return Ok(End::Refused),
            },
            Step::Delete(key) => match tx.delete(table, key).await? {
                Some(_) => None,
                None => return Ok(End::Refused),
            },
            Step::Commit => return Ok(End::Commit),
            Step::Abort | Step::Begin => return Ok(End::Abort),
        };
        exchange.answer(Ok(answer));
    }
}

/// Classifies the error of a transaction.
fn step_error(error: &TransactionError) -> StepError {
    let text = error.to_string();
    match error {
        TransactionError::TooManyConflicts { last, .. } => StepError::Aborted(last.to_string()),
        TransactionError::DeadlineExceeded
        | TransactionError::Aborted(Abort::TableFull { .. } | Abort::WriteSetTooLarge { .. }) => {
            StepError::Aborted(text)
        }
        _ => StepError::Lost(text),
    }
}

impl Connection for Session {
    fn begin(&mut self) -> Result<(), StepError> {
        self.step(Step::Begin).map(drop)
    }

    fn read(&mut self, key: Key) -> Result<Option<i64>, StepError> {
        self.step(Step::Read(key))
    }

    fn write(&mut self, key: Key, value: i64) -> Result<(), StepError> {
        self.step(Step::Write(key, value)).map(drop)
    }

    fn insert(&mut self, key: Key, value: i64) -> Result<(), StepError> {
        self.step(Step::Insert(key, value)).map(drop)
    }

    fn delete(&mut self, key: Key) -> Result<(), StepError> {
        self.step(Step::Delete(key)).map(drop)
    }

    /// Reads each key of the range, which has the few objects of a test. The absence of a key is
    /// validated as its value is, so together the reads are one predicate.
    fn count(&mut self, mut range: Range<Key>) -> Result<u64, StepError> {
        if range.end.saturating_sub(range.start) > MAX_COUNTED {
            return Err(StepError::Lost(format!(
                "a transaction of this store counts at most {MAX_COUNTED} keys"
            )));
        }
        range.try_fold(0, |count, key| {
            Ok(count + u64::from(self.read(key)?.is_some()))
        })
    }

    fn commit(&mut self) -> Result<(), StepError> {
        self.step(Step::Commit).map(drop)
    }

    fn abort(&mut self) -> Result<(), StepError> {
        self.step(Step::Abort).map(drop)
    }
}
