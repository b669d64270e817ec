//! Named objects and their recovery; and broken variants, each of which a sweep must find.

use super::fixture::{
    CONTENTS, KEPT, MADE, MOVED, Words, World, bytes, create, leases, leave_stale, names, objects,
    pod as pod_of, structured,
};
use crate::cases::{self, Killed};
use crate::pod::{IDS, Pod};
use outlive::membership::{Member, Status};
use outlive::objects::{
    Cell, Counter, DirectoryPoint, LastRequest, LeasePoint, ObjectError, ObjectPoint, Objects,
    ReleasePoint, RenamePoint, RequestPoint, UnlinkPoint,
};
use outlive_memory::{Memory, Offset, Ordering, PersistenceDomain};
use outlive_prove::kill::{Marked, Suite, Sweep};
use outlive_prove::weakened::{Weakened, Weakness};

/// Adds the sweeps of this file.
pub fn add_to(suite: &mut Suite) {
    for case in Case::SOUND {
        suite.add(Killed(case, PersistenceDomain::Flushed));
    }
    suite
        .declare::<DirectoryPoint>()
        .declare::<LeasePoint>()
        .declare::<ObjectPoint>()
        .declare::<ReleasePoint>()
        .declare::<RenamePoint>()
        .declare::<RequestPoint>()
        .declare::<UnlinkPoint>();
}

/// Returns the sweeps that must fail, each with a part of the expected message.
pub fn broken() -> Vec<(Box<dyn Sweep>, &'static str)> {
    cases::broken([
        (Case::LinksFirst, "there is no list or map at"),
        (Case::RetiresFirst, "but no allocated block starts there"),
        (Case::ForgetsLeases, "but no allocated block starts there"),
        (Case::ForgetsTheRoot, "a directory: "),
        (Case::RenamesInTwoSteps, "\"kept\" is gone"),
        (Case::WritesTheTokenLast, "does not fit"),
        (Case::TakesTheNested, "does not fit"),
        (Case::CountsTheEarlier, "does not fit"),
        (Case::RetiresUntagged, "but no allocated block starts there"),
        (Case::LeasesUnlogged, "has leaked"),
        (
            Case::LeavesStale,
            "an entry leads to it, but it is not live",
        ),
    ])
}

/// The name of a client.
const CLIENT: &str = "client";

/// In the state of a request: the code of the program runs.
const PAUSED: u64 = 4;

/// In a slot of a lease: its object is being retired.
const RETIRING: u64 = 2;

/// The bytes of a block of leases.
const LEASES: u64 = 256;

/// The number of the pending-allocation cell of objects and blocks of leases.
const HAND: u64 = 7;

/// The offset of an object's state in its block, and the state of an object without a name.
const STATE: u64 = 24;
const UNLINKED: u64 = 1;

/// The number of handles that need a second block of leases.
const MANY: usize = 32;

/// The operation during which the victim, number 0, dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    /// Creates the directory.
    Directory,
    /// Creates a map.
    Create,
    /// Creates a counter.
    CreatePlain,
    /// Fails to create an object whose name is taken.
    CreateInVain,
    /// Opens an object, and closes it.
    Open,
    /// Opens an object so often that its leases need another block.
    OpenOften,
    /// Unlinks a map that has no other user.
    Unlink,
    /// Unlinks a map that member 1 uses.
    UnlinkInUse,
    /// Gives up the last lease of a map that was unlinked.
    GiveUpLast,
    /// The same; member 1, which has the other lease, is recovered after the victim.
    GiveUpBoth,
    /// Gives up the last leases of two maps, the later one first.
    GiveUpTwo,
    /// Renames a map.
    Rename,
    /// Fails to rename a map to a name that is taken.
    RenameInVain,
    /// Creates a counter under a name that a dead member has taken away from a map halfway.
    CreateOverStale,
    /// Unlinks a map that a dead member has renamed halfway.
    UnlinkStale,
    /// Creates a cell, and replaces its value.
    Cells,
    /// Makes a request of a client: an upsert that inserts.
    RequestInsert,
    /// Makes a request of a client: an upsert that replaces.
    RequestReplace,
    /// Makes a request that has no effect.
    RequestInVain,
    /// Makes a request whose closure changes another map.
    RequestNested,
    /// Makes a request that replaces the value of a cell.
    RequestCell,
    /// Broken: the name leads to the object before its contents are made.
    LinksFirst,
    /// Broken: the block is retired before the name is taken away.
    RetiresFirst,
    /// Broken: as `GiveUpLast`, with a recovery that knows no leases.
    ForgetsLeases,
    /// Broken: as `Directory`, with the same recovery.
    ForgetsTheRoot,
    /// Broken: the old name is taken away before the new one is given.
    RenamesInTwoSteps,
    /// Broken: as `RequestReplace`, but the request is written after its operation.
    WritesTheTokenLast,
    /// Broken: as `RequestNested`, but the request is not paused while its closure runs.
    TakesTheNested,
    /// Broken: as `RequestNested`, but the request does not record the number of the operation
    /// before it.
    CountsTheEarlier,
    /// Broken: as `GiveUpTwo`, but no slot is tagged as retiring.
    RetiresUntagged,
    /// Broken: as `OpenOften`, but the log does not lead to the new block of leases.
    LeasesUnlogged,
    /// Broken: as `UnlinkStale`, but the stale entry is not removed.
    LeavesStale,
}

