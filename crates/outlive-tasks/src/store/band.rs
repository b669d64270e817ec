//! The limits within which a pool resizes itself (MODC §3.1).

/// The load at which a pool resizes itself (MODC §3.1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Band {
    /// The fraction of the original workers that may fail, from 0 to 1.
    pub failed: f64,
    /// The minimum number of ready tasks per worker.
    pub fewest: f64,
    /// The maximum number of ready tasks per worker.
    pub most: f64,
}

impl Default for Band {
    /// Returns the band in which a quarter of the workers may fail, and 0 to 64 tasks may be ready
    /// for each worker.
    fn default() -> Self {
        Self {
            failed: 0.25,
            fewest: 0.0,
            most: 64.0,
        }
    }
}

/// The limits within which a pool resizes itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Elastic {
    /// The minimum number of workers.
    pub least: u32,
    /// The maximum number of workers.
    pub most: u32,
    /// The load at which it changes the number.
    pub band: Band,
}
