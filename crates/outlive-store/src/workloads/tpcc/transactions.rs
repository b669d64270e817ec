//! The five transactions.

use super::random::{customer as any_customer, item as any_item, name as any_name};
use super::rows::{
    CUSTOMERS, Customer, DISTRICTS, History, ITEMS, MAX_LINES, Order, OrderLine, Stock, customer,
    district, line, namesakes, stock,
};
use super::{Executed, PAYMENTS, TpcC};
use crate::protocol::{Abort, Coordinator, Member, Transaction, TransactionError};
use fastrand::Rng;
use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

/// A line of a new order.
#[derive(Clone, Copy, Debug)]
struct Line {
    item: u64,
    supplier: u64,
    quantity: u32,
}

/// How a customer is identified.
#[derive(Clone, Copy, Debug)]
enum Who {
    Number(u64),
    LastName(u64),
}

impl Who {
    fn choose(random: &mut Rng) -> Self {
        match random.u8(..100) {
            0..60 => Self::LastName(any_name(random)),
            _ => Self::Number(any_customer(random)),
        }
    }
}

/// Milliseconds since 1970.
fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(1, |now| now.as_millis() as u64)
}

impl TpcC {
    /// Executes a random transaction.
    ///
    /// # Errors
    /// Returns the errors of transactions; [`Abort::User`] if the transaction fails as the
    /// benchmark intends.
    pub async fn execute<V: Member>(
        &self,
        coordinator: &mut Coordinator<V>,
        random: &mut Rng,
    ) -> Result<Executed, TransactionError> {
        let home = random.u64(..self.warehouses);
        let number = random.u64(..DISTRICTS);
        let district = district(home, number);
        match random.u8(..100) {
            0..45 => self.new_order(coordinator, (home, number), random).await,
            45..88 => self.payment(coordinator, (home, district), random).await,
            88..92 => {
                let who = Who::choose(random);
                let reading =
                    coordinator.transaction(async |tx| self.order_status(tx, district, who).await);
                reading.await.map(|_| Executed::default())
            }
            92..96 => {
                let (carrier, date) = (random.u32(1..=10), now());
                let delivering = coordinator.transaction(async |tx| {
                    for number in 0..DISTRICTS {
                        let district = super::rows::district(home, number);
                        self.deliver(tx, district, carrier, date).await?;
                    }
                    self.ledger.record(tx, 0).await
                });
                Ok(delivering.await?.value)
            }
            _ => {
                let threshold = random.i32(10..=20);
                let reading = coordinator
                    .transaction(async |tx| self.stock_level(tx, home, district, threshold).await);
                reading.await.map(|_| Executed::default())
            }
        }
    }

    /// Returns a warehouse other than `home`, if there is one.
    fn other(&self, random: &mut Rng, home: u64) -> u64 {
        match self.warehouses {
            1 => home,
            all => (home + random.u64(1..all)) % all,
        }
    }

