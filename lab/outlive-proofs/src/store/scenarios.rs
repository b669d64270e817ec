//! Verbs on mapped memory, survivors that recover one server, and a server that joins, under every
//! interleaving within bounds; and broken variants, each of which an exploration must find.

use super::litmus::{ALL, Litmus, run};
use super::sizes;
use outlive::membership::Instance;
use outlive_memory::{Memory, Offset, Ordering};
use outlive_prove::proof::Proof;
use outlive_prove::schedule::{Bounds, Ghost, Scenario, Scheduled};
use outlive_prove::weakened::{Weakened, Weakness};
use outlive_store::protocol::{LogArea, Protocol, Recovered};
use outlive_store::servers::{Configuration, Phase, Segments, Sizes};
use outlive_store::verbs::{
    Batch, Connection, Liveness, Mapped, POISON, Region, RemoteOffset, ServerId, VerbError,
    block_on,
};

/// The scenarios of this file.
pub fn all() -> Vec<Proof> {
    let bounds = |preemptions| Bounds::default().preemptions(preemptions).deaths(0);
    let litmus = { ALL.iter() }.map(|litmus| {
        let scenario = race(litmus, Weakened::sound);
        Proof::of_every(scenario, bounds(2), bounds(4))
    });
    let mut all: Vec<_> = litmus.collect();
    let death = Proof::of_every(death(Weakened::sound), bounds(2), bounds(4));
    all.push(death);
    all.push(Proof::of_every(joining(), bounds(2), bounds(3)));
    let deaths = Bounds::default().preemptions(1).deaths(1);
    let full = Bounds::default().preemptions(2).deaths(2);
    all.push(Proof::of_every(survivors(), deaths.clone(), full.clone()));
    all.push(Proof::of_every(survivors_of_logs(), deaths, full));
    all.extend(super::epoch_scenarios::all());
    all.extend(super::stop_scenarios::all());
    all.extend(super::transaction_scenarios::all());
    all
}

/// Returns scenarios that must fail within these bounds, each with a part of the message.
pub fn broken() -> Vec<(Scenario, Bounds, &'static str)> {
    let bounds = Bounds::default().preemptions(2).deaths(0);
    let named = |name: &str| {
        ALL.iter()
            .find(|it| it.name == name)
            .expect("a litmus test")
    };
    let fences = |memory| Weakened::new(memory, Weakness::Fences(Ordering::SeqCst));
    let region = |memory| Weakened::new(memory, Weakness::Orderings(FIRST, REGION.bytes));
    [
        (
            race(named("WRITE READ on both sides"), fences),
            bounds.clone(),
            "forbidden",
        ),
        (
            race(
                named("WRITE, then READ in a batch of its own, on both sides"),
                fences,
            ),
            bounds.clone(),
            "forbidden",
        ),
        (
            race(named("WRITE WRITE against READ READ"), region),
            bounds.clone(),
            "forbidden",
        ),
        (
            race(named("CAS READ on both sides"), region),
            bounds.clone(),
            "forbidden",
        ),
        (
            race(named("WRITE and a CAS that fails, on both sides"), fences),
            bounds.clone(),
            "forbidden",
        ),
        (death(region), bounds, "poison"),
    ]
    .into_iter()
    .chain(super::epoch_scenarios::broken())
    .chain(super::stop_scenarios::broken())
    .chain(super::transaction_scenarios::broken())
    .collect()
}

const SERVER: ServerId = ServerId(0);
const FIRST: Offset = Offset::new(512);
const REGION: Region = Region { key: 1, bytes: 256 };

fn server<M: Memory>(memory: M) -> Mapped<M> {
    let at = Offset::new(64);
    let liveness = Liveness {
        memory,
        at,
        live: 0,
    };
    Mapped::new(memory, SERVER, FIRST, REGION, liveness)
}

/// Two threads run the programs of `litmus` on a memory that `weaken` weakens.
fn race<M: Memory>(
    litmus: &'static Litmus,
    weaken: impl Fn(Scheduled) -> M + Copy + Send + Sync + 'static,
) -> Scenario {
    let results = Ghost::<[Vec<u64>; 2]>::new();
    let name = format!("verbs: {}", litmus.name);
    let mut scenario = Scenario::new(&name).memory(1024);
    for (side, name) in ["left", "right"].into_iter().enumerate() {
        let results = results.clone();
        scenario = scenario.thread(name, move |m| {
            let words = block_on(run(&server(weaken(m)), litmus.programs[side]));
            results.with(|results| results[side] = words);
        });
    }
    scenario.check(move |_, _| {
        let [left, right] = results.with(core::mem::take);
        let forbidden = (litmus.forbids)(&left, &right);
        assert!(!forbidden, "forbidden: {left:?} and {right:?}");
    })
}

