//! The heap of small objects, with deaths: remote frees against collection, adoption, debts; and
//! broken variants, each of which an exploration must find.

use super::slabs::{self, FREED, LARGE, OWED, PAID, QUARTER, World, bytes, cell, entry, held};
use outlive::heap::buddy::AllocateError;
use outlive_memory::{Memory, Offset, Ordering};
use outlive_prove::proof::{Proof, Reach};
use outlive_prove::schedule::{self, Bounds, Scenario, Scheduled};
use outlive_prove::weakened::{Weakened, Weakness};
use std::sync::OnceLock;

/// The scenarios of this file.
pub fn all() -> Vec<Proof> {
    let drawn = |scenario: fn() -> Scenario, deaths, seed| {
        let deep = Bounds::default()
            .preemptions(4)
            .stale_reads(3)
            .deaths(deaths);
        [Proof {
            scenario: scenario(),
            quick: Reach::Drawn(deep.clone(), seed, 5_000),
            full: Reach::Drawn(deep, seed, 1_000_000),
        }]
    };
    let both = |scenario: fn() -> Scenario, preemptions, deaths, seed| {
        // The drawn executions have stale reads.
        let quick = bounds().stale_reads(0).preemptions(preemptions).deaths(1);
        [Proof {
            scenario: scenario(),
            quick: Reach::Every(quick),
            full: Reach::Every(Bounds::default().deaths(deaths)),
        }]
        .into_iter()
        .chain(drawn(scenario, deaths, seed))
    };
    [
        both(|| collection(None, None), 1, 2, 1),
        both(|| adoption(None), 1, 2, 2),
        both(two_recoverers, 1, 2, 3),
        both(two_freers, 1, 2, 4),
        both(debts, 1, 2, 5),
    ]
    .into_iter()
    .flatten()
    .chain(drawn(|| debts_at_once(None, None), 2, 6))
    .collect()
}

/// Returns scenarios that must fail within these bounds, each with a part of the message.
pub fn broken() -> Vec<(Scenario, Bounds, &'static str)> {
    let step = |id: u64| Offset::new(4096 + 0x2000 * id + 0x1800);
    let blind = |id| Some(Weakness::Blind(step(id), 8));
    let relaxed = Some(Weakness::Orderings(entry(0) + 0x180, 8));
    vec![
        (
            collection(blind(1), None),
            bounds().preemptions(2),
            "is reached",
        ),
        (
            collection(None, relaxed),
            bounds().preemptions(2),
            "is reached",
        ),
        (adoption(blind(0)), bounds(), "is reached"),
        // The count of debts is raised before the debt is noted, or read after the search.
        (
            debts_at_once(Some(Weakness::Orderings(OWED, 8)), None),
            bounds(),
            "a debt is forgotten",
        ),
        (
            debts_at_once(None, Some(Weakness::Orderings(OWED, 8))),
            bounds(),
            "a debt is forgotten",
        ),
        // All debts are declared paid before all have been checked.
        (
            debts_at_once(None, Some(Weakness::Haste(OWED, PAID))),
            bounds(),
            "a debt is forgotten",
        ),
        // The recovering thread owes a block without counting it.
        (
            debts_at_once(Some(Weakness::Additions(OWED, 8)), None),
            bounds(),
            "a debt is forgotten",
        ),
    ]
}

fn bounds() -> Bounds {
    Bounds::default()
        .preemptions(1)
        .stale_reads(1)
        .executions(400_000)
}

/// Returns the handles for a heap of one slab. Each execution has its own memory behind them.
fn world(memory: Scheduled) -> &'static World<Scheduled> {
    static WORLD: OnceLock<World<Scheduled>> = OnceLock::new();
    WORLD.get_or_init(|| slabs::pod(memory))
}

/// A scenario with threads that act as members, by number, over a heap of one slab; number 3 is for
/// the check.
fn members(name: &str, prepare: fn(&World<Scheduled>)) -> Scenario<Scheduled> {
    schedule::scenario(name)
        .memory(bytes(1))
        .prepare(move |m| {
            let world = slabs::create(m, 1);
            for id in 0..4 {
                drop(world.join(id));
            }
            prepare(&world);
        })
        .on_death(|m, host| {
            let world = world(m);
            // A host may have died after its thread had returned.
            if world.status(host as u32).may_write() {
                world.declare_dead(host as u32);
            }
        })
        .check(|m, _| settle(m))
}

/// Recovers all dead members, as member 3, and checks the whole heap.
fn settle(m: Scheduled) {
    let world = world(m);
    let last = world.act_as(3);
    world.recoverers.recover_all(&last).unwrap();
    slabs::demand_sound(world).unwrap_or_else(|wrong| panic!("{wrong}"));
    // Free memory can be allocated.
    allocate(world, 3, 20);
    slabs::demand_sound(world).unwrap_or_else(|wrong| panic!("{wrong}"));
}

/// Allocates a quarter of a slab into a cell, unless the heap is full.
fn allocate<M: Memory>(world: &World<M>, id: u32, index: u64) {
    let member = world.act_as(id);
    let got = world.local(&member).allocate_into(QUARTER, cell(index));
    assert!(
        matches!(got, Ok(_) | Err(AllocateError::HeapFull { .. })),
        "{got:?}"
    );
}

fn free<M: Memory>(world: &World<M>, id: u32, index: u64) {
    let member = world.act_as(id);
    world.local(&member).free_from(cell(index), FREED).unwrap();
}

fn recover(m: Scheduled, id: u32, whom: u32) {
    let world = world(m);
    world.recoverers.recover(&world.act_as(id), whom).unwrap();
}

