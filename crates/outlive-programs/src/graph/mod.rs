//! Directed graphs: read from files or generated, and kept as compressed sparse rows.
//!
//! A [`Graph`] has for each vertex the sources of its *incoming* edges, in one array of all edges
//! with the start of each vertex's edges, and the number of edges that leave each vertex. A
//! matrix-vector product that *pulls* needs just that: the task that computes a vertex writes to
//! that vertex only.
//!
//! ```text
//!  begins   | 0 | 2 | 2 | 5 |        vertex 0 has the edges 0..2, vertex 1 none, vertex 2 has 2..5
//!  sources  | 1 | 2 | 0 | 1 | 2 |    from 1 and 2 to 0; from 0, 1 and 2 to 2
//!  leaving  | 1 | 2 | 2 |
//! ```
//!
//! # Edges
//! An edge exists or not: an edge that occurs twice counts once, as in a `DiGraph` of networkx. An
//! edge from a vertex to itself is allowed. Weights are not used; [`Graph::has_more_than_edges`]
//! tells whether an input had additional fields such as weights.
//!
//! # Inputs
//! [`GraphInput`] is a file, plain or [compressed](crate::compressed), or
//! `rmat:SCALE[:EDGEFACTOR[:SEED]]`, which is [generated](rmat). A file is an
//! [edge list](edge_list) or a [Matrix Market file](matrix_market), distinguished by its first
//! line. Files are read once, line by line, and only their edges are held during that, as pairs of
//! numbers; a generated graph's edges are generated twice instead. Files of many other kinds are
//! recognised by their first bytes and refused by name. Lines end with a line feed, or with a
//! carriage return if the first one does.

mod build;
pub mod edge_list;
mod error;
mod fields;
mod gaps;
mod header;
mod input;
mod kinds;
mod labels;
mod lines;
pub mod matrix_market;
pub mod rmat;

pub use error::{GraphError, Mistake};
pub use fields::Separator;
pub use input::GraphInput;
pub use labels::{Label, Labels};

/// The number of a vertex, from 0.
pub type Vertex = u32;

/// A directed graph, by incoming edges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    /// The start of each vertex's edges in `sources`, and the end of the last one's. Never falls;
    /// ends with the number of sources.
    begins: Vec<u64>,
    /// The sources of all edges, vertex by vertex, rising within each. All are vertices.
    sources: Vec<Vertex>,
    /// The number of edges that leave each vertex.
    leaving: Vec<u32>,
    labels: Labels,
    notes: Notes,
}

/// Properties of an input that its reader noticed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Notes {
    has_more: bool,
    first_line: FirstLine,
}

/// The meaning of the first line of an edge list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FirstLine {
    /// The first line is an edge. Inputs other than edge lists have this value too.
    #[default]
    Edge,
    /// The first line is a header, not an edge.
    Header {
        /// The line, counted from 1.
        line: u64,
        /// Its text.
        text: String,
    },
    /// The first line was read as an edge, but no other line has its two names, so it may be a
    /// header.
    PerhapsHeader {
        /// The line, counted from 1.
        line: u64,
        /// Its text.
        text: String,
    },
}

impl Graph {
    /// Returns the graph with the vertices 0 to `vertices` - 1 and these `edges`, each from its
    /// first vertex to its second one.
    ///
    /// ```
    /// use outlive_programs::graph::Graph;
    ///
    /// let graph = Graph::from_edges(3, &[[1, 0], [2, 0], [2, 0], [0, 2]])?;
    /// assert_eq!(graph.sources_of(0), [1, 2]);
    /// assert_eq!((graph.edges(), graph.leaving(2)), (3, 1));
    /// # Ok::<(), outlive_programs::graph::GraphError>(())
    /// ```
    ///
    /// # Errors
    /// If an edge has another vertex, or if the memory of this machine is too small.
    pub fn from_edges(vertices: u32, edges: &[[Vertex; 2]]) -> Result<Self, GraphError> {
        let other = edges.iter().flatten().find(|vertex| **vertex >= vertices);
        if let Some(vertex) = other {
            return Err(GraphError::NoVertex {
                vertex: *vertex,
                vertices,
            });
        }
        let labels = Labels::Range { first: 0 };
        build::build(vertices, || edges.iter().copied(), labels, Notes::default())
    }

    /// Returns the number of vertices.
    pub fn vertices(&self) -> u32 {
        self.leaving.len() as u32
    }

    /// Returns the number of edges, each counted once.
    pub fn edges(&self) -> u64 {
        self.sources.len() as u64
    }

    /// Returns the start of each vertex's edges among [all sources](Self::sources), and the end of
    /// the last one's.
    pub fn begins(&self) -> &[u64] {
        &self.begins
    }

    /// Returns the sources of all edges, vertex by vertex.
    pub fn sources(&self) -> &[Vertex] {
        &self.sources
    }

    /// Returns the sources of the edges that lead to `vertex`, in rising order.
    ///
    /// # Panics
    /// If it has no such vertex.
    pub fn sources_of(&self, vertex: Vertex) -> &[Vertex] {
        let at = vertex as usize;
        &self.sources[self.begins[at] as usize..self.begins[at + 1] as usize]
    }

    /// Returns the number of edges that leave `vertex`. A vertex that no edge leaves is *dangling*.
    ///
    /// # Panics
    /// If it has no such vertex.
    pub fn leaving(&self, vertex: Vertex) -> u32 {
        self.leaving[vertex as usize]
    }

    /// Returns the number of edges that leave each vertex.
    pub fn all_leaving(&self) -> &[u32] {
        &self.leaving
    }

    /// Returns the labels of the vertices.
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// Returns the label of `vertex`.
    ///
    /// # Panics
    /// If it has no such vertex.
    pub fn label(&self, vertex: Vertex) -> Label<'_> {
        self.labels.of(vertex)
    }

    /// Returns whether the graph's input had more than edges, weights for example, which are not
    /// used.
    pub fn has_more_than_edges(&self) -> bool {
        self.notes.has_more
    }

    /// Returns the meaning of the first line of its input.
    pub fn first_line(&self) -> &FirstLine {
        &self.notes.first_line
    }
}
