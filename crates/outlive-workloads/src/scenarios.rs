//! The work list and the counting table under interleavings and deaths: what `outlive prove schedule` runs of this crate.
//!
//! Members of a small pod work through two units, on memory whose model is weaker than x86's, where any access may be a
//! member's last. Whatever happens, units are worked on by one living member at a time and count once, and whoever sees
//! the end of the list sees all that was done.

use crate::key::Key;
use crate::table::{Blocks, Place, Table, blocks_of};
use crate::work_list::{SharedList, Units, WorkList};
use outlive::heap::{self, buddy::Buddy};
use outlive::membership::{Member, Status};
use outlive::memory::{Memory, Offset, Ordering};
use outlive::sync;
use outlive_prove::fixtures::pod::{DATA, Pod, SIZE};
use outlive_prove::fixtures::weakened::{Weakened, Weakness};
use outlive_prove::scenarios::Proof;
use outlive_prove::schedule::{self, Bounds, End, Ghost, Proving, Scenario, Scheduled};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// How many units there are.
const UNITS: u64 = 2;
/// The list: claims and results of its units begin 128 bytes on, 16 bytes each.
const LIST: Offset = DATA;
const CLAIMS: Offset = Offset::new(LIST.raw() + 128);
const RESULTS: Offset = Offset::new(LIST.raw() + 136);
const CALLED_OFF: Offset = Offset::new(DATA.raw() + 256);
/// What the work on a unit leaves behind: a word each.
const WORK: Offset = Offset::new(DATA.raw() + 384);
const TABLES: Offset = Offset::new(DATA.raw() + 512);
const METADATA: Offset = Offset::new(SIZE);
const REGION: Offset = Offset::new(SIZE + 4096);
const REGION_BYTES: u64 = 4096;
const BYTES: u64 = REGION.raw() + REGION_BYTES;

/// What is to be counted: unit 1 lets a smallest table grow, and has a key that does not fit into an entry.
const TEXT: [&[&str]; UNITS as usize] = [&["a", "b", "a"], &["b", "c", LONG, "d"]];
const LONG: &str = "a key of more than twenty-four bytes";
/// The logarithm of the size of a new table: as small as there is.
const SMALLEST: u32 = 2;

/// The scenarios of this file.
pub fn all() -> Vec<Proof> {
    let within = |preemptions, stale_reads, deaths| {
        let bounds = bounds().preemptions(preemptions).deaths(deaths);
        bounds.stale_reads(stale_reads)
    };
    let list = || list(Variant::Sound);
    let counting = |workers| counting(workers, Way::Sound);
    vec![
        Proof::of_every(
            list(),
            within(1, 0, 1),
            within(2, 1, 2).executions(5_000_000),
        ),
        Proof::of_some(list(), within(4, 3, 2), 5_000, 500_000),
        Proof::of_every(
            counting(2),
            within(1, 0, 0),
            within(1, 1, 1).executions(5_000_000),
        ),
        Proof::of_some(counting(3), within(4, 3, 2), 10_000, 1_000_000),
        Proof::of_some(heirs(Way::Sound), within(4, 3, 2), 10_000, 1_000_000),
    ]
}

/// Scenarios that must fail within these bounds, each with a part of what must be said.
pub fn broken() -> Vec<(Scenario, Bounds, &'static str)> {
    vec![
        (list(Variant::Grabs), bounds().preemptions(1), "both work"),
        (
            list(Variant::Relaxed),
            bounds().preemptions(0).stale_reads(1),
            "was left behind for unit",
        ),
        (
            counting(1, Way::CommitsFirst),
            bounds().preemptions(0).deaths(1),
            "counted",
        ),
        (heirs(Way::ReusesAnAttempt), bounds(), "counted"),
    ]
}

fn bounds() -> Bounds {
    Bounds::default()
        .preemptions(1)
        .stale_reads(0)
        .deaths(0)
        .executions(500_000)
}

type Memories = Weakened<Scheduled>;

fn sound(m: Scheduled) -> Memories {
    // No bytes, so nothing is left out.
    Weakened::new(m, Weakness::Orderings(Offset::new(0), 0))
}

/// The handles; the memory behind them is each execution's own.
fn pod() -> &'static Pod<Memories> {
    static POD: OnceLock<Pod<Memories>> = OnceLock::new();
    POD.get_or_init(|| {
        let mut pod = Pod::new(sound(Scheduled::handle()));
        pod.recoverers = heap::recoverers(sync::recoverers(pod.logs));
        pod
    })
}

