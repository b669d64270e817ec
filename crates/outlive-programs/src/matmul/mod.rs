//! Matrix Multiply: the product of two matrices (one of LUPIN's MapReduce programs).
//!
//! The elements are `f64`s, the usual type (Phoenix's program has `int`s that wrap around). Each
//! element of the product is the sum of its terms *in their order*, from the first column of the
//! left matrix to the last, each product and each sum rounded once. So the result is the same bytes
//! for any division of rows among tasks and on any processor, and equals that of three nested
//! loops.
//!
//! * [`Matrix`] is read from NumPy's `.npy` or from Matrix Market's array format, or generated.
//! * [`kernel::pack`] brings the right matrix into the order in which it is read, once;
//!   [`kernel::rows`] is the work of a task: it computes rows of the product from the same rows of
//!   the left matrix. There is nothing to merge.
//! * [`multiply`] is the plain program, with one thread. [`Multiplication`] is the program of
//!   tasks.
//! * [`verify`](verify::verify) is Freivalds' check, with a bound on rounding errors;
//!   [`verify::naive`] is the definition.
//!
//! ```
//! use outlive_programs::matmul::{self, Matrix};
//!
//! let a = Matrix::parse(b"%%MatrixMarket matrix array real general\n2 2\n1\n3\n2\n4\n")?;
//! let product = matmul::multiply(&a, &a)?;
//! assert_eq!(product.elements(), [7.0, 10.0, 15.0, 22.0]);
//! matmul::verify::verify(&a, &a, &product, 20, 1)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod input;
pub mod kernel;
mod on_tasks;
pub mod verify;

pub use input::ReadError;
pub use on_tasks::{Multiplication, blocks};

use outlive_run::random::Random;

/// A matrix; its elements are stored row after row.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    rows: usize,
    columns: usize,
    elements: Vec<f64>,
}

/// The sizes of two matrices do not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{left} columns cannot be multiplied with {right} rows: the left matrix needs as many columns as the right one has rows"
)]
pub struct ShapeError {
    /// The number of columns of the left matrix.
    pub left: usize,
    /// The number of rows of the right matrix.
    pub right: usize,
}

impl Matrix {
    /// Creates a matrix of `rows` times `columns` elements, given row after row.
    ///
    /// # Panics
    /// If that is not their number, or it is 0.
    pub fn new(rows: usize, columns: usize, elements: Vec<f64>) -> Self {
        assert!(rows > 0 && columns > 0, "a matrix has elements");
        assert_eq!(rows.checked_mul(columns), Some(elements.len()));
        Self {
            rows,
            columns,
            elements,
        }
    }

    /// Generates a matrix of numbers between -1 and 1, drawn with `seed`.
    ///
    /// # Panics
    /// If it has no elements.
    pub fn generate(rows: usize, columns: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let elements = (0..rows * columns)
            .map(|_| random.between(-1.0, 1.0))
            .collect();
        Self::new(rows, columns, elements)
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Returns the elements, row after row.
    pub fn elements(&self) -> &[f64] {
        &self.elements
    }

    /// Returns row `number`.
    ///
    /// # Panics
    /// If the row does not exist.
    pub fn row(&self, number: usize) -> &[f64] {
        &self.elements[number * self.columns..][..self.columns]
    }
}

/// Checks that `a` can be multiplied with `b`.
///
/// # Errors
/// If the number of columns of `a` differs from the number of rows of `b`.
pub fn fit(a: &Matrix, b: &Matrix) -> Result<(), ShapeError> {
    match a.columns == b.rows {
        true => Ok(()),
        false => Err(ShapeError {
            left: a.columns,
            right: b.rows,
        }),
    }
}

/// Multiplies `a` by `b` with one thread, in ordinary memory.
///
/// # Errors
/// If their sizes do not match.
pub fn multiply(a: &Matrix, b: &Matrix) -> Result<Matrix, ShapeError> {
    fit(a, b)?;
    let mut panels = vec![0.0; kernel::packed_len(b.rows, b.columns)];
    kernel::pack(&b.elements, b.rows, b.columns, 0, &mut panels);
    let mut elements = vec![0.0; a.rows * b.columns];
    kernel::rows(&a.elements, &panels, b.rows, b.columns, &mut elements);
    Ok(Matrix::new(a.rows, b.columns, elements))
}
