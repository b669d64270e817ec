//! Where in a file the bytes stand that are to be counted.

use std::ops::Range;

/// What a file is taken for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// A picture if it begins like one, else any data.
    #[default]
    Any,
    /// Any data, whatever it begins like.
    Bytes,
}

/// Where the bytes stand that are to be counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The first of them, and behind the last.
    data: Range<usize>,
    channels: &'static [&'static str],
    /// How many bytes of a row count, and how far it is from one row to the next.
    row: usize,
    stride: usize,
}

const BYTES: &[&str] = &["bytes"];
const GRAY: &[&str] = &["gray"];
const RED_GREEN_BLUE: &[&str] = &["red", "green", "blue"];
const BLUE_GREEN_RED: &[&str] = &["blue", "green", "red"];
/// What channels there are, in the order in which words name them.
const KINDS: [&[&str]; 4] = [BYTES, GRAY, RED_GREEN_BLUE, BLUE_GREEN_RED];

/// The first bytes of a file, and how long it is.
#[derive(Clone, Copy)]
struct Head<'f> {
    bytes: &'f [u8],
    len: usize,
}

/// Why a picture cannot be counted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// It ends too early.
    #[error("the {format} is cut off: it has {found} bytes and should have {expected}")]
    CutOff {
        /// What it is.
        format: &'static str,
        /// How long it is.
        found: usize,
        /// How long it should be at least.
        expected: u64,
    },
    /// It is of a kind that is not read here.
    #[error(
        "the {format} has {what} {found}, and only {expected} is read here; convert it, or count it as plain bytes"
    )]
    Unsupported {
        /// What it is.
        format: &'static str,
        /// What of it.
        what: &'static str,
        /// Which.
        found: i64,
        /// What would do.
        expected: &'static str,
    },
    /// Its header is not what the format says.
    #[error("the header of the {format} is wrong at byte {at}: {what}")]
    Header {
        /// What it is.
        format: &'static str,
        /// Where.
        at: usize,
        /// What is wrong.
        what: &'static str,
    },
}

impl Layout {
    /// How many bytes of a file are surely enough to [find](Self::find_by) where its data stand.
    pub const HEAD: usize = 1 << 20;

    /// Looks at `file`, which is whole.
    ///
    /// # Errors
    /// If it begins like a picture and is none, or one of a kind that is not read here.
    pub fn find(file: &[u8], format: Format) -> Result<Self, FormatError> {
        Self::find_by(file, file.len(), format)
    }

    /// The same of a file of which only the [first bytes](Self::HEAD) are at hand, and its length.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn find_by(head: &[u8], len: usize, format: Format) -> Result<Self, FormatError> {
        let file = Head { bytes: head, len };
        match (format, head) {
            (Format::Any, [b'B', b'M', ..]) => bmp(file),
            (Format::Any, [b'P', b'5', next, ..]) if is_blank(*next) => pnm(file, "PGM", GRAY),
            (Format::Any, [b'P', b'6', next, ..]) if is_blank(*next) => {
                pnm(file, "PPM", RED_GREEN_BLUE)
            }
            _ => Ok(Self {
                data: 0..len,
                channels: BYTES,
                row: len.max(1),
                stride: len.max(1),
            }),
        }
    }

    /// As words, for a segment.
    pub(super) fn to_words(&self) -> [u64; 5] {
        let kind = KINDS.iter().position(|kind| *kind == self.channels);
        let numbers = [
            self.data.start,
            self.data.end,
            kind.unwrap_or(0),
            self.row,
            self.stride,
        ];
        numbers.map(|number| number as u64)
    }

    /// From words; `None` if they are of no layout.
    pub(super) fn from_words(words: [u64; 5]) -> Option<Self> {
        let [start, end, kind, row, stride] = words.map(|word| word as usize);
        (start <= end && row > 0 && row <= stride).then_some(Self {
            data: start..end,
            channels: KINDS.get(kind)?,
            row,
            stride,
        })
    }

    /// Where in the file the data are.
    pub fn data(&self) -> Range<usize> {
        self.data.clone()
    }

    /// What the channels are called, in the order in which they stand in the data.
    pub fn channels(&self) -> &'static [&'static str] {
        self.channels
    }

    /// How many bytes of a row count.
    pub fn row(&self) -> usize {
        self.row
    }

    /// How far it is from one row to the next.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// A picture of `width` times `height` points whose data begin at `start`. What stands behind it does not count.
    fn picture(
        file: Head<'_>,
        format: &'static str,
        channels: &'static [&'static str],
        start: u64,
        (width, height): (u64, u64),
        align: u64,
    ) -> Result<Self, FormatError> {
        // Both are below 2^32 and a point has at most three bytes.
        let row = width * channels.len() as u64;
        let stride = row.next_multiple_of(align);
        // The last row's padding may be missing.
        let expected =
            u128::from(start) + u128::from(stride) * u128::from(height - 1) + u128::from(row);
        if expected > file.len as u128 {
            return Err(FormatError::CutOff {
                format,
                found: file.len,
                expected: u64::try_from(expected).unwrap_or(u64::MAX),
            });
        }
        Ok(Self {
            data: start as usize..expected as usize,
            channels,
            row: row as usize,
            stride: stride as usize,
        })
    }
}

