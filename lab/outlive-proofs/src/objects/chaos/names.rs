//! The names of the objects, and their identities.

use core::ops::Range;

/// The names of objects that only their creators rename and remove. Every worker uses the objects.
pub const OWN: Range<u32> = 0..8;
/// The names of objects that every worker renames and removes.
pub const COMMON: Range<u32> = 8..11;

/// Returns the name under which worker `worker` creates objects that it then fills.
pub fn staging(worker: u32) -> u32 {
    COMMON.end + worker
}

pub fn is_common(name: u32) -> bool {
    COMMON.contains(&name)
}

/// Returns the text of a name.
pub fn name(name: u32) -> String {
    match name {
        _ if OWN.contains(&name) => format!("own {name}"),
        _ if is_common(name) => format!("common {name}"),
        _ => format!("staging {}", name - COMMON.end),
    }
}

/// The bits of an identity: a counter within the incarnation, then the incarnation. The remaining
/// upper bits are the worker.
const TAKEN_BITS: u32 = 18;
const INCARNATION_BITS: u32 = 18;

/// A generator of non-zero numbers that no other incarnation of any worker takes, for identities.
#[derive(Debug)]
pub struct Numbers(u64);

impl Numbers {
    pub fn new(worker: u32, incarnation: u64) -> Self {
        let worker = u64::from(worker) << INCARNATION_BITS;
        Self((worker | incarnation) << TAKEN_BITS)
    }

    pub fn take(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }
}

/// Returns the worker that took the number `id`.
pub fn owner(id: u64) -> u32 {
    (id >> TAKEN_BITS >> INCARNATION_BITS) as u32
}
