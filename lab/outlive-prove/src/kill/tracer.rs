//! Stepped runs of a child's window: one records every instruction, and others die at one.
//!
//! A run that dies need not be stepped from the start. Where the processor has breakpoints, the
//! child runs freely to an instruction not far before its last one, and is stepped from there. That
//! is the last instruction that the recorded run had not executed before. If it is far back and the
//! caller can detect an error, it is one in a loop, at which the breakpoint is passed as often as
//! in the recorded run. That makes a real kill after every instruction nearly linear. A run that
//! takes another path than the recorded one (a system call that took longer, another thread) is
//! killed wherever it is then, which is as good a death; it is counted as strayed.

use super::child::{Child, Registers, Resume, Stop};
use super::control::{Control, Phase};
use super::error::{KillError, PtraceForbidden};
use super::marked::Marked;
use super::modules::Modules;
use core::time::Duration;
use outlive_memory::Native;
use std::collections::{HashMap, HashSet};
use std::io;
use std::time::Instant;

/// The part of a victim's life in which it is killed: from [`begin`](Self::begin) to
/// [`end`](Self::end), or to the end of the method that received the window.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    control: &'static Control,
    /// Whether this process is stepped and killed; a survivor is not.
    traced: bool,
}

impl Window {
    /// Begins the window: from the next instruction on the victim may be killed. Its earlier
    /// actions (such as opening a segment) are not swept.
    pub fn begin(&self) {
        self.stop();
        self.control.enter(Phase::Inside);
    }

    /// Ends the window: the operation has returned. The victim is killed here at the latest.
    pub fn end(&self) {
        self.control.enter(Phase::Returned);
        self.stop();
    }

    fn stop(&self) {
        if self.traced {
            // SAFETY: stops this process until its tracer resumes or kills it.
            unsafe { libc::raise(libc::SIGSTOP) };
        }
    }

    /// Returns the window of a process that is not killed.
    pub(super) fn of_survivor(control: &'static Control) -> Self {
        Self {
            control,
            traced: false,
        }
    }

    /// Returns `memory`, recording the crash points passed.
    pub fn mark(&self, memory: Native) -> Marked {
        Marked::new(memory, self.control)
    }
}

/// The moment at which a victim is inspected.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub step: u64,
    /// The instruction that would be next.
    pub instruction: u64,
    pub returned: bool,
}

/// A stepped run that did not reach its end.
#[derive(Debug)]
pub(super) struct Cut {
    pub steps: u64,
    pub reason: String,
}

/// A victim that was really killed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Killed {
    pub moment: Moment,
    /// Its process id.
    pub process: u32,
    /// Whether it died at another instruction than the recorded run had at this step.
    pub strayed: bool,
}

/// The path of a recorded run.
#[derive(Debug)]
pub(super) struct Trace {
    /// The instruction before each step, and the one after the last.
    way: Vec<u64>,
    /// For each step: how often its instruction had been executed before, the start not counted.
    passes: Vec<u32>,
    /// Instructions that repeat themselves, so that a breakpoint counts otherwise than steps do.
    repeating: HashSet<u64>,
    /// The instructions that are of this binary.
    own: HashSet<u64>,
    /// The steps of each of these, except the start.
    met: HashMap<u64, Vec<u32>>,
}

/// How a victim gets near the instruction at which it is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Approach {
    /// Freely to an instruction that the recorded run had not executed before, so that a breakpoint
    /// hit at the wrong time is detectable.
    Once,
    /// Or to one that it had executed several times, if that is nearer. On a loaded virtual
    /// machine, counting the passes has gone wrong: if other instructions follow, the victim is
    /// seen to have strayed; in a loop it dies in another round.
    Counted,
}

/// The cost of passing a breakpoint once, in steps: it is disabled, stepped over and hit again.
const PASS: usize = 3;

impl Trace {
    fn of(way: Vec<u64>, is_own: impl Fn(u64) -> bool) -> Self {
        let mut seen = HashMap::new();
        let mut repeating = HashSet::new();
        let mut passes = vec![0; way.len()];
        for (step, instruction) in way.iter().enumerate().skip(1) {
            let count: &mut u32 = seen.entry(*instruction).or_default();
            passes[step] = *count;
            *count += 1;
            if way[step - 1] == *instruction {
                repeating.insert(*instruction);
            }
        }
        let own: HashSet<u64> = seen.into_keys().filter(|at| is_own(*at)).collect();
        let mut met: HashMap<u64, Vec<u32>> = HashMap::new();
        for (step, instruction) in way.iter().enumerate().skip(1) {
            if own.contains(instruction) && !repeating.contains(instruction) {
                met.entry(*instruction).or_default().push(step as u32);
            }
        }
        Self {
            way,
            passes,
            repeating,
            own,
            met,
        }
    }

