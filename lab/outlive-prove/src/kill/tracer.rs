//! Stepped runs: every instruction of a child's window, once to record it, and again to die in it.
//!
//! The second time need not be stepped from the start. Where the processor has breakpoints, the child
//! runs freely to an instruction not far before the one that is to be its last, and is stepped from there: to the last one that the
//! recorded run had not come by earlier, or, where that is long ago and whoever asks can tell if it went wrong, to one in a loop that is
//! let pass as often as the recorded run came by. That makes a real kill after every instruction nearly
//! linear. A run that goes another way than the recorded one (a system call that
//! took longer, another thread) is killed wherever it is then, which is as good a death; it is counted as
//! strayed.

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
/// [`end`](Self::end), or to the end of the method that it was given to.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    control: &'static Control,
    /// Whether somebody steps this process and kills it; a survivor is left in peace.
    traced: bool,
}

impl Window {
    /// From the next instruction on the victim may be killed. What it did before (opening a segment,
    /// for one) is not swept.
    pub fn begin(&self) {
        self.stop();
        self.control.enter(Phase::Inside);
    }

    /// The operation has returned. The victim is killed here at the latest: nothing after it runs.
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

    /// The window of a process that nobody kills.
    pub(super) fn of_survivor(control: &'static Control) -> Self {
        Self {
            control,
            traced: false,
        }
    }

    /// `memory`, saying which crash points have been passed.
    pub fn mark(&self, memory: Native) -> Marked {
        Marked::new(memory, self.control)
    }
}

/// When a look at a victim is taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub step: u64,
    /// The instruction that would be next.
    pub instruction: u64,
    pub returned: bool,
}

/// A stepped run that did not get to its end.
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
    /// Whether it died elsewhere than the recorded run stood at this step.
    pub strayed: bool,
}

/// The way of a recorded run.
#[derive(Debug)]
pub(super) struct Trace {
    /// The instruction before each step, and the one after the last.
    way: Vec<u64>,
    /// How often a run comes by the same instruction before, not counting the start.
    passes: Vec<u32>,
    /// Instructions at which a breakpoint counts otherwise than steps do: those that repeat themselves.
    repeating: HashSet<u64>,
    /// The instructions that are of this binary.
    own: HashSet<u64>,
    /// The steps of each of these, but for the start.
    met: HashMap<u64, Vec<u32>>,
}

/// How a victim that is to be killed comes near its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Approach {
    /// Freely to an instruction that the recorded run had not come by before: that a breakpoint there is met at the right time can be
    /// seen.
    Once,
    /// Or to one that it had come by some times, if that is nearer. On a loaded virtual machine counting them has gone wrong; where it
    /// goes by other instructions from there it is seen to have strayed, and in a loop it dies in another round.
    Counted,
}

/// What it takes to let a breakpoint pass once, in steps: it is switched off, stepped over and met again.
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

    /// How many instructions the run had.
    pub(super) fn steps(&self) -> u64 {
        self.way.len() as u64 - 1
    }

    /// How many different ones.
    pub(super) fn addresses(&self) -> u64 {
        self.way.iter().collect::<HashSet<_>>().len() as u64
    }

    /// Whether the run was in the middle of one instruction that repeats itself (a string instruction, by which large values are
    /// copied): neither in its first round nor in its last.
    pub(super) fn is_amid_repetition(&self, step: u64) -> bool {
        let step = step as usize;
        let same = |other: usize| self.way.get(other) == self.way.get(step);
        step >= 2 && same(step - 2) && same(step - 1) && same(step + 1)
    }

    /// The last step up to `step` whose instruction the run had not come by before: a breakpoint there
    /// is met once, and that it was met at the right time can be seen. (Counting how often a breakpoint
    /// in a loop is passed went wrong now and then on a loaded virtual machine.) It is none of a library: by which ways
    /// `malloc` goes depends on what the process had allocated before.
    fn landing(&self, step: u64) -> Option<usize> {
        let last = (step as usize).min(self.way.len() - 1);
        let first_pass =
            |at: &usize| self.passes[*at] == 0 && !self.repeating.contains(&self.way[*at]);
        let lands = |at: &usize| first_pass(at) && self.own.contains(&self.way[*at]);
        (3..=last).rev().find(lands)
    }

    /// The steps at which a breakpoint is met on the way to `step`, the last of them to land there; none if it is best stepped
    /// from the start.
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

/// What forks and traces victims, one at a time.
#[derive(Debug)]
pub(super) struct Tracer {
    operation: String,
    control: &'static Control,
    patience: u32,
    most_instructions: u64,
    stepping: Duration,
    stepped: u32,
    /// Really killed.
    pub kills: u64,
    /// Of these, elsewhere than the recorded run stood.
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

    /// What one recorded step cost.
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

    /// A traced child that stands right before the first instruction of its window.
    fn start(&self, work: impl FnOnce(Window)) -> Result<Result<Child, Cut>, KillError> {
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

    /// Why a victim that came to rest at `stop` cannot go on; `None` if it can.
    fn obstacle(&self, stop: Stop) -> Option<String> {
        match stop {
            Stop::Trapped | Stop::SystemCall if self.control.phase() == Phase::Panicked => {
                Some(self.control.message().unwrap_or_default())
            }
            Stop::Trapped | Stop::SystemCall => None,
            stop => Some(stop.describe(self.control, self.patience)),
        }
    }

    /// Steps a child through `work` and has `look` see it before the first instruction of its window
    /// and after each.
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
                Some("has not returned, and the plan ends here".to_owned())
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

    /// Runs a child through `work` as far as `step` instructions go and kills it there for real, or
    /// where it has returned by then. Returns where, and who it was.
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
            // Off the one where it stands: whether the processor would stop there again is not left to it.
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
            // Another trap than this one: it has strayed, and counting on would go wrong for certain.
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

    /// Runs a child through `work` and kills it for real at the `nth` place, from 0, where it enters or
    /// leaves a system call, or where it has returned by then.
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

    fn cut(&self, steps: u64, mut reason: String) -> Cut {
        // Unwinding takes so many instructions that patience may end before it does.
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
