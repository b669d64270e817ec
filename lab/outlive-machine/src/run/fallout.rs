//! Deaths of nodes in a run, and their effects.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::RunError;
use super::drive::Drive;
use crate::cluster::{self, OwnedLines};
use crate::crash;
use crate::description::{Description, OwnUnit, Protocol};
use crate::engine::Time;
use crate::program::Thread;
use crate::protocol::NodeId;

/// A node that is to die.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Crash {
    /// The time.
    pub at: Time,
    /// The node.
    pub node: NodeId,
}

/// The effects of the nodes' deaths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallout {
    /// The dead nodes, in the order of their deaths. A node that is to die after the program's end
    /// does not die.
    pub deaths: Vec<Died>,
    /// When the recovery from all deaths was over; `None` if no node lives, or a program gave up
    /// before.
    pub recovered: Option<Time>,
    /// Recoveries that ended: one for several deaths, if those happen before its end.
    pub recoveries: u32,
    /// Commits that were checked: each line of a dead owner must hold its last commit.
    pub commits: u64,
    /// Lines of dead owners to which a recovery has given contents.
    pub restored: u64,
    /// Lines that do not hold their last commit.
    pub lost: Vec<String>,
    /// The final state of the threads on living nodes.
    pub living: Living,
    /// The most nodes that died before the recovery from the first of them was over.
    pub together: usize,
    /// Whether the machine promises that nothing is lost by these deaths.
    pub promised: bool,
}

/// A node's death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Died {
    /// The node and the time.
    pub crash: Crash,
    /// The lines that it owned.
    pub owned: OwnedLines,
}

/// The final state of the threads on the nodes that live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Living {
    /// They have ended.
    Ended,
    /// There are no such threads.
    Nobody,
    /// They wait for dead threads: each one, and the object that it waits for.
    Wait(Vec<String>),
    /// The run was stopped before that, as requested.
    Left,
    /// The code of one has found data that dead nodes left incomplete, and gave up.
    GaveUp(String),
}

impl Fallout {
    /// Returns whether all commits before a death are there after it: a recovery has ended, and has
    /// lost nothing.
    pub fn is_whole(&self) -> bool {
        self.lost.is_empty() && (self.recovered.is_some() || self.deaths.is_empty())
    }
}

/// Returns whether a machine guarantees that nothing is lost if `deaths` of the `living` nodes die
/// before a recovery is over.
fn outlives(description: &Description, deaths: usize, living: usize) -> bool {
    let factor = description.logging_unit.replication_factor as usize;
    let skipped = description.ours.replication.own_unit == OwnUnit::Skipped;
    match description.ours.coherence.protocol {
        // At least one node must be left to recover.
        _ if deaths >= living => false,
        Protocol::WriteBack => false,
        Protocol::WriteThrough => true,
        _ => deaths < factor || skipped && factor >= living - 1,
    }
}

impl<T: Thread> Drive<'_, '_, T> {
    /// Runs to the ends of the threads that end, while nodes die.
    pub(super) fn endure(&mut self) -> Result<Fallout, RunError> {
        let mut crashes = self.run.crashes.clone();
        crashes.sort_unstable();
        let mut deaths: Vec<Died> = Vec::new();
        // The living nodes when the last recovery ended, and the deaths since.
        let mut living = self.run.description.system.compute_nodes as usize;
        let (mut since, mut together, mut promised) = (0, 0, true);
        // A program's code may panic on data that dead nodes left incomplete, even before the next
        // node dies.
        let end = crash::judging(|| {
            catch_unwind(AssertUnwindSafe(|| {
                for crash in crashes {
                    self.reach(crash.at)?;
                    if !self.simulation.machine().is_finished() {
                        // The other threads may all wait for dead ones.
                        self.simulation.run_until(crash.at);
                    }
                    let machine = self.simulation.machine();
                    if machine.is_finished() || machine.dead().contains(crash.node) {
                        continue;
                    }
                    if deaths.is_empty() && self.simulation.queue().is_empty() {
                        // They wait for each other, not for a dead node.
                        cluster::run(&mut self.simulation)?;
                    }
                    let machine = self.simulation.machine();
                    if machine.is_recovered() {
                        living -= since;
                        since = 0;
                    }
                    since += 1;
                    together = together.max(since);
                    promised &= outlives(self.run.description, since, living);
                    let owned = machine.owned_lines(crash.node);
                    cluster::crash(&mut self.simulation, crash.node, 0);
                    deaths.push(Died { crash, owned });
                }
                while !self.simulation.machine().is_recovered() && self.simulation.step() {
                    self.tell()?;
                }
                self.finish()
            }))
        });
        let ended = match end {
            Ok(whole) => match whole? {
                _ if self.simulation.machine().is_extinct() => Living::Nobody,
                false => Living::Left,
                true => match cluster::run(&mut self.simulation) {
                    Ok(_) => Living::Ended,
                    Err(stuck) if deaths.is_empty() => return Err(stuck.into()),
                    Err(stuck) => Living::Wait(stuck.threads),
                },
            },
            Err(panic) => match crash::told(&*panic) {
                // A program may well panic on data that dead nodes have left.
                what if crash::is_of_a_program(&what) && !deaths.is_empty() => Living::GaveUp(what),
                what => return Err(RunError::Contradiction(what)),
            },
        };
        let machine = self.simulation.machine();
        let recovered = machine.recovered_at();
        let judged = machine.judged().unwrap_or_default();
        if recovered.is_some()
            && let Err(what) = machine.check_recovered()
            && judged.lost.first() != Some(&what)
        {
            return Err(RunError::Contradiction(what));
        }
        if let (Some(_), Living::Wait(_)) = (recovered, &ended) {
            machine.check_waits().map_err(RunError::Contradiction)?;
        }
        Ok(Fallout {
            recovered,
            deaths,
            recoveries: machine.recoveries(),
            commits: judged.commits,
            restored: judged.restored,
            lost: judged.lost,
            living: ended,
            together,
            promised,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_than_there_are_replicas_may_die_before_a_recovery_is_over() {
        let mut description = Description::default();
        let mut promised = |protocol, own_unit| {
            description.ours.coherence.protocol = protocol;
            description.ours.replication.own_unit = own_unit;
            let description = description.clone();
            move |deaths, living| outlives(&description, deaths, living)
        };
        let counts = promised(Protocol::Proactive, OwnUnit::Counts);
        assert!(counts(2, 16) && !counts(3, 16));
        assert!(counts(2, 3) && !counts(3, 4) && counts(1, 2) && !counts(1, 1));
        // With so few living nodes, all others log a store.
        let skipped = promised(Protocol::Baseline, OwnUnit::Skipped);
        assert!(skipped(2, 16) && !skipped(3, 16) && skipped(3, 4) && !skipped(4, 4));
        assert!(!promised(Protocol::WriteBack, OwnUnit::Counts)(1, 16));
        let through = promised(Protocol::WriteThrough, OwnUnit::Counts);
        assert!(through(15, 16) && !through(16, 16));
    }
}
