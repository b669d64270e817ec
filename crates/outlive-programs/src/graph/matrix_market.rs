//! Matrix Market files: sparse matrices as lists of their entries.
//!
//! ```text
//! %%MatrixMarket matrix coordinate pattern general
//! % rows, columns, entries
//! 3 3 2
//! 1 2
//! 3 1
//! ```
//!
//! An entry in row *i* and column *j* is an edge from vertex *i* to vertex *j* for any value,
//! including 0: the values are not used. A `symmetric` matrix has its entries in both directions. A
//! vertex without entries is a vertex, too. Supported are the format `coordinate`; the fields
//! `pattern`, `real` and `integer`; the symmetries `general` and `symmetric`. The exponent of a
//! value may be written as in Fortran, `1D+5`.

use super::error::shown;
use super::lines::{Lines, number};
use super::{Graph, GraphError, Labels, Mistake, Notes, build};
use std::io::BufRead;
use std::path::Path;

/// The first bytes of the files.
pub(super) const BANNER: &[u8] = b"%%MatrixMarket";

/// Returns whether `line`, which is not the first line or does not begin with the [banner](BANNER),
/// is a misspelt or misplaced banner.
pub(super) fn is_almost_banner(line: &[u8]) -> bool {
    let letters = line.iter().filter(|byte| byte.is_ascii_alphanumeric());
    let letters: Vec<u8> = letters.map(u8::to_ascii_lowercase).collect();
    let has = |words: &[u8]| letters.windows(words.len()).any(|part| part == words);
    letters.starts_with(b"matrixmarketmatrix")
        || (line.starts_with(b"%")
            && (letters.starts_with(b"matrixmarket")
                || has(b"matrixcoordinate")
                || has(b"matrixarray")))
}

/// Reads a Matrix Market file, plain or [compressed](crate::compressed), called `path` in errors.
///
/// ```
/// use outlive_programs::graph::matrix_market;
///
/// let file = "%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n3 3\n";
/// let graph = matrix_market::read(file.as_bytes(), "matrix".as_ref())?;
/// assert_eq!((graph.vertices(), graph.edges()), (3, 3));
/// assert_eq!(graph.label(0).to_string(), "1");
/// # Ok::<(), outlive_programs::graph::GraphError>(())
/// ```
///
/// # Errors
/// If it cannot be read, or is not a Matrix Market file.
pub fn read(reader: impl BufRead + 'static, path: &Path) -> Result<Graph, GraphError> {
    read_lines(&mut Lines::of(reader, path)?)
}

/// The properties in the first line.
#[derive(Clone, Copy)]
struct Header {
    has_values: bool,
    is_symmetric: bool,
}

impl Header {
    fn parse(line: &[u8]) -> Option<Self> {
        let line = std::str::from_utf8(line).ok()?.to_ascii_lowercase();
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let ["%%matrixmarket", "matrix", "coordinate", field, symmetry] = fields[..] else {
            return None;
        };
        Some(Self {
            has_values: match field {
                "pattern" => false,
                "real" | "integer" => true,
                _ => return None,
            },
            is_symmetric: match symmetry {
                "general" => false,
                "symmetric" => true,
                _ => return None,
            },
        })
    }
}

/// Returns the fields of `line`, which white space separates, up to a comment: a field that begins
/// with `#` or `%`.
fn fields(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| matches!(byte, b' ' | b'\t' | 0x0B | 0x0C))
        .filter(|field| !field.is_empty())
        .take_while(|field| !matches!(field[0], b'#' | b'%'))
}

/// The maximum number of edges for which memory is reserved in advance; a file may declare any
/// number.
const FORESEEN: u64 = 1 << 20;

