//! Windows bitmaps: 14 bytes of file header, then a header that begins with its own length.
//!
//! ```text
//!  at 10  where the data begin     18  width, height    28  bits of a point    46  colours of the palette
//!     14  length of the header     26  1 (planes)       30  compression        54  masks of red, green, blue
//! ```

use super::layout::{BLUE_GREEN_RED, FormatError, GRAY, Head, Layout, Palette, Points, UNUSED};

const FORMAT: &str = "bitmap";
/// The lengths of headers, of OS/2 and of Windows.
const HEADERS: [u32; 8] = [12, 16, 40, 52, 56, 64, 108, 124];
/// The compression number of points with bits that are given by masks.
const MASKS: u32 = 3;

/// Returns whether a file that begins with `head` is a bitmap: texts may begin with `BM` as well.
pub(super) fn is_bitmap(head: &[u8]) -> bool {
    let header = number(head, 14, 4);
    let planes_at = if header == Some(12) { 22 } else { 26 };
    head.starts_with(b"BM")
        && header.is_some_and(|header| HEADERS.contains(&header))
        && number(head, planes_at, 2) == Some(1)
}

/// Returns the `len` bytes at `at` as a number; `None` if not all of them exist.
fn number(bytes: &[u8], at: usize, len: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + len)?.iter().rev();
    Some(bytes.fold(0, |number, byte| number << 8 | u32::from(*byte)))
}

/// Finds the points of a [bitmap](is_bitmap).
pub(super) fn bitmap(file: Head<'_>) -> Result<Layout, FormatError> {
    let number = |at: usize, len: usize| -> Result<u32, FormatError> {
        number(file.bytes, at, len).ok_or(FormatError::CutOff {
            format: FORMAT,
            found: file.len,
            expected: (at + len).max(54) as u64,
        })
    };
    let header = number(14, 4)?;
    if header < 40 {
        return Err(unsupported("a header of length", header, "40 or more"));
    }
    let (bits, compression) = (number(28, 2)?, number(30, 4)?);
    match compression {
        0 => {}
        MASKS if bits == 32 => {}
        1 => return Err(compressed("bitmap with run lengths (RLE8)")),
        2 => return Err(compressed("bitmap with run lengths (RLE4)")),
        4 => return Err(compressed("bitmap with a JPEG picture in it")),
        5 => return Err(compressed("bitmap with a PNG picture in it")),
        _ => return Err(unsupported("compression", compression, "0 (none)")),
    }
    let start = number(10, 4)?;
    let mut behind = 14 + u64::from(header);
    let points = match bits {
        8 => {
            let colours = match number(46, 4)? {
                0 => 256,
                colours => colours,
            };
            if colours > 256 {
                return wrong(46, "the palette has more than 256 colours");
            }
            let mut palette: Palette = [[0; 3]; 256];
            for (colour, at) in palette
                .iter_mut()
                .zip((behind as usize..).step_by(4))
                .take(colours as usize)
            {
                let [blue, green, red, _] = number(at, 4)?.to_le_bytes();
                *colour = [blue, green, red];
            }
            behind += 4 * u64::from(colours);
            let is_gray = palette
                .iter()
                .all(|[blue, green, red]| blue == green && green == red);
            Points {
                channels: if is_gray { GRAY } else { BLUE_GREEN_RED },
                bytes: 1,
                channel_of: [0, UNUSED, UNUSED, UNUSED],
                palette: Some(Box::new(palette)),
            }
        }
        24 => Points::plain(BLUE_GREEN_RED),
        32 if compression == MASKS => {
            // They are after the header if that is the short one, else at its end: the same offset.
            behind = behind.max(54 + 12);
            let mut channel_of = [UNUSED; 4];
            for (channel, at) in [(2, 54), (1, 58), (0, 62)] {
                let mask = number(at, 4)?;
                match (0..4).find(|byte| mask == 0xFF << (8 * byte)) {
                    Some(byte) if channel_of[byte] == UNUSED => channel_of[byte] = channel,
                    _ => {
                        return Err(unsupported(
                            "the colour mask",
                            mask,
                            "a byte of its own for each colour",
                        ));
                    }
                }
            }
            Points {
                channels: BLUE_GREEN_RED,
                bytes: 4,
                channel_of,
                palette: None,
            }
        }
        32 => Points {
            bytes: 4,
            ..Points::plain(BLUE_GREEN_RED)
        },
        _ => return Err(unsupported("bits per point", bits, "8, 24 or 32")),
    };
    if u64::from(start) < behind {
        return wrong(10, "the data begin within the header");
    }
    // A negative height means that the upper row comes first.
    let (width, height) = (number(18, 4)? as i32, number(22, 4)? as i32);
    if width <= 0 || height == 0 {
        return wrong(18, "the picture has no points");
    }
    let size = (u64::from(width as u32), u64::from(height.unsigned_abs()));
    Layout::picture(file, FORMAT, points, start.into(), size, 4)
}

fn unsupported(what: &'static str, found: u32, expected: &'static str) -> FormatError {
    FormatError::Unsupported {
        format: FORMAT,
        what,
        found: i64::from(found),
        expected,
    }
}

fn compressed(format: &'static str) -> FormatError {
    FormatError::Compressed { format }
}

