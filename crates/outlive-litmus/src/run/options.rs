//! The settings of a run.

use std::time::Duration;

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The number of clients, at least 2. This number of instances run concurrently, and this
    /// number of connections access the objects of a test with
    /// [`Assertion::Always`](crate::test::Assertion::Always).
    pub clients: usize,
    /// The limit after which a test ends that has found no violation.
    pub limit: Limit,
    /// The seed of the clients' choices: transactions, delays, crashes.
    pub seed: u64,
    /// Whether clients crash: the connection is dropped after a statement, after each one in turn
    /// and at random; and within commits, if the driver can kill a client there.
    pub crashes: bool,
    /// The longest time in which the store has to answer, and to let an object be written after a
    /// crash. A store that takes longer is [`Blocked`](super::Verdict::Blocked).
    pub patience: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            clients: 4,
            limit: Limit::Time(Duration::from_secs(1)),
            seed: 0,
            crashes: false,
            patience: Duration::from_secs(10),
        }
    }
}

/// The limit after which a test ends that has found no violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The test ends after this time.
    Time(Duration),
    /// The test ends after this number of instances.
    Instances(u64),
}
