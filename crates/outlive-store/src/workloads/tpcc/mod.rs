//! TPC-C: the orders of a wholesale supplier.
//!
//! The nine tables, the five transactions and the mix of the specification (revision 5.11). No
//! table is ordered:
//!
//! * The customers of a district with one last name are a row of a table, ordered by first name.
//! * The last order of each customer, and the oldest order of each district that is not delivered,
//!   are rows of two more tables.
//! * A district keeps its last orders, [`orders`](TpcC::open) of them. A new order takes the place
//!   of the oldest one, with its lines. If that is not delivered, the transaction fails. (The mix
//!   delivers fewer orders than it enters, so each run ends at a limit.) In the same way each
//!   coordinator keeps its last payments in the history.
//!
//! The check after a run is that of consistency conditions 1 to 4, which hold after any number of
//! deaths.

mod check;
mod load;
mod random;
mod rows;
mod transactions;

use super::{Books, Executed, Ledger};
use crate::protocol::Table;
use crate::servers::{ComputeServer, StoreError};
use rows::{
    CUSTOMERS, Customer, DISTRICTS, District, History, ITEMS, Item, MAX_LINES, NAMES, Namesakes,
    Order, OrderLine, Stock, Warehouse,
};

/// The TPC-C benchmark.
#[derive(Clone, Copy, Debug)]
pub struct TpcC {
    warehouse: Table<Warehouse>,
    district: Table<District>,
    customer: Table<Customer>,
    by_name: Table<Namesakes>,
    /// The number of the last order of each customer.
    last_order: Table<u64>,
    history: Table<History>,
    new_order: Table<u64>,
    /// The number of the oldest order of each district that is not delivered.
    oldest: Table<u64>,
    order: Table<Order>,
    order_line: Table<OrderLine>,
    item: Table<Item>,
    stock: Table<Stock>,
    pub(super) ledger: Ledger,
    warehouses: u64,
    orders: u64,
}

/// The number of payments that each coordinator keeps.
const PAYMENTS: u64 = 256;

impl TpcC {
    /// The smallest number of orders that a district keeps: those that it begins with.
    pub const MIN_ORDERS: u64 = CUSTOMERS;
    /// The number of bytes of a log slot that the largest transaction needs.
    pub const LOG_SLOT: u64 = 64 << 10;

    /// Returns the number of keys and the size of a value, in words, of each table for this number
    /// of warehouses, of orders of each district, and of coordinators of all compute servers.
    pub fn tables(warehouses: u64, orders: u64, coordinators: u64) -> [(u64, u32); 12] {
        fn words<T>(keys: u64) -> (u64, u32) {
            (keys, size_of::<T>().div_ceil(8) as u32)
        }
        let districts = warehouses * DISTRICTS;
        [
            words::<Warehouse>(warehouses),
            words::<District>(districts),
            words::<Customer>(districts * CUSTOMERS),
            words::<Namesakes>(districts * NAMES),
            words::<u64>(districts * CUSTOMERS),
            // Those of two lives of each coordinator.
            words::<History>(2 * coordinators * PAYMENTS),
            words::<u64>(districts * orders),
            words::<u64>(districts),
            words::<Order>(districts * orders),
            // Orders have 10 lines on average.
            words::<OrderLine>(districts * orders * (MAX_LINES + 5) / 2),
            words::<Item>(ITEMS),
            words::<Stock>(warehouses * ITEMS),
        ]
    }

    /// Opens the tables, or creates them for `warehouses`, with `orders` orders of each district.
    /// TPC-C counts no sum, so `books` only determines where commits are counted.
    ///
    /// # Errors
    /// Returns the errors of [`ComputeServer::table`].
    pub fn open(
        compute: &ComputeServer,
        warehouses: u64,
        orders: u64,
        books: Books,
    ) -> Result<Self, StoreError> {
        let sizes = compute.store().configuration().sizes();
        let coordinators = u64::from(sizes.log_areas) * u64::from(sizes.coordinators);
        let keys = Self::tables(warehouses, orders, coordinators).map(|(keys, _)| keys);
        Ok(Self {
            warehouse: compute.table("warehouse", keys[0])?,
            district: compute.table("district", keys[1])?,
            customer: compute.table("customer", keys[2])?,
            by_name: compute.table("customer_name", keys[3])?,
            last_order: compute.table("customer_order", keys[4])?,
            history: compute.table("history", keys[5])?,
            new_order: compute.table("new_order", keys[6])?,
            oldest: compute.table("oldest_order", keys[7])?,
            order: compute.table("order", keys[8])?,
            order_line: compute.table("order_line", keys[9])?,
            item: compute.table("item", keys[10])?,
            stock: compute.table("stock", keys[11])?,
            ledger: Ledger::open(compute, books)?,
            warehouses,
            orders,
        })
    }

    /// Returns the key of an order of a district.
    fn order_key(&self, district: u64, number: u64) -> u64 {
        district * self.orders + number % self.orders
    }
}
