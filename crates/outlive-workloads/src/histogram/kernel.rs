//! The work of a task: a stretch of the data is counted.
//!
//! Equal values often stand side by side, and a count that is raised again before it has been stored waits for that
//! store. So neighbours are counted in tables of their own.

use super::{Bins, CHANNELS, Layout};

/// How many neighbours have tables of their own: a multiple of one channel and of three.
const TABLES: usize = 6;
/// How much is counted before counts of 32 bits are added up.
const MOST: usize = 1 << 30;

/// Counts `bytes`, which stand in the [data](Layout::data) from byte `at` on, and adds the counts to `bins`. A file may be cut
/// anywhere: within a row, and within a point.
pub fn count(bytes: &[u8], at: usize, layout: &Layout, bins: &mut Bins) {
    for (number, bytes) in bytes.chunks(MOST).enumerate() {
        let mut tables = [[0u32; 256]; TABLES];
        count_rows(bytes, at + number * MOST, layout, &mut tables);
        let channels = layout.channels().len();
        for (number, table) in tables.iter().enumerate() {
            let bins = &mut bins.counts_mut()[number % channels];
            for (bin, count) in bins.iter_mut().zip(table) {
                *bin += u64::from(*count);
            }
        }
    }
}

fn count_rows(mut bytes: &[u8], at: usize, layout: &Layout, tables: &mut [[u32; 256]; TABLES]) {
    let (used, stride) = (layout.row(), layout.stride());
    if used == stride {
        // Nothing is between the rows, so all is one row.
        return count_row(bytes, at % layout.channels().len(), tables);
    }
    let mut column = at % stride;
    while !bytes.is_empty() {
        let (row, rest) = bytes.split_at(bytes.len().min(stride - column));
        if column < used {
            let row = &row[..row.len().min(used - column)];
            count_row(row, column % layout.channels().len(), tables);
        }
        (bytes, column) = (rest, 0);
    }
}

/// Counts `bytes`, of which the first is of channel `channel`.
fn count_row(bytes: &[u8], channel: usize, tables: &mut [[u32; 256]; TABLES]) {
    // Up to the next whole point.
    let head = (CHANNELS - channel) % CHANNELS;
    let (head, bytes) = bytes.split_at(bytes.len().min(head));
    for (byte, table) in head.iter().zip(&mut tables[channel..]) {
        table[usize::from(*byte)] += 1;
    }
    let (groups, tail) = bytes.as_chunks::<TABLES>();
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
            kind in 0..4,
            cuts in prop::collection::vec(0f64..1.0, 0..12),
        ) {
            let file = match kind {
                0 => generate::bmp(width, height, seed),
                1 => generate::ppm(width, height, seed),
                2 => generate::pgm(width, height, seed),
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
            prop_assert_eq!(&merged, &super::super::count(&file, &layout));
            prop_assert_eq!(verify::verify(&file, &layout, &merged), Ok(()));
            let points = u64::from(width * height);
            if kind < 3 {
                let channels = layout.channels().len();
                for channel in 0..CHANNELS {
                    let counted: u64 = merged.of(channel).iter().sum();
                    prop_assert_eq!(counted, points * u64::from(channel < channels));
                }
            }
        }
    }
}
