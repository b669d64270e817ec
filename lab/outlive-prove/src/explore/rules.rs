//! What hardware may do with dirty lines: the choices among machines.

/// How finely a lost line is torn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tearing {
    /// Each aligned 8 bytes fall back on their own, to any value since they last reached memory.
    Words,
    /// A line reached memory as it was at some moment: what x86 promises for the stores of one line.
    Lines,
}

/// What becomes of a dirty line when another host reads or writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfers {
    /// It goes from cache to cache and stays dirty. A writer becomes the only host that has it, with what
    /// others stored there: its death loses their stores, though they live. After a read either of the
    /// two may be the one who has it (MOESI leaves it with the owner, a migratory protocol hands it to
    /// the reader), so the death of either may lose it.
    CacheToCache,
    /// It goes through memory (MESI with write-back on a snoop, as CXL 3 does by back-invalidation), and
    /// is clean then.
    ThroughMemory,
}

/// Which lines a write-back reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteBacks {
    /// A line dirty in any cache, since the instruction names a place in the coherence domain: a reader
    /// can make sure of what it read.
    AnyCache,
    /// Only lines that the caller's own host alone has dirty.
    OwnCache,
}

/// The machine that [`Exploring`](super::Exploring) memory plays.
#[derive(Clone, Copy, Debug)]
pub struct CacheRules {
    /// How finely a lost line is torn.
    pub tearing: Tearing,
    /// What becomes of a dirty line that another host wants.
    pub transfers: Transfers,
    /// Which lines a write-back reaches.
    pub write_backs: WriteBacks,
    /// A death that could leave more images of the memory than this leaves as many drawn ones instead,
    /// always among them those in which all or nothing is lost; the exploration is not complete then.
    pub images: u16,
}

impl Default for CacheRules {
    /// The machine that loses most among those that can be programmed by write-back and drain: torn at
    /// 8 bytes, from cache to cache, write-backs reach any cache; 4,096 images.
    fn default() -> Self {
        Self {
            tearing: Tearing::Words,
            transfers: Transfers::CacheToCache,
            write_backs: WriteBacks::AnyCache,
            images: 4096,
        }
    }
}
