//! Why there is no graph.

use super::Vertex;
use std::io;
use std::path::PathBuf;

/// Why a graph cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// The operating system said no.
    #[error("{} cannot be read: {source}", .path.display())]
    Unreadable {
        /// What was to be read.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// What gzip made of it is damaged, or ends too early.
    #[error("{} is compressed by gzip and cannot be unpacked: {source}", .path.display())]
    Packed {
        /// What was to be read.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A line says something that it cannot say.
    #[error("{}, line {line}: {mistake}", .path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// What is wrong with it.
        mistake: Mistake,
    },
    /// There is no vertex.
    #[error("{} has no edge and no vertex", .path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A generator is not asked for as it can be.
    #[error(
        "{input:?} is no generated graph: {why}; write rmat:SCALE[:EDGEFACTOR[:SEED]], rmat:20 for example"
    )]
    Generator {
        /// What was asked for.
        input: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// An edge has a vertex that the graph does not have.
    #[error(
        "an edge has the vertex {vertex} of a graph of {vertices} vertices, which are numbered from 0"
    )]
    NoVertex {
        /// The vertex.
        vertex: Vertex,
        /// How many there are.
        vertices: u32,
    },
    /// There are more vertices than have numbers.
    #[error("a graph can have {} vertices, and this one has more", u32::MAX)]
    TooManyVertices,
    /// This machine has less memory than the graph takes.
    #[error(
        "a graph of {vertices} vertices and {edges} edges takes {} MiB of memory, and this machine has {} MiB",
        .bytes >> 20, .memory >> 20
    )]
    TooLarge {
        /// How many vertices it has.
        vertices: u64,
        /// How many edges it has.
        edges: u64,
        /// How much memory it takes.
        bytes: u64,
        /// How much there is.
        memory: u64,
    },
}

/// What is wrong with a line of an input.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Mistake {
    /// It does not end.
    #[error("it is longer than {0} bytes; this is no text with an edge in each line")]
    TooLong(usize),
    /// It has one field.
    #[error(
        "it has the field {0:?} and no second one: an edge is two vertices with white space between them"
    )]
    OneField(String),
    /// A first line of a Matrix Market file that is not as it has to be.
    #[error(
        "{0:?} cannot be read as a graph: it has to be \"%%MatrixMarket matrix coordinate FIELD SYMMETRY\", FIELD one of pattern, real, integer, and SYMMETRY one of general, symmetric"
    )]
    Header(String),
    /// Something is not the number that it has to be.
    #[error("{found:?} is not {wanted}")]
    NoNumber {
        /// What stands there.
        found: String,
        /// What should.
        wanted: &'static str,
    },
    /// There are too few or too many numbers in it.
    #[error("it has {found} fields, and {wanted} are wanted")]
    Fields {
        /// How many there are.
        found: usize,
        /// How many there should be, and what.
        wanted: &'static str,
    },
    /// The matrix has another number of rows than of columns.
    #[error("a matrix of {rows} rows and {columns} columns is no graph: they have to be as many")]
    NotSquare {
        /// The rows.
        rows: u64,
        /// The columns.
        columns: u64,
    },
    /// An entry stands outside the matrix.
    #[error(
        "row {row}, column {column} is outside a matrix of {size} rows and columns, which are numbered from 1"
    )]
    Outside {
        /// Its row.
        row: u64,
        /// Its column.
        column: u64,
        /// How large the matrix is.
        size: u64,
    },
    /// An entry of a symmetric matrix stands above the diagonal.
    #[error(
        "row {row}, column {column} is above the diagonal of a symmetric matrix, of which only what is below is written"
    )]
    Above {
        /// Its row.
        row: u64,
        /// Its column.
        column: u64,
    },
    /// The file has ended, and entries are missing.
    #[error("the file ends here with {found} entries, and its size line says {said}")]
    TooFew {
        /// How many there are.
        found: u64,
        /// How many there should be.
        said: u64,
    },
    /// There are more entries than there should be.
    #[error("there are more entries than the {said} that the size line says")]
    TooMany {
        /// How many there should be.
        said: u64,
    },
    /// The file has ended before the size line.
    #[error("the file ends here without the line that says how large the matrix is")]
    NoSize,
}

/// What stands in a file, as an error shows it: not all of it, if it is long.
pub(super) fn shown(bytes: &[u8]) -> String {
    const MOST: usize = 60;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MOST)]).into_owned();
    if bytes.len() > MOST {
        text + "…"
    } else {
        text
    }
}
