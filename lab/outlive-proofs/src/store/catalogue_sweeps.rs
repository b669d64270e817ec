//! The creation of tables and the log areas of compute servers, killed after every instruction
//! together with their recoverers; and broken variants, which a sweep must find.

use super::sizes;
use outlive::membership::Instance;
use outlive_memory::{Memory, Offset, Ordering};
use outlive_prove::kill::{Crash, Marked, Suite, Sweep};
use outlive_prove::weakened::{Weakened, Weakness};
use outlive_store::protocol::{LogArea, Outcome, Protocol, Recovered};
use outlive_store::servers::{
    Configuration, CreateTablePoint, LogPoint, RecyclePoint, Segments, Sizes, StopPoint,
};
use outlive_store::tables::{Geometry, TransactionId};
use outlive_store::verbs::{Region, ServerId};

/// Adds the sweeps of this file.
pub fn add_to(suite: &mut Suite) {
    for what in [
        What::CreateTable,
        What::Logs,
        What::RecoverLogs,
        What::FailingLogs,
        What::ReplaceLogs,
        What::Recycle,
        What::Stop,
    ] {
        suite.add(Catalogue(what));
    }
    suite.declare::<CreateTablePoint>().declare::<LogPoint>();
    suite.declare::<RecyclePoint>().declare::<StopPoint>();
}

/// Returns the sweeps that must fail, each with a part of the expected message.
pub fn broken() -> Vec<(Box<dyn Sweep>, &'static str)> {
    [
        (What::ForgetsCreators, "another process is creating a table"),
        (What::UnplacedTable, "does not overlap"),
        (What::ForgetsLogs, "logs are not recovered"),
        (What::ForgetsSurvivors, "has an owner"),
        (What::KeepsAreas, "has an owner"),
        (What::KeepsCommits, "a commit is still registered"),
        (What::ForgetsOutcomes, "the outcome is NoEffect"),
        (What::ForgetsUsers, "the outcome is Unknown"),
        (What::UnclearedLogs, "has slots that are not cleared"),
        (What::ForgetsAreas, "a live compute server has failed"),
        (What::ForgetsLatches, "before its latches were released"),
        (What::ForgetsStops, "is being stopped"),
    ]
    .map(|(what, message)| -> (Box<dyn Sweep>, _) { (Box::new(Catalogue(what)), message) })
    .into()
}

/// The operation that is cut short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// A table is created.
    CreateTable,
    /// A compute server claims a log area, commits a transaction, begins another one and leaves.
    Logs,
    /// A survivor recovers the logs of a dead compute server.
    RecoverLogs,
    /// The same, and the first recovery of the logs fails.
    FailingLogs,
    /// A compute server replaces a lost log server. Its logs are recovered.
    ReplaceLogs,
    /// Broken: the claim of a dead creator is not released.
    ForgetsCreators,
    /// Broken: the places of a table are not written.
    UnplacedTable,
    /// Broken: a survivor marks the process id as failed without recovering the logs.
    ForgetsLogs,
    /// Broken: the areas of a survivor that died in a recovery are not recovered.
    ForgetsSurvivors,
    /// Broken: a recovered area keeps its owner.
    KeepsAreas,
    /// Broken: the registration of a dead server's commit remains.
    KeepsCommits,
    /// Broken: a recovery does not record the commit of the transaction that it rolls forward.
    ForgetsOutcomes,
    /// A survivor recovers a dead compute server, recycles its process id and receives it. If the
    /// survivor dies, another compute server recycles the id and receives it before the recovery.
    Recycle,
    /// Broken: a log area does not name the server whose commits its words describe.
    ForgetsUsers,
    /// Broken: the slots at a new log server are not cleared.
    UnclearedLogs,
    /// Broken: a process id is recycled while a log area names it.
    ForgetsAreas,
    /// Broken: a process id is recycled before its latches are released.
    ForgetsLatches,
    /// All compute servers are stopped.
    Stop,
    /// Broken: the claim of a dead process that stops all compute servers is not released.
    ForgetsStops,
}

impl What {
    fn creates(self) -> bool {
        matches!(
            self,
            Self::CreateTable | Self::ForgetsCreators | Self::UnplacedTable
        )
    }

    /// Whether the operation is the recovery of a server that has died before.
    fn recovers(self) -> bool {
        !self.creates() && self != Self::Logs && !self.replaces() && !self.stops()
    }

    fn stops(self) -> bool {
        matches!(self, Self::Stop | Self::ForgetsStops)
    }

    /// The instances of the memory servers.
    fn memory_servers(self) -> core::ops::Range<u32> {
        30..if self.replaces() { 33 } else { 32 }
    }

    fn replaces(self) -> bool {
        matches!(self, Self::ReplaceLogs | Self::UnclearedLogs)
    }

