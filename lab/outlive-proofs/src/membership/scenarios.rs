//! Finalised deaths, joins, fences, the manager's role, groups and records, with deaths; and broken
//! variants, each of which an exploration must find.

use super::obituaries::Obituaries;
use super::tables::{self, IDS, SIZE, Silent, live, tables};
use outlive::host::{Obituary, Os, ProcessIdentity, ThreadIdentity};
use outlive::membership::{
    Credentials, GroupError, Guard, Instance, JoinError, Level, Record, State, Status, Tables,
    bury, steps,
};
use outlive_memory::{Memory, Offset, Ordering};
use outlive_prove::proof::{Proof, Reach};
use outlive_prove::schedule::{self, Bounds, Ghost, Scenario, Scheduled};
use outlive_prove::weakened::{Weakened, Weakness};

/// The scenarios of this file.
pub fn all() -> Vec<Proof> {
    let every = |scenario, quick: Bounds, deaths| {
        let quick = quick.deaths(deaths);
        // Some are explored without bounds by default already.
        let full = Bounds::default().preemptions(4).deaths(deaths);
        Proof {
            scenario,
            full: Reach::Every(full.at_least(&quick)),
            quick: Reach::Every(quick),
        }
    };
    let wide = || bounds().preemptions(3).stale_reads(2);
    vec![
        every(
            raise_and_rejoin("raise and rejoin", Prover::WordFirst),
            wide(),
            2,
        ),
        every(
            handshake("fence handshake", None, None),
            Bounds::exhaustive(),
            1,
        ),
        every(
            agent("fence agent and rejoin", None, None),
            Bounds::exhaustive(),
            1,
        ),
        every(role("role, two backups", true), Bounds::exhaustive(), 2),
        every(watch("watch, two backups", None), bounds(), 2),
        every(one_group("one group", None), bounds(), 1),
        every(record("record rewritten", None, None), wide(), 1),
        every(record_left_half("record left half-written"), wide(), 1),
        every(who_proved_it("who proved it", None), wide(), 2),
    ]
}

/// Returns scenarios that must fail within these bounds, each with a part of the message.
pub fn broken() -> Vec<(Scenario, Bounds, &'static str)> {
    let full = Some(Weakness::Fences(Ordering::SeqCst));
    let release = Some(Weakness::Fences(Ordering::Release));
    let acquire = Some(Weakness::Fences(Ordering::Acquire));
    let (ready, creator) = (group_words().0, group_words().1);
    vec![
        (
            raise_and_rejoin("word read after the proof", Prover::ProofFirst),
            bounds(),
            "raised while it lives",
        ),
        (
            handshake("joiner without a fence", full, None),
            bounds(),
            "slipped in",
        ),
        (
            handshake("fencer without a fence", None, full),
            bounds(),
            "slipped in",
        ),
        (
            agent("caller of an agent without a fence", full, None),
            bounds(),
            "comes back under",
        ),
        (
            agent("returning host without a fence", None, full),
            bounds(),
            "comes back under",
        ),
        (role("role stored", false), bounds(), "both have the role"),
        (
            watch(
                "watch stored",
                Some(Weakness::Comparisons(tables::watch(0), 8)),
            ),
            bounds(),
            "both are on watch",
        ),
        (
            one_group("ready orders nothing", Some(ready)),
            bounds(),
            "an incomplete guard",
        ),
        (
            one_group("creators at once", Some(creator)),
            bounds(),
            "groups",
        ),
        (
            record("record without release fence", release, None),
            bounds(),
            "a torn record",
        ),
        (
            record("record without acquire fence", None, acquire),
            bounds(),
            "a torn record",
        ),
        (
            who_proved_it(
                "the older proof noted over the newer",
                Some(Weakness::Comparisons(tables::proven(1), 16)),
            ),
            bounds(),
            "is not noted",
        ),
        (
            who_proved_it(
                "a proof not noted",
                Some(Weakness::Swaps(tables::proven(1), 16)),
            ),
            bounds(),
            "is not noted",
        ),
    ]
}

fn bounds() -> Bounds {
    Bounds::default()
        .preemptions(2)
        .stale_reads(1)
        .executions(1_000_000)
}

fn scenario(name: &str) -> Scenario {
    schedule::scenario(name).memory(SIZE)
}

