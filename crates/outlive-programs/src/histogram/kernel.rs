//! The work of a task: counts a stretch of the data.
//!
//! Equal values are often adjacent, and an increment of a count waits for the store of the previous
//! increment. So neighbours are counted in separate tables.

use super::{Bins, Layout};

/// The number of neighbours with separate tables, a multiple of the bytes of a point: for 1 and 3
/// bytes, and for 4 bytes.
const TABLES: usize = 6;
const TABLES_OF_FOUR: usize = 8;
/// The bytes that are counted before counts of 32 bits are added up.
const MOST: usize = 1 << 30;

/// Counts `bytes`, which are in the [data](Layout::data) from byte `at` on, and adds the counts to
/// `bins`. A file may be cut anywhere: within a row, and within a point. When all is counted,
/// [`Layout::of_channels`] gives the channels' counts.
pub fn count(bytes: &[u8], at: usize, layout: &Layout, bins: &mut Bins) {
    for (number, bytes) in bytes.chunks(MOST).enumerate() {
        let at = at + number * MOST;
        match layout.bytes_of_a_point() {
            4 => count_part::<TABLES_OF_FOUR>(bytes, at, layout, bins),
            _ => count_part::<TABLES>(bytes, at, layout, bins),
        }
    }
}

fn count_part<const N: usize>(bytes: &[u8], at: usize, layout: &Layout, bins: &mut Bins) {
    let mut tables = [[0u32; 256]; N];
    count_rows(bytes, at, layout, &mut tables);
    for (number, table) in tables.iter().enumerate() {
        if let Some(channel) = layout.channel_of(number % layout.bytes_of_a_point()) {
            let bins = &mut bins.counts_mut()[channel];
            for (bin, count) in bins.iter_mut().zip(table) {
                *bin += u64::from(*count);
            }
        }
    }
}

fn count_rows<const N: usize>(
    mut bytes: &[u8],
    at: usize,
    layout: &Layout,
    tables: &mut [[u32; 256]; N],
) {
    let (used, stride) = (layout.row(), layout.stride());
    let points = layout.bytes_of_a_point();
    if used == stride {
        // There is no padding between the rows, so all is one row.
        return count_row(bytes, at % points, points, tables);
    }
    let mut column = at % stride;
    while !bytes.is_empty() {
        let (row, rest) = bytes.split_at(bytes.len().min(stride - column));
        if column < used {
            let row = &row[..row.len().min(used - column)];
            count_row(row, column % points, points, tables);
        }
        (bytes, column) = (rest, 0);
    }
}

/// Counts `bytes`; the first one is byte `first` of a point of `of` bytes.
fn count_row<const N: usize>(bytes: &[u8], first: usize, of: usize, tables: &mut [[u32; 256]; N]) {
    // Up to the next whole point.
    let head = (of - first) % of;
    let (head, bytes) = bytes.split_at(bytes.len().min(head));
    for (byte, table) in head.iter().zip(&mut tables[first..]) {
        table[usize::from(*byte)] += 1;
    }
    let (groups, tail) = bytes.as_chunks::<N>();
    for group in groups {
        for (byte, table) in group.iter().zip(tables.iter_mut()) {
            table[usize::from(*byte)] += 1;
        }
    }
    for (byte, table) in tail.iter().zip(tables) {
        table[usize::from(*byte)] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CHANNELS, Format, generate, verify};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn however_the_data_are_cut_the_counts_are_the_same(
            width in 1u32..40,
            height in 1u32..20,
            seed in any::<u64>(),
            kind in 0..6,
            cuts in prop::collection::vec(0f64..1.0, 0..12),
        ) {
            let file = match kind {
                0 => generate::bmp(width, height, seed),
                1 => generate::ppm(width, height, seed),
                2 => generate::pgm(width, height, seed),
                3 => generate::bmp_of_8_bits(width, height, seed, |number| [number, 1, 2]),
                4 => generate::bmp_of_32_bits(width, height, seed, None),
                _ => generate::bmp(width, height, seed)[3..].to_vec(),
            };
            let layout = Layout::find(&file, Format::Any).unwrap();
            let data = &file[layout.data()];
            let mut ends: Vec<usize> =
                cuts.iter().map(|cut| (cut * data.len() as f64) as usize).collect();
            ends.extend([0, data.len()]);
            ends.sort_unstable();
            let mut merged = Bins::default();
            for ends in ends.windows(2).rev() {
                let mut bins = Bins::default();
                count(&data[ends[0]..ends[1]], ends[0], &layout, &mut bins);
                merged.merge(&bins);
            }
            let merged = layout.of_channels(merged);
            prop_assert_eq!(&merged, &super::super::count(&file, &layout));
            prop_assert_eq!(verify::verify(&file, &layout, &merged), Ok(()));
            let points = u64::from(width * height);
            if kind < 5 {
                let channels = layout.channels().len();
                for channel in 0..CHANNELS {
                    let counted: u64 = merged.of(channel).iter().sum();
                    prop_assert_eq!(counted, points * u64::from(channel < channels));
                }
            }
        }
    }
}
