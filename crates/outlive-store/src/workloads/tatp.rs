//! TATP: the home location register of a mobile network.
//!
//! The four tables, the seven transactions and the mix of the benchmark's description (IBM, 2009),
//! with an index of subscriber numbers. 80% of the transactions only read. Some fail as the
//! description intends, because a random record does not exist: they end as aborts of the program,
//! and are counted apart.
//!
//! The sum of the benchmark's invariant is the number of call forwardings plus the number of
//! updates of subscribers and special facilities, which their rows count.

use super::{Books, Executed, Ledger, insert, total};
use crate::protocol::{Abort, Coordinator, Member, Table, Transaction, TransactionError};
use crate::servers::{ComputeServer, StoreError};
use bytemuck::{Pod, Zeroable};

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
struct Subscriber {
    number: u64,
    updates: u64,
    msc_location: u32,
    vlr_location: u32,
    /// 10 bits.
    bits: u16,
    /// 10 hexadecimal digits.
    hex: [u8; 5],
    bytes: [u8; 10],
    unused: [u8; 7],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
struct AccessInfo {
    data: [u8; 2],
    texts: [u8; 8],
    unused: [u8; 6],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
struct SpecialFacility {
    updates: u64,
    is_active: u8,
    error_control: u8,
    data_a: u8,
    data_b: [u8; 5],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
struct CallForwarding {
    end_time: u8,
    number: [u8; 15],
}

/// The TATP benchmark.
#[derive(Clone, Copy, Debug)]
pub struct Tatp {
    subscriber: Table<Subscriber>,
    /// The subscriber of each number.
    by_number: Table<u64>,
    access_info: Table<AccessInfo>,
    special_facility: Table<SpecialFacility>,
    call_forwarding: Table<CallForwarding>,
    pub(super) ledger: Ledger,
    subscribers: u64,
}

/// The types of access information and of special facilities.
const TYPES: u64 = 4;
/// The hours at which call forwardings start: 0, 8 and 16.
const STARTS: u64 = 3;

/// The kinds of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Reads a subscriber. 35%.
    GetSubscriberData,
    /// Reads the call forwardings of a special facility that are active now. 10%.
    GetNewDestination,
    /// Reads access information. 35%.
    GetAccessData,
    /// Updates a subscriber and a special facility. 2%.
    UpdateSubscriberData,
    /// Updates the location of a subscriber, which its number identifies. 14%.
    UpdateLocation,
    /// Inserts a call forwarding. 2%.
    InsertCallForwarding,
    /// Deletes a call forwarding. 2%.
    DeleteCallForwarding,
}

impl Kind {
    fn choose(random: &mut fastrand::Rng) -> Self {
        match random.u8(..100) {
            0..35 => Self::GetSubscriberData,
            35..45 => Self::GetNewDestination,
            45..80 => Self::GetAccessData,
            80..82 => Self::UpdateSubscriberData,
            82..96 => Self::UpdateLocation,
            96..98 => Self::InsertCallForwarding,
            _ => Self::DeleteCallForwarding,
        }
    }
}

/// The random parameters of a transaction.
#[derive(Clone, Copy, Debug)]
struct Parameters {
    subscriber: u64,
    /// 0 to 3.
    kind: u64,
    /// 0 to 2: the start divided by 8 hours.
    start: u64,
    end_time: u8,
    location: u32,
    data: u8,
    bit: bool,
}

/// Returns the key of the record of a subscriber with a type.
fn typed(subscriber: u64, kind: u64) -> u64 {
    subscriber * TYPES + kind
}

/// Returns the key of a call forwarding.
fn forwarding(subscriber: u64, kind: u64, start: u64) -> u64 {
    typed(subscriber, kind) * STARTS + start
}

/// Returns the number of a subscriber: 15 digits.
fn number_of(subscriber: u64) -> u64 {
    100_000_000_000_000 + subscriber
}

fn forwarding_to(random: &mut fastrand::Rng, start: u64) -> CallForwarding {
    let mut number = [0; 15];
    number.fill_with(|| random.u8(b'0'..=b'9'));
    CallForwarding {
        end_time: start as u8 * 8 + random.u8(1..=8),
        number,
    }
}

/// The rows of a subscriber at the beginning, with their keys.
struct Rows {
    subscriber: Subscriber,
    access_info: Vec<(u64, AccessInfo)>,
    special_facility: Vec<(u64, SpecialFacility)>,
    call_forwarding: Vec<(u64, CallForwarding)>,
}

impl Rows {
    fn of(subscriber: u64) -> Self {
        let random = &mut fastrand::Rng::with_seed(subscriber);
        let mut rows = Self {
            subscriber: Subscriber {
                number: number_of(subscriber),
                updates: 0,
                msc_location: random.u32(..),
                vlr_location: random.u32(..),
                bits: random.u16(..1 << 10),
                hex: [0; 5].map(|_: u8| random.u8(..)),
                bytes: [0; 10].map(|_: u8| random.u8(..)),
                unused: [0; 7],
            },
            access_info: Vec::new(),
            special_facility: Vec::new(),
            call_forwarding: Vec::new(),
        };
        let count = random.usize(1..=4);
        for kind in random.choose_multiple(0..TYPES, count) {
            let row = AccessInfo {
                data: [0; 2].map(|_: u8| random.u8(..)),
                texts: [0; 8].map(|_: u8| random.u8(b'A'..=b'Z')),
                unused: [0; 6],
            };
            rows.access_info.push((typed(subscriber, kind), row));
        }
        let count = random.usize(1..=4);
        for kind in random.choose_multiple(0..TYPES, count) {
            let row = SpecialFacility {
                updates: 0,
                is_active: (random.u8(..100) < 85).into(),
                error_control: random.u8(..),
                data_a: random.u8(..),
                data_b: [0; 5].map(|_: u8| random.u8(b'A'..=b'Z')),
            };
            rows.special_facility.push((typed(subscriber, kind), row));
            let count = random.usize(0..=3);
            for start in random.choose_multiple(0..STARTS, count) {
                let row = forwarding_to(random, start);
                let key = forwarding(subscriber, kind, start);
                rows.call_forwarding.push((key, row));
            }
        }
        rows
    }
}

impl Tatp {
    /// The number of subscribers in FORD's configuration.
    pub const SUBSCRIBERS: u64 = 100_000;