pub(super) fn read_lines(lines: &mut Lines<impl BufRead>) -> Result<Graph, GraphError> {
    let first = lines.next()?.unwrap_or_default();
    let Some(header) = Header::parse(first) else {
        let found = shown(first);
        return Err(lines.mistake(Mistake::Header(found)));
    };
    let (size, said) = size_line(lines)?;
    let mut edges: Vec<[u32; 2]> = Vec::with_capacity(said.min(FORESEEN) as usize);
    let mut found = 0;
    while let Some(line) = lines.next()? {
        let Some([row, column]) = entry(line, header) else {
            if fields(line).next().is_some() {
                let line = line.to_vec();
                return Err(what_is_wrong(lines, &line, header));
            }
            continue;
        };
        let inside = |at: u64| (1..=u64::from(size)).contains(&at);
        if !inside(row) || !inside(column) {
            let size = size.into();
            return Err(lines.mistake(Mistake::Outside { row, column, size }));
        }
        if found == said {
            return Err(lines.mistake(Mistake::TooMany { said }));
        }
        found += 1;
        let edge = [row, column].map(|at| (at - 1) as u32);
        edges.push(edge);
        if header.is_symmetric {
            if column > row {
                return Err(lines.mistake(Mistake::Above { row, column }));
            }
            if column < row {
                edges.push([edge[1], edge[0]]);
            }
        }
    }
    if found < said {
        return Err(lines.mistake(Mistake::TooFew { found, said }));
    }
    let held = size_of_val(&edges[..]) as u64;
    build::refuse_too_large(size.into(), edges.len() as u64, held)?;
    let labels = Labels::Range { first: 1 };
    let notes = Notes {
        has_more: header.has_values,
        ..Notes::default()
    };
    build::build(size, || edges.iter().copied(), labels, notes)
}

/// Reads the number of rows and columns, and the number of entries.
fn size_line(lines: &mut Lines<impl BufRead>) -> Result<(u32, u64), GraphError> {
    let sizes = loop {
        let Some(line) = lines.next()? else {
            return Err(lines.mistake(Mistake::NoSize));
        };
        let found: Vec<Vec<u8>> = fields(line).map(<[u8]>::to_vec).collect();
        if !found.is_empty() {
            break found;
        }
    };
    let wanted = "3 (rows, columns, entries)";
    let [rows, columns, said] = &sizes[..] else {
        let found = sizes.len();
        return Err(lines.mistake(Mistake::Fields { found, wanted }));
    };
    let of = |digits: &[u8]| number(digits).ok_or_else(|| lines.no_number(digits, "a size"));
    let (rows, columns, said) = (of(rows)?, of(columns)?, of(said)?);
    if rows != columns {
        return Err(lines.mistake(Mistake::NotSquare { rows, columns }));
    }
    if rows == 0 {
        let path = lines.path().into();
        return Err(GraphError::Empty { path });
    }
    let size = u32::try_from(rows).map_err(|_| GraphError::TooManyVertices)?;
    build::refuse_too_large(rows, 0, 0)?;
    Ok((size, said))
}

/// Returns the row and the column of the entry in `line`; `None` if it is not a valid entry.
#[inline]
fn entry(line: &[u8], header: Header) -> Option<[u64; 2]> {
    let mut fields = fields(line);
    let at = [number(fields.next()?)?, number(fields.next()?)?];
    if header.has_values && !is_value(fields.next()?) {
        return None;
    }
    fields.next().is_none().then_some(at)
}

fn is_value(field: &[u8]) -> bool {
    let is_number = |text: &str| text.parse::<f64>().is_ok();
    std::str::from_utf8(field)
        .is_ok_and(|text| is_number(text) || is_number(&text.replace(['d', 'D'], "e")))
}