    async fn new_order<V: Member>(
        &self,
        coordinator: &mut Coordinator<V>,
        (home, number): (u64, u64),
        random: &mut Rng,
    ) -> Result<Executed, TransactionError> {
        let buyer = any_customer(random);
        let mut lines: Vec<Line> = (0..random.u64(5..=MAX_LINES))
            .map(|_| Line {
                item: any_item(random),
                supplier: match random.u8(..100) {
                    0 => self.other(random, home),
                    _ => home,
                },
                quantity: random.u32(1..=10),
            })
            .collect();
        if random.u8(..100) == 0 {
            // An item that does not exist: the transaction is rolled back.
            lines.last_mut().expect("5 lines at least").item = ITEMS;
        }
        // In the order of their keys, so that orders with the same items do not latch them in
        // opposite orders.
        lines.sort_unstable_by_key(|it| (it.supplier, it.item));
        let date = now();
        let ordering = coordinator.transaction(async |tx| {
            let district = district(home, number);
            tx.read(self.warehouse, home).await?;
            tx.read(self.customer, customer(district, buyer)).await?;
            let next = tx.update(self.district, district, |mut row| {
                row.next_order += 1;
                row
            });
            let next = next.await?.ok_or_else(|| tx.abort())?.next_order;
            let key = self.order_key(district, next);
            if !tx.insert(self.new_order, key, &next).await? {
                // The oldest order that the district keeps is not delivered.
                return Err(tx.abort());
            }
            let order = Order {
                number: next,
                date,
                customer: buyer as u32,
                carrier: 0,
                lines: lines.len() as u32,
                is_local: lines.iter().all(|it| it.supplier == home).into(),
            };
            let replaced = tx.update(self.order, key, |_| order).await?;
            if replaced.is_none() {
                tx.insert(self.order, key, &order).await?;
            }
            tx.put(self.last_order, customer(district, buyer), &next)
                .await?;
            for (place, ordered) in (0..).zip(&lines) {
                let row = self.take_stock(tx, ordered, home, number).await?;
                tx.put(self.order_line, line(key, place), &row).await?;
            }
            let before = replaced.map_or(0, |it| u64::from(it.lines));
            for place in lines.len() as u64..before {
                tx.delete(self.order_line, line(key, place)).await?;
            }
            self.ledger.record(tx, 0).await
        });
        Ok(ordering.await?.value)
    }

    /// Takes an ordered item from the stock. Returns the order's line.
    async fn take_stock<V: Member>(
        &self,
        tx: &mut Transaction<V>,
        ordered: &Line,
        home: u64,
        number: u64,
    ) -> Result<OrderLine, Abort> {
        let item = tx.read(self.item, ordered.item).await?;
        let item = item.ok_or_else(|| tx.abort())?;
        let quantity = ordered.quantity;
        let take = |mut row: Stock| {
            let left = row.quantity - quantity as i32;
            row.quantity = if left >= 10 { left } else { left + 91 };
            row.year_to_date += u64::from(quantity);
            row.orders += 1;
            row.remote_orders += u32::from(ordered.supplier != home);
            row
        };
        let key = stock(ordered.supplier, ordered.item);
        let taken = tx.update(self.stock, key, take).await?;
        let taken = taken.ok_or_else(|| tx.abort())?;
        Ok(OrderLine {
            delivered: 0,
            amount: i64::from(quantity) * item.price,
            item: ordered.item as u32,
            supplier: ordered.supplier as u32,
            quantity,
            district_info: taken.district_info[number as usize],
            unused: 0,
        })
    }

    /// Returns the number of a customer: of those with one last name, the one in the middle.
    async fn find<V: Member>(
        &self,
        tx: &mut Transaction<V>,
        district: u64,
        who: Who,
    ) -> Result<u64, Abort> {
        match who {
            Who::Number(number) => Ok(number),
            Who::LastName(name) => {
                let row = tx.read(self.by_name, namesakes(district, name)).await?;
                let row = row.filter(|row| row.count > 0).ok_or_else(|| tx.abort())?;
                Ok(row.customers[(row.count as usize - 1) / 2].into())
            }
        }
    }

    async fn payment<V: Member>(
        &self,
        coordinator: &mut Coordinator<V>,
        (home, place): (u64, u64),
        random: &mut Rng,
    ) -> Result<Executed, TransactionError> {
        let who = Who::choose(random);
        let theirs = match random.u8(..100) {
            0..85 => place,
            _ => district(self.other(random, home), random.u64(..DISTRICTS)),
        };
        let amount = random.i64(100..=500_000);
        let date = now();
        let paying = coordinator.transaction(async |tx| {
            let number = self.find(tx, theirs, who).await?;
            let key = customer(theirs, number);
            let pay = |mut row: Customer| {
                row.balance -= amount;
                row.year_to_date += amount;
                row.payments += 1;
                if row.credit == *b"BC" {
                    // The newest payment is in front.
                    row.data.rotate_right(1);
                    row.data[0] = [0; 20];
                    row.data[0][..8].copy_from_slice(&key.to_le_bytes());
                    row.data[0][8..16].copy_from_slice(&amount.to_le_bytes());
                }
                row
            };
            tx.update(self.customer, key, pay).await?;
            let history = History {
                customer: key,
                district: place,
                date,
                amount,
                data: [0; 24],
            };
            let id = tx.id();
            let coordinator = u64::from(id.process()) << 16 | u64::from(id.coordinator());
            let row = coordinator * PAYMENTS + u64::from(id.attempt()) % PAYMENTS;
            tx.put(self.history, row, &history).await?;
            // Last, because all payments to a warehouse write the same row.
            let add = tx.update(self.district, place, |mut row| {
                row.year_to_date += amount;
                row
            });
            add.await?;
            let add = tx.update(self.warehouse, home, |mut row| {
                row.year_to_date += amount;
                row
            });
            add.await?;
            self.ledger.record(tx, 0).await
        });
        Ok(paying.await?.value)
    }

