//! The small world of this crate's proofs: a pod of four ids with worker slots, a table for each of these, and tasks that count
//! a text of a few units.

use crate::key::Key;
use crate::mapreduce::results::Results;
use crate::table::{Blocks, Place, Table, blocks_of};
use outlive::heap::{self, Heap, LocalHeap, buddy::Buddy};
use outlive::membership::{Member, Status};
use outlive::memory::{Memory, Offset};
use outlive::sync;
use outlive_prove::fixtures::pod::{DATA, Pod, SIZE};
use outlive_tasks::{Engine, EngineError, Running, Settings, Slots, Spec, State, Task};
use std::collections::BTreeMap;

/// What is to be counted: the keys of each unit.
pub(crate) type Text = &'static [&'static [&'static str]];

/// How many slots there are; the last one is for whoever prepares and looks.
pub(crate) const SLOTS: u32 = 4;
const RESULTS: Offset = DATA;
const ROOT: Offset = Offset::new(DATA.raw() + 512);
const TABLES: Offset = Offset::new(DATA.raw() + 1024);
const SLOTS_AT: Offset = Offset::new(SIZE);
const STATE: Offset = Offset::new(SIZE + 4096);
const REGION: Offset = Offset::new(STATE.raw() + (12 << 10));
/// What the slots need: an array each, and a chunk of descriptors.
const REGION_BYTES: u64 = 3 * (32 << 10);
const METADATA: Offset = Offset::new(REGION.raw() + REGION_BYTES);
/// What the tables need.
const BLOCKS: Offset = Offset::new(METADATA.raw() + 4096);
const BLOCKS_BYTES: u64 = 8192;
/// All of it.
pub(crate) const BYTES: u64 = BLOCKS.raw() + BLOCKS_BYTES;
/// The logarithm of the size of a new table: as small as there is.
const SMALLEST: u32 = 2;

/// How it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Sound,
    /// Broken: an attempt gets the number of an abandoned one.
    ReusesAnAttempt,
    /// Broken: the number of the attempt is not written down.
    ForgetsTheAttempt,
    /// Broken: what an abandoned attempt has left is taken for committed.
    TrustsTheDead,
    /// Broken: the result is there, then the unit is counted.
    CommitsFirst,
    /// Broken: the task is done, then the result is there.
    CompletesFirst,
}

/// What goes wrong with a unit.
type Wrong = Box<dyn core::error::Error>;

/// A pod, its heap, its slots, and what is counted.
pub(crate) struct World<M: Memory> {
    pub(crate) pod: Pod<M>,
    heap: Heap<M>,
    blocks: Buddy<M>,
    pub(crate) slots: Slots<M>,
    text: Text,
}

impl<M: Memory> core::ops::Deref for World<M> {
    type Target = Pod<M>;
    fn deref(&self) -> &Pod<M> {
        &self.pod
    }
}

impl<M: Memory> World<M> {
    /// In a memory of zeros: all have joined, and slot 0, which nobody owns, has a task for each unit.
    pub(crate) fn create(memory: M, text: Text) -> Self {
        let heap = Heap::create(memory, STATE, REGION, REGION_BYTES).expect("a heap");
        Buddy::create(memory, METADATA, BLOCKS, BLOCKS_BYTES, 64).expect("a heap");
        let settings = Settings {
            capacity: SLOTS,
            chunk: 1024,
            smallest: 3,
        };
        let slots = Slots::create(memory, SLOTS_AT, settings).expect("slots");
        let world = Self::with(memory, heap, slots, text);
        (0..4).for_each(|id| drop(world.join(id)));
        world.spread();
        world
    }

    /// The same once it has been created.
    pub(crate) fn open(memory: M, text: Text) -> Self {
        let heap = Heap::open(memory, STATE).expect("a heap");
        let slots = Slots::open(memory, SLOTS_AT).expect("slots");
        Self::with(memory, heap, slots, text)
    }

    fn with(memory: M, heap: Heap<M>, slots: Slots<M>, text: Text) -> Self {
        let mut pod = Pod::new(memory);
        pod.recoverers = heap::recoverers_of(heap::recoverers(sync::recoverers(pod.logs)), heap);
        Self {
            pod,
            heap,
            blocks: Buddy::open(memory, METADATA).expect("a heap"),
            slots,
            text,
        }
    }

    /// Number 3 has been in all slots, so that each has an array, and has run a root that spawned the units' tasks.
    fn spread(&self) {
        let member = self.act_as(3);
        let local = self.local(&member);
        for number in (0..SLOTS).rev() {
            let mut engine = self.claim(&local, number).expect("a slot");
            if number == 0 {
                let root = Task::new(self.memory, ROOT);
                let spec = Spec::new(0, &[u8::MAX]);
                root.prepare_root(&local, &spec, State::Ready)
                    .expect("it can be");
                let run = engine.start(root).expect("it can be");
                let mut run = run.expect("nobody else runs it");
                for unit in (0..self.text.len() as u8).rev() {
                    engine
                        .spawn(&mut run, &Spec::new(0, &[unit]))
                        .expect("room");
                }
                engine.complete(&mut run, &mut ()).expect("it can be");
            }
            engine.give_up().expect("nothing is held");
        }
    }

