//! The pod of a chaos run: its members' ids, and the layout of the block that all workers share.
//!
//! ```text
//!  0x00000  whether the workers are to stop; the first thing that one of them found wrong
//!  0x01000  counters, 1 KiB each
//!  0x04000  the workers' cells, 4 KiB each
//! ```

use outlive::heap::LocalHeap;
use outlive::membership::InstanceId;
use outlive::pod::Pod;
use outlive::recovery::{
    Operation, OperationKind, RecoverError, RecoverOperation, Recoverers, Recovering,
};
use outlive::structures::Map;
use outlive_memory::{Memory, Native, Offset, Ordering};

/// The ids of the driver's host, process and thread.
pub const DRIVER: [InstanceId; 3] = [0, 9, 10];
/// The maximum number of workers.
pub const MOST_WORKERS: u32 = 32;
/// The maximum number of hosts.
pub const MOST_HOSTS: u32 = 8;
/// The number of large blocks that a worker can have, and of small ones.
pub const LARGE_CELLS: u64 = 16;
pub const SMALL_CELLS: u64 = 64;
/// The number of own keys of each worker, which only that worker changes.
pub const OWN_KEYS: u64 = 16;
/// The number of keys to which all workers add, and of keys that all insert and remove.
pub const SHARED_KEYS: u64 = 4;
pub const COMMON_KEYS: u64 = 4;

const FIRST_PROCESS: InstanceId = 100;
const FIRST_THREAD: InstanceId = 170;
const STOP: u64 = 0;
const FAULTS: u64 = 0x40;
const FAULT: u64 = 0x100;
const FAULT_BYTES: usize = 512;
const COUNTERS: u64 = 0x1000;
const COUNTER_BYTES: u64 = 0x400;
const CELLS: u64 = 0x4000;
const CELL_BYTES: u64 = 0x1000;
const BYTES: u64 = CELLS + MOST_WORKERS as u64 * CELL_BYTES;
const MAP: u64 = 0xC0;

/// The kind of operation that counts under a logged lock, for descriptors.
pub const COUNT: OperationKind = OperationKind::new(0xC4A0_0001);

/// Returns the id of the process of worker `worker`.
pub fn process_of(worker: u32) -> InstanceId {
    FIRST_PROCESS + worker
}

/// Returns the id of its thread.
pub fn thread_of(worker: u32) -> InstanceId {
    FIRST_THREAD + worker
}

/// Returns the worker whose process has the id `process`.
pub fn worker_of(process: InstanceId) -> u32 {
    process - FIRST_PROCESS
}

/// Returns the host of worker `worker` in a pod with `hosts` hosts.
pub fn host_of(worker: u32, hosts: u32) -> InstanceId {
    1 + worker % hosts
}

/// The block that the driver allocates for all workers.
#[derive(Clone, Copy, Debug)]
pub struct Stage {
    pub memory: Native,
    at: Offset,
}

impl Stage {
    /// Opens the stage at `at`.
    pub fn at(pod: &Pod, at: u64) -> Result<Self, String> {
        let memory = pod.segment().memory();
        let at = Offset::checked(at, BYTES, 128, memory.size());
        let at = at.map_err(text)?;
        Ok(Self { memory, at })
    }

    /// Allocates the stage, with the map and the shared keys, before any worker starts.
    pub fn prepare(pod: &Pod, heap: &LocalHeap<'_>) -> Result<Self, String> {
        let at = heap.allocate_into(BYTES, stage_cell(pod)).map_err(text)?;
        let this = Self::at(pod, at.raw())?;
        this.memory.copy_in(at, &vec![0; BYTES as usize]);
        let map = Map::<u64, u64>::create(heap, this.at + MAP).map_err(text)?;
        for number in 0..SHARED_KEYS {
            map.insert(heap, &shared_key(number), &0).map_err(text)?;
        }
        Ok(this)
    }

    /// Returns its offset, which is passed to the workers.
    pub fn place(self) -> u64 {
        self.at.raw()
    }

    pub fn map(self) -> Result<Map<u64, u64>, String> {
        let at: u64 = self.memory.load(self.at + MAP, Ordering::Acquire);
        Map::open(self.memory, Offset::from_raw(at)).map_err(text)
    }

    /// Returns the offset of counter `number`.
    pub fn counter(self, number: u64) -> Offset {
        self.at + COUNTERS + number * COUNTER_BYTES
    }

    /// Returns the cell of worker `worker` for its large block `number`.
    pub fn large_cell(self, worker: u32, number: u64) -> Offset {
        self.at + CELLS + u64::from(worker) * CELL_BYTES + number * 8
    }

    /// Returns the cell of worker `worker` for its small block `number`.
    pub fn small_cell(self, worker: u32, number: u64) -> Offset {
        self.large_cell(worker, LARGE_CELLS + number)
    }

    /// Tells the workers to stop.
    pub fn stop(self) {
        self.memory.store(self.at + STOP, 1u64, Ordering::Release);
    }

    pub fn is_stopped(self) -> bool {
        self.memory.load::<u64>(self.at + STOP, Ordering::Acquire) != 0
    }

    /// Reports a fault that a worker found. The text of the first one is kept.
    pub fn accuse(self, what: &str) {
        let faults = self.at + FAULTS;
        if self.memory.fetch_add(faults, 1u64, Ordering::AcqRel) == 0 {
            let mut text = [0; FAULT_BYTES];
            let len = what.len().min(FAULT_BYTES);
            text[..len].copy_from_slice(&what.as_bytes()[..len]);
            self.memory.copy_in(self.at + FAULT, &text);
        }
    }

    /// Returns the number of faults that the workers found, and the text of the first.
    pub fn accusations(self) -> Option<(u64, String)> {
        let faults: u64 = self.memory.load(self.at + FAULTS, Ordering::Acquire);
        let mut text = [0; FAULT_BYTES];
        self.memory.copy_out(self.at + FAULT, &mut text);
        let text = String::from_utf8_lossy(&text);
        (faults != 0).then(|| (faults, text.trim_end_matches('\0').to_owned()))
    }
}

/// Returns an own key of worker `worker`, which only that worker changes.
pub fn own_key(worker: u32, number: u64) -> u64 {
    (u64::from(worker) + 1) << 32 | number
}

/// Returns a shared key, to whose value every worker adds.
pub fn shared_key(number: u64) -> u64 {
    1 << 62 | number
}

/// Returns a common key, which every worker inserts and removes.
pub fn common_key(number: u64) -> u64 {
    1 << 61 | number
}

/// Returns the word with the offset of the stage, in the driver's own log.
fn stage_cell(pod: &Pod) -> Offset {
    pod.logs().of(DRIVER[2]).program_room()
}

/// Adds the handlers for the operations of this program.
pub fn add_handlers(recoverers: Recoverers) -> Recoverers {
    recoverers.operation(COUNT, CountUncommitted)
}

pub fn text(error: impl ToString) -> String {
    error.to_string()
}

/// The handler for counts. A count is part of the transaction that finishes its descriptor, so one
/// whose descriptor is still running was not committed.
struct CountUncommitted;

impl<M: Memory> RecoverOperation<M> for CountUncommitted {
    fn recover(&self, dead: &Recovering<'_, M>, operation: &Operation) -> Result<(), RecoverError> {
        dead.running(operation).abandon(&[]);
        Ok(())
    }
}
