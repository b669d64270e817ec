//! Leased objects, killed after every instruction together with their recoverers; and broken
//! variants, which a sweep must find.

use super::objects::{KEPT, Leasing, MADE, OBSERVER, SLICES, base, bytes};
use super::small::holders;
use crate::objects::fixture;
use crate::pod::IDS;
use outlive::membership::Status;
use outlive_pool::internals::{Found, Manifest, SealPoint};
use outlive_prove::kill::{Crash, Marked, Suite, Sweep};
use outlive_prove::weakened::{Weakened, Weakness};

/// Adds the sweeps of this file.
pub fn add_to(suite: &mut Suite) {
    for what in [
        What::Put,
        What::GiveUp,
        What::Get,
        What::Delete,
        What::DeleteInUse,
        What::LastLease,
    ] {
        suite.add(LeasedObjects(what));
    }
    suite.declare::<SealPoint>();
}

/// Returns the sweeps that must fail, each with a part of the expected message.
pub fn broken() -> Vec<(Box<dyn Sweep>, &'static str)> {
    [
        (What::ForgetsTheHolder, "the objects are [\"kept\"]"),
        (What::FreesFirst, "is not sealed"),
        (What::LeavesUnheld, "objects: 1"),
    ]
    .map(|(what, message)| -> (Box<dyn Sweep>, _) { (Box::new(LeasedObjects(what)), message) })
    .into_iter()
    .collect()
}

/// The operation that is cut short. The victim is member 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// Creates an object of three slices, and seals it.
    Put,
    /// Creates an object, and gives it up.
    GiveUp,
    /// Leases an object, and gives the lease back.
    Get,
    /// Deletes an object.
    Delete,
    /// Deletes an object that member 1 has leased.
    DeleteInUse,
    /// Gives back the last lease of an object that was deleted.
    LastLease,
    /// Broken: an object is sealed without a word that leads to it.
    ForgetsTheHolder,
    /// Broken: the memory is freed before the name is removed.
    FreesFirst,
    /// Broken: as `Delete`, and no member frees the memory that the dead victim left.
    LeavesUnheld,
}

struct LeasedObjects(What);

type Weak = Weakened<Marked>;

impl LeasedObjects {
    fn open(&self, memory: Marked) -> Leasing<Weak> {
        let (at, len) = holders(base::<Marked>());
        Leasing::open(match self.0 {
            What::ForgetsTheHolder => Weakened::new(memory, Weakness::Stores(at, len)),
            _ => Weakened::sound(memory),
        })
    }

    fn puts(&self) -> bool {
        matches!(self.0, What::Put | What::ForgetsTheHolder)
    }

    fn deletes(&self) -> bool {
        matches!(
            self.0,
            What::Delete
                | What::DeleteInUse
                | What::LastLease
                | What::FreesFirst
                | What::LeavesUnheld
        )
    }
}

/// Leases [`KEPT`] as member `id`, and forgets the handle.
fn lease(all: &Leasing<Weak>, id: u32) {
    let member = all.world.act_as(id);
    let heap = all.world.local(&member);
    match all.find(fixture::objects(&heap), KEPT) {
        Found::Sealed(named) => core::mem::forget(named),
        found => panic!("{found:?}"),
    }
}

impl Sweep for LeasedObjects {
    fn name(&self) -> String {
        format!("leased object {:?}", self.0)
    }

    fn size(&self) -> u64 {
        bytes::<Marked>()
    }

    fn prepare(&self, memory: Marked) {
        Leasing::create(Weakened::sound(memory));
        let all = self.open(memory);
        if self.0 == What::DeleteInUse {
            lease(&all, 1);
        }
        if self.0 == What::LastLease {
            lease(&all, 0);
            let member = all.world.act_as(OBSERVER);
            all.delete(&all.world.local(&member), KEPT);
        }
    }