fn wrong(at: usize, what: &'static str) -> Result<Layout, FormatError> {
    Err(FormatError::Header {
        format: FORMAT,
        at,
        what,
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Bins, Format, count, generate, verify};
    use super::*;
    use proptest::prelude::*;

    fn counted(file: &[u8]) -> (Layout, Bins) {
        let layout = Layout::find(file, Format::Any).unwrap();
        let bins = count(file, &layout);
        assert_eq!(verify::verify(file, &layout, &bins), Ok(()));
        (layout, bins)
    }

    #[test]
    fn points_of_four_bytes_count_as_those_of_three() {
        let (_, expected) = counted(&generate::bmp(13, 7, 5));
        // Blue, green, red and an unused byte; then as given by masks.
        for (masks, places) in [
            (None, [0, 1, 2]),
            (Some([0x00FF_0000, 0xFF00, 0xFF]), [0, 1, 2]),
            (Some([0xFF, 0xFF00, 0x00FF_0000]), [2, 1, 0]),
            (Some([0xFF00_0000, 0x00FF_0000, 0xFF00]), [1, 2, 3]),
        ] {
            let file = generate::bmp_of_32_bits(13, 7, 5, masks);
            let (layout, bins) = counted(&file);
            assert_eq!(bins, expected, "{masks:?}");
            let channels = (0..4).filter_map(|byte| Some((byte, layout.channel_of(byte)?)));
            assert!(
                channels
                    .into_iter()
                    .all(|(byte, channel)| places[channel] == byte)
            );
        }
        let within_bytes = generate::bmp_of_32_bits(2, 2, 1, Some([0x3FF, 0xFFC00, 0x3FF0_0000]));
        let said = Layout::find(&within_bytes, Format::Any)
            .unwrap_err()
            .to_string();
        assert!(
            said.contains("the colour mask 1023, and only a byte"),
            "{said}"
        );
    }

    #[test]
    fn numbers_of_colours_count_as_the_colours() {
        // A row is padded.
        let gray = generate::bmp_of_8_bits(5, 9, 3, |number| [number; 3]);
        let pgm = generate::pgm(5, 9, 3);
        let (layout, bins) = counted(&gray);
        assert_eq!((layout.channels(), layout.stride()), (&["gray"][..], 8));
        assert_eq!(bins, counted(&pgm).1);
        let coloured = generate::bmp_of_8_bits(5, 9, 3, |number| [255 - number, number / 2, 7]);
        let (layout, bins) = counted(&coloured);
        assert_eq!(layout.channels(), ["blue", "green", "red"]);
        let gray = counted(&pgm).1;
        for value in 0..256 {
            assert_eq!(bins.of(0)[255 - value], gray.of(0)[value]);
        }
        let halves = |half: usize| gray.of(0)[2 * half] + gray.of(0)[2 * half + 1];
        assert!((0..128).all(|half| bins.of(1)[half] == halves(half)));
        assert_eq!(bins.of(2)[7], 45);
        // With fewer colours the others are black.
        let mut few = coloured.clone();
        few[46..50].copy_from_slice(&1u32.to_le_bytes());
        assert_eq!(counted(&few).1.of(2)[0], 45 - gray.of(0)[0]);
        few[46..50].copy_from_slice(&257u32.to_le_bytes());
        assert!(
            Layout::find(&few, Format::Any)
                .unwrap_err()
                .to_string()
                .contains("more than 256")
        );
    }

    #[test]
    fn it_says_what_is_wrong() {
        let said = |file: &[u8]| Layout::find(file, Format::Any).unwrap_err().to_string();
        let bmp = generate::bmp(4, 4, 1);
        let cut = said(&bmp[..40]);
        assert!(cut.contains("cut off: it has 40 bytes"), "{cut}");
        assert!(said(&bmp[..bmp.len() - 1]).contains("cut off"));
        let with = |at: usize, byte: u8| {
            let mut file = bmp.clone();
            file[at] = byte;
            said(&file)
        };
        assert!(with(28, 16).contains("bits per point 16, and only 8, 24 or 32"));
        assert!(with(30, 1).contains("run lengths (RLE8), whose values are compressed"));
        assert!(with(30, 9).contains("compression 9, and only 0 (none)"));
        assert!(with(10, 20).contains("at byte 10: the data begin within the header"));
    }

    #[test]
    fn a_text_that_begins_like_a_bitmap_is_counted_as_bytes() {
        for text in [
            &b"BM"[..],
            b"BMW is a maker of cars and motorcycles in Munich.\n",
        ] {
            let layout = Layout::find(text, Format::Any).unwrap();
            assert_eq!(layout.channels(), ["bytes"]);
            assert_eq!(count(text, &layout).total(), text.len() as u64);
        }
    }

    proptest! {
        #[test]
        fn a_bitmap_with_wrong_bytes_is_counted_or_refused(
            kind in 0..3,
            changes in prop::collection::vec((0usize..70, any::<u8>()), 1..6),
        ) {
            let mut file = match kind {
                0 => generate::bmp(9, 4, 5),
                1 => generate::bmp_of_8_bits(9, 4, 5, |number| [number, 0, 0]),
                _ => generate::bmp_of_32_bits(9, 4, 5, Some([0xFF, 0xFF00, 0xFF0000])),
            };
            changes.iter().for_each(|(at, byte)| file[*at] = *byte);
            if let Ok(layout) = Layout::find(&file, Format::Any) {
                let bins = count(&file, &layout);
                prop_assert!(bins.total() <= 3 * file.len() as u64);
                prop_assert_eq!(verify::verify(&file, &layout, &bins), Ok(()));
            }
        }
    }
}
