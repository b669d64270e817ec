//! The names and sources of graphs.

use super::lines::Lines;
use super::rmat::{self, Rmat};
use super::{Graph, GraphError, Separator, edge_list, matrix_market};
use std::ffi::OsStr;
use std::fmt;
use std::path::PathBuf;

/// The source of a graph.
///
/// ```
/// use outlive_programs::graph::GraphInput;
///
/// let input = GraphInput::named("rmat:8:4".as_ref())?;
/// assert_eq!(input.load()?.vertices(), 256);
/// # Ok::<(), outlive_programs::graph::GraphError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GraphInput {
    /// A file: an edge list or a Matrix Market file, plain or [compressed](crate::compressed).
    File(PathBuf),
    /// A recursive matrix.
    Rmat(Rmat),
}

impl GraphInput {
    /// Interprets `name`: `rmat:…` is generated, everything else is the path of a file. (A file
    /// with such a name is written `./rmat:…`.)
    ///
    /// # Errors
    /// If the name of a generated graph is invalid.
    pub fn named(name: &OsStr) -> Result<Self, GraphError> {
        match name.to_str() {
            Some(name) if name.starts_with(rmat::PREFIX) => Rmat::parse(name).map(Self::Rmat),
            _ => Ok(Self::File(name.into())),
        }
    }

    /// Reads or generates the graph. The first line of an edge list decides its separator.
    ///
    /// # Errors
    /// If it cannot be read, is not a graph, or does not fit into the memory of this machine.
    pub fn load(&self) -> Result<Graph, GraphError> {
        self.load_separated(None)
    }

    /// Reads or generates the graph as [`load`](Self::load) does. If `separator` is given, the
    /// input must be an edge list with that separator.
    ///
    /// # Errors
    /// Returns the errors of `load`, and an error if a separator is given and the input is a Matrix
    /// Market file.
    pub fn load_separated(&self, separator: Option<Separator>) -> Result<Graph, GraphError> {
        let path = match self {
            Self::Rmat(rmat) => return rmat.graph(),
            Self::File(path) => path,
        };
        let mut lines = Lines::open(path)?;
        let first = lines.next()?.unwrap_or_default();
        let begins = first.get(..matrix_market::BANNER.len());
        let is_matrix =
            begins.is_some_and(|begins| begins.eq_ignore_ascii_case(matrix_market::BANNER));
        lines.again();
        match (is_matrix, separator) {
            (true, None) => matrix_market::read_lines(&mut lines),
            (true, Some(_)) => Err(GraphError::NoList { path: path.clone() }),
            (false, _) => edge_list::read_lines(&mut lines, separator),
        }
    }
}

impl fmt::Display for GraphInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Rmat(rmat) => rmat.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write;

    #[test]
    fn files_are_known_by_what_they_begin_with() {
        let place = tempfile::tempdir().unwrap();
        let load = |name: &str, bytes: &[u8]| {
            let path = place.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            GraphInput::named(path.as_os_str()).unwrap().load()
        };
        let pack = |text: &str| {
            let mut packer = GzEncoder::new(Vec::new(), Compression::default());
            packer.write_all(text.as_bytes()).unwrap();
            packer.finish().unwrap()
        };
        let list = "1 2\n2 3\n";
        let matrix = "%%MatrixMarket matrix coordinate pattern general\n3 3 2\n1 2\n2 3\n";
        let expected = load("list", list.as_bytes()).unwrap();
        assert_eq!((expected.vertices(), expected.edges()), (3, 2));
        // Names do not matter.
        assert_eq!(load("a.mtx", list.as_bytes()).unwrap(), expected);
        assert_eq!(load("a.txt", matrix.as_bytes()).unwrap(), expected);
        assert_eq!(load("b.txt", &pack(matrix)).unwrap(), expected);
        assert_eq!(load("c", &pack(list)).unwrap(), expected);
        // A list that begins with two comment signs is a list.
        assert_eq!(load("d", b"%% x\n1 2\n2 3\n").unwrap(), expected);
        let empty = load("e", b"").unwrap_err();
        assert!(matches!(empty, GraphError::Empty { .. }), "{empty}");
        let missing = GraphInput::named(place.path().join("none").as_os_str()).unwrap();
        let missing = missing.load().unwrap_err().to_string();
        assert!(
            missing.contains("none cannot be read: No such file"),
            "{missing}"
        );
        let directory = GraphInput::named(place.path().as_os_str()).unwrap();
        let directory = directory.load().unwrap_err().to_string();
        assert!(
            directory.contains("cannot be read: Is a directory"),
            "{directory}"
        );
        assert!(GraphInput::named("rmat:99".as_ref()).is_err());
        let file = GraphInput::named("./rmat:9".as_ref()).unwrap();
        assert_eq!(file, GraphInput::File("./rmat:9".into()));
        let rmat = GraphInput::named("rmat:9".as_ref()).unwrap();
        assert_eq!(rmat.to_string(), "rmat:9:16:1");
    }
}