/// A scenario of three members, by number; number 3 looks at what they leave.
fn members(name: &str) -> Scenario {
    schedule::scenario(name)
        .memory(BYTES)
        .prepare(|m| {
            Buddy::create(sound(m), METADATA, REGION, REGION_BYTES, 64).expect("a heap");
            (0..4).for_each(|id| drop(pod().join(id)));
        })
        .on_death(|_, host| pod().declare_dead(host as u32))
}

/// How the list is wrong.
#[derive(Clone, Copy, PartialEq)]
enum Variant {
    Sound,
    /// Broken: whoever wants a unit has it, whoever else works on it.
    Grabs,
    /// Broken: a result does not release what was done for it.
    Relaxed,
}

/// Who works on which unit.
type Working = Ghost<[Option<u32>; UNITS as usize]>;

/// Three work through the list, each with a note of who did a unit; two of them may die.
fn list(variant: Variant) -> Scenario {
    let working = Working::new();
    let body = |id: u32| {
        let working = working.clone();
        move |m: Scheduled| {
            let memory = match variant {
                Variant::Sound => sound(m),
                Variant::Grabs => Weakened::new(m, Weakness::Swaps(CLAIMS, 8)),
                Variant::Relaxed => Weakened::new(m, Weakness::Orderings(RESULTS, 24)),
            };
            let member = pod_over(memory).act_as(id);
            work_through(memory, &member, &working);
        }
    };
    let name = match variant {
        Variant::Sound => "work list",
        Variant::Grabs => "grabs units",
        Variant::Relaxed => "relaxed results",
    };
    let scenario = members(name);
    let scenario = match variant {
        Variant::Sound => scenario
            .mortal("w0", body(0))
            .mortal("w1", body(1))
            .mortal("w2", body(2)),
        _ => scenario.thread("w0", body(0)).thread("w1", body(1)),
    };
    scenario.check(move |m, end: &End<()>| {
        let units = Units::new(sound(m), LIST, UNITS);
        let all_died = (0..3).all(|id| variant == Variant::Sound && end.died(id));
        for unit in 0..UNITS {
            let result = units.result(unit);
            assert!(result != 0 || all_died, "unit {unit} is not done");
            let left: u64 = m.load(WORK + unit * 8, Ordering::Relaxed);
            assert!(
                result == 0 || left == result,
                "{left} was left behind for unit {unit}"
            );
        }
        if !all_died {
            assert_settled_but_for(end);
        }
    })
}

/// A pod over a memory that may leave something out.
fn pod_over(memory: Memories) -> Pod<Memories> {
    let mut pod = Pod::new(memory);
    pod.recoverers = heap::recoverers(sync::recoverers(pod.logs));
    pod
}

fn work_through(memory: Memories, member: &Member<Memories>, working: &Working) {
    let me = member.instance().id;
    let units = Units::new(memory, LIST, UNITS);
    let mut list = SharedList::new(units, member, &pod().recoverers, CALLED_OFF);
    while let Some(unit) = list.next().expect("a recovery") {
        let other = working.with(|working| working[unit as usize].replace(me));
        // One that is dead has done what it could.
        if let Some(other) = other
            && other != me
        {
            let status = pod().status(other);
            assert!(
                !status.may_write(),
                "{other} and {me} both work on unit {unit}"
            );
        }
        let result = u64::from(me) + 1;
        // As a plain store by whoever works on the unit alone.
        memory.store(WORK + unit * 8, result, Ordering::Relaxed);
        let counts = list.commit(unit, result);
        working.with(|working| working[unit as usize] = None);
        assert!(counts, "another commit of unit {unit} counted");
    }
    // All are done, and all that was done for them is seen.
    for unit in 0..UNITS {
        let (result, left) = (
            units.result(unit),
            memory.load::<u64>(WORK + unit * 8, Ordering::Relaxed),
        );
        assert_eq!(left, result, "{left} was left behind for unit {unit}");
    }
}

/// Whoever died and had a unit that another took over is recovered: its log is at rest.
fn assert_settled_but_for(end: &End<()>) {
    let survivor = pod().act_as(3);
    pod()
        .recoverers
        .recover_all(&survivor)
        .expect("they can be");
    for id in (0..3).filter(|id| *id < end.results().len() && end.died(*id)) {
        assert_eq!(pod().status(id as u32), Status::Recovered);
        pod().assert_settled(id as u32);
    }
}

/// How the counting is wrong.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Sound,
    /// Broken: the unit is committed, then counted.
    CommitsFirst,
    /// Broken: an attempt gets the number of an abandoned one.
    ReusesAnAttempt,
}

fn place<M: Memory>(memory: M, number: u32) -> Place<M> {
    Place {
        memory,
        header: TABLES + u64::from(number) * Table::<M>::HEADER,
        number,
        units: Units::new(memory, LIST, UNITS),
        seed: 5,
    }
}

