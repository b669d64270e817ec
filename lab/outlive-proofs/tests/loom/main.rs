//! The deque and the group barrier under loom: a second opinion beside the scheduled memory of
//! `outlive-prove`, which also covers deaths. Every execution within a bound of preemptions, in
//! C11's memory model as loom implements it.

mod memory;

use loom::model::Builder;
use memory::{Modelled, Place};
use outlive::heap::{self, Heap, LocalHeap};
use outlive::memory::{Offset, Ordering};
use outlive::sync::{self, GroupBarrier, Waiting};
use outlive_proofs::pod::{DATA, LOCK, Pod, SIZE};
use outlive_prove::weakened::{Weakened, Weakness};
use outlive_tasks::engine::deque::{Deque, Stolen, steal};
use outlive_tasks::{Settings, Slots};
use std::sync::Arc;
use std::sync::Mutex;

type Weak = Weakened<Modelled>;

fn builder(interruptions: usize) -> Builder {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(interruptions);
    builder.max_branches = 20_000;
    builder
}

const SLOTS_AT: Offset = Offset::new(SIZE);
const STATE: Offset = Offset::new(SIZE + 4096);
const REGION: Offset = Offset::new(STATE.raw() + (12 << 10));
const REGION_BYTES: u64 = 2 * (32 << 10);
const BYTES: u64 = REGION.raw() + REGION_BYTES;

fn pod_of(memory: Weak, heap: Heap<Weak>) -> Pod<Weak> {
    let mut pod = Pod::new(memory);
    pod.recoverers = heap::recoverers_of(heap::recoverers(sync::recoverers(pod.logs)), heap);
    pod
}

/// Member 0 pushes and pops at slot 0, a thief steals `steals` times for slot 1: the entries that
/// each of them got, and those left, are all entries, each once.
fn all_are_taken_once(weakness: Option<Weakness>, entries: u64, steals: u32) {
    let bare = Modelled::leaked(BYTES);
    let memory = match weakness {
        Some(weakness) => Weakened::new(bare, weakness),
        None => Weakened::sound(bare),
    };
    let heap = Heap::create(memory, STATE, REGION, REGION_BYTES).unwrap();
    let settings = Settings {
        capacity: 2,
        chunk: 512,
        smallest: 3,
    };
    let slots = Slots::create(memory, SLOTS_AT, settings).unwrap();
    let pod = pod_of(memory, heap);
    for id in 0..2 {
        drop(pod.join(id));
    }
    // The entries' array is made once, before.
    {
        let member = pod.act_as(0);
        let local = LocalHeap::of(heap, &member, &pod.recoverers);
        Deque::adopt(slots.slot(0), &local, settings.smallest).unwrap();
    }
    let array = slots.blocks().unwrap()[0].raw();
    let places: Vec<Place> = vec![
        (
            SLOTS_AT.raw()..SLOTS_AT.raw() + Slots::<Weak>::bytes(settings.capacity),
            8,
        ),
        (array..array + (8 << settings.smallest), 8),
    ];
    let image = bare.image();
    builder(3).check(move || {
        bare.restore(&image);
        let pod = pod_of(memory, heap);
        let member = pod.act_as(0);
        let local = LocalHeap::of(heap, &member, &pod.recoverers);
        let mut deque = Deque::adopt(slots.slot(0), &local, settings.smallest).unwrap();
        let model = bare.model(&places);
        for entry in 1..=entries {
            deque.put(&local, entry * 16).unwrap();
        }
        deque.publish();
        let stolen = Arc::new(Mutex::new(Vec::new()));
        let thief = {
            let stolen = Arc::clone(&stolen);
            loom::thread::spawn(move || {
                for _ in 0..steals {
                    match steal(memory, slots.slot(0), slots.slot(1)).unwrap() {
                        Stolen::Entry(entry) => stolen.lock().unwrap().push(entry),
                        Stolen::Nothing | Stolen::Lost => {}
                    }
                }
            })
        };
        let mut taken = Vec::new();
        for _ in 0..entries {
            taken.extend(deque.pop());
        }
        // If bottom and top were at odds, no thread would see an entry that is put now.
        deque.put(&local, (entries + 1) * 16).unwrap();
        deque.publish();
        thief.join().unwrap();
        taken.extend(std::iter::from_fn(|| deque.pop()));
        taken.append(&mut stolen.lock().unwrap());
        drop(model);
        taken.sort_unstable();
        let all: Vec<u64> = (1..=entries + 1).map(|entry| entry * 16).collect();
        assert_eq!(taken, all, "each entry is taken once");
    });
}

#[test]
fn entries_of_a_deque_are_taken_once() {
    all_are_taken_once(None, 2, 2);
    all_are_taken_once(None, 1, 2);
}

#[test]
#[should_panic(expected = "each entry is taken once")]
fn a_deque_without_fences_is_caught() {
    all_are_taken_once(Some(Weakness::Fences(Ordering::SeqCst)), 2, 2);
}

/// Two members meet at a barrier: a member that is through sees the other's earlier writes.
fn both_have_arrived(weakness: Option<Weakness>) {
    let bare = Modelled::leaked(SIZE);
    let memory = match weakness {
        Some(weakness) => Weakened::new(bare, weakness),
        None => Weakened::sound(bare),
    };
    let pod = Pod::new(memory);
    for id in 0..2 {
        let member = pod.join(id);
        let seat = GroupBarrier::new(memory, LOCK, SEATS)
            .join(&member)
            .unwrap();
        core::mem::forget(seat);
    }
    let barrier = LOCK.raw()..LOCK.raw() + GroupBarrier::<Weak>::bytes(SEATS);
    let places: Vec<Place> = vec![(barrier, 16), (DATA.raw()..DATA.raw() + 16, 8)];
    let image = bare.image();
    builder(3).check(move || {
        bare.restore(&image);
        let model = bare.model(&places);
        let meet = move |id: u32| {
            let pod = Pod::new(memory);
            let member = pod.act_as(id);
            let mut seat = GroupBarrier::new(memory, LOCK, SEATS)
                .seat_of(&member)
                .unwrap();
            pod.set(id.into(), 1);
            seat.enter(Waiting::DEFAULT).unwrap();
            assert_eq!(
                pod.get((1 - id).into()),
                1,
                "the write of the other thread is seen"
            );
            core::mem::forget(seat);
        };
        let other = loom::thread::spawn(move || meet(1));
        meet(0);
        other.join().unwrap();
        drop(model);
        let view = GroupBarrier::new(memory, LOCK, SEATS).view().unwrap();
        assert_eq!((view.members, view.waiting, view.releases), (2, 0, 1));
    });
}

const SEATS: u32 = 4;

#[test]
fn members_of_a_barrier_meet() {
    both_have_arrived(None);
}

#[test]
#[should_panic(expected = "the write of the other thread is seen")]
fn a_barrier_whose_word_orders_nothing_is_caught() {
    let word = Weakness::Orderings(LOCK, 16);
    both_have_arrived(Some(word));
}
