//! Operations that only touch memory: one stepped run gives every crash state.

use super::cases::{Case, Cases};
use super::child::{Child, FAILED, Pinned, Stop, set_alarm};
use super::control::Control;
use super::coverage::PointKind;
use super::effect::require_effective_kills;
use super::error::KillError;
use super::marked::Marked;
use super::modules::Modules;
use super::plan::Plan;
use super::report::{At, Crash, Failure, SweepReport};
use super::shared_memory::Lease;
use super::stores::Stores;
use super::tracer::{Approach, Cut, Killed, Trace, Tracer, Window};
use super::traps::{self, Traps};
use super::turns;
use super::watch::Watch;
use core::sync::atomic::Ordering;
use outlive_memory::PersistenceDomain;
use std::time::Instant;

/// An operation over a [`Memory`](outlive_memory::Memory) that must survive the death of its
/// process, with its recovery and the conditions that must hold afterwards.
///
/// Every method runs in a forked process of its own. They can communicate through the memory only,
/// as real hosts must; fields of the value itself are settings. The methods do not print. They
/// report a fault by a panic.
pub trait Sweep: Sync {
    /// Returns the name of the sweep in reports, such as `"tatas.lock"`.
    fn name(&self) -> String;

    /// Returns the size of the memory in bytes, a multiple of 4096. All of it may be read after
    /// every instruction, so it should be small.
    fn size(&self) -> u64 {
        4096
    }

    /// Returns the memory's persistence domain. A kill loses no cache, so the domain decides only
    /// which instructions are executed.
    fn domain(&self) -> PersistenceDomain {
        PersistenceDomain::Flushed
    }

    /// Returns the crash points that this sweep must reach, in the operation or in its recovery.
    fn declares(&self) -> Vec<&'static PointKind> {
        Vec::new()
    }

    /// Returns whether two runs from the same memory execute the same instructions on it, so that a
    /// victim really killed leaves exactly the memory of the image taken at that step.
    fn is_deterministic(&self) -> bool {
        true
    }

    /// Writes the operation's starting state to zeroed memory.
    fn prepare(&self, memory: Marked);

    /// Runs the operation: the victim dies after each of its instructions.
    fn operate(&self, memory: Marked);

    /// Runs a survivor's recovery once the death of the victim is proven, that proof (a raised
    /// generation) included. If `crash.recoverers_lost` is 1, an earlier run of this same method
    /// died too.
    ///
    /// It runs a second time on its own result, and must then change nothing that
    /// [`check`](Self::check) sees.
    fn recover(&self, memory: Marked, crash: &Crash);

    /// Checks the conditions that must hold after recovery.
    ///
    /// # Errors
    /// Returns the condition that does not hold.
    fn check(&self, memory: Marked, crash: &Crash) -> Result<(), String>;
}

/// Sweeps `sweep` by `plan`: takes an image of the memory after each instruction of its operation,
/// has a survivor recover and check each image, kills some victims for real to check that they
/// leave exactly these images, and sweeps recovery itself in the same way.
///
/// Victims and survivors are children of the calling thread, forked one at a time.
///
/// # Errors
/// If nothing could be swept. Faults of the operation's recovery are in the report.
pub fn sweep<S: Sweep + ?Sized>(sweep: &S, plan: &Plan) -> Result<SweepReport, KillError> {
    require_effective_kills()?;
    let _turn = turns::beside_others();
    let started = Instant::now();
    let mut run = Run::new(sweep, plan);
    let initial = run.prepare()?;
    let first = run.record_operation(&initial)?;
    run.survive(&first.cases, None)?;
    run.kill_for_real(&initial, &first)?;
    run.sweep_recovery(&first.cases)?;
    run.report.find_missing(&sweep.declares());
    run.report.recoveries = run.survivors.recoveries();
    run.report.stopped = run.is_full();
    run.report.kills = run.tracer.kills;
    run.report.strayed = run.tracer.strayed;
    run.report.step = run.tracer.step_cost();
    run.report.seconds = started.elapsed().as_secs_f64();
    Ok(run.report)
}

/// A run under single-stepping.
struct Recorded {
    cases: Cases,
    trace: Trace,
}

