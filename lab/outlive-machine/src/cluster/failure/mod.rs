//! Deaths of nodes, and the recovery from them, in simulated time.
//!
//! A [crash](crash) takes a compute node at any event, with its threads, caches, store buffers and
//! logging unit. Its messages arrive, except some of the last ones that have not come to the
//! switch; no message is lost from the middle. Messages to it vanish. All other nodes continue, and
//! soon some of them wait for the dead node.
//!
//! When a port has been silent for the [latency](crate::description::Failure) of detection, the
//! switch sets its Viral_Status and interrupts a core of the living node with the lowest number;
//! that node leads. [`replication`](crate::protocol::replication) describes its actions and why
//! nothing is lost. This module has the messages (the paper's Table I), all of them over the same
//! links as everything else:
//!
//! | message | who answers, and when |
//! | --- | --- |
//! | MSI | none; it lists the dead nodes, and their messages that the switch has let pass |
//! | Interrupt | all nodes at once, with counts of messages; repeated until all are received |
//! | Restart (ours) | all: stores restart; unvalidated entries and dead nodes' dumps are dropped |
//! | InitRecov | memory nodes, after all answers to FetchLatestVers and the repair of directories |
//! | RecovEnd: save | the memory node that leads rounds of dumps, after one that began now |
//! | RecovEnd: regroup | compute nodes: their units have the new groups |
//! | RecovEnd: go on | all |
//!
//! The end has three parts, since a core that continues may commit a store, and a unit that still
//! has the old groups would save (or leave to others) entries that belong to the new ones. If the
//! leader died between the two, the members of the round of dumps in the next recovery would not
//! agree on who saves which entries.
//!
//! A node that dies during a recovery is detected as before, and with the switch's next interrupt
//! everything begins anew, under a higher number; messages of a lower number are ignored.
//!
//! # Assumptions
//!
//! Detection is exact: the time runs from the death, no living node is suspected, however few
//! messages it sends, and the interrupt waits until the last of the dead node's messages is at the
//! switch. A real switch cannot see into a dead node's link; it would cut the port off when it
//! raises the interrupt, and count the messages that have passed by then. A recovery takes time for
//! messages, for reading logs and for the directory entries that name dead nodes; finding those
//! entries among the others takes none.
//!
//! # Obligations of dead threads to other threads
//!
//! The machine settles them, as robust locks of an operating system would; ReCXL has no mechanism
//! for them.
//!
//! A dead thread's locks are released: the next waiter gets the lock, and finds the word as the
//! dead thread left it. A barrier continues without the thread: if all others have arrived, one of
//! them arrives once more, as the last. (A thread takes part in a barrier if all threads do, or if
//! it has arrived there before.) Waiters for a condition are woken, and check whether it holds; but
//! the thread that would have signalled it may be dead, and a program that needs the signal does
//! not end. Event counts block no thread any more.

mod judge;
mod manager;
mod member;
mod message;
mod repair;
mod tally;

use std::sync::Arc;

pub(super) use judge::Journal;
pub use judge::Judged;
pub(super) use message::Recovery;
pub(super) use tally::Tally;

use super::Cluster;
use super::event::{Event, Message, MessageKind, Stage};
use super::packet::{Packet, Says};
use super::under_way::Payload;
use crate::description::Synchronising;
use crate::engine::{EventQueue, Simulation, Time};
use crate::parts::Port;
use crate::program::Thread;
use crate::protocol::{NodeId, NodeSet, ReplicatedTables};
use manager::Manager;
use message::{Ending, RecoverySays};
use repair::Handler;

/// A port's role in recoveries.
#[derive(Clone, Copy, Debug)]
struct Seat {
    /// The number of the last recovery that it knows.
    number: u32,
    /// The leader of that recovery.
    manager: Port,
    /// Whether it is not over: a compute node is halted, and a memory node begins no rounds of
    /// dumps.
    takes_part: bool,
}

