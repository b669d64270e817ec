//! The timed machine: a cluster of compute nodes that share the memory of memory nodes.
//!
//! A [`Cluster`] runs one [`Thread`] on each core, on caches with real values, and counts all
//! activity. Coherence between the nodes is that of the [protocol's tables](crate::protocol), the
//! same ones that the search explores; time is that of the [parts](crate::parts). It is a plain
//! value: a clone of its simulation continues identically, if the threads can be cloned.
//!
//! ```
//! use outlive_machine::cluster::{Cluster, Workload};
//! use outlive_machine::description::Description;
//! use outlive_machine::program::{Image, Op, Script, Synchronisation, Word};
//!
//! let description: Description = "[system]\ncompute_nodes = 4\nmemory_nodes = 1\n[l3]\nsize = \"64 KiB\"".parse()?;
//! let (data, flag) = (Word(0), Word(8));
//! let threads = vec![
//!     Script::new([Op::Store(data, 42), Op::Store(flag, 1)]),
//!     Script::new([Op::Compute(10_000), Op::Load(flag), Op::Load(data)]),
//! ];
//! let workload = Workload { threads, image: Image { words: 16, ..Image::default() }, synchronisation: Synchronisation::default() };
//! let mut simulation = Cluster::simulation(&description, workload, 1)?;
//! let end = outlive_machine::cluster::run(&mut simulation)?;
//! assert_eq!(simulation.machine().thread(1).results(), [1, 42]);
//! // 10,000 instructions, five in a cycle at 2.4 GHz; then the lines are in this node already, for the threads share it.
//! assert!(end > outlive_machine::engine::Time::from_nanos(833));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Time and order
//!
//! Cores run ahead of one another by up to a [quantum](crate::description::Core::quantum), and
//! their actions on values take effect in the order in which the host simulates them. Time is
//! skewed by that much, order is not: all loads and stores take place one after another, each on
//! the one current value of its word; `core.rs` explains why they make x86-TSO.
//!
//! # What is modelled
//!
//! Cores: width, reorder buffer, load queue, store queue, store buffer, entries for misses. Data
//! dependences between instructions are known only where a thread waits for a value; everything
//! else overlaps as far as those allow. There is no branch prediction, no speculation past an
//! atomic or fence, no bound on hits under way. Caches: true LRU, inclusive of the levels above.
//! Directories: a latency, and the order of the protocol. Links, switch, memories: latency,
//! bandwidth or banks, and queues. Data that is private to a thread takes time, and has no values.
//!
//! In the configurations of ReCXL: REPL, REPL_ACK and VAL over the same links as everything else,
//! driven by the [protocol's table](crate::protocol::STORE); [logging units](crate::logging) with
//! real values, and dumps of their logs. The atomics of locks and barriers are stores like any
//! others. A directory's epochs go with its exclusive grants. [`crash`] kills a node, and the rest
//! recovers.

mod caches;
mod check;
mod contents;
mod core;
mod error;
mod event;
mod event_counts;
mod failure;
mod host_prefetch;
mod line_history;
mod loads;
mod logs;
mod memory_node;
mod misses;
mod node;
mod objects;
mod oracle;
mod owned;
mod packet;
mod port;
mod private;
mod reorder_buffer;
mod replication;
mod serialised;
mod shared_memory;
mod statistics;
mod store_buffer;
mod stores;
mod timing;
mod truncation;
mod under_way;
mod write_through;

pub use error::{ClusterError, Stuck};
pub use event::{Event, Message, MessageKind, Purpose};
pub use failure::{Judged, crash};
pub use owned::OwnedLines;
pub use packet::Packet;
pub use statistics::{CoreCounts, MessageCounts, Statistics, Traffic};

use self::core::{Activity, Core};
use failure::{Failures, Tally};
use line_history::Life;
use logs::Logs;
use memory_node::MemoryNode;
use node::Node;
use objects::Objects;
use oracle::Oracle;
use packet::Says;
use shared_memory::SharedMemory;
use timing::Timing;
use under_way::UnderWay;

use std::sync::LazyLock;

use crate::description::{Description, Protocol, Synchronising};
use crate::engine::{Divisor, EventQueue, Machine, Simulation, Time};
use crate::line::{Line, LineAddress};
use crate::logging::{Archive, LoggingUnit};
use crate::parts::{Fabric, Port, WireSizes};
use crate::program::{Image, Synchronisation, Thread, Word};
use crate::protocol::{MAX_NODES, NodeId, NodeState, STORE, StoreTable, Tables};

