//! Whatever words describe a heap, it is refused, or looked at to the end.

#![no_main]

use libfuzzer_sys::fuzz_target;
use outlive::heap::Heap;
use outlive::memory::{Memory, Native, Offset, Ordering, PersistenceDomain};
use outlive::recovery::Logs;
use std::sync::OnceLock;

const LOGS: Offset = Offset::new(4096);
const IDS: u32 = 2;
const LOG_BYTES: u64 = 0x2000 * IDS as u64;
const STATE: Offset = Offset::new(64 << 10);
const REGION: Offset = Offset::new(128 << 10);
const BYTES: u64 = 256 << 10;
/// At least what describes a heap of that size.
const STATE_BYTES: u64 = 8 << 10;

fuzz_target!(|changes: Vec<(u16, u64)>| {
    static SOUND: OnceLock<(Native, Vec<u64>)> = OnceLock::new();
    let (memory, sound) = SOUND.get_or_init(|| {
        let size = REGION.byte() + BYTES;
        let memory = Native::leaked(size, PersistenceDomain::Flushed);
        Heap::create(memory, STATE, REGION, BYTES).unwrap();
        assert!(Heap::<Native>::state_bytes(BYTES).unwrap() <= STATE_BYTES);
        let words = (0..REGION.byte() / 8)
            .map(|word| memory.load(Offset::new(word * 8), Ordering::Relaxed));
        (memory, words.collect())
    });
    for (word, value) in sound.iter().enumerate() {
        memory.store(Offset::new(word as u64 * 8), *value, Ordering::Relaxed);
    }
    for (word, value) in changes {
        let at = u64::from(word) % (LOG_BYTES + STATE_BYTES) / 8 * 8;
        let at = if at < LOG_BYTES { LOGS + at } else { STATE + (at - LOG_BYTES) };
        memory.store(at, value, Ordering::Relaxed);
    }
    if let Ok(heap) = Heap::open(*memory, STATE) {
        let _ = heap.check();
        let _ = heap.check_retired(Logs::new(*memory, LOGS, IDS));
    }
});
