//! Matrices in files: NumPy's `.npy` (a short header, then the numbers as they are in memory), and
//! the array format of Matrix Market (text, column after column).

use super::Matrix;
use crate::npy::{self, NpyError, SIGNATURE, by_rows};
use crate::number::number;
use crate::whole_file::{self, Unreadable};
use std::path::Path;

/// The reason why a matrix cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The operating system reported an error.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// The file has neither format.
    #[error(
        "this is not a matrix: it begins neither with \u{201c}%%MatrixMarket\u{201d} nor with NumPy's signature"
    )]
    Unknown,
    /// The kind of Matrix Market file is not supported.
    #[error(
        "line {line}: \u{201c}{found}\u{201d} is not supported; only \u{201c}%%MatrixMarket matrix \
         array\u{201d} with \u{201c}real\u{201d} or \u{201c}integer\u{201d}, \
         \u{201c}general\u{201d}"
    )]
    Kind {
        /// The line, from 1.
        line: usize,
        /// The text of the line.
        found: String,
    },
    /// A line is invalid.
    #[error("line {line}: \u{201c}{found}\u{201d} is not {expected}")]
    Line {
        /// The line, from 1.
        line: usize,
        /// The text found.
        found: String,
        /// The kind of text that is expected.
        expected: &'static str,
    },
    /// An element is infinite or NaN.
    #[error("element {at} is {found}; only finite numbers can be multiplied")]
    NotFinite {
        /// The number of the element in the file, from 0.
        at: usize,
        /// The value that was found.
        found: f64,
    },
    /// The number of elements differs from the header.
    #[error("the file has {found} elements, but its header says {rows} times {columns}")]
    Count {
        /// The number of elements (or as many as the bytes allow).
        found: usize,
        /// The number of rows in the header.
        rows: usize,
        /// The number of columns in the header.
        columns: usize,
    },
    /// A NumPy file cannot be read.
    #[error(transparent)]
    Npy(#[from] NpyError),
}

impl Matrix {
    /// Reads the file at `path`, in either format.
    ///
    /// # Errors
    /// If it cannot be read, or is not a matrix of finite numbers.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        Self::parse(&whole_file::read(path)?)
    }

    /// Reads a matrix from the content of a file in either format.
    ///
    /// # Errors
    /// If it is not a matrix of finite numbers.
    pub fn parse(file: &[u8]) -> Result<Self, ReadError> {
        let matrix = if file.starts_with(SIGNATURE) {
            let table = npy::table(file)?;
            Self::new(table.rows, table.columns, table.elements)
        } else if file.len() >= 14 && file[..14].eq_ignore_ascii_case(b"%%MatrixMarket") {
            matrix_market(file)?
        } else {
            return Err(ReadError::Unknown);
        };
        match matrix.elements.iter().position(|x| !x.is_finite()) {
            Some(at) => Err(ReadError::NotFinite {
                at,
                found: matrix.elements[at],
            }),
            None => Ok(matrix),
        }
    }

    /// Returns the matrix as a `.npy` file, which preserves every bit.
    pub fn to_npy(&self) -> Vec<u8> {
        let header = format!(
            "{{'descr': '<f8', 'fortran_order': False, 'shape': ({}, {}), }}",
            self.rows, self.columns
        );
        // Blanks up to the end of a line, so that the numbers begin at a multiple of 64.
        let len =
            (SIGNATURE.len() + 4 + header.len() + 1).next_multiple_of(64) - SIGNATURE.len() - 4;
        let mut file = SIGNATURE.to_vec();
        file.extend([1, 0, len as u8, (len >> 8) as u8]);
        file.extend(format!("{header:width$}\n", width = len - 1).into_bytes());
        file.extend(self.elements.iter().flat_map(|x| x.to_le_bytes()));
        file
    }

    /// Returns the matrix in Matrix Market's array format. The numbers are as short as they can be
    /// without losing a bit.
    pub fn to_matrix_market(&self) -> String {
        let mut text = format!(
            "%%MatrixMarket matrix array real general\n{} {}\n",
            self.rows, self.columns
        );
        for column in 0..self.columns {
            for row in 0..self.rows {
                text.push_str(&format!("{:e}\n", self.row(row)[column]));
            }
        }
        text
    }
}

/// Returns the number of elements, unless it overflows or is 0.
fn count(rows: usize, columns: usize) -> Option<usize> {
    rows.checked_mul(columns).filter(|count| *count > 0)
}