struct Run<'a, S: ?Sized> {
    sweep: &'a S,
    plan: &'a Plan,
    /// The memory of victims.
    memory: Lease,
    /// The control page of victims.
    control: &'static Control,
    /// The memory that survivors recover, mapped elsewhere.
    scratch: Lease,
    /// The control page of survivors.
    survivors: &'static Control,
    _leases: [Lease; 2],
    _pinned: Pinned,
    modules: Modules,
    report: SweepReport,
    tracer: Tracer,
    stores: Stores,
}

impl<'a, S: Sweep + ?Sized> Run<'a, S> {
    fn new(sweep: &'a S, plan: &'a Plan) -> Self {
        let (lease, control) = Control::lease();
        let (survivors_lease, survivors) = Control::lease();
        warm_up();
        Self {
            memory: Lease::of(sweep.size()),
            scratch: Lease::of(sweep.size()),
            control,
            survivors,
            _leases: [lease, survivors_lease],
            _pinned: Pinned::somewhere(),
            modules: Modules::of_this_process(),
            report: SweepReport::new(&sweep.name()),
            tracer: Tracer::new(sweep.name(), control, plan.patience, plan.most_instructions),
            stores: Stores::new(),
            sweep,
            plan,
        }
    }

    fn victims(&self) -> Marked {
        Marked::new(self.memory.memory(self.sweep.domain()), self.control)
    }

    /// Returns the memory that the operation starts from.
    fn prepare(&self) -> Result<Vec<u64>, KillError> {
        self.memory.zero();
        let memory = self.victims();
        let patience = self.plan.patience;
        let mut child = Child::fork(self.control, patience, || {
            self.sweep.prepare(memory);
            0
        })
        .map_err(self.tracer.system("fork"))?;
        match child.wait().map_err(self.tracer.system("waitpid"))? {
            Stop::Exited(0) => Ok(self.memory.image()),
            stop => Err(KillError::Unprepared {
                operation: self.sweep.name(),
                message: stop.describe(self.control, patience),
            }),
        }
    }

    fn record_operation(&mut self, initial: &[u64]) -> Result<Recorded, KillError> {
        let recorded = self.record(initial, operation(self.sweep, self.victims()))?;
        let recorded = recorded.map_err(|cut| KillError::Broken {
            operation: self.sweep.name(),
            instructions: cut.steps,
            reason: cut.reason,
        })?;
        self.report.instructions = recorded.trace.steps();
        self.report.addresses = recorded.trace.addresses();
        self.report.images = recorded.cases.len() as u64;
        Ok(recorded)
    }

    /// Steps a child through `work` from the memory `initial` and records every state.
    fn record(
        &mut self,
        initial: &[u64],
        work: impl FnOnce(Window),
    ) -> Result<Result<Recorded, Cut>, KillError> {
        self.memory.fill(initial);
        let (memory, control) = (&self.memory, self.control);
        let mut cases = Cases::from(initial.to_vec());
        let mut watch = Watch::over(memory.words(), &mut self.stores);
        let trace = self.tracer.record(work, |pid, registers, moment| {
            let written = watch.look(pid, registers);
            cases.note(memory.words(), written, control, moment);
        })?;
        Ok(trace.map(|trace| {
            assert!(cases.is(memory.words()), "a store was not seen");
            cases.cover(&mut self.report.coverage);
            Recorded { cases, trace }
        }))
    }