    fn recycles(self) -> bool {
        matches!(
            self,
            Self::Recycle | Self::ForgetsAreas | Self::ForgetsLatches
        )
    }
}

struct Catalogue(What);

type Weak = Weakened<Marked>;

const SIZE: u64 = 16 << 10;
const CONFIGURATION: Offset = Offset::new(64);
/// 1 if transactions may have been logged.
const LOGGED: Offset = Offset::new(SIZE - 64);
/// 1 if the logs are recovered.
const RECOVERED: Offset = Offset::new(SIZE - 56);
/// The number of recoveries that have begun.
const TRIES: Offset = Offset::new(SIZE - 48);
/// 1 if the first transaction was committed.
const COMMITTED: Offset = Offset::new(SIZE - 40);
/// For each of three memory servers, 1 if its log slots are cleared.
const CLEARED: Offset = Offset::new(SIZE - 32);
/// 1 if the latches of failed compute servers are released.
const RELEASED: Offset = Offset::new(SIZE - 72);
/// What a recovery of the logs has found wrong, as a number; 0 if nothing.
const FAULT: Offset = Offset::new(SIZE - 8);
const UNCLEARED: u64 = 1;
const SETTLED: u64 = 2;
/// The transactions of the compute server. Recoveries roll the first one forward.
const FIRST: TransactionId = TransactionId::new(1, 0, 1);
const SECOND: TransactionId = TransactionId::new(1, 0, 2);
/// The owner of process id 1. The owners are followed by two log areas, the epochs of their
/// commits, and the tables.
const OWNERS: u64 = 0x1940;
const OWNER: Offset = Offset::new(CONFIGURATION.raw() + OWNERS + 8);
const AREAS: u64 = OWNERS + 64;
const COMMITS: u64 = AREAS + 2 * 128;
const PLACES: u64 = COMMITS + 2 * 64 + 64;
const SIZES: Sizes = Sizes {
    tables: 2,
    log_areas: 2,
    coordinators: 1,
    log_slot_bytes: 64,
    protocol: Protocol::Pandora,
    ..sizes(2, 3)
};
/// The server that died before the recovery that a sweep kills.
const CORPSE: Instance = Instance::new(9, 1);
/// The compute server that receives the process id if the operation is cut short.
const NEXT: Instance = Instance::new(20, 1);

/// Returns the instance of a process: 0 is the victim, 1 and above are its recoverers.
const fn instance(id: u32) -> Instance {
    Instance::new(id, 1)
}

/// The logs of the one compute server.
struct Logs {
    memory: Marked,
    what: What,
}

impl Segments for Logs {
    fn remove(&self, _: ServerId, _: u64) {}

    fn poison(&self, _: ServerId, _: u64, _: Region) {}

    fn recover_logs(&self, _: u16, area: &LogArea) -> Option<Recovered> {
        assert_eq!(area.servers.len(), 2);
        let memory = self.memory;
        let (configuration, _) = Catalogue(What::RecoverLogs).open(memory);
        let is_set = |at| memory.load::<u64>(at, Ordering::Acquire) != 0;
        let lost: Vec<_> = configuration.lost(configuration.epoch()).collect();
        for server in { area.servers.iter() }.filter(|it| !lost.contains(it)) {
            // Before, the slots can only have entries of transactions that are decided.
            if is_set(LOGGED) && !is_set(cleared(*server)) {
                memory.store(FAULT, UNCLEARED, Ordering::Release);
            }
        }
        let has_commit = self.what.recovers() && !is_set(RECOVERED);
        if has_commit && configuration.is_settled(1) {
            memory.store(FAULT, SETTLED, Ordering::Release);
        }
        let tries: u64 = memory.fetch_add(TRIES, 1u64, Ordering::Relaxed);
        if self.what == What::FailingLogs && tries == 0 {
            return None;
        }
        if self.what != What::ForgetsOutcomes {
            configuration.record_commit(FIRST);
        }
        if self.what != What::ForgetsLogs {
            memory.store(RECOVERED, 1u64, Ordering::Release);
        }
        Some(Recovered::default())
    }
}

/// The word that tells whether the log slots at a server are cleared.
fn cleared(server: ServerId) -> Offset {
    CLEARED + u64::from(server.0) * 8
}

