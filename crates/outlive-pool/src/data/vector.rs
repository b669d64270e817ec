//! Vectors of plain values.

use crate::error::PoolError;
use crate::layout::Address;
use crate::pool::{Client, Guard, Placement, Reader, Redundancy, WriteGuard};
use bytemuck::{AnyBitPattern, NoUninit};
use core::marker::PhantomData;
use core::ops::Range;

/// A vector of plain values in a pool. It is a name for the memory, which is freed by
/// [`Client::free`]; its [address](Self::address) and length are enough to use it in another
/// process.
///
/// The size of an element is a power of two from 8 to 4096 bytes; another one is an error when the
/// program is compiled:
///
/// ```compile_fail,E0080
/// # let address = outlive_pool::Address::from_word(u64::MAX).unwrap();
/// let vector = outlive_pool::PoolVec::<[u64; 3]>::at(address, 1);
/// ```
///
/// ```
/// use outlive_pool::{Placement, Pool, PoolOptions, PoolVec};
///
/// # let path = format!("/dev/shm/outlive-doc-vector-{}", std::process::id());
/// # {
/// # let pool = Pool::create(&path, PoolOptions::new().slice_bytes(64 << 10))?;
/// # let server = pool.serve(1 << 20, 0)?;
/// let client = pool.join()?;
/// let reader = client.reader()?;
/// let squares: PoolVec<u64> = PoolVec::allocate(&client, 20_000, Placement::Spread)?;
/// squares.fill(&reader, |index| index * index)?;
/// assert_eq!(squares.get(&reader, 9)?, 81);
/// let sum = squares.fold(&reader, 0u64, |sum, square| sum.wrapping_add(square))?;
/// assert_eq!(sum, (0..20_000).map(|index| index * index).sum::<u64>());
/// # drop(reader);
/// # drop((client, server));
/// # }
/// # Pool::destroy(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PoolVec<T> {
    address: Address,
    len: u64,
    element: PhantomData<fn() -> T>,
}

impl<T> Clone for PoolVec<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for PoolVec<T> {}

impl<T: NoUninit + AnyBitPattern> PoolVec<T> {
    /// Checked when a program is compiled. The smallest slice has 4096 bytes, and the number of
    /// bytes in a slice is a power of two, so no element lies in two slices.
    const BYTES: u64 = {
        let bytes = size_of::<T>();
        assert!(
            bytes.is_power_of_two() && bytes >= 8 && bytes <= 4096,
            "the size of an element must be a power of two from 8 to 4096 bytes"
        );
        bytes as u64
    };

    /// Allocates a vector of `len` elements of zeros.
    ///
    /// # Errors
    /// As [`Client::allocate`].
    ///
    /// # Crash
    /// A survivor frees it.
    pub fn allocate(client: &Client, len: u64, placement: Placement) -> Result<Self, PoolError> {
        Self::allocate_with(client, len, placement, Redundancy::None)
    }

    /// As [`allocate`](Self::allocate), with redundancy.
    ///
    /// # Errors
    /// As [`Client::allocate_with`].
    ///
    /// # Crash
    /// A survivor frees it.
    pub fn allocate_with(
        client: &Client,
        len: u64,
        placement: Placement,
        redundancy: Redundancy,
    ) -> Result<Self, PoolError> {
        let bytes = len.saturating_mul(Self::BYTES);
        let address = client.allocate_with(bytes, placement, redundancy)?;
        Ok(Self::at(address, len))
    }

    /// Returns the vector of `len` elements at `address`, which another process has allocated. An
    /// access to an address that it does not have is an error, as is one by an address that is not
    /// aligned to the size of an element.
    pub const fn at(address: Address, len: u64) -> Self {
        let _checked = Self::BYTES;
        Self {
            address,
            len,
            element: PhantomData,
        }
    }

    /// Returns the address of the first element.
    pub const fn address(&self) -> Address {
        self.address
    }

    /// Returns the number of elements.
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether there is no element.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn element(&self, index: u64) -> Result<Address, PoolError> {
        let len = self.len;
        if index >= len {
            return Err(PoolError::Index { index, len });
        }
        let (address, bytes) = (self.address, Self::BYTES);
        if !address.position().is_multiple_of(bytes) {
            return Err(PoolError::Misaligned { address, bytes });
        }
        // The length may be that of another process: beyond the last position is no allocation.
        Ok(address.plus(index.saturating_mul(bytes)))
    }

    /// Returns the element `index`.
    ///
    /// # Errors
    /// If there is none, or its memory was freed or is lost.
    pub fn get(&self, reader: &Reader, index: u64) -> Result<T, PoolError> {
        let mut value = T::zeroed();
        let address = self.element(index)?;
        reader.read(address, bytemuck::bytes_of_mut(&mut value))?;
        Ok(value)
    }

