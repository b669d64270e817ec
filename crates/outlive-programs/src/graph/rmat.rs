//! Recursive matrices (R-MAT; Chakrabarti, Zhan and Faloutsos, 2004): generated graphs in which
//! many edges lead to few vertices, as in real-world graphs.
//!
//! A graph of scale *s* has 2^*s* vertices. An edge is a place in its adjacency matrix (row: from;
//! column: to), chosen by descending *s* times into one of the four quarters: upper left with the
//! probability 0.57, upper right and lower left with 0.19 each, lower right with 0.05, as in
//! Graph500. Vertices are not shuffled: low numbers have the most edges. Duplicate edges count
//! once, so there are somewhat fewer edges than were drawn.
//!
//! An edge depends only on the seed and on its own number: the same name is the same graph
//! everywhere.

use super::{Graph, GraphError, Labels, Notes, Vertex, build};
use outlive_run::random::{Random, mixed};
use std::fmt;

/// The name that generated graphs begin with.
pub(super) const PREFIX: &str = "rmat:";

/// A recursive matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rmat {
    scale: u32,
    edge_factor: u32,
    seed: u64,
}

/// The default number of edges that are drawn for each vertex.
const EDGE_FACTOR: u32 = 16;
const SEED: u64 = 1;
/// The largest scale: vertices have 32 bits.
const LARGEST: u32 = 31;

/// The borders of the quarters, of 2^32.
const UPPER_LEFT: u32 = part(0.57);
const UPPER: u32 = part(0.57 + 0.19);
const LEFT_OR_UPPER: u32 = part(0.57 + 0.19 + 0.19);

const fn part(of: f64) -> u32 {
    (of * 4_294_967_296.0) as u32
}

impl Rmat {
    /// Returns a matrix of 2^`scale` vertices, with `edge_factor` edges for each drawn by `seed`.
    ///
    /// # Errors
    /// If the scale is larger than 31.
    pub fn new(scale: u32, edge_factor: u32, seed: u64) -> Result<Self, GraphError> {
        let asked = Self {
            scale,
            edge_factor,
            seed,
        };
        if scale > LARGEST {
            let input = format!("{PREFIX}{scale}:{edge_factor}:{seed}");
            let why = "the scale can be 0 to 31";
            return Err(GraphError::Generator { input, why });
        }
        Ok(asked)
    }

    /// Parses `name`, which begins with `rmat:`.
    pub(super) fn parse(name: &str) -> Result<Self, GraphError> {
        let refused = |why| GraphError::Generator {
            input: name.to_owned(),
            why,
        };
        let mut parts = name.strip_prefix(PREFIX).unwrap_or_default().split(':');
        let mut next = |why| match parts.next() {
            Some(part) => part.parse().map(Some).map_err(|_| refused(why)),
            None => Ok(None),
        };
        let scale: Option<u64> = next("the scale is a number, 0 to 31")?;
        let edge_factor = next("the edge factor is a number")?;
        let seed = next("the seed is a number")?;
        if parts.next().is_some() {
            return Err(refused(
                "it has more than a scale, an edge factor and a seed",
            ));
        }
        let small = |number: u64| u32::try_from(number).ok();
        let scale = scale.and_then(small).filter(|scale| *scale <= LARGEST);
        let edge_factor = edge_factor.map_or(Some(EDGE_FACTOR), small);
        Ok(Self {
            scale: scale.ok_or_else(|| refused("the scale is a number, 0 to 31"))?,
            edge_factor: edge_factor.ok_or_else(|| refused("the edge factor is less than 2^32"))?,
            seed: seed.unwrap_or(SEED),
        })
    }

    /// Returns the number of vertices.
    pub fn vertices(self) -> u32 {
        1 << self.scale
    }

    /// Returns the number of edges that are drawn.
    pub fn drawn(self) -> u64 {
        u64::from(self.edge_factor) << self.scale
    }

