//! The report of a walk over an allocator.

use core::fmt;

/// The result of a walk over a heap, or over a part of it. Its [`Display`](fmt::Display) prints a
/// line for each finding and one for the whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report<F, S> {
    /// The findings, at most [`MOST`](Self::MOST).
    pub findings: Vec<F>,
    /// The number of further findings that were left out.
    pub left_out: u64,
    /// The use of the memory, as far as the words that describe it can be believed.
    pub statistics: S,
}

impl<F, S> Report<F, S> {
    /// The maximum number of findings that are kept.
    pub const MOST: usize = 1000;

    /// Returns a report without findings.
    pub(super) fn new(statistics: S) -> Self {
        Self {
            findings: Vec::new(),
            left_out: 0,
            statistics,
        }
    }

    /// Returns whether there are no findings.
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