/// A Windows bitmap: 14 bytes of file header, then a header that says its own length.
fn bmp(file: Head<'_>) -> Result<Layout, FormatError> {
    let format = "bitmap";
    let number = |at: usize, len: usize| -> Result<u32, FormatError> {
        let bytes = file.bytes.get(at..at + len).ok_or(FormatError::CutOff {
            format,
            found: file.len,
            expected: 54,
        })?;
        Ok(bytes
            .iter()
            .rev()
            .fold(0, |number, byte| number << 8 | u32::from(*byte)))
    };
    let only = |what, found: u32, expected: u32, name| match found == expected {
        true => Ok(()),
        false => Err(FormatError::Unsupported {
            format,
            what,
            found: i64::from(found),
            expected: name,
        }),
    };
    let header = number(14, 4)?;
    if header < 40 {
        return Err(FormatError::Unsupported {
            format,
            what: "a header of length",
            found: i64::from(header),
            expected: "40 or more",
        });
    }
    only("bits per point", number(28, 2)?, 24, "24")?;
    only("compression", number(30, 4)?, 0, "0 (none)")?;
    let start = number(10, 4)?;
    if u64::from(start) < 14 + u64::from(header) {
        let what = "the data begin within the header";
        return Err(FormatError::Header {
            format,
            at: 10,
            what,
        });
    }
    // A negative height means that the upper row comes first.
    let (width, height) = (number(18, 4)? as i32, number(22, 4)? as i32);
    if width <= 0 || height == 0 {
        let what = "the picture has no points";
        return Err(FormatError::Header {
            format,
            at: 18,
            what,
        });
    }
    let size = (u64::from(width as u32), u64::from(height.unsigned_abs()));
    Layout::picture(file, format, BLUE_GREEN_RED, start.into(), size, 4)
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// A picture of netpbm's: `P5` or `P6`, width, height and largest value in decimal digits, white space and comments between
/// them, and one white space before the data.
fn pnm(
    file: Head<'_>,
    format: &'static str,
    channels: &'static [&'static str],
) -> Result<Layout, FormatError> {
    let mut at = 2;
    let mut numbers = [0u32; 3];
    let wrong = |at, what| Err(FormatError::Header { format, at, what });
    for number in &mut numbers {
        let mut in_comment = false;
        while let Some(byte) = file.bytes.get(at)
            && (in_comment || is_blank(*byte) || *byte == b'#')
        {
            in_comment = *byte == b'#' || (in_comment && !matches!(byte, b'\n' | b'\r'));
            at += 1;
        }
        let start = at;
        while let Some(byte) = file.bytes.get(at).filter(|byte| byte.is_ascii_digit()) {
            let digit = u32::from(byte - b'0');
            let Some(next) = number
                .checked_mul(10)
                .and_then(|ten| ten.checked_add(digit))
            else {
                return wrong(start, "the number is too large");
            };
            *number = next;
            at += 1;
        }
        if at == start {
            return wrong(at, "a number is missing");
        }
        if *number == 0 {
            return wrong(start, "the number is 0");
        }
    }
    if file.bytes.get(at).is_none_or(|byte| !is_blank(*byte)) {
        return wrong(at, "there is no white space before the data");
    }
    let [width, height, largest] = numbers;
    if largest > 255 {
        return Err(FormatError::Unsupported {
            format,
            what: "values up to",
            found: largest.into(),
            expected: "255 or less",
        });
    }
    let size = (width.into(), height.into());
    Layout::picture(file, format, channels, at as u64 + 1, size, 1)
}

