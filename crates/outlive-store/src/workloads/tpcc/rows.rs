//! The rows of the tables, and their keys.

use bytemuck::{Pod, Zeroable};

/// A person's or a warehouse's address.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Address {
    pub streets: [[u8; 20]; 2],
    pub city: [u8; 20],
    pub state: [u8; 2],
    pub zip: [u8; 9],
    pub unused: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Warehouse {
    /// The sum of the payments, in cents.
    pub year_to_date: i64,
    /// The sales tax, in hundredths of a percent.
    pub tax: u32,
    pub name: [u8; 10],
    pub unused: [u8; 2],
    pub address: Address,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct District {
    pub year_to_date: i64,
    /// The number of the next order. The first one is 1.
    pub next_order: u64,
    pub tax: u32,
    pub name: [u8; 10],
    pub unused: [u8; 2],
    pub address: Address,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Customer {
    pub balance: i64,
    pub year_to_date: i64,
    pub credit_limit: i64,
    pub since: u64,
    pub payments: u32,
    pub deliveries: u32,
    /// The discount, in hundredths of a percent.
    pub discount: u32,
    /// The credit standing: `GC` (good) or `BC` (bad).
    pub credit: [u8; 2],
    pub middle: [u8; 2],
    pub first: [u8; 16],
    pub last: [u8; 16],
    pub phone: [u8; 16],
    pub address: Address,
    pub unused: [u8; 4],
    pub data: [[u8; 20]; 25],
    pub end: [u8; 8],
}

/// The largest number of customers of a district with one last name.
pub(super) const NAMESAKES: usize = 30;

/// The customers of a district with one last name, ordered by first name.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Namesakes {
    pub count: u32,
    pub customers: [u16; NAMESAKES],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct History {
    pub customer: u64,
    pub district: u64,
    pub date: u64,
    pub amount: i64,
    pub data: [u8; 24],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Order {
    pub number: u64,
    pub date: u64,
    /// The number of the customer in the district.
    pub customer: u32,
    /// The number of the carrier; 0 if the order is not delivered.
    pub carrier: u32,
    pub lines: u32,
    pub is_local: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct OrderLine {
    /// The time of the delivery; 0 if the line is not delivered.
    pub delivered: u64,
    /// The amount of the line, in cents.
    pub amount: i64,
    pub item: u32,
    pub supplier: u32,
    pub quantity: u32,
    pub district_info: [u8; 24],
    pub unused: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Item {
    /// The price, in cents.
    pub price: i64,
    pub image: u32,
    pub name: [u8; 24],
    pub data: [[u8; 10]; 5],
    pub unused: [u8; 2],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Stock {
    pub year_to_date: u64,
    pub quantity: i32,
    pub orders: u32,
    pub remote_orders: u32,
    pub district_info: [[u8; 24]; 10],
    pub data: [[u8; 10]; 5],
    pub unused: [u8; 2],
}

/// The number of districts of a warehouse.
pub(super) const DISTRICTS: u64 = 10;
/// The number of customers of a district.
pub(super) const CUSTOMERS: u64 = 3000;
/// The number of items, and of each warehouse's stocks.
pub(super) const ITEMS: u64 = 100_000;
/// The number of last names.
pub(super) const NAMES: u64 = 1000;
/// The largest number of lines of an order.
pub(super) const MAX_LINES: u64 = 15;

/// Returns the number of a district among those of all warehouses.
pub(super) fn district(warehouse: u64, number: u64) -> u64 {
    warehouse * DISTRICTS + number
}

/// Returns the key of a customer.
pub(super) fn customer(district: u64, number: u64) -> u64 {
    district * CUSTOMERS + number
}

/// Returns the key of the customers with one last name.
pub(super) fn namesakes(district: u64, name: u64) -> u64 {
    district * NAMES + name
}

/// Returns the key of a stock.
pub(super) fn stock(warehouse: u64, item: u64) -> u64 {
    warehouse * ITEMS + item
}

/// Returns the key of a line, 0 to 14, of the order with the key `order`.
pub(super) fn line(order: u64, number: u64) -> u64 {
    order * (MAX_LINES + 1) + number
}