/// The state that exists once a node has died.
#[derive(Clone, Debug)]
pub(super) struct Failures {
    dead: NodeSet,
    /// The dead nodes that the switch has detected.
    detected: NodeSet,
    /// For each dead node, the number of its messages in all that come to the switch.
    passes: Vec<(NodeId, u64)>,
    /// The number of the last interrupt that the switch has raised.
    interrupts: u32,
    manager: Option<Box<Manager>>,
    seats: Box<[Seat]>,
    handlers: Box<[Handler]>,
    /// The final dump is requested, by this port; whether a round has begun since.
    saving: Option<(Port, bool)>,
    /// The dead nodes that a completed recovery has handled.
    recovered: NodeSet,
    recoveries: u32,
    /// The time at which the last recovery ended.
    over: Time,
}

/// Kills a compute node now, between the last event and the next. Of the messages that it sent last
/// and that are not at the switch yet, the last `lost` never arrive there; all others arrive. A
/// node that is already dead stays dead.
///
/// The machine detects the death and recovers by itself as it is run on. If as many nodes are dead
/// at once as stores have replicas, stores may be lost; in a machine that does not replicate, they
/// are. If no node is left alive, nothing more happens.
///
/// # Panics
///
/// If locks and barriers would be lost: where they are
/// [events](crate::description::Synchronising::Events), or [left
/// out](crate::description::Synchronising::LeftOut) of what is replicated.
///
/// ```
/// use outlive_machine::cluster::{self, Cluster, Workload};
/// use outlive_machine::description::Description;
/// use outlive_machine::program::{Image, Op, Script, Synchronisation, Word};
/// use outlive_machine::protocol::NodeId;
///
/// let text = "[system]\ncompute_nodes = 4\nmemory_nodes = 1\ncores_per_node = 1\n[l3]\nsize = \"64 KiB\"
///     [ours.coherence]\nprotocol = \"recxl-proactive\"";
/// let description: Description = text.parse()?;
/// let threads = vec![
///     Script::new([Op::Store(Word(0), 42)]),
///     Script::new([Op::Compute(100_000), Op::Load(Word(0))]),
/// ];
/// let image = Image { words: 8, ..Image::default() };
/// let workload = Workload { threads, image, synchronisation: Synchronisation::default() };
/// let mut simulation = Cluster::simulation(&description, workload, 1)?;
/// // The store is committed after less than a microsecond, and only its node has seen it.
/// simulation.run_until(outlive_machine::engine::Time::from_micros(2));
/// cluster::crash(&mut simulation, NodeId::new(0), 0);
/// cluster::run(&mut simulation)?;
/// assert_eq!(simulation.machine().thread(1).results(), [42]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn crash<T: Thread>(simulation: &mut Simulation<Cluster<T>>, node: NodeId, lost: u64) {
    let now = simulation.now();
    let (cluster, queue) = simulation.parts_mut();
    assert!(
        cluster.can_be_crashed(),
        "locks and barriers would be lost with their nodes, so no node may fail"
    );
    cluster.crash(node, lost, now, queue);
}

impl<T: Thread> Cluster<T> {
    fn can_be_crashed(&self) -> bool {
        match self.synchronisation {
            Synchronising::Replicated => true,
            Synchronising::LeftOut => !self.protocol.replicates(),
            Synchronising::Events => false,
        }
    }