#[cfg(test)]
mod tests {
    use super::super::{count, generate};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_picture_has_the_same_counts_in_every_format() {
        // 3 times 5 is no multiple of 4: the bitmap's rows are padded.
        let (bmp, ppm) = (generate::bmp(5, 7, 3), generate::ppm(5, 7, 3));
        let layouts = [&bmp, &ppm].map(|file| Layout::find(file, Format::Any).unwrap());
        assert_eq!((layouts[0].row(), layouts[0].stride()), (15, 16));
        let [mut a, b] = [count(&bmp, &layouts[0]), count(&ppm, &layouts[1])];
        assert_ne!(a, b);
        a.counts_mut().swap(0, 2);
        assert_eq!(a, b);
        // As plain bytes, headers and padding count too.
        let all = Layout::find(&bmp, Format::Bytes).unwrap();
        assert_eq!(
            count(&bmp, &all).of(0).iter().sum::<u64>(),
            bmp.len() as u64
        );
        assert_eq!(
            count(&[], &Layout::find(&[], Format::Any).unwrap()).total(),
            0
        );
    }

    #[test]
    fn it_says_what_is_wrong() {
        let said = |file: &[u8]| Layout::find(file, Format::Any).unwrap_err().to_string();
        let mut bmp = generate::bmp(4, 4, 1);
        assert!(
            said(&bmp[..40]).contains("cut off: it has 40 bytes"),
            "{}",
            said(&bmp[..40])
        );
        assert!(said(&bmp[..bmp.len() - 1]).contains("cut off"));
        bmp[28] = 8;
        assert!(
            said(&bmp).contains("bits per point 8, and only 24"),
            "{}",
            said(&bmp)
        );
        bmp[28] = 24;
        bmp[30] = 1;
        assert!(said(&bmp).contains("compression 1"));
        assert!(said(b"P6 2 1 65535 ").contains("values up to 65535"));
        assert!(said(b"P5 2 # two\n x").contains("at byte 12: a number is missing"));
        assert!(said(b"P5\n0 1 255 ").contains("the number is 0"));
        assert!(said(b"P5 99999999999 1 255 ").contains("too large"));
        assert!(said(b"P5 1 1 255").contains("no white space"));
        assert!(said(b"P6 4000000000 4000000000 255 ").contains("cut off"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_data_or_are_refused(
            head in prop::sample::select(vec![&b"BM"[..], b"P5 ", b"P6\n", b"P5 3 2 255 ", b""]),
            tail in prop::collection::vec(any::<u8>(), 0..90),
        ) {
            let file = [head, &tail].concat();
            if let Ok(layout) = Layout::find(&file, Format::Any) {
                prop_assert!(count(&file, &layout).total() <= file.len() as u64);
                let words = layout.to_words();
                prop_assert_eq!(Layout::from_words(words), Some(layout));
            }
        }

        #[test]
        fn a_bitmap_with_wrong_bytes_is_a_bitmap_or_is_refused(
            changes in prop::collection::vec((0usize..54, any::<u8>()), 1..6),
        ) {
            let mut file = generate::bmp(9, 4, 5);
            changes.iter().for_each(|(at, byte)| file[*at] = *byte);
            if let Ok(layout) = Layout::find(&file, Format::Any) {
                prop_assert!(count(&file, &layout).total() <= file.len() as u64);
            }
        }
    }
}
