//! A worker: the connections, tables and addresses that the coordinators of a thread share.

use super::addresses::AddressCache;
use super::connections::{Connections, SERVERS};
use super::coordinator::{Coordinator, is_over};
use super::view::{Member, NoSlot, View};
use super::{Counts, LogArea, Policy, Protocol, TransactionError};
use crate::tables::{ObjectId, Place, TableLayout};
use crate::verbs::{ServerId, VerbError};
use core::cell::{Cell, RefCell};
use core::future::poll_fn;
use core::marker::PhantomData;
use core::task::Poll;
use core::time::Duration;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Instant;

/// A table with 8-byte keys and values of type `T`.
#[derive(Debug)]
pub struct Table<T> {
    number: u8,
    values: PhantomData<fn() -> T>,
}

impl<T> Clone for Table<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Table<T> {}

impl<T: bytemuck::Pod> Table<T> {
    /// The number of words of a value.
    pub const WORDS: usize = size_of::<T>().div_ceil(8);

    /// Returns a handle to the table with this number, whose values have the size of `T`. Accesses
    /// panic if there is no such table, or its values have another size.
    pub const fn new(number: u8) -> Self {
        Self {
            number,
            values: PhantomData,
        }
    }

    /// Returns the number of the table.
    pub const fn number(self) -> u8 {
        self.number
    }
}

/// The connections, tables and addresses that the coordinators of one thread share.
#[derive(Debug)]
pub struct Worker<V: View> {
    pub(super) view: V,
    pub(super) process: u16,
    protocol: Protocol,
    log: RefCell<Rc<LogArea>>,
    /// The number of log servers that the area should have.
    log_servers: Cell<usize>,
    epoch: Cell<u64>,
    /// The memory servers that are lost in the epoch, 1 bit each.
    lost: Cell<Bits>,
    /// The number of steps of restorations in the epoch.
    steps: Cell<u8>,
    /// Whether the epoch is settled.
    is_settled: Cell<bool>,
    /// The number of recoveries for which this worker need not wait.
    recoveries: Cell<u64>,
    pub(super) connections: Connections<V::Connection>,
    /// The layouts of tables that were read in the epoch.
    layouts: Box<[RefCell<Option<Rc<TableLayout>>>]>,
    /// Whether one of them was read after the end of the epoch.
    has_late_layout: Cell<bool>,
    addresses: RefCell<AddressCache>,
    /// The failed incarnation of each process id of which this worker knows one.
    failed: RefCell<HashMap<u16, u64>>,
    /// The number of failures that this worker knows.
    failures: Cell<u64>,
    /// The log slots whose entries must remain, because their transactions are not resolved.
    unresolved: RefCell<Vec<u16>>,
    counts: Cell<Counts>,
    /// The number of latches stolen from each failed compute server.
    thefts: RefCell<HashMap<u16, u64>>,
    /// The counts that the store's totals contain.
    published: Cell<Counts>,
    /// The number of events since then.
    unpublished: Cell<u32>,
    #[cfg(feature = "measurements")]
    steals_latches: Cell<bool>,
    #[cfg(feature = "proofs")]
    policy: Cell<Policy>,
}

/// The knowledge of a worker that a compute server has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Knowledge {
    /// The server has not failed, or its logs are not recovered yet.
    None,
    /// The worker has learned of it by this call.
    New,
    /// The worker knew before.
    Before,
}

/// The time after which a compute server is fenced if the same commit still delays an epoch.
const PATIENCE: Duration = Duration::from_secs(1);

/// The longest time between two polls that counts as waiting. A longer one may be a pause of the
/// machine, in which the other server could not continue either.
const LONGEST_POLL: Duration = Duration::from_millis(100);

/// The number of tables that a worker can use.
const TABLES: usize = 256;

