//! The fixture of the proofs of counting: a pod of four ids with worker slots, a table for each
//! slot, and tasks that count a text of a few units.

use crate::pod::{DATA, HeapPod, SIZE};
use outlive::heap::LocalHeap;
use outlive::heap::buddy::Buddy;
use outlive::membership::Member;
use outlive::memory::{Memory, Offset, Ordering};
use outlive_programs::key::Key;
use outlive_programs::mapreduce::results::Results;
use outlive_programs::table::{Place, Table, blocks_of};
use outlive_run::blocks::Blocks;
use outlive_tasks::{Engine, EngineError, Running, Settings, Slots, Spec, State, Task};
use std::collections::BTreeMap;

/// The text to count: the keys of each unit.
pub(crate) type Text = &'static [&'static [&'static str]];

/// The number of slots; the last one is for the thread that prepares and checks.
pub(crate) const SLOTS: u32 = 4;
const RESULTS: Offset = DATA;
const ROOT: Offset = Offset::new(DATA.raw() + 512);
const TABLES: Offset = Offset::new(DATA.raw() + 1024);
const SLOTS_AT: Offset = Offset::new(SIZE);
const STATE: Offset = Offset::new(SIZE + 4096);
const REGION: Offset = Offset::new(STATE.raw() + (12 << 10));
/// Space for the slots: an array each, and a chunk of descriptors.
const REGION_BYTES: u64 = 3 * (32 << 10);
const METADATA: Offset = Offset::new(REGION.raw() + REGION_BYTES);
/// Space for the tables.
const BLOCKS: Offset = Offset::new(METADATA.raw() + 4096);
const BLOCKS_BYTES: u64 = 8192;
/// The size of the memory.
pub(crate) const BYTES: u64 = BLOCKS.raw() + BLOCKS_BYTES;
/// The logarithm of the size of a new table: the smallest possible.
const SMALLEST: u32 = 2;

/// The sound algorithm, or a broken variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Sound,
    /// Broken: an attempt gets the number of an abandoned one.
    ReusesAnAttempt,
    /// Broken: the number of the attempt is not stored.
    ForgetsTheAttempt,
    /// Broken: the counts of an abandoned attempt are taken for committed.
    TrustsTheDead,
    /// Broken: the result is committed, then the unit is counted.
    CommitsFirst,
    /// Broken: the task is completed, then the result is committed.
    CompletesFirst,
}

/// The error of a unit.
type Wrong = Box<dyn core::error::Error>;

/// A pod, its heap, its slots, and the text to count.
pub(crate) struct World<M: Memory> {
    ground: HeapPod<M>,
    blocks: Buddy<M>,
    pub(crate) slots: Slots<M>,
    text: Text,
}

impl<M: Memory> core::ops::Deref for World<M> {
    type Target = HeapPod<M>;
    fn deref(&self) -> &HeapPod<M> {
        &self.ground
    }
}

impl<M: Memory> World<M> {
    /// Creates the world in zeroed memory: all have joined, and slot 0, which has no owner, has a
    /// task for each unit.
    pub(crate) fn create(memory: M, text: Text) -> Self {
        let ground = HeapPod::create(memory, STATE, REGION, REGION_BYTES);
        Buddy::create(memory, METADATA, BLOCKS, BLOCKS_BYTES, 64).expect("a heap");
        let settings = Settings {
            capacity: SLOTS,
            chunk: 1024,
            smallest: 3,
        };
        let slots = Slots::create(memory, SLOTS_AT, settings).expect("slots");
        ground.join_all();
        let world = Self::with(ground, slots, text);
        world.spread();
        world
    }

    /// Opens a world that has been created.
    pub(crate) fn open(memory: M, text: Text) -> Self {
        let slots = Slots::open(memory, SLOTS_AT).expect("slots");
        Self::with(HeapPod::open(memory, STATE), slots, text)
    }

    fn with(ground: HeapPod<M>, slots: Slots<M>, text: Text) -> Self {
        Self {
            blocks: Buddy::open(ground.memory, METADATA).expect("a heap"),
            ground,
            slots,
            text,
        }
    }

