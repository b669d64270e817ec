//! Allocations, frees, servers and recoveries of a memory pool, killed after every instruction
//! together with their recoverers; and broken variants, which a sweep must find.

use super::small::{SIZE, SmallPool, instance, owners, words};
use outlive::membership::Instance;
use outlive_memory::Memory;
use outlive_pool::internals::{AllocatePoint, FreePoint, Place, ServerPoint};
use outlive_pool::{Address, ServerId};
use outlive_prove::kill::{Crash, Marked, Suite, Sweep};
use outlive_prove::weakened::{Weakened, Weakness};

/// Adds the sweeps of this file.
pub fn add_to(suite: &mut Suite) {
    for what in [
        What::Allocate,
        What::Keep,
        What::Free,
        What::Server,
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
    /// A client frees an allocation that was kept.
    Free,
    /// A server joins and leaves.
    Server,
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
}

struct Memories(What);

type Weak = Weakened<Marked>;

/// The process that died before the recovery that a sweep kills.
const CORPSE: Instance = Instance::new(9, 1);
/// The process of the servers that live.
const HOST: Instance = Instance::new(8, 1);

impl Memories {
    fn open(&self, memory: Marked) -> SmallPool<Weak> {
        let (at, len) = match self.0 {
            What::NamesNoFrame => words(),
            _ => owners(),
        };
        SmallPool::open(match self.0 {
            What::NamesNoFrame => Weakened::new(memory, Weakness::Stores(at, len)),
            What::FreesWithoutOwner => Weakened::new(memory, Weakness::Swaps(at, len)),
            _ => Weakened::sound(memory),
        })
    }

    fn is_recovery(&self) -> bool {
        matches!(self.0, What::Recover | What::ForgetsRecoverers)
    }

    fn is_free(&self) -> bool {
        matches!(self.0, What::Free | What::FreesWithoutOwner)
    }
}

/// The allocation that a sweep frees: the first one.
fn first() -> Address {
    Address::from_word(1 << Address::POSITION_BITS).expect("generation 1")
}

fn allocate<M: Memory>(pool: &SmallPool<M>, owner: Instance, slices: u64) -> Address {
    let allocated = { pool.coherent }.allocate(owner, slices, Place::Spread, pool);
    allocated.expect("free memory")
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
        if self.0 == What::Server {
            return;
        }
        pool.serve(HOST);
        match self.is_recovery() {
            true => pool.serve(CORPSE),
            false => pool.serve(HOST),
        };
        if self.is_free() {
            let address = allocate(&pool, HOST, 3);
            assert_eq!(address, first());
            { pool.coherent }.keep(HOST, address).expect("its own");
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
            What::Allocate | What::NamesNoFrame => drop(allocate(&pool, own, 3)),
            What::NoClaim => drop(allocate(&pool, Instance::new(7, 1), 3)),
            What::Keep => {
                let address = allocate(&pool, own, 3);
                { pool.coherent }.keep(own, address).expect("its own");
            }
            What::Free | What::FreesWithoutOwner => {
                let run = { pool.coherent }.begin_free(own, first()).expect("kept");
                let user = { pool.coherent }.release_unless_used(own, run, &pool);
                assert!(user.expect("a reachable server").is_none());
            }
            What::Server => {
                let entry = pool.serve(own);
                let home = pool.region(entry.id);
                { pool.coherent }
                    .leave_server(&entry, own, home, &pool)
                    .expect("no data");
            }
            What::Recover | What::ForgetsRecoverers => {
                let recovered = { pool.coherent }.recover(own, CORPSE, &pool, &pool);
                assert!(recovered.failed.is_none() && recovered.remaining.is_empty());
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
        for gone in dead.map(instance).chain([CORPSE]) {
            let recovered = { pool.coherent }.recover(survivor, gone, &pool, &pool);
            assert!(recovered.failed.is_none() && recovered.remaining.is_empty());
        }
    }

    fn check(&self, memory: Marked, crash: &Crash) -> Result<(), String> {
        let pool = self.open(memory);
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
        if self.0 == What::Server && pool.has_segment(ServerId(1)) {
            return Err("the segment of a server is left".into());
        }
        Ok(())
    }
}
