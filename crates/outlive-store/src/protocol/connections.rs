//! The connections of a worker, and how it goes on after one of them has broken.
//!
//! The verbs that were outstanding on a broken connection have taken effect or not. None of them
//! takes effect after a new connection has opened (see [`verbs`](crate::verbs)). So each verb is
//! followed by another one on the new connection, with which the outcome does not matter any more:
//!
//! | outstanding verb | continuation |
//! | --- | --- |
//! | READ of an object, or of logs | it is posted again |
//! | READs of the validation, WRITE of a log | the attempt ends, and removes its log |
//! | CAS that latches | the attempt ends, and releases the object by a CAS from its own id |
//! | CAS that releases, from the id of the holder | it is posted again |
//! | WRITE of values, versions, decisions, or of zero to a log | it is posted again |
//! | WRITE that releases a latch | a CAS from the id of the holder, before all other verbs |
//!
//! A CAS from a transaction's id has no effect if the transaction does not hold the latch, and no
//! two CAS write the same id. WRITEs are posted again only while the latches of the transaction are
//! held: by its live coordinator, or, in a recovery, because its log is not removed yet.
//!
//! Latches are released without waiting, so a release is lost after its transaction has ended. A
//! worker notices that at the beginning of the next attempt of any of its coordinators, or when it
//! [finishes](Worker::finish). A worker that is dropped before leaves its latches to the recovery
//! of its compute server.

use super::view::View;
use super::worker::Worker;
use crate::tables::TransactionId;
use crate::verbs::{Batch, Completed, Connection, ServerId, VerbError};
use core::cell::{Ref, RefCell, RefMut};
use core::future::poll_fn;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::collections::VecDeque;

/// The number of memory servers that a worker can use.
pub(super) const SERVERS: usize = 256;

/// The connections of a worker.
#[derive(Debug)]
pub(super) struct Connections<C: Connection> {
    cells: Box<[RefCell<Option<C>>]>,
    /// The releases of latches that are under way or lost, in posting order.
    releases: RefCell<VecDeque<Release<C>>>,
}

#[derive(Debug)]
struct Release<C: Connection> {
    server: ServerId,
    holder: TransactionId,
    state: ReleaseState<C>,
}

#[derive(Debug)]
enum ReleaseState<C: Connection> {
    Posted(C::Completion),
    /// The connection broke. The batch names the latches.
    Lost(Batch),
    /// The latches are free, or lost with their server, or left to the recovery of this server.
    Ended,
}

impl<C: Connection> Default for Connections<C> {
    fn default() -> Self {
        Self {
            cells: (0..SERVERS).map(|_| RefCell::default()).collect(),
            releases: RefCell::default(),
        }
    }
}

impl<C: Connection> Release<C> {
    /// Takes the completion, if it has arrived.
    fn poll(&mut self, context: &mut Context<'_>) {
        if let ReleaseState::Posted(pending) = &mut self.state
            && let Poll::Ready(Completed { batch, result }) = Pin::new(pending).poll(context)
        {
            self.state = match result {
                Err(VerbError::Broken { .. }) => ReleaseState::Lost(batch),
                _ => ReleaseState::Ended,
            };
        }
    }
}

