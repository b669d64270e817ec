//! The errors of reading and generating graphs.

use super::Vertex;
use crate::compressed::Compression;
use std::io;
use std::path::PathBuf;

/// The reason why a graph cannot be read or generated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// The operating system reported an error.
    #[error("{} cannot be read: {source}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A compressed file is damaged, or ends too early.
    #[error(
        "{} is compressed by {by} and cannot be unpacked: {source}; it is damaged or incomplete: \
         copy it again",
        .path.display()
    )]
    Packed {
        /// The file.
        path: PathBuf,
        /// The program that compressed it.
        by: Compression,
        /// The cause.
        source: io::Error,
    },
    /// The input is compressed in an unsupported format.
    #[error(
        "{} is compressed by {by}, which this program cannot unpack: unpack it first, or compress \
         it by gzip, xz, zstd or bzip2",
        .path.display()
    )]
    Compressed {
        /// The file.
        path: PathBuf,
        /// The program that compressed it.
        by: &'static str,
    },
    /// The input is compressed twice.
    #[error("{} is compressed twice: unpack it once", .path.display())]
    CompressedTwice {
        /// The file.
        path: PathBuf,
    },
    /// The input is a file of another kind.
    #[error(
        "{} is {kind}; a graph is read from an edge list (two vertices in each line) or a Matrix Market file: convert it to one of these",
        .path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The kind, with its article.
        kind: &'static str,
    },
    /// The input looks like a METIS graph: it has as many lines as its first line says, with twice
    /// as many vertices in them as that line says there are edges.
    #[error(
        "{} is a METIS graph, because its first line fits the other lines; convert it to an edge \
         list (or read it as one by --separator space)",
        .path.display()
    )]
    Metis {
        /// The file.
        path: PathBuf,
    },
    /// A separator is chosen for a file that is not an edge list.
    #[error(
        "{} is a Matrix Market file, in which white space separates fields: leave out --separator",
        .path.display()
    )]
    NoList {
        /// The file.
        path: PathBuf,
    },
    /// A line is invalid.
    #[error("{}, line {line}: {mistake}", .path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// The mistake in the line.
        mistake: Mistake,
    },
    /// The input has no edges and no vertices.
    #[error("{} has no edge and no vertex", .path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The name of a generated graph is invalid.
    #[error(
        "{input:?} is not a generated graph: {why}; write rmat:SCALE[:EDGEFACTOR[:SEED]], rmat:20 for example"
    )]
    Generator {
        /// The name.
        input: String,
        /// The mistake in it.
        why: &'static str,
    },
    /// An edge has a vertex that the graph does not have.
    #[error(
        "an edge has the vertex {vertex}, and the graph has {vertices} vertices, which are \
         numbered from 0"
    )]
    NoVertex {
        /// The vertex.
        vertex: Vertex,
        /// The number of vertices of the graph.
        vertices: u32,
    },
    /// There are more vertices than vertex numbers.
    #[error("a graph can have at most {} vertices; this one has more", u32::MAX)]
    TooManyVertices,
    /// This machine has less memory than the graph takes.
    #[error(
        "a graph of {vertices} vertices and {edges} edges takes {} MiB of memory, and this machine \
         has {} MiB; use a smaller graph",
        .bytes >> 20, .memory >> 20
    )]
    TooLarge {
        /// The number of vertices.
        vertices: u64,
        /// The number of edges.
        edges: u64,
        /// The bytes that the graph takes.
        bytes: u64,
        /// The bytes of memory of this machine.
        memory: u64,
    },
}