use Case::*;

impl Case {
    const SOUND: [Self; 21] = [
        Directory,
        Create,
        CreatePlain,
        CreateInVain,
        Open,
        OpenOften,
        Unlink,
        UnlinkInUse,
        GiveUpLast,
        GiveUpBoth,
        GiveUpTwo,
        Rename,
        RenameInVain,
        CreateOverStale,
        UnlinkStale,
        Cells,
        RequestInsert,
        RequestReplace,
        RequestInVain,
        RequestNested,
        RequestCell,
    ];

    /// Returns whether the directory does not exist before the operation.
    fn has_no_directory(self) -> bool {
        matches!(self, Directory | ForgetsTheRoot)
    }

    /// Returns whether the object that existed may be gone.
    fn unlinks(self) -> bool {
        matches!(
            self,
            Unlink
                | UnlinkInUse
                | GiveUpLast
                | GiveUpBoth
                | GiveUpTwo
                | RetiresUntagged
                | UnlinkStale
                | LeavesStale
                | RetiresFirst
                | ForgetsLeases
        )
    }

    /// Returns whether the object `MADE` exists before and after the operation.
    fn has_made(self) -> bool {
        matches!(self, RenameInVain | RequestNested | RequestCell)
    }

    /// Returns the key that the request changes, and its value before and after.
    fn request(self) -> Option<(u64, Option<u64>, Option<u64>)> {
        match self {
            RequestInsert => Some((7, None, Some(1))),
            RequestReplace | RequestNested | WritesTheTokenLast | TakesTheNested
            | CountsTheEarlier => Some((1, Some(10), Some(11))),
            RequestInVain => Some((7, None, None)),
            _ => None,
        }
    }

    /// Returns the weakness of the victim's memory, if the case has one.
    fn weakness(self, pod: &World<Marked>, victim: &Member<Marked>) -> Option<Weakness> {
        // The request that is not the last one: the next request is written there.
        let request = || {
            let at = { names(pod.heap) }.get(&pod.local(victim), CLIENT);
            let contents = Offset::from_raw(at.expect("a client") + CONTENTS);
            let selected: u64 = pod.memory.load(contents + 8, Ordering::Relaxed);
            contents + 16 + 32 * (selected & 1 ^ 1)
        };
        Some(match self {
            TakesTheNested => Weakness::Tagged(request() + 16, 8, PAUSED),
            CountsTheEarlier => Weakness::Stores(request() + 8, 8),
            RetiresUntagged => Weakness::Tagged(leases(pod.heap, 0), LEASES, RETIRING),
            LeasesUnlogged => Weakness::Stores(pod.local(victim).pending_cell(HAND), 8),
            _ => return None,
        })
    }

    /// Runs the operation of a case with a weakness.
    fn operate_weakly<M: Memory>(self, all: Objects<'_, M>) {
        match self {
            TakesTheNested | CountsTheEarlier => {
                let client = all.client(CLIENT).unwrap();
                let kept = all.open::<Words<M>>(KEPT).unwrap();
                let make = |n| {
                    kept.upsert(&2, &0, |_| 20).unwrap();
                    n + 1
                };
                assert_eq!(kept.request(&client, 2).update(&1, make), Ok(Some(10)));
            }
            RetiresUntagged => give_up_two(all),
            LeasesUnlogged => open_often(all),
            _ => unreachable!("{self:?} has no weakness"),
        }
    }
}

