//! A lease of an object against its deletion, under many interleavings; and a broken variant, which
//! an exploration must find.

use super::objects::{KEPT, Leasing, OBSERVER, bytes};
use crate::objects::fixture;
use crate::pod::IDS;
use outlive_pool::internals::Found;
use outlive_prove::proof::{Proof, Reach};
use outlive_prove::schedule::{Bounds, Scenario, Scheduled};

/// The scenarios of this file.
pub fn all() -> Vec<Proof> {
    let drawn = bounds().preemptions(4).stale_reads(3);
    [
        Proof {
            scenario: lease_and_delete(true),
            quick: Reach::Every(bounds().executions(1_500)),
            full: Reach::Every(bounds().stale_reads(1).executions(1_000_000)),
        },
        Proof {
            scenario: lease_and_delete(true),
            quick: Reach::Drawn(drawn.clone(), 1, 250),
            full: Reach::Drawn(drawn, 1, 200_000),
        },
    ]
    .into()
}

/// Returns scenarios that must fail within these bounds, each with a part of the message.
pub fn broken() -> Vec<(Scenario, Bounds, &'static str)> {
    vec![(
        lease_and_delete(false),
        bounds().preemptions(1),
        "a lease of \"kept\"",
    )]
}

fn bounds() -> Bounds {
    Bounds::default().preemptions(2).stale_reads(0).deaths(0)
}

/// A member leases an object and reads it, while another one deletes it: the bytes exist as long as
/// the lease, and afterwards all memory is free, or a collection frees it. Broken: the deleting
/// member frees the memory without a check whether the object is destroyed.
fn lease_and_delete(looks: bool) -> Scenario {
    Scenario::new("memory pool: a lease against a deletion")
        .memory(bytes::<Scheduled>())
        .prepare(|m: Scheduled| Leasing::create(m))
        .thread("user", |m| {
            let all = Leasing::open(m);
            let member = all.world.act_as(0);
            let heap = all.world.local(&member);
            let Found::Sealed(named) = all.find(fixture::objects(&heap), KEPT) else {
                return;
            };
            let manifest = *named.low_level();
            let address = manifest.address().expect("an address");
            all.demand_bytes(KEPT, address)
                .unwrap_or_else(|wrong| panic!("{wrong}"));
            drop(named);
            all.free_if_destroyed(&heap, manifest.at(), address);
        })
        .thread("deleter", move |m| {
            let all = Leasing::open(m);
            let member = all.world.act_as(1);
            let heap = all.world.local(&member);
            match looks {
                true => all.delete(&heap, KEPT),
                false => {
                    let objects = fixture::objects(&heap);
                    let Found::Sealed(named) = all.find(objects, KEPT) else {
                        panic!("no object");
                    };
                    let address = named.low_level().address().expect("an address");
                    named.unlink().expect("a sound object");
                    all.free(member.instance(), address);
                }
            }
        })
        .check(|m, _| {
            let all = Leasing::open(m);
            let member = all.world.act_as(OBSERVER);
            let heap = all.world.local(&member);
            // The last lease may be that of a user that did not find the name any more.
            all.collect(&heap);
            let census = all.pool.check().expect("a sound pool");
            assert_eq!((census.objects, census.slices, census.frames), (0, 0, 0));
            let blocks = fixture::objects(&heap).blocks().expect("sound objects");
            let (of_pod, logs) = (all.world.heap, all.world.logs);
            let retired = (0..IDS).flat_map(|id| of_pod.retired(logs.of(id)));
            all.world
                .demand_sound(blocks.into_iter().chain(retired))
                .unwrap_or_else(|wrong| panic!("{wrong}"));
        })
}