impl<V: View> Worker<V> {
    /// Returns the connection to a server. It may be broken.
    pub(super) fn connection(&self, server: ServerId) -> Result<Ref<'_, V::Connection>, VerbError> {
        let cell = self.connections.cells.get(usize::from(server.0));
        let cell = cell.ok_or(VerbError::ServerDied { server })?;
        if cell.borrow().is_none() {
            let connection = self.view.connect(server)?;
            cell.replace(Some(connection));
        }
        let connection = Ref::filter_map(cell.borrow(), Option::as_ref);
        Ok(connection.unwrap_or_else(|_| unreachable!("a cell is not emptied")))
    }

    /// Connects again to a server, if the connection has broken.
    ///
    /// # Errors
    /// The server died, or it has revoked the rights of this compute server.
    pub(super) async fn reconnect(&self, server: ServerId) -> Result<(), VerbError> {
        let opened = poll_fn(|context| {
            let new = match self.connection(server) {
                Ok(connection) if connection.is_broken() => self.view.reconnect(&connection),
                // Another coordinator of this worker has connected again.
                Ok(_) => return Poll::Ready(Ok(None)),
                Err(error) => return Poll::Ready(Err(error)),
            };
            if new.is_pending() {
                context.waker().wake_by_ref();
            }
            new.map_ok(Some)
        });
        if let Some(new) = opened.await? {
            self.connections.cells[usize::from(server.0)].replace(Some(new));
            self.release_again(server);
        }
        Ok(())
    }

    /// Posts a batch and waits for its completion. If the connection breaks, the batch is posted
    /// again, so its verbs must be idempotent.
    pub(super) async fn repeat(
        &self,
        server: ServerId,
        mut batch: Batch,
    ) -> Result<Batch, VerbError> {
        loop {
            let completion = self.connection(server)?.post(batch);
            let completed = completion.await;
            match completed.result {
                Ok(()) => return Ok(completed.batch),
                Err(VerbError::Broken { .. }) => self.reconnect(server).await?,
                Err(error) => return Err(error),
            }
            batch = completed.batch;
        }
    }

    /// Takes over the WRITEs with which `holder` has released latches.
    pub(super) fn follow_release(
        &self,
        server: ServerId,
        holder: TransactionId,
        posted: <V::Connection as Connection>::Completion,
    ) {
        self.connections.releases.borrow_mut().push_back(Release {
            server,
            holder,
            state: ReleaseState::Posted(posted),
        });
    }

    /// Releases the latches again whose releases by a broken connection to `server` were lost.
    fn release_again(&self, server: ServerId) {
        let connection = self.connection(server);
        let mut context = Context::from_waker(Waker::noop());
        let mut releases = self.connections.releases.borrow_mut();
        for release in releases.iter_mut().filter(|it| it.server == server) {
            release.poll(&mut context);
            let ReleaseState::Lost(lost) = &release.state else {
                continue;
            };
            let connection = match &connection {
                Ok(connection) => connection,
                Err(error) => {
                    if !matches!(error, VerbError::ServerDied { .. }) {
                        self.view.leave_latches();
                    }
                    release.state = ReleaseState::Ended;
                    continue;
                }
            };
            let mut again = Batch::new();
            for verb in lost.verbs() {
                // Later verbs do not pass it: the next transaction overwrites the log of the latch.
                again.fence();
                match self.policy().releases_again_by_swaps {
                    true => {
                        again.compare_swap(verb.at, release.holder.to_word(), 0);
                    }
                    false => again.write(verb.at, &[0]),
                }
            }
            release.state = ReleaseState::Posted(connection.post(again));
        }
    }

    /// Returns whether releases of latches may be lost.
    pub(super) fn has_releases(&self) -> bool {
        V::Connection::CAN_BREAK && !self.connections.releases.borrow().is_empty()
    }

    /// Returns the releases of latches that are not complete, and forgets the others. All of them
    /// are polled, because one under way to a slow server may precede a lost one to another server.
    fn remaining_releases(
        &self,
        context: &mut Context<'_>,
    ) -> RefMut<'_, VecDeque<Release<V::Connection>>> {
        let mut releases = self.connections.releases.borrow_mut();
        releases.retain_mut(|it| {
            it.poll(context);
            !matches!(it.state, ReleaseState::Ended)
        });
        releases
    }

    /// Forgets the releases of latches that are complete, and repeats those that are lost. With
    /// `waits`, waits until all are complete.
    pub(super) async fn settle_releases(&self, waits: bool) -> Result<(), VerbError> {
        loop {
            let lost = poll_fn(|context| {
                let releases = self.remaining_releases(context);
                let is_lost = |it: &&Release<_>| matches!(it.state, ReleaseState::Lost(_));
                match releases.iter().find(is_lost) {
                    Some(lost) => Poll::Ready(Some(lost.server)),
                    None if waits && !releases.is_empty() => {
                        context.waker().wake_by_ref();
                        Poll::Pending
                    }
                    None => Poll::Ready(None),
                }
            });
            let Some(server) = lost.await else {
                return Ok(());
            };
            match self.reconnect(server).await {
                Ok(()) => self.release_again(server),
                Err(error) => {
                    // The latches are lost with the server, or left to the recovery of this one.
                    self.end_releases(server);
                    if !matches!(error, VerbError::ServerDied { .. }) {
                        self.view.leave_latches();
                        return Err(error);
                    }
                }
            }
        }
    }

    fn end_releases(&self, server: ServerId) {
        let mut releases = self.connections.releases.borrow_mut();
        releases.retain(|it| it.server != server);
    }

    /// Waits until the latches of all committed transactions of this worker are released.
    ///
    /// They are released after the commit is acknowledged. If a connection breaks then, or executes
    /// verbs only while it is used, as the emulated one, another transaction of the worker or this
    /// call completes the release. So a program calls it before a worker with such connections is
    /// idle, or dropped. On mapped memory the call returns immediately.
    ///
    /// If a worker is dropped while releases are not complete, they may be lost. Then the latches
    /// are left: they are held until the compute server has ended and is recovered.
    ///
    /// # Errors
    /// A server has revoked the rights of this compute server, whose recovery releases the latches.
    pub async fn finish(&self) -> Result<(), VerbError> {
        self.settle_releases(true).await?;
        if V::Connection::CAN_BREAK {
            return Ok(());
        }
        // Batches complete in order, so all earlier verbs have taken effect after an empty one. A
        // server that has died has no latches.
        for cell in &self.connections.cells {
            let posted = cell.borrow().as_ref().map(|it| it.post(Batch::new()));
            if let Some(posted) = posted {
                drop(posted.await);
            }
        }
        Ok(())
    }
}

