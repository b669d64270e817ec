//! Arrays in the pod: large data that tasks of one job fill in disjoint parts, and that later jobs
//! read.
//!
//! An array is named data. As soon as the task that creates it is done, its name is bound, and its
//! elements have arbitrary values. The tasks that this task spawns fill it, each its own part, and
//! jobs that depend on their job read it. The completion of a job orders all writes of its tasks
//! before all later reads, so elements are loaded and stored relaxed, each by one plain
//! instruction. A task that is re-executed writes the same values again, which no reader notices.
//!
//! (A program that breaks this contract, and writes while others read, reads old or new elements,
//! and nothing worse. Other processes may write bytes of a pod, so only references to atomics
//! exist.)

use crate::store::names::Data;
use core::fmt;
use core::marker::PhantomData;
use core::ops::Range;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};
use outlive::memory::{Memory, Native, Offset, Ordering, Word};

/// The elements of an array: numbers of 1, 2, 4 or 8 bytes.
pub trait Element: bytemuck::Pod {
    /// The word in which an element is stored.
    type Word: Word;
    /// The atomic of that size.
    type Atomic;

    /// Converts the element to its word.
    fn to_word(self) -> Self::Word;

    /// Converts a word to its element.
    fn from_word(word: Self::Word) -> Self;
}

macro_rules! element {
    ($($type:ty, $word:ty, $atomic:ty, $to:expr, $from:expr;)+) => {$(
        impl Element for $type {
            type Word = $word;
            type Atomic = $atomic;

            #[inline(always)]
            fn to_word(self) -> $word {
                $to(self)
            }

            #[inline(always)]
            fn from_word(word: $word) -> Self {
                $from(word)
            }
        }
    )+};
}

element! {
    u8, u8, AtomicU8, |n| n, |n| n;
    u16, u16, AtomicU16, |n| n, |n| n;
    u32, u32, AtomicU32, |n| n, |n| n;
    u64, u64, AtomicU64, |n| n, |n| n;
    i8, u8, AtomicU8, |n: i8| n as u8, |n| n as i8;
    i16, u16, AtomicU16, |n: i16| n as u16, |n| n as i16;
    i32, u32, AtomicU32, |n: i32| n as u32, |n| n as i32;
    i64, u64, AtomicU64, |n: i64| n as u64, |n| n as i64;
    f32, u32, AtomicU32, f32::to_bits, f32::from_bits;
    f64, u64, AtomicU64, f64::to_bits, f64::from_bits;
}

/// The number of bytes that the kernel maps around a first read: the default of Linux. (If it is
/// less, there are more faults.)
const FAULT_AROUND: usize = 64 << 10;

/// An array of numbers in the pod. See the [module](self).
///
/// A handle is `Copy`. It is valid until its data is [removed](crate::WorkerPool::remove_data); a
/// handle that a task has from its context, at least until the task ends.
pub struct Array<T: Element> {
    memory: Native,
    start: Offset,
    len: usize,
    element: PhantomData<fn() -> T>,
}

impl<T: Element> Clone for Array<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Element> Copy for Array<T> {}

impl<T: Element> fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Array({} at {})", self.len, self.start)
    }
}

impl<T: Element> Array<T> {
    /// Returns the array in `data`; `None` if its length is not a multiple of the element's.
    pub(crate) fn of(memory: Native, data: Data) -> Option<Self> {
        let (bytes, size) = (data.len(), size_of::<T>() as u64);
        let start = data.start();
        Offset::checked(start.raw(), bytes, size, memory.size()).ok()?;
        bytes.is_multiple_of(size).then_some(Self {
            memory,
            start,
            len: (bytes / size) as usize,
            element: PhantomData,
        })
    }

    /// Returns the number of elements.
    #[inline(always)]
    pub fn len(self) -> usize {
        self.len
    }

    /// Returns whether the array has no elements.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Returns element `index`.
    ///
    /// # Panics
    /// If it does not exist.
    #[inline(always)]
    pub fn get(self, index: usize) -> T {
        assert!(
            index < self.len,
            "there is no element {index} among {}",
            self.len
        );
        let at = self.start + (index * size_of::<T>()) as u64;
        T::from_word(self.memory.load(at, Ordering::Relaxed))
    }

    /// Sets element `index`.
    ///
    /// # Panics
    /// If it does not exist.
    #[inline(always)]
    pub fn set(self, index: usize, value: T) {
        assert!(
            index < self.len,
            "there is no element {index} among {}",
            self.len
        );
        let at = self.start + (index * size_of::<T>()) as u64;
        self.memory.store(at, value.to_word(), Ordering::Relaxed);
    }

