//! The creation and the destruction of a pool, killed at every instruction: the cases of the table
//! in `pool/header.rs`.
//!
//! The victim is number 0; 1 and 2 continue; 3 has prepared the memory. The header in the victim's
//! pending cell stays there until its id creates or destroys a pool again. So a survivor recovers
//! the victim, and its next incarnation settles the pending cell. In every case the pool is then
//! whole, or there is no pool and nothing has leaked.

use super::world::{SPLIT, WRITE, Way, World, bytes};
use crate::pod::IDS;
use core::time::Duration;
use outlive::heap::LocalHeap;
use outlive::memory::{Memory, Offset, Ordering};
use outlive::segment::Roots;
use outlive_prove::kill::{Crash, Marked, Suite, Sweep};
use outlive_tasks::internals::{
    Crew, DestroyPoint, JobState, Layout, MakePoint, Place, Shape, StagingSlot, blocks_of,
    name_key, pending_words,
};
use outlive_tasks::{PoolError, Settings};

/// Adds the sweeps of this file.
pub fn add_to(suite: &mut Suite) {
    for case in Case::SOUND {
        suite.add(Pools(case));
    }
    suite.declare::<MakePoint>().declare::<DestroyPoint>();
}

/// Returns the broken variants. They must fail, each with a part of the expected message.
pub fn broken() -> Vec<(Box<dyn Sweep>, &'static str)> {
    [Case::MakesTooSoon, Case::DestroysTooEarly]
        .map(|case| -> (Box<dyn Sweep>, _) { (Box::new(Pools(case)), "is not whole") })
        .into()
}

crate::cases! {
    /// The operation of the victim.
    enum Case {
        /// Creates the pool, the first of its name.
        Makes,
        /// The same, and another thread is faster.
        MakesInVain,
        /// Creates a pool when its predecessor has died in the middle of clearing a header.
        MakesAfterARawOne,
        /// Creates a pool when its predecessor has died with a pending pool that was out of its
        /// place.
        MakesAfterADestroyer,
        /// Destroys a pool that was worked in.
        Destroys,
        /// Destroys a pool that is still in the pending cell of its dead maker.
        DestroysFromAnothersHand,
    }
    broken {
        /// The pool is in its place before it is whole.
        MakesTooSoon,
        /// The pool is taken apart, and then taken out of its place.
        DestroysTooEarly,
    }
}

