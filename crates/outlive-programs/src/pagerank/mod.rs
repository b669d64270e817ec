//! PageRank: the probability that a random surfer is at each vertex. The surfer follows edges at
//! random, and now and then restarts at a random vertex.
//!
//! # The definition
//! The ranks of a graph with *N* vertices are found in iterations. At first each is 1/*N*. An
//! iteration computes from all ranks *r* the ranks
//!
//! ```text
//!  r'(v) = (1 - d)/N  +  d · ( sum of r(u)/leaving(u) over all edges u -> v   +   D/N )
//! ```
//!
//! where the *damping* `d` is 0.85 by default, `leaving(u)` is the number of edges that leave *u*,
//! and *D* is the sum of the ranks of all *dangling* vertices, which no edge leaves. Their rank is
//! spread evenly over all vertices, as if an edge led from them to each. So ranks always sum to 1.
//! Edges are those of [a graph](crate::graph): without weights, each once, including edges from a
//! vertex to itself.
//!
//! The *residual* of an iteration is the sum of `|r'(v) - r(v)|`. The last iteration is the first
//! one with a residual less than the *tolerance* (then the ranks have *converged*), or the last one
//! allowed. The error of converged ranks, summed over all vertices, is at most `d/(1-d)` times the
//! residual. The default tolerance, 1e-10, leaves less than 1e-9. The parameter `tol` of networkx
//! is this tolerance divided by *N*.

#[cfg(test)]
mod dying;
mod on_tasks;
mod plain;
mod tasks;

pub use on_tasks::Ranking;
pub use plain::plain;
pub use tasks::{iterate, rank};

/// The parameters of a computation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PageRank {
    /// The damping factor: the probability with which an edge is followed, from 0 to 1.
    pub damping: f64,
    /// The residual below which no further iteration is made. At 0, all iterations are made.
    pub tolerance: f64,
    /// The maximum number of iterations that are made.
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

/// The result of a computation.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranks {
    /// The rank of each vertex.
    pub ranks: Vec<f64>,
    /// The number of iterations.
    pub iterations: u32,
    /// The residual of the last iteration; infinite if there was none.
    pub residual: f64,
    /// Whether the residual is less than the tolerance.
    pub converged: bool,
}

impl Ranks {
    /// Returns the largest difference of ranks to `other`; infinite if their numbers differ.
    pub fn largest_difference(&self, other: &Self) -> f64 {
        if self.ranks.len() != other.ranks.len() {
            return f64::INFINITY;
        }
        let pairs = self.ranks.iter().zip(&other.ranks);
        pairs.fold(0.0, |most, (a, b)| {
            let difference = (a - b).abs();
            // NaN does not count as agreement.
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
