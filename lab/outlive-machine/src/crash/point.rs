//! A moment at which nodes die, and what becomes of a machine then.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::panic::{self, AssertUnwindSafe, catch_unwind};

use super::Goal;
use crate::cluster::{self, Cluster};
use crate::engine::{Random, Simulation};
use crate::program::Thread;
use crate::protocol::NodeId;

/// A node's death.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Death {
    /// So many events after the death before, or after the beginning.
    pub after: u64,
    /// Whose.
    pub node: NodeId,
    /// How many of its last messages are lost, of those that are not at the switch.
    pub lost: u64,
}

/// Deaths in one run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Point {
    /// In their order.
    pub deaths: Vec<Death>,
    /// Each only when the recovery from those before is over, and so many events later.
    pub apart: bool,
}

/// Whatever is swept ends earlier after a crash, or never.
const MOST_EVENTS: u64 = 20_000_000;

/// How long a machine is watched after its recovery that is not to finish.
const EVENTS_AFTER: u64 = 5_000;

thread_local! {
    static JUDGING: Cell<bool> = const { Cell::new(false) };
}

/// Keeps panics silent that are a judge's word of a crashed machine: they are caught, and are in
/// [`Report::failures`](super::Report::failures) or in what came of a [run](crate::run::Fallout). For all of the process, from now on.
pub fn silence_judges() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        if !JUDGING.get() {
            usual(panic);
        }
    }));
}

/// Does what may panic as a judge.
pub(crate) fn judging<R>(does: impl FnOnce() -> R) -> R {
    JUDGING.set(true);
    let result = does();
    JUDGING.set(false);
    result
}

/// What is wrong with a machine after a crash.
#[derive(Debug)]
pub(super) enum Wrong {
    /// What was committed is not there, or a program breaks on what it reads before the recovery is over.
    Lost(String),
    /// Anything else.
    Other(String),
}

/// What has become of a machine.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Outcome {
    pub recoveries: u64,
    pub stores: u64,
    pub restored: u64,
    /// A thread's code has ended in a panic after the recovery.
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
                write!(f, " (with up to {lost} of its last messages)")?;
            }
        }
        Ok(())
    }
}

impl Point {
    /// A point at this event of a run, at which this node dies, and so many others later: drawn, but always the same.
    pub(super) fn drawn(
        (event, first): (u64, usize),
        nodes: usize,
        (deaths, apart): (usize, bool),
        seed: u64,
    ) -> Point {
        let mut random = Random::new(seed ^ event << 8 ^ first as u64);
        let mut living: Vec<usize> = (0..nodes).filter(|node| *node != first).collect();
        // All that is under way; a few; nothing.
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
            // Before it is detected, in the middle of the recovery, or after it.
            let within = [20, 200, 600][random.below(3) as usize];
            all.push(Death {
                after: random.below(within),
                node: NodeId::new(next),
                lost: lost(&mut random),
            });
        }
        Point { deaths: all, apart }
    }

    /// Lets the nodes of a machine die that is at the first death's event, and judges what follows.
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
                        // Its code has met what the dead have left half done, and every value was judged.
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
                let endless = format!("there is no end after {MOST_EVENTS} events");
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

/// Lets a machine run on for a while that has recovered and is not to finish: its cores must go on, if they do not wait for the dead, and
/// all that they read and store is judged.
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
            "no core has gone on {EVENTS_AFTER} events after the recovery"
        )));
    }
    let machine = simulation.machine();
    let sound = match whole {
        true => machine.check().and_then(|()| machine.check_recovered()),
        // All that live have ended, or wait for what the dead were to do.
        false => machine.check_standstill(),
    };
    sound.map_err(Wrong::Other)
}

/// Whether it was a thread's code that has panicked, and not the machine or its judge.
pub(crate) fn is_of_a_program(what: &str) -> bool {
    what.starts_with("thread ") && what.contains(" panicked: ")
}

pub(crate) fn told(panic: &(dyn Any + Send)) -> String {
    let said = panic.downcast_ref::<String>().cloned();
    said.or_else(|| panic.downcast_ref::<&str>().map(|said| (*said).into()))
        .unwrap_or_else(|| "a judge has panicked without a word".into())
}
