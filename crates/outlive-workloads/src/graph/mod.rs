//! Directed graphs: read from files or generated, and kept as compressed sparse rows.
//!
//! A [`Graph`] has for each vertex the sources of its *incoming* edges, in one array of all edges with the place where
//! each vertex begins, and how many edges leave each vertex. That is what a matrix-vector product that *pulls* needs: who
//! computes a vertex writes to that vertex only.
//!
//! ```text
//!  begins   | 0 | 2 | 2 | 5 |        vertex 0 has the edges 0..2, vertex 1 none, vertex 2 has 2..5
//!  sources  | 1 | 2 | 0 | 1 | 2 |    from 1 and 2 to 0; from 0, 1 and 2 to 2
//!  leaving  | 1 | 2 | 2 |
//! ```
//!
//! # What is an edge
//! An edge is there or is not: one that is named twice counts once, as in a `DiGraph` of networkx. An edge from a
//! vertex to itself is an edge as any other. Weights are not used; [`Graph::has_more_than_edges`] tells that an input
//! had something like them.
//!
//! # Inputs
//! [`GraphInput`] says what they are called: a file, plain or [compressed](crate::compressed),
//! which is an [edge list](edge_list) or a [Matrix Market file](matrix_market), known by its first
//! line; or `rmat:SCALE[:EDGEFACTOR[:SEED]]`, which is [generated](rmat). Files are read once, line
//! by line. Of a file only its edges are held while it is read, as pairs of numbers; a generated
//! graph's are made twice instead. Files of many other kinds are recognised by their first bytes
//! and refused by name. Lines end with a line feed, or with a carriage return if the first one
//! does.

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

/// A number of a vertex: vertices are numbered from 0.
pub type Vertex = u32;

/// A directed graph, by incoming edges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    /// Where each vertex's edges begin in `sources`, and where the last one's end. Never falls; ends with the number of
    /// sources.
    begins: Vec<u64>,
    /// The sources of all edges, vertex by vertex, rising within each. All are vertices.
    sources: Vec<Vertex>,
    /// How many edges leave each vertex.
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
    /// It is an edge. Inputs other than edge lists have this value too.
    #[default]
    Edge,
    /// It is a header, not an edge.
    Header {
        /// The line, counted from 1.
        line: u64,
        /// Its text.
        text: String,
    },
    /// It was read as an edge, but no other line has its two names, so it may be a header.
    PerhapsHeader {
        /// The line, counted from 1.
        line: u64,
        /// Its text.
        text: String,
    },
}

impl Graph {
    /// The graph of the vertices before `vertices` with these `edges`, each from its first vertex to its second one.
    ///
    /// ```
    /// use outlive_workloads::graph::Graph;
    ///
    /// let graph = Graph::from_edges(3, &[[1, 0], [2, 0], [2, 0], [0, 2]])?;
    /// assert_eq!(graph.sources_of(0), [1, 2]);
    /// assert_eq!((graph.edges(), graph.leaving(2)), (3, 1));
    /// # Ok::<(), outlive_workloads::graph::GraphError>(())
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

    /// How many vertices it has.
    pub fn vertices(&self) -> u32 {
        self.leaving.len() as u32
    }

    /// How many edges it has, each counted once.
    pub fn edges(&self) -> u64 {
        self.sources.len() as u64
    }

    /// Where the edges of each vertex begin among [all sources](Self::sources), and where the last one's end.
    pub fn begins(&self) -> &[u64] {
        &self.begins
    }

    /// Where the edges come from, vertex by vertex.
    pub fn sources(&self) -> &[Vertex] {
        &self.sources
    }

    /// Where the edges come from that lead to `vertex`, in rising order.
    ///
    /// # Panics
    /// If it has no such vertex.
    pub fn sources_of(&self, vertex: Vertex) -> &[Vertex] {
        let at = vertex as usize;
        &self.sources[self.begins[at] as usize..self.begins[at + 1] as usize]
    }

    /// How many edges leave `vertex`. One that none leaves is *dangling*.
    ///
    /// # Panics
    /// If it has no such vertex.
    pub fn leaving(&self, vertex: Vertex) -> u32 {
        self.leaving[vertex as usize]
    }

    /// How many edges leave each vertex.
    pub fn all_leaving(&self) -> &[u32] {
        &self.leaving
    }

    /// What the vertices are called.
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// What `vertex` is called.
    ///
    /// # Panics
    /// If it has no such vertex.
    pub fn label(&self, vertex: Vertex) -> Label<'_> {
        self.labels.of(vertex)
    }

    /// Whether its input had more than edges, weights for example, which are not used.
    pub fn has_more_than_edges(&self) -> bool {
        self.notes.has_more
    }

    /// Returns the meaning of the first line of its input.
    pub fn first_line(&self) -> &FirstLine {
        &self.notes.first_line
    }
}