fn open_often<M: Memory>(all: Objects<'_, M>) {
    let open = |_| all.open::<Words<M>>(KEPT).unwrap();
    drop((0..MANY).map(open).collect::<Vec<_>>());
}

fn give_up_two<M: Memory>(all: Objects<'_, M>) {
    let made = all.create::<Words<M>>(MADE, ()).unwrap();
    made.insert(&1, &1).unwrap();
    let kept = all.open::<Words<M>>(KEPT).unwrap();
    all.unlink(MADE).unwrap();
    all.unlink(KEPT).unwrap();
    drop(kept);
    drop(made);
}

impl cases::Case for Case {
    const ROOM: &'static str = "objects";
    type World = World<Marked>;

    fn pod(world: &Self::World) -> &Pod<Marked> {
        world
    }

    fn bytes(self) -> u64 {
        bytes::<Marked>()
    }

    fn world(self, memory: Marked) -> Self::World {
        match self {
            ForgetsLeases | ForgetsTheRoot => structured(memory),
            _ => pod_of(memory),
        }
    }

    fn prepare(self, memory: Marked) {
        let pod = create(memory);
        pod.join_all();
        if self.has_no_directory() {
            return;
        }
        let victim = pod.act_as(0);
        let heap = pod.local(&victim);
        let all = objects(&heap);
        let kept = all.create::<Words<Marked>>(KEPT, ()).unwrap();
        for key in 0..3u64 {
            kept.insert(&key, &1).unwrap();
            kept.replace(&key, &(key * 10)).unwrap();
        }
        drop(kept);
        let other = pod.act_as(1);
        let others = pod.local(&other);
        if matches!(self, UnlinkInUse | GiveUpBoth) {
            std::mem::forget(objects(&others).open::<Words<Marked>>(KEPT).unwrap());
        }
        if matches!(self, GiveUpLast | GiveUpBoth | ForgetsLeases) {
            std::mem::forget(all.open::<Words<Marked>>(KEPT).unwrap());
            all.unlink(KEPT).unwrap();
        }
        if self == RenameInVain {
            drop(all.create::<Counter<Marked>>(MADE, 7).unwrap());
        }
        if self == RequestNested {
            drop(all.create::<Words<Marked>>(MADE, ()).unwrap());
        }
        if self == RequestCell {
            drop(all.create::<Cell<str, Marked>>(MADE, "old".into()).unwrap());
        }
        if matches!(self, CreateOverStale | UnlinkStale | LeavesStale) {
            leave_stale(&heap);
        }
        if self.request().is_some() || self == RequestCell {
            let client = all.client(CLIENT).unwrap();
            let kept = all.open::<Words<Marked>>(KEPT).unwrap();
            kept.request(&client, 1).upsert(&2, &0, |_| 20).unwrap();
        }
        heap.reclaim();
    }