/// The member that has made the pool, and died, in some cases with the pool in its pending cell.
const MAKER: u32 = 3;
const POOL: &str = "p";
/// The number of slabs of the heap.
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
    /// Returns whether there is a pool before the operation.
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
        let pod = World::create_pod(memory, SLABS);
        let maker = pod.act_as(MAKER);
        let local = pod.local(&maker);
        if self.is_there() {
            let place = place(&pod, &local).expect("room");
            let layout = place.make(&SHAPE, TEXT).expect("room");
            drop(local);
            drop(maker);
            let layout = layout.expect("no other member creates one");
            use_it(&World {
                ground: pod,
                layout,
            });
        } else {
            drop(local);
            drop(maker);
        }
        let pod = World::pod(memory);
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
                let local = pod.local(&member);
                memory.store(hand(0) - 8, 1u64, Ordering::Relaxed);
                let bytes = SHAPE.bytes::<Marked>();
                let at = local.allocate_into(bytes, hand(0)).expect("room");
                // It looks like a pool, and is none.
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
        let pod = World::pod(memory);
        let victim = pod.act_as(0);
        let local = pod.local(&victim);
        let place = place(&pod, &local)?;
        match (self, place.header()) {
            (Self::MakesTooSoon, _) => {
                let at = place.clear_header(&SHAPE)?;
                place.fill(at);
                Layout::create(&local, at, &SHAPE, TEXT)?;
                place.release();
                Ok(())
            }
            (Self::DestroysTooEarly, Some(header)) => {
                place.take(header);
                place.take_apart(header)?;
                memory.store(roots(memory).list()?[0].offset, 0u64, Ordering::Release);
                place.settle()
            }
            (Self::Destroys | Self::DestroysFromAnothersHand, Some(header)) => place.empty(header),
            (Self::Makes | Self::MakesAfterARawOne | Self::MakesAfterADestroyer, None) => {
                let made = place.make(&SHAPE, TEXT)?;
                assert!(made.is_some(), "no other member creates one");
                Ok(())
            }
            (Self::MakesInVain, Some(_)) => {
                // The other pool came after this thread had checked.
                assert!(place.make(&SHAPE, TEXT)?.is_none(), "it existed before");
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
    let desk = StagingSlot::take(world.layout, hand).expect("a desk");
    let put = desk.put(hand, &name_key("put"), 5, |memory, data| {
        memory.copy_in(data.start(), b"bytes");
        Ok(())
    });
    assert!(put.expect("room"), "no other member does");
    desk.leave(hand).expect("it is empty");
    let mut crew = Crew::claim(world.layout, hand).expect("a slot");
    for _ in 0..2 {
        let run = crew
            .find()
            .expect("the operation succeeds")
            .expect("a task");
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

/// Lets `id` die, if it lives, be recovered by `survivor`, and join again.
fn rejoin(pod: &super::world::Pod<Marked>, id: u32, survivor: u32) {
    if pod.status(id).may_write() {
        pod.declare_dead(id);
    }
    let survivor = pod.act_as(survivor);
    pod.recoverers
        .recover_all(&survivor)
        .expect("the operation succeeds");
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

    /// The names of roots are copied into memory of the process's own; its allocator behaves
    /// differently each time.
    fn is_deterministic(&self) -> bool {
        false
    }

    fn prepare(&self, memory: Marked) {
        self.0.prepare(memory);
    }

    fn operate(&self, memory: Marked) {
        self.0.operate(memory).expect("the operation succeeds");
    }

    fn recover(&self, memory: Marked, crash: &Crash) {
        let pod = World::pod(memory);
        if crash.recoverers_lost > 0 && pod.status(1).may_write() {
            pod.declare_dead(1);
        }
        let survivor = 1 + crash.recoverers_lost;
        // The next incarnations settle the pending cells: the maker's last, which may contain the
        // pool that the victim destroyed.
        for id in [0, MAKER] {
            rejoin(&pod, id, survivor);
            let member = pod.act_as(id);
            let local = pod.local(&member);
            place(&pod, &local).expect("the pending allocations can be settled");
        }
    }

    fn check(&self, memory: Marked, crash: &Crash) -> Result<(), String> {
        let pod = World::pod(memory);
        let member = pod.act_as(1 + crash.recoverers_lost);
        let local = pod.local(&member);
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
                is_used(
                    &World {
                        ground: World::pod(memory),
                        layout,
                    },
                    &local,
                )
                .map_err(|error| format!("the pool is not whole: {error}"))?;
            }
        }
        let must_be = match self.0 {
            Case::MakesInVain => Some(true),
            case if crash.returned => Some(!case.destroys()),
            _ => None,
        };
        if must_be.is_some_and(|must| must != there) {
            return Err(format!("the existence of a pool is {there}"));
        }
        blocks.extend((0..IDS).flat_map(|id| pod.heap.retired(pod.logs.of(id))));
        pod.demand_sound(blocks)?;
        for id in 0..IDS {
            if pending_words(pod.logs, id) != [0, 0] {
                return Err(format!("something of id {id} is left"));
            }
        }
        Ok(())
    }
}

/// Checks that the effects of `use_it` are there.
fn is_used(world: &World<Marked>, local: &LocalHeap<'_, Marked>) -> Result<(), String> {
    let hand = world.hand(local);
    let job = world.job(hand).ok_or("its job is missing")?;
    if job.state() != JobState::Open {
        return Err(format!("its job is {:?}", job.state()));
    }
    let put = world.written(local, &name_key("put"));
    if put.as_deref() != Some(b"bytes") {
        return Err(format!("its data is {put:?}"));
    }
    let tasks = world.layout.slots.tasks().map_err(|e| e.to_string())?;
    let done = |(task, status): &&(outlive_tasks::Task<Marked>, outlive_tasks::Status)| {
        task.function() == WRITE && status.state() == outlive_tasks::State::Done
    };
    match tasks.iter().filter(done).count() {
        1 => Ok(()),
        other => Err(format!("{other} tasks are done")),
    }
}
