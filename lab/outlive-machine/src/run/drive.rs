//! The loop of a run: events, looks at the requested times, and progress reports.

use std::cell::Cell;

use super::subject::Threads;
use super::{Living, Look, Outcome, Placement, Progress, Run, RunError, Subject, Watch};
use crate::cluster::{self, Cluster, Workload};
use crate::engine::{Simulation, Time};
use crate::line::{Line, LineAddress};
use crate::program::{Counted, OwnLines, Placed, Tally, Thread, Word};
use crate::protocol::NodeId;

/// Events between two progress reports: some milliseconds of host time.
const EVENTS: u64 = 1 << 15;
/// Simulated time of one step towards a look or the end of a run: about as much host time, in a
/// machine of the paper's size.
const STRETCH: Time = Time::from_micros(1);

/// Runs the subject with its threads.
pub(super) fn drive(
    run: &Run<'_>,
    subject: &Subject,
    watch: &mut Watch<'_>,
) -> Result<Outcome, RunError> {
    match (subject.threads(), run.placement) {
        (Threads::Program(threads), Placement::Allocated) => counted(run, subject, threads, watch),
        (Threads::Trace(threads), Placement::Allocated) => counted(run, subject, threads, watch),
        (_, Placement::Touched) => placed(run, subject, watch),
    }
}

fn counted<T: Thread>(
    run: &Run<'_>,
    subject: &Subject,
    threads: Vec<T>,
    watch: &mut Watch<'_>,
) -> Result<Outcome, RunError> {
    if !run.counting {
        return whole(run, subject, threads, None, watch);
    }
    let tally = Tally::new(subject.image().words);
    let numbered = threads.into_iter().enumerate();
    let threads = numbered.map(|(number, thread)| Counted::new(thread, number, &tally));
    let outcome = whole(run, subject, threads.collect(), None, watch)?;
    let counts = Some(tally.counts());
    Ok(Outcome { counts, ..outcome })
}

/// Runs with the lines that one thread alone touches in local memory. Threads are trait objects
/// here, which saves compiling two more machines.
fn placed(run: &Run<'_>, subject: &Subject, watch: &mut Watch<'_>) -> Result<Outcome, RunError> {
    let (image, synchronisation) = (subject.image(), subject.synchronisation());
    let lines = OwnLines::find(image, synchronisation, boxed(subject.threads()))?;
    let tally = run.counting.then(|| Tally::new(image.words));
    let numbered = boxed(subject.threads()).into_iter().enumerate();
    let threads = numbered.map(|(number, thread)| {
        let thread: Box<dyn Thread> = match &tally {
            Some(tally) => Box::new(Counted::new(thread, number, tally)),
            None => thread,
        };
        Placed::new(thread, number, &lines)
    });
    let outcome = whole(run, subject, threads.collect(), Some(&lines), watch)?;
    Ok(Outcome {
        counts: tally.map(|tally| tally.counts()),
        strays: Some(lines.strays()),
        ..outcome
    })
}

fn boxed(threads: Threads) -> Vec<Box<dyn Thread>> {
    match threads {
        Threads::Program(threads) => threads
            .into_iter()
            .map(|thread| Box::new(thread) as Box<dyn Thread>)
            .collect(),
        Threads::Trace(threads) => threads
            .into_iter()
            .map(|thread| Box::new(thread) as Box<dyn Thread>)
            .collect(),
    }
}

fn whole<T: Thread>(
    run: &Run<'_>,
    subject: &Subject,
    threads: Vec<T>,
    own: Option<&OwnLines>,
    watch: &mut Watch<'_>,
) -> Result<Outcome, RunError> {
    let workload = Workload {
        threads,
        image: subject.image().clone(),
        synchronisation: subject.synchronisation().clone(),
    };
    let mut simulation = Cluster::simulation(run.description, workload, run.seed)?;
    if !run.crashes.is_empty() {
        simulation.machine_mut().judge_values(subject.image());
    }
    if let Some(line) = run.follow {
        simulation.machine_mut().follow(line);
    }
    let mut drive = Drive {
        simulation,
        run,
        watch,
        told: 0,
    };
    drive.say()?;
    let looks = drive.looks()?;
    let fallout = match run.crashes.is_empty() {
        true => None,
        false => Some(drive.endure()?),
    };
    let finished = fallout.is_none() && drive.finish()?;
    drive.say()?;
    let Drive { mut simulation, .. } = drive;
    let (finished, end, checked) = match &fallout {
        Some(fallout) => {
            let machine = simulation.machine();
            let end = match fallout.living {
                Living::Ended => machine.statistics().finished,
                Living::Left => Some(simulation.now()),
                Living::Wait(_) | Living::GaveUp(_) | Living::Nobody => None,
            };
            let end = end.unwrap_or(machine.last_active());
            // The threads may have ended before the last death or recovery.
            let last = fallout.deaths.iter().map(|died| died.crash.at).max();
            let end = end.max(last.max(fallout.recovered).unwrap_or_default());
            // The work of dead nodes is missing from the result.
            let is_whole = fallout.deaths.is_empty() && fallout.living == Living::Ended;
            let checked = is_whole && checked(subject, machine, own)?;
            (fallout.living == Living::Ended, end, checked)
        }
        None if finished => {
            let end = cluster::run(&mut simulation)?;
            (true, end, checked(subject, simulation.machine(), own)?)
        }
        None => (false, simulation.now(), false),
    };
    let machine = simulation.machine();
    Ok(Outcome {
        finished,
        end,
        statistics: machine.statistics(),
        events: simulation.handled(),
        looks,
        life: machine.life(),
        counts: None,
        strays: None,
        fallout,
        checked,
    })
}

