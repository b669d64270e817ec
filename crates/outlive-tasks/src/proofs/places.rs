//! The making and the destruction of a pool, killed at every instruction: the cases of the table in `pool/header.rs`.
//!
//! The victim is number 0; 1 and 2 go on; 3 has prepared the memory. What the victim had in hand stays there until its id
//! makes or destroys a pool again. So a survivor recovers it, its next incarnation looks after what is in hand, and whatever
//! happened the pool is there whole, or there is none and nothing has leaked.

use super::world::{SPLIT, WRITE, Way, World, bytes};
use crate::crew::{Crew, blocks_of};
use crate::desk::Desk;
use crate::jobs::{JobState, name_key};
use crate::layout::{Layout, Shape};
use crate::pool::header::{Place, in_hand};
use crate::pool::{DestroyPoint, MakePoint};
use crate::{PoolError, Settings};
use core::time::Duration;
use outlive::heap::LocalHeap;
use outlive::membership::Status;
use outlive::memory::{Memory, Offset, Ordering};
use outlive::segment::Roots;
use outlive_prove::fixtures::pod::IDS;
use outlive_prove::kill::{Crash, Marked, Suite, Sweep};

/// Adds the sweeps of this file.
pub fn add_to(suite: &mut Suite) {
    for case in Case::SOUND {
        suite.add(Pools(case));
    }
    suite.declare::<MakePoint>().declare::<DestroyPoint>();
}

/// Ways to get it wrong: they must fail, each with a part of what must be said.
pub fn broken() -> Vec<(Box<dyn Sweep>, &'static str)> {
    [Case::MakesTooSoon, Case::DestroysTooEarly]
        .map(|case| -> (Box<dyn Sweep>, _) { (Box::new(Pools(case)), "is not whole") })
        .into()
}

/// What the victim is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    /// Makes the pool, the first of its name.
    Makes,
    /// The same, and another is faster.
    MakesInVain,
    /// Makes one when its predecessor has died in the middle of clearing a header.
    MakesAfterARawOne,
    /// Makes one when its predecessor has died with a pool in hand that was out of its place.
    MakesAfterADestroyer,
    /// Destroys a pool that was worked in.
    Destroys,
    /// Destroys one that its dead maker has in hand still.
    DestroysFromAnothersHand,
    /// Broken: the pool is in its place before it is whole.
    MakesTooSoon,
    /// Broken: it is taken apart, and then out of its place.
    DestroysTooEarly,
}

/// Who has died with the pool in hand, where its maker has.
const MAKER: u32 = 3;
const POOL: &str = "p";
/// How many slabs the heap has room for.
const SLABS: u64 = 24;
const TEXT: (u64, &str) = (7, "none");

const SHAPE: Shape = Shape {
    slots: Settings {
        capacity: 2,
        chunk: 1024,
        smallest: 3,
    },
    roots: 1,
    tries: 2,
    crash_limit: 8,
    freeze: Duration::from_secs(1),
    original: 2,
    elastic: None,
    small: true,
};

impl Case {
    const SOUND: [Self; 6] = [
        Self::Makes,
        Self::MakesInVain,
        Self::MakesAfterARawOne,
        Self::MakesAfterADestroyer,
        Self::Destroys,
        Self::DestroysFromAnothersHand,
    ];

    /// Whether there is a pool before.
    fn is_there(self) -> bool {
        matches!(
            self,
            Self::MakesInVain
                | Self::MakesAfterADestroyer
                | Self::Destroys
                | Self::DestroysFromAnothersHand
                | Self::DestroysTooEarly
        )
    }

    fn destroys(self) -> bool {
        matches!(
            self,
            Self::Destroys | Self::DestroysFromAnothersHand | Self::DestroysTooEarly
        )
    }

