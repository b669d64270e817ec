//! Values that are decoded by the description of their type.
//!
//! Each object stores a description of its type, which contains the layout of its values. An
//! observer that was built without the type decodes the values by this description.

use crate::structures::Datum;
use core::cmp::Ordering as Order;
use core::fmt;

/// A value, decoded by the description of its type.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// An unsigned integer.
    Unsigned(u128),
    /// A signed integer.
    Signed(i128),
    /// A float.
    Float(f64),
    /// A string.
    Text(String),
    /// Bytes, and values of types without a known layout.
    Bytes(Vec<u8>),
    /// The elements of an array.
    List(Vec<Self>),
    /// The fields of a struct or of an object, with their names.
    Fields(Vec<(String, Self)>),
    /// The entries of a map or a list.
    Entries(Vec<(Self, Self)>),
    /// No value: an empty cell, a free mutex, or a client without a request.
    Nothing,
}

impl Value {
    /// Compares two keys of one type.
    pub(super) fn compare(&self, other: &Self) -> Order {
        match (self, other) {
            (Self::Unsigned(a), Self::Unsigned(b)) => a.cmp(b),
            (Self::Signed(a), Self::Signed(b)) => a.cmp(b),
            (Self::Float(a), Self::Float(b)) => a.total_cmp(b),
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            (Self::Bytes(a), Self::Bytes(b)) => a.cmp(b),
            (Self::List(a), Self::List(b)) => {
                let parts = a.iter().zip(b).map(|(a, b)| a.compare(b));
                { parts }.fold(Order::Equal, Order::then)
            }
            (Self::Fields(a), Self::Fields(b)) => {
                let parts = a.iter().zip(b).map(|((_, a), (_, b))| a.compare(b));
                { parts }.fold(Order::Equal, Order::then)
            }
            // Of different kinds, only if one is damaged.
            _ => self.kind().cmp(&other.kind()),
        }
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Unsigned(_) => 0,
            Self::Signed(_) => 1,
            Self::Float(_) => 2,
            Self::Text(_) => 3,
            Self::Bytes(_) => 4,
            Self::List(_) => 5,
            Self::Fields(_) => 6,
            Self::Entries(_) => 7,
            Self::Nothing => 8,
        }
    }
}

/// The maximum number of bytes of a value that its text shows.
const MAX_SHOWN_BYTES: usize = 64;
/// The maximum length of a parsed description in bytes. It bounds the recursion on a damaged one.
const MAX_DESCRIPTION_BYTES: usize = 4096;

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsigned(number) => write!(f, "{number}"),
            Self::Signed(number) => write!(f, "{number}"),
            Self::Float(number) => write!(f, "{number:?}"),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Bytes(bytes) => {
                let shown = &bytes[..bytes.len().min(MAX_SHOWN_BYTES)];
                f.write_str("0x")?;
                shown.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
                match bytes.len() - shown.len() {
                    0 => Ok(()),
                    _ => write!(f, "… ({} bytes)", bytes.len()),
                }
            }
            Self::List(values) => {
                f.write_str("[")?;
                separated(f, values, |f, value| value.fmt(f))?;
                f.write_str("]")
            }
            Self::Fields(fields) => {
                f.write_str("{")?;
                separated(f, fields, |f, (name, value)| write!(f, "{name}: {value}"))?;
                f.write_str("}")
            }
            Self::Entries(entries) => {
                f.write_str("{")?;
                separated(f, entries, |f, (key, value)| write!(f, "{key}: {value}"))?;
                f.write_str("}")
            }
            Self::Nothing => f.write_str("-"),
        }
    }
}

fn separated<T>(
    f: &mut fmt::Formatter<'_>,
    items: &[T],
    mut write: impl FnMut(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            f.write_str(", ")?;
        }
        write(f, item)?;
    }
    Ok(())
}

/// The type of a value, parsed from its description.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Type {
    Unsigned(usize),
    Signed(usize),
    Float(usize),
    Array(Box<Self>, usize),
    /// Its size, and its fields: name, offset, type.
    Struct(usize, Vec<(String, usize, Self)>),
    Text,
    /// Bytes of any number, and types without a known layout.
    Opaque,
}

impl Type {
    /// Parses a description that [`Datum::describe`] made.
    pub fn parse(text: &str) -> Self {
        if text == <str as Datum>::describe() {
            return Self::Text;
        }
        if text.len() > MAX_DESCRIPTION_BYTES {
            return Self::Opaque;
        }
        let number = |rest: &str| -> Option<usize> {
            let bits: usize = rest.parse().ok()?;
            matches!(bits, 8 | 16 | 32 | 64 | 128).then_some(bits / 8)
        };
        let primitive = match text.split_at_checked(1) {
            Some(("u", rest)) => number(rest).map(Self::Unsigned),
            Some(("i", rest)) => number(rest).map(Self::Signed),
            Some(("f", rest)) => {
                { number(rest).filter(|bytes| [4, 8].contains(bytes)) }.map(Self::Float)
            }
            _ => None,
        };
        let array = || {
            let (element, count) = text
                .strip_prefix('[')?
                .strip_suffix(']')?
                .rsplit_once("; ")?;
            let element = Self::parse(element);
            let this = Self::Array(Box::new(element), count.parse().ok()?);
            this.size().map(|_| this)
        };
        { primitive }
            .or_else(array)
            .or_else(|| Self::parse_struct(text))
            .unwrap_or(Self::Opaque)
    }

