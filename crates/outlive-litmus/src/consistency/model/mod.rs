//! Executable reference models of isolation levels.
//!
//! A model is a store that is small enough to enumerate all of its executions of a test. Each model
//! gives its [`level`](Model::level), so an outcome that the level forbids never occurs in the
//! model. The reverse does not hold: a model is an implementation, and most implementations are
//! stricter than their level. [`Model::stricter`] says in which way.

mod explore;
mod machine;
mod verify;

pub use explore::{Exploration, explore};
pub use verify::{Objection, Verified, instances, verify};

use crate::level::{Isolation, Level};

/// A model of a store that guarantees an isolation level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Model {
    /// The name of the model.
    pub name: &'static str,
    /// The isolation level that the model guarantees.
    pub level: Level,
    /// A description of the executions that the level allows and the model cannot show.
    pub stricter: &'static str,
    rules: Rules,
}

/// The concurrency control of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rules {
    /// A write is the newest version of its object, or an older one; a read returns any value that
    /// was ever written.
    Anything,
    /// Reads and writes in place, without locks.
    Unprotected,
    /// Reads and writes in place, writes under locks that are held until the end.
    WriteLocks,
    /// Reads of committed values, writes under locks that are held until the end. With `stale`, a
    /// read returns any committed value that the object ever had.
    Committed { stale: bool },
    /// Reads and writes of objects under locks that are held until the end; counts take no lock.
    ItemLocks,
    /// Reads from a snapshot; a transaction aborts if an object that it wrote has changed since.
    /// With `latest`, the snapshot holds everything committed before the transaction began;
    /// otherwise it can be older.
    Snapshot { latest: bool },
    /// One transaction after the other. Without `real_time`, in any order.
    Serial { real_time: bool },
}

impl Model {
    /// All models, by the isolation of their levels.
    pub const ALL: [Self; 10] = [
        Self {
            name: "anything",
            level: Level::new(Isolation::None, true),
            stricter: "reads see no later write",
            rules: Rules::Anything,
        },
        Self {
            name: "unprotected",
            level: Level::new(Isolation::None, true),
            stricter: "reads and writes happen in the order of time, and reads see no later write",
            rules: Rules::Unprotected,
        },
        Self {
            name: "write locks",
            level: Level::new(Isolation::ReadUncommitted, true),
            stricter: "the version order is the order of commits, and reads see the newest write",
            rules: Rules::WriteLocks,
        },
        Self {
            name: "committed reads",
            level: Level::new(Isolation::ReadCommitted, true),
            stricter: "each read sees the newest committed value",
            rules: Rules::Committed { stale: false },
        },
        Self {
            name: "stale committed reads",
            level: Level::new(Isolation::ReadCommitted, true),
            stricter: "reads see committed values only, also where no cycle would result",
            rules: Rules::Committed { stale: true },
        },
        Self {
            name: "item locks",
            level: Level::new(Isolation::RepeatableRead, true),
            stricter: "transactions wait where another order of them would be allowed",
            rules: Rules::ItemLocks,
        },
        Self {
            name: "snapshot",
            level: Level::new(Isolation::Snapshot, true),
            stricter: "none is known among the tests",
            rules: Rules::Snapshot { latest: true },
        },
        Self {
            name: "older snapshot",
            level: Level::new(Isolation::Snapshot, false),
            stricter: "transactions commit in the order of time",
            rules: Rules::Snapshot { latest: false },
        },
        Self {
            name: "serial",
            level: Level::new(Isolation::Serializable, true),
            stricter: "none: each strictly serializable outcome is that of a serial execution",
            rules: Rules::Serial { real_time: true },
        },
        Self {
            name: "serial, out of order",
            level: Level::new(Isolation::Serializable, false),
            stricter: "none: each serializable outcome is that of a serial execution",
            rules: Rules::Serial { real_time: false },
        },
    ];
}
