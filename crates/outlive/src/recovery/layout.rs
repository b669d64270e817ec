//! The layout of a log.

use super::Log;
use crate::membership::{InstanceId, Member};
use outlive_memory::{Memory, Native, Offset};

pub(super) const OWNER: u64 = 0x000;
pub(super) const CLAIM: u64 = 0x040;
pub(super) const OPERATIONS: u64 = 0x080;
pub(super) const OPERATION_BYTES: u64 = 0x80;
pub(super) const INHERITED: u64 = 0x180;
pub(super) const LOCKS: u64 = 0x200;
pub(super) const REDO: u64 = 0x300;
pub(super) const RECORDS: u64 = 0x400;
pub(super) const NODES: u64 = 0x1000;
pub(super) const NODE_BYTES: u64 = 64;
pub(super) const ROOM: u64 = 0x1800;

/// The logs of all ids of a pod: a handle on the area that holds them.
#[derive(Clone, Copy, Debug)]
pub struct Logs<M: Memory = Native> {
    memory: M,
    base: Offset,
    capacity: u32,
}

impl<M: Memory> Logs<M> {
    /// The size of one id's log in bytes.
    pub const STRIDE: u64 = 0x2000;
    /// The maximum number of locks that one instance can hold or be taking at the same time.
    pub const LOCKS: usize = 32;
    /// The maximum number of stores of one redo transaction.
    pub const RECORDS: usize = ((NODES - RECORDS) / 16) as usize;
    /// The size in bytes of a log's scratch area, which the modules above may use.
    pub const ROOM: u64 = Self::STRIDE - ROOM;

    /// Returns the handle on the logs of the first `capacity` ids at `base`. Zeroed memory holds
    /// settled logs without an owner.
    ///
    /// # Panics
    /// If `base` is not aligned to a cache line or the area is not inside the memory.
    pub fn new(memory: M, base: Offset, capacity: u32) -> Self {
        let bytes = Self::bytes(capacity);
        assert!(
            Offset::checked(base.raw(), bytes, 64, memory.size()).is_ok(),
            "logs of {bytes} bytes at {base} are not inside a memory of {} bytes, or not aligned",
            memory.size()
        );
        Self {
            memory,
            base,
            capacity,
        }
    }

    /// Returns the size in bytes of the logs of `capacity` ids.
    pub const fn bytes(capacity: u32) -> u64 {
        capacity as u64 * Self::STRIDE
    }

    /// Returns the number of ids that have a log here.
    #[inline]
    pub fn capacity(self) -> u32 {
        self.capacity
    }

    /// Returns the memory that the logs are in.
    #[inline]
    pub fn memory(self) -> M {
        self.memory
    }

    /// Returns the offset of the log of `id`, which is an argument of [`Member::assume`].
    ///
    /// # Panics
    /// If the id does not exist.
    #[inline]
    pub fn at(self, id: InstanceId) -> Offset {
        if id >= self.capacity {
            no_such_id(id, self.capacity);
        }
        self.base + u64::from(id) * Self::STRIDE
    }

    /// Returns read access to the log of `id`.
    ///
    /// # Panics
    /// If the id does not exist.
    #[inline]
    pub fn of(self, id: InstanceId) -> Log<M> {
        Log::new(self.memory, self.at(id))
    }

    /// Returns whether `member`'s log is the log of its id in this area.
    #[inline]
    pub fn has(self, member: &Member<M>) -> bool {
        let id = member.instance().id;
        id < self.capacity && member.log() == self.at(id)
    }
}

/// Out of line, and with plain values: a handle whose address a panic message takes would be in
/// memory on the fast path too.
#[cold]
#[inline(never)]
#[track_caller]
fn no_such_id(id: InstanceId, capacity: u32) -> ! {
    panic!("id {id} does not exist: the pod has the logs of {capacity} ids, from 0 on")
}
