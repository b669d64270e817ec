//! Operations with system calls: an image of memory holds no file, futex or robust list, so here every
//! victim is a process that really dies.

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

/// An operation on files, processes and shared memory that must survive the death of whoever runs it.
///
/// A fresh world is prepared for each kill. [`operate`](Self::operate) runs in a victim,
/// [`recover`](Self::recover) and [`check`](Self::check) in survivors, each a process forked from the
/// caller's: they inherit the world as the caller has it, but not mappings that are kept from children
/// (`MADV_DONTFORK`), nor the caller's other threads. What was opened before a fork is best opened
/// again by path.
pub trait RealSweep: Sync {
    /// What the operation works on: a directory, a segment's path. Dropped by the caller after the
    /// last survivor.
    type World;

    /// What is swept, as reports print it: `"pod.join"`.
    fn name(&self) -> String;

    /// The crash points that this sweep must reach, in the operation or in its recovery. A sampled
    /// sweep may miss those that last a few instructions only; see that the plan is dense enough.
    fn declares(&self) -> Vec<&'static PointKind> {
        Vec::new()
    }

    /// Makes what the operation starts from, in the calling process.
    ///
    /// # Errors
    /// With the reason; nothing can be swept then.
    fn prepare(&self) -> Result<Self::World, String>;

    /// The operation. It says by [`Window::begin`] where it begins. The victim may start threads: the
    /// one that called this is stepped, the others run, and all are killed together.
    fn operate(&self, world: &Self::World, window: Window);

    /// What a survivor does once the death of the victim is proven. It says by [`Window::begin`] where
    /// it begins to change anything: recoverers are killed too, from there on.
    fn recover(&self, world: &Self::World, window: Window, crash: &Crash);

    /// What must hold after recovery, in the process that ran it.
    ///
    /// # Errors
    /// With what does not hold.
    fn check(&self, world: &Self::World, crash: &Crash) -> Result<(), String>;
}

/// Sweeps `sweep` by real kills as `plan.real` says: victims are killed by SIGKILL after chosen
/// instructions and at the entry to and exit from chosen system calls; survivors recover and check; and
/// some recoverers are killed in turn.
///
/// # Errors
/// If nothing could be swept. What is wrong with the operation's recovery stands in the report.
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
        // Right after each crash point somebody is killed whatever the plan samples: many last for a few
        // instructions only.
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

/// What victims do. Recorded and real runs pass through this same code, so that they go the same way.
fn operation<S: RealSweep>(sweep: &S, world: &S::World) -> impl FnOnce(Window) {
    move |window| sweep.operate(world, window)
}

/// What recoverers do that are killed too.
fn recovery<S: RealSweep>(sweep: &S, world: &S::World, crash: &Crash) -> impl FnOnce(Window) {
    move |window| sweep.recover(world, window, crash)
}

/// What a survivor is confronted with.
struct Death {
    crash: Crash,
    /// The instruction that whoever died last would have executed next.
    instruction: u64,
    /// Where its recoverer died too, and past which crash point.
    recoverer: Option<(At, Option<String>)>,
}
