//! The layout of a file: which of its bytes are counted, and the channel of each.

use super::bitmap::{bitmap, is_bitmap};
use super::compressed::name_of_compressed;
use super::{Bins, CHANNELS};
use std::ops::Range;

/// The file format by which the bytes of a file are interpreted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// A picture if it begins like one, else any data.
    #[default]
    Any,
    /// Any data, even if it begins like a picture.
    Bytes,
}

/// The location of the bytes to be counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Their range in the file.
    data: Range<usize>,
    points: Points,
    /// The number of bytes of a row that count, and the distance between rows.
    row: usize,
    stride: usize,
}

/// The layout of the values of a point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Points {
    pub channels: &'static [&'static str],
    /// The number of bytes of a point: 1, 3 or 4.
    pub bytes: usize,
    /// The channel of each byte; [`UNUSED`] if it has none.
    pub channel_of: [u8; 4],
    /// The palette, if the value of a point is an index into one.
    pub palette: Option<Box<Palette>>,
}

/// The colours of a picture: blue, green and red of each.
pub(super) type Palette = [[u8; 3]; 256];

/// The channel of a byte that is not counted: alpha, or an unused byte.
pub(super) const UNUSED: u8 = CHANNELS as u8;

impl Points {
    /// Returns the layout of points with one byte for each of `channels`.
    pub const fn plain(channels: &'static [&'static str]) -> Self {
        Self {
            channels,
            bytes: channels.len(),
            channel_of: [0, 1, 2, UNUSED],
            palette: None,
        }
    }
}

pub(super) const BYTES: &[&str] = &["bytes"];
pub(super) const GRAY: &[&str] = &["gray"];
const RED_GREEN_BLUE: &[&str] = &["red", "green", "blue"];
pub(super) const BLUE_GREEN_RED: &[&str] = &["blue", "green", "red"];
/// The sets of channels, in the order of their numbers in words.
const KINDS: [&[&str]; 4] = [BYTES, GRAY, RED_GREEN_BLUE, BLUE_GREEN_RED];

/// The first bytes of a file, and its length.
#[derive(Clone, Copy)]
pub(super) struct Head<'f> {
    pub bytes: &'f [u8],
    pub len: usize,
}

/// The reason why a picture cannot be counted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The picture ends too early.
    #[error(
        "the {format} is cut off: it has {found} bytes and should have {expected}; copy it again"
    )]
    CutOff {
        /// The format.
        format: &'static str,
        /// Its length in bytes.
        found: usize,
        /// The least length that it should have.
        expected: u64,
    },
    /// The kind of picture is not supported.
    #[error(
        "the {format} has {what} {found}, and only {expected} is supported; convert it, or count \
         its bytes as they are with --bytes"
    )]
    Unsupported {
        /// The format.
        format: &'static str,
        /// The property.
        what: &'static str,
        /// The value that was found.
        found: i64,
        /// The supported values.
        expected: &'static str,
    },
    /// Its values cannot be counted without decompressing them.
    #[error(
        "this is a {format}, whose values are compressed; convert it to a bitmap or PPM without compression, or count \
         its bytes as they are with --bytes"
    )]
    Compressed {
        /// The format.
        format: &'static str,
    },
    /// The header is invalid.
    #[error("the header of the {format} is wrong at byte {at}: {what}")]
    Header {
        /// The format.
        format: &'static str,
        /// The offset.
        at: usize,
        /// What is wrong.
        what: &'static str,
    },
}

impl Layout {
    /// The number of first bytes that suffice to [find](Self::find_by) the data of a file.
    pub const HEAD: usize = 1 << 20;

    /// Finds the layout of the complete file `file`.
    ///
    /// # Errors
    /// If it begins like a picture and is invalid, or of an unsupported kind.
    pub fn find(file: &[u8], format: Format) -> Result<Self, FormatError> {
        Self::find_by(file, file.len(), format)
    }

    /// Finds the layout of a file of `len` bytes from its [first bytes](Self::HEAD).
    ///
    /// # Errors
    /// Returns the errors of [`find`](Self::find).
    pub fn find_by(head: &[u8], len: usize, format: Format) -> Result<Self, FormatError> {
        let file = Head { bytes: head, len };
        match (format, head) {
            (Format::Any, _) if is_bitmap(head) => bitmap(file),
            (Format::Any, [b'P', b'5', next, ..]) if is_blank(*next) => pnm(file, "PGM", GRAY),
            (Format::Any, [b'P', b'6', next, ..]) if is_blank(*next) => {
                pnm(file, "PPM", RED_GREEN_BLUE)
            }
            _ => match name_of_compressed(head).filter(|_| format == Format::Any) {
                Some(format) => Err(FormatError::Compressed { format }),
                None => Ok(Self {
                    data: 0..len,
                    points: Points::plain(BYTES),
                    row: len.max(1),
                    stride: len.max(1),
                }),
            },
        }
    }

