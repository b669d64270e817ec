//! Whether a product is right.
//!
//! Freivalds' check multiplies both sides with a vector of signs: `A (B x)` must be `C x`, which takes three
//! products of a matrix and a vector instead of one of two matrices. A wrong product passes a round with a probability of at most
//! one half. Both sides are rounded, by at most `2 (depth + columns + 2)` halves of an ulp of what the sizes of the
//! terms add up to, and that is what they may differ by, row by row (N. J. Higham, *Accuracy and Stability of Numerical
//! Algorithms*, §3.5).

use super::{Matrix, ShapeError, fit};
use crate::random::Random;

/// What is wrong with a product.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Wrong {
    /// The matrices do not fit together.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// It has another size.
    #[error("the product has {found:?} rows and columns, and should have {expected:?}")]
    Size {
        /// Its rows and columns.
        found: (usize, usize),
        /// Those that it should have.
        expected: (usize, usize),
    },
    /// A row is not what it should be.
    #[error(
        "row {row} of the product is wrong: with the signs of round {round} it gives {found} instead of {expected}, and rounding explains {allowed:e}"
    )]
    Row {
        /// Which.
        row: usize,
        /// In which round that was seen.
        round: u32,
        /// What it gives.
        found: f64,
        /// What it should give.
        expected: f64,
        /// By how much that may differ.
        allowed: f64,
    },
}

/// Whether `product` is that of `a` and `b`: `rounds` rounds of Freivalds' check, with signs drawn with `seed`. A wrong
/// product passes with a probability of at most 2^-rounds, if what is wrong is more than rounding may do.
///
/// # Errors
/// What is wrong. A product in which numbers became infinite is wrong too.
pub fn verify(
    a: &Matrix,
    b: &Matrix,
    product: &Matrix,
    rounds: u32,
    seed: u64,
) -> Result<(), Wrong> {
    fit(a, b)?;
    let (found, expected) = ((product.rows, product.columns), (a.rows, b.columns));
    if found != expected {
        return Err(Wrong::Size { found, expected });
    }
    let sizes = times_vector(b, &vec![1.0; b.columns], f64::abs);
    let sizes = times_vector(a, &sizes, f64::abs);
    let halves = 2.0 * (b.rows + b.columns + 2) as f64;
    // A little more, for the rounding of the bound itself and for what is too small to be rounded relatively.
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
            // Not the other way round: what is not a number is wrong.
            if !(apart <= allowed && allowed.is_finite()) {
                return Err(Wrong::Row {
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

/// The definition: three nested loops.
///
/// # Errors
/// If the matrices do not fit together.
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
        // Summed in another order, it is another product, and right as well.
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
        let of_row = |error: Wrong| match error {
            Wrong::Row { row, .. } => row,
            other => panic!("{other}"),
        };
        assert_eq!(of_row(wrong(&|m| m.elements[70 * 90 + 11] += 1e-9)), 70);
        assert_eq!(of_row(wrong(&|m| m.elements[149 * 90] = f64::NAN)), 149);
        assert_eq!(of_row(wrong(&|m| m.elements.swap(5, 6))), 0);
        assert_eq!(of_row(wrong(&|m| m.elements[90..180].fill(0.0))), 1);
        assert!(matches!(
            wrong(&|m| (m.rows, m.columns) = (90, 150)),
            Wrong::Size { .. }
        ));
        let said = multiply(&b, &b).unwrap_err().to_string();
        assert!(
            said.starts_with("90 columns cannot be multiplied with 200 rows"),
            "{said}"
        );
    }
}
