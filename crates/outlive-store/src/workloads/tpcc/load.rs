//! The initial rows. The rows of a district are always the same, so that a load can be repeated.

use super::super::insert;
use super::TpcC;
use super::random::{digits, last_name, name, text};
use super::rows::{
    Address, CUSTOMERS, Customer, DISTRICTS, District, ITEMS, Item, MAX_LINES, NAMES, NAMESAKES,
    Namesakes, Order, OrderLine, Stock, Warehouse, customer, district, line, namesakes, stock,
};
use crate::protocol::{Coordinator, Member, TransactionError};
use bytemuck::Zeroable;
use fastrand::Rng;

/// The number of the first order that is not delivered.
const FIRST_OPEN: u64 = 2101;
const DATE: u64 = 1;

fn address(random: &mut Rng) -> Address {
    Address {
        streets: [text(random), text(random)],
        city: text(random),
        state: text(random),
        zip: digits(random),
        unused: 0,
    }
}

/// 50 letters, of which 10% contain `ORIGINAL`.
fn data(random: &mut Rng) -> [[u8; 10]; 5] {
    let mut data = [(); 5].map(|()| text(random));
    if random.u8(..10) == 0 {
        data[random.usize(..5)] = *b"ORIGINAL..";
    }
    data
}

impl TpcC {
    /// Inserts all rows that do not exist.
    ///
    /// # Errors
    /// Returns the errors of transactions.
    pub fn load<V: Member>(
        &self,
        coordinator: &mut Coordinator<V>,
    ) -> Result<(), TransactionError> {
        let random = &mut Rng::with_seed(0);
        let item = |random: &mut Rng| Item {
            price: random.i64(100..=10_000),
            image: random.u32(1..=10_000),
            name: text(random),
            data: data(random),
            unused: [0; 2],
        };
        let items = (0..ITEMS).map(|number| (number, item(random)));
        insert(coordinator, self.item, items)?;
        for warehouse in 0..self.warehouses {
            self.load_warehouse(coordinator, warehouse)?;
            for number in 0..DISTRICTS {
                self.load_district(coordinator, district(warehouse, number))?;
            }
        }
        Ok(())
    }

    fn load_warehouse<V: Member>(
        &self,
        coordinator: &mut Coordinator<V>,
        warehouse: u64,
    ) -> Result<(), TransactionError> {
        let random = &mut Rng::with_seed(warehouse << 32);
        let row = Warehouse {
            year_to_date: 30_000_000,
            tax: random.u32(..=2000),
            name: text(random),
            unused: [0; 2],
            address: address(random),
        };
        insert(coordinator, self.warehouse, [(warehouse, row)])?;
        let row = |random: &mut Rng| Stock {
            year_to_date: 0,
            quantity: random.i32(10..=100),
            orders: 0,
            remote_orders: 0,
            district_info: [(); 10].map(|()| text(random)),
            data: data(random),
            unused: [0; 2],
        };
        let stocks = (0..ITEMS).map(|item| (stock(warehouse, item), row(random)));
        insert(coordinator, self.stock, stocks)
    }

    fn load_district<V: Member>(
        &self,
        coordinator: &mut Coordinator<V>,
        district: u64,
    ) -> Result<(), TransactionError> {
        let random = &mut Rng::with_seed(1 << 48 | district);
        let row = District {
            year_to_date: 3_000_000,
            next_order: CUSTOMERS + 1,
            tax: random.u32(..=2000),
            name: text(random),
            unused: [0; 2],
            address: address(random),
        };
        insert(coordinator, self.district, [(district, row)])?;
        let oldest = [(district, FIRST_OPEN)];
        insert(coordinator, self.oldest, oldest)?;
        self.load_customers(coordinator, district, random)?;

        let mut customers: Vec<u64> = (0..CUSTOMERS).collect();
        random.shuffle(&mut customers);
        let numbered = (1..).zip(&customers);
        let last = numbered.map(|(order, number)| (customer(district, *number), order));
        insert(coordinator, self.last_order, last)?;
        let open = (FIRST_OPEN..=CUSTOMERS).map(|it| (self.order_key(district, it), it));
        insert(coordinator, self.new_order, open)?;
        for (number, customer) in (1..).zip(customers) {
            self.load_order(coordinator, district, (number, customer), random)?;
        }
        Ok(())
    }

    fn load_customers<V: Member>(
        &self,
        coordinator: &mut Coordinator<V>,
        district: u64,
        random: &mut Rng,
    ) -> Result<(), TransactionError> {
        let mut by_name = vec![Vec::new(); NAMES as usize];
        let mut rows = Vec::new();
        for number in 0..CUSTOMERS {
            let mut last = if number < NAMES { number } else { name(random) };
            while by_name[last as usize].len() == NAMESAKES {
                last = name(random);
            }
            let is_bad = random.u8(..10) == 0;
            let row = Customer {
                balance: -1000,
                year_to_date: 1000,
                credit_limit: 5_000_000,
                since: DATE,
                payments: 1,
                deliveries: 0,
                discount: random.u32(..=5000),
                credit: if is_bad { *b"BC" } else { *b"GC" },
                middle: *b"OE",
                first: text(random),
                last: last_name(last),
                phone: digits(random),
                address: address(random),
                unused: [0; 4],
                data: [(); 25].map(|()| text(random)),
                end: [0; 8],
            };
            by_name[last as usize].push((row.first, number as u16));
            rows.push((customer(district, number), row));
        }
        insert(coordinator, self.customer, rows)?;
        let names = (0..).zip(by_name).map(|(number, mut customers)| {
            customers.sort_unstable();
            let mut row = Namesakes::zeroed();
            row.count = customers.len() as u32;
            let places = row.customers.iter_mut().zip(customers);
            places.for_each(|(place, (_, number))| *place = number);
            (namesakes(district, number), row)
        });
        insert(coordinator, self.by_name, names)
    }

    fn load_order<V: Member>(
        &self,
        coordinator: &mut Coordinator<V>,
        district: u64,
        (number, customer): (u64, u64),
        random: &mut Rng,
    ) -> Result<(), TransactionError> {
        let is_delivered = number < FIRST_OPEN;
        let lines = random.u64(5..=MAX_LINES);
        let row = Order {
            number,
            date: DATE,
            customer: customer as u32,
            carrier: if is_delivered { random.u32(1..=10) } else { 0 },
            lines: lines as u32,
            is_local: 1,
        };
        let key = self.order_key(district, number);
        insert(coordinator, self.order, [(key, row)])?;
        let row = |random: &mut Rng| OrderLine {
            delivered: if is_delivered { DATE } else { 0 },
            amount: if is_delivered {
                0
            } else {
                random.i64(1..=999_999)
            },
            item: random.u32(..ITEMS as u32),
            supplier: (district / DISTRICTS) as u32,
            quantity: 5,
            district_info: text(random),
            unused: 0,
        };
        let rows = (0..lines).map(|it| (line(key, it), row(random)));
        insert(coordinator, self.order_line, rows)
    }
}
