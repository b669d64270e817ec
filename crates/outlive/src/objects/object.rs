//! The types of named objects.

use super::ObjectError;
use crate::heap::LocalHeap;
use crate::segment::Shared;
use crate::structures::{Datum, List, Map, OrderedDatum};
use crate::sync::{RecoverableMutex, Repair};
use outlive_memory::{Memory, Native, Offset, Ordering};

/// The way in which the contents of an object are destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    /// The contents have no blocks of their own.
    Plain = 1,
    /// The contents are a word that leads to a [`Map`] or a [`List`].
    Structure = 2,
    /// The contents are those of a [`Client`](super::Client), which have no blocks of their own.
    Client = 3,
}

impl Class {
    pub(super) fn from_number(number: u8) -> Option<Self> {
        [Self::Plain, Self::Structure, Self::Client]
            .into_iter()
            .find(|class| *class as u8 == number)
    }
}

/// A type whose values can be named objects.
///
/// A type of [`Class::Plain`] has all of its state in its [contents](Self::bytes); one of
/// [`Class::Structure`] has one word there, which leads to the structure. A type joins by
/// implementing this trait:
///
/// ```
#[doc = include_str!("../structures/example_setup.txt")]
/// use outlive::memory::{Memory, Ordering};
/// use outlive::objects::{Class, Contents, Directory, Object, ObjectError, Objects};
///
/// /// A flag that is raised once.
/// struct Flag<M: Memory>(M, Offset);
///
/// impl<M: Memory> Object<M> for Flag<M> {
///     type Init = ();
///     const CLASS: Class = Class::Plain;
///
///     fn describe() -> String {
///         "flag".into()
///     }
///
///     fn bytes(_: &()) -> u64 {
///         8
///     }
///
///     fn create(_: &LocalHeap<'_, M>, _: Offset, (): ()) -> Result<(), ObjectError> {
///         Ok(()) // the contents are zero
///     }
///
///     fn open(contents: Contents<M>) -> Result<Self, ObjectError> {
///         Ok(Self(contents.memory, contents.of_size(8)?))
///     }
/// }
///
/// let objects = Objects::of(&heap, Directory::open_or_create(&heap)?);
/// let ready = objects.open_or_create::<Flag<_>>("ready", ())?;
/// ready.low_level().0.store(ready.low_level().1, 1u64, Ordering::Release);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Object<M: Memory = Native>: Sized {
    /// The parameters of a creation.
    type Init: Clone;
    /// The way in which the contents are destroyed.
    const CLASS: Class;

    /// Describes the type in words, with the types in it. The text is stored with each object, so
    /// it must not change. Types with equal descriptions and [fingerprints](Self::fingerprint) are
    /// one type.
    fn describe() -> String;

    /// Returns a number that tells types apart whose descriptions are equal: for a type with other
    /// types in it, that of their layouts.
    fn fingerprint() -> u64 {
        0
    }

    /// Returns the number of bytes of the contents, which are zero at first and aligned to 16
    /// bytes.
    fn bytes(init: &Self::Init) -> u64;

    /// Makes the contents at `at`. No other member knows the place.
    ///
    /// # Errors
    /// If there is no memory.
    ///
    /// # Crash
    /// A death in here leaves contents that are destroyed as the [class](Self::CLASS) says.
    fn create(heap: &LocalHeap<'_, M>, at: Offset, init: Self::Init) -> Result<(), ObjectError>;

    /// Opens the contents.
    ///
    /// # Errors
    /// If they are damaged.
    fn open(contents: Contents<M>) -> Result<Self, ObjectError>;
}

/// The contents of an object.
#[derive(Clone, Copy, Debug)]
pub struct Contents<M: Memory = Native> {
    /// The memory that the contents are in.
    pub memory: M,
    /// The offset of the contents; aligned to 16 bytes.
    pub at: Offset,
    /// The size of the contents in bytes.
    pub bytes: u64,
}

impl<M: Memory> Contents<M> {
    /// Returns the offset of the contents, for a type of one size.
    ///
    /// # Errors
    /// If the contents do not have `bytes` bytes.
    pub fn of_size(self, bytes: u64) -> Result<Offset, ObjectError> {
        if self.bytes == bytes {
            return Ok(self.at);
        }
        Err(ObjectError::Damaged {
            at: self.at,
            what: "the contents of an object have a wrong size",
        })
    }
}

macro_rules! structures {
    ($($structure:ident: $key:ident, $description:literal);+) => {$(
        impl<K: $key + ?Sized, V: Datum + ?Sized, M: Memory> Object<M> for $structure<K, V, M> {
            type Init = ();
            const CLASS: Class = Class::Structure;

            fn describe() -> String {
                format!($description, K::describe(), V::describe())
            }

            fn fingerprint() -> u64 {
                K::FINGERPRINT.rotate_left(1) ^ V::FINGERPRINT
            }

            fn bytes((): &()) -> u64 {
                8
            }

            fn create(heap: &LocalHeap<'_, M>, at: Offset, (): ()) -> Result<(), ObjectError> {
                Self::create(heap, at)?;
                Ok(())
            }

            fn open(contents: Contents<M>) -> Result<Self, ObjectError> {
                let (memory, word) = (contents.memory, contents.of_size(8)?);
                // Acquire: the structure was created before the object was linked.
                let header = Offset::from_raw(memory.load(word, Ordering::Acquire));
                Ok(Self::open(memory, header)?)
            }
        }
    )+};
}

structures! { Map: Datum, "map of {} to {}"; List: OrderedDatum, "list of {} to {}" }

/// The prefix of the description of a mutex; the description of its value follows.
pub(super) const MUTEX_OVER: &str = "mutex over ";

impl<T: Repair + Shared, M: Memory> Object<M> for RecoverableMutex<T, M> {
    type Init = T;
    const CLASS: Class = Class::Plain;

    fn describe() -> String {
        format!("{MUTEX_OVER}{}", T::LAYOUT.in_words())
    }

    fn fingerprint() -> u64 {
        <T as Shared>::FINGERPRINT
    }

    fn bytes(_: &T) -> u64 {
        Self::BYTES
    }

    fn create(heap: &LocalHeap<'_, M>, at: Offset, init: T) -> Result<(), ObjectError> {
        Self::create(heap.memory(), at, init);
        Ok(())
    }

    fn open(contents: Contents<M>) -> Result<Self, ObjectError> {
        Ok(Self::at(contents.memory, contents.of_size(Self::BYTES)?))
    }
}
