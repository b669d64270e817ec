//! The configuration manager: the node that leads a recovery.

use std::sync::Arc;

use super::message::{Ending, Recovery, RecoverySays};
use crate::cluster::event::Event;
use crate::cluster::packet::Says;
use crate::cluster::{Breakage, Cluster};
use crate::engine::{EventQueue, Time};
use crate::parts::Port;
use crate::program::Thread;
use crate::protocol::{NodeId, NodeSet};

/// The stage of a recovery, named by the answers that its manager waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::cluster) enum Stage {
    /// All messages sent are received.
    Draining,
    /// All entries of stores that start over are forgotten.
    Restarting,
    /// The directories are repaired.
    Repairing,
    /// The last dump in the old groups is saved.
    Saving,
    /// All units have the new groups.
    Regrouping,
    /// All cores continue.
    GoingOn,
    /// The recovery is over.
    Done,
}

/// A port's counts of messages sent to, and received from, each port.
#[derive(Clone, Default, Debug)]
struct Told {
    sent: Box<[u32]>,
    got: Box<[u32]>,
}

/// The progress of a recovery. One manager exists at a time: another node is chosen only when the
/// previous one has died.
#[derive(Clone, Debug)]
pub(in crate::cluster) struct Manager {
    port: Port,
    number: u32,
    dead: NodeSet,
    passed: Arc<[Box<[u32]>]>,
    stage: Stage,
    /// The ports that have not answered, one bit for each.
    awaited: u128,
    reports: Box<[Told]>,
}

impl Manager {
    fn new(
        port: Port,
        number: u32,
        dead: NodeSet,
        passed: Arc<[Box<[u32]>]>,
        ports: usize,
    ) -> Self {
        Manager {
            port,
            number,
            dead,
            passed,
            stage: Stage::Draining,
            awaited: 0,
            reports: vec![Told::default(); ports].into(),
        }
    }

    pub fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// Records an answer. Returns whether it was the last.
    fn answered(&mut self, from: Port, stage: Stage) -> bool {
        let bit = 1u128 << from.0;
        if self.stage != stage || self.awaited & bit == 0 {
            return false;
        }
        self.awaited &= !bit;
        self.awaited == 0
    }

    /// Returns whether, by the reports, no message is under way.
    ///
    /// The reports are of different moments. But a halted node acts only on the arrival of a
    /// message. So the first node that acted after its report did so on a message that its report
    /// lacks. The sender had sent this message before its own report, which therefore counts it.
    fn is_drained(&self, compute_nodes: usize) -> bool {
        let is_dead = |port: usize| port < compute_nodes && self.dead.contains(NodeId::new(port));
        let mut graves = self.passed.iter();
        (0..self.reports.len()).all(|from| {
            // The dead nodes have sent the messages that the switch let pass.
            let sent = match is_dead(from) {
                true => graves.next().unwrap_or(&self.reports[from].sent),
                false => &self.reports[from].sent,
            };
            (0..self.reports.len()).all(|to| is_dead(to) || sent[to] == self.reports[to].got[from])
        })
    }
}

impl<T: Thread> Cluster<T> {
    /// Called when the switch's interrupt has come to a core: its node leads the recovery.
    pub(super) fn lead(
        &mut self,
        port: Port,
        number: u32,
        (dead, passed): (NodeSet, Arc<[Box<[u32]>]>),
        now: Time,
        queue: &mut EventQueue<Event>,
    ) {
        let ports = self.tally.ports();
        let manager = Manager::new(port, number, dead, passed, ports);
        self.failures_mut().manager = Some(Box::new(manager));
        self.begin_stage(Stage::Draining, now, queue);
    }

