//! A crash point: a moment at which nodes die. A machine is run on from there and judged.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::panic::{self, AssertUnwindSafe, catch_unwind};

use super::Goal;
use crate::cluster::{self, Cluster};
use crate::engine::{Random, Simulation};
use crate::program::Thread;
use crate::protocol::NodeId;

/// The death of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Death {
    /// The number of events after the previous death, or after the beginning of the run.
    pub after: u64,
    /// The node that dies.
    pub node: NodeId,
    /// The number of its last messages that are lost, of those that have not reached the switch.
    pub lost: u64,
}

/// The deaths in one run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Point {
    /// The deaths in order.
    pub deaths: Vec<Death>,
    /// Whether each later death comes `after` events after the recovery from those before.
    pub apart: bool,
}

/// Every swept run ends within this number of events after a crash, or never.
const MOST_EVENTS: u64 = 20_000_000;

/// The number of events for which a recovered machine that is not run to its end is watched.
const EVENTS_AFTER: u64 = 5_000;

thread_local! {
    static JUDGING: Cell<bool> = const { Cell::new(false) };
}

/// Silences the panics by which a judge reports on a crashed machine: they are caught, and are
/// reported in [`Report::failures`](super::Report::failures) or in the outcome of a
/// [run](crate::run::Fallout). Applies to the whole process from now on.
pub fn silence_judges() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        if !JUDGING.get() {
            usual(panic);
        }
    }));
}

/// Runs a closure that may panic as a judge.
pub(crate) fn judging<R>(does: impl FnOnce() -> R) -> R {
    JUDGING.set(true);
    let result = does();
    JUDGING.set(false);
    result
}

/// The fault of a machine after a crash.
#[derive(Debug)]
pub(super) enum Wrong {
    /// A committed value is missing, or a program breaks on a value that it reads before the
    /// recovery is over.
    Lost(String),
    /// Any other fault.
    Other(String),
}

/// The outcome of a point.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Outcome {
    pub recoveries: u64,
    pub stores: u64,
    pub restored: u64,
    /// A thread's code panicked after the recovery.
    pub given_up: bool,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, Death { after, node, lost }) in self.deaths.iter().enumerate() {
            match (place, self.apart) {
                (0, _) => write!(f, "at event {after} {node} dies")?,
                (_, false) => write!(f, ", {after} events later {node}")?,
                (_, true) => write!(f, ", {after} events after the recovery {node}")?,
            }
            if *lost > 0 {
                write!(f, " (up to {lost} of its last messages are lost)")?;
            }
        }
        Ok(())
    }
}

impl Point {
    /// Returns the point at this event of a run at which this node dies, followed by further
    /// deaths. They are pseudo-random and depend only on the arguments.
    pub(super) fn drawn(
        (event, first): (u64, usize),
        nodes: usize,
        (deaths, apart): (usize, bool),
        seed: u64,
    ) -> Point {
        let mut random = Random::new(seed ^ event << 8 ^ first as u64);
        let mut living: Vec<usize> = (0..nodes).filter(|node| *node != first).collect();
        // All messages that are under way, a few, or none.
        let lost = |random: &mut Random| match random.below(4) {
            0 => u64::MAX,
            1 => 1 + random.below(6),
            _ => 0,
        };
        let mut all = vec![Death {
            after: event,
            node: NodeId::new(first),
            lost: lost(&mut random),
        }];
        while all.len() < deaths && living.len() > 1 {
            let next = living.swap_remove(random.below(living.len() as u64) as usize);
            // Before the first death is detected, in the middle of the recovery, or after it.
            let within = [20, 200, 600][random.below(3) as usize];
            all.push(Death {
                after: random.below(within),
                node: NodeId::new(next),
                lost: lost(&mut random),
            });
        }
        Point { deaths: all, apart }
    }

    /// Kills the nodes in a machine that is at the first death's event, and judges its further run.
    pub(super) fn judge<T: Thread>(
        &self,
        simulation: Simulation<Cluster<T>>,
        goal: Goal,
    ) -> Result<Outcome, Wrong> {
        judging(|| self.judged(simulation, goal))
    }