impl<V: View> Worker<V> {
    /// Returns a worker of the compute server with process id `process` and the log slots `log`,
    /// which caches at most `addresses` addresses of objects.
    pub fn new(view: V, process: u16, log: LogArea, addresses: usize) -> Rc<Self> {
        let epoch = view.epoch();
        let (lost, steps) = (Bits::of(view.lost(epoch)), view.steps(epoch));
        Rc::new(Self {
            view,
            process,
            #[cfg(feature = "measurements")]
            steals_latches: Cell::new(log.protocol.steals_latches()),
            protocol: log.protocol,
            recoveries: Cell::new(0),
            log_servers: Cell::new(log.servers.len()),
            log: RefCell::new(Rc::new(log)),
            epoch: Cell::new(epoch),
            lost: Cell::new(lost),
            steps: Cell::new(steps),
            is_settled: Cell::new(false),
            connections: Connections::default(),
            layouts: (0..TABLES).map(|_| RefCell::default()).collect(),
            has_late_layout: Cell::new(false),
            addresses: RefCell::new(AddressCache::new(addresses)),
            failed: RefCell::default(),
            failures: Cell::new(0),
            unresolved: RefCell::default(),
            thefts: RefCell::default(),
            counts: Cell::default(),
            published: Cell::default(),
            unpublished: Cell::new(0),
            #[cfg(feature = "proofs")]
            policy: Cell::new(Policy::SOUND),
        })
    }

    /// Makes the worker unsound, for proofs.
    #[cfg(feature = "proofs")]
    pub fn set_policy(&self, policy: Policy) {
        self.policy.set(policy);
    }

    /// Returns the choices of the protocol.
    #[inline]
    pub(super) fn policy(&self) -> Policy {
        #[cfg(feature = "proofs")]
        return self.policy.get();
        #[cfg(not(feature = "proofs"))]
        Policy::SOUND
    }

    /// Returns the protocol.
    #[inline]
    pub(super) fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Sets whether the worker treats the latches of failed compute servers as stray and steals
    /// them. Otherwise they block the worker as the latches of live servers do. By default, the
    /// protocol decides.
    #[cfg(feature = "measurements")]
    pub fn set_steals_latches(&self, steals: bool) {
        self.steals_latches.set(steals);
    }

    /// Sets the number of addresses of objects that the worker caches from now on, at least one.
    /// The cache is empty then.
    #[cfg(feature = "measurements")]
    pub fn set_cached_addresses(&self, addresses: usize) {
        self.addresses.replace(AddressCache::new(addresses));
    }

    #[inline]
    pub(super) fn steals_latches(&self) -> bool {
        #[cfg(feature = "measurements")]
        return self.steals_latches.get();
        #[cfg(not(feature = "measurements"))]
        self.protocol.steals_latches()
    }

    /// Returns the numbers of events so far.
    pub fn counts(&self) -> Counts {
        self.counts.get()
    }

    /// Returns the process ids of the failed compute servers whose latches this worker has stolen,
    /// with the numbers of latches. A recycled id counts for all its servers.
    pub fn thefts(&self) -> Vec<(u16, u64)> {
        let thefts = self.thefts.borrow();
        thefts.iter().map(|(id, latches)| (*id, *latches)).collect()
    }

    /// Counts a latch that was stolen from `process`.
    pub(super) fn count_theft(&self, process: u16) {
        *self.thefts.borrow_mut().entry(process).or_default() += 1;
        self.count(|it| it.stolen += 1);
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut Counts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
        self.unpublished.set(self.unpublished.get() + 1);
    }

    /// Returns the layout of a table.
    ///
    /// # Panics
    /// If the table does not exist.
    pub(super) fn layout(&self, table: u8) -> Rc<TableLayout> {
        let layout = self.layout_if_any(table);
        layout.unwrap_or_else(|| panic!("there is no table {table}"))
    }

    /// Returns the layout of a table, if it exists.
    pub(super) fn layout_if_any(&self, table: u8) -> Option<Rc<TableLayout>> {
        let mut cached = self.layouts[usize::from(table)].borrow_mut();
        if cached.is_none() {
            let layout = self.view.layout(table)?;
            if self.view.epoch() != self.epoch() {
                self.has_late_layout.set(true);
            }
            *cached = Some(Rc::new(layout));
        }
        cached.clone()
    }