    fn crash(&mut self, node: NodeId, lost: u64, now: Time, queue: &mut EventQueue<Event>) {
        let (ports, memories) = (self.tally.ports(), self.memories.len());
        let failures = self.failures.get_or_insert_with(|| {
            let seat = Seat {
                number: 0,
                manager: Port(0),
                takes_part: false,
            };
            Box::new(Failures {
                dead: NodeSet::EMPTY,
                detected: NodeSet::EMPTY,
                passes: Vec::new(),
                interrupts: 0,
                manager: None,
                seats: vec![seat; ports].into(),
                handlers: vec![Handler::default(); memories].into(),
                saving: None,
                recovered: NodeSet::EMPTY,
                recoveries: 0,
                over: Time::ZERO,
            })
        });
        if failures.dead.contains(node) {
            return;
        }
        failures.dead = failures.dead.with(node);
        let port = self.fabric.compute_node(node.index() as u16);
        let (sent, there) = (
            self.fabric.uplink(port).messages,
            self.tally.at_switch(port),
        );
        let passes = sent - lost.min(sent - there);
        failures.passes.push((node, passes));
        // A line may have a single reader from now on.
        self.tables = &ReplicatedTables::recxl().coherence;
        self.judge_death(node, passes);
        self.lose_node(node);
        if let Some(logs) = &mut self.logs {
            logs.lose_share(node);
        }
        let latency = self.timing.detection;
        queue.schedule_at(now + latency, Event::Silent(node.index() as u8));
    }

    /// Returns the dead nodes.
    pub fn dead(&self) -> NodeSet {
        self.failures
            .as_ref()
            .map_or(NodeSet::EMPTY, |failures| failures.dead)
    }

    /// Returns the number of completed recoveries.
    pub fn recoveries(&self) -> u32 {
        self.failures
            .as_ref()
            .map_or(0, |failures| failures.recoveries)
    }

    /// Returns the time at which the recovery from all deaths so far ended; `None` if it has not
    /// ended, or no node has died.
    pub fn recovered_at(&self) -> Option<Time> {
        let failures = self.failures.as_ref()?;
        self.is_recovered().then_some(failures.over)
    }

    /// Returns whether no living node has a thread.
    pub fn is_extinct(&self) -> bool {
        let mut cores = self.cores.iter();
        cores.all(|core| self.dead().contains(NodeId::new(core.node.into())))
    }

    /// Returns the time of the last activity.
    pub fn last_active(&self) -> Time {
        self.active
    }

    /// Returns whether a recovery has handled all dead nodes, and all nodes know of it.
    pub fn is_recovered(&self) -> bool {
        self.failures.as_ref().is_none_or(|failures| {
            failures.recovered == failures.dead
                && failures
                    .manager
                    .as_ref()
                    .is_none_or(|manager| manager.is_done())
        })
    }

    pub(super) fn failures_mut(&mut self) -> &mut Failures {
        self.failures.as_mut().expect("a node has died")
    }

    #[inline]
    pub(super) fn is_dead(&self, port: Port) -> bool {
        match &self.failures {
            None => false,
            Some(failures) => {
                usize::from(port.0) < self.nodes.len()
                    && failures.dead.contains(NodeId::new(usize::from(port.0)))
            }
        }
    }

    /// Returns whether an event no longer has an effect, because it is of a dead node or goes to
    /// one. Called only after a death.
    pub(super) fn vanishes(&mut self, event: Event) -> bool {
        let of_core = |c: u16| Port(self.cores[usize::from(c)].node);
        match event {
            Event::Wake(c) | Event::Released(c) | Event::Request { core: c, .. } => {
                self.is_dead(of_core(c))
            }
            Event::NextPiece { node, .. } => self.is_dead(Port(u16::from(node))),
            Event::Message(message) => {
                let up = message.what.is_upward();
                let dead = self.is_dead(Port(u16::from(message.node)));
                let vanishes = dead
                    && match message.stage {
                        Stage::Ready => up,
                        Stage::Switch => false,
                        Stage::There => !up,
                    };
                if vanishes {
                    self.lose_message(message);
                }
                vanishes
            }
            Event::Packet(packet) => {
                let vanishes = match packet.stage() {
                    Stage::Ready => self.is_dead(packet.from()),
                    Stage::Switch => false,
                    Stage::There => self.is_dead(packet.to()),
                };
                if vanishes {
                    self.lose_packet(packet);
                }
                vanishes
            }
            Event::DumpPeriod | Event::Silent(_) => false,
        }
    }