    /// Returns the number of keys and the size of a value, in words, of each table for
    /// `subscribers`.
    pub fn tables(subscribers: u64) -> [(u64, u32); 5] {
        let words = |bytes: usize| bytes.div_ceil(8) as u32;
        [
            (subscribers, words(size_of::<Subscriber>())),
            (subscribers, 1),
            (3 * subscribers, words(size_of::<AccessInfo>())),
            (3 * subscribers, words(size_of::<SpecialFacility>())),
            (5 * subscribers, words(size_of::<CallForwarding>())),
        ]
    }

    /// Opens the tables, or creates them for `subscribers`.
    ///
    /// # Errors
    /// Returns the errors of [`ComputeServer::table`].
    pub fn open(
        compute: &ComputeServer,
        subscribers: u64,
        books: Books,
    ) -> Result<Self, StoreError> {
        let keys = Self::tables(subscribers).map(|(keys, _)| keys);
        Ok(Self {
            subscriber: compute.table("subscriber", keys[0])?,
            by_number: compute.table("subscriber_number", keys[1])?,
            access_info: compute.table("access_info", keys[2])?,
            special_facility: compute.table("special_facility", keys[3])?,
            call_forwarding: compute.table("call_forwarding", keys[4])?,
            ledger: Ledger::open(compute, books)?,
            subscribers,
        })
    }

    /// Inserts the subscribers and their records. The random choices are always the same.
    ///
    /// # Errors
    /// Returns the errors of transactions.
    pub fn load<V: Member>(
        &self,
        coordinator: &mut Coordinator<V>,
    ) -> Result<(), TransactionError> {
        let all = 0..self.subscribers;
        let rows = all.clone().map(|it| (it, Rows::of(it).subscriber));
        insert(coordinator, self.subscriber, rows)?;
        let rows = all.clone().map(|it| (number_of(it), it));
        insert(coordinator, self.by_number, rows)?;
        let rows = all.clone().flat_map(|it| Rows::of(it).access_info);
        insert(coordinator, self.access_info, rows)?;
        let rows = all.clone().flat_map(|it| Rows::of(it).special_facility);
        insert(coordinator, self.special_facility, rows)?;
        let rows = all.flat_map(|it| Rows::of(it).call_forwarding);
        insert(coordinator, self.call_forwarding, rows)
    }

    /// Returns a random subscriber: some are chosen more often.
    fn choose(&self, random: &mut fastrand::Rng) -> u64 {
        let spread = match self.subscribers {
            0..=1_000_000 => 65_535,
            1_000_001..=10_000_000 => 1_048_575,
            _ => 2_097_151,
        };
        (random.u64(..=spread) | random.u64(1..=self.subscribers)) % self.subscribers
    }

    /// Executes a random transaction.
    ///
    /// # Errors
    /// Returns the errors of transactions; [`Abort::User`] if the transaction fails as the
    /// benchmark intends.
    pub async fn execute<V: Member>(
        &self,
        coordinator: &mut Coordinator<V>,
        random: &mut fastrand::Rng,
    ) -> Result<Executed, TransactionError> {
        let kind = Kind::choose(random);
        let parameters = Parameters {
            subscriber: self.choose(random),
            kind: random.u64(..TYPES),
            start: random.u64(..STARTS),
            end_time: random.u8(1..=24),
            location: random.u32(..),
            data: random.u8(..),
            bit: random.bool(),
        };
        let row = forwarding_to(random, parameters.start);
        let committed = coordinator.transaction(async |tx| {
            let change = self.access(tx, kind, parameters, &row).await?;
            self.ledger.record(tx, change).await
        });
        Ok(committed.await?.value)
    }