    /// Returns the drawn edges, in their order.
    pub fn edges(self) -> impl Iterator<Item = [Vertex; 2]> {
        (0..self.drawn()).map(move |number| self.edge(number))
    }

    #[inline]
    fn edge(self, number: u64) -> [Vertex; 2] {
        let mut random = Random::new(mixed(self.seed ^ Random::new(number).word()));
        let (mut from, mut to) = (0, 0);
        let mut level = 0;
        while level < self.scale {
            let word = random.word();
            for half in [word as u32, (word >> 32) as u32] {
                if level < self.scale {
                    let beyond = |border: u32| u32::from(half >= border);
                    let lower = beyond(UPPER);
                    from = from << 1 | lower;
                    to = to << 1 | (beyond(UPPER_LEFT) ^ lower ^ beyond(LEFT_OR_UPPER));
                    level += 1;
                }
            }
        }
        [from, to]
    }

    /// Generates the graph.
    ///
    /// # Errors
    /// If the memory of this machine is too small.
    pub fn graph(self) -> Result<Graph, GraphError> {
        build::refuse_too_large(self.vertices().into(), self.drawn(), 0)?;
        let labels = Labels::Range { first: 0 };
        build::build(self.vertices(), || self.edges(), labels, Notes::default())
    }
}

impl fmt::Display for Rmat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            scale,
            edge_factor,
            seed,
        } = self;
        write!(f, "{PREFIX}{scale}:{edge_factor}:{seed}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_is_generated() {
        let rmat = |scale, edge_factor, seed| Rmat::new(scale, edge_factor, seed).unwrap();
        assert_eq!(Rmat::parse("rmat:10").unwrap(), rmat(10, 16, 1));
        assert_eq!(Rmat::parse("rmat:0:3").unwrap(), rmat(0, 3, 1));
        assert_eq!(Rmat::parse("rmat:31:4:99").unwrap(), rmat(31, 4, 99));
        for wrong in [
            "rmat:",
            "rmat:32",
            "rmat:-1",
            "rmat:5:x",
            "rmat:5:4294967296",
            "rmat:1:2:3:4",
        ] {
            let refused = Rmat::parse(wrong).unwrap_err().to_string();
            assert!(refused.contains("rmat:SCALE"), "{refused}");
        }
        assert!(Rmat::new(32, 1, 1).is_err());
    }

    #[test]
    fn the_quarters_have_their_shares_and_the_same_name_is_the_same_graph() {
        let rmat = Rmat::parse("rmat:12:64").unwrap();
        let half = rmat.vertices() / 2;
        let mut quarters = [0u32; 4];
        for [from, to] in rmat.edges() {
            quarters[usize::from(from >= half) * 2 + usize::from(to >= half)] += 1;
        }
        for (quarter, share) in quarters.iter().zip([0.57, 0.19, 0.19, 0.05]) {
            let found = f64::from(*quarter) / rmat.drawn() as f64;
            assert!((found - share).abs() < 0.005, "{quarters:?}");
        }
        let graph = rmat.graph().unwrap();
        assert_eq!(graph, rmat.graph().unwrap());
        assert_ne!(graph, Rmat::parse("rmat:12:64:2").unwrap().graph().unwrap());
        assert!(graph.edges() < rmat.drawn() && graph.edges() > rmat.drawn() / 3);
        // The same on every machine.
        let small = Rmat::parse("rmat:3:2").unwrap();
        let edges: Vec<[u32; 2]> = small.edges().collect();
        assert_eq!(edges.len(), 16);
        assert_eq!(&edges[..4], &[[1, 0], [0, 0], [1, 4], [4, 4]]);
    }

    #[test]
    fn what_has_no_room_is_refused() {
        let refused = Rmat::parse("rmat:31:4000000000").unwrap().graph();
        assert!(matches!(refused, Err(GraphError::TooLarge { .. })));
    }
}