    pub(super) fn lose_message(&mut self, message: Message) {
        if message.payload != Payload::NONE {
            self.payloads.take(message.payload);
        }
    }

    /// Counts a message that comes to the switch. Returns whether its dead sender has lost it.
    #[inline]
    pub(super) fn is_lost_at_switch(&mut self, from: Port) -> bool {
        self.tally.reach_switch(from);
        let Some(failures) = &self.failures else {
            return false;
        };
        let mut graves = failures.passes.iter();
        graves.any(|(node, passes)| {
            node.index() == usize::from(from.0) && self.tally.at_switch(from) > *passes
        })
    }

    /// Handles the time-out of a dead node's port; waits again if messages were on the way.
    pub(super) fn silent(&mut self, node: NodeId, now: Time, queue: &mut EventQueue<Event>) {
        let port = self.compute_port(node);
        if self.tally.at_switch(port) < self.fabric.uplink(port).messages {
            let again = now + self.timing.detection;
            queue.schedule_at(again, Event::Silent(node.index() as u8));
            return;
        }
        let nodes = self.nodes.len();
        let failures = self.failures_mut();
        failures.detected = failures.detected.with(node);
        failures.interrupts += 1;
        let (dead, number) = (failures.detected, failures.interrupts);
        // If this node has died too, its death will be detected, and another is interrupted.
        let Some(first) = (0..nodes)
            .map(NodeId::new)
            .find(|node| !dead.contains(*node))
        else {
            return;
        };
        let rows = dead
            .iter()
            .map(|node| self.tally.passed_from(self.compute_port(node)).into());
        let passed: Arc<[Box<[u32]>]> = rows.collect();
        let says = RecoverySays::Msi { dead, passed };
        let recovery = Recovery { number, says };
        self.interrupt_core(self.compute_port(first), recovery, now, queue);
    }

    /// Sends a message of a recovery.
    fn recover_by(
        &mut self,
        at: Time,
        ways: (Port, Port),
        number: u32,
        says: RecoverySays,
        queue: &mut EventQueue<Event>,
    ) {
        self.say(at, ways, Says::Recovery(Recovery { number, says }), queue);
    }

    /// Handles a message of a recovery that has come to a port.
    pub(super) fn recovery(
        &mut self,
        (from, port): (Port, Port),
        recovery: Recovery,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) {
        let Recovery { number, says } = recovery;
        let p = usize::from(port.0);
        if number < self.failures_mut().seats[p].number {
            return;
        }
        let compute = p < self.nodes.len();
        match says {
            RecoverySays::Msi { dead, passed } => {
                self.lead(port, number, (dead, passed), now, queue);
            }
            RecoverySays::Interrupt => {
                let seat = Seat {
                    number,
                    manager: from,
                    takes_part: true,
                };
                let before = std::mem::replace(&mut self.failures_mut().seats[p], seat);
                if compute && !before.takes_part {
                    self.halt(p, now, queue);
                }
                if before.number < number && !compute {
                    let m = p - self.nodes.len();
                    let failures = self.failures_mut();
                    failures.handlers[m] = Handler::default();
                    failures.saving = None;
                }
                let says = RecoverySays::InterruptResp {
                    sent: self.tally.sent_by(port).into(),
                    got: self.tally.got_by(port).into(),
                };
                self.recover_by(now, (port, from), number, says, queue);
            }
            RecoverySays::Restart { dead } => {
                self.forget(port, dead, now, queue);
                self.recover_by(now, (port, from), number, RecoverySays::RestartResp, queue);
            }
            RecoverySays::InitRecov { dead } => self.begin_repair(port, number, dead, now, queue),
            RecoverySays::FetchLatestVers { lines } => {
                self.search_log((port, from), number, &lines, now, queue);
            }
            RecoverySays::FetchLatestVersResp { updates } => {
                self.found((port, from), number, &updates, now, queue);
            }
            RecoverySays::RecovEnd { ending, dead } => match ending {
                Ending::Save => {
                    self.failures_mut().saving = Some((from, false));
                    self.dump_anew(now, queue);
                }
                Ending::Regroup => {
                    self.regroup_unit(p, dead, now);
                    let says = RecoverySays::RecovEndResp(Ending::Regroup);
                    self.recover_by(now, (port, from), number, says, queue);
                }
                Ending::GoOn => {
                    self.failures_mut().seats[p].takes_part = false;
                    if compute {
                        self.go_on_with(p, now, queue);
                    }
                    let says = RecoverySays::RecovEndResp(Ending::GoOn);
                    self.recover_by(now, (port, from), number, says, queue);
                }
            },
            says => self.told_manager(from, number, says, now, queue),
        }
    }