    fn operate(&self, memory: Marked) {
        let all = self.open(memory);
        let member = all.world.act_as(0);
        let heap = all.world.local(&member);
        let objects = fixture::objects(&heap);
        match self.0 {
            What::Put | What::ForgetsTheHolder => all.put(&heap, MADE),
            What::GiveUp => {
                let address = all.allocate(&member, MADE);
                let named = all.make(&heap, MADE, address);
                assert!(named.unlink().expect("a sound object"));
                all.free(member.instance(), address);
            }
            What::Get => match all.find(objects, KEPT) {
                Found::Sealed(named) => drop(named),
                found => panic!("{found:?}"),
            },
            What::Delete | What::DeleteInUse | What::LeavesUnheld => all.delete(&heap, KEPT),
            What::LastLease => {
                // Its handle was forgotten: the object is found by its memory.
                let sealed = { all.pool.coherent }.sealed().next();
                let (address, holder) = sealed.expect("an object in use");
                objects.give_up_all();
                all.free_if_destroyed(&heap, holder, address);
            }
            What::FreesFirst => {
                let named = objects.open::<Manifest<_>>(KEPT).expect("an object");
                let address = named.low_level().address().expect("an address");
                all.free(member.instance(), address);
                named.unlink().expect("a sound object");
            }
        }
    }

    fn recover(&self, memory: Marked, crash: &Crash) {
        let all = self.open(memory);
        for id in 0..=crash.recoverers_lost {
            all.world.die(id);
        }
        let survivor = all.world.act_as(1 + crash.recoverers_lost);
        let world = &all.world;
        world.recoverers.recover_all(&survivor).expect("recovered");
        if self.0 != What::LeavesUnheld {
            all.collect(&world.local(&survivor));
        }
    }

    fn check(&self, memory: Marked, crash: &Crash) -> Result<(), String> {
        let all = self.open(memory);
        // The member that uses the object finally gives it up.
        if all.world.status(1) == Status::Live {
            let member = all.world.act_as(1);
            fixture::objects(&all.world.local(&member)).give_up_all();
        }
        let member = all.world.act_as(OBSERVER);
        let heap = all.world.local(&member);
        if self.0 != What::LeavesUnheld {
            all.collect(&heap);
        }
        let objects = fixture::objects(&heap);
        let mut slices = 0;
        let mut there = Vec::new();
        for (name, of_object) in SLICES {
            match all.find(objects, name) {
                Found::Sealed(named) => {
                    let address = named.low_level().address();
                    let address = address.map_err(|error| error.to_string())?;
                    all.demand_bytes(name, address)?;
                    slices += of_object;
                    there.push(name);
                }
                Found::Unsealed(by) => return Err(format!("{name:?} of {by} is not sealed")),
                Found::Nothing { .. } => {}
            }
        }
        let has_kept = there.contains(&KEPT);
        let kept_is_right = match (self.deletes(), self.0 == What::LastLease, crash.returned) {
            (false, ..) => has_kept,
            (true, true, _) | (true, _, true) => !has_kept,
            (true, false, false) => true,
        };
        let has_made = there.contains(&MADE);
        let made_is_right = match (self.puts(), crash.returned) {
            (false, _) => !has_made,
            (true, true) => has_made,
            (true, false) => true,
        };
        if !kept_is_right || !made_is_right {
            return Err(format!("the objects are {there:?}"));
        }
        let census = { all.pool.check() }.map_err(|wrong| wrong.join("; "))?;
        let is_sound = census.objects == there.len() as u64
            && (census.owned, census.kept, census.hidden) == (0, 0, 0)
            && (census.slices, census.frames) == (slices, slices);
        if !is_sound {
            return Err(format!(
                "with the objects {there:?} the pool has {census:?}"
            ));
        }
        let blocks = objects.blocks().map_err(|error| error.to_string())?;
        let (heap, logs) = (all.world.heap, all.world.logs);
        let retired = (0..IDS).flat_map(|id| heap.retired(logs.of(id)));
        all.world.demand_sound(blocks.into_iter().chain(retired))
    }
}