    pub(crate) fn local<'m>(&'m self, member: &'m Member<M>) -> LocalHeap<'m, M> {
        LocalHeap::of(self.heap, member, &self.recoverers)
    }

    /// The engine of that slot, if it can be had.
    pub(crate) fn claim<'w>(
        &'w self,
        local: &'w LocalHeap<'w, M>,
        number: u32,
    ) -> Option<Engine<'w, M>> {
        let claimed =
            Engine::claim_slot::<()>(self.slots, number, local, &self.recoverers, &mut ());
        claimed.expect("it can be claimed")
    }

    pub(crate) fn results(&self) -> Results<M> {
        Results::new(self.memory, RESULTS, self.text.len() as u64)
    }

    /// The table of a slot.
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

    /// Counts `keys` for `unit` in the table of slot `number`, and does not commit it.
    pub(crate) fn attempt(&self, member: &Member<M>, number: u32, unit: u64, keys: &[&str]) {
        let attempt = self.attempt_as(member, number, unit, keys, Way::Sound);
        attempt.expect("there is room");
    }

    fn attempt_as(
        &self,
        member: &Member<M>,
        number: u32,
        unit: u64,
        keys: &[&str],
        way: Way,
    ) -> Result<u64, Wrong> {
        let add = |table: &mut Table<'_, M>| {
            match way {
                Way::ReusesAnAttempt => table.begin_again(),
                Way::ForgetsTheAttempt => table.forget(),
                Way::TrustsTheDead => table.trust(),
                Way::CommitsFirst => assert!(self.results().commit(unit, table.result())),
                Way::Sound | Way::CompletesFirst => {}
            }
            for key in keys {
                table.add(Key::new(key.as_bytes()), 1, |a, b| a + b)?;
            }
            Ok::<(), Wrong>(())
        };
        let place = self.table(number);
        place.attempt(self.blocks(member), SMALLEST, unit, add)
    }

    /// Does `unit` as whoever holds its task, in slot `number`.
    fn do_unit(&self, member: &Member<M>, number: u32, unit: u64, way: Way) {
        let attempt = || self.attempt_as(member, number, unit, self.text[unit as usize], way);
        match way {
            Way::CommitsFirst if self.results().result(unit) == 0 => attempt().map(drop),
            Way::CommitsFirst => Ok(()),
            _ => self.results().once(unit, attempt).map(drop),
        }
        .expect("it can be done");
    }

    /// What the owner of slot `number`, if it can be had, does: at most so many tasks.
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
                engine.complete(&mut run, &mut ()).expect("it can be");
            }
            self.do_unit(local.member(), number, unit, way);
            if way != Way::CompletesFirst {
                engine.complete(&mut run, &mut ()).expect("it can be");
            }
        }
        engine.give_up().expect("nothing is held");
    }

    pub(crate) fn next(&self, engine: &mut Engine<'_, M>) -> Option<Running<M>> {
        engine.next(&mut ()).expect("it can be")
    }

    /// Number 3 has done one unit in slot 0, had counted a part of the next, and died. With `growth`, there is a block for its
    /// table to grow into.
    pub(crate) fn let_one_die(&self, growth: bool) {
        let member = self.act_as(3);
        let local = self.local(&member);
        let mut engine = self.claim(&local, 0).expect("a slot");
        let mut run = self.next(&mut engine).expect("a task");
        self.do_unit(&member, 0, unit_of(&run), Way::Sound);
        engine.complete(&mut run, &mut ()).expect("it can be");
        let run = self.next(&mut engine).expect("a task");
        // Another key, too, than the unit has.
        self.attempt(&member, 0, unit_of(&run), &["a", "b", "x"]);
        if growth {
            let cell = self.table(0).next_at();
            self.blocks(&member)
                .allocate_into(512, cell)
                .expect("there is room");
        }
        assert!(!run.is_spent());
        self.die(3);
    }

    /// Whoever has joined and is asked for can no longer write.
    pub(crate) fn die(&self, id: u32) {
        if self.status(id).may_write() {
            self.declare_dead(id);
        }
    }

    /// What is left is done by `id`, in all slots; whoever is dead is recovered.
    pub(crate) fn finish(&self, id: u32) {
        let survivor = self.act_as(id);
        let local = self.local(&survivor);
        // From a slot of its own, then as the next owner of each other; twice, for one that somebody died in who had taken
        // over from another.
        for slot in (0..2 * SLOTS).map(|slot| (slot + id) % SLOTS) {
            self.work(&local, slot, usize::MAX, Way::Sound);
        }
        drop(local);
        let recovered = self.recoverers.recover_all(&survivor);
        recovered.expect("they can be");
    }

    /// The totals are those of the text, nothing is left to be done, of the dead or otherwise, and nothing has leaked.
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
            return Err("something is left to be done".into());
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
        let report = { self.heap }.check_reachable(self.slots.blocks().map_err(text)?);
        if !report.is_clean() {
            return Err(report.to_string());
        }
        for id in 0..4 {
            if self.status(id) == Status::Dead {
                return Err(format!("id {id} is not recovered"));
            }
        }
        Ok(())
    }
}

/// The unit that a task is about.
fn unit_of<M: Memory>(run: &Running<M>) -> u64 {
    run.arguments().expect("they are there")[0].into()
}
