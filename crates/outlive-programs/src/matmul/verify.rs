//! Verifies a product.
//!
//! Freivalds' check multiplies both sides with a vector of signs: `A (B x)` must be `C x`, which
//! takes three products of a matrix and a vector instead of one of two matrices. A wrong product
//! passes a round with a probability of at most one half. Both sides are rounded, by at most
//! `2 (depth + columns + 2)` halves of an ulp of the sum of the terms' absolute values, which is
//! the allowed difference of each row (N. J. Higham, *Accuracy and Stability of Numerical
//! Algorithms*, §3.5).

use super::{Matrix, ShapeError, fit};
use outlive_run::random::Random;

/// An error in a product.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Mismatch {
    /// The sizes of the matrices do not match.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The product has a wrong size.
    #[error("the product has {found:?} rows and columns, and should have {expected:?}")]
    Size {
        /// Its rows and columns.
        found: (usize, usize),
        /// The expected rows and columns.
        expected: (usize, usize),
    },
    /// A row is wrong.
    #[error(
        "row {row} of the product is wrong: with the signs of round {round} it gives {found} \
         instead of {expected}, and rounding explains at most {allowed:e}"
    )]
    Row {
        /// The row, from 0.
        row: usize,
        /// The round that found it.
        round: u32,
        /// The value of the row.
        found: f64,
        /// The expected value.
        expected: f64,
        /// The allowed difference.
        allowed: f64,
    },
}

/// Checks that `product` is that of `a` and `b` by `rounds` rounds of Freivalds' check, with signs
/// drawn with `seed`. A wrong product passes with a probability of at most 2^-rounds, if its error
/// exceeds rounding.
///
/// # Errors
/// The first error. Infinite numbers in the product are an error, too.
pub fn verify(
    a: &Matrix,
    b: &Matrix,
    product: &Matrix,
    rounds: u32,
    seed: u64,
) -> Result<(), Mismatch> {
    fit(a, b)?;
    let (found, expected) = ((product.rows, product.columns), (a.rows, b.columns));
    if found != expected {
        return Err(Mismatch::Size { found, expected });
    }
    let sizes = times_vector(b, &vec![1.0; b.columns], f64::abs);
    let sizes = times_vector(a, &sizes, f64::abs);
    let halves = 2.0 * (b.rows + b.columns + 2) as f64;
    // Slightly more, for the rounding of the bound itself and for numbers that are too small to be
    // rounded relatively.
    let share = halves * (f64::EPSILON / 2.0) * 1.01;
    let tiny = halves * b.columns as f64 * f64::MIN_POSITIVE;
    let mut random = Random::new(seed);
    for round in 0..rounds {
        let signs: Vec<f64> = (0..b.columns)
            .map(|_| if random.word() >> 63 == 0 { 1.0 } else { -1.0 })
            .collect();
        let expected = times_vector(a, &times_vector(b, &signs, |x| x), |x| x);
        let found = times_vector(product, &signs, |x| x);
        for (row, ((found, expected), size)) in found.iter().zip(&expected).zip(&sizes).enumerate()
        {
            let allowed = size * share + tiny;
            let apart = (found - expected).abs();
            // Not inverted, so that NaN is an error.
            if !(apart <= allowed && allowed.is_finite()) {
                return Err(Mismatch::Row {
                    row,
                    round,
                    found: *found,
                    expected: *expected,
                    allowed,
                });
            }
        }
    }
    Ok(())
}

/// Multiplies `a` by `b` as the definition says, with three nested loops.
///
/// # Errors
/// If the sizes of the matrices do not match.
pub fn naive(a: &Matrix, b: &Matrix) -> Result<Matrix, ShapeError> {
    fit(a, b)?;
    let mut elements = Vec::with_capacity(a.rows * b.columns);
    for row in 0..a.rows {
        for column in 0..b.columns {
            let mut sum = 0.0;
            for (term, left) in a.row(row).iter().enumerate() {
                sum += left * b.elements[term * b.columns + column];
            }
            elements.push(sum);
        }
    }
    Ok(Matrix::new(a.rows, b.columns, elements))
}

fn times_vector(matrix: &Matrix, vector: &[f64], of: impl Fn(f64) -> f64) -> Vec<f64> {
    matrix
        .elements
        .chunks_exact(matrix.columns)
        .map(|row| row.iter().zip(vector).map(|(a, b)| of(*a) * b).sum())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::multiply;
    use super::*;

    #[test]
    fn small_errors_are_noticed_and_rounding_is_not_one() {
        let (a, b) = (Matrix::generate(150, 200, 1), Matrix::generate(200, 90, 2));
        let right = multiply(&a, &b).unwrap();
        assert_eq!(verify(&a, &b, &right, 30, 3), Ok(()));
        // Summed in another order, the product differs, and is right as well.
        let mut other = right.clone();
        for row in 0..150 {
            for column in 0..90 {
                let term = |term: usize| a.row(row)[term] * b.row(term)[column];
                other.elements[row * 90 + column] = (0..200).rev().map(term).sum();
            }
        }
        assert_ne!(other, right);
        assert_eq!(verify(&a, &b, &other, 30, 3), Ok(()));

        let wrong = |change: &dyn Fn(&mut Matrix)| {
            let mut product = right.clone();
            change(&mut product);
            verify(&a, &b, &product, 30, 3).unwrap_err()
        };
        let of_row = |error: Mismatch| match error {
            Mismatch::Row { row, .. } => row,
            other => panic!("{other}"),
        };
        assert_eq!(of_row(wrong(&|m| m.elements[70 * 90 + 11] += 1e-9)), 70);
        assert_eq!(of_row(wrong(&|m| m.elements[149 * 90] = f64::NAN)), 149);
        assert_eq!(of_row(wrong(&|m| m.elements.swap(5, 6))), 0);
        assert_eq!(of_row(wrong(&|m| m.elements[90..180].fill(0.0))), 1);
        assert!(matches!(
            wrong(&|m| (m.rows, m.columns) = (90, 150)),
            Mismatch::Size { .. }
        ));
        let said = multiply(&b, &b).unwrap_err().to_string();
        assert!(
            said.starts_with("90 columns cannot be multiplied with 200 rows"),
            "{said}"
        );
    }
}
