//! Types that may be stored in a segment, and descriptions of their layout.
//!
//! Two programs that share a segment may have been built from different sources. So a type that is
//! named in a segment brings a description of its layout, and a fingerprint of that description: of
//! its name, size and alignment and of every field's name, offset and type, down to the integers. A
//! renamed, moved or changed field makes another fingerprint, even if the size is the same.

use bytemuck::Pod;
use core::fmt;

/// Plain data with a known layout: a type that may be stored in a segment.
///
/// Every bit pattern is a value of it, it has no padding, and it means the same in every process,
/// so it holds neither addresses nor `usize`. Integers, floats and arrays of such types are
/// `Shared`, and [`shared!`](crate::shared) makes structs that are.
///
/// # Safety
/// [`LAYOUT`](Self::LAYOUT) describes the type truly: types with equal layouts are interchangeable.
pub unsafe trait Shared: Pod {
    /// The layout of the type.
    const LAYOUT: TypeLayout;
    /// A number that differs, except by accident, between types that differ.
    const FINGERPRINT: u64 = Self::LAYOUT.fingerprint();
}

/// The layout of a type in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeLayout {
    /// The name, without a path.
    pub name: &'static str,
    /// The size of the type in bytes.
    pub size: usize,
    /// The alignment of the type in bytes.
    pub align: usize,
    /// The composition of the type.
    pub shape: Shape,
}

/// The composition of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// An integer or a float, without parts.
    Primitive,
    /// `count` elements of one type, one after the other.
    Array {
        /// The layout of each element.
        element: &'static TypeLayout,
        /// The number of elements.
        count: usize,
    },
    /// Fields.
    Struct(&'static [Field]),
}

/// A field of a struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name of the field.
    pub name: &'static str,
    /// The offset in bytes from the struct's start.
    pub offset: usize,
    /// The layout of the field's type.
    pub layout: TypeLayout,
}

impl TypeLayout {
    /// Returns the fingerprint of this layout: FNV-1a, 64 bits, over all parts of it.
    pub const fn fingerprint(&self) -> u64 {
        self.add_to(0xCBF2_9CE4_8422_2325)
    }

    /// Describes the type in words: a struct with its fields, any other type by its name. It does
    /// not describe elements of arrays or the fields of fields, so it does not identify the type;
    /// the [fingerprint](Self::fingerprint) does.
    pub fn in_words(&self) -> String {
        let text = self.to_string();
        match (self.shape, text.split_once(" (")) {
            (Shape::Primitive | Shape::Array { .. }, Some((name, _))) => name.into(),
            _ => text,
        }
    }

    const fn add_to(&self, hash: u64) -> u64 {
        let hash = add_text(hash, self.name);
        let hash = add_number(hash, self.size as u64);
        let hash = add_number(hash, self.align as u64);
        match self.shape {
            Shape::Primitive => add_number(hash, 1),
            Shape::Array { element, count } => {
                element.add_to(add_number(add_number(hash, 2), count as u64))
            }
            Shape::Struct(fields) => {
                let mut hash = add_number(add_number(hash, 3), fields.len() as u64);
                let mut index = 0;
                while index < fields.len() {
                    let field = &fields[index];
                    hash = add_text(hash, field.name);
                    hash = add_number(hash, field.offset as u64);
                    hash = field.layout.add_to(hash);
                    index += 1;
                }
                hash
            }
        }
    }

    fn write_name(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shape {
            Shape::Array { element, count } => {
                f.write_str("[")?;
                element.write_name(f)?;
                write!(f, "; {count}]")
            }
            _ => f.write_str(self.name),
        }
    }
}

const fn add_byte(hash: u64, byte: u8) -> u64 {
    (hash ^ byte as u64).wrapping_mul(0x0000_0100_0000_01B3)
}

const fn add_number(mut hash: u64, number: u64) -> u64 {
    let bytes = number.to_le_bytes();
    let mut index = 0;
    while index < bytes.len() {
        hash = add_byte(hash, bytes[index]);
        index += 1;
    }
    hash
}

/// With its length first, so that no two sequences of texts run together.
const fn add_text(hash: u64, text: &str) -> u64 {
    let bytes = text.as_bytes();
    let mut hash = add_number(hash, bytes.len() as u64);
    let mut index = 0;
    while index < bytes.len() {
        hash = add_byte(hash, bytes[index]);
        index += 1;
    }
    hash
}

/// The type with its size, alignment and fields: `Point (16 bytes, align 8: x u64 @0, y u64 @8)`.
impl fmt::Display for TypeLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_name(f)?;
        write!(f, " ({} bytes, align {}", self.size, self.align)?;
        if let Shape::Struct(fields) = self.shape {
            for (index, field) in fields.iter().enumerate() {
                f.write_str(if index == 0 { ": " } else { ", " })?;
                write!(f, "{} ", field.name)?;
                field.layout.write_name(f)?;
                write!(f, " @{}", field.offset)?;
            }
        }
        f.write_str(")")
    }
}

macro_rules! primitive {
    ($($name:ty),+) => {$(
        // SAFETY: a primitive is described by its name, size and alignment.
        unsafe impl Shared for $name {
            const LAYOUT: TypeLayout = TypeLayout {
                name: stringify!($name),
                size: size_of::<$name>(),
                align: align_of::<$name>(),
                shape: Shape::Primitive,
            };
        }
    )+};
}

primitive!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128, f32, f64);

// SAFETY: an array is its elements one after the other.
unsafe impl<T: Shared, const N: usize> Shared for [T; N] {
    const LAYOUT: TypeLayout = TypeLayout {
        name: "",
        size: size_of::<Self>(),
        align: align_of::<Self>(),
        shape: Shape::Array {
            element: &T::LAYOUT,
            count: N,
        },
    };
}

