//! NumPy's `.npy`: a short header, then numbers as they are in memory.
//!
//! Tables of numbers are read: arrays of two dimensions, of floating-point numbers of 4 or 8 bytes
//! or integers of 1 to 8 bytes, in either byte order, row after row or column after column. All
//! become `f64`; a number that `f64` cannot represent exactly is an error.

/// The first bytes of every such file.
pub(crate) const SIGNATURE: &[u8] = b"\x93NUMPY";

/// Numbers in rows and columns.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Table {
    pub rows: usize,
    pub columns: usize,
    /// The elements, row after row.
    pub elements: Vec<f64>,
}

/// The reason why an array cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NpyError {
    /// The header is damaged, or of an array that is not read here.
    #[error("NumPy's header says {found}; {expected}")]
    Header {
        /// The contents of the header.
        found: String,
        /// What is expected.
        expected: &'static str,
    },
    /// There are more or fewer elements than the header says.
    #[error("the file has {found} elements, but its header says {rows} times {columns}")]
    Count {
        /// The number of elements, as far as there are bytes.
        found: usize,
        /// The number of rows in the header.
        rows: usize,
        /// The number of columns in the header.
        columns: usize,
    },
    /// An integer cannot be represented by an `f64` exactly.
    #[error(
        "element {at} is {found}, which a 64-bit floating-point number cannot represent \
         exactly; round it first: array.astype('<f8')"
    )]
    Inexact {
        /// The number of the element in the file, from 0.
        at: usize,
        /// Its value.
        found: i128,
    },
}

/// The encoding of an element in the file.
#[derive(Clone, Copy)]
struct Kind {
    is_big_endian: bool,
    /// `f`, `i` or `u`.
    letter: u8,
    /// 1 to 8.
    bytes: usize,
}

impl Kind {
    /// Reads a kind as NumPy writes it, such as `<f8`.
    fn parse(text: &str) -> Option<Self> {
        let [order, letter, digit] = *text.as_bytes() else {
            return None;
        };
        let bytes = usize::from(digit.wrapping_sub(b'0'));
        let is_known = match letter {
            b'f' => matches!(bytes, 4 | 8),
            b'i' | b'u' => matches!(bytes, 1 | 2 | 4 | 8),
            _ => false,
        };
        let has_order = matches!(order, b'<' | b'>') || order == b'|' && bytes == 1;
        (is_known && has_order).then_some(Self {
            is_big_endian: order == b'>',
            letter,
            bytes,
        })
    }

    /// Returns the number in `bytes`.
    ///
    /// # Errors
    /// If it is an integer that an `f64` cannot represent. Returns that integer.
    fn number(self, bytes: &[u8]) -> Result<f64, i128> {
        let mut word = [0; 8];
        word[..self.bytes].copy_from_slice(bytes);
        if self.is_big_endian {
            word[..self.bytes].reverse();
        }
        let word = u64::from_le_bytes(word);
        let unused = 64 - 8 * self.bytes as u32;
        let whole = match (self.letter, self.bytes) {
            (b'f', 4) => return Ok(f32::from_bits(word as u32).into()),
            (b'f', _) => return Ok(f64::from_bits(word)),
            // With its sign.
            (b'i', _) => i128::from((word << unused) as i64 >> unused),
            _ => i128::from(word),
        };
        let number = whole as f64;
        match number as i128 == whole {
            true => Ok(number),
            false => Err(whole),
        }
    }
}