    /// Runs a recoverer of the memory `initial` and records every state, at the stores if that is
    /// possible.
    fn record_recovery(
        &mut self,
        initial: &[u64],
        crash: &Crash,
    ) -> Result<Result<Cases, Cut>, KillError> {
        let (sweep, marked, control) = (self.sweep, self.victims(), self.control);
        if !traps::AVAILABLE {
            let recover = |window: Window| {
                window.begin();
                sweep.recover(marked, crash);
            };
            let recorded = self.record(initial, recover)?;
            return Ok(recorded.map(|recorded| {
                self.report.recovery_instructions += recorded.trace.steps();
                recorded.cases
            }));
        }
        self.memory.fill(initial);
        let memory = &self.memory;
        let armed = Traps::over(memory, control);
        let mut cases = Cases::from(initial.to_vec());
        let mut watch = Watch::over(memory.words(), &mut self.stores);
        let recover = |window: Window| {
            window.begin();
            armed.arm();
            sweep.recover(marked, crash);
        };
        let stores = self
            .tracer
            .record_stores(&armed, recover, |pid, registers, moment| {
                let written = watch.look(pid, registers);
                if let Some(moment) = moment {
                    cases.note(memory.words(), written, control, moment);
                }
            })?;
        Ok(stores.map(|stores| {
            assert!(cases.is(memory.words()), "a store was not seen");
            cases.cover(&mut self.report.coverage);
            self.report.recovery_stores += stores;
            cases
        }))
    }