/// A survivor ends a server's liveness and poisons its memory, while a reader reads that memory.
fn death<M: Memory>(weaken: impl Fn(Scheduled) -> M + Copy + Send + Sync + 'static) -> Scenario {
    Scenario::new("verbs: a READ against the death of the server")
        .memory(1024)
        .thread("survivor", move |m| {
            let memory = weaken(m);
            memory.store(Offset::new(64), 1u64, Ordering::Release);
            // Two words of the region are enough.
            let region = Region {
                bytes: 16,
                ..REGION
            };
            let liveness = Liveness {
                memory,
                at: Offset::new(64),
                live: 0,
            };
            Mapped::new(memory, SERVER, FIRST, region, liveness).poison();
        })
        .thread("reader", move |m| {
            let mut batch = Batch::new();
            let slot = batch.read(RemoteOffset::new(0), 2);
            match block_on(server(weaken(m)).post(batch)).finished() {
                Ok(batch) => assert!(
                    !batch.words(slot).contains(&POISON),
                    "poison was read as a value"
                ),
                Err(error) => assert_eq!(error, VerbError::ServerDied { server: SERVER }),
            }
        })
}

/// The configuration, and a word for the segment of the one server.
const CONFIGURATION: Offset = Offset::new(0);
const BYTES: u64 = 16 << 10;
const SEGMENT: Offset = Offset::new(BYTES - 64);

struct Segment<M>(M);

impl<M: Memory> Segments for Segment<M> {
    fn remove(&self, server: ServerId, _: u64) {
        if server == SERVER {
            self.0.store(SEGMENT, 0u64, Ordering::Release);
        }
    }

    fn poison(&self, _: ServerId, _: u64, _: Region) {}

    fn recover_logs(&self, _: u16, _: &LogArea) -> Option<Recovered> {
        None
    }
}

/// Two survivors, which may die, recover a dead server. A third one completes the recovery.
fn survivors() -> Scenario {
    let corpse = Instance::new(9, 1);
    let open = |m| Configuration::open(m, CONFIGURATION, BYTES - 64).expect("a configuration");
    let declared = Ghost::<usize>::new();
    let mut scenario = Scenario::new("store: two survivors recover a memory server")
        .memory(BYTES)
        .prepare(move |m: Scheduled| {
            let configuration = Configuration::create(m, CONFIGURATION, sizes(1, 1), false);
            let create = |_, _| {
                m.store(SEGMENT, 1u64, Ordering::Release);
                Ok::<_, ()>(REGION)
            };
            let joined = configuration.join_memory(corpse, &Segment(m), create);
            assert!(joined.is_ok_and(|it| it.is_some()));
        });
    for id in 0..2u32 {
        let declared = declared.clone();
        scenario = scenario.mortal(&format!("survivor {id}"), move |m| {
            let recovery = open(m).recover(Instance::new(id, 1), corpse, &Segment(m));
            declared.with(|declared| *declared += recovery.dead);
        });
    }
    scenario.check(move |m, end| {
        let configuration = open(m);
        let dead = (0..2u32).filter(|id| end.died(*id as usize));
        // If a survivor died before its claim, the entry may still belong to the dead server.
        for gone in dead.map(|id| Instance::new(id, 1)).chain([corpse]) {
            let _ = configuration.recover(Instance::new(2, 1), gone, &Segment(m));
        }
        let entry = configuration.memory_server(SERVER).expect("a sound entry");
        assert_eq!((entry.phase, entry.owner), (Phase::Dead, None));
        assert_eq!(
            m.load::<u64>(SEGMENT, Ordering::Acquire),
            0,
            "the segment is left"
        );
        let declared = declared.with(|declared| *declared);
        assert!(declared <= 1 && (declared == 1 || end.deaths() > 0));
    })
}

