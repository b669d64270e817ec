//! Counting, killed at every instruction: what `outlive prove kill` runs of this crate.
//!
//! A small pod with a victim and two survivors. The victim asks for units, counts them into its table,
//! which grows, and commits. Whenever it dies, a survivor goes on, as another worker with a
//! table of its own, until all is done, and the totals must be those of the text.

use crate::key::Key;
use crate::table::{Blocks, CountPoint, GrowPoint, Place, Table, blocks_of};
use crate::work_list::{CommitPoint, NextPoint, SharedList, Units, WorkList};
use outlive::heap::{self, buddy::Buddy};
use outlive::membership::{Generations, Instance, Level, Member, State, Status};
use outlive::memory::{Memory, Offset, Ordering};
use outlive::recovery::{Logs, OwnLog, Recoverers};
use outlive::sync;
use outlive_prove::kill::{Crash, Marked, Suite, Sweep};
use std::collections::BTreeMap;

/// What is to be counted. The key in the middle is too long for an entry, and the table is to grow twice.
const TEXT: [&[&str]; 4] = [
    &["a", "b", "a"],
    &["b", "a", LONG, "c"],
    &["d", LONG, "e", "a", ALSO_LONG],
    &["a", "f", "b"],
];
const LONG: &str = "a key of more than twenty-four bytes";
const ALSO_LONG: &str = "another key of more than twenty-four bytes, and of more than sixty-four";

const IDS: u32 = 4;
const TABLES: Offset = Offset::new(512);
const CALLED_OFF: Offset = Offset::new(1536);
const LIST: Offset = Offset::new(2048);
const LOGS: Offset = Offset::new(4096);
const METADATA: Offset = Offset::new(4096 + 0x2000 * IDS as u64);
const REGION: Offset = Offset::new(METADATA.raw() + 4096);
const BYTES: u64 = 8192;
const SIZE: u64 = REGION.raw() + BYTES;
/// The logarithm of the size of a new table: as small as there is.
const SMALLEST: u32 = 2;

/// Adds the sweeps of this file.
pub fn add_to(suite: &mut Suite) {
    for case in [Case::First, Case::AfterADeath, Case::AfterAGrowth] {
        suite.add(Counting(case));
    }
    suite.declare::<NextPoint>().declare::<CommitPoint>();
    suite.declare::<CountPoint>().declare::<GrowPoint>();
}

/// Ways to get it wrong: they must fail, each with a part of what must be said.
pub fn broken() -> Vec<(Box<dyn Sweep>, &'static str)> {
    [Case::ReusesAnAttempt, Case::CommitsFirst, Case::ForgetsTheAttempt]
        .map(|case| -> (Box<dyn Sweep>, _) { (Box::new(Counting(case)), "counted") })
        .into()
}

/// What the victim, worker 0, finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    /// Nothing: it is the first.
    First,
    /// Its predecessor has committed one unit and died in the next.
    AfterADeath,
    /// Its predecessor died while its table grew.
    AfterAGrowth,
    /// Broken: an attempt gets the number of an abandoned one.
    ReusesAnAttempt,
    /// Broken: the unit is committed, then counted.
    CommitsFirst,
    /// Broken: the number of the attempt is not written down.
    ForgetsTheAttempt,
}

struct Pod {
    memory: Marked,
    generations: Generations<Marked>,
    logs: Logs<Marked>,
    recoverers: Recoverers<Marked>,
}

impl Pod {
    fn new(memory: Marked) -> Self {
        let logs = Logs::new(memory, LOGS, IDS);
        Self {
            memory,
            generations: Generations::new(memory, Offset::new(64), IDS),
            logs,
            recoverers: heap::recoverers(sync::recoverers(logs)),
        }
    }

    fn act_as(&self, id: u32) -> Member<Marked> {
        let instance = Instance::new(id, self.generations.current(id));
        // SAFETY: one process at a time acts as an instance, and declares it dead when it has stopped.
        unsafe {
            Member::assume(
                self.memory,
                self.generations,
                instance,
                self.logs.at(id),
                None,
            )
        }
    }

    fn join(&self, id: u32) -> Member<Marked> {
        let before = self.generations.state(id).expect("a state");
        let live = State {
            generation: before.generation + 1,
            host: 0,
            level: Some(Level::Thread),
            status: Status::Live,
        };
        assert!(self.generations.transition(id, before, live));
        let member = self.act_as(id);
        OwnLog::open(&member).expect("a settled log");
        member
    }

    fn declare_dead(&self, id: u32) {
        let live = self.generations.state(id).expect("a state");
        let dead = State {
            generation: live.generation + 1,
            status: Status::Dead,
            ..live
        };
        assert!(self.generations.transition(id, live, dead));
    }

    fn units(&self) -> Units<Marked> {
        Units::new(self.memory, LIST, TEXT.len() as u64)
    }

    fn table(&self, number: u32) -> Place<Marked> {
        Place {
            memory: self.memory,
            header: TABLES + u64::from(number) * Table::<Marked>::HEADER,
            number,
            units: self.units(),
            seed: 5,
        }
    }

