//! The run itself: supervises the hosts until everything is done, and collects the result.

use super::director::Director;
use super::launch::{AsGroups, Running, cpu_seconds, lock};
use super::scene::{Scene, ask_for};
use super::{Attendant, Options, Outcome, Program, Progress, RunError, Supervise};
use crate::header::CalledOff;
use outlive::pod::PodError;
use outlive::supervise::{Child, Outlook, ProcessSupervisor, RestartPolicy, Stop, home};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The time between two checks of the director while something is due for which no event arrives.
const LOOK: Duration = Duration::from_millis(1);
/// The time between two checks otherwise, for the progress.
const PROGRESS: Duration = Duration::from_millis(10);
/// The time for which the director waits at the end for failures that are not over.
const LAST_NEWS: Duration = Duration::from_secs(10);

impl<R: super::Running> Scene<R> {
    pub(super) fn play(
        &self,
        options: &Options,
        program: &impl Program<Running = R>,
        command: impl FnMut() -> Command + Clone + Send + 'static,
        stop: &Stop,
        progress: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<Outcome<R::Result>, RunError> {
        let Some(process) = &self.process else {
            return Err(RunError::Interrupted);
        };
        let (run, header) = (self.run, self.run.header());
        let (crew, units) = (header.crew(), header.units());
        let hosts = crew.hosts;
        let running = Running::default();
        let refused = Arc::default();
        let policy = match options.supervise {
            Supervise::Restart => RestartPolicy {
                most: options.kills + 3,
                backoff: Duration::from_millis(1),
                longest: Duration::from_millis(100),
                ..RestartPolicy::default()
            },
            Supervise::None => RestartPolicy::NEVER,
        };
        let (began, cpu) = (Instant::now(), cpu_seconds());
        let seen = (self.pod.tables(), self.pod.logs(), self.pod.os()?);
        let mut director = Director::new(run, seen, options, Arc::clone(&running));
        let mut events = process.events();
        let mut supervisor = ProcessSupervisor::new(process.clone(), &self.path)
            .policy(policy)
            .launch(AsGroups {
                running,
                refused: Arc::clone(&refused),
            })
            .placement(home);
        for host in 0..hosts {
            let id = crew.first_of(host);
            supervisor = supervisor.child(Child::new(id, host, command.clone()));
        }
        let end = supervisor.stopper();
        let settled = Stop::default();
        let (over, attended, outlooks) = std::thread::scope(|scope| {
            let settled = &settled;
            let thread = |name: &str| std::thread::Builder::new().name(name.into());
            let attendant = thread("attendant").spawn_scoped(scope, || {
                let member = process
                    .enter(Some(crew.driver_thread()), "driver")
                    .map_err(PodError::from)?;
                let attendant = Attendant {
                    pod: &self.pod,
                    process,
                    heap: &member.heap(&self.pod)?,
                    deadline: options.deadline,
                };
                program.attend(&run, &attendant, settled)
            });
            let attendant = attendant.map_err(RunError::Thread)?;
            let director = thread("director").spawn_scoped(scope, {
                let end = end.clone();
                move || {
                    // The progress callback may request the end of the run.
                    let mut tell = |failures| {
                        let stretch = run.stretch();
                        progress(Progress { stretch, failures });
                    };
                    while !settled.is_stopped() {
                        if stop.is_stopped() || director.is_powerless() {
                            header.call_off(CalledOff::Interrupted);
                            end.stop();
                            break;
                        }
                        let nap = if director.is_busy() { LOOK } else { PROGRESS };
                        let called = || director.is_wanted() || settled.is_stopped();
                        if let Some(news) = events.wait_for_unless(nap, called) {
                            director.on_news(&news);
                        }
                        director.look();
                        tell(director.failed());
                    }
                    // Follow the last failures until they are over.
                    let until = Instant::now() + LAST_NEWS;
                    let goes_on = || Instant::now() < until && !stop.is_stopped();
                    while director.is_waiting() && !director.is_powerless() && goes_on() {
                        if let Some(news) = events.wait_for(LOOK) {
                            director.on_news(&news);
                        }
                        director.look();
                        tell(director.failed());
                    }
                    director
                }
            });
            // No host is started without a thread that directs the run.
            let outlooks = match director.is_ok() {
                true => supervisor.run(),
                false => Vec::new(),
            };
            settled.stop();
            process.ring();
            let director = director
                .map_err(RunError::Thread)?
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let attended = attendant
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            Ok::<_, RunError>((director, attended, outlooks))
        })?;
        let work = began.elapsed();
        supervisor.kill_children();
        drop(supervisor);
        let cpu = cpu_seconds() - cpu;
        if stop.is_stopped() {
            return Err(RunError::Interrupted);
        }
        let failures = over.report()?;
        if let Some(why) = header.called_off() {
            return Err(self.explain(why, program));
        }
        attended?;
        if !run.is_done() {
            let dead = outlooks
                .iter()
                .all(|(_, outlook)| *outlook != Outlook::Unsettled);
            debug_assert!(dead);
            if let Some(error) = lock(&refused).take() {
                return Err(RunError::Launch(error));
            }
            return Err(RunError::AllDead {
                hosts,
                done: run.done(),
                units,
            });
        }
        let result = {
            let member = process
                .enter(Some(crew.driver_thread()), "driver")
                .map_err(PodError::from)?;
            program.result(&run, &self.pod, &member.heap(&self.pod)?)?
        };
        let killed = failures.iter().filter(|it| it.killed_at.is_some()).count();
        Ok(Outcome {
            result,
            seconds: 0.0,
            seconds_to_create: 0.0,
            seconds_of_work: work.as_secs_f64(),
            cpu_seconds: 0.0,
            cpu_seconds_of_work: cpu,
            units: run.units(),
            segment_bytes: self.pod.segment().size(),
            pod: self.path.clone(),
            no_room: self.no_room.clone(),
            kills_missed: options.kills.saturating_sub(killed as u32),
            failures,
            units_redone: run.redone(),
            turns: run.turns(),
        })
    }

    fn explain(&self, why: CalledOff, program: &impl Program<Running = R>) -> RunError {
        let size = self.pod.segment().size();
        match why {
            CalledOff::Interrupted => RunError::Interrupted,
            CalledOff::Full(wanted) => RunError::Full {
                size,
                wanted,
                ask: ask_for(size, self.estimate),
            },
            CalledOff::Failed(worker) => RunError::Failed(worker),
            other => program.explain(&self.run, other),
        }
    }
}
