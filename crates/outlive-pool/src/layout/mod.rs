//! Addresses, the words of the tables, and the sizes of a pool.

mod address;
mod sizes;
mod words;

pub use address::{Address, Use};
pub(crate) use address::{LAST_COUNT, count_of};
pub use sizes::Sizes;
pub(crate) use sizes::{
    ENTRY_BYTES, FORMAT_WORDS, LINE_BYTES, LINE_SLOTS, MOVE_BYTES, RING_BYTES, RING_SLOTS,
};
pub(crate) use words::{FrameWord, MapWord, Owner, Shape};