    /// Returns whether a layout may be that of a later epoch: a replica that was lost after the end
    /// of the worker's epoch may be replaced in it, so that another one seems to be the primary.
    pub(super) fn has_late_layout(&self) -> bool {
        self.has_late_layout.get()
    }

    /// Returns what this worker knows of a failure of `process`.
    pub(super) fn knows_failed(&self, process: u16) -> Knowledge {
        let known = self.failed.borrow().get(&process).copied();
        if known.is_some() && !self.policy().asks_for_each_latch {
            return Knowledge::Before;
        }
        // The next owner of an id is another incarnation, whose recovery is another one.
        match self.view.failed(process) {
            None => Knowledge::None,
            failed if failed == known => Knowledge::Before,
            Some(incarnation) => {
                self.failed.borrow_mut().insert(process, incarnation);
                self.failures.set(self.failures.get() + 1);
                Knowledge::New
            }
        }
    }

    /// Returns the number of failures that this worker knows. If it has risen since a READ was
    /// posted, what the READ returned may be older than a recovery.
    pub(super) fn known_failures(&self) -> u64 {
        self.failures.get()
    }

    /// Keeps the log slot of a transaction that was logged and whose end failed: recovery needs its
    /// entry.
    pub(super) fn keep_slot(&self, slot: u16) {
        self.unresolved.borrow_mut().push(slot);
    }

    pub(super) fn keeps_slot(&self, slot: u16) -> bool {
        self.unresolved.borrow().contains(&slot)
    }

    pub(super) fn log(&self) -> Rc<LogArea> {
        Rc::clone(&self.log.borrow())
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch.get()
    }

    fn is_lost(&self, server: ServerId) -> bool {
        usize::from(server.0) >= SERVERS || self.lost.get().has(server)
    }

    /// Returns the replicas of an object to which writes go: those that are not lost.
    pub(super) fn replicas(&self, object: ObjectId) -> impl Iterator<Item = Place> + use<'_, V> {
        self.replicas_after(object, self.steps.get())
    }

    /// Returns the replicas of an object to which the writes of an earlier epoch with this number
    /// of steps went, except those that are lost now.
    pub(super) fn replicas_after(
        &self,
        object: ObjectId,
        steps: u8,
    ) -> impl Iterator<Item = Place> + use<'_, V> {
        let layout = self.layout(object.table());
        let places = 0..layout.replicas(object).len();
        let places = places.map(move |it| layout.replicas(object)[it]);
        places.filter(move |place| place.is_used(steps) && !self.is_lost(place.server))
    }

    pub(super) fn is_complete(&self, place: &Place) -> bool {
        place.is_complete(self.steps.get()) || !self.policy().waits_for_copies
    }

    /// Returns the replicas of an object that are being filled.
    pub(super) fn joining(&self, object: ObjectId) -> impl Iterator<Item = Place> + use<'_, V> {
        self.replicas(object).filter(|it| !self.is_complete(it))
    }

    /// Returns the primary of an object, unless all complete replicas are lost.
    pub(super) fn primary(&self, object: ObjectId) -> Option<Place> {
        self.replicas(object).find(|it| self.is_complete(it))
    }

    pub(super) fn cached_slot(&self, table: u8, key: u64) -> Option<u32> {
        self.addresses.borrow().get(table, key)
    }

    pub(super) fn cache_slot(&self, table: u8, key: u64, slot: u32) {
        self.addresses.borrow_mut().put(table, key, slot);
    }
}

/// The number of events after which a worker adds its counts to the store's totals. The totals lack
/// at most this number for each worker, and what a worker that dies has not added.
const MAX_UNPUBLISHED: u32 = 256;

