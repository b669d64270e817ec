//! Safe reclamation: readers against members that retire and free, with deaths; and broken
//! variants, each of which an exploration must find.

use super::fixture::{
    REGION, block, bytes_for, create_heap, heap, link, move_on, pod as pod_of, put, read, remove,
    retired, take,
};
use crate::pod::Pod;
use outlive::heap::LocalHeap;
use outlive::membership::Member;
use outlive::recovery::{
    Operation, OperationKind, OwnLog, RecoverError, RecoverOperation, RecoverRoom, Recovering,
};
use outlive_memory::{Memory, Offset, Ordering};
use outlive_prove::proof::{Proof, Reach};
use outlive_prove::schedule::{self, Bounds, Ghost, Scenario, Scheduled};
use outlive_prove::weakened::{Weakened, Weakness};
use std::sync::OnceLock;

/// The scenarios of this file.
pub fn all() -> Vec<Proof> {
    let every = |scenario, preemptions: u32, stale_reads: u32, deaths| {
        let within = |more: u32| {
            bounds()
                .preemptions(preemptions + more)
                .stale_reads(stale_reads + more)
                .deaths(deaths)
        };
        Proof {
            scenario,
            quick: Reach::Every(within(0)),
            full: Reach::Every(within(1).executions(20_000_000)),
        }
    };
    let drawn = |scenario, deaths, executions| {
        let bounds = bounds().preemptions(4).stale_reads(3).deaths(deaths);
        Proof {
            scenario,
            quick: Reach::Drawn(bounds.clone(), 1, executions),
            full: Reach::Drawn(bounds, 1, 100 * executions),
        }
    };
    vec![
        every(reader_and_reclaimer(Fences::BOTH), 4, 4, 0),
        every(reader_of_the_young(Reads::Pinned), 4, 4, 0),
        every(pin_in_a_later_era(Until::AfterTheFence), 4, 4, 0),
        every(death_of_a_reader(Release::AfterTheHandler), 1, 1, 1),
        every(death_of_a_reclaimer(), 0, 1, 1),
        drawn(death_of_a_reclaimer(), 2, 20_000),
        every(heirs_of_the_gone(), 0, 1, 1),
        drawn(heirs_of_the_gone(), 1, 20_000),
        drawn(everybody(), 1, 20_000),
    ]
}

/// Returns scenarios that must fail within these bounds, each with a part of the message.
pub fn broken() -> Vec<(Scenario, Bounds, &'static str)> {
    let reader = Fences {
        reader: false,
        ..Fences::BOTH
    };
    let reclaimer = Fences {
        reclaimer: false,
        ..Fences::BOTH
    };
    vec![
        (reader_and_reclaimer(reader), bounds(), FREED),
        (reader_and_reclaimer(reclaimer), bounds(), FREED),
        (reader_of_the_young(Reads::Unpublished), bounds(), FREED),
        (pin_in_a_later_era(Until::BeforeUnlinking), bounds(), FREED),
        (
            death_of_a_reader(Release::BeforeTheHandler),
            bounds().deaths(1),
            FREED,
        ),
    ]
}

/// The message for a block that is read and free.
const FREED: &str = "freed under its reader";

fn bounds() -> Bounds {
    Bounds::default()
        .preemptions(2)
        .stale_reads(1)
        .deaths(0)
        .executions(2_000_000)
}

/// Memory that may lack its full fences.
type Memories = Weakened<Scheduled>;

fn sound(m: Scheduled) -> Memories {
    Weakened::sound(m)
}

fn without_fences(m: Scheduled) -> Memories {
    Weakened::new(m, Weakness::Fences(Ordering::SeqCst))
}

/// The full fences that are made.
#[derive(Clone, Copy)]
struct Fences {
    reader: bool,
    reclaimer: bool,
}

impl Fences {
    const BOTH: Self = Self {
        reader: true,
        reclaimer: true,
    };
}

fn memory(m: Scheduled, fences: bool) -> Memories {
    if fences { sound(m) } else { without_fences(m) }
}