    /// Returns the sum of the amounts of a customer's last order.
    async fn order_status<V: Member>(
        &self,
        tx: &mut Transaction<V>,
        district: u64,
        who: Who,
    ) -> Result<i64, Abort> {
        let number = self.find(tx, district, who).await?;
        let key = customer(district, number);
        tx.read(self.customer, key).await?;
        let last = tx.read(self.last_order, key).await?;
        let last = last.ok_or_else(|| tx.abort())?;
        let key = self.order_key(district, last);
        let order = tx.read(self.order, key).await?;
        let mut sum = 0;
        // A later order may have taken its place.
        if let Some(order) = order.filter(|order| order.number == last) {
            for place in 0..order.lines.into() {
                let row = tx.read(self.order_line, line(key, place)).await?;
                sum += row.map_or(0, |row| row.amount);
            }
        }
        Ok(sum)
    }

    /// Delivers the oldest order of a district, if there is one.
    async fn deliver<V: Member>(
        &self,
        tx: &mut Transaction<V>,
        district: u64,
        carrier: u32,
        date: u64,
    ) -> Result<(), Abort> {
        let Some(number) = tx.read(self.oldest, district).await? else {
            return Ok(());
        };
        let key = self.order_key(district, number);
        if tx.read(self.new_order, key).await? != Some(number) {
            return Ok(());
        }
        tx.write(self.oldest, district, &(number + 1)).await?;
        tx.delete(self.new_order, key).await?;
        let order = tx.update(self.order, key, |mut row| {
            row.carrier = carrier;
            row
        });
        let order = order.await?.ok_or_else(|| tx.abort())?;
        let mut sum = 0;
        for place in 0..order.lines.into() {
            let row = tx.update(self.order_line, line(key, place), |mut row| {
                row.delivered = date;
                row
            });
            sum += row.await?.map_or(0, |row| row.amount);
        }
        let buyer = customer(district, u64::from(order.customer) % CUSTOMERS);
        let add = tx.update(self.customer, buyer, |mut row| {
            row.balance += sum;
            row.deliveries += 1;
            row
        });
        add.await?;
        Ok(())
    }

    /// Returns the number of items of the last 20 orders of a district whose stock is below
    /// `threshold`.
    async fn stock_level<V: Member>(
        &self,
        tx: &mut Transaction<V>,
        home: u64,
        district: u64,
        threshold: i32,
    ) -> Result<usize, Abort> {
        let row = tx.read(self.district, district).await?;
        let next = row.ok_or_else(|| tx.abort())?.next_order;
        let mut items = BTreeSet::new();
        for number in next.saturating_sub(20).max(1)..next {
            let key = self.order_key(district, number);
            let lines = tx.read(self.order, key).await?.map_or(0, |it| it.lines);
            for place in 0..lines.into() {
                let row = tx.read(self.order_line, line(key, place)).await?;
                items.extend(row.map(|row| row.item));
            }
        }
        let mut low = 0;
        for item in items {
            let row = tx.read(self.stock, stock(home, item.into())).await?;
            low += usize::from(row.is_some_and(|row| row.quantity < threshold));
        }
        Ok(low)
    }
}
