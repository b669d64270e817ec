//! A memory node's actions in a recovery: it repairs its directories (the paper's Algorithm 1), and
//! searches its logs.

use super::message::RecoverySays;
use crate::cluster::event::{Event, Message, Stage, What};
use crate::cluster::under_way::Payload;
use crate::cluster::{Breakage, Cluster};
use crate::engine::{EventQueue, Time};
use crate::line::LineAddress;
use crate::logging::{Epoch, LatestWords, LogEntry};
use crate::parts::Port;
use crate::program::Thread;
use crate::protocol::{
    Directory, DirectoryAction, DirectoryState, NodeId, NodeSet, Record, ReplicatedTables, ToNode,
};

/// The state of a memory node in a recovery.
#[derive(Clone, Default, Debug)]
pub(in crate::cluster) struct Handler {
    dead: NodeSet,
    /// The ports that have not sent their entries, one bit for each.
    awaited: u128,
    /// The latest known words of the lines that dead nodes own, by rising address.
    latest: Vec<(LineAddress, LatestWords)>,
}

impl Handler {
    /// Takes the entries of a log into account.
    fn offer(&mut self, updates: &[LogEntry], broken: Option<Breakage>) {
        for entry in updates {
            let line = entry.word.line();
            let Ok(at) = self.latest.binary_search_by_key(&line, |(line, _)| *line) else {
                continue;
            };
            let latest = &mut self.latest[at].1;
            match broken {
                Some(Breakage::IgnoresEpochs) => latest.offer(&LogEntry {
                    epoch: latest.epoch(),
                    ..*entry
                }),
                _ => latest.offer(entry),
            }
        }
    }
}

impl<T: Thread> Cluster<T> {
    /// Handles InitRecov: finds the lines that dead nodes own, and asks all logs for them.
    pub(super) fn begin_repair(
        &mut self,
        port: Port,
        number: u32,
        dead: NodeSet,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) {
        let m = usize::from(port.0) - self.nodes.len();
        let owned = |line: &LineAddress| {
            let owner = self.memory.directory(*line).owner();
            owner
                .filter(|(node, _)| dead.contains(*node))
                .map(|(node, epoch)| (*line, LatestWords::new(*line, node, epoch)))
        };
        let latest: Vec<_> = self.lines_of(m).filter_map(|line| owned(&line)).collect();
        let lines: Vec<LineAddress> = latest.iter().map(|(line, _)| *line).collect();
        let mut handler = Handler {
            dead,
            awaited: 0,
            latest,
        };
        if !lines.is_empty() && self.logs.is_some() {
            let (units, compute) = (self.nodes.len(), self.nodes.len());
            let ask = |other: &usize| match *other < units {
                true => {
                    !dead.contains(NodeId::new(*other))
                        && self.broken != Some(Breakage::SearchesNoUnits)
                }
                false => self.broken != Some(Breakage::SearchesNoArchives),
            };
            let asked: Vec<usize> = (0..compute + self.memories.len()).filter(ask).collect();
            handler.awaited = asked.iter().fold(0, |all, port| all | 1 << port);
            self.failures_mut().handlers[m] = handler;
            let lines: std::sync::Arc<[LineAddress]> = lines.into();
            for other in asked {
                let says = RecoverySays::FetchLatestVers {
                    lines: lines.clone(),
                };
                self.recover_by(now, (port, Port(other as u16)), number, says, queue);
            }
        } else {
            self.failures_mut().handlers[m] = handler;
        }
        self.repair_if_known(port, number, now, queue);
    }

    /// Handles FetchLatestVers, in a compute node (the paper's Algorithm 2) or in a memory node.
    pub(super) fn search_log(
        &mut self,
        (port, from): (Port, Port),
        number: u32,
        lines: &[LineAddress],
        now: Time,
        queue: &mut EventQueue<Event>,
    ) {
        let compute = self.nodes.len();
        let logs = self.logs_mut();
        let (versions, done) = match usize::from(port.0).checked_sub(compute) {
            None => {
                let unit = &logs.units[usize::from(port.0)];
                (unit.fetch(lines), now + unit.traversal())
            }
            Some(m) => {
                let archive = &logs.archives[m];
                let found = match archive.fetch(lines) {
                    Ok(found) => found,
                    Err(error) => panic!("memory node {m}, at {now}: {error}"),
                };
                let bytes = archive.bytes();
                (found, self.memories[m].go_through(bytes, now))
            }
        };
        let updates = versions.into_iter().flat_map(|line| line.updates).collect();
        let says = RecoverySays::FetchLatestVersResp { updates };
        self.recover_by(done, (port, from), number, says, queue);
    }