/// Returns the handles. Each execution has its own memory behind them.
fn pod(m: Memories, fences: bool) -> &'static Pod<Memories> {
    static SOUND: OnceLock<Pod<Memories>> = OnceLock::new();
    static WITHOUT: OnceLock<Pod<Memories>> = OnceLock::new();
    let pod = if fences { &SOUND } else { &WITHOUT };
    pod.get_or_init(|| pod_of(m))
}

/// Runs `work` with the heap handle of member `id`, which ends afterwards.
fn with_heap(m: Scheduled, id: u32, fences: bool, work: impl FnOnce(&LocalHeap<'_, Memories>)) {
    let m = memory(m, fences);
    let pod = pod(m, fences);
    let member = pod.act_as(id);
    let local = LocalHeap::of(heap(m), &member, &pod.recoverers);
    work(&local);
}

/// Unlinks the block and retires it, which frees it unless a member reads it.
fn retire(m: Scheduled, id: u32, fences: bool) {
    with_heap(m, id, fences, |local| {
        if let Some(old) = take(local.memory(), 0) {
            local.retire(old);
        }
    });
}

/// Whether the block that was linked first is free.
type Freed = Ghost<bool>;

fn tell_if_freed(m: Scheduled, id: u32, freed: &Freed) {
    let m = sound(m);
    if retired(pod(m, true), id) == 0 {
        freed.with(|freed| *freed = true);
    }
}

fn assert_whole(freed: &Freed, payload: u64) {
    freed.with(|freed| assert!(!*freed, "{FREED}"));
    assert!(payload == 7 || payload == 8, "{FREED}: it holds {payload}");
}

/// Reads the linked block.
fn reads(m: Scheduled, id: u32, fences: bool, freed: &Freed) {
    with_heap(m, id, fences, |local| {
        let pin = local.pin();
        if let Some((_, payload)) = read(&pin, local.memory(), 0) {
            assert_whole(freed, payload);
        }
    });
}

/// A scenario whose threads act as members, by number. Number 1 has linked two blocks with payload
/// 7; number 3 is for the check.
fn members(name: &str) -> Scenario<Scheduled> {
    schedule::scenario(name)
        .memory(bytes_for::<Scheduled>(REGION))
        .prepare(|m| {
            create_heap(sound(m), REGION);
            let pod = pod(sound(m), true);
            (0..4).for_each(|id| drop(pod.join(id)));
            with_heap(m, 1, true, |local| {
                put(local, 0, 7);
                put(local, 1, 7);
            });
        })
        .on_death(|m, host| pod(sound(m), true).declare_dead(host as u32))
}

/// Recovers dead members, lets all live members reclaim, and asserts that all retired blocks are
/// free by then.
fn assert_nothing_kept(m: Scheduled) {
    let pod = pod(sound(m), true);
    pod.recoverers.recover_all(&pod.act_as(3)).unwrap();
    for id in (0..4).filter(|&id| pod.status(id).may_write()) {
        with_heap(m, id, true, |local| {
            local.reclaim();
        });
    }
    for id in 0..4 {
        assert_eq!(retired(pod, id), 0, "retired by {id} and never freed");
        let claimant = pod.logs.of(id).claimant();
        assert!(
            claimant.is_none_or(|by| by.id == id),
            "the log of {id} is claimed by {claimant:?}"
        );
    }
}

/// Either the reader is seen, or it sees that the block is unlinked.
fn reader_and_reclaimer(fences: Fences) -> Scenario {
    let freed = Freed::new();
    let again = freed.clone();
    members("reader and reclaimer")
        .thread("reads", move |m| reads(m, 0, fences.reader, &freed))
        .thread("retires", move |m| {
            retire(m, 1, fences.reclaimer);
            tell_if_freed(m, 1, &again);
        })
        .check(|m, _| assert_nothing_kept(m))
}

/// How a link is read.
#[derive(Clone, Copy, PartialEq)]
enum Reads {
    Pinned,
    /// Broken: the reservation stays behind.
    Unpublished,
}

/// The block is born after the reader has pinned.
fn reader_of_the_young(way: Reads) -> Scenario {
    let freed = Freed::new();
    let again = freed.clone();
    members("reader of the young")
        .thread("reads", move |m| {
            with_heap(m, 0, true, |local| {
                let pin = local.pin();
                let m = local.memory();
                let found = match way {
                    Reads::Pinned => read(&pin, m, 2),
                    Reads::Unpublished => {
                        let word: u64 = m.load(link(2), Ordering::Acquire);
                        (word != 0).then(|| {
                            let block = Offset::from_raw(word);
                            (block, m.load(block + 24, Ordering::Relaxed))
                        })
                    }
                };
                if let Some((_, payload)) = found {
                    assert_whole(&freed, payload);
                }
            });
        })
        .thread("retires", move |m| {
            with_heap(m, 1, true, |local| {
                let m = local.memory();
                let young = block(local, 8);
                move_on(m);
                m.store(young, local.era(), Ordering::Relaxed);
                m.store(link(2), young.raw(), Ordering::Release);
                m.store(local.pending_cell(0), 0u64, Ordering::Relaxed);
                let young = take(m, 2).expect("our own");
                local.retire(young);
            });
            tell_if_freed(m, 1, &again);
        })
        .check(|m, _| assert_nothing_kept(m))
}

/// When the era is read until which a block could be reached.
#[derive(Clone, Copy, PartialEq)]
enum Until {
    AfterTheFence,
    /// Broken.
    BeforeUnlinking,
}

/// The era advances, and a reader in the new era pins a block that seems to have been retired in
/// the old one.
fn pin_in_a_later_era(when: Until) -> Scenario {
    let freed = Freed::new();
    let again = freed.clone();
    members("pin in a later era")
        .thread("reads", move |m| {
            move_on(sound(m));
            reads(m, 0, true, &freed);
        })
        .thread("retires", move |m| {
            with_heap(m, 1, true, |local| {
                let before = local.era();
                let old = take(local.memory(), 0).expect("no other member takes it");
                local.retire(old);
                if when == Until::BeforeUnlinking {
                    local.memory().store(old + 8, before, Ordering::Relaxed);
                }
            });
            tell_if_freed(m, 1, &again);
        })
        .check(|m, _| assert_nothing_kept(m))
}

const LOOK: OperationKind = OperationKind::new(97);

/// When a dead member's reservation is released.
#[derive(Clone, Copy, PartialEq)]
enum Release {
    AfterTheHandler,
    /// Broken.
    BeforeTheHandler,
}

/// Looks again at the block that the dead reader was looking at.
struct LookAgain(Freed);

impl RecoverOperation<Memories> for LookAgain {
    fn recover(
        &self,
        dead: &Recovering<'_, Memories>,
        operation: &Operation,
    ) -> Result<(), RecoverError> {
        let local = LocalHeap::of_the_dead(heap(dead.member().memory()), dead);
        let pin = local.pin();
        let m = local.memory();
        let seen: u64 = m.load(local.pending_cell(1), Ordering::Relaxed);
        if seen != 0 {
            // The block that the dead reader had reached; below, the block that can be reached now.
            let payload = m.load(Offset::from_raw(seen) + 24, Ordering::Relaxed);
            assert_whole(&self.0, payload);
            m.store(local.pending_cell(1), 0u64, Ordering::Relaxed);
        }
        if let Some((_, payload)) = read(&pin, m, 0) {
            assert_whole(&self.0, payload);
        }
        dead.running(operation).abandon(&[]);
        Ok(())
    }
}

/// Clears the reservation too early.
struct TooEarly;

impl RecoverRoom<Memories> for TooEarly {
    fn settle(&self, dead: &Recovering<'_, Memories>) -> Result<(), RecoverError> {
        let reservation = dead.log().room() + 0x40;
        let m = dead.member().memory();
        m.store(reservation, 0u64, Ordering::Release);
        Ok(())
    }

    fn release(&self, _: &Recovering<'_, Memories>) -> Result<(), RecoverError> {
        Ok(())
    }
}

/// A reader dies while it holds a block; its handler looks at the block again.
fn death_of_a_reader(when: Release) -> Scenario {
    let freed = Freed::new();
    let (again, handlers) = (freed.clone(), freed.clone());
    let recoverers = move |m| {
        let mut recoverers = pod_of(m).recoverers;
        if when == Release::BeforeTheHandler {
            recoverers = recoverers.room(TooEarly);
        }
        recoverers.operation(LOOK, LookAgain(handlers.clone()))
    };
    let at_the_end = recoverers.clone();
    members("death of a reader")
        .mortal("reads", move |m| {
            with_heap(m, 0, true, |local| {
                let member: &Member<Memories> = local.member();
                let pin = local.pin();
                let operation = OwnLog::of(member).begin(LOOK, &[]);
                if let Some((block, payload)) = read(&pin, local.memory(), 0) {
                    local
                        .memory()
                        .store(local.pending_cell(1), block.raw(), Ordering::Relaxed);
                    assert_whole(&freed, payload);
                    local
                        .memory()
                        .store(local.pending_cell(1), 0u64, Ordering::Relaxed);
                }
                operation.finish(&[]);
            });
        })
        .thread("retires", move |m| {
            retire(m, 1, true);
            tell_if_freed(m, 1, &again);
        })
        .after_death("recovers", move |m| {
            let m = sound(m);
            let member = pod(m, true).act_as(2);
            recoverers(m).recover(&member, 0).unwrap();
        })
        .check(move |m, _| {
            let (of, m) = (pod(sound(m), true), m);
            at_the_end(sound(m)).recover_all(&of.act_as(3)).unwrap();
            assert_nothing_kept(m);
        })
}

/// A member dies while it frees, and two others recover it, one of which may die.
fn death_of_a_reclaimer() -> Scenario {
    let recover = |id| {
        move |m: Scheduled| {
            let pod = pod(sound(m), true);
            pod.recoverers.recover(&pod.act_as(id), 0).unwrap();
        }
    };
    members("death of a reclaimer")
        .mortal("retires", |m| {
            with_heap(m, 0, true, |local| {
                remove(local, 1);
                remove(local, 0);
            });
        })
        .mortal_after_death("r1", recover(1))
        .after_death("r2", recover(2))
        .check(|m, _| assert_nothing_kept(m))
}

/// Number 0 has left, and with it a block that was being read. Two others find the block, one of
/// which may die, and the next incarnation joins.
fn heirs_of_the_gone() -> Scenario {
    let reclaims = |id| {
        move |m: Scheduled| {
            with_heap(m, id, true, |local| {
                local.reclaim();
            });
        }
    };
    members("heirs of the gone")
        .prepare(|m| {
            create_heap(sound(m), REGION);
            let pod = pod(sound(m), true);
            (0..4).for_each(|id| drop(pod.join(id)));
            with_heap(m, 1, true, |reader| {
                let pin = reader.pin();
                with_heap(m, 0, true, |local| {
                    put(local, 0, 7);
                    local.retire(take(local.memory(), 0).expect("our own"));
                });
                drop(pin);
            });
            pod.leave(pod.act_as(0));
        })
        .thread("joins", |m| {
            let pod = pod(sound(m), true);
            let member = pod.stranger(0);
            loop {
                pod.recoverers.recover(&member, 0).unwrap();
                if OwnLog::open(&member).is_ok() {
                    break;
                }
                m.spin_hint();
            }
            let local = LocalHeap::of(heap(sound(m)), &member, &pod.recoverers);
            local.reclaim();
            drop(local);
            pod.leave(member);
        })
        .mortal("t1", reclaims(1))
        .thread("t2", reclaims(2))
        .check(|m, _| assert_nothing_kept(m))
}

/// Two members read, one of which may die, and one retires the linked block.
fn everybody() -> Scenario {
    let freed = Freed::new();
    let (first, second) = (freed.clone(), freed.clone());
    members("two readers, a reclaimer")
        .mortal("r0", move |m| reads(m, 0, true, &first))
        .thread("t1", move |m| {
            retire(m, 1, true);
        })
        .thread("r2", move |m| {
            move_on(sound(m));
            reads(m, 2, true, &second);
        })
        .check(|m, _| assert_nothing_kept(m))
}
