//! Whatever words stand in a pod, but for its payload: it is refused, or looked at to the end.

#![no_main]

use libfuzzer_sys::fuzz_target;
use outlive::memory::{Memory, Offset, Ordering};
use outlive::pod::{Pod, PodOptions};
use outlive::segment::{AreaKind, Segment};
use std::sync::OnceLock;

/// The superblock was read when the segment was opened: see the target `superblock`.
const FIRST: u64 = 4096;

fuzz_target!(|changes: Vec<(u32, u64)>| {
    static SOUND: OnceLock<(Segment, Vec<u64>)> = OnceLock::new();
    let (segment, sound) = SOUND.get_or_init(|| {
        let options = PodOptions::new().size(512 << 10).ids(8).groups(1).events(4);
        let pod = Pod::create("memfd:fuzz", options).unwrap();
        let segment = pod.segment();
        let payload = segment.area(AreaKind::Payload).unwrap().offset.byte();
        let word = |at| segment.memory().load(Offset::new(at), Ordering::Relaxed);
        let sound = (FIRST..payload).step_by(8).map(word).collect();
        (segment, sound)
    });
    let memory = segment.memory();
    let put = |index: usize, word: u64| {
        let at = Offset::new(FIRST + index as u64 * 8);
        memory.store(at, word, Ordering::Relaxed);
    };
    for (index, word) in sound.iter().enumerate() {
        put(index, *word);
    }
    for (index, word) in changes {
        put(index as usize % sound.len(), word);
    }
    if let Ok(pod) = Pod::of(*segment) {
        let _ = pod.check();
        let _ = pod.status();
    }
});
