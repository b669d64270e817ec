//! Shared memory of a workload: the layout and the initial contents.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use super::{
    Barrier, BarrierId, ConditionId, Cpu, Image, LockId, Pending, Synchronisation, Value, Word,
};

/// Allocates shared memory from the beginning on; nothing is freed.
///
/// ```
/// use outlive_machine::program::{Allocator, Word};
///
/// let mut memory = Allocator::new();
/// let lock = memory.lock();
/// let counts = memory.array_of(&[1u64, 2, 3]);
/// let spread = memory.spread::<f64>(2);
/// assert_eq!(counts.word(2), Word(8 + 2), "the lock has the first line");
/// assert_eq!(spread.word(1), Word(16 + 8), "each element has a line");
/// assert_eq!(memory.synchronisation().locks[lock.0 as usize], Word(0));
/// assert_eq!(memory.image().words, 32);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Allocator {
    image: Image,
    synchronisation: Synchronisation,
}

impl Allocator {
    /// Creates an allocator with all memory free and zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Allocates this many words, from the beginning of a line on.
    pub fn words(&mut self, words: u64) -> Word {
        let first = Word(self.image.words);
        self.image.words += words.next_multiple_of(Word::PER_LINE);
        first
    }

    /// Allocates an array of zeros, from the beginning of a line on.
    pub fn array<T: Value>(&mut self, len: u64) -> Array<T> {
        Array::new(self.words(len), len, 1)
    }

    /// Allocates an array with these initial values, from the beginning of a line on.
    pub fn array_of<T: Value>(&mut self, values: &[T]) -> Array<T> {
        let array = self.array(values.len() as u64);
        let words = values.iter().map(|value| value.to_word()).collect();
        self.image.runs.push((array.first, words));
        array
    }

    /// Allocates an array of zeros with each element in a line of its own.
    pub fn spread<T: Value>(&mut self, len: u64) -> Array<T> {
        Array::new(self.words(len * Word::PER_LINE), len, Word::PER_LINE)
    }

    /// Allocates a lock.
    pub fn lock(&mut self) -> LockId {
        let word = self.words(1);
        self.synchronisation.locks.push(word);
        LockId(self.synchronisation.locks.len() as u32 - 1)
    }

    /// Allocates this many locks with consecutive numbers. Returns the first.
    pub fn locks(&mut self, locks: u32) -> LockId {
        let first = LockId(self.synchronisation.locks.len() as u32);
        for _ in 0..locks {
            self.lock();
        }
        first
    }

    /// Allocates a condition variable.
    pub fn condition(&mut self) -> ConditionId {
        let word = self.words(1);
        self.synchronisation.conditions.push(word);
        ConditionId(self.synchronisation.conditions.len() as u32 - 1)
    }

    /// Allocates a barrier for this many threads.
    pub fn barrier(&mut self, threads: usize) -> BarrierId {
        let counter = self.words(2 * Word::PER_LINE);
        self.synchronisation.barriers.push(Barrier {
            counter,
            threads: threads as u32,
        });
        BarrierId(self.synchronisation.barriers.len() as u32 - 1)
    }

    /// Returns the initial contents of memory.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// Returns the locks, conditions and barriers.
    pub fn synchronisation(&self) -> &Synchronisation {
        &self.synchronisation
    }

    /// Returns the image, and the locks, conditions and barriers.
    pub fn into_parts(self) -> (Image, Synchronisation) {
        (self.image, self.synchronisation)
    }
}

/// An array in shared memory. It is a location without contents: copies are the same array.
pub struct Array<T> {
    first: Word,
    len: u64,
    stride: u64,
    value: PhantomData<fn() -> T>,
}

impl<T: Value> Array<T> {
    const fn new(first: Word, len: u64, stride: u64) -> Self {
        Self {
            first,
            len,
            stride,
            value: PhantomData,
        }
    }

    /// Returns the number of elements.
    pub const fn len(self) -> u64 {
        self.len
    }

    /// Returns whether the array has no elements.
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Returns the word of an element.
    ///
    /// # Panics
    ///
    /// If the element does not exist.
    #[inline]
    #[track_caller]
    pub fn word(self, index: u64) -> Word {
        assert!(
            index < self.len,
            "element {index} of an array of {}",
            self.len
        );
        self.first.offset(index * self.stride)
    }

    /// Returns the elements `range` as an array.
    ///
    /// # Panics
    ///
    /// If the elements do not exist.
    #[track_caller]
    pub fn slice(self, range: Range<u64>) -> Self {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "elements {range:?} of an array of {}",
            self.len
        );
        Self::new(
            self.first.offset(range.start * self.stride),
            range.end - range.start,
            self.stride,
        )
    }

    /// Reads an element and waits for its value.
    #[inline]
    #[track_caller]
    pub fn get(self, cpu: &mut Cpu<'_>, index: u64) -> T {
        let pending = self.ask(cpu, index);
        cpu.value(pending)
    }

    /// Reads an element; [`Cpu::value`] waits for its value.
    #[inline]
    #[track_caller]
    pub fn ask(self, cpu: &mut Cpu<'_>, index: u64) -> Pending<T> {
        cpu.load_later_as(self.word(index))
    }

    /// Writes an element.
    #[inline]
    #[track_caller]
    pub fn set(self, cpu: &mut Cpu<'_>, index: u64, value: T) {
        cpu.store(self.word(index), value.to_word());
    }

    /// Returns an element of a memory that is at rest.
    #[track_caller]
    pub fn at(self, memory: &dyn Fn(Word) -> u64, index: u64) -> T {
        T::from_word(memory(self.word(index)))
    }

    /// Returns all elements of a memory that is at rest.
    pub fn all(self, memory: &dyn Fn(Word) -> u64) -> Vec<T> {
        (0..self.len).map(|index| self.at(memory, index)).collect()
    }
}

// By hand, because a location can be copied for any type of element.
impl<T> Clone for Array<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Array<T> {}

impl<T> fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} words from {:?} on, {} apart",
            self.len, self.first, self.stride
        )
    }
}