    /// Encodes it as words, for a segment: all but the palette, which is not needed for counting.
    pub(super) fn to_words(&self) -> [u64; 5] {
        let Points {
            channels,
            bytes,
            channel_of,
            ..
        } = &self.points;
        let kind = KINDS.iter().position(|kind| kind == channels).unwrap_or(0);
        let [a, b, c, d] = *channel_of;
        let points = u64::from_le_bytes([kind as u8, *bytes as u8, a, b, c, d, 0, 0]);
        let [start, end] = [self.data.start, self.data.end].map(|place| place as u64);
        [start, end, points, self.row as u64, self.stride as u64]
    }

    /// Decodes words; `None` if they are invalid.
    pub(super) fn from_words(words: [u64; 5]) -> Option<Self> {
        let [start, end, _, row, stride] = words.map(|word| word as usize);
        let [kind, bytes, channel_of @ .., _, _] = words[2].to_le_bytes();
        let fits = start <= end && row > 0 && row <= stride;
        let is_known = matches!(bytes, 1 | 3 | 4) && channel_of.iter().all(|it| *it <= UNUSED);
        let points = Points {
            channels: KINDS.get(usize::from(kind))?,
            bytes: bytes.into(),
            channel_of,
            palette: None,
        };
        (fits && is_known).then_some(Self {
            data: start..end,
            points,
            row,
            stride,
        })
    }

    /// Returns the range of the data in the file.
    pub fn data(&self) -> Range<usize> {
        self.data.clone()
    }

    /// Returns the names of the channels, in their usual order in the data.
    pub fn channels(&self) -> &'static [&'static str] {
        self.points.channels
    }

    /// Returns the number of bytes of a point: 1, 3 or 4.
    pub(super) fn bytes_of_a_point(&self) -> usize {
        self.points.bytes
    }

    /// Returns the channel of byte `byte` of each point; `None` if the byte is not counted.
    pub(super) fn channel_of(&self, byte: usize) -> Option<usize> {
        let channel = usize::from(self.points.channel_of[byte]);
        (channel < CHANNELS).then_some(channel)
    }

    /// Returns the palette, if the values of points are numbers of colours.
    pub(super) fn palette(&self) -> Option<&Palette> {
        self.points.palette.as_deref()
    }

    /// Returns the counts of the channels, from those of the [data](super::kernel::count): numbers
    /// of colours count as the colours.
    pub fn of_channels(&self, data: Bins) -> Bins {
        let Some(palette) = self.palette() else {
            return data;
        };
        let mut bins = Bins::default();
        for (colour, count) in palette.iter().zip(data.of(0)) {
            let counts = bins.counts_mut().iter_mut().take(self.channels().len());
            for (counts, value) in counts.zip(colour) {
                counts[usize::from(*value)] += count;
            }
        }
        bins
    }

    /// Returns the number of bytes of a row without its padding.
    pub fn row(&self) -> usize {
        self.row
    }

    /// Returns the distance between rows in bytes.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Returns the layout of a picture of `width` times `height` points with data that begin at
    /// `start`. Bytes after them do not count.
    pub(super) fn picture(
        file: Head<'_>,
        format: &'static str,
        points: Points,
        start: u64,
        (width, height): (u64, u64),
        align: u64,
    ) -> Result<Self, FormatError> {
        // Both are below 2^32 and a point has at most four bytes.
        let row = width * points.bytes as u64;
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
            points,
            row: row as usize,
            stride: stride as usize,
        })
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Finds the layout of a netpbm picture: `P5` or `P6`, width, height and largest value in decimal
/// digits, white space and comments between them, and one white space before the data.
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
    Layout::picture(
        file,
        format,
        Points::plain(channels),
        at as u64 + 1,
        size,
        1,
    )
}

#[cfg(test)]
mod tests {
    use super::super::{count, generate};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_picture_has_the_same_counts_in_every_format() {
        // 3 times 5 is not a multiple of 4: the bitmap's rows are padded.
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
            head in prop::sample::select(vec![&b"P5 "[..], b"P6\n", b"P5 3 2 255 ", b""]),
            tail in prop::collection::vec(any::<u8>(), 0..90),
        ) {
            let file = [head, &tail].concat();
            if let Ok(layout) = Layout::find(&file, Format::Any) {
                prop_assert!(count(&file, &layout).total() <= file.len() as u64);
                let words = layout.to_words();
                prop_assert_eq!(Layout::from_words(words), Some(layout));
            }
        }
    }
}