    fn prepare(self, memory: Marked) {
        let (pod, heap) = World::create_pod(memory, SLABS);
        let maker = pod.act_as(MAKER);
        let local = LocalHeap::of(heap, &maker, &pod.recoverers);
        if self.is_there() {
            let place = place(&pod, &local).expect("room");
            let layout = place.make(&SHAPE, TEXT).expect("room");
            drop(local);
            drop(maker);
            let layout = layout.expect("nobody else makes one");
            use_it(&World { pod, heap, layout });
        } else {
            drop(local);
            drop(maker);
        }
        let (pod, heap) = World::pod(memory);
        let hand = |id: u32| pod.logs.of(id).program_room() + (1024 - 16);
        let header = || -> u64 {
            let root = roots(memory).list().expect("sound")[0].offset;
            memory.load(root, Ordering::Relaxed)
        };
        match self {
            Self::DestroysFromAnothersHand => {
                // It died right after the pool was in its place.
                memory.store(hand(MAKER), header(), Ordering::Relaxed);
            }
            Self::MakesAfterADestroyer => {
                memory.store(hand(0), header(), Ordering::Relaxed);
                let root = roots(memory).list().expect("sound")[0].offset;
                memory.store(root, 0u64, Ordering::Relaxed);
            }
            Self::MakesAfterARawOne => {
                let member = pod.act_as(0);
                let local = LocalHeap::of(heap, &member, &pod.recoverers);
                memory.store(hand(0) - 8, 1u64, Ordering::Relaxed);
                let bytes = SHAPE.bytes::<Marked>();
                let at = local.allocate_into(bytes, hand(0)).expect("room");
                // What looks like a pool, and is none.
                for word in (0..bytes).step_by(8) {
                    memory.store(at + word, 0xA5A5u64, Ordering::Relaxed);
                }
                memory.store(at, u64::from_le_bytes(*b"taskpol2"), Ordering::Relaxed);
            }
            _ => {}
        }
        pod.declare_dead(MAKER);
        if matches!(self, Self::MakesAfterADestroyer | Self::MakesAfterARawOne) {
            // The victim is the next incarnation.
            rejoin(&pod, 0, 1);
        }
    }

    fn operate(self, memory: Marked) -> Result<(), PoolError> {
        let (pod, heap) = World::pod(memory);
        let victim = pod.act_as(0);
        let local = LocalHeap::of(heap, &victim, &pod.recoverers);
        let place = place(&pod, &local)?;
        match (self, place.header()) {
            (Self::MakesTooSoon, _) => place.make_too_soon(&SHAPE, TEXT),
            (Self::DestroysTooEarly, Some(header)) => place.empty_too_late(header),
            (Self::Destroys | Self::DestroysFromAnothersHand, Some(header)) => place.empty(header),
            (Self::Makes | Self::MakesAfterARawOne | Self::MakesAfterADestroyer, None) => {
                let made = place.make(&SHAPE, TEXT)?;
                assert!(made.is_some(), "nobody else makes one");
                Ok(())
            }
            (Self::MakesInVain, Some(_)) => {
                // It came after this one had looked.
                assert!(place.make(&SHAPE, TEXT)?.is_none(), "it was there before");
                Ok(())
            }
            (_, header) => panic!("the pool before: {header:?}"),
        }
    }
}

/// Has a job run in half: a task is ready, one waits, and one has written.
fn use_it(world: &World<Marked>) {
    let member = world.act_as(MAKER);
    let local = world.local(&member);
    let hand = world.hand(&local);
    world.submit(hand, SPLIT);
    let desk = Desk::take(world.layout, hand).expect("a desk");
    let put = desk.put(hand, &name_key("put"), 5, |memory, data| {
        memory.copy_in(data.start(), b"bytes");
        Ok(())
    });
    assert!(put.expect("room"), "nobody else does");
    desk.leave(hand).expect("it is empty");
    let mut crew = Crew::claim(world.layout, hand).expect("a slot");
    for _ in 0..2 {
        let run = crew.find().expect("it can be").expect("a task");
        world.run(&mut crew, run, Way::default()).expect("room");
    }
    crew.engine.give_up().expect("nothing is held");
}

const fn roots_at() -> u64 {
    bytes(SLABS)
}

fn roots<M: Memory>(memory: M) -> Roots<M> {
    Roots::new(memory, Offset::new(roots_at()))
}

fn place<'h>(
    pod: &super::world::Pod<Marked>,
    local: &'h LocalHeap<'h, Marked>,
) -> Result<Place<'h, Marked>, PoolError> {
    Place::among(roots(pod.memory), pod.logs, local, POOL)
}

/// `id` dies, if it lives, `survivor` recovers it, and it joins again.
fn rejoin(pod: &super::world::Pod<Marked>, id: u32, survivor: u32) {
    if pod.status(id).may_write() {
        pod.declare_dead(id);
    }
    let survivor = pod.act_as(survivor);
    pod.recoverers.recover_all(&survivor).expect("it can be");
    drop(pod.join(id));
}