/// The workload of a cluster.
#[derive(Clone, Debug)]
pub struct Workload<T> {
    /// The threads, one for each core: the first of them on the first node's cores, and so on.
    pub threads: Vec<T>,
    /// The initial contents of shared memory.
    pub image: Image,
    /// The locks, barriers, conditions and event counts of the threads.
    pub synchronisation: Synchronisation,
}

/// Faults built into a cluster, so that its tests can show that they detect them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breakage {
    /// Stores behind one that waits for its line are committed before it.
    StoresDrainedOutOfOrder,
    /// Loads behind one that waits for its line get their values before it.
    LoadsBoundOutOfOrder,
    /// A load that has waited for another gets the value in the caches, not that of its own core's
    /// older store.
    ForwardsNothing,
    /// Operations after a lock begin before the store that takes the lock is committed. (In
    /// machines in which a store takes it.)
    LocksAreNoFences,
    /// Stores are committed when the first of their replicas has answered.
    CommitsBeforeLastAck,
    /// The last replica of each store is not notified that it is committed.
    ForgetsVal,
    /// VALs leave at their core's local time, when other nodes may already have seen the store.
    ValsLeaveLate,
    /// A recovery continues though messages are under way.
    DoesNotDrain,
    /// A core that is interrupted holds back the line of a store that waits for its replicas.
    KeepsPins,
    /// An interrupted atomic is committed later with the value that it had read.
    KeepsAtomics,
    /// Stores that have not committed continue with the acknowledgements that they have.
    DoesNotStartOver,
    /// A store that has retired and waits for its replicas is dropped when its core halts.
    DropsAStore,
    /// Locks whose owners live are free after a recovery.
    FreesLivingLocks,
    /// In a recovery, logging units keep entries that are not validated.
    ForgetsNothing,
    /// FetchLatestVers goes to no logging unit.
    SearchesNoUnits,
    /// FetchLatestVers goes to no memory node.
    SearchesNoArchives,
    /// The logs in the memory nodes are truncated as if no node owned a line.
    TruncatesOwned,
    /// The logs in the memory nodes are truncated as if a line that is being recalled had come.
    TruncatesRecalled,
    /// Entries logged by a line's former owners count as the dead owner's.
    IgnoresEpochs,
    /// Dead nodes are not removed from directories that are invalidating readers.
    LeavesUpgrades,
    /// A directory that is repaired forgets a living owner.
    ForgetsTheLiving,
    /// Cores that were halted in a recovery are not woken when it is over.
    LeavesCoresAsleep,
    /// A round of dumps begins while the directories are repaired.
    DumpsInRepair,
    /// There is no dump at the end of a recovery.
    SavesNothing,
    /// Lines belong to the same groups as before.
    KeepsGroups,
}

/// A cluster and its threads; see the [module](self).
#[derive(Clone, Debug)]
pub struct Cluster<T> {
    threads: Box<[T]>,
    /// The cores that have threads.
    cores: Box<[Core]>,
    nodes: Box<[Node]>,
    memories: Box<[MemoryNode]>,
    memory: SharedMemory,
    fabric: Fabric,
    payloads: UnderWay<Line>,
    objects: Objects,
    messages: MessageCounts,
    /// The contents of packets.
    said: UnderWay<Says>,
    /// The counts of messages between ports.
    tally: Tally,
    /// Set since the first node died.
    failures: Option<Box<Failures>>,
    /// Set in a machine that replicates.
    logs: Option<Box<Logs>>,
    tables: &'static Tables,
    stores: &'static StoreTable,
    timing: Timing,
    sizes: WireSizes,
    protocol: Protocol,
    /// The time of the last activity.
    active: Time,
    eager_stores: usize,
    synchronisation: Synchronising,
    write_backs: usize,
    cores_per_node: usize,
    /// Lines in one interleaved piece of shared memory.
    interleave: Divisor,
    /// The number of memory nodes.
    homes: Divisor,
    /// The number of words of shared memory.
    words: u64,
    unfinished: usize,
    oracle: Option<Box<Oracle>>,
    life: Option<Box<Life>>,
    broken: Option<Breakage>,
}

impl<T: Thread> Cluster<T> {
    /// Returns a simulation of the described machine that runs a workload from time zero. The seed
    /// decides the machine's random choices.
    ///
    /// # Errors
    ///
    /// [`ClusterError`] if there is no such machine, or the workload does not fit on it.
    pub fn simulation(
        description: &Description,
        workload: Workload<T>,
        seed: u64,
    ) -> Result<Simulation<Cluster<T>>, ClusterError> {
        let cluster = Cluster::new(description, workload, seed)?;
        let cores = cluster.cores.len();
        let replicates = cluster.logs.is_some();
        let mut simulation = Simulation::new(cluster);
        if replicates {
            let first = description.logging_unit.dump_period;
            simulation.queue_mut().schedule_at(first, Event::DumpPeriod);
        }
        for core in 0..cores {
            let event = Event::Wake(core as u16);
            simulation.queue_mut().schedule_at(Time::ZERO, event);
        }
        Ok(simulation)
    }

