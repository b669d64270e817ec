//! Why there is no graph.

use super::Vertex;
use crate::compressed::Compression;
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
    /// A compressed file is damaged, or ends too early.
    #[error(
        "{} is compressed by {by} and cannot be unpacked: {source}; it is damaged or not all of it is there: copy it once more",
        .path.display()
    )]
    Packed {
        /// What was to be read.
        path: PathBuf,
        /// What compressed it.
        by: Compression,
        /// Why not.
        source: io::Error,
    },
    /// It is compressed by a program whose format is not unpacked here.
    #[error(
        "{} is compressed by {by}, which is not unpacked here: unpack it first, or compress it by gzip, xz, zstd or bzip2",
        .path.display()
    )]
    Compressed {
        /// What was to be read.
        path: PathBuf,
        /// What compressed it.
        by: &'static str,
    },
    /// It is compressed twice.
    #[error("{} is compressed twice: unpack it once", .path.display())]
    CompressedTwice {
        /// What was to be read.
        path: PathBuf,
    },
    /// It is a file of another kind.
    #[error(
        "{} is {kind}; a graph is read from an edge list (two vertices in each line) or a Matrix Market file: convert it to one of these",
        .path.display()
    )]
    Foreign {
        /// What was to be read.
        path: PathBuf,
        /// The kind, with its article.
        kind: &'static str,
    },
    /// It looks like a METIS graph: it has as many lines as its first line says, with twice as many
    /// vertices in them as that line says there are edges.
    #[error(
        "{} is a METIS graph by what its first line says of its other lines; convert it to an edge list (or read it as one by --separator space)",
        .path.display()
    )]
    Metis {
        /// What was to be read.
        path: PathBuf,
    },
    /// A separator is chosen for a file that is not an edge list.
    #[error("{} is a Matrix Market file, in which white space separates: leave out --separator", .path.display())]
    NoList {
        /// What was to be read.
        path: PathBuf,
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
        "{input:?} is not a generated graph: {why}; write rmat:SCALE[:EDGEFACTOR[:SEED]], rmat:20 for example"
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
    #[error("it is longer than {0} bytes; this is not a text with an edge in each line")]
    TooLong(usize),
    /// It has one field.
    #[error(
        "it has the field {field:?} and no second one: an edge is two vertices with {separator} between them"
    )]
    OneField {
        /// What stands there.
        field: String,
        /// What separates fields.
        separator: &'static str,
    },
    /// One of the first two fields is empty.
    #[error("one of its first two fields is empty: an edge is two vertices, which have names")]
    EmptyField,
    /// The separator of its fields is ambiguous.
    #[error(
        "what separates fields in {0:?} is not clear: say it by --separator space, tab, comma or semicolon, or put names in quotes"
    )]
    Ambiguous(String),
    /// A field begins with a quote and does not end in the line.
    #[error(
        "{0:?} begins with a quote, and no quote ends it in this line; a quote that is part of a name is written \"\" in quotes"
    )]
    OpenQuote(String),
    /// A field in quotes is followed by something other than a separator.
    #[error(
        "{0:?} is in quotes and something follows it at once; a quote that is part of a name is written \"\" in quotes"
    )]
    AfterQuote(String),
    /// A field has in it, after white space, a character that begins a comment at the start of a
    /// line.
    #[error(
        "{0:?} may end with a comment or be a name: put comments in lines of their own, and such names in quotes"
    )]
    CommentInField(String),
    /// The header occurs again.
    #[error("{0:?} is the header once more, as if files had been joined: remove the line")]
    HeaderAgain(String),
    /// The header names other columns than the first two.
    #[error(
        "{header:?} is a header that names the source of an edge in column {from} and its target in column {to}: these have to be columns 1 and 2"
    )]
    Columns {
        /// The line.
        header: String,
        /// The column of the sources, counted from 1.
        from: usize,
        /// The column of the targets.
        to: usize,
    },
    /// It has a carriage return in it.
    #[error(
        "there is a carriage return in it, as if lines ended in different ways: end all by line feeds (tr '\\r' '\\n' makes one of the other)"
    )]
    CarriageReturn,
    /// It has a control character in it.
    #[error("the byte 0x{0:02X} is in it: this is not a text with an edge in each line")]
    Control(u8),
    /// A name is not valid UTF-8.
    #[error(
        "a name in it is no UTF-8, by the byte 0x{0:02X}: convert the file (iconv -f LATIN1 -t UTF-8, if it is Latin 1)"
    )]
    NoText(u8),
    /// It is almost the first line of a Matrix Market file.
    #[error(
        "{0:?} is almost what a Matrix Market file begins with, which has to be \"%%MatrixMarket matrix coordinate FIELD SYMMETRY\" in line 1: correct it, or remove the line if this is an edge list"
    )]
    Banner(String),
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
    #[error(
        "a matrix of {rows} rows and {columns} columns is not a graph: they have to be as many"
    )]
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