/// Returns the tables through a memory that has `weakness`, if there is one.
fn weak(m: Scheduled, weakness: Option<Weakness>) -> Tables<Weakened<Scheduled>> {
    // There are no relaxed fences, so omitting them omits nothing.
    let none = Weakness::Fences(Ordering::Relaxed);
    tables(Weakened::new(m, weakness.unwrap_or(none)))
}

const HOST: Instance = Instance::new(0, 1);
/// Beyond the tables.
const OBITUARIES: Offset = Offset::new(SIZE - 64);
/// Where the threads store words of their own.
const DATA: Offset = Offset::new(SIZE - 128);

/// The order in which a prover proves a death.
#[derive(Clone, Copy)]
enum Prover {
    /// It reads the word, then the obituary, then finalises the death of the word's incarnation.
    WordFirst,
    /// Broken: the word that is raised is read after the proof.
    ProofFirst,
}

/// A slow prover, a thread that dies, and its next incarnation: the thread that joins finalises the
/// death too. The new incarnation is never raised.
fn raise_and_rejoin(name: &str, prover: Prover) -> Scenario {
    const ID: u32 = 1;
    let os = |m, tid| Obituaries::new(m, OBITUARIES, tid);
    scenario(name)
        .prepare(move |m| {
            tables::enliven(tables(m), 0, Level::Host);
            tables::enliven(tables(m), ID, Level::Thread);
            assert!(matches!(os(m, 100).hold_obituary(ID), Ok(Ok(()))));
        })
        .mortal("victim", |m| m.store(DATA, 1u64, Ordering::Relaxed))
        .mortal("slow prover", move |m| {
            let read = || tables(m).generations().state(ID).expect("a state");
            let is_marked = || matches!(os(m, 101).obituary(ID), Obituary::Marked { .. });
            let seen = match prover {
                Prover::WordFirst => Some(read()).filter(|_| is_marked()),
                Prover::ProofFirst => is_marked().then(read),
            };
            if let Some(seen) = seen.filter(|seen| seen.status.may_write()) {
                // SAFETY: the obituary of the incarnation that was read is marked: its thread is
                // dead. (Or so the broken variant thinks, which writes to a memory of its own.)
                unsafe { bury(tables(m), &Silent, ID, seen) };
            }
        })
        .mortal_after_death("rejoiner", move |m| {
            match steps::join(tables(m), &os(m, 102), 0, ID, Level::Thread, HOST) {
                Ok(me) => assert_eq!(me, Instance::new(ID, 3)),
                // Another thread had died.
                Err(JoinError::InUse { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        })
        .on_death(move |m, host| {
            // The kernel marks the obituary, if the dead thread held it.
            let tid = [100, 101, 102][host];
            if os(m, tid).obituary(ID) == (Obituary::Held { tid }) {
                os(m, tid).mark(ID);
            }
        })
        .check(move |m, end| {
            let now = tables(m).generations().state(ID).expect("a state");
            let alive = |generation| State {
                generation,
                ..live(Level::Thread)
            };
            match (end.died(0), end.died(2)) {
                (false, _) => assert_eq!(now, alive(1), "raised while it lives"),
                (true, false) => assert!(
                    // Or it came while only another thread was dead, and was refused, since the id
                    // is in use.
                    now == alive(3) || now.generation <= 2,
                    "raised while it lives: {now}"
                ),
                (true, true) => {}
            }
            // Whatever was left half-done, the id of a dead owner can be joined, and no other.
            let again = steps::join(tables(m), &os(m, 103), 0, ID, Level::Thread, HOST);
            let lives = matches!(now.generation, 1 | 3) && !end.died(now.generation as usize - 1);
            assert_eq!(again.is_err(), lives, "{again:?} after {now}");
        })
}

/// One member proves a death and sleeps before it notes that; another proves the death of the next
/// incarnation. The later note prevails, and the member that it names did prove the death.
fn who_proved_it(name: &str, slow: Option<Weakness>) -> Scenario {
    const ID: u32 = 1;
    let dead = |generation| Instance::new(ID, generation);
    let (early, late) = (Instance::new(2, 1), Instance::new(3, 1));
    let noted = move |m| [1, 2].map(|generation| tables(m).records().proven_by(dead(generation)));
    let is_true = move |[first, second]: [Option<Instance>; 2]| {
        let either = first.is_none() || second.is_none();
        either && first.is_none_or(|by| by == early) && second.is_none_or(|by| by == late)
    };
    scenario(name)
        .mortal("slow prover", move |m| {
            steps::note_proven(weak(m, slow), dead(1), early);
        })
        .mortal("next prover", move |m| {
            steps::note_proven(tables(m), dead(2), late);
        })
        .thread("reader", move |m| {
            let (before, after) = (noted(m), noted(m));
            // Between the two reads it may have changed, but never back.
            assert!(
                before[1].is_none() || after[1] == before[1],
                "{before:?}, {after:?}"
            );
        })
        .check(move |m, end| {
            let now = noted(m);
            assert!(is_true(now), "{now:?}");
            if end.result(1).is_some() {
                assert_eq!(now[1], Some(late), "the later proof is not noted");
            } else if end.result(0).is_some() {
                assert!(now.iter().any(Option::is_some), "the proof is not noted");
            }
        })
}

/// A process joins a host that is being fenced: the fencer sees it, or it does not become live.
fn handshake(name: &str, joiner: Option<Weakness>, fencer: Option<Weakness>) -> Scenario {
    const ID: u32 = 1;
    let saw_nobody = Ghost::<bool>::new();
    let saw_nobody_too = saw_nobody.clone();
    scenario(name)
        .prepare(|m| tables::enliven(tables(m), 0, Level::Host))
        .mortal("joiner", move |m| {
            let os = Obituaries::new(m, OBITUARIES, 100);
            // It may be refused.
            let _ = steps::join(weak(m, joiner), &os, 0, ID, Level::Process, HOST);
        })
        .thread("fencer", move |m| {
            // As the manager does, and then its fence: the host's word, then all words.
            let tables = weak(m, fencer);
            let fencing = State {
                status: Status::Fencing,
                ..live(Level::Host)
            };
            // SAFETY: no thread acts as the incarnation that this ends; one acts as the new one.
            assert!(unsafe {
                tables
                    .generations()
                    .assume_state(0, live(Level::Host), fencing)
            });
            tables.memory().fence(Ordering::SeqCst);
            let mut members = tables
                .writers()
                .filter(|(_, state)| state.level == Some(Level::Process) && state.host == 0);
            if members.next().is_none() {
                saw_nobody.with(|saw| *saw = true);
            }
        })
        .check(move |m, _| {
            let status = tables(m).generations().state(ID).expect("a state").status;
            let slipped_in = status == Status::Live && saw_nobody_too.with(|saw| *saw);
            assert!(!slipped_in, "a process slipped in behind the fence");
        })
}

/// A manager is about to call an agent against a host. The host's fence ends otherwise, and the
/// host comes back: either the manager calls no agent, or the returning host sees that one is at
/// work.
fn agent(name: &str, caller: Option<Weakness>, joiner: Option<Weakness>) -> Scenario {
    const MANAGER: u32 = 1;
    const FENCING: State = State {
        status: Status::Fencing,
        ..live(Level::Host)
    };
    let called = Ghost::<bool>::new();
    let saw_none = Ghost::<bool>::new();
    let of_check = (called.clone(), saw_none.clone());
    scenario(name)
        .prepare(|m| {
            tables::enliven(tables(m), 0, Level::Host);
            tables::enliven(tables(m), MANAGER, Level::Process);
            // SAFETY: no thread acts as the incarnation that this changes.
            let begun = unsafe {
                let generations = tables(m).generations();
                generations.assume_state(0, live(Level::Host), FENCING)
            };
            assert!(begun);
        })
        .thread("manager", move |m| {
            if steps::announce_agent(weak(m, caller), MANAGER, 0, FENCING) {
                called.with(|called| *called = true);
            }
        })
        .mortal("burier", |m| tables::declare_dead(tables(m), 0))
        .thread("joiner", move |m| {
            let tables = weak(m, joiner);
            let now = tables.generations().state(0).expect("a state");
            if now.status != Status::Fencing && !steps::is_agent_at_work(tables, 0) {
                saw_none.with(|saw| *saw = true);
            }
        })
        .check(move |_, _| {
            let both = of_check.0.with(|called| *called) && of_check.1.with(|saw| *saw);
            assert!(!both, "a host comes back under an agent");
        })
}

/// Two backups want a dead manager's role: one gets it. The next takes it if that one is dead.
fn role(name: &str, takes: bool) -> Scenario {
    let told = Ghost::<Vec<u32>>::new();
    let of_check = told.clone();
    let backup = move |id| {
        let told = told.clone();
        move |m: Scheduled| {
            let (role, generations) = (tables(m).role(), tables(m).generations());
            let me = Instance::new(id, 1);
            let taken = if takes {
                role.take(generations, me)
            } else {
                // Broken: it checks, and then stores.
                let vacant = role.holder().is_none_or(|h| role.is_vacant(generations, h));
                if vacant {
                    let at = role_at();
                    m.store(at, me.to_word(), Ordering::Release);
                }
                vacant
            };
            if taken {
                told.with(|told| told.push(id));
            }
        }
    };
    scenario(name)
        .prepare(|m| {
            for id in 0..IDS {
                tables::enliven(tables(m), id, Level::Process);
            }
            assert!(
                tables(m)
                    .role()
                    .take(tables(m).generations(), Instance::new(0, 1))
            );
            tables::declare_dead(tables(m), 0);
        })
        .mortal("backup 1", backup(1))
        .mortal("backup 2", backup(2))
        // Threads have the numbers 0 and 1, their ids 1 and 2.
        .on_death(|m, host| tables::declare_dead(tables(m), host as u32 + 1))
        .check(move |m, end| {
            let (role, generations) = (tables(m).role(), tables(m).generations());
            let told = of_check.with(|told| told.clone());
            let died = |id: u32| end.died(id as usize - 1);
            let living: Vec<_> = told.iter().filter(|id| !died(**id)).collect();
            assert!(living.len() <= 1, "both have the role");
            assert!(
                end.deaths() > 0 || living.len() == 1,
                "no member has the role, and none died"
            );
            let holder = role.holder().expect("a holder");
            if let Some(id) = living.first() {
                assert_eq!(holder.id, **id, "the holder did not take the role");
            }
            // The next one gets it from a dead holder, and only from a dead one.
            let lives = holder.id != 0 && !died(holder.id);
            assert_eq!(role.take(generations, Instance::new(3, 1)), !lives);
        })
}

/// Two backups want the watch of a host after the death of its watcher: one gets it. If that one
/// dies, the next gets it.
fn watch(name: &str, weakness: Option<Weakness>) -> Scenario {
    let on_watch = Ghost::<Vec<u32>>::new();
    let of_check = on_watch.clone();
    let os = |m, id: u32| Obituaries::new(m, OBITUARIES, 100 + id);
    let backup = move |id| {
        let on_watch = on_watch.clone();
        move |m: Scheduled| {
            let me = Instance::new(id, 1);
            if steps::stand_on_watch(weak(m, weakness), &os(m, id), HOST, me) {
                on_watch.with(|on_watch| on_watch.push(id));
            }
        }
    };
    scenario(name)
        .prepare(move |m| {
            tables::enliven(tables(m), 0, Level::Host);
            for id in 1..IDS {
                tables::enliven(tables(m), id, Level::Process);
                assert!(matches!(os(m, id).hold_obituary(id), Ok(Ok(()))));
            }
            let watcher = Instance::new(3, 1);
            assert!(steps::stand_on_watch(tables(m), &os(m, 3), HOST, watcher));
            os(m, 3).mark(3);
        })
        .mortal("backup 1", backup(1))
        .mortal("backup 2", backup(2))
        // Threads have the numbers 0 and 1, their ids 1 and 2.
        .on_death(move |m, backup| os(m, backup as u32 + 1).mark(backup as u32 + 1))
        .check(move |m, end| {
            let stood = of_check.with(|on_watch| on_watch.clone());
            let died = |id: u32| end.died(id as usize - 1);
            let living: Vec<_> = stood.iter().filter(|id| !died(**id)).collect();
            assert!(living.len() <= 1, "both are on watch");
            assert!(
                end.deaths() > 0 || living.len() == 1,
                "no process is on watch, and none died"
            );
            // A survivor finds a live process on watch, or takes the watch.
            for id in [1, 2].into_iter().filter(|id| !died(*id)) {
                let me = Instance::new(id, 1);
                let stands = steps::stand_on_watch(tables(m), &os(m, id), HOST, me);
                let holder = steps::on_watch(tables(m), HOST).expect("it is served");
                assert!(!died(holder.id) && stands == (holder == me));
            }
        })
}

/// Returns the offset of the role's word in [`tables`].
fn role_at() -> Offset {
    use outlive::membership::{OperatingSystems, Settings};
    let after = Settings::BYTES + OperatingSystems::<Scheduled>::BYTES;
    tables::ROLES + after
}

/// Returns the weaknesses of the groups' ready words, and of the creator's word.
fn group_words() -> (Weakness, Weakness) {
    let first = tables::GROUPS + 128 + tables::GROUP_STRIDE;
    (
        Weakness::Orderings(first, 8),
        Weakness::Swaps(tables::GROUPS, 8),
    )
}

/// Two threads create a group of one name, each with a guard that admits another user: there is one
/// group, with the guard of one of them.
fn one_group(name: &str, weakness: Option<Weakness>) -> Scenario {
    let made = Ghost::<Vec<u32>>::new();
    let of_check = made.clone();
    let create = move |id: u32| {
        let made = made.clone();
        move |m: Scheduled| {
            let tables = weak(m, weakness);
            let guard = Guard {
                uid: Some(id),
                ..Guard::default()
            };
            let me = Instance::new(id, 1);
            match tables
                .groups()
                .create(tables.generations(), me, "group", &guard)
            {
                Ok(_) => made.with(|made| made.push(id)),
                Err(GroupError::Exists { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    };
    scenario(name)
        .prepare(|m| {
            for id in 0..IDS {
                tables::enliven(tables(m), id, Level::Thread);
            }
        })
        .mortal("creator 1", create(1))
        .thread("creator 2", create(2))
        .thread("reader", move |m| {
            // A group that exists is whole.
            admitted(weak(m, weakness));
        })
        .on_death(|m, host| tables::declare_dead(tables(m), host as u32 + 1))
        .check(move |m, end| {
            let groups = tables(m).groups();
            let named = groups.all().filter(|group| groups.name(*group) == "group");
            assert_eq!(named.count(), 1, "groups of that name");
            let by = admitted(tables(m)).expect("a group");
            let made = of_check.with(|made| made.clone());
            assert!(made.len() <= 1 && made.iter().all(|id| *id == by));
            assert!(end.deaths() > 0 || made.len() == 1, "created by no member");
        })
}

/// Returns the user that the group admits; `None` if there is no group.
fn admitted<M: Memory>(tables: Tables<M>) -> Option<u32> {
    let shown = |uid| Credentials {
        uid,
        ..Credentials::default()
    };
    tables.groups().find("group")?;
    let lets_in = |uid: &u32| tables.groups().admit("group", &shown(*uid)).is_ok();
    let users: Vec<_> = (0..IDS).filter(lets_in).collect();
    assert!(
        matches!(users[..], [1 | 2]),
        "an incomplete guard: it lets in {users:?}"
    );
    users.first().copied()
}

/// Returns the record of generation `generation` of id 1; every field shows the generation.
fn record_of(generation: u32) -> Record {
    let number = u64::from(generation);
    Record {
        instance: Instance::new(1, generation),
        thread: ThreadIdentity {
            process: ProcessIdentity {
                pid: generation,
                start_time: number,
            },
            tid: generation,
            start_time: number,
        },
        process: Some(Instance::new(2, generation)),
        uid: generation,
        has_cord: false,
        name: format!("{generation:012}"),
    }
}

fn read_records<M: Memory>(tables: Tables<M>) {
    for generation in [1, 3] {
        let read = tables.records().read(Instance::new(1, generation));
        assert!(
            read.is_none() || read == Some(record_of(generation)),
            "a torn record: {read:?}"
        );
    }
}

/// A record is read while the next incarnation's is written over it.
fn record(name: &str, writer: Option<Weakness>, reader: Option<Weakness>) -> Scenario {
    scenario(name)
        .prepare(|m| steps::write_record(tables(m), &record_of(1)))
        .mortal("writer", move |m| {
            steps::write_record(weak(m, writer), &record_of(3))
        })
        .thread("reader", move |m| read_records(weak(m, reader)))
        .check(|m, end| {
            read_records(tables(m));
            let read = tables(m).records().read(Instance::new(1, 3));
            assert!(end.deaths() > 0 || read.is_some());
        })
}

/// The writer of a record dies, and the next incarnation writes its own.
fn record_left_half(name: &str) -> Scenario {
    scenario(name)
        .mortal("first", |m| steps::write_record(tables(m), &record_of(1)))
        .after_death("next", |m| steps::write_record(tables(m), &record_of(3)))
        .thread("reader", |m| read_records(tables(m)))
        .check(|m, end| {
            read_records(tables(m));
            let last = if end.deaths() > 0 { 3 } else { 1 };
            let read = tables(m).records().read(Instance::new(1, last));
            assert_eq!(read, Some(record_of(last)));
        })
}