impl<V: Member> Worker<V> {
    /// Adds the counts to the store's totals, if there are many new ones.
    pub(super) fn publish_many(&self) {
        if self.unpublished.get() >= MAX_UNPUBLISHED {
            self.publish();
        }
    }

    /// Adds the counts to the store's totals.
    pub(super) fn publish(&self) {
        let counts = self.counts.get();
        self.view.publish(counts.since(self.published.get()));
        self.published.set(counts);
        self.unpublished.set(0);
    }

    /// Returns a coordinator, which uses one log slot of the compute server.
    ///
    /// # Errors
    /// If all log slots are in use.
    pub fn coordinator(self: &Rc<Self>) -> Result<Coordinator<V>, NoSlot> {
        let coordinators = self.log().coordinators;
        let slot = self.view.take_slot().ok_or(NoSlot { coordinators })?;
        Ok(Coordinator::new(Rc::clone(self), slot))
    }

    /// Waits until the current epoch is settled, and works in it from then on.
    ///
    /// # Errors
    /// A log server cannot be reached, a transaction of this compute server is not resolved and may
    /// delay the epoch, the deadline `end` has passed, or the store is being stopped.
    pub(super) async fn renew(&self, end: Option<Instant>) -> Result<(), TransactionError> {
        if self.has_releases() {
            let settled = self.settle_releases(false).await;
            settled.map_err(|error| TransactionError::Aborted(error.into()))?;
        }
        if self.view.is_stopping() {
            return Err(TransactionError::Stopping);
        }
        if self.is_settled.get() && !self.view.is_over(self.epoch()) {
            return Ok(());
        }
        let (mut waited, mut polls, mut seen) = (Duration::ZERO, 0u32, Vec::new());
        let mut polled = Instant::now();
        let epoch = poll_fn(|context| {
            let epoch = self.view.epoch();
            if self.view.is_settled(epoch) || !self.policy().waits_for_commits {
                return Poll::Ready(Ok(epoch));
            }
            polls += 1;
            waited += polled.elapsed().min(LONGEST_POLL);
            polled = Instant::now();
            if polls.is_multiple_of(16) {
                // The commit may wait for a processor.
                std::thread::yield_now();
                if is_over(end) {
                    return Poll::Ready(Err(TransactionError::DeadlineExceeded));
                }
            }
            if polls == 1 {
                seen = self.view.stragglers(epoch);
            } else if waited > PATIENCE {
                let is_unresolved = !self.unresolved.borrow().is_empty();
                if is_unresolved || self.view.delays(epoch) {
                    return Poll::Ready(Err(TransactionError::Unresolved));
                }
                let stragglers = self.view.stragglers(epoch);
                for transaction in stragglers.iter().filter(|it| seen.contains(*it)) {
                    self.view.fence(*transaction);
                }
                (waited, seen) = (Duration::ZERO, stragglers);
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await?;
        // Another coordinator of this worker has begun the epoch in the meantime, and its attempt
        // uses the layouts.
        if self.is_settled.get() && self.epoch() == epoch {
            return Ok(());
        }
        // If a log server cannot be reached, the next call tries again.
        self.is_settled.set(false);
        self.lost.set(Bits::of(self.view.lost(epoch)));
        self.steps.set(self.view.steps(epoch));
        self.epoch.set(epoch);
        // Replicas may have joined.
        self.layouts.iter().for_each(|it| drop(it.take()));
        self.has_late_layout.set(false);
        let log = self.live_log(epoch);
        let log = log.map_err(|error| TransactionError::Aborted(error.into()))?;
        self.log.replace(Rc::new(log));
        self.is_settled.set(true);
        Ok(())
    }

    /// Waits while compute servers are recovered, if the protocol stops the store for that.
    ///
    /// # Errors
    /// The deadline `end` has passed.
    pub(super) async fn wait_for_recoveries(
        &self,
        end: Option<Instant>,
    ) -> Result<(), TransactionError> {
        let is_stopped = || self.view.recoveries() != self.recoveries.get();
        if !self.protocol.stops_for_recovery() || !is_stopped() {
            return Ok(());
        }
        poll_fn(|context| {
            // In this order: a recovery that begins afterwards is another one.
            let begun = self.view.recoveries();
            if !self.view.is_recovering() {
                self.recoveries.set(begun);
                return Poll::Ready(Ok(()));
            }
            std::thread::yield_now();
            if is_over(end) {
                return Poll::Ready(Err(TransactionError::DeadlineExceeded));
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await
    }

    fn live_log(&self, epoch: u64) -> Result<LogArea, VerbError> {
        let mut log = self.view.log(epoch)?;
        self.log_servers.set(log.servers.len());
        log.servers.retain(|server| !self.is_lost(*server));
        Ok(log)
    }

    /// Looks for more log servers, if there are fewer than replicas: a memory server may have
    /// joined, and tables may have been placed on it.
    pub(super) fn complete_log(&self, epoch: u64) -> Result<(), VerbError> {
        if self.log().servers.len() < self.log_servers.get() {
            self.log.replace(Rc::new(self.live_log(epoch)?));
        }
        Ok(())
    }
}

/// A bit for each memory server.
#[derive(Clone, Copy, Debug, Default)]
struct Bits([u64; SERVERS / 64]);

impl Bits {
    fn of(servers: Vec<ServerId>) -> Self {
        let mut bits = Self::default();
        for server in servers {
            if let Some(word) = bits.0.get_mut(usize::from(server.0) / 64) {
                *word |= 1 << (server.0 % 64);
            }
        }
        bits
    }

    fn has(&self, server: ServerId) -> bool {
        let word = self.0.get(usize::from(server.0) / 64);
        word.is_some_and(|word| word >> (server.0 % 64) & 1 != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::small_view::SmallView;
    use super::*;
    use crate::tables::TransactionId;
    use core::pin::pin;
    use core::task::{Context, Waker};

    #[test]
    fn an_epoch_that_a_sibling_has_begun_is_not_begun_again() {
        let view = SmallView::new(Protocol::Pandora);
        let worker = Worker::new(view.clone(), 1, view.log_area(), 0);
        let mut context = Context::from_waker(Waker::noop());
        view.0.is_settled.set(false);
        let (mut first, mut second) = (pin!(worker.renew(None)), pin!(worker.renew(None)));
        assert!(first.as_mut().poll(&mut context).is_pending());
        assert!(second.as_mut().poll(&mut context).is_pending());
        view.0.is_settled.set(true);
        let begun = first.poll(&mut context);
        assert!(matches!(begun, Poll::Ready(Ok(()))));
        // The attempt of the first sibling uses a layout.
        let layout = worker.layout(0);
        let begun = second.poll(&mut context);
        assert!(matches!(begun, Poll::Ready(Ok(()))));
        assert!(Rc::ptr_eq(&layout, &worker.layout(0)));
    }

    #[test]
    fn a_pause_of_the_machine_is_no_reason_for_a_fence() {
        let view = SmallView::new(Protocol::Pandora);
        let worker = Worker::new(view.clone(), 1, view.log_area(), 0);
        let mut context = Context::from_waker(Waker::noop());
        view.0.is_settled.set(false);
        view.0.straggler.set(Some(TransactionId::new(2, 0, 1)));
        let mut renewing = pin!(worker.renew(None));
        assert!(renewing.as_mut().poll(&mut context).is_pending());
        std::thread::sleep(PATIENCE + LONGEST_POLL);
        assert!(renewing.as_mut().poll(&mut context).is_pending());
        assert_eq!(view.0.fences.get(), 0);
        let begin = Instant::now();
        while view.0.fences.get() == 0 {
            assert!(begin.elapsed() < Duration::from_secs(60), "no fence");
            std::thread::sleep(LONGEST_POLL / 10);
            assert!(renewing.as_mut().poll(&mut context).is_pending());
        }
    }
}