/// Reads the table in `file`, which begins with the [signature](SIGNATURE).
pub(crate) fn table(file: &[u8]) -> Result<Table, NpyError> {
    let wrong = |found: String, expected| NpyError::Header { found, expected };
    let short = || wrong("more bytes than the file has".into(), "the file is cut off");
    let rest = file.get(SIGNATURE.len()..).ok_or_else(short)?;
    let (version, rest) = rest.split_first_chunk::<2>().ok_or_else(short)?;
    let (len, rest) = match version[0] {
        1 => {
            let (len, rest) = rest.split_first_chunk().ok_or_else(short)?;
            (usize::from(u16::from_le_bytes(*len)), rest)
        }
        2 | 3 => {
            let (len, rest) = rest.split_first_chunk().ok_or_else(short)?;
            (u32::from_le_bytes(*len) as usize, rest)
        }
        other => {
            let found = format!("version {other}");
            return Err(wrong(found, "versions 1 to 3 are supported"));
        }
    };
    let (header, data) = rest.split_at_checked(len).ok_or_else(short)?;
    let header = str::from_utf8(header).map_err(|_| wrong("no text".into(), "it is damaged"))?;
    // The value after a key, without quotes or blanks.
    let after = |key: &str| {
        let from = header.find(&format!("'{key}':"))? + key.len() + 3;
        Some(header[from..].trim_start())
    };
    let descr = after("descr").and_then(|rest| rest.strip_prefix('\'')?.split('\'').next());
    let kind = descr.and_then(Kind::parse).ok_or_else(|| {
        wrong(
            format!("elements of kind {}", descr.unwrap_or("unknown")),
            "f4, f8, i1 to i8 and u1 to u8 are supported: numpy.save(file, array.astype('<f8'))",
        )
    })?;
    let by_columns = match after("fortran_order") {
        Some(rest) if rest.starts_with("False") => false,
        Some(rest) if rest.starts_with("True") => true,
        _ => return Err(wrong("no order".into(), "`fortran_order` is needed")),
    };
    let shape = after("shape")
        .and_then(|rest| rest.strip_prefix('(')?.split(')').next())
        .unwrap_or_default();
    let sides: Option<Vec<usize>> = { shape.trim_end_matches(',').split(',') }
        .map(|side| side.trim().parse().ok())
        .collect();
    let said = || format!("a shape of ({shape})");
    let [rows, columns] = match sides.as_deref() {
        Some([rows, columns]) => [*rows, *columns],
        Some([_]) => {
            let expected =
                "two sides are needed, as in (3, 4): array.reshape(-1, 1) makes it one column";
            return Err(wrong(said(), expected));
        }
        _ => return Err(wrong(said(), "two sides are needed, as in (3, 4)")),
    };
    let count = rows.checked_mul(columns).filter(|count| *count > 0);
    let count = count.ok_or_else(|| {
        wrong(
            said(),
            "the array needs at least one element and has to fit into memory",
        )
    })?;
    let numbers = data.chunks_exact(kind.bytes);
    if numbers.len() != count || !numbers.remainder().is_empty() {
        return Err(NpyError::Count {
            found: numbers.len(),
            rows,
            columns,
        });
    }
    let elements = numbers.enumerate().map(|(at, bytes)| {
        let number = kind.number(bytes);
        number.map_err(|found| NpyError::Inexact { at, found })
    });
    let elements = elements.collect::<Result<Vec<f64>, _>>()?;
    let elements = match by_columns {
        true => by_rows(rows, columns, &elements),
        false => elements,
    };
    Ok(Table {
        rows,
        columns,
        elements,
    })
}

