//! Allocations, frees, servers and recoveries of a memory pool, killed after every instruction
//! together with their recoverers; and broken variants, which a sweep must find.

use super::small::{SIZE, SmallPool, frames, instance, owners, state, words};
use outlive::membership::Instance;
use outlive_memory::{Memory, Ordering};
use outlive_pool::internals::{AllocatePoint, FreePoint, Place, Run, ServerPoint, Use};
use outlive_pool::{Address, PoolError, ServerId};
use outlive_prove::kill::{Crash, Marked, Suite, Sweep};
use outlive_prove::weakened::{Weakened, Weakness};

/// Adds the sweeps of this file.
pub fn add_to(suite: &mut Suite) {
    for what in [
        What::Allocate,
        What::Keep,
        What::Fail,
        What::Free,
        What::Used,
        What::Server,
        What::Rejoin,
        What::Recover,
    ] {
        suite.add(Memories(what));
    }
    suite
        .declare::<AllocatePoint>()
        .declare::<FreePoint>()
        .declare::<ServerPoint>();
}

/// Returns the sweeps that must fail, each with a part of the expected message.
pub fn broken() -> Vec<(Box<dyn Sweep>, &'static str)> {
    [
        (What::NoClaim, "1 allocations have an owner"),
        (What::ForgetsRecoverers, "have entries"),
        (What::NamesNoFrame, "which does not name it"),
        (What::FreesWithoutOwner, "cannot be accessed"),
        (What::ClearsNoFrame, "is not zero"),
        (What::LosesNoServer, "has no owner, and is"),
        (What::KeepsUsed, "allocations have an owner"),
    ]
    .map(|(what, message)| -> (Box<dyn Sweep>, _) { (Box::new(Memories(what)), message) })
    .into_iter()
    .collect()
}

/// The operation that is cut short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// A client allocates three slices on two servers.
    Allocate,
    /// The same, and the allocation is kept.
    Keep,
    /// A client allocates more slices than a server has frames.
    Fail,
    /// A client frees an allocation that was kept.
    Free,
    /// The same, while a reader uses a slice of it.
    Used,
    /// A server joins and leaves.
    Server,
    /// The same, with the number of a server that has died.
    Rejoin,
    /// A survivor recovers a process that was a server, a reader, and the owner of two allocations.
    Recover,
    /// Broken: an allocation is claimed for another instance, which is not recovered.
    NoClaim,
    /// Broken: the entries of a survivor that died in a recovery are not recovered.
    ForgetsRecoverers,
    /// Broken: the map words are not written, so a survivor does not find the frames.
    NamesNoFrame,
    /// Broken: a client frees an allocation that it does not own.
    FreesWithoutOwner,
    /// Broken: a frame that was in use before is not cleared.
    ClearsNoFrame,
    /// Broken: a survivor does not declare a server dead.
    LosesNoServer,
    /// Broken: a run that a reader uses is not released after its reader has ended.
    KeepsUsed,
}

struct Memories(What);

type Weak = Weakened<Marked>;

/// The process that died before the recovery that a sweep kills.
const CORPSE: Instance = Instance::new(9, 1);
/// The process of the servers that live.
const HOST: Instance = Instance::new(8, 1);
/// The process of the reader that uses a slice, and dies after the victim.
const READER: Instance = Instance::new(7, 1);
/// The process that allocates what is free after a recovery.
const CHECKER: Instance = Instance::new(6, 1);

impl Memories {
    fn open(&self, memory: Marked) -> SmallPool<Weak> {
        let (at, len) = match self.0 {
            What::NamesNoFrame => words(),
            What::ClearsNoFrame => frames(),
            What::LosesNoServer => state(),
            _ => owners(),
        };
        // The code of a dead server's state.
        const DEAD: u64 = 4;
        SmallPool::open(match self.0 {
            What::NamesNoFrame | What::ClearsNoFrame => {
                Weakened::new(memory, Weakness::Stores(at, len))
            }
            What::LosesNoServer => Weakened::new(memory, Weakness::Tagged(at, len, DEAD)),
            What::FreesWithoutOwner => Weakened::new(memory, Weakness::Swaps(at, len)),
            _ => Weakened::sound(memory),
        })
    }

    fn is_recovery(&self) -> bool {
        matches!(self.0, What::Recover | What::ForgetsRecoverers)
    }

