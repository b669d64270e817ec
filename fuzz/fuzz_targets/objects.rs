//! Observes a pod with named objects whose words were changed at random. The observer reads all
//! objects, or gets an error.

#![no_main]

use libfuzzer_sys::fuzz_target;
use outlive::host::Linux;
use outlive::memory::{Memory, Offset, Ordering};
use outlive::objects::Directory;
use outlive::pod::{Pod, PodOptions};
use outlive::segment::AreaKind;
use std::sync::OnceLock;

/// The offset of the first word that changes. The superblock was read when the segment was opened.
const FIRST: u64 = 4096;
/// The number of bytes of the heap that change. The heap allocates blocks from its start.
const USED: u64 = 256 << 10;
const NAMES: [&str; 9] = [
    "map", "list", "text", "counter", "array", "mutex", "barrier", "client", "renamed",
];

fn create() -> (Pod, Vec<u64>) {
    let options = PodOptions::new().size(1 << 20).ids(8).groups(1).events(4);
    let pod = Pod::create("memfd:fuzz", options).unwrap();
    {
        let session = pod.session().unwrap();
        let map = session.map::<str, u64>("map").unwrap();
        let list = session.list::<u64, [u8]>("list").unwrap();
        for n in 0..20u64 {
            map.upsert(&n.to_string(), &n, |n| n).unwrap();
            list.insert(&n, &[7; 9]).unwrap();
        }
        session.cell::<str>("text", "good day").unwrap();
        session.counter("counter").unwrap().add(1);
        session.array::<[u16; 3]>("array", 5).unwrap();
        session.mutex("mutex", [0u64; 2]).unwrap();
        session.barrier("barrier", 3).unwrap();
        let me = session.client("client").unwrap();
        map.request(&me, 1).remove("7");
        session.counter("other").unwrap();
        session.objects().rename("other", "renamed").unwrap();
    }
    // No process joins from here on.
    Linux::remove_side_file(pod.number()).unwrap();
    let memory = pod.segment().memory();
    let payload = pod.segment().area(AreaKind::Payload).unwrap().offset.byte();
    let word = |at| memory.load(Offset::new(at), Ordering::Relaxed);
    let words = (FIRST..payload + USED).step_by(8).map(word).collect();
    (pod, words)
}

fuzz_target!(|changes: Vec<(u32, u64)>| {
    static SOUND: OnceLock<(Pod, Vec<u64>)> = OnceLock::new();
    let (pod, sound) = SOUND.get_or_init(create);
    let memory = pod.segment().memory();
    let put = |index: usize, word: u64| {
        let at = Offset::new(FIRST + index as u64 * 8);
        memory.store(at, word, Ordering::Relaxed);
    };
    for (index, word) in sound.iter().enumerate() {
        put(index, *word);
    }
    // Words that are in use change, often to the value of another word or to a similar value.
    let used: Vec<usize> = (0..sound.len()).filter(|at| sound[*at] != 0).collect();
    for (index, word) in changes {
        let index = used[index as usize % used.len()];
        let drawn = word >> 2;
        let word = match word & 3 {
            0 => sound[used[drawn as usize % used.len()]],
            1 => sound[index].wrapping_add(drawn % 64),
            2 => sound[index] ^ 1 << (drawn % 64),
            _ => word,
        };
        put(index, word);
    }
    let Ok(pod) = Pod::of(pod.segment()) else {
        return;
    };
    if let Some(Ok(Some(directory))) = pod.heap().map(Directory::open) {
        let _ = directory.observe();
        for name in NAMES {
            let _ = directory.dump(name).map(|dump| dump.contents.to_string());
        }
    }
    let _ = pod.check();
});