/// Leaves latches whose releases may be lost to the recovery of the compute server.
impl<V: View> Drop for Worker<V> {
    fn drop(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        // A drop does not wait, because the completions may need the calling thread.
        let remaining = self.remaining_releases(&mut context).len();
        if remaining > 0 {
            tracing::warn!(
                remaining,
                "a worker was dropped before its latches were released; they are held until this \
                 compute server ends"
            );
            self.view.leave_latches();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::small_view::{LOGS, Link, SmallView, TABLES};
    use super::super::{Protocol, Table, check};
    use super::*;
    use crate::verbs::{RemoteOffset, block_on};
    use core::pin::pin;
    use std::rc::Rc;

    const LATCH: RemoteOffset = RemoteOffset::new(2048);

    fn holder() -> TransactionId {
        TransactionId::new(1, 0, 1)
    }

    /// Latches a word of each of these servers, and posts its release over the link in this state.
    fn release(links: &[(ServerId, Link)]) -> (SmallView, Rc<Worker<SmallView>>) {
        let view = SmallView::new(Protocol::Pandora);
        let worker = Worker::new(view.clone(), 1, view.log_area(), 0);
        for (server, link) in links {
            let mut batch = Batch::new();
            batch.write(LATCH, &[holder().to_word()]);
            block_on(worker.repeat(*server, batch)).unwrap();
            view.set_link(*server, *link);
            let mut batch = Batch::new();
            batch.write(LATCH, &[0]);
            let posted = worker.connection(*server).unwrap().post(batch);
            worker.follow_release(*server, holder(), posted);
        }
        (view, worker)
    }

    fn latch(view: &SmallView, server: ServerId) -> u64 {
        let mut batch = Batch::new();
        let slot = batch.read(LATCH, 1);
        let posted = view.connect(server).unwrap().post(batch);
        block_on(posted).finished().unwrap().value(slot)
    }

    #[test]
    fn a_lost_release_is_repeated_although_an_earlier_one_is_under_way() {
        let (view, worker) = release(&[(LOGS, Link::Late), (TABLES, Link::Breaks)]);
        assert_eq!(latch(&view, TABLES), holder().to_word());
        let mut context = Context::from_waker(Waker::noop());
        let settled = pin!(worker.settle_releases(false)).poll(&mut context);
        assert_eq!(settled, Poll::Ready(Ok(())));
        assert_eq!(latch(&view, TABLES), 0);
        assert!(worker.has_releases());
        view.set_link(LOGS, Link::Open);
        block_on(worker.finish()).unwrap();
        assert!(!worker.has_releases());
    }

    #[test]
    fn a_worker_that_is_dropped_leaves_latches_unless_their_releases_are_complete() {
        for (link, leaves) in [
            (Link::Open, false),
            (Link::Late, true),
            (Link::Breaks, true),
        ] {
            let (view, worker) = release(&[(TABLES, link)]);
            drop(worker);
            assert_eq!(view.0.has_latches.get(), leaves, "{link:?}");
        }
    }

    /// The connection breaks before the release takes effect, so nothing else would release the
    /// latch while the server lives.
    #[test]
    fn a_transaction_that_is_dropped_while_it_releases_its_latches_releases_them() {
        let view = SmallView::new(Protocol::Pandora);
        let worker = Worker::new(view.clone(), 1, view.log_area(), 0);
        let mut coordinator = worker.coordinator().unwrap();
        let table = Table::<u64>::new(0);
        block_on(coordinator.transaction(async |tx| tx.insert(table, 1, &1).await)).unwrap();
        let aborting = coordinator.transaction(async |tx| {
            tx.update(table, 1, |it| it + 1).await?;
            view.set_link(TABLES, Link::Silent);
            Err::<(), _>(tx.abort())
        });
        let mut aborting = Box::pin(aborting);
        let mut context = Context::from_waker(Waker::noop());
        assert!(aborting.as_mut().poll(&mut context).is_pending());
        view.set_link(TABLES, Link::Open);
        drop(aborting);
        let checked = block_on(check(&worker, core::iter::once(0), |_| true)).unwrap();
        assert_eq!((checked.held, checked.keys), (0, 1), "{checked:?}");
        assert!(!view.0.has_latches.get());
    }
}