struct Pools(Case);

impl Sweep for Pools {
    fn name(&self) -> String {
        format!("pool place {:?}", self.0)
    }

    fn size(&self) -> u64 {
        (roots_at() + Roots::<Marked>::BYTES).next_multiple_of(4096)
    }

    /// The names of roots are copied into memory of the process's own, whose allocator goes another way each time.
    fn is_deterministic(&self) -> bool {
        false
    }

    fn prepare(&self, memory: Marked) {
        self.0.prepare(memory);
    }

    fn operate(&self, memory: Marked) {
        self.0.operate(memory).expect("it can be done");
    }

    fn recover(&self, memory: Marked, crash: &Crash) {
        let (pod, heap) = World::pod(memory);
        if crash.recoverers_lost > 0 && pod.status(1).may_write() {
            pod.declare_dead(1);
        }
        let survivor = 1 + crash.recoverers_lost;
        // The next incarnations see to what was in hand: that of the maker last, who may have what the victim destroyed.
        for id in [0, MAKER] {
            rejoin(&pod, id, survivor);
            let member = pod.act_as(id);
            let local = LocalHeap::of(heap, &member, &pod.recoverers);
            place(&pod, &local).expect("what is in hand can be seen to");
        }
    }

    fn check(&self, memory: Marked, crash: &Crash) -> Result<(), String> {
        let (pod, heap) = World::pod(memory);
        let member = pod.act_as(1 + crash.recoverers_lost);
        let local = LocalHeap::of(heap, &member, &pod.recoverers);
        let mut blocks = Vec::new();
        let mut there = false;
        for root in roots(memory).list().map_err(|error| error.to_string())? {
            blocks.push(root.offset);
            let header: u64 = memory.load(root.offset, Ordering::Acquire);
            if header == 0 {
                continue;
            }
            there = true;
            let layout = Layout::open(memory, Offset::from_raw(header))
                .map_err(|error| format!("the pool is not whole: {error}"))?;
            if layout.registry() != (TEXT.0, TEXT.1.to_owned()) {
                return Err(format!("the pool is not whole: {:?}", layout.registry()));
            }
            let of_it = blocks_of(layout, &local);
            blocks.extend(of_it.map_err(|error| format!("the pool is not whole: {error}"))?);
            if self.0.is_there() && self.0 != Case::MakesAfterADestroyer {
                let (pod, heap) = World::pod(memory);
                is_used(&World { pod, heap, layout }, &local)
                    .map_err(|error| format!("the pool is not whole: {error}"))?;
            }
        }
        let must_be = match self.0 {
            Case::MakesInVain => Some(true),
            case if crash.returned => Some(!case.destroys()),
            _ => None,
        };
        if must_be.is_some_and(|must| must != there) {
            return Err(format!("that there is a pool is {there}"));
        }
        blocks.extend((0..IDS).flat_map(|id| heap.retired(pod.logs.of(id))));
        let report = heap.check_reachable(blocks);
        if !report.is_clean() {
            return Err(report.to_string());
        }
        if let Some(finding) = heap.check_members(pod.logs, pod.generations).first() {
            return Err(finding.to_string());
        }
        for id in 0..IDS {
            if in_hand(pod.logs, id) != [0, 0] || pod.status(id) == Status::Dead {
                return Err(format!("something of id {id} is left"));
            }
        }
        Ok(())
    }
}

/// Whether what was done in the pool is there.
fn is_used(world: &World<Marked>, local: &LocalHeap<'_, Marked>) -> Result<(), String> {
    let hand = world.hand(local);
    let job = world.job(hand).ok_or("its job is gone")?;
    if job.state() != JobState::Open {
        return Err(format!("its job is {:?}", job.state()));
    }
    let put = world.written(local, &name_key("put"));
    if put.as_deref() != Some(b"bytes") {
        return Err(format!("its data is {put:?}"));
    }
    let tasks = world.layout.slots.tasks().map_err(|e| e.to_string())?;
    let done = |(task, status): &&(crate::Task<Marked>, crate::Status)| {
        task.function() == WRITE && status.state() == crate::State::Done
    };
    match tasks.iter().filter(done).count() {
        1 => Ok(()),
        other => Err(format!("{other} tasks are done")),
    }
}