impl Catalogue {
    fn open(&self, memory: Marked) -> (Configuration<Weak>, Logs) {
        let logs = Logs {
            memory,
            what: self.0,
        };
        let at = |offset| CONFIGURATION + offset;
        let memory = match self.0 {
            What::UnplacedTable => Weakened::new(memory, Weakness::Stores(at(PLACES), 4096)),
            // The owner word of the first area: it is released by a compare-and-swap.
            What::KeepsAreas => Weakened::new(memory, Weakness::Swaps(at(AREAS), 8)),
            What::ForgetsUsers => Weakened::new(memory, Weakness::Stores(at(AREAS + 80), 8)),
            What::KeepsCommits => Weakened::new(memory, Weakness::Stores(at(COMMITS), 8)),
            _ => Weakened::sound(memory),
        };
        let bytes = SIZE - 128 - CONFIGURATION.raw();
        let configuration = Configuration::open(memory, CONFIGURATION, bytes);
        (configuration.expect("a configuration"), logs)
    }

    /// A compute server joins, claims a log area and begins its first commit.
    fn log(&self, memory: Marked, owner: Instance) -> (u16, LogArea) {
        let what = match self.0 {
            What::ForgetsUsers => What::ForgetsUsers,
            _ => What::Logs,
        };
        let (configuration, _) = Self(what).open(memory);
        let process = configuration.join_compute(owner).expect("a process id");
        let claimed = configuration.claim_log_area(owner, process);
        let (area, log) = claimed.expect("live servers").expect("a free log area");
        assert_eq!((process, area), (FIRST.process(), 0));
        for server in &log.servers {
            memory.store(cleared(*server), 1u64, Ordering::Release);
        }
        memory.store(LOGGED, 1u64, Ordering::Release);
        assert!(configuration.enter_commit(0, FIRST, 0));
        (process, log)
    }

    fn create(&self, memory: Marked, owner: Instance, name: &str) -> Result<u8, String> {
        let (configuration, _) = self.open(memory);
        let created = configuration.create_table(owner, name, Geometry::for_keys(8, 1, 2));
        created.map_err(|error| error.to_string())
    }

    /// Checks that another table can be created, and shares no space with the first one.
    fn check_tables(&self, memory: Marked, crash: &Crash) -> Result<(), String> {
        let (configuration, _) = self.open(memory);
        self.create(memory, instance(20), "another")?;
        let has_one = configuration.tables().any(|it| it.name == "one");
        if crash.returned && !has_one {
            return Err("the table does not exist".into());
        }
        let mut places = Vec::new();
        for table in configuration.tables() {
            let bytes = table.geometry.partition_bytes();
            let layout = configuration.layout(table.number).ok_or("no layout")?;
            for place in layout.places.into_iter().flatten() {
                places.push((place.server, place.base.get(), bytes));
            }
        }
        places.sort_unstable();
        let mut pairs = places.windows(2);
        let is_apart = |pair: &[(ServerId, u64, u64)]| {
            pair[0].0 != pair[1].0 || pair[0].1 + pair[0].2 <= pair[1].1
        };
        match pairs.all(is_apart) {
            true => Ok(()),
            false => Err(format!(
                "a partition that does not overlap is expected: {places:?}"
            )),
        }
    }

    /// Recycles the process ids that have failed, and joins as `next`.
    fn recycle(&self, memory: Marked, next: Instance) {
        let (configuration, _) = self.open(memory);
        let release = |_: &_| {
            let is_released = self.0 != What::ForgetsLatches;
            memory.store(RELEASED, u64::from(is_released), Ordering::Release);
            Ok::<_, ()>(())
        };
        if self.0 == What::ForgetsAreas && configuration.has_failed(1) {
            memory.store(RELEASED, 1u64, Ordering::Release);
            memory.store(OWNER, 0u64, Ordering::Release);
        }
        configuration.recycle(release).expect("a release");
        let _ = configuration.join_compute(next);
    }

    fn check_recycled(&self, memory: Marked) -> Result<(), String> {
        let (configuration, _) = self.open(memory);
        let is_set = |at| memory.load::<u64>(at, Ordering::Acquire) != 0;
        let mut servers = configuration.compute_servers();
        if servers.any(|it| it.owner == NEXT && it.has_failed) {
            return Err("a live compute server has failed".into());
        }
        if configuration.owner_of(1) != Some(CORPSE) && !is_set(RELEASED) {
            return Err("an id had another owner before its latches were released".into());
        }
        if !is_set(RECOVERED) {
            return Err("the logs are not recovered".into());
        }
        match configuration.log_owners().next() {
            Some(owner) => Err(format!("a log area has an owner: {owner}")),
            None => Ok(()),
        }
    }

