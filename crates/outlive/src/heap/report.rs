//! What a walk over an allocator reports.

use core::fmt;

/// What a walk over a heap, or over a part of it, has found. Its [`Display`](fmt::Display) is a line for each
/// finding and one for the whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report<F, S> {
    /// What is wrong, at most [`MOST`](Self::MOST) of it.
    pub findings: Vec<F>,
    /// How much more was found and left out.
    pub left_out: u64,
    /// How the memory is used, as far as the words that say so can be believed.
    pub statistics: S,
}

impl<F, S> Report<F, S> {
    /// The most findings that are kept.
    pub const MOST: usize = 1000;

    /// Nothing is found yet.
    pub(super) fn new(statistics: S) -> Self {
        Self {
            findings: Vec::new(),
            left_out: 0,
            statistics,
        }
    }

    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    pub(super) fn note(&mut self, finding: F) {
        if self.findings.len() < Self::MOST {
            self.findings.push(finding);
        } else {
            self.left_out += 1;
        }
    }
}

impl<F: fmt::Display, S: fmt::Display> fmt::Display for Report<F, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        if self.left_out > 0 {
            writeln!(f, "and {} more", self.left_out)?;
        }
        let wrong = self.findings.len() as u64 + self.left_out;
        write!(f, "{wrong} findings; {}", self.statistics)
    }
}