fn matrix_market(file: &[u8]) -> Result<Matrix, ReadError> {
    let said = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).into_owned();
    let mut lines = (1..)
        .zip(file.split(|byte| *byte == b'\n'))
        .map(|(line, bytes): (usize, _)| (line, bytes.trim_ascii()));
    let (_, banner) = lines.next().unwrap_or_default();
    let kind = said(banner).to_ascii_lowercase();
    let mut words = kind.split_ascii_whitespace().skip(1);
    let kind = [(); 4].map(|()| words.next().unwrap_or_default());
    if !matches!(kind, ["matrix", "array", "real" | "integer", "general"]) {
        return Err(ReadError::Kind {
            line: 1,
            found: said(banner),
        });
    }
    let mut lines = lines.filter(|(_, bytes)| !bytes.is_empty() && bytes[0] != b'%');
    let (line, size) = lines.next().unwrap_or_default();
    let numbers: Option<Vec<usize>> = said(size)
        .split_ascii_whitespace()
        .map(|word| word.parse().ok())
        .collect();
    let wrong = |line, bytes: &[u8], expected| ReadError::Line {
        line,
        found: said(bytes),
        expected,
    };
    let Some([rows, columns]) = numbers
        .as_deref()
        .and_then(|n| <[usize; 2]>::try_from(n).ok())
    else {
        return Err(wrong(line, size, "a number of rows and one of columns"));
    };
    let expected = count(rows, columns).ok_or_else(|| wrong(line, size, "the size of a matrix"))?;
    // A number takes two bytes at least, which bounds the memory that is allocated.
    let mut elements = Vec::with_capacity(expected.min(file.len() / 2));
    for (line, bytes) in lines {
        for word in bytes
            .split(u8::is_ascii_whitespace)
            .filter(|word| !word.is_empty())
        {
            elements.push(number(word).ok_or_else(|| wrong(line, word, "a number"))?);
        }
    }
    match elements.len() == expected {
        true => Ok(Matrix::new(
            rows,
            columns,
            by_rows(rows, columns, &elements),
        )),
        false => Err(ReadError::Count {
            found: elements.len(),
            rows,
            columns,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::npy::tests::file as npy;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(
            rows in 1usize..9, columns in 1usize..9, scale in -300i32..300, seed in any::<u64>(),
        ) {
            let mut matrix = Matrix::generate(rows, columns, seed);
            matrix.elements.iter_mut().for_each(|x| *x *= 10f64.powi(scale));
            prop_assert_eq!(&Matrix::parse(&matrix.to_npy()).unwrap(), &matrix);
            prop_assert_eq!(matrix.to_npy().len() % 64, rows * columns * 8 % 64);
            let text = matrix.to_matrix_market();
            prop_assert_eq!(&Matrix::parse(text.as_bytes()).unwrap(), &matrix);
        }

        #[test]
        fn any_bytes_are_a_matrix_or_are_refused(
            binary in any::<bool>(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..5),
            cut in any::<prop::sample::Index>(),
        ) {
            let matrix = Matrix::generate(3, 4, 1);
            let mut file = if binary { matrix.to_npy() } else { matrix.to_matrix_market().into() };
            for (at, byte) in changes {
                let at = at.index(file.len());
                file[at] = byte;
            }
            file.truncate(cut.index(file.len() * 2));
            if let Ok(read) = Matrix::parse(&file) {
                prop_assert_eq!(read.elements.len(), read.rows * read.columns);
                prop_assert!(read.elements.iter().all(|x| x.is_finite()));
            }
        }
    }

    #[test]
    fn columns_first_and_rows_first_are_the_same_matrix() {
        let text =
            "%%MatrixMarket matrix array integer general\n% by column\n2 3\n1\n4\n2 5\n\n3\n6\n";
        let matrix = Matrix::parse(text.as_bytes()).unwrap();
        assert_eq!(matrix.elements(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let text = text.replace("4\n2", "4D+0\n20d-1");
        assert_eq!(Matrix::parse(text.as_bytes()).unwrap(), matrix);
        let file = npy("<i2", "True", "2, 3", &[1, 0, 4, 0, 2, 0, 5, 0, 3, 0, 6, 0]);
        assert_eq!(Matrix::parse(&file).unwrap(), matrix);
    }

    #[test]
    fn it_says_what_is_wrong() {
        let said = |file: &[u8]| Matrix::parse(file).unwrap_err().to_string();
        let market = |rest: &str| said(format!("%%MatrixMarket matrix {rest}").as_bytes());
        assert!(said(b"1 2\n").contains("not a matrix"));
        assert!(
            market("coordinate real general\n1 1 1\n")
                .contains("only “%%MatrixMarket matrix array”")
        );
        assert!(market("array real symmetric\n").contains("symmetric"));
        assert!(market("array real general\n2\n").contains("line 2: “2” is not a number of rows"));
        assert!(market("array real general\n0 3\n").contains("size of a matrix"));
        assert!(
            market("array real general\n1 2\n1\n")
                .contains("1 elements, but its header says 1 times 2")
        );
        assert!(market("array real general\n1 2\n1\nx\n").contains("line 4: “x” is not a number"));
        assert!(market("array real general\n1 1\nnan\n").contains("element 0 is NaN"));
        let big = format!("array real general\n{0} {0}\n1\n", 1u64 << 40);
        assert!(market(&big).contains("size of a matrix"));
        assert!(said(&npy("<f2", "False", "1, 1", &[0; 2])).contains("elements of kind <f2"));
        let infinite = npy("<f4", "False", "1, 1", &f32::INFINITY.to_le_bytes());
        assert!(said(&infinite).contains("element 0 is inf"));
    }
}