    fn is_free(&self) -> bool {
        matches!(self.0, What::Free | What::FreesWithoutOwner) || self.is_used()
    }

    fn is_used(&self) -> bool {
        matches!(self.0, What::Used | What::KeepsUsed)
    }

    fn is_server(&self) -> bool {
        matches!(self.0, What::Server | What::Rejoin | What::LosesNoServer)
    }
}

/// The allocation that a sweep frees: that of the last three slices.
fn kept() -> Address {
    let word = 2 << Address::POSITION_BITS | 3 << 12;
    Address::from_word(word).expect("generation 2")
}

/// Allocates and frees three slices with data, so that their frames are not zero.
fn soil(pool: &SmallPool<Marked>) {
    let address = allocate(pool, HOST, 3);
    let line = { pool.coherent }.claim_line(HOST).expect("a free line");
    for slice in 0..3 {
        let translated = pool
            .coherent
            .translate(line, 0, address.plus(slice << 12), pool);
        let frame = translated.expect("allocated");
        for at in [frame.at, frame.at + 4088] {
            frame.memory.store(at, 7u64, Ordering::Relaxed);
        }
    }
    { pool.coherent }.withdraw(line, 0);
    { pool.coherent }.release_line(line, HOST);
    let run = { pool.coherent }
        .begin_free(HOST, address)
        .expect("its own");
    release(pool, HOST, run);
}

fn release<M: Memory>(pool: &SmallPool<M>, owner: Instance, run: Run) {
    let user = { pool.coherent }.release_unless_used(owner, run, pool);
    assert!(user.expect("a reachable server").is_none());
}

/// Makes a guard of [`READER`] on a slice.
fn read<M: Memory>(pool: &SmallPool<M>, address: Address) {
    let line = { pool.coherent }.claim_line(READER).expect("a free line");
    { pool.coherent.translate(line, 0, address, pool) }.expect("allocated");
}

/// Allocates everything that is free, demands zeros, and frees it.
fn demand_zeros<M: Memory>(pool: &SmallPool<M>) -> Result<(), String> {
    let allocate = || {
        let allocated = { pool.coherent }.allocate(CHECKER, 1, Place::Any, Use::Plain, pool);
        allocated.ok()
    };
    let all: Vec<_> = std::iter::from_fn(allocate).collect();
    let line = { pool.coherent }
        .claim_line(CHECKER)
        .ok_or("no line is free")?;
    for address in all {
        let translated = pool.coherent.translate(line, 0, address, pool);
        let frame = translated.map_err(|error| error.to_string())?;
        for byte in (0..4096).step_by(8) {
            let word: u64 = frame.memory.load(frame.at + byte, Ordering::Relaxed);
            if word != 0 {
                return Err(format!(
                    "byte {byte} of new memory at {address} is not zero"
                ));
            }
        }
        { pool.coherent }.withdraw(line, 0);
        let run = { pool.coherent }.begin_free(CHECKER, address);
        release(pool, CHECKER, run.map_err(|error| error.to_string())?);
    }
    { pool.coherent }.release_line(line, CHECKER);
    Ok(())
}

fn allocate<M: Memory>(pool: &SmallPool<M>, owner: Instance, slices: u64) -> Address {
    let allocated = { pool.coherent }.allocate(owner, slices, Place::Spread, Use::Plain, pool);
    allocated.expect("free memory")
}

/// Recovers `gone` as `survivor`, and returns the runs that a reader uses.
fn recover<M: Memory>(pool: &SmallPool<M>, survivor: Instance, gone: Instance) -> Vec<Run> {
    let recovered = { pool.coherent }.recover(survivor, gone, pool, pool);
    assert!(recovered.failed.is_none());
    recovered.remaining
}

impl Sweep for Memories {
    fn name(&self) -> String {
        format!("memory pool {:?}", self.0)
    }

    fn size(&self) -> u64 {
        SIZE
    }

    fn prepare(&self, memory: Marked) {
        let pool = SmallPool::create(memory);
        if self.is_server() {
            if self.0 == What::Rejoin {
                pool.serve(CORPSE);
                recover(&pool, HOST, CORPSE);
            }
            return;
        }
        pool.serve(HOST);
        match self.is_recovery() {
            true => pool.serve(CORPSE),
            false => pool.serve(HOST),
        };
        soil(&pool);
        if self.is_free() {
            let address = allocate(&pool, HOST, 3);
            assert_eq!(address, kept());
            { pool.coherent }.keep(HOST, address).expect("its own");
        }
        if self.is_used() {
            read(&pool, kept().plus(1 << 12));
        }
        if self.is_recovery() {
            let address = allocate(&pool, CORPSE, 2);
            let line = { pool.coherent }.claim_line(CORPSE).expect("a free line");
            { pool.coherent.translate(line, 0, address, &pool) }.expect("allocated");
            allocate(&pool, CORPSE, 1);
        }
    }