    fn list<'p>(&'p self, member: &'p Member<Marked>) -> SharedList<'p, Marked> {
        SharedList::new(self.units(), member, &self.recoverers, CALLED_OFF)
    }

    fn blocks<'p>(&'p self, member: &'p Member<Marked>) -> Blocks<'p, Marked> {
        Blocks {
            buddy: Buddy::open(self.memory, METADATA).expect("a heap"),
            member,
            recoverers: &self.recoverers,
        }
    }

    /// Works as worker `number`, at most on `most` units.
    fn work(&self, member: &Member<Marked>, number: u32, most: usize, case: Case) {
        let mut list = self.list(member);
        let mut table: Option<Table<'_, Marked>> = None;
        for _ in 0..most {
            let Some(unit) = list.next().expect("a recovery") else {
                return;
            };
            let place = self.table(number);
            let table = match &mut table {
                Some(table) => table,
                none => none.insert(
                    Table::open(place, self.blocks(member), SMALLEST).expect("there is room"),
                ),
            };
            if case == Case::ReusesAnAttempt {
                table.begin_again(unit);
            } else {
                table.begin(unit);
            }
            if case == Case::ForgetsTheAttempt {
                // As if it had never been written down.
                self.memory.store(place.header + 48, 0u64, Ordering::Relaxed);
            }
            if case == Case::CommitsFirst {
                assert!(list.commit(unit, table.result()));
            }
            for key in TEXT[unit as usize] {
                let key = Key::new(key.as_bytes());
                table.add(key, 1, |a, b| a + b).expect("there is room");
            }
            if case != Case::CommitsFirst {
                assert!(list.commit(unit, table.result()));
            }
        }
    }
}

/// Number 0 is the victim; 1 and 2 recover; 3 prepares the memory.
struct Counting(Case);

impl Sweep for Counting {
    fn name(&self) -> String {
        format!("wordcount {:?}", self.0)
    }

    fn size(&self) -> u64 {
        SIZE.next_multiple_of(4096)
    }

    fn prepare(&self, memory: Marked) {
        let pod = Pod::new(memory);
        (0..IDS).for_each(|id| drop(pod.join(id)));
        Buddy::create(memory, METADATA, REGION, BYTES, 64).expect("a heap");
        if self.0 == Case::First {
            return;
        }
        let first = pod.act_as(0);
        pod.work(&first, 0, 1, Case::First);
        let mut list = pod.list(&first);
        let unit = list.next().unwrap().unwrap();
        let mut table = Table::open(pod.table(0), pod.blocks(&first), SMALLEST).unwrap();
        table.begin(unit);
        for key in ["a", "b", "x"] {
            table
                .add(Key::new(key.as_bytes()), 1, |a, b| a + b)
                .unwrap();
        }
        if self.0 == Case::AfterAGrowth {
            let cell = pod.table(0).header + 24;
            pod.blocks(&first).allocate_into(512, cell).unwrap();
        }
        pod.declare_dead(0);
        let last = pod.act_as(3);
        pod.recoverers.recover_all(&last).unwrap();
        drop(pod.join(0));
    }

    fn operate(&self, memory: Marked) {
        let pod = Pod::new(memory);
        pod.work(&pod.act_as(0), 0, 2, self.0);
    }

    fn recover(&self, memory: Marked, crash: &Crash) {
        let pod = Pod::new(memory);
        for id in 0..=crash.recoverers_lost {
            if pod
                .generations
                .state(id)
                .expect("a state")
                .status
                .may_write()
            {
                pod.declare_dead(id);
            }
        }
        let number = 1 + crash.recoverers_lost;
        let survivor = pod.act_as(number);
        pod.work(&survivor, number, TEXT.len(), Case::First);
        pod.recoverers.recover_all(&survivor).unwrap();
    }

    fn check(&self, memory: Marked, _crash: &Crash) -> Result<(), String> {
        let pod = Pod::new(memory);
        let mut totals = BTreeMap::new();
        for number in 0..3 {
            for part in 0..4 {
                pod.table(number).each_in(part, 2, |_, key, total| {
                    *totals.entry(key.to_vec()).or_default() += total;
                });
            }
        }
        let mut expected: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        for key in TEXT.concat() {
            *expected.entry(key.as_bytes().to_vec()).or_default() += 1;
        }
        if totals != expected {
            let shown: Vec<_> = totals
                .iter()
                .map(|(key, total)| (String::from_utf8_lossy(key), total))
                .collect();
            return Err(format!("counted {shown:?}"));
        }
        let heap = Buddy::open(memory, METADATA).map_err(|error| error.to_string())?;
        let held = (0..3).flat_map(|number| blocks_of(pod.table(number)));
        let report = heap.check_reachable(held.collect::<Vec<_>>());
        if !report.is_clean() {
            return Err(report.to_string());
        }
        for id in 0..IDS {
            let status = pod.generations.state(id).map_err(|word| word.to_string())?;
            if status.status == Status::Dead {
                return Err(format!("id {id} is not recovered"));
            }
        }
        Ok(())
    }
}
