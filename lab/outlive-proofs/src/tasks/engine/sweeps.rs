//! Tasks, killed at every instruction, for `outlive-lab prove kill`.
//!
//! A pod with a heap and four slots. The victim is number 0; 1 and 2 continue; 3 has prepared the
//! memory, and has died in some of the cases. Wherever the victim dies, the survivors find all
//! tasks, run each once more only if a dead worker was at it, and in the end nothing has leaked.

use super::fixture::{
    INNER, KEYS, SLOTS, World, bytes, publish_children, spawn_children, steal_and_note,
};
use outlive::heap::LocalHeap;
use outlive::memory::{Memory, Ordering};
use outlive_prove::kill::{Crash, Marked, Suite, Sweep};
use outlive_tasks::engine::deque::{GrowPoint, PopPoint, PushPoint, StealPoint};
use outlive_tasks::engine::supply::{AdoptPoint, ChunkPoint};
use outlive_tasks::engine::{
    ClaimPoint, CommitPoint, Engine, FailPoint, Running, SpawnPoint, TakePoint,
};

/// Adds the sweeps of this file.
pub fn add_to(suite: &mut Suite) {
    for case in Case::SOUND {
        suite.add(Tasks(case));
    }
    suite
        .declare::<PushPoint>()
        .declare::<PopPoint>()
        .declare::<StealPoint>()
        .declare::<GrowPoint>()
        .declare::<ChunkPoint>()
        .declare::<AdoptPoint>()
        .declare::<SpawnPoint>()
        .declare::<TakePoint>()
        .declare::<CommitPoint>()
        .declare::<FailPoint>()
        .declare::<ClaimPoint>();
}

/// Returns the broken variants. They must fail, each with a part of the expected message.
pub fn broken() -> Vec<(Box<dyn Sweep>, &'static str)> {
    [
        (Case::StealForgetsTheSlot, "was not run"),
        (Case::PublishesChildrenFirst, "is Ready"),
        (Case::PublishesOutputsFirst, "is bound to another attempt"),
        (Case::LeavesToNobody, "was not run"),
    ]
    .map(|(case, message)| -> (Box<dyn Sweep>, _) { (Box::new(Tasks(case)), message) })
    .into()
}

crate::cases! {
    /// The operation of the victim.
    enum Case {
        /// Claims a slot, runs a root, spawns, commits, pops, and gives the slot up.
        Works,
        /// Claims a slot that was never used.
        ClaimsFirst,
        /// The same as the first, but the deque and the chunks have to grow, and arguments are
        /// long; then ends a phase.
        Grows,
        /// Steals from a live worker.
        Steals,
        /// Finds tasks of a dead worker: in its deque, and the one that it ran.
        TakesOver,
        /// Takes over a dead worker's commit, before its first child.
        TakesCommitOver,
        /// The same after the first child of two.
        TakesHalfACommitOver,
        /// Takes over a failure that was not reported.
        TakesFailureOver,
        /// Claims the slot of a dead worker that had spawned children and not committed them.
        ClaimsTheSpawned,
        /// Claims the slot of a worker that died in a pop, with a chunk on its way.
        ClaimsInAPop,
        /// Claims the slot of a worker that died in a commit.
        ClaimsInACommit,
        /// Runs its task again, then fails it.
        Fails,
        /// Leaves its task, which has spawned others, to any worker.
        LeavesToOthers,
    }
    broken {
        /// A steal is noted afterwards.
        StealForgetsTheSlot,
        /// The children are pushed, then the task is committed.
        PublishesChildrenFirst,
        /// The output is bound, then the task is committed.
        PublishesOutputsFirst,
        /// The note of the task that is left is cleared.
        LeavesToNobody,
    }
}

impl Case {
    /// Returns the key of the root.
    fn root(self) -> u8 {
        match self {
            Self::Works
            | Self::ClaimsFirst
            | Self::Steals
            | Self::Fails
            | Self::TakesFailureOver
            | Self::ClaimsInAPop
            | Self::LeavesToOthers
            | Self::LeavesToNobody
            | Self::StealForgetsTheSlot => 2,
            Self::PublishesChildrenFirst | Self::PublishesOutputsFirst => 3,
            _ => 1,
        }
    }

    /// Returns whether number 3 has run the root, and its runs are not counted.
    fn is_begun(self) -> bool {
        !matches!(
            self,
            Self::Works
                | Self::ClaimsFirst
                | Self::Grows
                | Self::Fails
                | Self::LeavesToOthers
                | Self::LeavesToNobody
                | Self::PublishesChildrenFirst
                | Self::PublishesOutputsFirst
        )
    }

    /// Returns the slot that the victim claims.
    fn slot(self) -> u32 {
        match self {
            Self::ClaimsTheSpawned | Self::ClaimsInAPop | Self::ClaimsInACommit => 3,
            _ => 0,
        }
    }

