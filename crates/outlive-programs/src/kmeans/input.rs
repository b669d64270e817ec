//! Points: read from text or from NumPy's `.npy`, or generated.

use crate::npy::{self, NpyError};
use crate::number::number;
use crate::whole_file::{self, Unreadable};
use outlive_run::random::Random;
use std::path::Path;

/// The largest coordinate, without its sign: squares of distances stay finite.
pub const LARGEST: f64 = 1e150;
/// The maximum number of coordinates that a point may have.
pub const MOST_DIMENSIONS: usize = 1 << 20;

/// Points with equal numbers of coordinates.
#[derive(Clone, Debug, PartialEq)]
pub struct Points {
    coordinates: Vec<f64>,
    dimensions: usize,
}

/// The reason why points cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The operating system reported an error.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// A field is not a number.
    #[error("line {line}: \u{201c}{found}\u{201d} is not a number")]
    NoNumber {
        /// The line, from 1.
        line: usize,
        /// The text of the field.
        found: String,
    },
    /// A number is too large or NaN.
    #[error("line {line}: {found} is not between -{LARGEST:e} and {LARGEST:e}")]
    OutOfRange {
        /// The line, from 1.
        line: usize,
        /// The number.
        found: f64,
    },
    /// A point has more or fewer coordinates than those before it.
    #[error("line {line} has {found} coordinates, but the points before it have {expected}")]
    Ragged {
        /// The line, from 1.
        line: usize,
        /// The number of its coordinates.
        found: usize,
        /// The expected number.
        expected: usize,
    },
    /// A NumPy file cannot be read.
    #[error(transparent)]
    Npy(#[from] NpyError),
    /// A number in a NumPy file is too large, or not a number.
    #[error("row {row}: {found} is not between -{LARGEST:e} and {LARGEST:e}")]
    Element {
        /// The number of the point, from 0.
        row: usize,
        /// The number.
        found: f64,
    },
    /// A NumPy array has more columns than a point may have coordinates.
    #[error("the array has {found} columns, but a point has at most {MOST_DIMENSIONS} coordinates")]
    TooWide {
        /// The number of columns.
        found: usize,
    },
    /// There are no points.
    #[error(
        "the input contains no point; write one per line, its coordinates separated by commas or spaces"
    )]
    Empty,
}

impl Points {
    /// Reads the file at `path` in a format of [`parse`](Self::parse).
    ///
    /// # Errors
    /// If it cannot be read, or has no valid points.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        Self::parse(&whole_file::read(path)?)
    }

    /// Reads points from the contents of a file: NumPy's `.npy`, with a point in each row, or text.
    ///
    /// Text has a point per line: numbers, including Fortran's exponents (`1D+5`), separated by
    /// commas, semicolons or white space. Empty lines, and lines that begin with `#`, are skipped;
    /// so is a first line that begins with a letter: the names of columns. (`inf` and `nan` are not
    /// numbers here.)
    ///
    /// # Errors
    /// At the first invalid line, and if there is no point.
    pub fn parse(text: &[u8]) -> Result<Self, ReadError> {
        if text.starts_with(npy::SIGNATURE) {
            return Self::of_table(npy::table(text)?);
        }
        // The mark that spreadsheets put before UTF-8.
        let text = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text);
        let (mut coordinates, mut dimensions) = (Vec::new(), 0);
        let mut is_first = true;
        for (number, bytes) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = number + 1;
            let bytes = bytes.trim_ascii();
            let Some(first) = bytes.first() else { continue };
            let is_header = is_first && (first.is_ascii_alphabetic() || *first == b'"');
            is_first = is_first && *first == b'#';
            if *first == b'#' || is_header {
                continue;
            }
            let before = coordinates.len();
            for piece in pieces(bytes) {
                coordinates.push(coordinate(piece, line)?);
            }
            let found = coordinates.len() - before;
            if before == 0 {
                dimensions = found;
            }
            if found != dimensions || found > MOST_DIMENSIONS {
                return Err(ReadError::Ragged {
                    line,
                    found,
                    expected: dimensions.min(MOST_DIMENSIONS),
                });
            }
        }
        match coordinates.is_empty() {
            true => Err(ReadError::Empty),
            false => Ok(Self {
                coordinates,
                dimensions,
            }),
        }
    }

    fn of_table(table: npy::Table) -> Result<Self, ReadError> {
        let dimensions = table.columns;
        if dimensions > MOST_DIMENSIONS {
            return Err(ReadError::TooWide { found: dimensions });
        }
        let is_wrong = |found: &f64| found.is_nan() || found.abs() > LARGEST;
        match table.elements.iter().position(is_wrong) {
            Some(at) => Err(ReadError::Element {
                row: at / dimensions,
                found: table.elements[at],
            }),
            None => Ok(Self {
                coordinates: table.elements,
                dimensions,
            }),
        }
    }

    /// Generates `count` points of `dimensions` coordinates around `centres` places between 0 and
    /// 1000, drawn with `seed`.
    ///
    /// # Panics
    /// If one of the numbers is 0, or there are more dimensions than [`MOST_DIMENSIONS`].
    pub fn generate(count: usize, dimensions: usize, centres: usize, seed: u64) -> Self {
        assert!(count > 0 && centres > 0 && (1..=MOST_DIMENSIONS).contains(&dimensions));
        let mut random = Random::new(seed);
        let places: Vec<f64> = (0..centres * dimensions)
            .map(|_| random.between(0.0, 1000.0))
            .collect();
        let mut coordinates = Vec::with_capacity(count * dimensions);
        for _ in 0..count {
            let place = random.below(centres as u64) as usize * dimensions;
            for middle in &places[place..place + dimensions] {
                coordinates.push(middle + 30.0 * random.bell());
            }
        }
        Self {
            coordinates,
            dimensions,
        }
    }

    /// Returns the number of points.
    #[expect(clippy::len_without_is_empty, reason = "there is at least one")]
    pub fn len(&self) -> usize {
        self.coordinates.len() / self.dimensions
    }

    /// Returns the number of coordinates of each point.
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// Returns all coordinates, point after point.
    pub fn coordinates(&self) -> &[f64] {
        &self.coordinates
    }

    /// Returns the coordinates of point `number`.
    ///
    /// # Panics
    /// If the point does not exist.
    pub fn point(&self, number: usize) -> &[f64] {
        &self.coordinates[number * self.dimensions..][..self.dimensions]
    }
}