    fn operate(&self, memory: Marked) {
        let pool = self.open(memory);
        let own = instance(0);
        match self.0 {
            What::Allocate | What::NamesNoFrame | What::ClearsNoFrame => {
                allocate(&pool, own, 3);
            }
            What::Fail => {
                let server = Place::At(ServerId(1));
                let failed = { pool.coherent }.allocate(own, 5, server, Use::Plain, &pool);
                let failed = failed.expect_err("too few frames");
                assert!(matches!(*failed.error, PoolError::OutOfMemory { .. }));
                assert!(failed.remaining.is_none());
            }
            What::NoClaim => drop(allocate(&pool, Instance::new(5, 1), 3)),
            What::Keep => {
                let address = allocate(&pool, own, 3);
                { pool.coherent }.keep(own, address).expect("its own");
            }
            What::Free | What::FreesWithoutOwner => {
                let run = { pool.coherent }.begin_free(own, kept()).expect("kept");
                release(&pool, own, run);
            }
            What::Used | What::KeepsUsed => {
                let run = { pool.coherent }.begin_free(own, kept()).expect("kept");
                let user = { pool.coherent }.release_unless_used(own, run, &pool);
                assert_eq!(user.expect("a reachable server"), Some(READER));
                recover(&pool, own, READER);
                release(&pool, own, run);
            }
            What::Server | What::Rejoin | What::LosesNoServer => {
                let entry = pool.serve(own);
                let home = pool.region(entry.id);
                { pool.coherent }
                    .leave_server(&entry, own, home, &pool)
                    .expect("no data");
            }
            What::Recover | What::ForgetsRecoverers => {
                let remaining = recover(&pool, own, CORPSE);
                assert!(remaining.is_empty());
            }
        }
    }

    fn recover(&self, memory: Marked, crash: &Crash) {
        let pool = self.open(memory);
        let survivor = instance(1 + crash.recoverers_lost);
        let dead = match self.0 {
            What::ForgetsRecoverers => 1..=crash.recoverers_lost,
            _ => 0..=crash.recoverers_lost,
        };
        let mut remaining = Vec::new();
        for gone in dead.map(instance).chain([CORPSE]) {
            remaining.extend(recover(&pool, survivor, gone));
        }
        assert!(remaining.is_empty() || self.is_used());
        if self.is_used() {
            recover(&pool, survivor, READER);
        }
        if self.0 != What::KeepsUsed {
            { remaining.into_iter() }.for_each(|run| release(&pool, survivor, run));
        }
    }

    fn check(&self, memory: Marked, crash: &Crash) -> Result<(), String> {
        let pool = self.open(memory);
        if self.is_server() && pool.has_segment(ServerId(1)) {
            return Err("the segment of a server is left".into());
        }
        let census = { pool.check() }.map_err(|wrong| wrong.join("; "))?;
        if census.owned > 0 {
            return Err(format!("{} allocations have an owner", census.owned));
        }
        if census.hidden > 0 {
            return Err(format!("{} slices cannot be accessed", census.hidden));
        }
        let expected = match (self.is_free(), self.0 == What::Keep, crash.returned) {
            // It was freed, or nothing has happened.
            (true, _, false) => census.kept <= 1,
            (true, _, true) => census.kept == 0,
            (false, true, false) => census.kept <= 1,
            (false, true, true) => census.kept == 1,
            (false, false, _) => census.kept == 0,
        };
        if !expected || census.slices != census.kept * 3 || census.frames != census.slices {
            return Err(format!("the pool has {census:?}"));
        }
        let mut departed = pool.coherent.owners();
        departed.retain(|owner| *owner != HOST);
        if !departed.is_empty() {
            return Err(format!("{departed:?} have entries"));
        }
        match self.0 {
            _ if self.is_server() => Ok(()),
            What::ClearsNoFrame => demand_zeros(&pool),
            _ => demand_zeros(&SmallPool::open(Weakened::sound(memory))),
        }
    }
}