    /// Parses `Point (16 bytes, align 8: x u64 @0, y u64 @8)`.
    fn parse_struct(text: &str) -> Option<Self> {
        let (_, parts) = text.strip_suffix(')')?.split_once(" (")?;
        let (size, parts) = parts.split_once(" bytes, align ")?;
        let (_, fields) = parts.split_once(": ")?;
        let field = |text: &str| {
            let (name, rest) = text.split_once(' ')?;
            let (of, at) = rest.rsplit_once(" @")?;
            Some((name.to_owned(), at.parse().ok()?, Self::parse(of)))
        };
        let fields: Option<Vec<_>> = fields.split(", ").map(field).collect();
        Some(Self::Struct(size.parse().ok()?, fields?))
    }

    /// Returns the size in bytes of each value. Returns `None` if the sizes differ or are unknown.
    pub fn size(&self) -> Option<usize> {
        match self {
            Self::Unsigned(size) | Self::Signed(size) | Self::Float(size) => Some(*size),
            Self::Array(element, count) => element.size()?.checked_mul(*count),
            Self::Struct(size, _) => Some(*size),
            Self::Text | Self::Opaque => None,
        }
    }

    /// Decodes a value from `bytes`. Returns [`Value::Bytes`] if they are not a value of this type.
    pub fn read(&self, bytes: &[u8]) -> Value {
        let fits = self.size().is_none_or(|size| size == bytes.len());
        let value = fits.then(|| self.read_fitting(bytes)).flatten();
        value.unwrap_or_else(|| Value::Bytes(bytes.to_vec()))
    }

    fn read_fitting(&self, bytes: &[u8]) -> Option<Value> {
        let mut word = [0; 16];
        match self {
            Self::Unsigned(size) | Self::Signed(size) => {
                word[..*size].copy_from_slice(bytes);
                let number = u128::from_le_bytes(word);
                let unused = 128 - 8 * *size as u32;
                // Arithmetic: the sign fills the upper bits.
                let signed = (number << unused).cast_signed() >> unused;
                Some(match self {
                    Self::Unsigned(_) => Value::Unsigned(number),
                    _ => Value::Signed(signed),
                })
            }
            Self::Float(4) => {
                let bytes = bytes.try_into().ok()?;
                Some(Value::Float(f32::from_le_bytes(bytes).into()))
            }
            Self::Float(_) => Some(Value::Float(f64::from_le_bytes(bytes.try_into().ok()?))),
            Self::Array(element, _) => {
                let size = element.size().filter(|size| *size > 0)?;
                let elements = bytes.chunks_exact(size).map(|part| element.read(part));
                Some(Value::List(elements.collect()))
            }
            Self::Struct(size, fields) => {
                let ends = fields.iter().skip(1).map(|(_, at, _)| *at).chain([*size]);
                let values = fields.iter().zip(ends).map(|((name, at, of), end)| {
                    Some((name.clone(), of.read(bytes.get(*at..end)?)))
                });
                Some(Value::Fields(values.collect::<Option<_>>()?))
            }
            Self::Text => Some(Value::Text(String::from_utf8(bytes.to_vec()).ok()?)),
            Self::Opaque => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::shared! { #[allow(dead_code)] struct Inner { a: u32, b: u32 } }
    crate::shared! {
        #[allow(dead_code)]
        struct Line { ends: [[i16; 2]; 2], inner: Inner, wide: u128, x: [f64; 2] }
    }

    fn shown<T: Datum + ?Sized>(value: &T) -> String {
        Type::parse(&T::describe()).read(value.bytes()).to_string()
    }

    #[test]
    fn values_are_read_by_their_description() {
        assert_eq!(shown(&200u8), "200");
        assert_eq!(shown(&-200i32), "-200");
        assert_eq!(shown(&i128::MIN), i128::MIN.to_string());
        assert_eq!(shown(&u128::MAX), u128::MAX.to_string());
        assert_eq!(shown(&0.5f32), "0.5");
        assert_eq!(shown(&[[1u64, 2], [3, 4]]), "[[1, 2], [3, 4]]");
        assert_eq!(shown("a\n"), r#""a\n""#);
        assert_eq!(shown(&[1u8, 255][..]), "0x01ff");
        let line = Line {
            ends: [[-1, 2], [3, 4]],
            inner: Inner { a: 1, b: 2 },
            wide: 7,
            x: [-0.25, 1.0],
        };
        assert_eq!(
            shown(&line),
            "{ends: [[-1, 2], [3, 4]], inner: 0x0100000002000000, wide: 7, x: [-0.25, 1.0]}"
        );
    }

    #[test]
    fn foreign_descriptions_and_wrong_sizes_give_bytes() {
        for text in [
            "",
            "u",
            "u7",
            "u99999999999999999999",
            "f16",
            "[",
            "[u8; ]",
            "[u8; x]",
            "[; 3]",
            "[u64; 18446744073709551615]",
            "X (",
            "X (8 bytes, align 8: x)",
            "encoded é",
            "é",
            "X (8 bytes, align 8: x u64 @9)",
            "X (8 bytes, align 8: x u64 @0, y u64 @0)",
        ] {
            assert_eq!(
                Type::parse(text).read(&[1, 2]),
                Value::Bytes(vec![1, 2]),
                "{text}"
            );
        }
        let inverted = Type::parse("X (8 bytes, align 8: x u32 @4, y u32 @0)");
        assert_eq!(inverted.read(&[0; 8]), Value::Bytes(vec![0; 8]));
        assert_eq!(Type::Text.read(&[255]), Value::Bytes(vec![255]));
        let cut = Value::Bytes(vec![0; 65]).to_string();
        assert!(cut.ends_with("00… (65 bytes)"), "{cut}");
    }
}