    /// Lets number 3 use all slots, so that each has an array, and run a root that spawns the
    /// tasks.
    fn spread(&self) {
        let member = self.act_as(3);
        let local = self.local(&member);
        for number in (0..SLOTS).rev() {
            let mut engine = self.claim(&local, number).expect("a slot");
            if number == 0 {
                let root = Task::new(self.memory, ROOT);
                let spec = Spec::new(0, &[u8::MAX]);
                root.prepare_root(&local, &spec, State::Ready)
                    .expect("the operation succeeds");
                let run = engine.start(root).expect("the operation succeeds");
                let mut run = run.expect("no other worker runs it");
                for unit in (0..self.text.len() as u8).rev() {
                    engine
                        .spawn(&mut run, &Spec::new(0, &[unit]))
                        .expect("room");
                }
                engine
                    .complete(&mut run, &mut ())
                    .expect("the operation succeeds");
            }
            engine.give_up().expect("nothing is held");
        }
    }

    /// Returns the engine of slot `number`, if it is available.
    pub(crate) fn claim<'w>(
        &'w self,
        local: &'w LocalHeap<'w, M>,
        number: u32,
    ) -> Option<Engine<'w, M>> {
        let claimed =
            Engine::claim_slot::<()>(self.slots, number, local, &self.recoverers, &mut ());
        claimed.expect("the slot can be claimed")
    }

    pub(crate) fn results(&self) -> Results<M> {
        Results::new(self.memory, RESULTS, self.text.len() as u64)
    }

    /// Returns the table of a slot.
    pub(crate) fn table(&self, number: u32) -> Place<M> {
        Place {
            memory: self.memory,
            header: TABLES + u64::from(number) * Table::<M>::HEADER,
            number,
            results: self.results(),
            seed: 5,
        }
    }

    pub(crate) fn blocks<'m>(&'m self, member: &'m Member<M>) -> Blocks<'m, M> {
        Blocks {
            buddy: self.blocks,
            member,
            recoverers: &self.recoverers,
        }
    }

    /// Counts `keys` for `unit` in the table of slot `number`, without committing it.
    pub(crate) fn attempt(&self, member: &Member<M>, number: u32, unit: u64, keys: &[&str]) {
        let attempt = self.attempt_as(member, number, unit, keys, Way::Sound);
        attempt.expect("there is free space");
    }

    fn attempt_as(
        &self,
        member: &Member<M>,
        number: u32,
        unit: u64,
        keys: &[&str],
        way: Way,
    ) -> Result<u64, Wrong> {
        let place = self.table(number);
        let note = |stamp: u64| {
            let at = place.attempt_at();
            self.memory.store(at, stamp, Ordering::Relaxed);
        };
        let add = |table: &mut Table<'_, M>| {
            match way {
                Way::ReusesAnAttempt => {
                    let attempt = place.attempts().saturating_sub(1).max(1);
                    table.now = table.now >> 32 << 32 | u64::from(attempt);
                    note(table.now);
                }
                Way::ForgetsTheAttempt => note(0),
                Way::TrustsTheDead => table.since = 0,
                Way::CommitsFirst => assert!(self.results().commit(unit, table.result())),
                Way::Sound | Way::CompletesFirst => {}
            }
            for key in keys {
                table.add(Key::new(key.as_bytes()), 1, |a, b| a + b)?;
            }
            Ok::<(), Wrong>(())
        };
        place.attempt(self.blocks(member), SMALLEST, unit, add)
    }

    /// Does `unit` as the holder of its task, in slot `number`.
    fn do_unit(&self, member: &Member<M>, number: u32, unit: u64, way: Way) {
        let attempt = || self.attempt_as(member, number, unit, self.text[unit as usize], way);
        match way {
            Way::CommitsFirst if self.results().result(unit) == 0 => attempt().map(drop),
            Way::CommitsFirst => Ok(()),
            _ => self.results().once(unit, attempt).map(drop),
        }
        .expect("the operation succeeds");
    }

    /// Acts as the owner of slot `number`, if it is available, and runs at most `most` tasks.
    pub(crate) fn work(&self, local: &LocalHeap<'_, M>, number: u32, most: usize, way: Way) {
        let Some(mut engine) = self.claim(local, number) else {
            return;
        };
        for _ in 0..most {
            let Some(mut run) = self.next(&mut engine) else {
                break;
            };
            let unit = unit_of(&run);
            if way == Way::CompletesFirst {
                engine
                    .complete(&mut run, &mut ())
                    .expect("the operation succeeds");
            }
            self.do_unit(local.member(), number, unit, way);
            if way != Way::CompletesFirst {
                engine
                    .complete(&mut run, &mut ())
                    .expect("the operation succeeds");
            }
        }
        engine.give_up().expect("nothing is held");
    }

    pub(crate) fn next(&self, engine: &mut Engine<'_, M>) -> Option<Running<M>> {
        engine.next(&mut ()).expect("the operation succeeds")
    }

    /// Lets number 3 do one unit in slot 0, count a part of the next, and die. With `growth`, there
    /// is a block for its table to grow into.
    pub(crate) fn let_one_die(&self, growth: bool) {
        let member = self.act_as(3);
        let local = self.local(&member);
        let mut engine = self.claim(&local, 0).expect("a slot");
        let mut run = self.next(&mut engine).expect("a task");
        self.do_unit(&member, 0, unit_of(&run), Way::Sound);
        engine
            .complete(&mut run, &mut ())
            .expect("the operation succeeds");
        let run = self.next(&mut engine).expect("a task");
        // Includes a key that the unit does not have.
        self.attempt(&member, 0, unit_of(&run), &["a", "b", "x"]);
        if growth {
            let cell = self.table(0).next_at();
            self.blocks(&member)
                .allocate_into(512, cell)
                .expect("there is free space");
        }
        assert!(!run.is_spent());
        self.die(3);
    }

    /// Does the remaining work as `id`, in all slots, and recovers all dead members.
    pub(crate) fn finish(&self, id: u32) {
        let survivor = self.act_as(id);
        let local = self.local(&survivor);
        // From a slot of its own, then as the next owner of each other; twice, for the slot of a
        // member that died after it had taken over from another.
        for slot in (0..2 * SLOTS).map(|slot| (slot + id) % SLOTS) {
            self.work(&local, slot, usize::MAX, Way::Sound);
        }
        drop(local);
        let recovered = self.recoverers.recover_all(&survivor);
        recovered.expect("the recovery succeeds");
    }

    /// Checks that the totals are those of the text, that nothing is left to be done, of dead
    /// members or otherwise, and that nothing has leaked.
    pub(crate) fn demand_counted(&self) -> Result<(), String> {
        let mut totals: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        for number in 0..SLOTS {
            for part in 0..4 {
                self.table(number).each_in(part, 2, |_, key, total| {
                    *totals.entry(key.to_vec()).or_default() += total;
                });
            }
        }
        let mut expected: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        for key in self.text.concat() {
            *expected.entry(key.as_bytes().to_vec()).or_default() += 1;
        }
        if totals != expected {
            let shown: Vec<_> = totals
                .iter()
                .map(|(key, total)| (String::from_utf8_lossy(key), total))
                .collect();
            return Err(format!("counted {shown:?}"));
        }
        let text = |error: EngineError| error.to_string();
        if !self.slots.is_quiet().map_err(text)? {
            return Err("some work is left".into());
        }
        for (task, status) in self.slots.tasks().map_err(text)? {
            if !status.state().is_over() {
                return Err(format!("the task at {} is {status:?}", task.offset()));
            }
        }
        let held = (0..SLOTS).flat_map(|number| blocks_of(self.table(number)));
        let report = self.blocks.check_reachable(held.collect::<Vec<_>>());
        if !report.is_clean() {
            return Err(report.to_string());
        }
        self.ground.demand_sound(self.slots.blocks().map_err(text)?)
    }
}

/// Returns the unit of a task.
fn unit_of<M: Memory>(run: &Running<M>) -> u64 {
    run.arguments().expect("the task has arguments")[0].into()
}