/// Declares a struct that may be stored in a segment: plain data with a known layout.
///
/// It is `repr(C)`, `Copy`, and implements [`Shared`](crate::segment::Shared), `bytemuck::Pod` and
/// `bytemuck::Zeroable`. Every field must be `Shared`, and there must be no padding: a struct with
/// a gap does not compile, and needs a field there. Derive further traits as needed.
///
/// ```
/// use outlive::segment::Shared;
///
/// outlive::shared! {
///     /// A point that a segment may hold.
///     #[derive(Debug, PartialEq)]
///     pub struct Point {
///         pub x: u64,
///         pub y: u64,
///     }
/// }
/// assert_eq!(Point::LAYOUT.to_string(), "Point (16 bytes, align 8: x u64 @0, y u64 @8)");
/// ```
///
/// ```compile_fail
/// outlive::shared! {
///     struct Gap { small: u8, large: u64 } // seven bytes of padding
/// }
/// ```
///
/// ```compile_fail
/// outlive::shared! {
///     struct Address { to: usize } // means nothing elsewhere
/// }
/// ```
#[macro_export]
macro_rules! shared {
    ($(#[$meta:meta])* $vis:vis struct $name:ident {
        $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $type:ty),+ $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy)]
        #[repr(C)]
        $vis struct $name { $($(#[$field_meta])* $field_vis $field: $type),+ }

        const _: () = {
            assert!(
                0 $(+ ::core::mem::size_of::<$type>())+ == ::core::mem::size_of::<$name>(),
                "a shared struct has padding: put a field where the gap is",
            );
        };

        // SAFETY: every field is `Shared` (the layout below needs that), hence zeroable.
        unsafe impl $crate::segment::__bytemuck::Zeroable for $name {}
        // SAFETY: `repr(C)`, `Copy`, every field is `Shared`, hence plain data, and there is no
        // padding, since the sizes of the fields add up to the whole.
        unsafe impl $crate::segment::__bytemuck::Pod for $name {}
        // SAFETY: the layout is taken from the compiler.
        unsafe impl $crate::segment::Shared for $name {
            const LAYOUT: $crate::segment::TypeLayout = $crate::segment::TypeLayout {
                name: ::core::stringify!($name),
                size: ::core::mem::size_of::<$name>(),
                align: ::core::mem::align_of::<$name>(),
                shape: $crate::segment::Shape::Struct(&[$($crate::segment::Field {
                    name: ::core::stringify!($field),
                    offset: ::core::mem::offset_of!($name, $field),
                    layout: <$type as $crate::segment::Shared>::LAYOUT,
                }),+]),
            };
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    macro_rules! fingerprint {
        ($($body:tt)*) => {{
            crate::shared! { #[allow(dead_code)] $($body)* }
            T::FINGERPRINT
        }};
    }

    #[test]
    fn every_difference_changes_the_fingerprint() {
        mod inner {
            crate::shared! { #[allow(dead_code)] pub struct Inner { pub a: u32, pub b: u32 } }
        }
        mod other {
            crate::shared! { #[allow(dead_code)] pub struct Inner { pub a: u32, pub c: u32 } }
        }
        let mut all = vec![
            fingerprint!(
                struct T {
                    x: u64,
                    y: u64,
                }
            ),
            fingerprint!(
                struct T {
                    y: u64,
                    x: u64,
                }
            ),
            fingerprint!(
                struct T {
                    x: u64,
                    z: u64,
                }
            ),
            fingerprint!(
                struct T {
                    x: u64,
                    y: i64,
                }
            ),
            fingerprint!(
                struct T {
                    x: u64,
                    y: [u64; 1],
                }
            ),
            fingerprint!(
                struct T {
                    x: u64,
                    y: [u32; 2],
                }
            ),
            fingerprint!(
                struct T {
                    x: u64,
                    y: [u8; 8],
                }
            ),
            fingerprint!(
                struct T {
                    x: u64,
                    y: inner::Inner,
                }
            ),
            fingerprint!(
                struct T {
                    x: u64,
                    y: other::Inner,
                }
            ),
            fingerprint!(
                struct T {
                    x: [u64; 2],
                }
            ),
            fingerprint!(
                struct T {
                    x: u128,
                }
            ),
            u64::FINGERPRINT,
            <[u64; 1]>::FINGERPRINT,
            <[[u64; 1]; 1]>::FINGERPRINT,
        ];
        let renamed = {
            crate::shared! { #[allow(dead_code)] struct U { x: u64, y: u64 } }
            U::FINGERPRINT
        };
        all.push(renamed);
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        let again = fingerprint!(
            struct T {
                x: u64,
                y: u64,
            }
        );
        assert!(
            all.contains(&again),
            "an equal type has an equal fingerprint"
        );
    }

    /// Fingerprints are stored in segments: a change of this one is a change of format.
    #[test]
    fn the_fingerprint_is_the_same_for_ever() {
        assert_eq!(u64::FINGERPRINT, 0x0c08_4949_f3e1_bf9a);
    }

    #[test]
    fn a_layout_reads_well() {
        crate::shared! { #[allow(dead_code)] struct Line { ends: [[i32; 2]; 2], colour: u64 } }
        assert_eq!(
            Line::LAYOUT.to_string(),
            "Line (24 bytes, align 8: ends [[i32; 2]; 2] @0, colour u64 @16)"
        );
        assert_eq!(<[u8; 3]>::LAYOUT.to_string(), "[u8; 3] (3 bytes, align 1)");
    }
}
