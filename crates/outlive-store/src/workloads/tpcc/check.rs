//! Consistency conditions 1 to 4 of TPC-C (section 3.3.2).

use super::super::get;
use super::TpcC;
use super::rows::{DISTRICTS, MAX_LINES, district, line};
use crate::protocol::{Coordinator, Member, TransactionError};

/// The number of order numbers, from the district's next one on, whose lines must not exist. A
/// part of an order without the rest has such a number if the district's update is missing or lost.
const AHEAD: u64 = 100;

impl TpcC {
    /// Returns the number of violations of the consistency conditions, 0 in a sound store. No
    /// transaction runs at the same time.
    ///
    /// # Errors
    /// Returns the errors of transactions.
    pub fn violations<V: Member>(
        &self,
        coordinator: &mut Coordinator<V>,
    ) -> Result<i64, TransactionError> {
        let mut violations = 0;
        for warehouse in 0..self.warehouses {
            let row = get(coordinator, self.warehouse, warehouse)?;
            let mut year_to_date = 0;
            for number in 0..DISTRICTS {
                let district = district(warehouse, number);
                let (sum, found) = self.check_district(coordinator, district)?;
                year_to_date += sum;
                violations += found;
            }
            // Condition 1.
            violations += i64::from(row.is_none_or(|row| row.year_to_date != year_to_date));
        }
        Ok(violations)
    }

    /// Returns the year-to-date sum of a district, and the number of violations in it.
    fn check_district<V: Member>(
        &self,
        coordinator: &mut Coordinator<V>,
        district: u64,
    ) -> Result<(i64, i64), TransactionError> {
        let Some(row) = get(coordinator, self.district, district)? else {
            return Ok((0, 1));
        };
        let oldest = get(coordinator, self.oldest, district)?.unwrap_or(0);
        let mut violations = 0;
        // The orders that the district keeps.
        let first = row.next_order.saturating_sub(self.orders).max(1);
        for number in first..row.next_order {
            let key = self.order_key(district, number);
            let order = get(coordinator, self.order, key)?;
            // Condition 2: the last order has the number before the next one; and all that are kept
            // exist.
            let order = order.filter(|order| order.number == number);
            // Conditions 2 and 3: exactly the orders from the oldest one on are not delivered.
            let is_open = number >= oldest;
            let new = get(coordinator, self.new_order, key)?;
            violations += i64::from(new != is_open.then_some(number));
            violations += i64::from(order.is_none_or(|it| (it.carrier == 0) != is_open));
            // Condition 4, for each order.
            let mut lines = 0;
            for place in 0..MAX_LINES {
                let found = get(coordinator, self.order_line, line(key, place))?;
                lines += u32::from(found.is_some());
                let is_wrong = found.is_some_and(|it| (it.delivered == 0) != is_open);
                violations += i64::from(is_wrong);
            }
            violations += i64::from(order.is_none_or(|order| order.lines != lines));
        }
        // Conditions 2 and 3: numbers that no order has had yet have no rows.
        for number in row.next_order..first + self.orders {
            let key = self.order_key(district, number);
            violations += i64::from(get(coordinator, self.order, key)?.is_some());
            violations += i64::from(get(coordinator, self.new_order, key)?.is_some());
            let lines = if number < row.next_order + AHEAD {
                MAX_LINES
            } else {
                0
            };
            for place in 0..lines {
                let found = get(coordinator, self.order_line, line(key, place))?;
                violations += i64::from(found.is_some());
            }
        }
        Ok((row.year_to_date, violations))
    }
}

#[cfg(test)]
mod tests {
    use crate::protocol::Table;
    use crate::servers::{Store, StoreOptions};
    use crate::verbs::block_on;
    use crate::workloads::{Books, TpcC, bytes_per_server};

    struct Place(String);

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = Store::destroy(&self.0);
        }
    }

    #[test]
    fn rows_of_an_order_that_does_not_exist_are_found() {
        let place = Place(format!("/dev/shm/outlive-tpcc-{}", std::process::id()));
        let options = StoreOptions::new().replicas(1);
        let store = Store::create(&place.0, options.log_slot(TpcC::LOG_SLOT)).unwrap();
        let orders = TpcC::MIN_ORDERS + 10;
        let tables = TpcC::tables(1, orders, 1024);
        let memory = store.serve_memory(bytes_per_server(&tables, 1, 1) + (64 << 20));
        let (_memory, compute) = (memory.unwrap(), store.join_compute().unwrap());
        let tpcc = TpcC::open(&compute, 1, orders, Books::Program).unwrap();
        let mut coordinator = compute.worker().unwrap().coordinator().unwrap();
        tpcc.load(&mut coordinator).unwrap();
        assert_eq!(tpcc.violations(&mut coordinator).unwrap(), 0);
        // The district has the orders up to the first one of these.
        let next = tpcc.order_key(0, TpcC::MIN_ORDERS + 1);
        let last = tpcc.order_key(0, TpcC::MIN_ORDERS + 9);
        let mut put = |table: Table<u64>, key, value: u64| {
            let done = coordinator.transaction(async |tx| tx.put(table, key, &value).await);
            block_on(done).unwrap();
        };
        put(tpcc.new_order, next, TpcC::MIN_ORDERS + 1);
        put(tpcc.new_order, last, TpcC::MIN_ORDERS + 9);
        assert_eq!(tpcc.violations(&mut coordinator).unwrap(), 2);
    }
}
