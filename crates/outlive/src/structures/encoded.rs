//! Values without a layout: encoded by serde, in the format of postcard.

use super::Datum;
use crate::segment::Shape;
use crate::segment::TypeLayout;
use core::fmt;
use core::marker::PhantomData;
use outlive_memory::{Memory, Offset};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A type whose values are stored encoded.
///
/// [`NAME`](Self::NAME) identifies the encoding. All processes that exchange values must use the
/// same name for the same encoding; choose a new name when a change of the type changes the
/// encoding.
pub trait Encode: Serialize + DeserializeOwned {
    /// The name of the encoding, shown in messages and compared when an object is opened.
    const NAME: &'static str;
}

/// An encoded value of type `T`: a [`Datum`] of any length.
///
/// ```
#[doc = include_str!("example_setup.txt")]
/// use outlive::structures::{Encode, Encoded, Map};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Order {
///     items: Vec<String>,
///     note: Option<String>,
/// }
///
/// impl Encode for Order {
///     const NAME: &str = "order, version 1";
/// }
///
/// let orders = Map::<u64, Encoded<Order>>::create(&heap, cell)?;
/// let order = Order { items: vec!["tea".into()], note: None };
/// orders.insert(&heap, &7, &Encoded::of(&order)?)?;
/// let found = orders.get(&heap, &7).unwrap().decode()?;
/// assert_eq!(found.items, ["tea"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Encoded<T> {
    bytes: Vec<u8>,
    types: PhantomData<fn() -> T>,
}

impl<T: Encode> Encoded<T> {
    /// Encodes a value.
    ///
    /// # Errors
    /// If the value cannot be encoded.
    pub fn of(value: &T) -> Result<Self, postcard::Error> {
        postcard::to_stdvec(value).map(Self::from_bytes)
    }

    /// Decodes the value.
    ///
    /// # Errors
    /// If the bytes cannot be decoded as a `T`. Not every mismatch is detected: bytes of another
    /// type with the same [`NAME`](Encode::NAME) may decode to a wrong value.
    pub fn decode(&self) -> Result<T, postcard::Error> {
        postcard::from_bytes(&self.bytes)
    }
}

impl<T> Encoded<T> {
    fn from_bytes(bytes: Vec<u8>) -> Self {
        let types = PhantomData;
        Self { bytes, types }
    }
}

impl<T: Encode> Datum for Encoded<T> {
    type Owned = Self;
    const BYTES: Option<u64> = None;
    const FINGERPRINT: u64 = {
        // The fingerprint of an impossible layout, so it differs from that of every `Shared` type.
        let layout = TypeLayout {
            name: T::NAME,
            size: usize::MAX,
            align: 1,
            shape: Shape::Primitive,
        };
        layout.fingerprint()
    };

    fn describe() -> String {
        format!("encoded {}", T::NAME)
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn read<M: Memory>(memory: M, at: Offset, len: u64) -> Self {
        Self::from_bytes(<[u8]>::read(memory, at, len))
    }

    fn borrow(owned: &Self) -> &Self {
        owned
    }

    fn owned(&self) -> Self {
        self.clone()
    }
}

impl<T> Clone for Encoded<T> {
    fn clone(&self) -> Self {
        Self::from_bytes(self.bytes.clone())
    }
}

impl<T> PartialEq for Encoded<T> {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl<T> fmt::Debug for Encoded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Encoded({} bytes)", self.bytes.len())
    }
}