    fn has_long_arguments(self) -> bool {
        matches!(self, Self::Grows | Self::ClaimsTheSpawned | Self::Fails)
    }

    /// Returns the number of slabs of the heap: all of it is checked after every instruction.
    fn slabs(self) -> u64 {
        match self {
            Self::Grows => 10,
            _ if self.has_long_arguments() => 6,
            _ => 5,
        }
    }

    /// Returns whether the victim leaves its first task to others.
    fn leaves(self) -> bool {
        matches!(self, Self::LeavesToOthers | Self::LeavesToNobody)
    }

    /// Returns whether the root fails in every run.
    fn fails(self) -> bool {
        matches!(self, Self::Fails | Self::TakesFailureOver)
    }

    /// Returns the keys of the runs that are counted.
    fn keys(self) -> Vec<u64> {
        let root = u64::from(self.root());
        let mut keys = if self == Self::TakesFailureOver {
            vec![]
        } else {
            vec![root]
        };
        if self.fails() {
            return keys;
        }
        let mut index = 0;
        while index < keys.len() {
            let key = keys[index];
            if key < INNER {
                keys.extend([2 * key, 2 * key + 1]);
            }
            index += 1;
        }
        if self == Self::ClaimsInAPop {
            keys.retain(|key| *key == 5);
        } else if self.is_begun() {
            keys.remove(0);
        }
        keys
    }

    /// Prepares the memory as number 3.
    fn prepare(self, memory: Marked) {
        let smallest = if self == Self::Grows { 1 } else { 3 };
        let world = match self {
            Self::ClaimsFirst => World::create_bare(memory, self.slabs(), smallest),
            _ => World::create(memory, self.slabs(), smallest),
        };
        let member = world.act_as(3);
        let local = world.local(&member);
        world.prepare_root(&local, 0, self.root());
        if !self.is_begun() {
            return;
        }
        let mut engine = world.claim(&local, 3).expect("a slot");
        let mut tree = world.tree();
        let run = engine.start(world.root(0)).expect("the operation succeeds");
        let mut run = run.expect("no other worker runs it");
        if self == Self::TakesFailureOver {
            spawn_children(&mut engine, &mut run, true).expect("room");
            tree.fails = 0;
            let failed = engine.fail(&mut run, &mut tree);
            assert!(failed.is_err() && run.is_spent());
            world.die(3);
            return;
        }
        spawn_children(&mut engine, &mut run, false).expect("room");
        match self {
            Self::TakesCommitOver => tree.fails = 1,
            Self::TakesHalfACommitOver | Self::ClaimsInACommit => tree.fails = 2,
            _ => {}
        }
        let done = engine.complete(&mut run, &mut tree);
        assert_eq!(done.is_err(), tree.fails < 2);
        match self {
            Self::TakesOver | Self::ClaimsTheSpawned => {
                let next = engine.next(&mut tree).expect("the operation succeeds");
                let mut next = next.expect("a child");
                spawn_children(&mut engine, &mut next, true).expect("room");
            }
            Self::ClaimsInAPop => {
                // As an unfinished pop does.
                let slot = engine.slot();
                let bottom: u64 = memory.load(slot.bottom_at(), Ordering::Relaxed);
                let first = engine
                    .next(&mut tree)
                    .expect("the operation succeeds")
                    .expect(
                        "a \
                                                                                            child",
                    );
                let mut first = first;
                engine
                    .complete(&mut first, &mut tree)
                    .expect("the operation succeeds");
                let second = engine
                    .next(&mut tree)
                    .expect("the operation succeeds")
                    .expect("a child");
                let task = second.task();
                // The last one is noted and ready, and has left the deque: the top is raised, and
                // the bottom not repaired.
                let ready = second.status().with(outlive_tasks::State::Ready);
                memory.store(task.offset(), ready.to_word(), Ordering::Relaxed);
                memory.store(slot.bottom_at(), bottom - 2, Ordering::Relaxed);
                local
                    .allocate_into(512, slot.fresh_at())
                    .expect("there is free space");
            }
            _ => {}
        }
        drop(local);
        if !matches!(self, Self::Steals | Self::StealForgetsTheSlot) {
            world.die(3);
        }
    }

    fn run<M: Memory>(
        self,
        world: &World<M>,
        engine: &mut Engine<'_, M>,
        mut run: Running<M>,
        by_victim: bool,
    ) {
        let key = run.arguments().expect("the task has arguments")[0];
        world.count(key.into(), by_victim);
        let mut tree = world.tree();
        spawn_children(engine, &mut run, self.has_long_arguments()).expect("room");
        if self == Self::Fails {
            if by_victim {
                assert!(engine.retry(&mut run).expect("the operation succeeds"));
                spawn_children(engine, &mut run, true).expect("room");
            }
            return engine
                .fail(&mut run, &mut tree)
                .expect("the operation succeeds");
        }
        if by_victim {
            match self {
                Self::PublishesChildrenFirst => publish_children(engine, &run),
                Self::PublishesOutputsFirst => tree.bind(key.into(), run.attempt()),
                _ => {}
            }
        }
        engine
            .complete(&mut run, &mut tree)
            .expect("the operation succeeds");
    }