    /// Handles Restart: only messages and operations that wait for dead nodes are left.
    fn forget(&mut self, port: Port, dead: NodeSet, now: Time, queue: &mut EventQueue<Event>) {
        let (p, nodes) = (usize::from(port.0), self.nodes.len());
        match p.checked_sub(nodes) {
            None => {
                self.start_over(p, now);
                self.forget_unvalidated(p, now);
            }
            Some(m) => self.lose_dumps_of(dead, m, now, queue),
        }
    }

    /// Returns whether the memory node that leads rounds of dumps takes part in a recovery.
    pub(super) fn dumps_are_held(&self) -> bool {
        let leader = self.nodes.len();
        let failures = self.failures.as_ref();
        failures.is_some_and(|failures| failures.seats[leader].takes_part)
    }

    /// Records that a round of dumps begins.
    pub(super) fn dump_begins(&mut self) {
        if let Some(failures) = &mut self.failures
            && let Some((_, begun)) = &mut failures.saving
        {
            *begun = true;
        }
    }

    /// Answers the manager if the round of dumps that a recovery waits for is over.
    pub(super) fn saved_all(&mut self, now: Time, queue: &mut EventQueue<Event>) {
        let idle = self
            .logs
            .as_ref()
            .is_some_and(|logs| logs.is_between_rounds());
        let leader = self.nodes.len();
        let Some(failures) = &mut self.failures else {
            return;
        };
        if let Some((manager, true)) = failures.saving
            && idle
        {
            failures.saving = None;
            let number = failures.seats[leader].number;
            let says = RecoverySays::RecovEndResp(Ending::Save);
            self.recover_by(now, (Port(leader as u16), manager), number, says, queue);
        }
    }

    /// Ends a recovery: forms the groups of the living nodes, and settles the obligations of dead
    /// threads.
    fn let_go_of(&mut self, dead: NodeSet, now: Time, queue: &mut EventQueue<Event>) {
        self.form_groups(dead);
        let per_node = self.cores_per_node;
        let is_dead = |thread: u16| dead.contains(NodeId::new(usize::from(thread) / per_node));
        let mut settled = self.objects.bury(is_dead);
        if self.broken == Some(super::Breakage::FreesLivingLocks) {
            settled.released.extend(self.objects.free_all_locks());
        }
        for c in settled.arrive_again {
            self.cores[usize::from(c)].serial = super::serialised::Serial::default();
            queue.schedule_at(now, Event::Released(c));
        }
        for c in settled.released {
            queue.schedule_at(now, Event::Released(c));
        }
    }
}

/// Returns whether messages of this kind count in the check that nothing is under way.
pub(super) fn is_counted(kind: MessageKind) -> bool {
    kind < MessageKind::Msi
}

/// A packet at or before the switch counts as under way; one that vanishes frees its contents.
impl<T: Thread> Cluster<T> {
    fn lose_packet(&mut self, packet: Packet) {
        self.said.take(packet.says());
    }
}