    /// Copies the elements from `first` on to `into`.
    ///
    /// # Panics
    /// If some do not exist.
    pub fn read(self, first: usize, into: &mut [T]) {
        self.demand(first..first + into.len());
        let start = self.start + (first * size_of::<T>()) as u64;
        for (index, element) in into.iter_mut().enumerate() {
            let at = start + (index * size_of::<T>()) as u64;
            *element = T::from_word(self.memory.load(at, Ordering::Relaxed));
        }
    }

    /// Writes `from` to the elements from `first` on.
    ///
    /// # Panics
    /// If some do not exist.
    pub fn write(self, first: usize, from: &[T]) {
        self.map_for_writing(first..first + from.len());
        let start = self.start + (first * size_of::<T>()) as u64;
        for (index, element) in from.iter().enumerate() {
            let at = start + (index * size_of::<T>()) as u64;
            self.memory.store(at, element.to_word(), Ordering::Relaxed);
        }
    }

    /// Sets the elements in `range`.
    ///
    /// # Panics
    /// If some do not exist.
    pub fn fill(self, range: Range<usize>, value: T) {
        self.map_for_writing(range.clone());
        range.for_each(|index| self.set(index, value));
    }

    /// Maps the pages of the elements of `range`, many at a time, before the caller writes there by
    /// other means than [`write`](Self::write) and [`fill`](Self::fill), which map them themselves.
    /// It only affects the time that writing takes.
    ///
    /// A process takes a fault when it first *writes* to a page of a shared file. If it *reads*
    /// first, it gets a whole stretch of the pages that are already in memory, and may write to
    /// them, too. (Not on a file system that requires a notification for each written page, where
    /// this costs one more fault for each stretch.)
    ///
    /// # Panics
    /// If some do not exist.
    pub fn map_for_writing(self, range: Range<usize>) {
        self.demand(range.clone());
        // The first and the last element are read, too: either may be alone in its stretch.
        let (every, last) = (FAULT_AROUND / size_of::<T>(), range.clone().next_back());
        for index in range.step_by(every).chain(last) {
            core::hint::black_box(self.get(index));
        }
    }

    /// Returns a copy of all elements.
    pub fn to_vec(self) -> Vec<T> {
        let mut elements = vec![T::zeroed(); self.len];
        self.read(0, &mut elements);
        elements
    }

    /// Returns the elements as atomics, for inner loops: their relaxed loads are plain ones.
    ///
    /// ```no_run
    /// # use outlive_tasks::Array;
    /// use std::sync::atomic::Ordering::Relaxed;
    /// # fn example(ranks: Array<f64>, neighbours: Array<u32>) -> f64 {
    /// let ranks = ranks.atomics();
    /// let sum: f64 = neighbours
    ///     .atomics()
    ///     .iter()
    ///     .map(|vertex| f64::from_bits(ranks[vertex.load(Relaxed) as usize].load(Relaxed)))
    ///     .sum();
    /// # sum
    /// # }
    /// ```
    #[inline]
    pub fn atomics(&self) -> &[T::Atomic] {
        let bytes = (self.len * size_of::<T>()) as u64;
        // The atomic has the element's size, which is also its alignment.
        const { assert!(size_of::<T>() == size_of::<T::Atomic>()) };
        let first = self.memory.address(self.start, bytes).cast();
        // SAFETY: `address` has checked that all bytes are in the mapping, which stays while a
        // handle is in use; `of` has checked the alignment, and the mapping starts on a page. While
        // any thread writes the bytes, all accesses are by atomics of this size.
        unsafe { core::slice::from_raw_parts(first.as_ptr(), self.len) }
    }

    /// Returns the elements as a slice, for data that is no longer written.
    ///
    /// # Safety
    /// While the slice exists, no thread of any process writes to the array, and its data is not
    /// removed (or only the task that has the array from its context uses the slice). So it is for
    /// data that was written by a job on which this one depends, or was put there before this job
    /// was submitted.
    #[inline]
    pub unsafe fn as_slice(&self) -> &[T] {
        let bytes = (self.len * size_of::<T>()) as u64;
        let first = self.memory.address(self.start, bytes).cast();
        // SAFETY: inside the mapping and aligned, as for `atomics`; every bit pattern is an
        // element; and the caller promises that nothing changes.
        unsafe { core::slice::from_raw_parts(first.as_ptr(), self.len) }
    }

    #[track_caller]
    fn demand(self, range: Range<usize>) {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "the range {range:?} is not inside an array of {} elements",
            self.len
        );
    }
}