    fn operate(self, pod: &Self::World, victim: &Member<Marked>) {
        if let Some(weakness) = self.weakness(pod, victim) {
            let weak = pod_of(Weakened::new(pod.memory, weakness));
            let victim = weak.act_as(0);
            let heap = weak.local(&victim);
            return self.operate_weakly(objects(&heap));
        }
        let heap = pod.local(victim);
        let all = objects(&heap);
        match self {
            Directory | ForgetsTheRoot => {}
            Create => drop(all.create::<Words<Marked>>(MADE, ()).unwrap()),
            CreatePlain => drop(all.create::<Counter<Marked>>(MADE, 7).unwrap()),
            CreateInVain => {
                let refused = all.create::<Counter<Marked>>(KEPT, 7).unwrap_err();
                assert!(matches!(refused, ObjectError::Exists { .. }), "{refused}");
            }
            Open => drop(all.open::<Words<Marked>>(KEPT).unwrap()),
            OpenOften => open_often(all),
            Unlink | UnlinkInUse => all.unlink(KEPT).unwrap(),
            GiveUpTwo => give_up_two(all),
            GiveUpLast | GiveUpBoth | ForgetsLeases => all.give_up_all(),
            LinksFirst => {
                // The moment before the contents are made: clears the cell, then stores it.
                let made = all.create::<Words<Marked>>(MADE, ()).unwrap();
                let cell = made.low_level().offset();
                drop(made);
                let at = names(pod.heap).get(&heap, MADE).unwrap();
                let contents = Offset::from_raw(at + CONTENTS);
                pod.memory.store(contents, 0u64, Ordering::Release);
                pod.memory.store(contents, cell.raw(), Ordering::Release);
            }
            RetiresFirst => {
                let at = names(pod.heap).get(&heap, KEPT).unwrap();
                heap.retire(Offset::from_raw(at));
                names(pod.heap).remove(&heap, KEPT).unwrap();
            }
            Rename => all.rename(KEPT, MOVED).unwrap(),
            RenameInVain => {
                let refused = all.rename(KEPT, MADE).unwrap_err();
                assert!(matches!(refused, ObjectError::Exists { .. }), "{refused}");
            }
            CreateOverStale => drop(all.create::<Counter<Marked>>(KEPT, 7).unwrap()),
            UnlinkStale => all.unlink(MOVED).unwrap(),
            LeavesStale => {
                let moved = all.open::<Words<Marked>>(MOVED).unwrap();
                let at = names(pod.heap).remove(&heap, MOVED).unwrap();
                let state = Offset::from_raw(at + STATE);
                pod.memory.store(state, UNLINKED, Ordering::Release);
                drop(moved);
            }
            Cells => {
                let made = all.create::<Cell<str, Marked>>(MADE, "old".into()).unwrap();
                made.set("another").unwrap();
            }
            RequestNested => {
                let client = all.client(CLIENT).unwrap();
                let kept = all.open::<Words<Marked>>(KEPT).unwrap();
                let made = all.open::<Words<Marked>>(MADE).unwrap();
                let request = kept.request(&client, 2);
                let make = |n| {
                    made.upsert(&3, &1, |n| n + 1).unwrap();
                    n + 1
                };
                assert_eq!(request.update(&1, make), Ok(Some(10)));
            }
            RequestCell => {
                let client = all.client(CLIENT).unwrap();
                let made = all.open::<Cell<str, Marked>>(MADE).unwrap();
                made.request(&client, 2).set("another").unwrap();
            }
            TakesTheNested | CountsTheEarlier | RetiresUntagged | LeasesUnlogged => {
                unreachable!("{self:?} has a weakness")
            }
            RequestInsert | RequestReplace | RequestInVain | WritesTheTokenLast => {
                let client = all.client(CLIENT).unwrap();
                let kept = all.open::<Words<Marked>>(KEPT).unwrap();
                let (key, ..) = self.request().unwrap();
                if self == WritesTheTokenLast {
                    kept.upsert(&key, &1, |n| n + 1).unwrap();
                    kept.request(&client, 2).upsert(&2, &0, |_| 20).unwrap();
                } else if self == RequestInVain {
                    assert_eq!(kept.request(&client, 2).remove(&key), None);
                } else {
                    kept.request(&client, 2)
                        .upsert(&key, &1, |n| n + 1)
                        .unwrap();
                }
            }
            RenamesInTwoSteps => {
                let at = names(pod.heap).remove(&heap, KEPT).unwrap();
                names(pod.heap).insert(&heap, MOVED, &at).unwrap();
            }
        }
    }