#[cold]
fn what_is_wrong(lines: &Lines<impl BufRead>, line: &[u8], header: Header) -> GraphError {
    let all: Vec<&[u8]> = fields(line).collect();
    let (wanted, count) = match header.has_values {
        true => ("3 (row, column, value)", 3),
        false => ("2 (row, column)", 2),
    };
    let no_place = all.iter().take(2).find(|digits| number(digits).is_none());
    match (no_place, all.get(2)) {
        (Some(found), _) => lines.no_number(found, "the number of a row or a column"),
        (None, Some(found)) if header.has_values && !is_value(found) => {
            lines.no_number(found, "a value")
        }
        _ => {
            debug_assert_ne!(all.len(), count);
            let found = all.len();
            lines.mistake(Mistake::Fields { found, wanted })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn graph_of(text: &str) -> Result<Graph, GraphError> {
        read(std::io::Cursor::new(text.to_owned()), Path::new("m.mtx"))
    }

    #[test]
    fn entries_are_edges_from_rows_to_columns() {
        let graph = graph_of(
            "%%MatrixMarket matrix coordinate real general\n% c\n\n4 4 3\n1 2 0.5\n1 2 -1D+3\n% c\n4 1 0d0\n",
        );
        let graph = graph.unwrap();
        assert_eq!((graph.vertices(), graph.edges()), (4, 2));
        assert_eq!(
            (graph.sources_of(1), graph.sources_of(0)),
            (&[0][..], &[3][..])
        );
        assert!(graph.has_more_than_edges());
        let symmetric = graph_of(
            "%%matrixmarket MATRIX Coordinate Pattern Symmetric\r\n3 3 2\r\n3 1\r\n2 2\r\n",
        );
        let symmetric = symmetric.unwrap();
        let rows: Vec<&[u32]> = (0..3).map(|to| symmetric.sources_of(to)).collect();
        assert_eq!(rows, [&[2][..], &[1], &[0]]);
        assert!(!symmetric.has_more_than_edges());
    }

    #[test]
    fn mistakes_are_told_with_their_lines() {
        let pattern = "%%MatrixMarket matrix coordinate pattern general\n";
        let real = "%%MatrixMarket matrix coordinate real general\n";
        let symmetric = "%%MatrixMarket matrix coordinate pattern symmetric\n";
        for (header, rest, told) in [
            (
                "",
                "1 2\n",
                "m.mtx, line 1: \"1 2\" cannot be read as a graph",
            ),
            ("%%MatrixMarket matrix array real general\n", "", "line 1: "),
            (
                "%%MatrixMarket matrix coordinate complex general\n",
                "",
                "line 1: ",
            ),
            (pattern, "% only\n", "line 2: the file ends here without"),
            (pattern, "3 3\n", "line 2: the line has 2 fields, and 3"),
            (pattern, "3 x 1\n", "line 2: \"x\" is not a size"),
            (
                pattern,
                "3 4 1\n",
                "line 2: a matrix of 3 rows and 4 columns",
            ),
            (pattern, "0 0 0\n", "m.mtx has no edge and no vertex"),
            (
                pattern,
                "9999999999 9999999999 1\n",
                "a graph can have at most 4294967295",
            ),
            (
                pattern,
                "3 3 2\n1 2\n",
                "line 3: the file ends here with 1 entries",
            ),
            (
                pattern,
                "3 3 1\n1 2\n2 3\n",
                "line 4: the file has more entries than its size line declares (1)",
            ),
            (
                pattern,
                "3 3 1\n1 4\n",
                "line 3: row 1, column 4 is outside",
            ),
            (
                pattern,
                "3 3 1\n0 1\n",
                "line 3: row 0, column 1 is outside",
            ),
            (
                pattern,
                "3 3 1\n1 2 3\n",
                "line 3: the line has 3 fields, and 2",
            ),
            (
                pattern,
                "3 3 1\n1 b\n",
                "line 3: \"b\" is not the number of a row",
            ),
            (real, "3 3 1\n1 2\n", "line 3: the line has 2 fields, and 3"),
            (real, "3 3 1\n1 2 x\n", "line 3: \"x\" is not a value"),
            (real, "3 3 1\n1 2 1DD5\n", "line 3: \"1DD5\" is not a value"),
            (
                real,
                "3 3 2\n1 2 1\r2 3 1\n",
                "line 3: \"1\\r2\" is not a value",
            ),
            (
                symmetric,
                "3 3 1\n1 2\n",
                "line 3: row 1, column 2 is above",
            ),
        ] {
            let found = graph_of(&format!("{header}{rest}"))
                .unwrap_err()
                .to_string();
            assert!(found.contains(told), "{header}{rest}: {found}");
        }
    }

    #[test]
    fn what_is_almost_the_banner_is_told() {
        for line in [
            "%MatrixMarket matrix coordinate real general",
            "%% MatrixMarket matrix coordinate real general",
            "  %%MatrixMarket matrix coordinate real general",
            "MatrixMarket matrix coordinate real general",
            "%%Matrix_Market matrix",
            "%MatrixMarket",
            "#%%MatrixMarket matrix coordinate real general",
            "%%MatrixMarkt matrix coordinate real general",
        ] {
            assert!(is_almost_banner(line.as_bytes()), "{line}");
        }
        for line in [
            "% a matrix",
            "matrix market",
            "# matrix coordinate",
            "% coordinates",
        ] {
            assert!(!is_almost_banner(line.as_bytes()), "{line}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_graph_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut file = b"%%MatrixMarket matrix coordinate real general\n".to_vec();
            file.extend(bytes);
            let _ = read(std::io::Cursor::new(file), Path::new("bytes"));
        }

        #[test]
        fn almost_a_matrix_is_a_graph_or_an_error(
            header in "%%MatrixMarket matrix (coordinate|array) (real|pattern|integer) (general|symmetric)",
            text in "\n([0-9]{1,2}|%) [0-9]{1,2} [0-9]\n([0-9]{1,2} [0-9]{1,2}( [0-9])?\n){0,9}",
        ) {
            if let Ok(graph) = graph_of(&(header + &text)) {
                prop_assert!(graph.sources().iter().all(|source| *source < graph.vertices()));
            }
        }
    }
}
