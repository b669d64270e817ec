//! The behaviour of hardware with dirty lines: the choices among machines.

/// The granularity at which a line is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tearing {
    /// Each aligned 8 bytes fall back on their own, to any value since they last reached memory.
    Words,
    /// A line reached memory as it was at one moment, as x86 guarantees for stores to one line.
    Lines,
}

/// The effect on a dirty line when another host reads or writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfers {
    /// It moves from cache to cache and stays dirty. A writer becomes the only host that holds it,
    /// including the stores of others: its death loses their stores, though they live. After a read
    /// either of the two may hold it (MOESI leaves it with the owner, a migratory protocol passes
    /// it to the reader), so the death of either may lose it.
    CacheToCache,
    /// It goes through memory (MESI with write-back on a snoop, as CXL 3 does by
    /// back-invalidation), and is clean afterwards.
    ThroughMemory,
}

/// The lines that a write-back reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteBacks {
    /// A line dirty in any cache, since the instruction names an address in the coherence domain: a
    /// reader can persist the value that it read.
    AnyCache,
    /// Only lines that the caller's own host alone has dirty.
    OwnCache,
}

/// The machine that [`Exploring`](super::Exploring) memory simulates.
#[derive(Clone, Copy, Debug)]
pub struct CacheRules {
    /// The granularity at which a line is lost.
    pub tearing: Tearing,
    /// The effect on a dirty line when another host accesses it.
    pub transfers: Transfers,
    /// The lines that a write-back reaches.
    pub write_backs: WriteBacks,
    /// The maximum number of images that a death leaves. If there could be more, this many are
    /// drawn at random, always including those in which all or nothing is lost, and the exploration
    /// is not complete.
    pub images: u16,
}

impl Default for CacheRules {
    /// The machine that loses most among those that can be programmed by write-back and drain: torn
    /// at 8 bytes, from cache to cache, write-backs reach any cache; 4,096 images.
    fn default() -> Self {
        Self {
            tearing: Tearing::Words,
            transfers: Transfers::CacheToCache,
            write_backs: WriteBacks::AnyCache,
            images: 4096,
        }
    }
}