    fn check_logs(&self, memory: Marked, crash: &Crash) -> Result<(), String> {
        let (configuration, _) = self.open(memory);
        if let Some(owner) = configuration.log_owners().next() {
            return Err(format!("a log area has an owner: {owner}"));
        }
        let is_set = |at| memory.load::<u64>(at, Ordering::Acquire) != 0;
        let has_failed = configuration.has_failed(1);
        let is_free = configuration.compute_servers().all(|it| it.id != 1);
        let has_left = self.0 == What::Logs && crash.returned;
        if has_failed && has_left || !has_failed && !is_free {
            return Err(format!(
                "the process id: failed {has_failed}, free {is_free}"
            ));
        }
        if has_failed && is_set(LOGGED) && !is_set(RECOVERED) {
            return Err("the logs are not recovered".into());
        }
        match memory.load::<u64>(FAULT, Ordering::Acquire) {
            0 => {}
            UNCLEARED => return Err("a log server has slots that are not cleared".into()),
            _ => return Err("an epoch was settled before the logs were recovered".into()),
        }
        if !configuration.is_settled(1) {
            return Err("a commit is still registered".into());
        }
        let server = match self.0.recovers() {
            true => CORPSE,
            false => instance(0),
        };
        let outcome = configuration.outcome(server, FIRST);
        let is_known = is_set(COMMITTED) || has_failed && is_set(RECOVERED);
        if is_known && outcome != Outcome::Committed {
            return Err(format!("the outcome is {outcome:?}"));
        }
        Ok(())
    }
}

impl Sweep for Catalogue {
    fn name(&self) -> String {
        format!("store {:?}", self.0)
    }

    fn size(&self) -> u64 {
        SIZE
    }

    fn prepare(&self, memory: Marked) {
        let configuration = Configuration::create(memory, CONFIGURATION, SIZES, false);
        let logs = Logs {
            memory,
            what: self.0,
        };
        for id in self.0.memory_servers() {
            let create = |_, _| {
                let region = Region {
                    key: 1,
                    bytes: 64 << 10,
                };
                Ok::<_, ()>(region)
            };
            let joined = configuration.join_memory(instance(id), &logs, create);
            assert!(joined.is_ok_and(|it| it.is_some()));
        }
        if self.0.recovers() {
            self.log(memory, CORPSE);
        }
        if self.0.replaces() {
            let (_, log) = self.log(memory, instance(0));
            let lost = instance(30 + u32::from(log.servers[0].0));
            let recovery = configuration.recover(instance(33), lost, &logs);
            assert_eq!(recovery.dead, 1);
        }
    }

    fn operate(&self, memory: Marked) {
        let (configuration, logs) = self.open(memory);
        if self.0.creates() {
            self.create(memory, instance(0), "one").expect("a table");
        } else if self.0.stops() {
            assert_eq!(configuration.stop(instance(0), || ()), Some(()));
        } else if self.0.recovers() {
            let _ = configuration.recover(instance(0), CORPSE, &logs);
            if self.0.recycles() {
                self.recycle(memory, instance(0));
            }
        } else if self.0.replaces() {
            let clear = |server, _: &LogArea| {
                if self.0 != What::UnclearedLogs {
                    memory.store(cleared(server), 1u64, Ordering::Release);
                }
                Ok::<_, ()>(())
            };
            let log = configuration.replace_log_servers(0, 1, clear);
            let lost: Vec<_> = configuration.lost(1).collect();
            assert!(log.is_ok_and(|it| !it.servers.contains(&lost[0])));
        } else {
            let (process, _) = self.log(memory, instance(0));
            configuration.leave_commit(0, FIRST, true);
            memory.store(COMMITTED, 1u64, Ordering::Release);
            assert!(configuration.enter_commit(0, SECOND, 0));
            configuration.leave_commit(0, SECOND, false);
            // All its transactions have ended.
            memory.store(LOGGED, 0u64, Ordering::Release);
            configuration.leave_compute(process, instance(0));
        }
    }

    fn recover(&self, memory: Marked, crash: &Crash) {
        let (configuration, logs) = self.open(memory);
        let survivor = instance(1 + crash.recoverers_lost);
        let dead = match self.0 {
            What::ForgetsCreators | What::ForgetsStops => return,
            What::ForgetsSurvivors => 0..0,
            _ => 0..crash.recoverers_lost + 1,
        };
        if self.0.recycles() && crash.recoverers_lost == 0 {
            self.recycle(memory, NEXT);
        }
        // A recovery that fails leaves the area to its dead owner, for the next recovery.
        let times = if self.0 == What::FailingLogs { 2 } else { 1 };
        for _ in 0..times {
            for gone in dead.clone().map(instance).chain([CORPSE]) {
                let _ = configuration.recover(survivor, gone, &logs);
            }
        }
    }

    fn check(&self, memory: Marked, crash: &Crash) -> Result<(), String> {
        match self.0 {
            it if it.creates() => self.check_tables(memory, crash),
            it if it.recycles() => self.check_recycled(memory),
            it if it.stops() => match self.open(memory).0.stopper() {
                None => Ok(()),
                Some(by) => Err(format!("the store is being stopped by {by}")),
            },
            _ => self.check_logs(memory, crash),
        }
    }
}
