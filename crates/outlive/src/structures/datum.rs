//! The types of keys and values.

use crate::segment::Shared;
use core::cmp::Ordering as Order;
use outlive_memory::{Memory, Offset};

/// A key or a value: plain data of one size, a string, or bytes.
///
/// A structure stores a datum as its bytes. Keys are equal when their bytes are. (So for floats 0.0
/// and -0.0 differ, and a NaN can be found.)
///
/// Every [`Shared`] type is a datum: integers, floats, arrays, and structs made by
/// [`shared!`](crate::shared). `str` and `[u8]` are of any length up to 4 GiB.
pub trait Datum {
    /// The type that is read: the value itself, a `String`, a `Vec<u8>`.
    type Owned;
    /// The number of bytes of every value of the type; `None` if they differ.
    const BYTES: Option<u64>;
    /// A number that differs, except by accident, between types that differ.
    const FINGERPRINT: u64;

    /// Describes the type in words. Named objects store and compare the text, so it must not
    /// change.
    fn describe() -> String;

    /// Returns the bytes.
    fn bytes(&self) -> &[u8];

    /// Reads a datum of `len` bytes at `at`.
    fn read<M: Memory>(memory: M, at: Offset, len: u64) -> Self::Owned;

    /// Borrows a datum that was read, to be written or compared again.
    fn borrow(owned: &Self::Owned) -> &Self;

    /// Returns a copy, as it would be read.
    fn owned(&self) -> Self::Owned;
}

impl<T: Shared> Datum for T {
    type Owned = T;
    const BYTES: Option<u64> = Some(size_of::<T>() as u64);
    const FINGERPRINT: u64 = <T as Shared>::FINGERPRINT;

    fn describe() -> String {
        T::LAYOUT.in_words()
    }

    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        bytemuck::bytes_of(self)
    }

    #[inline(always)]
    fn read<M: Memory>(memory: M, at: Offset, _len: u64) -> T {
        let mut value = T::zeroed();
        memory.copy_out(at, bytemuck::bytes_of_mut(&mut value));
        value
    }

    #[inline(always)]
    fn borrow(owned: &T) -> &T {
        owned
    }

    #[inline(always)]
    fn owned(&self) -> T {
        *self
    }
}

/// Reads `len` bytes at `at`. A wrong length in a damaged segment causes no large allocation.
fn read_bytes<M: Memory>(memory: M, at: Offset, len: u64) -> Vec<u8> {
    let inside = Offset::checked(at.raw(), len, 8, memory.size()).is_ok();
    assert!(
        inside,
        "{len} bytes at {at} are not inside the memory; run `outlive pod check`"
    );
    let mut bytes = vec![0; len as usize];
    memory.copy_out(at, &mut bytes);
    bytes
}

impl Datum for [u8] {
    type Owned = Vec<u8>;
    const BYTES: Option<u64> = None;
    const FINGERPRINT: u64 = u64::from_le_bytes(*b"[bytes] ");

    fn describe() -> String {
        "bytes".into()
    }

    fn bytes(&self) -> &[u8] {
        self
    }

    fn read<M: Memory>(memory: M, at: Offset, len: u64) -> Vec<u8> {
        read_bytes(memory, at, len)
    }

    fn borrow(owned: &Vec<u8>) -> &Self {
        owned
    }

    fn owned(&self) -> Vec<u8> {
        self.to_vec()
    }
}

impl Datum for str {
    type Owned = String;
    const BYTES: Option<u64> = None;
    const FINGERPRINT: u64 = u64::from_le_bytes(*b"[string]");

    fn describe() -> String {
        "str".into()
    }

    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }

    fn read<M: Memory>(memory: M, at: Offset, len: u64) -> String {
        let bytes = read_bytes(memory, at, len);
        // Only damage makes invalid text.
        String::from_utf8(bytes)
            .unwrap_or_else(|bad| String::from_utf8_lossy(bad.as_bytes()).into_owned())
    }

    fn borrow(owned: &String) -> &Self {
        owned
    }

    fn owned(&self) -> String {
        self.into()
    }
}

/// A key that a [`List`](super::List) can be sorted by.
pub trait OrderedDatum: Datum {
    /// Returns a number that is not larger for a smaller key. Most comparisons need only this.
    fn rank(&self) -> u64;

    /// Compares this key with one of the same rank, of `len` bytes at `at`.
    fn compare<M: Memory>(&self, memory: M, at: Offset, len: u64) -> Order;
}

macro_rules! ordered {
    ($($name:ty: $unsigned:ty, $flip:expr);+ $(;)?) => {$(
        impl OrderedDatum for $name {
            #[inline(always)]
            fn rank(&self) -> u64 {
                u64::from(*self as $unsigned ^ $flip)
            }

            #[inline(always)]
            fn compare<M: Memory>(&self, _memory: M, _at: Offset, _len: u64) -> Order {
                Order::Equal
            }
        }
    )+};
}

ordered! {
    u8: u8, 0;
    u16: u16, 0;
    u32: u32, 0;
    u64: u64, 0;
    i8: u8, 1 << 7;
    i16: u16, 1 << 15;
    i32: u32, 1 << 31;
    i64: u64, 1 << 63;
}

/// Returns the first eight bytes as a number, the first of them the most significant.
fn rank_of(bytes: &[u8]) -> u64 {
    let mut first = [0; 8];
    let len = bytes.len().min(8);
    first[..len].copy_from_slice(&bytes[..len]);
    u64::from_be_bytes(first)
}

impl OrderedDatum for [u8] {
    fn rank(&self) -> u64 {
        rank_of(self)
    }

    fn compare<M: Memory>(&self, memory: M, at: Offset, len: u64) -> Order {
        self.cmp(&read_bytes(memory, at, len)[..])
    }
}

impl OrderedDatum for str {
    fn rank(&self) -> u64 {
        rank_of(self.as_bytes())
    }

    fn compare<M: Memory>(&self, memory: M, at: Offset, len: u64) -> Order {
        self.as_bytes().cmp(&read_bytes(memory, at, len)[..])
    }
}