/// Works through the list as worker `number`, with its table.
fn count(m: Scheduled, number: u32, way: Way) {
    let (memory, pod) = (sound(m), pod());
    let member = pod.act_as(number);
    let units = Units::new(memory, LIST, UNITS);
    let mut list = SharedList::new(units, &member, &pod.recoverers, CALLED_OFF);
    let blocks = Blocks {
        buddy: Buddy::open(memory, METADATA).expect("a heap"),
        member: &member,
        recoverers: &pod.recoverers,
    };
    let mut table: Option<Table<'_, Memories>> = None;
    while let Some(unit) = list.next().expect("a recovery") {
        let table = match &mut table {
            Some(table) => table,
            none => {
                none.insert(Table::open(place(memory, number), blocks, SMALLEST).expect("room"))
            }
        };
        match way {
            Way::ReusesAnAttempt => table.begin_again(unit),
            _ => table.begin(unit),
        }
        if way == Way::CommitsFirst {
            assert!(list.commit(unit, table.result()));
        }
        for key in TEXT[unit as usize] {
            table
                .add(Key::new(key.as_bytes()), 1, |a, b| a + b)
                .expect("room");
        }
        if way != Way::CommitsFirst {
            assert!(list.commit(unit, table.result()));
        }
    }
}

/// Recovers the dead, lets number 3 finish what is left, and demands the totals of the text, and that no block is lost.
fn assert_counted(m: Scheduled) {
    let pod = pod();
    let survivor = pod.act_as(3);
    pod.recoverers.recover_all(&survivor).expect("they can be");
    count(m, 3, Way::Sound);
    let memory = sound(m);
    let mut totals: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    for number in 0..4 {
        place(memory, number).each_in(0, 0, |_, key, total| {
            *totals.entry(key.to_vec()).or_default() += total;
        });
    }
    let mut expected: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    for key in TEXT.concat() {
        *expected.entry(key.as_bytes().to_vec()).or_default() += 1;
    }
    let shown: Vec<_> = totals
        .iter()
        .map(|(key, total)| (String::from_utf8_lossy(key), total))
        .collect();
    assert!(totals == expected, "counted {shown:?}");
    let heap = Buddy::open(memory, METADATA).expect("a heap");
    let held: Vec<Offset> = (0..4)
        .flat_map(|number| blocks_of(place(memory, number)))
        .collect();
    let report = heap.check_reachable(held);
    assert!(report.is_clean(), "{report}");
}

/// So many count, each into its own table, and may die; number 3 counts what they leave.
fn counting(workers: u32, way: Way) -> Scenario {
    let name = match way {
        Way::Sound => "counting",
        _ => "commits before it counts",
    };
    (0..workers)
        .fold(members(name), |scenario, id| {
            scenario.mortal(&format!("w{id}"), move |m| count(m, id, way))
        })
        .check(|m, _| assert_counted(m))
}

/// The same, but number 0 is a second incarnation: the first had begun to count unit 0, with other keys, and died.
fn heirs(way: Way) -> Scenario {
    let name = match way {
        Way::Sound => "counting after a death",
        _ => "counts under an old number",
    };
    let scenario = members(name).prepare(|m| {
        let (memory, pod) = (sound(m), pod());
        Buddy::create(memory, METADATA, REGION, REGION_BYTES, 64).expect("a heap");
        (0..4).for_each(|id| drop(pod.join(id)));
        let first = pod.act_as(0);
        let units = Units::new(memory, LIST, UNITS);
        let mut list = SharedList::new(units, &first, &pod.recoverers, CALLED_OFF);
        let blocks = Blocks {
            buddy: Buddy::open(memory, METADATA).expect("a heap"),
            member: &first,
            recoverers: &pod.recoverers,
        };
        assert_eq!(list.next().expect("nobody is dead"), Some(0));
        let mut table = Table::open(place(memory, 0), blocks, SMALLEST).expect("room");
        table.begin(0);
        for key in ["a", "x"] {
            table
                .add(Key::new(key.as_bytes()), 1, |a, b| a + b)
                .expect("room");
        }
        pod.declare_dead(0);
        pod.recoverers
            .recover_all(&pod.act_as(3))
            .expect("it can be");
        drop(pod.join(0));
    });
    let scenario = scenario.mortal("w0", move |m| count(m, 0, way));
    let scenario = match way {
        Way::Sound => scenario
            .mortal("w1", |m| count(m, 1, Way::Sound))
            .mortal("w2", |m| count(m, 2, Way::Sound)),
        _ => scenario,
    };
    scenario.check(|m, _| assert_counted(m))
}
