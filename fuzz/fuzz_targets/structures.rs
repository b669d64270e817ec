//! Whatever words a map or a list consists of: it is refused, or looked at to the end.

#![no_main]

use libfuzzer_sys::fuzz_target;
use outlive::heap::{self, Heap, LocalHeap};
use outlive::membership::{Generations, Instance, Level, Member, State, Status};
use outlive::memory::{Memory, Native, Offset, Ordering, PersistenceDomain};
use outlive::recovery::{Logs, OwnLog};
use outlive::structures::{self, List, Map};
use outlive::sync;
use std::sync::OnceLock;

const GENERATIONS: Offset = Offset::new(64);
const CELLS: [Offset; 2] = [Offset::new(1024), Offset::new(1032)];
const LOGS: Offset = Offset::new(4096);
const IDS: u32 = 2;
const STATE: Offset = Offset::new(64 << 10);
const REGION: Offset = Offset::new(128 << 10);
const BYTES: u64 = 8 * (32 << 10);

struct Sound {
    memory: Native,
    map: Offset,
    list: Offset,
    /// The words of all blocks of both.
    words: Vec<(Offset, u64)>,
}

fn sound() -> Sound {
    let memory = Native::leaked(REGION.byte() + BYTES, PersistenceDomain::Flushed);
    let generations = Generations::new(memory, GENERATIONS, IDS);
    let logs = Logs::new(memory, LOGS, IDS);
    let live = State { generation: 1, host: 0, level: Some(Level::Thread), status: Status::Live };
    // SAFETY: no thread acts as the incarnation that this ends; one acts as what it begins.
    assert!(unsafe { generations.assume_state(0, State::FREE, live) });
    // SAFETY: this thread alone acts as 0.1, and no other thread raises its generation.
    let member = unsafe { Member::assume(memory, generations, Instance::new(0, 1), logs.at(0), None) };
    OwnLog::open(&member).unwrap();
    let heap = Heap::create(memory, STATE, REGION, BYTES).unwrap();
    let recoverers = heap::recoverers_of(heap::recoverers(sync::recoverers(logs)), heap);
    let recoverers = structures::recoverers(recoverers, heap);
    let local = LocalHeap::of(heap, &member, &recoverers);
    let map = Map::<u64, [u8]>::create_small(&local, CELLS[0]).unwrap();
    let list = List::<str, u64>::create(&local, CELLS[1]).unwrap();
    for key in 0..12u64 {
        map.insert(&local, &key, &[1; 9]).unwrap();
        map.replace(&local, &key, &[2; 17]).unwrap();
        list.insert(&local, &key.to_string(), &key).unwrap();
    }
    let blocks = map.blocks().into_iter().chain(list.blocks());
    let words = blocks.flat_map(|block| (0..8).map(move |word| block + word * 8));
    let words = words.map(|at| (at, memory.load(at, Ordering::Relaxed)));
    Sound { memory, map: map.offset(), list: list.offset(), words: words.collect() }
}

fuzz_target!(|changes: Vec<(u16, u16, u64)>| {
    static SOUND: OnceLock<Sound> = OnceLock::new();
    let Sound { memory, map, list, words } = SOUND.get_or_init(sound);
    for (at, word) in words {
        memory.store(*at, *word, Ordering::Relaxed);
    }
    for (index, near, word) in changes {
        let (at, _) = words[usize::from(index) % words.len()];
        // Any word, or one that leads to a block, or close by.
        let word = match near {
            0 => word,
            near => words[usize::from(near) % words.len()].0.raw() ^ word & 0x1F,
        };
        memory.store(at, word, Ordering::Relaxed);
    }
    if let Ok(map) = Map::<u64, [u8]>::open(*memory, *map) {
        let _ = map.check();
    }
    if let Ok(list) = List::<str, u64>::open(*memory, *list) {
        let _ = list.check();
    }
});
