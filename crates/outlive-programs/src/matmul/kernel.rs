//! The work of a task: rows of the product.
//!
//! The right matrix is packed into *panels* of [`LANES`] columns, each row by row, so that it is
//! read sequentially. A part of a panel that fits the first-level cache is multiplied with as many
//! rows of the left matrix as fit the second-level cache, four at a time, while their sums stay in
//! registers. The sums continue where the previous part ended, so each is in the order of its
//! terms.

use crate::wide::widest;

/// The number of columns of a panel.
pub const LANES: usize = 8;
/// The number of rows of the left matrix that are multiplied together.
const ROWS: usize = 4;
/// The rows of a panel that are used for a group of rows: 16 KiB of the panel.
const DEPTH: usize = 256;
/// The size of such a group: 192 KiB of rows.
pub(super) const GROUP: usize = 96;

/// Returns the length of a packed matrix of `rows` and `columns`.
pub fn packed_len(rows: usize, columns: usize) -> usize {
    columns.div_ceil(LANES) * LANES * rows
}

/// Packs the matrix `right`, of `rows` and `columns`: writes as many panels as fit into `panels`,
/// from panel `first` on. So tasks can pack panels separately.
///
/// # Panics
/// If `right` is of another size, or `panels` are not whole or go beyond the last.
pub fn pack(right: &[f64], rows: usize, columns: usize, first: usize, panels: &mut [f64]) {
    assert_eq!(right.len(), rows * columns);
    assert!(panels.len().is_multiple_of(rows * LANES));
    for (number, panel) in panels.chunks_exact_mut(rows * LANES).enumerate() {
        let from = (first + number) * LANES;
        assert!(from < columns, "there is no panel {}", first + number);
        let width = LANES.min(columns - from);
        for (lanes, row) in panel
            .as_chunks_mut::<LANES>()
            .0
            .iter_mut()
            .zip(right.chunks_exact(columns))
        {
            lanes[..width].copy_from_slice(&row[from..from + width]);
            lanes[width..].fill(0.0);
        }
    }
}

widest! {
    /// Writes rows of the product to `product`: those of the rows in `left`, of `depth` numbers
    /// each, with the packed matrix `panels` of `depth` rows and `columns` columns.
    ///
    /// # Panics
    /// If the sizes do not fit together.
    pub fn rows(left: &[f64], panels: &[f64], depth: usize, columns: usize, product: &mut [f64]) {
        assert!(depth > 0 && columns > 0, "a matrix has elements");
        assert_eq!(panels.len(), packed_len(depth, columns));
        assert_eq!(left.len() / depth, product.len() / columns);
        assert!(left.len().is_multiple_of(depth) && product.len().is_multiple_of(columns));
        let groups = left.chunks(GROUP * depth).zip(product.chunks_mut(GROUP * columns));
        for (left, product) in groups {
            for from in (0..depth).step_by(DEPTH) {
                let to = depth.min(from + DEPTH);
                for (number, panel) in panels.chunks_exact(depth * LANES).enumerate() {
                    let part = &panel.as_chunks::<LANES>().0[from..to];
                    let columns_from = number * LANES;
                    let place = Place { from, columns_from, depth, columns };
                    let mut at = 0;
                    let end = left.len() / depth;
                    while at + ROWS <= end {
                        tile::<ROWS>(left, part, at, place, product);
                        at += ROWS;
                    }
                    match end - at {
                        3 => tile::<3>(left, part, at, place, product),
                        2 => tile::<2>(left, part, at, place, product),
                        1 => tile::<1>(left, part, at, place, product),
                        _ => {}
                    }
                }
            }
        }
    }
}

/// The position of a tile.
#[derive(Clone, Copy)]
struct Place {
    /// The index of the next term.
    from: usize,
    /// The first of its columns.
    columns_from: usize,
    depth: usize,
    columns: usize,
}

/// Adds the next terms of up to [`LANES`] columns to `R` rows of the product, from row `at` on.
#[inline(always)]
fn tile<const R: usize>(
    left: &[f64],
    part: &[[f64; LANES]],
    at: usize,
    place: Place,
    product: &mut [f64],
) {
    let Place {
        from,
        columns_from,
        depth,
        columns,
    } = place;
    let width = LANES.min(columns - columns_from);
    let mut sums = [[0.0; LANES]; R];
    if from > 0 {
        for (row, sums) in sums.iter_mut().enumerate() {
            let begun = &product[(at + row) * columns + columns_from..][..width];
            match <&[f64; LANES]>::try_from(begun) {
                Ok(begun) => *sums = *begun,
                Err(_) => sums[..width].copy_from_slice(begun),
            }
        }
    }
    let rows = std::array::from_fn(|row| &left[(at + row) * depth + from..][..part.len()]);
    let sums = terms(sums, rows, part);
    for (row, sums) in sums.iter().enumerate() {
        let done = &mut product[(at + row) * columns + columns_from..][..width];
        match <&mut [f64; LANES]>::try_from(&mut *done) {
            Ok(done) => *done = *sums,
            Err(_) => done.copy_from_slice(&sums[..width]),
        }
    }
}

/// Adds the products of `rows` and `part` to `sums`, which is passed by value so that it stays in
/// registers.
#[inline(always)]
fn terms<const R: usize>(
    mut sums: [[f64; LANES]; R],
    rows: [&[f64]; R],
    part: &[[f64; LANES]],
) -> [[f64; LANES]; R] {
    for (term, right) in part.iter().enumerate() {
        for (sums, row) in sums.iter_mut().zip(rows) {
            let left = row[term];
            for (sum, right) in sums.iter_mut().zip(right) {
                *sum += left * right;
            }
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::super::{Matrix, multiply, verify};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]
        #[test]
        fn the_product_is_that_of_three_loops_to_the_bit(
            rows in 1usize..110,
            depth in prop_oneof![1usize..40, 250usize..270, 510usize..520],
            columns in 1usize..40,
            seed in any::<u64>(),
            cuts in prop::collection::vec(0usize..110, 0..6),
            panel_cut in 0usize..6,
        ) {
            let a = Matrix::generate(rows, depth, seed);
            let b = Matrix::generate(depth, columns, !seed);
            let expected = verify::naive(&a, &b).unwrap();
            prop_assert_eq!(&multiply(&a, &b).unwrap(), &expected);
            prop_assert_eq!(verify::verify(&a, &b, &expected, 4, seed), Ok(()));

            // Divided among tasks, last first, each starting with stale content.
            let mut panels = vec![f64::NAN; packed_len(depth, columns)];
            let cut = panel_cut.min(columns.div_ceil(LANES)) * depth * LANES;
            let (first, second) = panels.split_at_mut(cut);
            pack(b.elements(), depth, columns, cut / depth / LANES, second);
            pack(b.elements(), depth, columns, 0, first);
            let mut product = vec![f64::NAN; rows * columns];
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(rows)).collect();
            cuts.extend([0, rows]);
            cuts.sort_unstable();
            for ends in cuts.windows(2).rev() {
                let left = &a.elements()[ends[0] * depth..ends[1] * depth];
                let product = &mut product[ends[0] * columns..ends[1] * columns];
                super::rows(left, &panels, depth, columns, product);
            }
            prop_assert_eq!(&product, expected.elements());
        }
    }
}
