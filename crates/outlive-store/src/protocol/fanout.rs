//! Batches for several memory servers at a time.

use super::Worker;
use super::view::View;
use crate::tables::TransactionId;
use crate::verbs::{Batch, Connection, ServerId, VerbError};
use core::future::poll_fn;
use core::pin::Pin;
use core::task::Poll;

/// One batch for each of some memory servers. Their allocations are reused.
#[derive(Debug)]
pub(super) struct Fanout<C: Connection> {
    entries: Vec<Entry<C>>,
    used: usize,
    /// The number of verbs that were posted.
    pub verbs: u64,
    /// The number of times at which verbs were posted.
    pub round_trips: u64,
}

#[derive(Debug)]
struct Entry<C: Connection> {
    server: ServerId,
    batch: Batch,
    /// Whether the batch is to be posted.
    is_due: bool,
    pending: Option<C::Completion>,
    is_valid: bool,
}

impl<C: Connection> Default for Fanout<C> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            used: 0,
            verbs: 0,
            round_trips: 0,
        }
    }
}

impl<C: Connection> Fanout<C> {
    /// Removes all batches, and keeps their allocations.
    pub fn clear(&mut self) {
        self.used = 0;
    }

    /// Returns the batch for `server`, which is empty at first, and its index.
    pub fn to(&mut self, server: ServerId) -> (usize, &mut Batch) {
        let found = self.entries[..self.used]
            .iter()
            .position(|it| it.server == server);
        let index = found.unwrap_or_else(|| {
            if self.used == self.entries.len() {
                self.entries.push(Entry {
                    server,
                    batch: Batch::new(),
                    is_due: true,
                    pending: None,
                    is_valid: false,
                });
            }
            let entry = &mut self.entries[self.used];
            entry.server = server;
            entry.batch.clear();
            entry.is_due = true;
            entry.pending = None;
            entry.is_valid = false;
            self.used += 1;
            self.used - 1
        });
        (index, &mut self.entries[index].batch)
    }

    /// Returns the completed batch with this index.
    pub fn batch(&self, index: usize) -> &Batch {
        &self.entries[index].batch
    }

    /// Returns the batch with this index, if all its verbs took effect.
    pub fn valid(&self, index: usize) -> Option<&Batch> {
        let entry = &self.entries[index];
        entry.is_valid.then_some(&entry.batch)
    }

    /// Posts all batches that are due. Returns an error of a connection for which `is_failure`
    /// holds.
    fn start<V: View<Connection = C>>(
        &mut self,
        worker: &Worker<V>,
        is_failure: impl Fn(&VerbError) -> bool,
    ) -> Result<(), VerbError> {
        let mut result = Ok(());
        self.round_trips += u64::from(self.used > 0);
        let entries = self.entries[..self.used].iter_mut();
        for entry in entries.filter(|it| it.is_due) {
            entry.is_due = false;
            self.verbs += entry.batch.len() as u64;
            match worker.connection(entry.server) {
                Ok(connection) => {
                    let batch = core::mem::take(&mut entry.batch);
                    entry.pending = Some(connection.post(batch));
                }
                Err(error) if is_failure(&error) => result = Err(error),
                Err(_) => {}
            }
        }
        result
    }

    /// Posts all batches and waits for their completion.
    ///
    /// # Errors
    /// Returns the error of one of the batches that failed. The other batches are complete.
    pub async fn post<V>(&mut self, worker: &Worker<V>) -> Result<(), VerbError>
    where
        V: View<Connection = C>,
    {
        let started = self.start(worker, |_| true);
        started.and(self.complete(|_| true).await)
    }

    /// Does the same as [`post`](Self::post), but ignores the errors of batches to servers that
    /// have died. A batch whose connection breaks is posted again over a new one, so all its verbs
    /// must be idempotent.
    pub async fn post_to_live<V>(&mut self, worker: &Worker<V>) -> Result<(), VerbError>
    where
        V: View<Connection = C>,
    {
        // A live server without a connection is an error.
        let is_failure =
            |it: &VerbError| !matches!(it, VerbError::ServerDied { .. } | VerbError::Broken { .. });
        loop {
            let started = self.start(worker, is_failure);
            started.and(self.complete(is_failure).await)?;
            if self.entries[..self.used].iter().all(|it| !it.is_due) {
                return Ok(());
            }
            let entries = self.entries[..self.used].iter_mut();
            for entry in entries.filter(|it| it.is_due) {
                match worker.reconnect(entry.server).await {
                    Ok(()) => {}
                    // The old connection may be reported as broken for good.
                    Err(VerbError::ServerDied { .. }) => entry.is_due = false,
                    Err(error) => return Err(error),
                }
            }
        }
    }

    async fn complete(&mut self, is_failure: impl Fn(&VerbError) -> bool) -> Result<(), VerbError> {
        let mut result = Ok(());
        poll_fn(|context| {
            let mut is_done = true;
            for entry in &mut self.entries[..self.used] {
                let Some(pending) = &mut entry.pending else {
                    continue;
                };
                match Pin::new(pending).poll(context) {
                    Poll::Ready(completed) => {
                        entry.pending = None;
                        entry.batch = completed.batch;
                        entry.is_valid = completed.result.is_ok();
                        let is_broken = matches!(completed.result, Err(VerbError::Broken { .. }));
                        entry.is_due = is_broken;
                        if let Err(error) = completed.result
                            && is_failure(&error)
                        {
                            result = Err(error);
                        }
                    }
                    Poll::Pending => is_done = false,
                }
            }
            match is_done {
                true => Poll::Ready(result),
                false => Poll::Pending,
            }
        })
        .await
    }

    /// Posts all batches, the WRITEs with which `holder` releases latches, without waiting for
    /// their completion. Batches to servers that cannot be used are dropped.
    pub fn post_releases<V>(&mut self, worker: &Worker<V>, holder: TransactionId)
    where
        V: View<Connection = C>,
    {
        let _ = self.start(worker, |_| false);
        for entry in &mut self.entries[..self.used] {
            if let Some(pending) = entry.pending.take()
                && C::CAN_BREAK
            {
                worker.follow_release(entry.server, holder, pending);
            }
        }
        self.used = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::super::Protocol;
    use super::super::small_view::{LOGS, Link, SmallView, TABLES};
    use super::*;
    use crate::verbs::RemoteOffset;
    use core::pin::pin;
    use core::task::{Context, Waker};

    #[test]
    fn a_broken_connection_to_a_dead_server_is_given_up() {
        let view = SmallView::new(Protocol::Pandora);
        let worker = Worker::new(view.clone(), 1, view.log_area(), 0);
        assert!(worker.connection(TABLES).is_ok() && worker.connection(LOGS).is_ok());
        view.set_link(TABLES, Link::Dead);
        view.set_link(LOGS, Link::Breaks);
        let mut fanout = Fanout::default();
        for server in [TABLES, LOGS] {
            fanout.to(server).1.write(RemoteOffset::new(0), &[7]);
        }
        let posted =
            pin!(fanout.post_to_live(&worker)).poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(posted, Poll::Ready(Ok(())));
        let is_valid = [0, 1].map(|index| fanout.valid(index).is_some());
        assert_eq!(is_valid, [false, true]);
    }
}