    fn new(
        description: &Description,
        workload: Workload<T>,
        seed: u64,
    ) -> Result<Cluster<T>, ClusterError> {
        let timing = Timing::new(description).map_err(ClusterError::Impossible)?;
        let Workload {
            threads,
            image,
            synchronisation,
        } = workload;
        let system = &description.system;
        if system.compute_nodes as usize > MAX_NODES {
            return Err(ClusterError::TooManyNodes(system.compute_nodes));
        }
        let per_node = system.cores_per_node as usize;
        let cores = system.compute_nodes as usize * per_node;
        if threads.len() > cores {
            return Err(ClusterError::TooManyThreads {
                threads: threads.len(),
                cores,
            });
        }
        error::check_workload(&image, &synchronisation)?;
        let core = |c| {
            let mut core = Core::new(description, (c / per_node) as u16, (c % per_node) as u8);
            core.activity = Activity::Sleeping(Time::ZERO);
            core
        };
        let replicates = description.ours.coherence.protocol.replicates();
        let memory = SharedMemory::new(&image);
        Ok(Cluster {
            cores: (0..threads.len()).map(core).collect(),
            nodes: vec![Node::new(description); system.compute_nodes as usize].into(),
            memories: vec![MemoryNode::new(description); system.memory_nodes as usize].into(),
            words: memory.len() * Word::PER_LINE,
            memory,
            fabric: Fabric::new(description, seed),
            payloads: UnderWay::default(),
            objects: Objects::new(&synchronisation, threads.len()),
            messages: MessageCounts::default(),
            said: UnderWay::default(),
            tally: Tally::new((system.compute_nodes + system.memory_nodes) as usize),
            failures: None,
            logs: replicates.then(|| Box::new(Logs::new(description))),
            tables: Tables::mesi(),
            stores: stores(),
            timing,
            sizes: WireSizes::new(&description.ours.wire),
            protocol: description.ours.coherence.protocol,
            active: Time::ZERO,
            eager_stores: (description.ours.core.store_buffer / description.ours.core.eager_part)
                as usize,
            synchronisation: description.ours.core.synchronisation,
            write_backs: description.ours.coherence.write_back_buffer as usize,
            cores_per_node: per_node,
            interleave: Divisor::new(
                description.ours.memory.interleave.0 / size_of::<Line>() as u64,
            ),
            homes: Divisor::new(u64::from(system.memory_nodes)),
            unfinished: threads.len(),
            threads: threads.into(),
            oracle: None,
            life: None,
            broken: None,
        })
    }

    /// Has every load and commit judged from now on, which must be the beginning. A panic results
    /// from a load that gets anything but the last value in coherence order, from a store while
    /// another node can read the line, and from a commit that a replica has not logged. Commits are
    /// kept for [`check_quiet`](Self::check_quiet). For tests.
    pub fn judge_values(&mut self, image: &Image) {
        self.oracle = Some(Box::new(Oracle::new(image, self.cores.len())));
    }

    /// Builds a fault into the machine. For tests.
    pub fn break_it(&mut self, how: Breakage) {
        self.broken = Some(how);
    }

    /// Records from now on all events of a line between nodes.
    pub fn follow(&mut self, line: LineAddress) {
        let home = self.home(line);
        self.life = Some(Box::new(Life::new(line, home)));
    }

    /// Returns the events of the line that is [followed](Self::follow), each as a line of text.
    pub fn life(&self) -> Vec<String> {
        self.life.as_ref().map_or(Vec::new(), |life| life.lines())
    }

    /// Returns the thread `number`.
    pub fn thread(&self, number: usize) -> &T {
        &self.threads[number]
    }

    /// Returns whether all threads have ended and all their actions are done. Lines may still be
    /// under way to memory.
    pub fn is_finished(&self) -> bool {
        self.unfinished == 0
    }

    /// Returns the logging unit of a compute node, if the machine replicates.
    pub fn logging_unit(&self, node: NodeId) -> Option<&LoggingUnit> {
        self.logs.as_ref()?.units.get(node.index())
    }

