//! Named objects, with threads that create, use and unlink one object, and with deaths; and broken
//! variants, each of which an exploration must find.

mod weak;

use super::fixture::{
    KEPT, MADE, MOVED, Words, World, bytes, create, leases, leave_stale, names, objects,
    pod as pod_of, structured,
};
use crate::pod::IDS;
use outlive::membership::Status;
use outlive::objects::{Counter, ObjectError, Objects};
use outlive_memory::{Memory, Native, Offset, Ordering};
use outlive_prove::proof::{Proof, Reach};
use outlive_prove::schedule::{self, Bounds, End, Proving, Scenario, Scheduled};
use outlive_prove::weakened::{Weakened, Weakness};
use std::sync::OnceLock;
use weak::{Numbers, upgrade_and_reuse, upgrade_unlink_and_give_up};

/// The scenarios of this file.
pub fn all() -> Vec<Proof> {
    let dying = |scenario: fn() -> Scenario, quick_deaths, full_deaths| {
        let every = |deaths| bounds().deaths(deaths);
        let drawn = bounds().preemptions(4).stale_reads(3).deaths(2);
        [
            Proof {
                scenario: scenario(),
                quick: Reach::Every(every(quick_deaths).executions(1_500)),
                full: Reach::Every(every(full_deaths).stale_reads(1).executions(1_000_000)),
            },
            Proof {
                scenario: scenario(),
                quick: Reach::Drawn(drawn.clone(), 1, 250),
                full: Reach::Drawn(drawn, 1, 200_000),
            },
        ]
    };
    let both = |scenario| dying(scenario, 0, 1);
    [
        both(two_creators),
        both(|| open_and_unlink(Fences::Full)),
        both(open_unlink_and_give_up),
        both(two_last_users),
        both(two_unlinkers),
        both(rename_and_open),
        both(rename_and_unlink),
        both(two_renamers),
        both(renamed_over_stale),
        both(client_and_unlink),
        both(|| upgrade_and_reuse(Numbers::Compared)),
        both(upgrade_unlink_and_give_up),
        both(list_and_change),
        dying(|| two_recoverers(Recovery::Whole), 1, 2),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns scenarios that must fail within these bounds, each with a part of the message.
pub fn broken() -> Vec<(Scenario, Bounds, &'static str)> {
    vec![
        (
            every_claim_succeeds(),
            bounds().preemptions(1).executions(20_000),
            "is reached, but no allocated block",
        ),
        (
            open_and_unlink(Fences::Missing),
            bounds().stale_reads(2),
            "has leaked",
        ),
        (
            upgrade_and_reuse(Numbers::Ignored),
            bounds().preemptions(1),
            "another object was upgraded",
        ),
        (
            two_recoverers(Recovery::WithoutLeases),
            bounds().preemptions(1).deaths(1),
            // A lease that its dead owner was giving up leads to the destroyed object.
            "is reached, but no allocated block",
        ),
        (leases_linked_first(), bounds().preemptions(1), "has leaked"),
    ]
}

fn bounds() -> Bounds {
    Bounds::default()
        .preemptions(2)
        .stale_reads(0)
        .deaths(0)
        .executions(200_000)
}

type Memories = Weakened<Scheduled>;

fn sound(m: Scheduled) -> Memories {
    Weakened::sound(m)
}

/// Returns the handles. Each execution has its own memory behind them.
fn world() -> &'static World<Memories> {
    static WORLD: OnceLock<World<Memories>> = OnceLock::new();
    WORLD.get_or_init(|| pod_of(sound(Scheduled::handle())))
}

/// Runs `work` with the objects of member `id`.
fn with<R>(world: &World<Memories>, id: u32, work: impl FnOnce(Objects<'_, Memories>) -> R) -> R {
    let member = world.act_as(id);
    let heap = world.local(&member);
    work(objects(&heap))
}

/// Prepares the memory: the object exists.
fn prepared(m: Scheduled) -> World<Memories> {
    let world = create(sound(m));
    world.join_all();
    with(&world, 3, |all| {
        drop(all.create::<Words<_>>(KEPT, ()).unwrap());
    });
    world
}

/// A scenario with threads that act as members, by number; number 3 recovers the rest. The object
/// exists; those in `users` have it open. If there are any, it has been unlinked.
fn members(name: &str, users: &'static [u32]) -> Scenario {
    schedule::scenario(name)
        .memory(bytes::<Native>())
        .prepare(move |m| {
            let world = prepared(m);
            for &id in users {
                with(&world, id, |all| {
                    std::mem::forget(all.open::<Words<_>>(KEPT).unwrap())
                });
            }
            if !users.is_empty() {
                with(&world, 2, |all| all.unlink(KEPT).unwrap());
            }
        })
        .on_death(|_, host| world().declare_dead(host as u32))
}

/// Recovers all dead members, as member 3, asserts that nothing has leaked and that no lease is
/// left, and returns the names.
fn settled(_: Scheduled) -> Vec<String> {
    let world = world();
    world.recoverers.recover_all(&world.act_as(3)).unwrap();
    for id in 0..3 {
        if world.status(id) == Status::Live {
            with(world, id, |all| all.give_up_all());
        }
    }
    let (list, blocks) = with(world, 3, |all| (all.list().unwrap(), all.blocks().unwrap()));
    let leases: Vec<_> = list
        .iter()
        .filter(|object| !object.users.is_empty())
        .collect();
    assert!(leases.is_empty(), "leases are left: {leases:?}");
    let retired = (0..IDS).flat_map(|id| world.heap.retired(world.logs.of(id)));
    let whole = world
        .heap
        .check_reachable(blocks.into_iter().chain(retired));
    assert!(whole.is_clean(), "{whole}");
    list.into_iter().map(|object| object.name).collect()
}

/// One of two creates it, and both use it.
fn two_creators() -> Scenario {
    let make = |id: u32| {
        move |_: Scheduled| {
            with(world(), id, |all| {
                all.open_or_create::<Counter<_>>(MADE, 0).unwrap().add(1);
            });
        }
    };
    members("two creators of an object", &[])
        .mortal("t0", make(0))
        .mortal("t1", make(1))
        .check(|m, end: &End<()>| {
            let names = settled(m);
            let is_made = names.contains(&MADE.to_owned());
            assert!(is_made || end.deaths() == 2, "{names:?}");
            if is_made {
                let sum = with(world(), 3, |all| {
                    all.open::<Counter<_>>(MADE).unwrap().get()
                });
                let least = 2 - end.deaths() as u64;
                assert!((least..=2).contains(&sum), "{sum}");
            }
        })
}

/// Whether a lease and the state are ordered by full fences.
#[derive(Clone, Copy, PartialEq)]
enum Fences {
    Full,
    /// Broken: they are not.
    Missing,
}

/// The opener uses the object whole, or does not find it.
fn open_and_unlink(fences: Fences) -> Scenario {
    let of = move |m: Scheduled| match fences {
        Fences::Full => sound(m),
        Fences::Missing => Weakened::new(m, Weakness::Fences(Ordering::SeqCst)),
    };
    members("an object is opened and unlinked", &[])
        .mortal("opens", move |m| {
            with(&pod_of(of(m)), 0, |all| match all.open::<Words<_>>(KEPT) {
                Ok(words) => words.insert(&1, &2).unwrap(),
                Err(ObjectError::NotFound { .. }) => {}
                Err(error) => panic!("{error}"),
            });
        })
        .mortal("unlinks", move |m| {
            with(&pod_of(of(m)), 1, |all| all.unlink(KEPT).unwrap())
        })
        .check(|m, end: &End<()>| {
            let names = settled(m);
            assert!(names.is_empty() || end.died(1), "{names:?}");
        })
}

/// Member 2 has the object open. It gives it up while member 0 opens it and member 1 unlinks it.
fn open_unlink_and_give_up() -> Scenario {
    members("an object is opened, unlinked and given up", &[])
        .prepare(|m| {
            let world = prepared(m);
            with(&world, 2, |all| {
                std::mem::forget(all.open::<Words<_>>(KEPT).unwrap());
            });
        })
        .mortal("opens", |_| {
            with(world(), 0, |all| match all.open::<Words<_>>(KEPT) {
                Ok(words) => words.insert(&1, &2).unwrap(),
                Err(ObjectError::NotFound { .. }) => {}
                Err(error) => panic!("{error}"),
            });
        })
        .mortal("unlinks", |_| {
            with(world(), 1, |all| all.unlink(KEPT).unwrap())
        })
        .mortal("gives up", |_| with(world(), 2, |all| all.give_up_all()))
        .check(|m, end: &End<()>| {
            let names = settled(m);
            assert!(names.is_empty() || end.died(1), "{names:?}");
        })
}

/// The object is unlinked; the last of its two users destroys it.
fn two_last_users() -> Scenario {
    let give_up = |id: u32| move |_: Scheduled| with(world(), id, |all| all.give_up_all());
    members("two last users of an object", &[0, 1])
        .mortal("t0", give_up(0))
        .mortal("t1", give_up(1))
        .check(|m, _: &End<()>| assert!(settled(m).is_empty()))
}

/// One of two takes its name away.
fn two_unlinkers() -> Scenario {
    let unlink = |id: u32| {
        move |_: Scheduled| {
            with(world(), id, |all| match all.unlink(KEPT) {
                Ok(()) | Err(ObjectError::NotFound { .. }) => {}
                Err(error) => panic!("{error}"),
            });
        }
    };
    members("two members unlink an object", &[])
        .mortal("t0", unlink(0))
        .mortal("t1", unlink(1))
        .check(|m, end: &End<()>| {
            let names = settled(m);
            assert!(names.is_empty() || end.deaths() == 2, "{names:?}");
        })
}

/// A member that does not find the object under the old name finds it under the new one.
fn rename_and_open() -> Scenario {
    members("an object is renamed and opened", &[])
        .mortal("renames", |_| {
            with(world(), 0, |all| all.rename(KEPT, MOVED).unwrap())
        })
        .mortal("opens", |_| {
            with(world(), 1, |all| {
                let found = match all.open::<Words<_>>(KEPT) {
                    Err(ObjectError::NotFound { .. }) => all.open::<Words<_>>(MOVED),
                    found => found,
                };
                found.unwrap().insert(&1, &2).unwrap();
            })
        })
        .check(|m, end: &End<()>| {
            let names = settled(m);
            let is_allowed = names == [MOVED] || names == [KEPT] && end.died(0);
            assert!(is_allowed, "{names:?}");
        })
}

/// The object has its new name, or none.
fn rename_and_unlink() -> Scenario {
    members("an object is renamed and unlinked", &[])
        .mortal("renames", |_| {
            with(world(), 0, |all| rename(all, KEPT, MOVED))
        })
        .mortal("unlinks", |_| {
            with(world(), 1, |all| match all.unlink(KEPT) {
                Ok(()) | Err(ObjectError::NotFound { .. }) => {}
                Err(error) => panic!("{error}"),
            })
        })
        .check(|m, end: &End<()>| {
            let names = settled(m);
            let is_allowed = names.is_empty() || names == [MOVED] || names == [KEPT] && end.died(1);
            assert!(is_allowed, "{names:?}");
        })
}

/// Renames the object unless it has another name by now.
fn rename(all: Objects<'_, Memories>, from: &str, to: &str) {
    match all.rename(from, to) {
        Ok(()) | Err(ObjectError::NotFound { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}

/// The object gets one of the two new names.
fn two_renamers() -> Scenario {
    members("two members rename an object", &[])
        .mortal("t0", |_| with(world(), 0, |all| rename(all, KEPT, MOVED)))
        .mortal("t1", |_| with(world(), 1, |all| rename(all, KEPT, MADE)))
        .check(|m, end: &End<()>| {
            let names = settled(m);
            let is_allowed =
                names == [MOVED] || names == [MADE] || names == [KEPT] && end.deaths() == 2;
            assert!(is_allowed, "{names:?}");
        })
}

/// A dead renamer left the entry of the old name, which can be used again.
fn renamed_over_stale() -> Scenario {
    members("a stale name of an object is used again", &[])
        .prepare(|m| {
            let world = prepared(m);
            let member = world.act_as(3);
            leave_stale(&world.local(&member));
        })
        .mortal("renames it back", |_| {
            with(world(), 0, |all| match all.rename(MOVED, KEPT) {
                Ok(()) | Err(ObjectError::Exists { .. }) => {}
                Err(error) => panic!("{error}"),
            })
        })
        .mortal("creates another", |_| {
            with(world(), 1, |all| match all.create::<Counter<_>>(KEPT, 0) {
                Ok(_) | Err(ObjectError::Exists { .. }) => {}
                Err(error) => panic!("{error}"),
            })
        })
        .check(|m, end: &End<()>| {
            let names = settled(m);
            let is_allowed = match &names[..] {
                [one] => one == KEPT || one == MOVED && end.deaths() > 0,
                [one, other] => one == KEPT && other == MOVED,
                _ => false,
            };
            assert!(is_allowed, "{names:?}");
        })
}

/// A client in use is not unlinked, so it knows whether its request took effect.
fn client_and_unlink() -> Scenario {
    members("a client object is used and unlinked", &[])
        .prepare(|m| {
            let world = prepared(m);
            with(&world, 3, |all| drop(all.client(MADE).unwrap()));
        })
        .mortal("uses it", |_| {
            with(world(), 0, |all| {
                let kept = all.open::<Words<_>>(KEPT).unwrap();
                let client = all.client(MADE).unwrap();
                kept.request(&client, 1).insert(&1, &2).unwrap();
            })
        })
        .mortal("unlinks it", |_| {
            with(world(), 1, |all| match all.unlink(MADE) {
                Ok(()) | Err(ObjectError::ClientInUse { .. }) => {}
                Err(error) => panic!("{error}"),
            })
        })
        .check(|m, end: &End<()>| {
            let names = settled(m);
            if !names.iter().any(|name| name == MADE) {
                // Unlinked before or after its use.
                return;
            }
            with(world(), 3, |all| {
                let last = all.client(MADE).unwrap().last();
                let value = all.open::<Words<_>>(KEPT).unwrap().get(&1);
                let took_effect = last.is_some_and(|last| last.took_effect);
                assert_eq!(took_effect, value.is_some(), "{last:?}");
                assert!(took_effect || end.died(0), "{last:?}");
            });
        })
}

/// An object that exists throughout is listed, once; one that comes or goes is listed whole, or
/// not.
fn list_and_change() -> Scenario {
    members("objects are listed while others come and go", &[])
        .prepare(|m| {
            let world = prepared(m);
            with(&world, 3, |all| {
                drop(all.create::<Counter<_>>(MOVED, 0).unwrap());
            });
        })
        .mortal("lists", |_| {
            with(world(), 0, |all| {
                let list = all.list().unwrap();
                let names: Vec<_> = list.iter().map(|object| &object.name[..]).collect();
                assert!(names.contains(&MOVED), "{names:?}");
                assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
                for object in &list {
                    let expected = match &object.name[..] {
                        KEPT => ("map of u64 to u64", Some(0)),
                        MADE | MOVED => ("counter", None),
                        _ => panic!("{object:?}"),
                    };
                    assert_eq!((&object.of[..], object.entries), expected);
                }
            })
        })
        .mortal("creates", |_| {
            with(world(), 1, |all| {
                drop(all.create::<Counter<_>>(MADE, 0).unwrap());
            })
        })
        .mortal("unlinks", |_| {
            with(world(), 2, |all| all.unlink(KEPT).unwrap())
        })
        .check(|m, end: &End<()>| {
            let names = settled(m);
            let has = |name: &str| names.iter().any(|it| it == name);
            assert!(has(MOVED), "{names:?}");
            assert!(has(MADE) || end.died(1), "{names:?}");
            assert!(!has(KEPT) || end.died(2), "{names:?}");
        })
}

/// The recovery of a dead holder of a name lock.
#[derive(Clone, Copy, PartialEq)]
enum Recovery {
    Whole,
    /// Broken: that of member 1 settles everything but the leases.
    WithoutLeases,
}

/// A renamer dies, and a member that recovers it may die too. A third member, which needs the lock
/// on the name, recovers both.
fn two_recoverers(recovery: Recovery) -> Scenario {
    members("two recoverers of a name lock", &[])
        .mortal("renames", |_| {
            with(world(), 0, |all| all.rename(KEPT, MOVED).unwrap())
        })
        .mortal_after_death("recovers", move |m| {
            let world = match recovery {
                Recovery::Whole => pod_of(sound(m)),
                Recovery::WithoutLeases => structured(sound(m)),
            };
            world.recoverers.recover_all(&world.act_as(1)).unwrap();
        })
        .after_death("unlinks", |_| {
            with(world(), 2, |all| match all.unlink(KEPT) {
                Err(ObjectError::NotFound { .. }) => all.unlink(MOVED).unwrap(),
                unlinked => unlinked.unwrap(),
            })
        })
        .check(|m, end: &End<()>| {
            let names = settled(m);
            match end.died(0) {
                true => assert!(names.is_empty(), "{names:?}"),
                false => assert_eq!(names, [MOVED]),
            }
        })
}

/// Broken: a block of leases is linked before it is cleared, and still has the words of its former
/// use: offsets of an object without a name. Its last user takes them for leases.
fn leases_linked_first() -> Scenario {
    static PLACES: OnceLock<(Offset, Offset)> = OnceLock::new();
    const BLOCK: u64 = 256;
    members("a block of leases is linked before it is cleared", &[])
        .prepare(|m| {
            let world = prepared(m);
            with(&world, 1, |all| {
                std::mem::forget(all.create::<Counter<_>>(MADE, 0).unwrap());
            });
            // All slots of the first block of member 0 are taken.
            with(&world, 0, |all| {
                for _ in 1..BLOCK / 8 {
                    std::mem::forget(all.open::<Words<_>>(KEPT).unwrap());
                }
            });
            let member = world.act_as(0);
            let heap = world.local(&member);
            let made = names(world.heap).get(&heap, MADE).unwrap();
            let block = heap.allocate_into(BLOCK, heap.pending_cell(0)).unwrap();
            (8..BLOCK).step_by(8).for_each(|at| {
                world.memory.store(block + at, made, Ordering::Relaxed);
            });
            heap.free_from(heap.pending_cell(0), 0).unwrap();
            with(&world, 3, |all| all.unlink(MADE).unwrap());
            PLACES.get_or_init(|| (block, leases(world.heap, 0)));
        })
        .thread("opens", |m| {
            let &(block, link) = PLACES.get().expect("the preparation came first");
            let weak = pod_of(Weakened::new(m, Weakness::Late(block, BLOCK, link)));
            with(&weak, 0, |all| {
                std::mem::forget(all.open::<Words<_>>(KEPT).unwrap());
            });
        })
        .thread("gives up", |_| with(world(), 1, |all| all.give_up_all()))
        .check(|m, _: &End<()>| assert_eq!(settled(m), [KEPT]))
}

/// Broken: every slot takes itself for the one that has claimed the object.
fn every_claim_succeeds() -> Scenario {
    let state = || {
        static STATE: OnceLock<Offset> = OnceLock::new();
        *STATE.get_or_init(|| {
            let memory = Native::leaked(
                bytes::<Native>(),
                outlive_memory::PersistenceDomain::Flushed,
            );
            let pod = create(memory);
            pod.join_all();
            let member = pod.act_as(3);
            let heap = pod.local(&member);
            drop(objects(&heap).create::<Words<_>>(KEPT, ()).unwrap());
            Offset::from_raw(names(heap.heap()).get(&heap, KEPT).unwrap()) + 24
        })
    };
    let give_up = move |id: u32| {
        move |m: Scheduled| {
            let weak = pod_of(Weakened::new(m, Weakness::Swaps(state(), 8)));
            with(&weak, id, |all| all.give_up_all());
        }
    };
    members("every claim succeeds", &[0, 1])
        .thread("t0", give_up(0))
        .thread("t1", give_up(1))
        .check(|m, _: &End<()>| assert!(settled(m).is_empty()))
}