/// Lets number 0 fill its slab.
fn full(world: &World<Scheduled>) {
    let member = world.act_as(0);
    let way = world.local(&member);
    for index in 0..4 {
        way.allocate_into(QUARTER, cell(index)).unwrap();
    }
}

/// Returns the same heap seen through a weakness, or through none.
fn weak(m: Scheduled, weakness: Option<Weakness>) -> World<Weakened<Scheduled>> {
    let weakness = weakness.unwrap_or(Weakness::Blind(Offset::new(0), 0));
    slabs::pod(Weakened::new(m, weakness))
}

/// The owner collects the blocks that another member frees. That one dies; its free is re-executed.
fn collection(owner: Option<Weakness>, freer: Option<Weakness>) -> Scenario {
    let sound = owner.is_none() && freer.is_none();
    let scenario = members("heap: remote free and collection", full);
    let scenario = if sound {
        scenario
            .mortal("owner", |m| {
                (10..12).for_each(|at| allocate(world(m), 0, at))
            })
            .mortal("freer", |m| free(world(m), 1, 0))
    } else {
        scenario
            .thread("owner", move |m| {
                let world = weak(m, owner);
                (10..12).for_each(|at| allocate(&world, 0, at));
            })
            .mortal("freer", move |m| free(&weak(m, freer), 1, 0))
    };
    scenario.after_death("recoverer", |m| recover(m, 2, 1))
}

/// Two members want the slab of an owner that dies as it frees; one of them recovers it first.
fn adoption(adopter: Option<Weakness>) -> Scenario {
    let scenario = members("heap: adoption by two", |world| {
        full(world);
        free(world, 0, 3);
    })
    .mortal("owner", |m| free(world(m), 0, 0));
    let scenario = match adopter {
        None => scenario.mortal_after_death("adopter", |m| allocate(world(m), 1, 10)),
        Some(_) => scenario.after_death("adopter", move |m| allocate(&weak(m, adopter), 1, 10)),
    };
    scenario.after_death("recoverer", |m| {
        recover(m, 2, 0);
        allocate(world(m), 2, 11);
    })
}

/// Two threads recover one free, one after the other's death, while the owner collects.
fn two_recoverers() -> Scenario {
    members("heap: two recoverers of a free", full)
        .thread("owner", |m| allocate(world(m), 0, 10))
        .mortal("freer", |m| free(world(m), 1, 0))
        .mortal_after_death("r1", |m| recover(m, 2, 1))
        .after_death("r2", |m| recover(m, 3, 1))
}

/// Two members free blocks of one word, while their owner collects.
fn two_freers() -> Scenario {
    members("heap: two remote frees", full)
        .thread("owner", |m| {
            (10..12).for_each(|at| allocate(world(m), 0, at))
        })
        .mortal("f1", |m| free(world(m), 1, 0))
        .mortal("f2", |m| free(world(m), 2, 1))
}

/// A dead instance's large block is owed by recovering threads, and paid by a member that needs it.
fn debts() -> Scenario {
    indebted("heap: debts")
        .mortal_after_death("r1", |m| recover(m, 1, 0))
        .after_death("payer", |m| {
            recover(m, 2, 0);
            want_a_large_one(world(m), 2);
        })
}

/// The same, but the member that needs a block waits for no recovery.
fn debts_at_once(recoverer: Option<Weakness>, payer: Option<Weakness>) -> Scenario {
    let scenario = indebted("heap: debts paid at once");
    if recoverer.is_none() && payer.is_none() {
        return scenario
            .mortal_after_death("recoverer", |m| recover(m, 1, 0))
            .mortal("payer", |m| want_a_large_one(world(m), 2));
    }
    scenario
        .after_death("recoverer", move |m| {
            let world = weak(m, recoverer);
            world.recoverers.recover(&world.act_as(1), 0).unwrap();
        })
        .thread("payer", move |m| want_a_large_one(&weak(m, payer), 2))
}

/// Number 0 has both large blocks of the heap, and may die as it frees one. In the end that one can
/// be allocated.
fn indebted(name: &str) -> Scenario {
    members(name, |world| {
        let member = world.act_as(0);
        let way = world.local(&member);
        way.allocate_into(LARGE, way.pending_cell(0)).unwrap();
        way.allocate_into(LARGE, cell(0)).unwrap();
        slabs::forsake(world, way);
    })
    .mortal("owner", |m| {
        let world = world(m);
        let member = world.act_as(0);
        let way = world.local(&member);
        way.free_from(way.pending_cell(0), 0).unwrap();
    })
    .check(|m, _| {
        settle(m);
        let world = world(m);
        if held(world, 10).is_none() {
            let last = world.act_as(3);
            let got = world.local(&last).allocate_into(LARGE, cell(21));
            assert!(got.is_ok(), "a debt is forgotten: {got:?}");
        }
        slabs::demand_sound(world).unwrap_or_else(|wrong| panic!("{wrong}"));
    })
}

/// Allocates a large block into cell 10, unless there is none.
fn want_a_large_one<M: Memory>(world: &World<M>, id: u32) {
    let member = world.act_as(id);
    let way = world.local(&member);
    let before = held(world, 0);
    let got = way.allocate_into(LARGE, cell(10));
    assert!(
        matches!(got, Ok(block) if Some(block) != before)
            || matches!(got, Err(AllocateError::HeapFull { .. })),
        "{got:?}"
    );
    let _: u64 = world.memory.load(cell(10), Ordering::Relaxed);
}
