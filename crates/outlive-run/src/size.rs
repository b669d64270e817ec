//! The size of a segment.

use outlive::heap::Heap;
use outlive::memory::Native;

/// Returns the size of a segment with `heap` bytes of heap and `ids` members.
pub fn segment_bytes(heap: u64, ids: u32) -> u64 {
    let metadata = Heap::<Native>::state_bytes(heap).unwrap_or(heap / 256);
    let all = heap + metadata + u64::from(ids) * (10 << 10) + (1 << 20);
    all.next_multiple_of(Native::GRANULE.max(1 << 20))
}