    fn judged<T: Thread>(
        &self,
        simulation: Simulation<Cluster<T>>,
        goal: Goal,
    ) -> Result<Outcome, Wrong> {
        // The judges of a machine panic.
        let outcome = catch_unwind(AssertUnwindSafe(|| self.run(simulation, goal)));
        match outcome {
            Ok(Ok((outcome, simulation))) => {
                match catch_unwind(AssertUnwindSafe(|| go_on(simulation, goal))) {
                    Ok(whole) => whole.map(|()| outcome),
                    Err(panic) => match told(&*panic) {
                        // The program's code has met state that a dead thread left half changed.
                        // Every value was judged.
                        what if is_of_a_program(&what) => Ok(Outcome {
                            given_up: true,
                            ..outcome
                        }),
                        what => Err(Wrong::Other(what)),
                    },
                }
            }
            Ok(Err(wrong)) => Err(wrong),
            Err(panic) => Err(match told(&*panic) {
                what if is_of_a_program(&what) => Wrong::Lost(what),
                what => Wrong::Other(what),
            }),
        }
    }

    fn run<T: Thread>(
        &self,
        mut simulation: Simulation<Cluster<T>>,
        goal: Goal,
    ) -> Result<(Outcome, Simulation<Cluster<T>>), Wrong> {
        let stores = simulation
            .machine()
            .judged()
            .map_or(0, |judged| judged.commits);
        for (place, death) in self.deaths.iter().enumerate() {
            if place > 0 {
                while self.apart && !simulation.machine().is_recovered() && simulation.step() {}
                (0..death.after).all(|_| simulation.step());
            }
            cluster::crash(&mut simulation, death.node, death.lost);
        }
        let most = simulation.handled() + MOST_EVENTS;
        let recovered = |simulation: &Simulation<Cluster<T>>| {
            goal == Goal::Recovered && simulation.machine().is_recovered()
        };
        while !recovered(&simulation) && simulation.step() {
            if simulation.handled() > most {
                let endless = format!("the run has not ended after {MOST_EVENTS} further events");
                return Err(Wrong::Other(endless));
            }
        }
        if goal == Goal::Finished {
            cluster::run(&mut simulation).map_err(|stuck| Wrong::Other(stuck.to_string()))?;
        }
        let machine = simulation.machine();
        let judged = machine.judged().unwrap_or_default();
        match (machine.check_recovered(), judged.lost.first()) {
            (Err(what), Some(lost)) if what == *lost => return Err(Wrong::Lost(what)),
            (Err(what), _) => return Err(Wrong::Other(what)),
            (Ok(()), _) => {}
        }
        if goal == Goal::Finished {
            machine.check_quiet().map_err(Wrong::Other)?;
        }
        let outcome = Outcome {
            recoveries: u64::from(machine.recoveries()),
            stores,
            restored: judged.restored,
            given_up: false,
        };
        Ok((outcome, simulation))
    }
}

/// Runs on a machine that has recovered and need not finish. Its cores must make progress unless
/// they wait for dead threads, and all their loads and stores are judged.
fn go_on<T: Thread>(mut simulation: Simulation<Cluster<T>>, goal: Goal) -> Result<(), Wrong> {
    if goal == Goal::Finished {
        return Ok(());
    }
    let instructions = |simulation: &Simulation<Cluster<T>>| {
        simulation.machine().statistics().total().instructions
    };
    let before = instructions(&simulation);
    let whole = (0..EVENTS_AFTER).all(|_| simulation.step());
    if whole && instructions(&simulation) == before {
        return Err(Wrong::Other(format!(
            "no core has executed an instruction within {EVENTS_AFTER} events after the recovery"
        )));
    }
    let machine = simulation.machine();
    let sound = match whole {
        true => machine.check().and_then(|()| machine.check_recovered()),
        // All living threads have ended, or wait for actions of dead ones.
        false => machine.check_standstill(),
    };
    sound.map_err(Wrong::Other)
}

/// Returns whether the panic came from a thread's code, and not from the machine or its judge.
pub(crate) fn is_of_a_program(what: &str) -> bool {
    what.starts_with("thread ") && what.contains(" panicked: ")
}

pub(crate) fn told(panic: &(dyn Any + Send)) -> String {
    let said = panic.downcast_ref::<String>().cloned();
    said.or_else(|| panic.downcast_ref::<&str>().map(|said| (*said).into()))
        .unwrap_or_else(|| "the judge panicked without a message".into())
}
