//! The sizes at which shared memory is read and written in one access.

use core::fmt::{Debug, LowerHex};
use core::sync::atomic::Ordering;
use portable_atomic::AtomicU128;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// An unsigned integer that shared memory reads and writes in one access: `u8` to `u128`.
///
/// A place in a segment is accessed at one size all its life (accesses of mixed sizes are a data
/// race, and processors do not order them reliably).
pub trait Word:
    Copy + Eq + Ord + Debug + LowerHex + Default + Send + Sync + Sealed + 'static
{
    /// Size and alignment in bytes.
    const SIZE: usize;
    /// Returns this value in the low bits of a `u128`.
    fn to_bits(self) -> u128;
    /// Returns the value in the low bits of `bits`; higher bits are dropped.
    fn from_bits(bits: u128) -> Self;
    /// Returns `self + other`, wrapping.
    fn wrapping_add(self, other: Self) -> Self;
    /// Returns `self & other`.
    fn and(self, other: Self) -> Self;
    /// Returns `self | other`.
    fn or(self, other: Self) -> Self;
}

mod sealed {
    use core::sync::atomic::Ordering;

    /// The operations of native memory on a word. Every function requires `at` to be valid for
    /// reads and writes of the word, aligned to its size, and accessed at this size only while
    /// other threads may access it.
    #[allow(clippy::missing_safety_doc, missing_docs)]
    pub trait Sealed: Sized {
        unsafe fn native_load(at: *mut u8, order: Ordering) -> Self;
        unsafe fn native_store(at: *mut u8, value: Self, order: Ordering);
        unsafe fn native_exchange(at: *mut u8, value: Self, order: Ordering) -> Self;
        unsafe fn native_compare_exchange(
            at: *mut u8,
            current: Self,
            new: Self,
            success: Ordering,
            failure: Ordering,
        ) -> Result<Self, Self>;
        unsafe fn native_fetch_add(at: *mut u8, value: Self, order: Ordering) -> Self;
        unsafe fn native_fetch_and(at: *mut u8, value: Self, order: Ordering) -> Self;
        unsafe fn native_fetch_or(at: *mut u8, value: Self, order: Ordering) -> Self;
    }
}
pub(crate) use sealed::Sealed;

macro_rules! word {
    ($word:ty, $atomic:ty) => {
        impl Word for $word {
            const SIZE: usize = size_of::<$word>();
            #[inline(always)]
            fn to_bits(self) -> u128 {
                self as u128
            }
            #[inline(always)]
            fn from_bits(bits: u128) -> Self {
                bits as $word
            }
            #[inline(always)]
            fn wrapping_add(self, other: Self) -> Self {
                <$word>::wrapping_add(self, other)
            }
            #[inline(always)]
            fn and(self, other: Self) -> Self {
                self & other
            }
            #[inline(always)]
            fn or(self, other: Self) -> Self {
                self | other
            }
        }

        impl Sealed for $word {
            #[inline(always)]
            unsafe fn native_load(at: *mut u8, order: Ordering) -> Self {
                // SAFETY: the caller promises a valid, aligned word that is only accessed
                // atomically at this size; the same holds for each function below.
                unsafe { <$atomic>::from_ptr(at.cast()) }.load(order)
            }
            #[inline(always)]
            unsafe fn native_store(at: *mut u8, value: Self, order: Ordering) {
                // SAFETY: as in `native_load`.
                unsafe { <$atomic>::from_ptr(at.cast()) }.store(value, order)
            }
            #[inline(always)]
            unsafe fn native_exchange(at: *mut u8, value: Self, order: Ordering) -> Self {
                // SAFETY: as in `native_load`.
                unsafe { <$atomic>::from_ptr(at.cast()) }.swap(value, order)
            }
            #[inline(always)]
            unsafe fn native_compare_exchange(
                at: *mut u8,
                current: Self,
                new: Self,
                success: Ordering,
                failure: Ordering,
            ) -> Result<Self, Self> {
                // SAFETY: as in `native_load`.
                unsafe { <$atomic>::from_ptr(at.cast()) }
                    .compare_exchange(current, new, success, failure)
            }
            #[inline(always)]
            unsafe fn native_fetch_add(at: *mut u8, value: Self, order: Ordering) -> Self {
                // SAFETY: as in `native_load`.
                unsafe { <$atomic>::from_ptr(at.cast()) }.fetch_add(value, order)
            }
            #[inline(always)]
            unsafe fn native_fetch_and(at: *mut u8, value: Self, order: Ordering) -> Self {
                // SAFETY: as in `native_load`.
                unsafe { <$atomic>::from_ptr(at.cast()) }.fetch_and(value, order)
            }
            #[inline(always)]
            unsafe fn native_fetch_or(at: *mut u8, value: Self, order: Ordering) -> Self {
                // SAFETY: as in `native_load`.
                unsafe { <$atomic>::from_ptr(at.cast()) }.fetch_or(value, order)
            }
        }
    };
}

word!(u8, AtomicU8);
word!(u16, AtomicU16);
word!(u32, AtomicU32);
word!(u64, AtomicU64);
word!(u128, AtomicU128);
