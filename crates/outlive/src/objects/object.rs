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
    /// They have no blocks of their own.
    Plain = 1,
    /// They are a word that leads to a [`Map`] or a [`List`].
    Structure = 2,
}

impl Class {
    pub(super) fn from_number(number: u8) -> Option<Self> {
        [Self::Plain, Self::Structure]
            .into_iter()
            .find(|class| *class as u8 == number)
    }
}

/// A type whose values can be named objects.
///
/// A type of [`Class::Plain`] has all of its state in [`BYTES`](Self::BYTES) bytes of contents; one
/// of [`Class::Structure`] has a cell there. A type joins by implementing this trait:
///
/// ```
#[doc = include_str!("../structures/example_setup.txt")]
/// use outlive::memory::{Memory, Ordering};
/// use outlive::objects::{Class, Directory, Object, ObjectError, Objects};
///
/// /// A flag that is raised once.
/// struct Flag<M: Memory>(M, Offset);
///
/// impl<M: Memory> Object<M> for Flag<M> {
///     type Init = ();
///     const CLASS: Class = Class::Plain;
///     const BYTES: u64 = 8;
///
///     fn describe() -> String {
///         "flag".into()
///     }
///
///     fn create(_: &LocalHeap<'_, M>, _: Offset, (): ()) -> Result<(), ObjectError> {
///         Ok(()) // the contents are zero
///     }
///
///     fn open(memory: M, at: Offset) -> Result<Self, ObjectError> {
///         Ok(Self(memory, at))
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
    /// The number of bytes of the contents, which are zero at first and aligned to 16 bytes.
    const BYTES: u64;

    /// Describes the type in words, with the types in it. The text is stored with each object, so
    /// it must not change. Types with equal descriptions, sizes and
    /// [fingerprints](Self::fingerprint) are one type.
    fn describe() -> String;

    /// Returns a number that tells types apart whose descriptions are equal: for a type with other
    /// types in it, that of their layouts.
    fn fingerprint() -> u64 {
        0
    }

    /// Makes the contents at `at`. No other member knows the place.
    ///
    /// # Errors
    /// If there is no memory.
    ///
    /// # Crash
    /// A death in here leaves contents that are destroyed as the [class](Self::CLASS) says.
    fn create(heap: &LocalHeap<'_, M>, at: Offset, init: Self::Init) -> Result<(), ObjectError>;

    /// Opens the contents at `at`.
    ///
    /// # Errors
    /// If they are damaged.
    fn open(memory: M, at: Offset) -> Result<Self, ObjectError>;
}

macro_rules! structures {
    ($($structure:ident: $key:ident, $description:literal);+) => {$(
        impl<K: $key + ?Sized, V: Datum + ?Sized, M: Memory> Object<M> for $structure<K, V, M> {
            type Init = ();
            const CLASS: Class = Class::Structure;
            const BYTES: u64 = 8;

            fn describe() -> String {
                format!($description, K::describe(), V::describe())
            }

            fn fingerprint() -> u64 {
                K::FINGERPRINT.rotate_left(1) ^ V::FINGERPRINT
            }

            fn create(heap: &LocalHeap<'_, M>, at: Offset, (): ()) -> Result<(), ObjectError> {
                Self::create(heap, at)?;
                Ok(())
            }

            fn open(memory: M, at: Offset) -> Result<Self, ObjectError> {
                // Acquire: the structure was created before the object was linked.
                let header = Offset::from_raw(memory.load(at, Ordering::Acquire));
                Ok(Self::open(memory, header)?)
            }
        }
    )+};
}

structures! { Map: Datum, "map of {} to {}"; List: OrderedDatum, "list of {} to {}" }

impl<T: Repair + Shared, M: Memory> Object<M> for RecoverableMutex<T, M> {
    type Init = T;
    const CLASS: Class = Class::Plain;
    const BYTES: u64 = Self::BYTES;

    fn describe() -> String {
        format!("mutex over {}", T::LAYOUT.in_words())
    }

    fn fingerprint() -> u64 {
        <T as Shared>::FINGERPRINT
    }

    fn create(heap: &LocalHeap<'_, M>, at: Offset, init: T) -> Result<(), ObjectError> {
        Self::create(heap.memory(), at, init);
        Ok(())
    }

    fn open(memory: M, at: Offset) -> Result<Self, ObjectError> {
        Ok(Self::at(memory, at))
    }
}
