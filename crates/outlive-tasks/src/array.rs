//! Arrays in the pod: large data that tasks of one job fill in disjoint parts, and that later jobs read.
//!
//! An array is named data. Its name is bound, and its elements hold anything, as soon as the task that makes it is done;
//! the tasks that this one spawns fill it, each its own part, and who depends on their job reads it. That a job is complete
//! orders all that its tasks wrote before all that is read then; so elements are loaded and stored relaxed, each by
//! one plain instruction. A task that is run again writes the same once more, which nobody sees.
//!
//! (Should a program break that contract, and write what others read, it reads old or new elements: nothing worse. Bytes
//! in a pod may be written by other processes, so there are no references to them but to atomics.)

use crate::names::Data;
use core::fmt;
use core::marker::PhantomData;
use core::ops::Range;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};
use outlive::memory::{Memory, Native, Offset, Ordering, Word};

/// What an array can consist of: numbers of 1, 2, 4 or 8 bytes.
pub trait Element: bytemuck::Pod {
    /// The word that it is stored in.
    type Word: Word;
    /// The atomic of that size.
    type Atomic;

    /// The word that stands for it.
    fn to_word(self) -> Self::Word;

    /// What a word stands for.
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

/// How many bytes the kernel maps at a time where it is read first: Linux' default. (Where it is less, there are more faults.)
const FAULT_AROUND: usize = 64 << 10;

/// An array of numbers in the pod. See the [module](self).
///
/// A handle is `Copy`. It is good until its data is [removed](crate::WorkerPool::remove_data): for a task that has it from its
/// context, at least until it ends.
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
    /// The array in `data`; `None` if its length is not one of whole elements.
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

    /// How many elements it has.
    #[inline(always)]
    pub fn len(self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Element `index`.
    ///
    /// # Panics
    /// If there is none.
    #[inline(always)]
    pub fn get(self, index: usize) -> T {
        assert!(index < self.len, "element {index} of {}", self.len);
        let at = self.start + (index * size_of::<T>()) as u64;
        T::from_word(self.memory.load(at, Ordering::Relaxed))
    }

    /// Sets element `index`.
    ///
    /// # Panics
    /// If there is none.
    #[inline(always)]
    pub fn set(self, index: usize, value: T) {
        assert!(index < self.len, "element {index} of {}", self.len);
        let at = self.start + (index * size_of::<T>()) as u64;
        self.memory.store(at, value.to_word(), Ordering::Relaxed);
    }

    /// Copies the elements from `first` on.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn read(self, first: usize, into: &mut [T]) {
        self.demand(first..first + into.len());
        let start = self.start + (first * size_of::<T>()) as u64;
        for (index, element) in into.iter_mut().enumerate() {
            let at = start + (index * size_of::<T>()) as u64;
            *element = T::from_word(self.memory.load(at, Ordering::Relaxed));
        }
    }

    /// Writes the elements from `first` on.
    ///
    /// # Panics
    /// If there are fewer.
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
    /// If they are not all there.
    pub fn fill(self, range: Range<usize>, value: T) {
        self.map_for_writing(range.clone());
        range.for_each(|index| self.set(index, value));
    }

    /// Has the pages mapped in which elements of `range` stand, many at a time: for who is about to write there by other means
    /// than [`write`](Self::write) and [`fill`](Self::fill), which do so themselves. It changes nothing but the time that takes.
    ///
    /// A process that is the first one of its own to *write* to a page of a shared file takes a fault for it; by *reading* first it
    /// gets a whole stretch of those that are in memory already, and may write to them too. (Not on a file system that wants to
    /// hear of each page that is written, where this costs one fault more for each stretch.)
    ///
    /// # Panics
    /// If they are not all there.
    pub fn map_for_writing(self, range: Range<usize>) {
        self.demand(range.clone());
        // The first and the last: either may be alone in its stretch.
        let (every, last) = (FAULT_AROUND / size_of::<T>(), range.clone().next_back());
        for index in range.step_by(every).chain(last) {
            core::hint::black_box(self.get(index));
        }
    }

    /// A copy of all of it.
    pub fn to_vec(self) -> Vec<T> {
        let mut elements = vec![T::zeroed(); self.len];
        self.read(0, &mut elements);
        elements
    }

    /// Its elements as atomics: what an inner loop goes over, with relaxed loads, which are plain ones.
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
        // The atomic has the element's size, and its alignment is that.
        const { assert!(size_of::<T>() == size_of::<T::Atomic>()) };
        let first = self.memory.address(self.start, bytes).cast();
        // SAFETY: `address` has checked that all bytes are inside the mapping, which stays while a handle is in use;
        // `of` has checked the alignment to the element's size, and the mapping starts on a page. They are accessed by
        // atomics only, of this size while anybody writes them.
        unsafe { core::slice::from_raw_parts(first.as_ptr(), self.len) }
    }

    /// Its elements as a slice: for data that nobody writes any more.
    ///
    /// # Safety
    /// While the slice is there nobody, in any process, writes to the array, and its data is not removed (or the slice is used
    /// in the task only that has the array from its context). So it is for
    /// what a job on which this one depends has written, or was put there before this job was submitted.
    #[inline]
    pub unsafe fn as_slice(&self) -> &[T] {
        let bytes = (self.len * size_of::<T>()) as u64;
        let first = self.memory.address(self.start, bytes).cast();
        // SAFETY: inside the mapping and aligned, as for `atomics`; every bit pattern is an element; and the caller
        // promises that nothing changes.
        unsafe { core::slice::from_raw_parts(first.as_ptr(), self.len) }
    }

    #[track_caller]
    fn demand(self, range: Range<usize>) {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "elements {range:?} of {}",
            self.len
        );
    }
}
