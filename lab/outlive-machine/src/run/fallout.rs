//! Nodes that die in a run, and what came of it.

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
    /// When.
    pub at: Time,
    /// Which.
    pub node: NodeId,
}

/// What came of the nodes' deaths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallout {
    /// Who has died, in the order of the deaths. A node that is to die after the program's end does not.
    pub deaths: Vec<Died>,
    /// When the recovery from all of them was over. There is none if nobody lives, or a program has given up before.
    pub recovered: Option<Time>,
    /// Recoveries that came to their end: one for several deaths, if those happen before its end.
    pub recoveries: u32,
    /// Commits that were judged: each line of the dead must hold what was committed to it last.
    pub commits: u64,
    /// Lines that the dead owned, and to which a recovery has given contents.
    pub restored: u64,
    /// Lines that do not hold what was committed to them.
    pub lost: Vec<String>,
    /// What became of the others' threads.
    pub living: Living,
    /// The most nodes that died before the recovery from the first of them was over.
    pub together: usize,
    /// Whether the machine promises that nothing is lost by these deaths.
    pub promised: bool,
}

/// A node's death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Died {
    /// Who and when.
    pub crash: Crash,
    /// What was its alone.
    pub owned: OwnedLines,
}

/// What became of the threads of the nodes that live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Living {
    /// They have come to their end.
    Ended,
    /// There are none.
    Nobody,
    /// They wait for what the dead were to do: each, and for what.
    Wait(Vec<String>),
    /// The run was left off before that, as was wanted.
    Left,
    /// The code of one has met what the dead have left half done, and gave up.
    GaveUp(String),
}

impl Fallout {
    /// Whether all that was committed before a death is there after it: there was a recovery, and it has lost nothing.
    pub fn is_whole(&self) -> bool {
        self.lost.is_empty() && (self.recovered.is_some() || self.deaths.is_empty())
    }
}

/// Whether a machine promises that nothing is lost if so many of the nodes that live die before a recovery is over.
fn outlives(description: &Description, deaths: usize, living: usize) -> bool {
    let factor = description.logging_unit.replication_factor as usize;
    let skipped = description.ours.replication.own_unit == OwnUnit::Skipped;
    match description.ours.coherence.protocol {
        // Somebody has to be left who recovers.
        _ if deaths >= living => false,
        Protocol::WriteBack => false,
        Protocol::WriteThrough => true,
        _ => deaths < factor || skipped && factor >= living - 1,
    }
}

impl<T: Thread> Drive<'_, '_, T> {
    /// Runs to the ends of the threads, as far as those come to one, while nodes die.
    pub(super) fn endure(&mut self) -> Result<Fallout, RunError> {
        let mut crashes = self.run.crashes.clone();
        crashes.sort_unstable();
        let mut deaths: Vec<Died> = Vec::new();
        // Since all were well for the last time: who lived then, and who has died since.
        let mut living = self.run.description.system.compute_nodes as usize;
        let (mut since, mut together, mut promised) = (0, 0, true);
        // A program's code may panic, on what the dead have left half done; also before the next of them dies.
        let end = crash::judging(|| {
            catch_unwind(AssertUnwindSafe(|| {
                for crash in crashes {
                    self.reach(crash.at)?;
                    if !self.simulation.machine().is_finished() {
                        // Who is left may wait for the dead.
                        self.simulation.run_until(crash.at);
                    }
                    let machine = self.simulation.machine();
                    if machine.is_finished() || machine.dead().contains(crash.node) {
                        continue;
                    }
                    if deaths.is_empty() && self.simulation.queue().is_empty() {
                        // No death is what they wait for.
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
                // On what the dead have left, which a program may well do.
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
        // All others log a store where so few live.
        let skipped = promised(Protocol::Baseline, OwnUnit::Skipped);
        assert!(skipped(2, 16) && !skipped(3, 16) && skipped(3, 4) && !skipped(4, 4));
        assert!(!promised(Protocol::WriteBack, OwnUnit::Counts)(1, 16));
        let through = promised(Protocol::WriteThrough, OwnUnit::Counts);
        assert!(through(15, 16) && !through(16, 16));
    }
}