    /// Sends the next request to all ports that a stage concerns.
    fn begin_stage(&mut self, stage: Stage, now: Time, queue: &mut EventQueue<Event>) {
        let (compute, ports) = (self.nodes.len(), self.tally.ports());
        let replicates = self.logs.is_some();
        let Some(manager) = &mut self.failures_mut().manager else {
            return;
        };
        manager.stage = stage;
        let (dead, number, port) = (manager.dead, manager.number, manager.port);
        let is_dead = |port: &usize| *port < compute && dead.contains(NodeId::new(*port));
        let ending = |ending| RecoverySays::RecovEnd { ending, dead };
        let (says, whom) = match stage {
            Stage::Draining => (RecoverySays::Interrupt, 0..ports),
            Stage::Restarting => (RecoverySays::Restart { dead }, 0..ports),
            Stage::Repairing => (RecoverySays::InitRecov { dead }, compute..ports),
            Stage::Saving => (ending(Ending::Save), compute..compute + 1),
            Stage::Regrouping => (ending(Ending::Regroup), 0..compute),
            Stage::GoingOn => (ending(Ending::GoOn), 0..ports),
            Stage::Done => return,
        };
        let whom: Vec<usize> = whom.filter(|port| !is_dead(port)).collect();
        manager.awaited = whom.iter().fold(0, |all, port| all | 1 << port);
        match stage {
            Stage::Saving | Stage::Regrouping if !replicates => {
                return self.next_stage(stage, now, queue);
            }
            // All cores are halted, so this is one moment for all of them.
            Stage::GoingOn => self.let_go_of(dead, now, queue),
            _ => {}
        }
        for to in whom {
            let says = says.clone();
            let recovery = Recovery { number, says };
            self.say(
                now,
                (port, Port(to as u16)),
                Says::Recovery(recovery),
                queue,
            );
        }
    }

    fn next_stage(&mut self, done: Stage, now: Time, queue: &mut EventQueue<Event>) {
        let next = match done {
            Stage::Draining => Stage::Restarting,
            Stage::Restarting => Stage::Repairing,
            Stage::Repairing => Stage::Saving,
            Stage::Saving => Stage::Regrouping,
            Stage::Regrouping => Stage::GoingOn,
            Stage::GoingOn | Stage::Done => {
                let failures = self.failures_mut();
                if let Some(manager) = &mut failures.manager {
                    manager.stage = Stage::Done;
                    failures.recovered = manager.dead;
                    failures.recoveries += 1;
                    failures.over = now;
                }
                return;
            }
        };
        let skipped = match self.broken {
            Some(Breakage::SavesNothing) => Stage::Saving,
            Some(Breakage::KeepsGroups) => Stage::Regrouping,
            _ => Stage::Done,
        };
        match next == skipped {
            true => self.next_stage(next, now, queue),
            false => self.begin_stage(next, now, queue),
        }
    }

    /// Handles an answer that has come to the manager.
    pub(super) fn told_manager(
        &mut self,
        from: Port,
        number: u32,
        says: RecoverySays,
        now: Time,
        queue: &mut EventQueue<Event>,
    ) {
        let (compute, broken) = (self.nodes.len(), self.broken);
        let Some(manager) = &mut self.failures_mut().manager else {
            return;
        };
        if manager.number != number {
            return;
        }
        let stage = match says {
            RecoverySays::InterruptResp { sent, got } => {
                manager.reports[usize::from(from.0)] = Told { sent, got };
                Stage::Draining
            }
            RecoverySays::RestartResp => Stage::Restarting,
            RecoverySays::InitRecovResp => Stage::Repairing,
            RecoverySays::RecovEndResp(Ending::Save) => Stage::Saving,
            RecoverySays::RecovEndResp(Ending::Regroup) => Stage::Regrouping,
            RecoverySays::RecovEndResp(Ending::GoOn) => Stage::GoingOn,
            _ => unreachable!("{says:?} was sent to a manager"),
        };
        if !manager.answered(from, stage) {
            return;
        }
        let again = stage == Stage::Draining
            && !manager.is_drained(compute)
            && broken != Some(Breakage::DoesNotDrain);
        match again {
            true => self.begin_stage(Stage::Draining, now, queue),
            false => self.next_stage(stage, now, queue),
        }
    }
}