/// Returns the pieces between separators. Spaces around a comma belong to it; between two adjacent
/// commas is an empty piece.
fn pieces(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let has_commas = line.iter().any(|byte| matches!(byte, b',' | b';'));
    line.split(move |byte| match has_commas {
        true => matches!(byte, b',' | b';'),
        false => byte.is_ascii_whitespace(),
    })
    .map(<[u8]>::trim_ascii)
    .filter(move |piece| has_commas || !piece.is_empty())
}

fn coordinate(piece: &[u8], line: usize) -> Result<f64, ReadError> {
    let is_word = piece.last().is_some_and(u8::is_ascii_alphabetic);
    match number(piece).filter(|_| !is_word) {
        Some(found) if found.abs() <= LARGEST => Ok(found),
        Some(found) => Err(ReadError::OutOfRange { line, found }),
        None => Err(ReadError::NoNumber {
            line,
            found: String::from_utf8_lossy(&piece[..piece.len().min(40)]).into_owned(),
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
            points in prop::collection::vec([-1e150f64..1e150, -1.0..1.0], 1..20),
            comma in any::<bool>(),
        ) {
            let text: String = points
                .iter()
                .map(|[x, y]| format!("{x}{}{y:e}\r\n", if comma { " , " } else { "\t " }))
                .collect();
            let read = Points::parse(text.as_bytes()).unwrap();
            prop_assert_eq!(read.coordinates(), points.concat());
            prop_assert_eq!((read.len(), read.dimensions()), (points.len(), 2));
        }

        #[test]
        fn any_bytes_are_points_or_are_refused(text in prop::collection::vec(
            prop_oneof![8 => prop::sample::select(b"0123456789.,;eE+- \n\n#inf".to_vec()), 1 => any::<u8>()],
            0..200,
        )) {
            if let Ok(points) = Points::parse(&text) {
                prop_assert!(points.len() > 0);
                prop_assert_eq!(points.coordinates().len(), points.len() * points.dimensions());
                prop_assert!(points.coordinates().iter().all(|x| x.abs() <= LARGEST));
            }
        }
    }

    #[test]
    fn rows_of_an_array_are_points() {
        let points = Points::parse(&npy("|i1", "True", "3, 2", &[1, 2, 3, 4, 5, 255])).unwrap();
        assert_eq!((points.len(), points.dimensions()), (3, 2));
        assert_eq!(points.coordinates(), [1.0, 4.0, 2.0, 5.0, 3.0, -1.0]);
        for (wrong, shown) in [(1e151f64, "1e151"), (f64::NAN, "NaN")] {
            let data = [0.0f64, 0.0, 0.0, wrong].map(f64::to_le_bytes).concat();
            let said = Points::parse(&npy("<f8", "False", "2, 2", &data))
                .unwrap_err()
                .to_string();
            assert!(
                said.starts_with("row 1: ") && said.contains("between"),
                "{shown}: {said}"
            );
        }
        let wide = npy("|u1", "False", "1, 1048577", &[0; (1 << 20) + 1]);
        let said = Points::parse(&wide).unwrap_err().to_string();
        assert!(said.starts_with("the array has 1048577 columns"), "{said}");
    }

    #[test]
    fn it_says_where_it_is_wrong() {
        let said = |text: &str| Points::parse(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(said("x,y\n1,2\n3,z\n"), "line 3: “z” is not a number");
        assert_eq!(
            said("1 2\n\n3\n"),
            "line 3 has 1 coordinates, but the points before it have 2"
        );
        assert_eq!(said("1,,2"), "line 1: “” is not a number");
        assert!(
            said("1e151").contains("between -1e150 and 1e150"),
            "{}",
            said("1e151")
        );
        assert!(said("1\nnan").contains("not a number"));
        assert!(said("# nothing\n").contains("no point"));
        let sheet = Points::parse("\u{feff}\"x\",\"y\"\r\n1;2\r\n".as_bytes()).unwrap();
        assert_eq!(sheet.coordinates(), [1.0, 2.0]);
        let fortran = Points::parse(b"1D+1 -2.5d0\n").unwrap();
        assert_eq!(fortran.coordinates(), [10.0, -2.5]);
        let error = Points::read(Path::new("/nowhere")).unwrap_err();
        assert!(error.to_string().contains("/nowhere cannot be read"));
    }
}