    /// Executes the accesses of a transaction. Returns the change of the benchmark's sum.
    async fn access<V: Member>(
        &self,
        tx: &mut Transaction<V>,
        kind: Kind,
        parameters: Parameters,
        row: &CallForwarding,
    ) -> Result<i64, Abort> {
        let Parameters {
            subscriber,
            kind: record,
            start,
            ..
        } = parameters;
        match kind {
            Kind::GetSubscriberData => {
                let row = tx.read(self.subscriber, subscriber).await?;
                row.ok_or_else(|| tx.abort())?;
                Ok(0)
            }
            Kind::GetNewDestination => {
                let facility = tx
                    .read(self.special_facility, typed(subscriber, record))
                    .await?;
                { facility.filter(|it| it.is_active != 0) }.ok_or_else(|| tx.abort())?;
                let mut found = false;
                for start in 0..=start {
                    let key = forwarding(subscriber, record, start);
                    let row = tx.read(self.call_forwarding, key).await?;
                    found |= row.is_some_and(|row| row.end_time > parameters.end_time);
                }
                if found { Ok(0) } else { Err(tx.abort()) }
            }
            Kind::GetAccessData => {
                let key = typed(subscriber, record);
                let row = tx.read(self.access_info, key).await?;
                row.ok_or_else(|| tx.abort())?;
                Ok(0)
            }
            Kind::UpdateSubscriberData => {
                let change = |row: Subscriber| Subscriber {
                    bits: row.bits & !1 | u16::from(parameters.bit),
                    updates: row.updates + 1,
                    ..row
                };
                tx.update(self.subscriber, subscriber, change).await?;
                let change = |row: SpecialFacility| SpecialFacility {
                    data_a: parameters.data,
                    updates: row.updates + 1,
                    ..row
                };
                let key = typed(subscriber, record);
                let updated = tx.update(self.special_facility, key, change).await?;
                updated.ok_or_else(|| tx.abort())?;
                Ok(2)
            }
            Kind::UpdateLocation => {
                let subscriber = self.find(tx, subscriber).await?;
                let change = |row: Subscriber| Subscriber {
                    vlr_location: parameters.location,
                    updates: row.updates + 1,
                    ..row
                };
                tx.update(self.subscriber, subscriber, change).await?;
                Ok(1)
            }
            Kind::InsertCallForwarding => {
                let subscriber = self.find(tx, subscriber).await?;
                let mut has_facility = false;
                for kind in 0..TYPES {
                    let key = typed(subscriber, kind);
                    let facility = tx.read(self.special_facility, key).await?;
                    has_facility |= kind == record && facility.is_some();
                }
                let key = forwarding(subscriber, record, start);
                match has_facility && tx.insert(self.call_forwarding, key, row).await? {
                    true => Ok(1),
                    false => Err(tx.abort()),
                }
            }
            Kind::DeleteCallForwarding => {
                let subscriber = self.find(tx, subscriber).await?;
                let key = forwarding(subscriber, record, start);
                match tx.delete(self.call_forwarding, key).await? {
                    Some(_) => Ok(-1),
                    None => Err(tx.abort()),
                }
            }
        }
    }

    /// Returns the subscriber with the number of `subscriber`.
    async fn find<V: Member>(
        &self,
        tx: &mut Transaction<V>,
        subscriber: u64,
    ) -> Result<u64, Abort> {
        let found = tx.read(self.by_number, number_of(subscriber)).await?;
        found.ok_or_else(|| tx.abort())
    }

    /// Returns the difference between the benchmark's sum and the expected one, 0 in a sound store.
    /// The parameters are those of [`SmallBank::surplus`](super::SmallBank::surplus).
    ///
    /// # Errors
    /// Returns the errors of transactions.
    pub fn surplus<V: Member>(
        &self,
        coordinator: &mut Coordinator<V>,
        counted: i64,
    ) -> Result<i64, TransactionError> {
        let all = self.subscribers;
        let updates = |row: Subscriber| row.updates as i64;
        let located = total(coordinator, self.subscriber, all, updates)?;
        let updates = |row: SpecialFacility| row.updates as i64;
        let changed = total(coordinator, self.special_facility, all * TYPES, updates)?;
        let rows = all * TYPES * STARTS;
        let forwarded = total(coordinator, self.call_forwarding, rows, |_| 1)?;
        let ledger = self.ledger.sum(coordinator)?;
        let initial = (0..all).map(|it| Rows::of(it).call_forwarding.len() as i64);
        Ok(located + changed + forwarded - initial.sum::<i64>() - counted - ledger)
    }
}
