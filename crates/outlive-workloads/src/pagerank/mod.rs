//! PageRank: how likely one is at each vertex who follows edges at random, and now and then begins anew anywhere.
//!
//! # The definition
//! Of a graph with *N* vertices, the ranks are found in iterations. At first each is 1/*N*. An iteration makes of all
//! ranks *r* the ranks
//!
//! ```text
//!  r'(v) = (1 - d)/N  +  d · ( sum of r(u)/leaving(u) over all edges u -> v   +   D/N )
//! ```
//!
//! where the *damping* `d` is 0.85 by default, `leaving(u)` is how many edges leave *u*, and *D* is the sum of the ranks
//! of all *dangling* vertices, which no edge leaves: what they have is spread evenly over all vertices, as if an edge
//! led from them to each. So ranks always sum to 1. Edges are as [a graph](crate::graph) has them: without
//! weights, each once, those from a vertex to itself included.
//!
//! The *residual* of an iteration is the sum of `|r'(v) - r(v)|`. The last iteration is the first one whose residual is
//! less than the *tolerance* (then the ranks have *converged*), or the one after which as many have been made as are
//! allowed. What is still missing of a rank that has converged is, summed over all vertices, at most
//! `d/(1-d)` times the residual. The default tolerance, 1e-10, leaves less than 1e-9; networkx calls
//! `tol` what is this tolerance divided by *N*.

#[cfg(test)]
mod dying;
mod on_tasks;
mod plain;
mod tasks;

pub use on_tasks::Ranking;
pub use plain::plain;
pub use tasks::{iterate, rank};

/// What is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PageRank {
    /// How likely one follows an edge: from 0 to less than 1, or 1.
    pub damping: f64,
    /// The residual below which no further iteration is made. At 0, all iterations are made.
    pub tolerance: f64,
    /// How many iterations are made at most.
    pub iterations: u32,
}

impl Default for PageRank {
    fn default() -> Self {
        Self {
            damping: 0.85,
            tolerance: 1e-10,
            iterations: 200,
        }
    }
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranks {
    /// The rank of each vertex.
    pub ranks: Vec<f64>,
    /// How many iterations were made.
    pub iterations: u32,
    /// The residual of the last one; infinite if none was made.
    pub residual: f64,
    /// Whether that is less than the tolerance.
    pub converged: bool,
}

impl Ranks {
    /// The largest difference of a rank to what `other` says; infinite if they are not as many.
    pub fn largest_difference(&self, other: &Self) -> f64 {
        if self.ranks.len() != other.ranks.len() {
            return f64::INFINITY;
        }
        let pairs = self.ranks.iter().zip(&other.ranks);
        pairs.fold(0.0, |most, (a, b)| {
            let difference = (a - b).abs();
            // Not a number is no agreement.
            if difference <= most {
                most
            } else if difference.is_nan() {
                f64::INFINITY
            } else {
                difference
            }
        })
    }
}