    /// Handles FetchLatestVersResp.
    pub(super) fn found(
        &mut self,
        (port, from): (Port, Port),
        number: u32,
        updates: &[LogEntry],
        now: Time,
        queue: &mut EventQueue<Event>,
    ) {
        let (m, broken) = (usize::from(port.0) - self.nodes.len(), self.broken);
        let handler = &mut self.failures_mut().handlers[m];
        handler.offer(updates, broken);
        handler.awaited &= !(1 << from.0);
        self.repair_if_known(port, number, now, queue);
    }

    /// When all logs have answered, removes the dead nodes from each directory that names them.
    fn repair_if_known(
        &mut self,
        port: Port,
        number: u32,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) {
        let m = usize::from(port.0) - self.nodes.len();
        let handler = &mut self.failures_mut().handlers[m];
        if handler.awaited != 0 {
            return;
        }
        let Handler { dead, latest, .. } = std::mem::take(handler);
        let lines: Vec<LineAddress> = self.lines_of(m).collect();
        let mut at = now;
        for line in lines {
            if self.memory.directory(line).names_any(dead) {
                at += self.timing.directory;
                let known = latest.binary_search_by_key(&line, |(line, _)| *line);
                let known = known.ok().map(|place| latest[place].1);
                self.bury(line, dead, known, at, queue);
            } else if self.broken == Some(Breakage::ForgetsTheLiving) {
                let record = self.memory.directory(line).record();
                if let Some(Record { epoch, .. }) = record {
                    let nobody = Record {
                        epoch,
                        ..Record::default()
                    };
                    self.memory.set_directory(line, nobody.into());
                }
            }
        }
        let manager = self.failures_mut().seats[usize::from(port.0)].manager;
        self.recover_by(
            at,
            (port, manager),
            number,
            RecoverySays::InitRecovResp,
            queue,
        );
    }

    /// Removes the dead nodes from the directory of a line, and updates the line if one of them
    /// owned it.
    fn bury(
        &mut self,
        line: LineAddress,
        dead: NodeSet,
        latest: Option<LatestWords>,
        at: Time,
        queue: &mut EventQueue<Event>,
    ) {
        let directory = self.memory.directory(line);
        if self.broken == Some(Breakage::LeavesUpgrades)
            && matches!(directory.state(), DirectoryState::SX | DirectoryState::SU)
        {
            return;
        }
        let tables = ReplicatedTables::recxl();
        let directories = &tables.coherence.directory;
        let step = match tables.burial.bury(directories, &directory, dead, (), ()) {
            Ok(step) => step,
            Err(error) => panic!("{line} at {at}: {error}"),
        };
        if let Some(life) = &mut self.life {
            life.buried(at, line, dead, &directory, &step.directory);
        }
        self.memory.set_directory(line, step.directory);
        for action in step.actions() {
            match action {
                DirectoryAction::WriteMemory(()) => {
                    if let Some(latest) = &latest {
                        latest.apply(self.memory.line_mut(line));
                    }
                    let home = self.home(line);
                    self.memories[home].dram.access(at, line);
                }
                DirectoryAction::Send(to, what) => {
                    self.send_buried(line, &step.directory, to, what, at, queue);
                }
            }
        }
        if let Some((owner, _)) = directory.owner().filter(|(node, _)| dead.contains(*node)) {
            let contents = *self.memory.line(line);
            if let Some(oracle) = &mut self.oracle {
                oracle.recovered(line, owner, &contents);
            }
        }
    }

    /// Sends a message of a repaired directory; one with contents leaves when memory has been read.
    fn send_buried(
        &mut self,
        line: LineAddress,
        directory: &Directory,
        to: NodeSet,
        what: ToNode<()>,
        at: Time,
        queue: &mut EventQueue<Event>,
    ) {
        let home = self.home(line);
        let exclusive = matches!(
            what,
            ToNode::GrantE(()) | ToNode::GrantM(()) | ToNode::GrantUpgrade
        );
        for node in to.iter() {
            let (payload, ready) = match what.data() {
                None => (Payload::NONE, at),
                Some(()) => (
                    self.payloads.put(*self.memory.line(line)),
                    self.memories[home].dram.access(at, line),
                ),
            };
            let message = Message {
                line,
                payload,
                epoch: if exclusive {
                    directory.epoch()
                } else {
                    Epoch::default()
                },
                node: node.index() as u8,
                stage: Stage::Ready,
                what: What::Down(what),
            };
            self.send_later(message, ready, queue);
        }
    }

    /// Returns the lines of a memory node.
    fn lines_of(&self, m: usize) -> impl Iterator<Item = LineAddress> + use<T> {
        let (piece, all) = (self.interleave.get(), self.memory.len());
        let count = self.memories.len() as u64;
        let pieces = (m as u64 * piece..all).step_by((piece * count) as usize);
        pieces.flat_map(move |first| (first..(first + piece).min(all)).map(LineAddress))
    }
}