/// Two survivors, which may die, recover the logs of a dead compute server. A third one completes
/// the recovery. The logs are recovered again only after the death of a survivor.
fn survivors_of_logs() -> Scenario {
    let corpse = Instance::new(9, 1);
    let open = |m| Configuration::open(m, CONFIGURATION, BYTES - 64).expect("a configuration");
    let recoveries = Ghost::<usize>::new();
    let mut scenario = Scenario::new("store: two survivors recover the logs of a compute server")
        .memory(BYTES)
        .prepare(move |m: Scheduled| {
            let sizes = Sizes {
                log_areas: 1,
                coordinators: 1,
                log_slot_bytes: 64,
                protocol: Protocol::Pandora,
                ..sizes(1, 1)
            };
            let configuration = Configuration::create(m, CONFIGURATION, sizes, false);
            let create = |_, _| Ok::<_, ()>(REGION);
            let server = Instance::new(8, 1);
            let joined = configuration.join_memory(server, &Segment(m), create);
            assert!(joined.is_ok_and(|it| it.is_some()));
            let process = configuration.join_compute(corpse).expect("a process id");
            let area = configuration.claim_log_area(corpse, process);
            assert!(area.is_ok_and(|it| it.is_some()));
        });
    for id in 0..2u32 {
        let recoveries = recoveries.clone();
        scenario = scenario.mortal(&format!("survivor {id}"), move |m| {
            let logs = Logs(m, recoveries.clone());
            let _ = open(m).recover(Instance::new(id, 1), corpse, &logs);
        });
    }
    scenario.check(move |m, end| {
        let configuration = open(m);
        let logs = Logs(m, recoveries.clone());
        let dead = (0..2u32).filter(|id| end.died(*id as usize));
        for gone in dead.map(|id| Instance::new(id, 1)).chain([corpse]) {
            let recovery = configuration.recover(Instance::new(2, 1), gone, &logs);
            assert!(recovery.is_complete);
        }
        assert_eq!(
            configuration.log_owners().count(),
            0,
            "an area has an owner"
        );
        assert!(configuration.has_failed(1), "the process id has not failed");
        let recoveries = recoveries.with(|recoveries| *recoveries);
        assert!(
            (1..=1 + end.deaths()).contains(&recoveries),
            "{recoveries} recoveries"
        );
    })
}

/// The recovery of logs, which counts its executions.
struct Logs(Scheduled, Ghost<usize>);

impl Segments for Logs {
    fn remove(&self, _: ServerId, _: u64) {}

    fn poison(&self, _: ServerId, _: u64, _: Region) {}

    fn recover_logs(&self, process: u16, _: &LogArea) -> Option<Recovered> {
        let open = Configuration::open(self.0, CONFIGURATION, BYTES - 64);
        let has_failed = open.expect("a configuration").has_failed(process);
        // A survivor may die after it has marked the id as failed. The logs are truncated then.
        self.1.with(|recoveries| {
            assert!(
                !has_failed || *recoveries > 0,
                "the id had failed before its logs were recovered"
            );
            *recoveries += 1;
        });
        Some(Recovered::default())
    }
}

/// A server joins while another one joins, dies and is recovered. The number of the dead one is not
/// assigned again.
fn joining() -> Scenario {
    let (short, new, survivor) = (
        Instance::new(1, 1),
        Instance::new(2, 1),
        Instance::new(3, 1),
    );
    let open = |m| Configuration::open(m, CONFIGURATION, BYTES - 64).expect("a configuration");
    let join = move |m: Scheduled, owner| {
        let create = |_, _| Ok::<_, ()>(REGION);
        let joined = open(m).join_memory(owner, &Segment(m), create);
        joined.expect("no error").expect("a free entry").id
    };
    let ids = Ghost::<[Option<ServerId>; 2]>::new();
    let (of_short, of_new) = (ids.clone(), ids.clone());
    Scenario::new("store: a server joins beside one that dies")
        .memory(BYTES)
        .prepare(|m: Scheduled| {
            Configuration::create(m, CONFIGURATION, sizes(1, 1), false);
        })
        .thread("short-lived server, and its survivor", move |m| {
            let id = join(m, short);
            let _ = open(m).recover(survivor, short, &Segment(m));
            of_short.with(|ids| ids[0] = Some(id));
        })
        .thread("joining server", move |m| {
            let id = join(m, new);
            of_new.with(|ids| ids[1] = Some(id));
        })
        .check(move |m, _| {
            let ids = ids.with(|ids| *ids);
            assert_ne!(ids[0], ids[1], "one number for two servers");
            let phase = |id: Option<ServerId>| {
                let entry = open(m).memory_server(id.expect("it returned"));
                entry.expect("a sound entry").phase
            };
            assert_eq!((phase(ids[0]), phase(ids[1])), (Phase::Dead, Phase::Live));
        })
}
