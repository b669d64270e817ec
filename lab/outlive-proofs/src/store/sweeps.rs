//! Memory servers and compute servers that join, leave and are recovered, killed after every
//! instruction together with their recoverers; and broken variants, which a sweep must find.

use super::sizes;
use core::cell::Cell;
use outlive::membership::Instance;
use outlive_memory::{Memory, Offset, Ordering};
use outlive_prove::kill::{Crash, Marked, Suite, Sweep};
use outlive_prove::weakened::{Weakened, Weakness};
use outlive_store::protocol::{LogArea, Recovered};
use outlive_store::servers::{
    Configuration, JoinPoint, MemoryEntry, Phase, RecoverPoint, Segments,
};
use outlive_store::verbs::{POISON, Region, ServerId};

/// Adds the sweeps of this file.
pub fn add_to(suite: &mut Suite) {
    for what in [What::Join, What::Leave, What::Recover, What::Compute] {
        suite.add(Servers(what));
    }
    super::catalogue_sweeps::add_to(suite);
    super::transaction_sweeps::add_to(suite);
    super::steal_sweeps::add_to(suite);
    super::break_sweeps::add_to(suite);
    suite.declare::<JoinPoint>().declare::<RecoverPoint>();
}

/// Returns the sweeps that must fail, each with a part of the expected message.
pub fn broken() -> Vec<(Box<dyn Sweep>, &'static str)> {
    [
        (What::ForgetsRecoverers, "has an owner"),
        (What::KeepsSegment, "segment is left"),
        (What::NoClaim, "has an owner"),
        (What::ForgetsLoss, "the list has 0 losses"),
        (What::ForgetsProcesses, "the process ids are"),
    ]
    .map(|(what, message)| -> (Box<dyn Sweep>, _) { (Box::new(Servers(what)), message) })
    .into_iter()
    .chain(super::catalogue_sweeps::broken())
    .chain(super::transaction_sweeps::broken())
    .chain(super::steal_sweeps::broken())
    .chain(super::break_sweeps::broken())
    .chain(super::restoration_sweeps::broken())
    .collect()
}

/// The operation that is cut short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// A memory server joins.
    Join,
    /// A memory server leaves.
    Leave,
    /// A survivor recovers a memory server that died while it was live.
    Recover,
    /// A compute server joins, leaves, and joins again.
    Compute,
    /// Broken: the entries of a survivor that died in a recovery are not recovered.
    ForgetsRecoverers,
    /// Broken: a recovery does not remove the segment.
    KeepsSegment,
    /// Broken: the claim of a server that joins names another instance, which is not recovered.
    NoClaim,
    /// Broken: a recovery does not record the loss.
    ForgetsLoss,
    /// Broken: a recovery skips the process ids of compute servers.
    ForgetsProcesses,
}

struct Servers(What);

type Weak = Weakened<Marked>;

/// The size of the memory: a configuration with 7 process ids, and the last 64 bytes for the test.
const SIZE: u64 = 20 << 10;
const CONFIGURATION: Offset = Offset::new(64);
/// The segment of memory server 0: a word that is 1 if it exists, and the word of its region.
const SEGMENT: Offset = Offset::new(SIZE - 64);
/// The list of changes in the configuration.
const CHANGES: Offset = Offset::new(64 + 0x140);
const REGION: Region = Region { key: 7, bytes: 8 };
const SERVER: ServerId = ServerId(0);
/// The server that died before the recovery that a sweep kills.
const CORPSE: Instance = Instance::new(9, 1);

/// Returns the instance of a process: 0 is the victim, 1 and above are its recoverers.
const fn instance(id: u32) -> Instance {
    Instance::new(id, 1)
}

/// The segment of memory server 0, in place of a file.
struct Segment<M> {
    memory: M,
    is_kept: bool,
}

impl<M: Memory> Segment<M> {
    fn exists(&self) -> bool {
        self.memory.load::<u64>(SEGMENT, Ordering::Acquire) != 0
    }
}

impl<M: Memory> Segments for Segment<M> {
    fn remove(&self, server: ServerId, _: u64) {
        if server == SERVER && !self.is_kept {
            self.memory.store(SEGMENT, 0u64, Ordering::Release);
        }
    }

    fn poison(&self, server: ServerId, _: u64, _: Region) {
        if server == SERVER {
            self.memory.store(SEGMENT + 8, POISON, Ordering::Release);
        }
    }

    fn recover_logs(&self, _: u16, _: &LogArea) -> Option<Recovered> {
        None
    }
}