    /// Acts as the owner of a slot until there is nothing to do.
    fn work<M: Memory>(
        self,
        world: &World<M>,
        local: &LocalHeap<'_, M>,
        number: u32,
        by_victim: bool,
    ) {
        let Some(mut engine) = world.claim(local, number) else {
            return;
        };
        loop {
            let next = match engine
                .next(&mut world.tree())
                .expect("the operation succeeds")
            {
                Some(run) => Some(run),
                None => engine.start(world.root(0)).expect("the operation succeeds"),
            };
            let Some(mut run) = next else { break };
            if by_victim && self.leaves() {
                let key = run.arguments().expect("the task has arguments")[0];
                world.count(key.into(), true);
                spawn_children(&mut engine, &mut run, false).expect("room");
                let slot = engine.slot();
                engine.leave_to_others(run).expect("the operation succeeds");
                if self == Self::LeavesToNobody {
                    // Like a slot that holds nothing.
                    slot.note(0);
                }
                return;
            }
            self.run(world, &mut engine, run, by_victim);
        }
        engine.end_of_phase().expect("the operation succeeds");
        engine.give_up().expect("nothing is held");
    }

    /// Acts as the victim of the broken steal.
    fn steal_wrongly<M: Memory>(self, world: &World<M>, local: &LocalHeap<'_, M>) {
        let mut engine = world.claim(local, 0).expect("a slot");
        while let Some(entry) = steal_and_note(world, 3, engine.slot()) {
            let run = engine.start_noted(entry).expect("the operation succeeds");
            self.run(
                world,
                &mut engine,
                run.expect("no other worker runs it"),
                true,
            );
        }
    }
}

struct Tasks(Case);

impl Sweep for Tasks {
    fn name(&self) -> String {
        format!("tasks {:?}", self.0)
    }

    fn size(&self) -> u64 {
        bytes(self.0.slabs())
    }

    /// Long arguments are copied into memory of the process's own; its allocator behaves
    /// differently each time.
    fn is_deterministic(&self) -> bool {
        !self.0.has_long_arguments() && self.0 != Case::TakesOver
    }

    fn prepare(&self, memory: Marked) {
        self.0.prepare(memory);
    }

    fn operate(&self, memory: Marked) {
        let world = World::open(memory);
        let victim = world.act_as(0);
        let local = world.local(&victim);
        match self.0 {
            Case::StealForgetsTheSlot => self.0.steal_wrongly(&world, &local),
            case => case.work(&world, &local, case.slot(), true),
        }
    }

    fn recover(&self, memory: Marked, crash: &Crash) {
        let world = World::open(memory);
        for id in 0..=crash.recoverers_lost {
            world.die(id);
        }
        let number = 1 + crash.recoverers_lost;
        let survivor = world.act_as(number);
        let local = world.local(&survivor);
        // From a slot of its own, then as the next owner of each other.
        for slot in (0..SLOTS).map(|slot| (slot + number) % SLOTS) {
            self.0.work(&world, &local, slot, false);
        }
        world.recoverers.recover_all(&survivor).unwrap();
    }

    fn check(&self, memory: Marked, crash: &Crash) -> Result<(), String> {
        let world = World::open(memory);
        let case = self.0;
        let keys = case.keys();
        let lost = u64::from(crash.recoverers_lost);
        let mut again = 0;
        for key in 0..KEYS {
            let (victim, others) = world.runs(key);
            let runs = victim + others;
            if !keys.contains(&key) {
                if runs > 0 {
                    return Err(format!("key {key} was run, and was never spawned"));
                }
                continue;
            }
            if runs == 0 {
                return Err(format!("key {key} was not run"));
            }
            let done = crash.returned && !case.leaves();
            if victim > 1 || others > 1 + lost || done && others > 0 {
                return Err(format!(
                    "key {key} was run {victim} times by the victim and {others} times by others"
                ));
            }
            again += runs - 1;
            let bound = world.bound(key) != 0;
            if bound != (key % 2 == 1 && !case.fails()) {
                return Err(format!("key {key} is bound: {bound}"));
            }
        }
        // Each dead worker was at one task.
        if again > 1 + lost {
            return Err(format!("{again} tasks were run again"));
        }
        if case.fails() && !world.failed(2) {
            return Err("the failure was not reported".into());
        }
        world.demand_sound()
    }
}