    fn check(self, pod: &Self::World, returned: bool) -> Result<(), String> {
        let demand = |what: bool, why: String| what.then_some(()).ok_or(why);
        let error = |error: ObjectError| error.to_string();
        if self.has_no_directory()
            && pod.memory.load::<u64>(pod.heap.root(), Ordering::Acquire) == 0
        {
            demand(!returned, "there is no directory".into())?;
            return pod.demand_sound([]);
        }
        // The member that uses the object finally gives it up.
        if pod.status(1) == Status::Live {
            let other = pod.act_as(1);
            let heap = pod.local(&other);
            objects(&heap).give_up_all();
        }
        let blocks = {
            let member = pod.act_as(3);
            let heap = pod.local(&member);
            let all = objects(&heap);
            let list = all.list().map_err(error)?;
            let names: Vec<_> = list.iter().map(|object| &object.name[..]).collect();
            let has = |name: &str| names.contains(&name);
            // The name of the map before and after the operation.
            let [before, after] = match self {
                CreateOverStale | UnlinkStale | LeavesStale => [MOVED, MOVED],
                Rename => [KEPT, MOVED],
                _ => [KEPT, KEPT],
            };
            let is_map = |name: &&str| {
                let mut all = list.iter();
                all.any(|object| object.name == **name && object.of.starts_with("map"))
            };
            let kept: Vec<_> = [KEPT, MOVED].into_iter().filter(is_map).collect();
            demand(
                kept.len() == 1 || kept.is_empty() && self.unlinks() || self.has_no_directory(),
                format!("{KEPT:?} is gone, or the map is there twice: {names:?}"),
            )?;
            let must_go = matches!(self, GiveUpLast | GiveUpBoth | ForgetsLeases);
            let unlinks = matches!(
                self,
                Unlink | UnlinkInUse | GiveUpTwo | RetiresUntagged | UnlinkStale
            );
            demand(
                kept.is_empty() || !(must_go || unlinks && returned),
                format!("{KEPT:?} is there: {names:?}"),
            )?;
            if let Some(name) = kept.first() {
                demand(
                    *name == after || *name == before && !returned,
                    format!(
                        "the map is named {name:?}; before the operation it was {before:?}, after \
                         it {after:?} is expected (returned: {returned})"
                    ),
                )?;
                let map = all.open::<Words<Marked>>(name).map_err(error)?;
                if let Some((key, before, after)) = self.request() {
                    let client = all.client(CLIENT).map_err(error)?;
                    let (last, value) = (client.last(), map.get(&key));
                    let (token, took_effect) = match after == before {
                        true => (2, false),
                        false => (2, true),
                    };
                    let one = |token, took_effect| Some(LastRequest { token, took_effect });
                    let fits = last == one(token, took_effect) && value == after
                        || value == before
                            && !returned
                            && (last == one(1, true) || last == one(2, false));
                    demand(
                        fits,
                        format!("the value {value:?} does not fit to {last:?}; {returned}"),
                    )?;
                }
                let mut entries: Vec<_> = map.iter().collect();
                entries.sort_unstable();
                if let Some((key, before, _)) = self.request() {
                    // As before the request, which is checked above.
                    entries.retain(|entry| entry.0 != key);
                    entries.extend(before.map(|value| (key, value)));
                    entries.sort_unstable();
                }
                demand(
                    entries == [(0, 0), (1, 10), (2, 20)],
                    format!("{name:?} has {entries:?}"),
                )?;
            }
            if self == CreateOverStale && (returned || has(KEPT)) {
                let value = all.open::<Counter<Marked>>(KEPT).map_err(error)?.get();
                demand(value == 7, format!("{KEPT:?} has {value}"))?;
            }
            let creates = matches!(self, Create | CreatePlain | LinksFirst | Cells);
            demand(
                match has(MADE) {
                    true => {
                        let gives_up = matches!(self, GiveUpTwo | RetiresUntagged);
                        creates || self.has_made() || gives_up && !returned
                    }
                    false => !(self.has_made() || returned && creates),
                },
                format!("the objects are {names:?}; the operation returned: {returned}"),
            )?;
            if has(MADE) && matches!(self, Cells | RequestCell) {
                let cell = all.open::<Cell<str, Marked>>(MADE).map_err(error)?;
                let value = cell.get();
                let is_one = value == "another" || value == "old" && !returned;
                demand(is_one, format!("{MADE:?} has {value:?}"))?;
                if self == RequestCell {
                    let client = all.client(CLIENT).map_err(error)?;
                    let took_effect = client.took_effect(2);
                    let is_so = (value == "another") == (took_effect == Some(true));
                    demand(
                        is_so,
                        format!("the value is {value:?}, but the outcome is {took_effect:?}"),
                    )?;
                }
            } else if has(MADE) && matches!(self, CreatePlain | RenameInVain) {
                let value = all.open::<Counter<Marked>>(MADE).map_err(error)?.get();
                demand(value == 7, format!("{MADE:?} has {value}"))?;
            } else if has(MADE) {
                let map = all.open::<Words<Marked>>(MADE).map_err(error)?;
                map.upsert(&1, &1, |_| 1)
                    .map_err(|error| error.to_string())?;
                demand(map.remove(&1) == Some(1), "it has no entry".into())?;
            }
            let users = all.list().map_err(error)?;
            demand(
                users.iter().all(|object| object.users.is_empty()),
                format!("leases are left: {users:?}"),
            )?;
            all.blocks().map_err(error)?
        };
        let retired = (0..IDS).flat_map(|id| pod.heap.retired(pod.logs.of(id)));
        pod.demand_sound(blocks.into_iter().chain(retired))
    }
}
