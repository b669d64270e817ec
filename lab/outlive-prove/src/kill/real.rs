//! Operations with system calls: an image of memory holds no file, futex or robust list, so here
//! every victim is a process that really dies.

use super::child::{Child, FAILED, Pinned, Stop};
use super::control::Control;
use super::coverage::PointKind;
use super::effect::require_effective_kills;
use super::error::KillError;
use super::modules::Modules;
use super::plan::Plan;
use super::report::{At, Crash, Failure, SweepReport};
use super::sweep::warm_up;
use super::tracer::{Approach, Cut, Killed, Trace, Tracer, Window};
use super::turns;
use std::time::Instant;

/// An operation on files, processes and shared memory that must survive the death of its process.
///
/// A fresh world is prepared for each kill. [`operate`](Self::operate) runs in a victim,
/// [`recover`](Self::recover) and [`check`](Self::check) in survivors, each a process forked from
/// the caller's: they inherit the world as the caller has it, but not mappings that are kept from
/// children (`MADV_DONTFORK`), nor the caller's other threads. Anything opened before a fork is
/// best opened again by path.
pub trait RealSweep: Sync {
    /// The objects that the operation works on: a directory, a segment's path. The caller drops
    /// them after the last survivor.
    type World;

    /// Returns the name of the sweep in reports, such as `"pod.join"`.
    fn name(&self) -> String;

    /// Returns the crash points that this sweep must reach, in the operation or in its recovery. A
    /// sampled sweep may miss those that last a few instructions only; the plan must be dense
    /// enough.
    fn declares(&self) -> Vec<&'static PointKind> {
        Vec::new()
    }

    /// Prepares the operation's starting state, in the calling process.
    ///
    /// # Errors
    /// Returns the reason if the preparation failed; then nothing is swept.
    fn prepare(&self) -> Result<Self::World, String>;

    /// Runs the operation, which calls [`Window::begin`] where it begins. The victim may start
    /// threads: the one that called this is stepped, the others run, and all are killed together.
    fn operate(&self, world: &Self::World, window: Window);

    /// Runs a survivor's recovery once the death of the victim is proven. It calls
    /// [`Window::begin`] before its first change: from there on recoverers are killed too.
    fn recover(&self, world: &Self::World, window: Window, crash: &Crash);

    /// Checks the conditions that must hold after recovery, in the process that ran it.
    ///
    /// # Errors
    /// Returns the condition that does not hold.
    fn check(&self, world: &Self::World, crash: &Crash) -> Result<(), String>;
}

/// Sweeps `sweep` by real kills according to `plan.real`: victims are killed by SIGKILL after
/// chosen instructions and at the entry to and exit from chosen system calls; survivors recover and
/// check; and some recoverers are killed in turn.
///
/// # Errors
/// If nothing could be swept. Faults of the operation's recovery are in the report.
pub fn sweep_for_real<S: RealSweep>(sweep: &S, plan: &Plan) -> Result<SweepReport, KillError> {
    require_effective_kills()?;
    let _turn = turns::alone();
    let started = Instant::now();
    let (_victims, control) = Control::lease();
    let (_survivors, survivors) = Control::lease();
    warm_up();
    let mut run = Run {
        sweep,
        plan,
        tracer: Tracer::new(sweep.name(), control, plan.patience, plan.most_instructions),
        control,
        survivors,
        _pinned: Pinned::somewhere(),
        modules: Modules::of_this_process(),
        report: SweepReport::new(&sweep.name()),
    };
    run.sweep()?;
    let stopped = run.is_full();
    let mut report = run.report;
    report.stopped = stopped;
    report.find_missing(&sweep.declares());
    report.kills = run.tracer.kills;
    report.strayed = run.tracer.strayed;
    report.step = run.tracer.step_cost();
    report.seconds = started.elapsed().as_secs_f64();
    Ok(report)
}

struct Run<'a, S> {
    sweep: &'a S,
    plan: &'a Plan,
    tracer: Tracer,
    control: &'static Control,
    survivors: &'static Control,
    _pinned: Pinned,
    modules: Modules,
    report: SweepReport,
}