    /// Sets the element `index`.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn set(&self, reader: &Reader, index: u64, value: T) -> Result<(), PoolError> {
        reader.write(self.element(index)?, bytemuck::bytes_of(&value))
    }

    /// Returns the ranges of indices that lie in one slice each, by rising index. `client` is one
    /// of the vector's pool.
    pub fn parts(&self, client: &Client) -> impl Iterator<Item = Range<u64>> + use<T> {
        let slice = client.pool().coherent().sizes().slice_bytes() / Self::BYTES;
        let len = self.len;
        (0..len.div_ceil(slice)).map(move |part| part * slice..len.min((part + 1) * slice))
    }

    /// Folds the elements of `range`, and confirms each slice. A slice that is moved meanwhile is
    /// folded again.
    ///
    /// # Errors
    /// If an element does not exist, or its memory was freed or is lost: a result would be wrong.
    pub fn fold_range<A: Clone>(
        &self,
        reader: &Reader,
        range: Range<u64>,
        start: A,
        mut fold: impl FnMut(A, T) -> A,
    ) -> Result<A, PoolError> {
        let (mut index, mut result) = (range.start, start);
        while index < range.end {
            let len = self.in_one_slice(reader.slice_bytes(), index, range.end)?;
            let guard = reader.guard(self.element(index)?)?;
            let before = result.clone();
            for place in 0..len {
                result = fold(result, load(&guard, place));
            }
            match guard.confirm() {
                Err(PoolError::Moved { .. }) => result = before,
                confirmed => {
                    confirmed?;
                    index += len;
                }
            }
        }
        Ok(result)
    }

    /// Folds all elements.
    ///
    /// # Errors
    /// As [`fold_range`](Self::fold_range).
    pub fn fold<A: Clone>(
        &self,
        reader: &Reader,
        start: A,
        fold: impl FnMut(A, T) -> A,
    ) -> Result<A, PoolError> {
        self.fold_range(reader, 0..self.len, start, fold)
    }

    /// Replaces each element of `range` by `update` of its index and value, in place.
    ///
    /// # Errors
    /// As [`fold_range`](Self::fold_range). Some elements may be replaced then.
    ///
    /// # Crash
    /// Some elements are replaced, by rising index, and nothing records which.
    pub fn update_range(
        &self,
        reader: &Reader,
        range: Range<u64>,
        mut update: impl FnMut(u64, T) -> T,
    ) -> Result<(), PoolError> {
        let mut index = range.start;
        while index < range.end {
            let len = self.in_one_slice(reader.slice_bytes(), index, range.end)?;
            let guard = reader.write_guard(self.element(index)?)?;
            for place in 0..len {
                let value = load_by(|word| guard.load(word), place);
                store(&guard, place, &update(index + place, value));
            }
            guard.confirm()?;
            index += len;
        }
        Ok(())
    }

    /// Sets each element to `value` of its index.
    ///
    /// # Errors
    /// As [`fold_range`](Self::fold_range). Some elements may be set then.
    pub fn fill(&self, reader: &Reader, mut value: impl FnMut(u64) -> T) -> Result<(), PoolError> {
        self.update_range(reader, 0..self.len, |index, _| value(index))
    }

    /// Returns the number of elements from `index` on, and before `end`, in one slice.
    fn in_one_slice(&self, slice_bytes: u64, index: u64, end: u64) -> Result<u64, PoolError> {
        // The last index is outside the vector if one of the range is.
        self.element(end - 1)?;
        let byte = self.element(index)?.position() & (slice_bytes - 1);
        Ok(((slice_bytes - byte) / Self::BYTES).min(end - index))
    }
}

#[inline(always)]
fn load<T: NoUninit + AnyBitPattern>(guard: &Guard<'_>, place: u64) -> T {
    load_by(|word| guard.load(word), place)
}

#[inline(always)]
fn load_by<T: NoUninit + AnyBitPattern>(load: impl Fn(u64) -> u64, place: u64) -> T {
    let mut value = T::zeroed();
    let words = size_of::<T>() as u64 / 8;
    let bytes = bytemuck::bytes_of_mut(&mut value).chunks_exact_mut(8);
    for (bytes, word) in bytes.zip(place * words..) {
        bytes.copy_from_slice(&load(word).to_ne_bytes());
    }
    value
}

#[inline(always)]
fn store<T: NoUninit>(guard: &WriteGuard<'_>, place: u64, value: &T) {
    let words = size_of::<T>() as u64 / 8;
    let bytes = bytemuck::bytes_of(value).chunks_exact(8);
    for (bytes, word) in bytes.zip(place * words..) {
        let word_bytes = bytes.try_into().expect("eight bytes");
        guard.store(word, u64::from_ne_bytes(word_bytes));
    }
}