    /// Returns the log in a memory node, if the machine replicates.
    pub fn archive(&self, memory_node: usize) -> Option<&Archive> {
        self.logs.as_ref()?.archives.get(memory_node)
    }

    /// Returns the value of a word of shared memory, wherever its line is.
    ///
    /// # Panics
    ///
    /// If shared memory has no such word.
    pub fn word(&self, word: Word) -> u64 {
        let line = word.line();
        let written = self.nodes.iter().find_map(|node| {
            let newest = matches!(
                node.agent(line),
                NodeState::E | NodeState::M | NodeState::MI
            );
            node.contents(line).filter(|_| newest)
        });
        // Contents may also be in a message to memory: then only `payloads` has them.
        written.unwrap_or_else(|| self.memory.line(line))[word.place()]
    }

    /// Returns the statistics so far.
    pub fn statistics(&self) -> Statistics {
        let ports = self.nodes.len() + self.memories.len();
        let port = |number: usize| Port(number as u16);
        let end = self.cores.iter().map(|core| core.counts.finished).max();
        Statistics {
            cores: self.cores.iter().map(|core| core.counts).collect(),
            messages: self.messages.clone(),
            uplinks: (0..ports).map(|p| self.fabric.uplink(port(p))).collect(),
            downlinks: (0..ports).map(|p| self.fabric.downlink(port(p))).collect(),
            dram: self
                .memories
                .iter()
                .map(|node| node.dram.counts())
                .collect(),
            pmem: self
                .memories
                .iter()
                .map(|node| node.pmem.counts())
                .collect(),
            local: self.nodes.iter().map(|node| node.dram.counts()).collect(),
            logging: self.logs.as_ref().map_or(Vec::new(), |logs| {
                logs.units.iter().map(LoggingUnit::counts).collect()
            }),
            archives: self.logs.as_ref().map_or(Vec::new(), |logs| {
                logs.archives.iter().map(Archive::bytes).collect()
            }),
            truncated: self.logs.as_ref().map_or(Vec::new(), |logs| {
                logs.truncations.iter().map(|one| one.done).collect()
            }),
            finished: end.filter(|_| self.is_finished()),
        }
    }

    #[inline]
    fn check_word(&self, word: Word) {
        assert!(
            word.0 < self.words,
            "a thread accesses {word:?}, and shared memory has {} words",
            self.words
        );
    }
}

/// Returns the table of a replicated store, laid out.
fn stores() -> &'static StoreTable {
    static STORES: LazyLock<StoreTable> = LazyLock::new(|| StoreTable::new(STORE));
    &STORES
}

impl<T: Thread> Machine for Cluster<T> {
    type Event = Event;

    #[inline]
    fn look_ahead(&self, event: &Event) {
        Cluster::look_ahead(self, event);
    }

    fn handle(&mut self, now: Time, event: Event, queue: &mut EventQueue<Event>) {
        if self.failures.is_some() && self.vanishes(event) {
            return;
        }
        // A dump that is due when nothing else is pending is not an activity.
        if !matches!(event, Event::DumpPeriod) || !queue.is_empty() {
            self.active = now;
        }
        match event {
            Event::Wake(c) => {
                debug_assert_eq!(self.cores[c as usize].activity, Activity::Sleeping(now));
                self.run(c as usize, now, queue);
            }
            Event::Released(c) => self.released(c as usize, now, queue),
            Event::Request { core, line } => self.request(core as usize, line, now, queue),
            Event::Message(message) => self.message(message, now, queue),
            Event::Packet(packet) => self.packet(packet, now, queue),
            Event::NextPiece { node, index } => self.next_piece(node, index, now, queue),
            Event::DumpPeriod => self.dump_period(now, queue),
            Event::Silent(node) => self.silent(NodeId::new(usize::from(node)), now, queue),
        }
    }
}

/// Runs a cluster until no event is pending. Returns when its last thread had finished.
///
/// # Errors
///
/// [`Stuck`] if threads wait for each other.
pub fn run<T: Thread>(simulation: &mut Simulation<Cluster<T>>) -> Result<Time, Stuck> {
    simulation.run();
    let cluster = simulation.machine();
    if let Some(end) = cluster.statistics().finished {
        return Ok(end);
    }
    let waits = |(c, core): (usize, &Core)| {
        (core.activity != Activity::Finished).then(|| match cluster.objects.waits_for(c as u16) {
            Some(object) => format!("thread {c} waits for {object}"),
            None => format!("thread {c} is at {:?}", core.held),
        })
    };
    Err(Stuck {
        at: cluster.active,
        threads: cluster.cores.iter().enumerate().filter_map(waits).collect(),
    })
}