/// Reorders the elements of a table from column after column to row after row.
pub(crate) fn by_rows(rows: usize, columns: usize, elements: &[f64]) -> Vec<f64> {
    let at = |at: usize| elements[at % columns * rows + at / columns];
    (0..elements.len()).map(at).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns a file as numpy.save writes it.
    pub fn file(kind: &str, order: &str, shape: &str, data: &[u8]) -> Vec<u8> {
        let header =
            format!("{{'descr': '{kind}', 'fortran_order': {order}, 'shape': ({shape}), }}\n");
        let mut file = b"\x93NUMPY\x02\x00".to_vec();
        file.extend((header.len() as u32).to_le_bytes());
        file.extend(header.bytes());
        file.extend(data);
        file
    }

    fn read(kind: &str, data: &[u8]) -> Vec<f64> {
        let shape = format!("1, {}", data.len() / usize::from(kind.as_bytes()[2] - b'0'));
        table(&file(kind, "False", &shape, data)).unwrap().elements
    }

    /// Both byte orders of a type.
    macro_rules! numbers {
        ($kind:literal, $type:ty, $numbers:expr) => {
            let numbers: Vec<$type> = $numbers.to_vec();
            let expected: Vec<f64> = numbers.iter().map(|number| *number as f64).collect();
            let little: Vec<u8> = numbers.iter().flat_map(|it| it.to_le_bytes()).collect();
            let big: Vec<u8> = numbers.iter().flat_map(|it| it.to_be_bytes()).collect();
            assert_eq!(read(concat!("<", $kind), &little), expected, $kind);
            assert_eq!(read(concat!(">", $kind), &big), expected, $kind);
        };
    }

    #[test]
    fn numbers_of_all_kinds_are_read() {
        numbers!("f4", f32, [1.5, -2.25, f32::MIN_POSITIVE, f32::MAX]);
        numbers!("f8", f64, [1.5, -1e300, 0.1]);
        numbers!("i1", i8, [-128, -1, 127]);
        numbers!("i2", i16, [i16::MIN, -1, 259]);
        numbers!("i4", i32, [i32::MIN, -1, 0x0102_0304]);
        numbers!("i8", i64, [i64::MIN, -1, 1 << 53]);
        numbers!("u1", u8, [0, 128, 255]);
        numbers!("u2", u16, [259, u16::MAX]);
        numbers!("u4", u32, [0x0102_0304, u32::MAX]);
        numbers!("u8", u64, [1 << 63, 1 << 53]);
        assert_eq!(read("|u1", &[7, 200]), [7.0, 200.0]);
        assert_eq!(read("|i1", &[7, 200]), [7.0, -56.0]);
    }

    #[test]
    fn columns_first_and_rows_first_are_the_same_table() {
        let rows = table(&file("|u1", "False", "2, 3", &[1, 2, 3, 4, 5, 6]));
        let columns = table(&file("|u1", "True", "2, 3", &[1, 4, 2, 5, 3, 6]));
        assert_eq!(rows, columns);
    }

    #[test]
    fn it_says_what_is_wrong() {
        let said = |kind: &str, shape: &str, data: &[u8]| {
            let read = table(&file(kind, "False", shape, data));
            read.unwrap_err().to_string()
        };
        for kind in [
            "<f2", "<c8", "|b1", "<U3", "=f8", "<i3", "<f16", "|i2", "|O",
        ] {
            let found = said(kind, "1, 1", &[0; 8]);
            assert!(
                found.contains(&format!("elements of kind {kind}; f4, f8")),
                "{found}"
            );
        }
        let large = (1i64 << 53) + 1;
        assert!(
            said("<i8", "1, 1", &large.to_le_bytes()).contains("element 0 is 9007199254740993")
        );
        assert!(said(">u8", "1, 1", &u64::MAX.to_be_bytes()).contains("18446744073709551615"));
        assert!(said("<f8", "3,", &[0; 24]).contains("reshape(-1, 1)"));
        assert!(said("<f8", "1, 2, 3", &[0; 48]).contains("two sides"));
        assert!(said("<f8", "", &[]).contains("two sides"));
        assert!(said("<f8", "0, 3", &[]).contains("at least one element"));
        assert!(said("<f8", "9, 9", &[0; 8]).contains("1 elements, but its header says 9 times 9"));
        assert!(said("<f4", "1, 1", &[0; 5]).contains("1 elements"));
        assert!(
            table(b"\x93NUMPY")
                .unwrap_err()
                .to_string()
                .contains("cut off")
        );
        let mut later = file("<f8", "False", "1, 1", &[0; 8]);
        later[6] = 4;
        assert!(table(&later).unwrap_err().to_string().contains("version 4"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_table_or_are_refused(
            kind in prop::sample::select(vec!["<f8", ">i2", "|u1", "<u8"]),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..5),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut file = file(kind, "True", "2, 3", &[1; 48]);
            for (at, byte) in changes {
                let at = at.index(file.len());
                file[at] = byte;
            }
            file.truncate(SIGNATURE.len() + cut.index(file.len() * 2));
            if let Ok(read) = table(&file) {
                prop_assert_eq!(read.elements.len(), read.rows * read.columns);
            }
        }
    }
}
