//! The pod of a chaos run: who has which id, and where things stand in the payload.
//!
//! ```text
//!  0x00000  whether the workers are to stop; the first thing that one of them found wrong
//!  0x01000  counters, 1 KiB each
//!  0x04000  the workers' cells, 4 KiB each
//!  0x24000  the heap's state, then its region to the end
//! ```

use outlive::heap::{self, Heap, LocalHeap};
use outlive::membership::InstanceId;
use outlive::pod::Pod;
use outlive::recovery::{
    Operation, OperationKind, RecoverError, RecoverOperation, Recoverers, Recovering,
};
use outlive::structures::{self, Map};
use outlive_memory::{Memory, Native, Offset, Ordering};

/// The driver's host, process and thread.
pub const DRIVER: [InstanceId; 3] = [0, 9, 10];
/// The most workers that there is room for.
pub const MOST_WORKERS: u32 = 32;
/// The most hosts.
pub const MOST_HOSTS: u32 = 8;
/// How many large blocks a worker can have, and how many small ones.
pub const LARGE_CELLS: u64 = 16;
pub const SMALL_CELLS: u64 = 64;
/// How many keys of the map only one worker changes.
pub const OWN_KEYS: u64 = 16;
/// How many keys everybody adds to, and how many everybody inserts and removes.
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
const HEAP: u64 = CELLS + MOST_WORKERS as u64 * CELL_BYTES;
const MAP: u64 = 0xC0;
const PAGE: u64 = 4096;

/// Counting under a logged lock, as the descriptors of operations name it.
pub const COUNT: OperationKind = OperationKind::new(0xC4A0_0001);

/// The process of worker `worker`.
pub fn process_of(worker: u32) -> InstanceId {
    FIRST_PROCESS + worker
}

/// Its thread.
pub fn thread_of(worker: u32) -> InstanceId {
    FIRST_THREAD + worker
}

/// The worker whose process has the id `process`.
pub fn worker_of(process: InstanceId) -> u32 {
    process - FIRST_PROCESS
}

/// The host of worker `worker` of a pod with `hosts` of them.
pub fn host_of(worker: u32, hosts: u32) -> InstanceId {
    1 + worker % hosts
}

/// The places in a pod's payload.
#[derive(Clone, Copy, Debug)]
pub struct Stage {
    pub memory: Native,
    payload: Offset,
    bytes: u64,
}

impl Stage {
    pub fn of(pod: &Pod) -> Result<Self, String> {
        let payload = pod.payload().ok_or("the pod has no payload")?;
        Ok(Self {
            memory: pod.segment().memory(),
            payload: payload.offset,
            bytes: payload.size,
        })
    }

    /// Makes the heap, before anybody else is there.
    pub fn prepare(self) -> Result<(), String> {
        let (state, bytes) = (self.payload + HEAP, self.bytes.saturating_sub(HEAP));
        let needed = Heap::<Native>::state_bytes(bytes).map_err(|error| error.to_string())?;
        let region = (HEAP + needed).next_multiple_of(PAGE);
        let left = self.bytes.saturating_sub(region);
        Heap::create(self.memory, state, self.payload + region, left)
            .map_err(|error| error.to_string())?;
        Ok(())
    }

    /// Makes the map, with the keys that everybody adds to, before the workers are there.
    pub fn prepare_map(self, heap: &LocalHeap<'_>) -> Result<(), String> {
        let map = Map::<u64, u64>::create(heap, self.payload + MAP);
        let map = map.map_err(|error| error.to_string())?;
        for number in 0..SHARED_KEYS {
            map.insert(heap, &shared_key(number), &0)
                .map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    pub fn heap(self) -> Result<Heap, String> {
        Heap::open(self.memory, self.payload + HEAP).map_err(|error| error.to_string())
    }

    pub fn map(self) -> Result<Map<u64, u64>, String> {
        let at: u64 = self.memory.load(self.payload + MAP, Ordering::Acquire);
        Map::open(self.memory, Offset::from_raw(at)).map_err(|error| error.to_string())
    }

    /// The place of counter `number`.
    pub fn counter(self, number: u64) -> Offset {
        self.payload + COUNTERS + number * COUNTER_BYTES
    }

    /// The cell of worker `worker` for its large block `number`.
    pub fn large_cell(self, worker: u32, number: u64) -> Offset {
        self.payload + CELLS + u64::from(worker) * CELL_BYTES + number * 8
    }

    /// The cell of worker `worker` for its small block `number`.
    pub fn small_cell(self, worker: u32, number: u64) -> Offset {
        self.large_cell(worker, LARGE_CELLS + number)
    }

    /// Tells the workers to stop.
    pub fn stop(self) {
        self.memory
            .store(self.payload + STOP, 1u64, Ordering::Release);
    }

    pub fn is_stopped(self) -> bool {
        self.memory
            .load::<u64>(self.payload + STOP, Ordering::Acquire)
            != 0
    }

    /// A worker found something wrong. The first one is kept in words.
    pub fn accuse(self, what: &str) {
        let faults = self.payload + FAULTS;
        if self.memory.fetch_add(faults, 1u64, Ordering::AcqRel) == 0 {
            let mut text = [0; FAULT_BYTES];
            let len = what.len().min(FAULT_BYTES);
            text[..len].copy_from_slice(&what.as_bytes()[..len]);
            self.memory.copy_in(self.payload + FAULT, &text);
        }
    }

    /// How much the workers found wrong, and the first of it.
    pub fn accusations(self) -> Option<(u64, String)> {
        let faults: u64 = self.memory.load(self.payload + FAULTS, Ordering::Acquire);
        let mut text = [0; FAULT_BYTES];
        self.memory.copy_out(self.payload + FAULT, &mut text);
        let text = String::from_utf8_lossy(&text);
        (faults != 0).then(|| (faults, text.trim_end_matches('\0').to_owned()))
    }
}

/// A key that only worker `worker` changes.
pub fn own_key(worker: u32, number: u64) -> u64 {
    (u64::from(worker) + 1) << 32 | number
}

/// A key whose value everybody adds to.
pub fn shared_key(number: u64) -> u64 {
    1 << 62 | number
}

/// A key that everybody inserts and removes.
pub fn common_key(number: u64) -> u64 {
    1 << 61 | number
}

/// What every process of the pod has to know to recover the others.
pub fn recoverers(pod: &Pod, heap: Heap) -> Recoverers {
    let known = heap::recoverers(outlive::sync::recoverers(pod.logs()));
    add_handlers(known, heap)
}

/// Adds the handlers for this program's heap and operations.
pub fn add_handlers(recoverers: Recoverers, heap: Heap) -> Recoverers {
    structures::recoverers(heap::recoverers_of(recoverers, heap), heap)
        .operation(COUNT, CountUncommitted)
}

/// A count is part of the transaction that finishes its descriptor: one that runs was not committed.
struct CountUncommitted;

impl<M: Memory> RecoverOperation<M> for CountUncommitted {
    fn recover(&self, dead: &Recovering<'_, M>, operation: &Operation) -> Result<(), RecoverError> {
        dead.running(operation).abandon(&[]);
        Ok(())
    }
}