/// Checks the result in memory. A check reads word after word, so the last line is cached.
fn checked<T: Thread>(
    subject: &Subject,
    machine: &Cluster<T>,
    own: Option<&OwnLines>,
) -> Result<bool, RunError> {
    let last: Cell<Option<(LineAddress, Line)>> = Cell::new(None);
    let word = |word: Word| {
        if let Some(value) = own.and_then(|own| own.word(word)) {
            return value;
        }
        let line = match last.get() {
            Some((address, line)) if address == word.line() => line,
            _ => machine.line(word.line()),
        };
        last.set(Some((word.line(), line)));
        line[word.place()]
    };
    Ok(subject.check(&word)?)
}

/// A run under way.
pub(super) struct Drive<'r, 'w, T: Thread> {
    pub simulation: Simulation<Cluster<T>>,
    pub run: &'r Run<'r>,
    watch: &'r mut Watch<'w>,
    /// The number of events handled at the last progress report.
    told: u64,
}

impl<T: Thread> Drive<'_, '_, T> {
    /// Runs to each time at which a look is to be taken.
    fn looks(&mut self) -> Result<Vec<Look>, RunError> {
        let mut times = self.run.looks.clone();
        times.retain(|at| self.run.until.is_none_or(|until| *at <= until));
        // A dead node owns nothing.
        let first = self.run.crashes.iter().map(|crash| crash.at).min();
        times.retain(|at| first.is_none_or(|first| *at <= first));
        times.sort_unstable();
        times.dedup();
        let mut looks = Vec::with_capacity(times.len());
        for at in times {
            self.reach(at)?;
            let machine = self.simulation.machine();
            if machine.is_finished() || self.simulation.queue().is_empty() {
                break;
            }
            let nodes = self.run.description.system.compute_nodes as usize;
            let owned = (0..nodes).map(|node| machine.owned_lines(NodeId::new(node)));
            looks.push(Look {
                at,
                statistics: machine.statistics(),
                owned: owned.collect(),
            });
        }
        Ok(looks)
    }

    /// Runs to the end, or to the time at which to stop. Returns whether it is the end.
    pub fn finish(&mut self) -> Result<bool, RunError> {
        if let Some(until) = self.run.until {
            self.reach(until)?;
            let machine = self.simulation.machine();
            if !machine.is_finished() && !self.simulation.queue().is_empty() {
                return Ok(false);
            }
        }
        while self.simulation.step() {
            self.tell()?;
        }
        Ok(true)
    }

    /// Runs until the time is `at`, or nothing happens any more.
    pub fn reach(&mut self, at: Time) -> Result<(), RunError> {
        while self.simulation.now() < at && !self.simulation.queue().is_empty() {
            let next = self.simulation.now() + STRETCH;
            self.simulation.run_until(next.min(at));
            self.tell()?;
        }
        Ok(())
    }

    /// Reports the progress if the last report was some time ago.
    #[inline]
    pub fn tell(&mut self) -> Result<(), RunError> {
        let events = self.simulation.handled();
        if events - self.told < EVENTS {
            return Ok(());
        }
        self.told = events;
        self.say()
    }

    /// Reports the progress.
    fn say(&mut self) -> Result<(), RunError> {
        let progress = Progress {
            now: self.simulation.now(),
            instructions: self.simulation.machine().statistics().total().instructions,
            events: self.simulation.handled(),
        };
        if (self.watch)(&progress).is_break() {
            return Err(RunError::Stopped);
        }
        Ok(())
    }
}