impl Servers {
    fn open(&self, memory: Marked) -> (Configuration<Weak>, Segment<Marked>) {
        let segment_memory = memory;
        let memory = match self.0 {
            What::ForgetsLoss => Weakened::new(memory, Weakness::Swaps(CHANGES, 2048)),
            _ => Weakened::sound(memory),
        };
        let bytes = SIZE - 128 - CONFIGURATION.raw();
        let configuration = Configuration::open(memory, CONFIGURATION, bytes);
        let segment = Segment {
            memory: segment_memory,
            is_kept: self.0 == What::KeepsSegment,
        };
        (configuration.expect("a configuration"), segment)
    }

    fn join(&self, memory: Marked, owner: Instance) -> MemoryEntry {
        let (configuration, segment) = self.open(memory);
        let incarnation = Cell::new(0);
        let joined = configuration.join_memory(owner, &segment, |server, number| {
            assert_eq!(server, SERVER);
            incarnation.set(number);
            memory.store(SEGMENT + 8, 0u64, Ordering::Release);
            memory.store(SEGMENT, 1u64, Ordering::Release);
            Ok::<_, ()>(REGION)
        });
        let entry = joined.expect("no error").expect("a free entry");
        assert_eq!(
            (entry.incarnation, entry.region),
            (incarnation.get(), REGION)
        );
        entry
    }
}

impl Sweep for Servers {
    fn name(&self) -> String {
        format!("store {:?}", self.0)
    }

    fn size(&self) -> u64 {
        SIZE
    }

    fn prepare(&self, memory: Marked) {
        Configuration::create(memory, CONFIGURATION, sizes(1, 7), true);
        match self.0 {
            What::Leave => drop(self.join(memory, instance(0))),
            What::Recover | What::ForgetsRecoverers | What::KeepsSegment | What::ForgetsLoss => {
                self.join(memory, CORPSE);
            }
            What::Join | What::Compute | What::ForgetsProcesses | What::NoClaim => {}
        }
    }

    fn operate(&self, memory: Marked) {
        let (configuration, segment) = self.open(memory);
        match self.0 {
            What::Join => drop(self.join(memory, instance(0))),
            What::NoClaim => drop(self.join(memory, instance(8))),
            What::Leave => {
                let entry = configuration.memory_server(SERVER).expect("a sound entry");
                configuration.leave_memory(&entry, &segment);
            }
            What::Recover | What::ForgetsRecoverers | What::KeepsSegment | What::ForgetsLoss => {
                let _ = configuration.recover(instance(0), CORPSE, &segment);
            }
            What::Compute | What::ForgetsProcesses => {
                let id = configuration.join_compute(instance(0));
                assert_eq!(id, Some(1));
                configuration.leave_compute(1, instance(0));
                configuration.join_compute(instance(0));
            }
        }
    }

    fn recover(&self, memory: Marked, crash: &Crash) {
        let (configuration, segment) = self.open(memory);
        let survivor = instance(1 + crash.recoverers_lost);
        if self.0 == What::ForgetsProcesses {
            return;
        }
        let dead = match self.0 {
            What::ForgetsRecoverers => 0,
            _ => crash.recoverers_lost,
        };
        for gone in (0..=dead).map(instance).chain([CORPSE]) {
            let _ = configuration.recover(survivor, gone, &segment);
        }
    }

    fn check(&self, memory: Marked, crash: &Crash) -> Result<(), String> {
        let (configuration, segment) = self.open(memory);
        let entry = configuration
            .memory_server(SERVER)
            .ok_or("a damaged entry")?;
        if entry.owner.is_some() {
            return Err(format!("{SERVER} has an owner: {entry:?}"));
        }
        if segment.exists() {
            return Err(format!("the segment is left: {entry:?}"));
        }
        let was_live = match self.0 {
            What::Compute | What::ForgetsProcesses => false,
            // The server became live and was recovered, or was killed before it was live.
            What::Join | What::NoClaim => crash.returned || entry.phase == Phase::Dead,
            // The server left, or was killed while it was still live.
            What::Leave => entry.phase == Phase::Dead,
            _ => true,
        };
        let expected = if was_live { Phase::Dead } else { Phase::Free };
        if entry.phase != expected {
            return Err(format!("{SERVER} is {}, not {expected}", entry.phase));
        }
        let word: u64 = memory.load(SEGMENT + 8, Ordering::Acquire);
        if was_live && word != POISON {
            return Err(format!("{SERVER} is dead, but not poisoned: {word:#x}"));
        }
        if configuration.epoch() != u64::from(was_live) {
            return Err(format!("the list has {} losses", configuration.epoch()));
        }
        if matches!(self.0, What::Compute | What::ForgetsProcesses) {
            let servers: Vec<_> = configuration.compute_servers().collect();
            let has_failed = servers.iter().all(|it| it.has_failed);
            if !has_failed || crash.returned && servers.len() != 1 {
                return Err(format!("the process ids are {servers:?}"));
            }
        }
        Ok(())
    }
}