    /// Has survivors recover and check every case. `before` is the first crash if these are the
    /// states that a killed recoverer left.
    fn survive(&mut self, cases: &Cases, before: Option<Crash>) -> Result<(), KillError> {
        let patience = self.plan.recovery_patience;
        let mut from = 0;
        while from < cases.len() && !self.is_full() {
            let memory = Marked::new(self.scratch.memory(self.sweep.domain()), self.survivors);
            let mut child = Child::fork(self.survivors, patience, || {
                let mut replay = cases.replay(from);
                while let Some((number, case)) = replay.advance() {
                    self.survivors.start_case(number as u64);
                    set_alarm(patience);
                    let crash = crash_of(case, before);
                    for attempt in ["", "after recovering twice: "] {
                        if attempt.is_empty() {
                            self.scratch.fill(replay.image());
                        }
                        self.survivors.count_recovery();
                        self.sweep.recover(memory, &crash);
                        if let Err(message) = self.sweep.check(memory, &crash) {
                            self.survivors.say(&format!("{attempt}{message}"));
                            return FAILED;
                        }
                    }
                }
                self.survivors.start_case(cases.len() as u64);
                0
            })
            .map_err(self.tracer.system("fork"))?;
            let stop = child.wait().map_err(self.tracer.system("waitpid"))?;
            if stop == Stop::Exited(0) {
                break;
            }
            let number = self.survivors.case() as usize;
            let case = cases.get(number.min(cases.len() - 1));
            let message = stop.describe(self.survivors, patience);
            let first = before.unwrap_or_else(|| crash_of(case, None));
            let recovery = before.map(|_| case);
            self.fail(&first, case.instruction, recovery, message);
            from = number + 1;
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.report.failures.len() >= self.plan.most_failures
    }

    fn fail(&mut self, first: &Crash, instruction: u64, recovery: Option<Case>, message: String) {
        if self.is_full() {
            return;
        }
        self.report.failures.push(Failure {
            at: first.at,
            instruction: self.modules.name(instruction),
            last_point: first.point.map(|point| point.to_string()),
            recovery_at: recovery.map(|case| match traps::AVAILABLE {
                true => At::Store(case.step),
                false => At::Instruction(case.step),
            }),
            recovery_point: recovery.and_then(|case| Some(case.point?.to_string())),
            message,
        });
    }

    /// Kills some victims for real, compares their memory with the images, and recovers it.
    fn kill_for_real(&mut self, initial: &[u64], first: &Recorded) -> Result<(), KillError> {
        let mut replay = first.cases.replay(0);
        let mut at = 0;
        let mut left = Cases::from(initial.to_vec());
        for step in self.plan.real_kills.of(first.trace.steps() + 1) {
            if self.is_full() {
                break;
            }
            // A copy between private places, byte by byte, takes many steps but changes nothing.
            let changed = step == 0 || first.cases.at_step(step) != first.cases.at_step(step - 1);
            if first.trace.is_amid_repetition(step) && !changed {
                continue;
            }
            while at <= first.cases.at_step(step) {
                replay.advance();
                at += 1;
            }
            // Only if the memory would reveal a death in another round of a loop.
            let approach = match self.sweep.is_deterministic() {
                true => Approach::Counted,
                false => Approach::Once,
            };
            let mut killed = self.kill_at(initial, &first.trace, step, approach)?;
            if approach == Approach::Counted
                && let Ok(astray) = killed
                && (astray.strayed || self.differs(&killed, replay.image()).is_some())
            {
                // Wherever it died, survivors must recover it, too.
                left.note_alone(self.memory.words(), self.control, astray.moment);
                self.report.killed_again += 1;
                killed = self.kill_at(initial, &first.trace, step, Approach::Once)?;
            }
            let differs = self.differs(&killed, replay.image());
            let killed = match killed {
                Ok(killed) => killed,
                Err(cut) => {
                    let crash = crash_of(first.cases.get(first.cases.at_step(step)), None);
                    let message = format!("fails in another run: {}", cut.reason);
                    self.fail(&crash, 0, None, message);
                    continue;
                }
            };
            left.note_alone(self.memory.words(), self.control, killed.moment);
            if let Some(word) = differs {
                let crash = crash_of(left.get(left.len() - 1), None);
                let message = format!(
                    "a victim that was really killed here left memory that differs from the image \
                     of this step, at offset {:#x}: is the operation deterministic?",
                    word * 8
                );
                self.fail(&crash, killed.moment.instruction, None, message);
            }
        }
        self.survive(&left, None)
    }

    /// Kills a victim of the operation for real.
    fn kill_at(
        &mut self,
        initial: &[u64],
        trace: &Trace,
        step: u64,
        approach: Approach,
    ) -> Result<Result<Killed, Cut>, KillError> {
        self.memory.fill(initial);
        let operate = operation(self.sweep, self.victims());
        self.tracer.kill_at(trace, step, approach, operate)
    }

    /// Returns the first word in which a victim's memory wrongly differs from the image of its
    /// step.
    fn differs(&self, killed: &Result<Killed, Cut>, image: &[u64]) -> Option<usize> {
        let comparable =
            self.sweep.is_deterministic() && killed.as_ref().is_ok_and(|it| !it.strayed);
        let mut words = self.memory.words().iter().zip(image);
        let differing = words.position(|(word, image)| word.load(Ordering::Relaxed) != *image);
        differing.filter(|_| comparable)
    }

    /// Kills recoverers: sweeps the recovery of some of the crash states in turn.
    fn sweep_recovery(&mut self, first: &Cases) -> Result<(), KillError> {
        let mut replay = first.replay(0);
        let memories = first.memories();
        let chosen = self.plan.recoveries.of(memories.len() as u64);
        let mut chosen = chosen.map(|index| memories[index as usize]).peekable();
        while let (Some((number, case)), false) = (replay.advance(), self.is_full()) {
            if chosen.next_if_eq(&number).is_none() {
                continue;
            }
            let crash = crash_of(case, None);
            match self.record_recovery(replay.image(), &crash)? {
                Ok(cases) => {
                    self.report.recoveries_swept += 1;
                    self.report.second_kills += cases.len() as u64;
                    self.survive(&cases, Some(crash))?;
                }
                Err(cut) => {
                    let message = format!("recovery fails: {}", cut.reason);
                    self.fail(&crash, case.instruction, None, message);
                }
            }
        }
        Ok(())
    }
}

/// Returns the work of victims: the same code in recorded and real runs, for the same path.
fn operation<S: Sweep + ?Sized>(sweep: &S, memory: Marked) -> impl FnOnce(Window) {
    move |window| {
        window.begin();
        sweep.operate(memory);
    }
}

/// Returns the crash that left `case`: the victim's, or its recoverer's after the crash `before`.
fn crash_of(case: Case, before: Option<Crash>) -> Crash {
    match before {
        Some(first) => Crash {
            recoverers_lost: 1,
            ..first
        },
        None => Crash {
            point: case.point,
            returned: case.returned,
            ..Crash::at(At::Instruction(case.step))
        },
    }
}

/// Detects the processor's features here, once, so that no child steps through the detection.
pub(super) fn warm_up() {
    #[cfg(target_arch = "x86_64")]
    core::hint::black_box(std::arch::is_x86_feature_detected!("sse4.2"));
    #[cfg(target_arch = "aarch64")]
    core::hint::black_box(std::arch::is_aarch64_feature_detected!("crc"));
}
