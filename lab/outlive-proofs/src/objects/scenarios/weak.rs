//! Weak references that are upgraded while their object is unlinked and destroyed.

use super::{Memories, members, prepared, settled, sound, with, world};
use crate::objects::fixture::{KEPT, Words, create, names, objects, pod as pod_of};
use outlive::objects::Weak;
use outlive_memory::Offset;
use outlive_prove::schedule::{End, Scenario, Scheduled};
use outlive_prove::weakened::{Weakened, Weakness};
use std::sync::OnceLock;

/// Whether the number of an object is compared with that of a weak reference.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Numbers {
    Compared,
    /// Broken: every object has the number of the reference.
    Ignored,
}

/// The object is upgraded whole, or not found. The object that gets its name and its block is not
/// taken for it.
pub(super) fn upgrade_and_reuse(numbers: Numbers) -> Scenario {
    static WEAK: OnceLock<(Weak<Words<Memories>, Memories>, Offset)> = OnceLock::new();
    let weak = || WEAK.get().expect("the preparation came first");
    let of = move |m: Scheduled| match numbers {
        Numbers::Compared => sound(m),
        // The number of the first object is 0.
        Numbers::Ignored => Weakened::new(m, Weakness::Blind(weak().1 + 64, 8)),
    };
    members("a weak reference outlives its object", &[])
        .prepare(|m| {
            let world = create(sound(m));
            world.join_all();
            // By the member that creates the next object, which gets the same block.
            let member = world.act_as(1);
            let heap = world.local(&member);
            let kept = objects(&heap).create::<Words<_>>(KEPT, ()).unwrap();
            kept.insert(&1, &1).unwrap();
            let at = names(world.heap).get(&heap, KEPT).unwrap();
            WEAK.get_or_init(|| (kept.downgrade(), Offset::from_raw(at)));
        })
        .mortal("upgrades", move |m| {
            with(&pod_of(of(m)), 0, |all| {
                if let Some(words) = all.upgrade(weak().0).unwrap() {
                    let is_it = words.get(&1) == Some(1);
                    assert!(is_it, "another object was upgraded");
                    words.insert(&2, &2).unwrap();
                }
            })
        })
        .mortal("unlinks and creates", |_| {
            let member = world().act_as(1);
            let heap = world().local(&member);
            let all = objects(&heap);
            all.unlink(KEPT).unwrap();
            heap.reclaim();
            drop(all.create::<Words<_>>(KEPT, ()).unwrap());
        })
        .check(|m, end: &End<()>| {
            let names = settled(m);
            assert!(
                names == [KEPT] || names.is_empty() && end.died(1),
                "{names:?}"
            );
        })
}

/// Member 2 has the object open. It gives it up while member 0 upgrades a weak reference and member
/// 1 unlinks the object.
pub(super) fn upgrade_unlink_and_give_up() -> Scenario {
    static WEAK: OnceLock<Weak<Words<Memories>, Memories>> = OnceLock::new();
    members(
        "a weak reference is upgraded, its object unlinked and given up",
        &[],
    )
    .prepare(|m| {
        let world = prepared(m);
        with(&world, 2, |all| {
            let kept = all.open::<Words<_>>(KEPT).unwrap();
            WEAK.get_or_init(|| kept.downgrade());
            std::mem::forget(kept);
        });
    })
    .mortal("upgrades", |_| {
        with(world(), 0, |all| {
            let weak = *WEAK.get().expect("the preparation came first");
            if let Some(words) = all.upgrade(weak).unwrap() {
                words.insert(&1, &2).unwrap();
            }
        })
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
