//! The program that multiplies matrices.

use super::{Crew, PLAIN, Sizes, Subject, same};
use crate::StudyError;
use crate::children::Launcher;
use crate::cost::Cost;
#[cfg(feature = "lupin")]
use crate::scratch::Directory;
use outlive_programs::matmul::{Matrix, Multiplication, ShapeError, kernel, multiply};
use outlive_run::driver::Outcome;

struct Matrices {
    a: Matrix,
    b: Matrix,
    /// The second matrix in the order in which it is read: packed before the work, as in the pod.
    panels: Vec<f64>,
    expected: Matrix,
}

pub fn make(sizes: &Sizes) -> Result<Box<dyn Subject>, StudyError> {
    let side = sizes.side;
    let [a, b] = [1, 2].map(|seed| Matrix::generate(side, side, seed));
    let mut panels = vec![0.0; kernel::packed_len(side, side)];
    kernel::pack(b.elements(), side, side, 0, &mut panels);
    let expected = multiply(&a, &b).map_err(refused)?;
    Ok(Box::new(Matrices {
        a,
        b,
        panels,
        expected,
    }))
}

fn refused(error: ShapeError) -> StudyError {
    StudyError::void(error.to_string())
}

impl Subject for Matrices {
    fn size(&self) -> String {
        format!("{side} x {side} numbers", side = self.a.rows())
    }

    fn plain(&self) -> Result<Cost, StudyError> {
        let side = self.a.rows();
        let (cost, product) = Cost::of(|| {
            let mut product = vec![0.0; side * side];
            kernel::rows(self.a.elements(), &self.panels, side, side, &mut product);
            product
        });
        same(PLAIN, product == self.expected.elements())?;
        Ok(cost)
    }

    fn in_pod(&self, launcher: &Launcher, crew: Crew) -> Result<Outcome<()>, StudyError> {
        let multiplication = Multiplication::new(&self.a, &self.b).map_err(refused)?;
        crew.run(launcher, &multiplication, &self.expected)
    }

    #[cfg(feature = "lupin")]
    fn for_c(&self, files: &Directory) -> Result<Vec<std::ffi::OsString>, StudyError> {
        let write = |name, matrix: &Matrix| {
            let sizes = [matrix.rows(), matrix.columns()];
            files.write(name, &super::bytes_of(&sizes, matrix.elements()))
        };
        Ok(vec![
            write("left", &self.a)?.into(),
            write("right", &self.b)?.into(),
        ])
    }

    /// The result must be equal to the last bit: the C program also adds up the terms of an element
    /// in their order, and fuses no product with a sum.
    #[cfg(feature = "lupin")]
    fn expect(&self, result: &[u8]) -> Result<(), StudyError> {
        let expected = self.expected.elements();
        let is_same = result.len() == expected.len() * 8
            && super::numbers_of(result)
                .zip(expected)
                .all(|(a, b)| a == *b);
        same(super::c::WHO, is_same)
    }
}