    /// Returns the number of instructions of the run.
    pub(super) fn steps(&self) -> u64 {
        self.way.len() as u64 - 1
    }

    /// Returns the number of distinct instructions.
    pub(super) fn addresses(&self) -> u64 {
        self.way.iter().collect::<HashSet<_>>().len() as u64
    }

    /// Returns whether the run was in the middle of an instruction that repeats itself (a string
    /// instruction, which copies large values): neither in its first round nor in its last.
    pub(super) fn is_amid_repetition(&self, step: u64) -> bool {
        let step = step as usize;
        let same = |other: usize| self.way.get(other) == self.way.get(step);
        step >= 2 && same(step - 2) && same(step - 1) && same(step + 1)
    }

    /// Returns the last step up to `step` whose instruction the run had not executed before: a
    /// breakpoint there is hit once, and a hit at the wrong time is detectable. (Counting the
    /// passes of a breakpoint in a loop went wrong now and then on a loaded virtual machine.)
    /// Instructions of libraries are excluded: the path through `malloc` depends on the process's
    /// earlier allocations.
    fn landing(&self, step: u64) -> Option<usize> {
        let last = (step as usize).min(self.way.len() - 1);
        let first_pass =
            |at: &usize| self.passes[*at] == 0 && !self.repeating.contains(&self.way[*at]);
        let lands = |at: &usize| first_pass(at) && self.own.contains(&self.way[*at]);
        (3..=last).rev().find(lands)
    }

    /// Returns the steps at which a breakpoint is hit on the way to `step`, the last of them the
    /// landing; empty if it is best stepped from the start.
    fn breakpoints(&self, step: u64, approach: Approach) -> &[u32] {
        let Some(first) = self.landing(step) else {
            return &[];
        };
        let last = (step as usize).min(self.way.len() - 1);
        let cost = |at: usize| last - at + PASS * self.passes[at] as usize;
        let mut best = first;
        if approach == Approach::Counted {
            for at in (first..=last).rev() {
                // Farther back nothing is nearer.
                if last - at >= cost(best) {
                    break;
                }
                let met = self.met.get(&self.way[at]);
                // The first step is made before there is a breakpoint.
                if cost(at) < cost(best) && met.is_some_and(|steps| steps[0] >= 3) {
                    best = at;
                }
            }
        }
        &self.met[&self.way[best]][..=self.passes[best] as usize]
    }
}

/// Forks and traces victims, one at a time.
#[derive(Debug)]
pub(super) struct Tracer {
    operation: String,
    pub(super) control: &'static Control,
    patience: u32,
    pub(super) most_instructions: u64,
    stepping: Duration,
    stepped: u32,
    /// The number of victims really killed.
    pub kills: u64,
    /// Of these, the number that died at another instruction than the recorded run.
    pub strayed: u64,
}

impl Tracer {
    pub(super) fn new(
        operation: String,
        control: &'static Control,
        patience: u32,
        most_instructions: u64,
    ) -> Self {
        Self {
            operation,
            control,
            patience,
            most_instructions,
            stepping: Duration::ZERO,
            stepped: 0,
            kills: 0,
            strayed: 0,
        }
    }

    /// Returns the average cost of a recorded step.
    pub(super) fn step_cost(&self) -> Duration {
        let cost = self.stepping.checked_div(self.stepped);
        cost.unwrap_or_default()
    }