/// A mistake in a line of an input.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Mistake {
    /// The line is too long.
    #[error("the line is longer than {0} bytes; this is not a text with an edge in each line")]
    TooLong(usize),
    /// The line has only one field.
    #[error(
        "the line has only the field {field:?}: an edge is two vertices with {separator} between them"
    )]
    OneField {
        /// The field.
        field: String,
        /// The separator of fields.
        separator: &'static str,
    },
    /// One of the first two fields is empty.
    #[error("one of the line's first two fields is empty: an edge is the names of two vertices")]
    EmptyField,
    /// The separator of the line's fields is ambiguous.
    #[error(
        "the separator of fields in {0:?} is ambiguous: choose it by --separator space, tab, comma \
         or semicolon, or put names in quotes"
    )]
    Ambiguous(String),
    /// A field begins with a quote and does not end in the line.
    #[error(
        "{0:?} begins with a quote that is not closed in this line; inside quotes, write a quote that is part of a name as \"\""
    )]
    OpenQuote(String),
    /// A field in quotes is followed by something other than a separator.
    #[error(
        "{0:?} has text after its closing quote; inside quotes, write a quote that is part of a name as \"\""
    )]
    AfterQuote(String),
    /// A field has in it, after white space, a character that begins a comment at the start of a
    /// line.
    #[error(
        "{0:?} is ambiguous, since it may be a name or end with a comment: put comments in lines of their own, and such names in quotes"
    )]
    CommentInField(String),
    /// The header occurs again.
    #[error("{0:?} repeats the header, as in concatenated files: remove the line")]
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
    /// The line contains a carriage return.
    #[error(
        "the line contains a carriage return, so the line endings seem to be mixed: end all lines \
         by line feeds (tr '\\r' '\\n' converts them)"
    )]
    CarriageReturn,
    /// The line contains a control character.
    #[error("the line contains the byte 0x{0:02X}: this is not a text with an edge in each line")]
    Control(u8),
    /// A name is not valid UTF-8.
    #[error(
        "a name in the line is not UTF-8, because of the byte 0x{0:02X}: convert the file (iconv \
         -f LATIN1 -t UTF-8, if it is Latin 1)"
    )]
    NoText(u8),
    /// The line is almost the first line of a Matrix Market file.
    #[error(
        "{0:?} is almost the first line of a Matrix Market file, which has to be \"%%MatrixMarket \
         matrix coordinate FIELD SYMMETRY\" in line 1: correct it, or remove the line if this is \
         an edge list"
    )]
    Banner(String),
    /// The first line of a Matrix Market file is invalid.
    #[error(
        "{0:?} cannot be read as a graph: it has to be \"%%MatrixMarket matrix coordinate FIELD SYMMETRY\", FIELD one of pattern, real, integer, and SYMMETRY one of general, symmetric"
    )]
    Header(String),
    /// A field is not the required number.
    #[error("{found:?} is not {wanted}")]
    NoNumber {
        /// The text of the field.
        found: String,
        /// The required kind of number.
        wanted: &'static str,
    },
    /// The line has too few or too many fields.
    #[error("the line has {found} fields, and {wanted} are needed")]
    Fields {
        /// The number of its fields.
        found: usize,
        /// The required number and kind of fields.
        wanted: &'static str,
    },
    /// The numbers of rows and columns of the matrix differ.
    #[error(
        "a matrix of {rows} rows and {columns} columns is not a graph: it needs as many rows as \
         columns"
    )]
    NotSquare {
        /// The rows.
        rows: u64,
        /// The columns.
        columns: u64,
    },
    /// An entry is outside the matrix.
    #[error(
        "row {row}, column {column} is outside a matrix of {size} rows and columns, which are numbered from 1"
    )]
    Outside {
        /// Its row.
        row: u64,
        /// Its column.
        column: u64,
        /// The number of rows and columns of the matrix.
        size: u64,
    },
    /// An entry of a symmetric matrix is above the diagonal.
    #[error(
        "row {row}, column {column} is above the diagonal of a symmetric matrix, which has only \
         the entries on and below it"
    )]
    Above {
        /// Its row.
        row: u64,
        /// Its column.
        column: u64,
    },
    /// The file has ended before all entries.
    #[error("the file ends here with {found} entries, and its size line requires {said}")]
    TooFew {
        /// The number of entries.
        found: u64,
        /// The declared number of entries.
        said: u64,
    },
    /// There are more entries than declared.
    #[error("the file has more entries than its size line declares ({said})")]
    TooMany {
        /// The declared number of entries.
        said: u64,
    },
    /// The file has ended before the size line.
    #[error("the file ends here without the line with the size of the matrix")]
    NoSize,
}

/// Returns text of a file for use in an error, truncated if it is long.
pub(super) fn shown(bytes: &[u8]) -> String {
    const MOST: usize = 60;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MOST)]).into_owned();
    if bytes.len() > MOST {
        text + "…"
    } else {
        text
    }
}