impl<S: RealSweep> Run<'_, S> {
    fn prepare(&self) -> Result<S::World, KillError> {
        self.sweep
            .prepare()
            .map_err(|message| KillError::Unprepared {
                operation: self.sweep.name(),
                message,
            })
    }

    fn broken(&self, cut: Cut) -> KillError {
        KillError::Broken {
            operation: self.sweep.name(),
            instructions: cut.steps,
            reason: cut.reason,
        }
    }

    fn sweep(&mut self) -> Result<(), KillError> {
        let (sweep, world) = (self.sweep, self.prepare()?);
        // Whatever the plan samples, a victim is killed right after each crash point: many points
        // last for a few instructions only.
        let (mut passed, mut after_points) = (0, Vec::new());
        let control = self.control;
        let trace = self
            .tracer
            .record(operation(sweep, &world), |_, _, moment| {
                let point = control.raw_point();
                if point != passed {
                    passed = point;
                    after_points.push(moment.step);
                }
            })?;
        let trace = trace.map_err(|cut| self.broken(cut))?;
        self.report.instructions = trace.steps();
        self.report.addresses = trace.addresses();
        let mut kills: Vec<_> = self.plan.real.kills.of(trace.steps() + 1).collect();
        if !kills.is_empty() {
            kills.extend(after_points);
        }
        kills.sort_unstable();
        kills.dedup();
        self.report.share = Some((kills.len() as u64, trace.steps() + 1));
        for step in kills {
            self.kill_and_survive(&trace, At::Instruction(step))?;
        }
        let world = self.prepare()?;
        let calls = self
            .tracer
            .kill_at_call(u64::MAX, operation(sweep, &world))?;
        let calls = calls.map_err(|cut| self.broken(cut))?.moment.step;
        for nth in self.plan.real.call_kills.of(calls) {
            self.kill_and_survive(&trace, At::SystemCall(nth))?;
        }
        for step in self.plan.real.recoveries.of(trace.steps() + 1) {
            self.sweep_recovery(&trace, At::Instruction(step))?;
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.report.failures.len() >= self.plan.most_failures
    }

    /// Kills a fresh victim at `at`.
    fn kill(
        &mut self,
        trace: &Trace,
        at: At,
        world: &S::World,
    ) -> Result<Option<Death>, KillError> {
        let operate = operation(self.sweep, world);
        let killed = match at {
            At::Instruction(step) => self.tracer.kill_at(trace, step, Approach::Once, operate)?,
            At::SystemCall(nth) => self.tracer.kill_at_call(nth, operate)?,
            At::Store(_) => unreachable!("victims are not stopped at stores here"),
        };
        match killed {
            Ok(Killed {
                moment, process, ..
            }) => {
                let crash = Crash {
                    at,
                    process: Some(process),
                    point: self.control.point(),
                    returned: moment.returned,
                    recoverers_lost: 0,
                };
                self.cover();
                Ok(Some(Death {
                    crash,
                    instruction: moment.instruction,
                    recoverer: None,
                }))
            }
            Err(cut) => {
                let crash = Crash::at(at);
                self.fail(
                    Death {
                        crash,
                        instruction: 0,
                        recoverer: None,
                    },
                    cut.reason,
                );
                Ok(None)
            }
        }
    }

    fn cover(&mut self) {
        if let Some(point) = self.control.point() {
            self.report.coverage.count(point, 1);
        }
    }

    fn kill_and_survive(&mut self, trace: &Trace, at: At) -> Result<(), KillError> {
        if self.is_full() {
            return Ok(());
        }
        let world = self.prepare()?;
        if let Some(death) = self.kill(trace, at, &world)? {
            self.report.images += 1;
            self.survive(&world, death)?;
        }
        Ok(())
    }

    /// Has a survivor recover and check.
    fn survive(&mut self, world: &S::World, death: Death) -> Result<(), KillError> {
        let (sweep, survivors) = (self.sweep, self.survivors);
        let patience = self.plan.recovery_patience;
        let child = Child::fork(survivors, patience, || {
            sweep.recover(world, Window::of_survivor(survivors), &death.crash);
            match sweep.check(world, &death.crash) {
                Ok(()) => 0,
                Err(message) => {
                    survivors.say(&message);
                    FAILED
                }
            }
        });
        let mut child = child.map_err(self.tracer.system("fork"))?;
        self.report.recoveries += 1;
        match child.wait().map_err(self.tracer.system("waitpid"))? {
            Stop::Exited(0) => {}
            stop => self.fail(death, stop.describe(survivors, patience)),
        }
        Ok(())
    }

    /// Kills victims at `at` and their recoverers after each chosen instruction.
    fn sweep_recovery(&mut self, trace: &Trace, at: At) -> Result<(), KillError> {
        if self.is_full() {
            return Ok(());
        }
        let (sweep, world) = (self.sweep, self.prepare()?);
        let Some(first) = self.kill(trace, at, &world)? else {
            return Ok(());
        };
        let recover = recovery(sweep, &world, &first.crash);
        let trace_of_recovery = match self.tracer.record(recover, |_, _, _| ())? {
            Ok(trace) => trace,
            Err(cut) => {
                self.fail(first, format!("recovery fails: {}", cut.reason));
                return Ok(());
            }
        };
        self.report.recoveries_swept += 1;
        self.report.recovery_instructions += trace_of_recovery.steps();
        for step in self
            .plan
            .real
            .second_kills
            .of(trace_of_recovery.steps() + 1)
        {
            let world = self.prepare()?;
            let Some(mut death) = self.kill(trace, at, &world)? else {
                continue;
            };
            let recover = recovery(sweep, &world, &death.crash);
            let second =
                match self
                    .tracer
                    .kill_at(&trace_of_recovery, step, Approach::Once, recover)?
                {
                    Ok(second) => second,
                    Err(cut) => {
                        self.fail(death, format!("recovery fails: {}", cut.reason));
                        continue;
                    }
                };
            self.cover();
            self.report.second_kills += 1;
            death.crash.recoverers_lost = 1;
            death.instruction = second.moment.instruction;
            let point = self.control.point().map(|point| point.to_string());
            death.recoverer = Some((At::Instruction(step), point));
            self.survive(&world, death)?;
        }
        Ok(())
    }

    fn fail(&mut self, death: Death, message: String) {
        if self.is_full() {
            return;
        }
        let (recovery_at, recovery_point) = death.recoverer.unzip();
        self.report.failures.push(Failure {
            at: death.crash.at,
            instruction: self.modules.name(death.instruction),
            last_point: death.crash.point.map(|point| point.to_string()),
            recovery_at,
            recovery_point: recovery_point.flatten(),
            message,
        });
    }
}

/// Returns the work of victims: the same code in recorded and real runs, for the same path.
fn operation<S: RealSweep>(sweep: &S, world: &S::World) -> impl FnOnce(Window) {
    move |window| sweep.operate(world, window)
}

/// Returns the work of recoverers that are killed too.
fn recovery<S: RealSweep>(sweep: &S, world: &S::World, crash: &Crash) -> impl FnOnce(Window) {
    move |window| sweep.recover(world, window, crash)
}

/// The deaths that a survivor recovers from.
struct Death {
    crash: Crash,
    /// The instruction that the process that died last would have executed next.
    instruction: u64,
    /// Where the recoverer died too, and the last crash point that it had passed.
    recoverer: Option<(At, Option<String>)>,
}