    pub(super) fn system(&self, call: &'static str) -> impl Fn(io::Error) -> KillError + use<'_> {
        move |source| KillError::System {
            operation: self.operation.clone(),
            call,
            source,
        }
    }

    /// Starts a traced child, which stops right before the first instruction of its window.
    pub(super) fn start(&self, work: impl FnOnce(Window)) -> Result<Result<Child, Cut>, KillError> {
        let control = self.control;
        let child = Child::traced(control, self.patience, || {
            let window = Window {
                control,
                traced: true,
            };
            work(window);
            if control.phase() == Phase::Inside {
                window.end();
            }
        });
        let mut child = child.map_err(self.system("fork"))?;
        let cut = |reason| Ok(Err(self.cut(0, reason)));
        match child.wait().map_err(self.system("waitpid"))? {
            Stop::Trapped => {}
            stop => {
                if let Some(errno) = self.control.refused() {
                    let source = io::Error::from_raw_os_error(errno);
                    return Err(PtraceForbidden { source }.into());
                }
                if stop == Stop::Exited(0) {
                    return cut("its window never began".to_owned());
                }
                return cut(stop.describe(self.control, self.patience));
            }
        }
        child.trace().map_err(|source| PtraceForbidden { source })?;
        while self.control.phase() == Phase::Before {
            match child.resume(Resume::Step).map_err(self.system("ptrace"))? {
                Stop::Trapped => {}
                stop => return cut(stop.describe(self.control, self.patience)),
            }
        }
        Ok(Ok(child))
    }

    /// Returns why a victim that stopped at `stop` cannot continue; `None` if it can.
    pub(super) fn obstacle(&self, stop: Stop) -> Option<String> {
        match stop {
            Stop::Trapped | Stop::SystemCall if self.control.phase() == Phase::Panicked => {
                Some(self.control.message().unwrap_or_default())
            }
            Stop::Trapped | Stop::SystemCall => None,
            stop => Some(stop.describe(self.control, self.patience)),
        }
    }

    /// Steps a child through `work` and calls `look` before the first instruction of its window and
    /// after each.
    pub(super) fn record(
        &mut self,
        work: impl FnOnce(Window),
        mut look: impl FnMut(u32, &Registers, Moment),
    ) -> Result<Result<Trace, Cut>, KillError> {
        let mut child = match self.start(work)? {
            Ok(child) => child,
            Err(cut) => return Ok(Err(cut)),
        };
        let started = Instant::now();
        let mut way = Vec::new();
        let cut = loop {
            let step = way.len() as u64;
            let registers = child.registers().map_err(self.system("ptrace"))?;
            let instruction = registers.instruction();
            way.push(instruction);
            let returned = self.control.phase() == Phase::Returned;
            let moment = Moment {
                step,
                instruction,
                returned,
            };
            look(child.pid(), &registers, moment);
            if returned {
                break None;
            }
            let reason = if step == self.most_instructions {
                Some("has not returned, but the plan ends here".to_owned())
            } else {
                let stop = child.resume(Resume::Step).map_err(self.system("ptrace"))?;
                self.obstacle(stop)
            };
            if let Some(reason) = reason {
                break Some(self.cut(step, reason));
            }
        };
        self.stepping += started.elapsed();
        self.stepped += way.len() as u32;
        child.kill().map_err(self.system("waitpid"))?;
        let modules = Modules::of_this_process();
        Ok(cut.map_or_else(|| Ok(Trace::of(way, |at| modules.is_own(at))), Err))
    }

    /// Runs a child through `work` for `step` instructions and kills it there for real, or where it
    /// has returned by then. Returns where, and its process id.
    pub(super) fn kill_at(
        &mut self,
        trace: &Trace,
        step: u64,
        approach: Approach,
        work: impl FnOnce(Window),
    ) -> Result<Result<Killed, Cut>, KillError> {
        let mut child = match self.start(work)? {
            Ok(child) => child,
            Err(cut) => return Ok(Err(cut)),
        };
        let mut at = 0;
        let mut stop = Stop::Trapped;
        for breakpoint in trace.breakpoints(step, approach) {
            // Steps off the current breakpoint, so as not to rely on whether the processor would
            // stop there again.
            stop = child.resume(Resume::Step).map_err(self.system("ptrace"))?;
            at += 1;
            let address = trace.way[*breakpoint as usize];
            let runs = stop == Stop::Trapped && self.control.phase() == Phase::Inside;
            if !runs || !child.set_breakpoint(Some(address)) {
                break;
            }
            stop = child.resume(Resume::Run).map_err(self.system("ptrace"))?;
            at = u64::from(*breakpoint);
            if stop != Stop::Trapped {
                break;
            }
            child.set_breakpoint(None);
            // A trap elsewhere: the child has strayed, so further counting would be wrong.
            let stands = child.registers().map_err(self.system("ptrace"))?;
            if self.control.phase() != Phase::Inside || stands.instruction() != address {
                break;
            }
        }
        while at < step && stop == Stop::Trapped && self.control.phase() == Phase::Inside {
            stop = child.resume(Resume::Step).map_err(self.system("ptrace"))?;
            at += 1;
        }
        if let Some(reason) = self.obstacle(stop) {
            return Ok(Err(self.cut(at, reason)));
        }
        let killed = self.kill(child, at)?;
        let strayed = trace.way.get(at as usize) != Some(&killed.moment.instruction);
        self.strayed += u64::from(strayed);
        Ok(Ok(Killed { strayed, ..killed }))
    }

    /// Runs a child through `work` and kills it for real at the `nth` place, from 0, where it
    /// enters or leaves a system call, or where it has returned by then.
    pub(super) fn kill_at_call(
        &mut self,
        nth: u64,
        work: impl FnOnce(Window),
    ) -> Result<Result<Killed, Cut>, KillError> {
        let mut child = match self.start(work)? {
            Ok(child) => child,
            Err(cut) => return Ok(Err(cut)),
        };
        let mut at = 0;
        loop {
            let stop = child.resume(Resume::SystemCall);
            let stop = stop.map_err(self.system("ptrace"))?;
            if let Some(reason) = self.obstacle(stop) {
                return Ok(Err(self.cut(at, reason)));
            }
            if at == nth || self.control.phase() == Phase::Returned {
                return self.kill(child, at).map(Ok);
            }
            at += 1;
        }
    }

    fn kill(&mut self, child: Child, step: u64) -> Result<Killed, KillError> {
        let registers = child.registers().map_err(self.system("ptrace"))?;
        let process = child.pid();
        child.kill().map_err(self.system("waitpid"))?;
        self.kills += 1;
        Ok(Killed {
            moment: Moment {
                step,
                instruction: registers.instruction(),
                returned: self.control.phase() == Phase::Returned,
            },
            process,
            strayed: false,
        })
    }

    pub(super) fn cut(&self, steps: u64, mut reason: String) -> Cut {
        // Unwinding takes so many instructions that the time may run out before it ends.
        if let Some(panic) = self.control.message().filter(|panic| *panic != reason) {
            reason = format!("{reason}; it {panic}");
        }
        if let Some(point) = self.control.point() {
            reason = format!("past {point}: {reason}");
        }
        Cut { steps, reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_landing_is_never_beyond_the_step_and_counts_passes_from_the_second_instruction_on() {
        // A loop over 10, 11, 12, run five times, with an instruction that repeats itself.
        let mut way = vec![1, 2];
        for _ in 0..5 {
            way.extend([10, 11, 12, 12, 12]);
        }
        way.extend(3..400u64);
        let trace = Trace::of(way.clone(), |at| at != 300);
        assert_eq!(trace.steps(), way.len() as u64 - 1);
        for step in 0..way.len() as u64 {
            if let Some(landing) = trace.landing(step) {
                assert!(landing as u64 <= step && landing >= 3);
                assert_ne!(way[landing], 12, "repeats itself");
                let before = way[1..landing].iter().filter(|at| **at == way[landing]);
                assert_eq!(before.count(), trace.passes[landing] as usize);
            }
        }
        assert_eq!(trace.landing(400), Some(400));
        let elsewhere = way.iter().position(|at| *at == 300).unwrap();
        assert_eq!(trace.landing(elsewhere as u64), Some(elsewhere - 1));
        assert_eq!(trace.landing(1), None);
    }

    #[test]
    fn where_breakpoints_may_be_counted_the_nearest_loop_is_taken() {
        let mut way = vec![1, 2, 3, 10, 11];
        for _ in 0..4 {
            way.extend(20..60u64);
        }
        let trace = Trace::of(way.clone(), |at| at != 59);
        for step in 0..way.len() as u64 {
            let once = trace.breakpoints(step, Approach::Once);
            assert_eq!(once.last().map(|at| *at as usize), trace.landing(step));
            assert!(once.len() <= 1);
            let counted = trace.breakpoints(step, Approach::Counted);
            let (Some(landing), Some(nearest)) = (once.last(), counted.last()) else {
                assert_eq!(once, counted, "at {step}");
                continue;
            };
            assert!(landing <= nearest && u64::from(*nearest) <= step);
            let costs =
                |steps: &[u32], at: u32| step - u64::from(at) + PASS as u64 * steps.len() as u64;
            assert!(
                costs(counted, *nearest) <= costs(once, *landing),
                "at {step}"
            );
            // It is met at each of them, and nowhere between.
            let instruction = way[*nearest as usize];
            let met = (3..=*nearest).filter(|at| way[*at as usize] == instruction);
            assert!(met.eq(counted.iter().copied()), "at {step}");
        }
        // In the last round it would be a hundred steps.
        assert_eq!(trace.breakpoints(164, Approach::Once), [43]);
        assert_eq!(trace.breakpoints(164, Approach::Counted).len(), 4);
    }

    #[test]
    fn the_middle_of_an_instruction_that_repeats_itself_is_known() {
        let trace = Trace::of(vec![1, 2, 3, 3, 3, 3, 4, 5], |_| true);
        let amid = (0..=8).filter(|step| trace.is_amid_repetition(*step));
        assert_eq!(amid.collect::<Vec<_>>(), [4]);
    }
}
