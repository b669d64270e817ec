//! Verifies counts by counting in another way: every point is looked up by its row and column.

use super::{Bins, CHANNELS, Layout};

/// A wrong count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "value {value} of channel {channel} occurs {expected} times, and was counted {found} times"
)]
pub struct Mismatch {
    /// The channel's number.
    pub channel: usize,
    /// The value that was counted wrongly.
    pub value: u8,
    /// The count in the result.
    pub found: u64,
    /// The true count.
    pub expected: u64,
}

/// Checks that `found` has the count of each value in `file`.
///
/// # Errors
/// Returns the first wrong count.
///
/// # Panics
/// If `layout` is of a longer file.
pub fn verify(file: &[u8], layout: &Layout, found: &Bins) -> Result<(), Mismatch> {
    let points = layout.bytes_of_a_point();
    let data = &file[layout.data()];
    let mut values: Vec<Vec<u64>> = vec![vec![0; 256]; CHANNELS];
    for row in 0..data.len().div_ceil(layout.stride()) {
        for column in 0..layout.row() / points {
            for byte in 0..points {
                // Missing bytes are skipped: a file without bytes has one empty row.
                let at = row * layout.stride() + column * points + byte;
                let Some(value) = data.get(at) else { continue };
                match (layout.palette(), layout.channel_of(byte)) {
                    (Some(palette), _) => {
                        let colour = palette[usize::from(*value)];
                        let named = values.iter_mut().take(layout.channels().len());
                        named
                            .zip(colour)
                            .for_each(|(values, value)| values[usize::from(value)] += 1);
                    }
                    (None, Some(channel)) => values[channel][usize::from(*value)] += 1,
                    (None, None) => {}
                }
            }
        }
    }
    for (channel, values) in values.iter().enumerate() {
        for (value, expected) in (0..=255u8).zip(values) {
            let found = found.of(channel)[usize::from(value)];
            if found != *expected {
                let expected = *expected;
                return Err(Mismatch {
                    channel,
                    value,
                    found,
                    expected,
                });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{Format, count, generate};
    use super::*;

    #[test]
    fn a_wrong_count_is_noticed() {
        let file = generate::bmp(30, 20, 1);
        let layout = Layout::find(&file, Format::Any).unwrap();
        let mut bins = count(&file, &layout);
        assert_eq!(verify(&file, &layout, &bins), Ok(()));
        bins.counts_mut()[1][7] += 1;
        let wrong = verify(&file, &layout, &bins).unwrap_err();
        assert_eq!(
            (wrong.channel, wrong.value, wrong.found),
            (1, 7, wrong.expected + 1)
        );
        // Padding counted as points.
        let bytes = count(&file, &Layout::find(&file, Format::Bytes).unwrap());
        assert!(verify(&file, &layout, &bytes).is_err());
    }
}
