//! The run itself: hosts are supervised until everything is done, and what comes out is collected.

use super::director::Director;
use super::launch::{AsGroups, Running};
use super::scene::{Scene, ask_for};
use super::{Options, Outcome, Progress, RunError, Supervise, driver_thread, process_of};
use crate::host::HostError;
use crate::input::InputError;
use crate::mapreduce::results;
use crate::run::CalledOff;
use outlive::pod::PodError;
use outlive::structures;
use outlive::supervise::{Child, Outlook, ProcessSupervisor, RestartPolicy, Stop, home};
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the director sleeps between two looks while nobody tells it what it waits for.
const LOOK: Duration = Duration::from_millis(1);
/// How long it does otherwise, for the progress.
const PROGRESS: Duration = Duration::from_millis(10);
/// How long it waits at the end for what has not been told yet.
const LAST_NEWS: Duration = Duration::from_secs(10);

impl Scene {
    pub(super) fn play(
        &self,
        options: &Options,
        command: impl FnMut() -> Command + Clone + Send + 'static,
        stop: &Stop,
        progress: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<Outcome, RunError> {
        let Some(process) = &self.process else {
            return Err(RunError::Interrupted);
        };
        let (run, hosts) = (self.run, options.hosts);
        let units = run.mapping().count();
        let running = Running::default();
        let policy = match options.supervise {
            Supervise::Restart => RestartPolicy {
                most: options.kills + 3,
                backoff: Duration::from_millis(1),
                longest: Duration::from_millis(100),
                ..RestartPolicy::default()
            },
            Supervise::None => RestartPolicy::NEVER,
        };
        let began = Instant::now();
        let seen = (self.pod.tables(), self.pod.logs(), self.pod.os()?);
        let mut director = Director::new(run, seen, options, Arc::clone(&running));
        let mut events = process.events();
        let mut supervisor = ProcessSupervisor::new(process.clone(), &self.path)
            .policy(policy)
            .launch(AsGroups { running })
            .placement(home);
        for host in 0..hosts {
            let id = process_of(options, host);
            supervisor = supervisor.child(Child::new(id, host, command.clone()));
        }
        let end = supervisor.stopper();
        let (over, outlooks) = std::thread::scope(|scope| {
            let settled = Stop::default();
            let director = scope.spawn({
                let (settled, end) = (settled.clone(), end.clone());
                move || {
                    // Whoever is told how far it is may ask for the end.
                    let mut tell = |failures| {
                        progress(Progress {
                            loaded: run.loading().drawn(),
                            mapped: run.mapping().drawn(),
                            units,
                            failures,
                        });
                    };
                    while !settled.is_stopped() {
                        if stop.is_stopped() {
                            run.call_off(CalledOff::Interrupted);
                            end.stop();
                            break;
                        }
                        let nap = if director.is_busy() { LOOK } else { PROGRESS };
                        let called = || director.is_wanted() || settled.is_stopped();
                        if let Some(news) = events.wait_for_unless(nap, called) {
                            director.hear(&news);
                        }
                        director.look();
                        tell(director.failed());
                    }
                    // What is still to be told of those that died last.
                    let until = Instant::now() + LAST_NEWS;
                    while director.is_waiting() && Instant::now() < until && !stop.is_stopped() {
                        if let Some(news) = events.wait_for(LOOK) {
                            director.hear(&news);
                        }
                        director.look();
                        tell(director.failed());
                    }
                    director
                }
            });
            let outlooks = supervisor.run();
            settled.stop();
            process.ring();
            let director = director
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (director, outlooks)
        });
        let work = began.elapsed();
        supervisor.kill_children();
        drop(supervisor);
        if stop.is_stopped() {
            return Err(RunError::Interrupted);
        }
        if let Some(why) = run.called_off() {
            return Err(self.explain(why, options));
        }
        if !run.is_done() {
            let dead = outlooks
                .iter()
                .all(|(_, outlook)| *outlook != Outlook::Unsettled);
            debug_assert!(dead);
            return Err(RunError::AllDead {
                hosts,
                done: run.mapping().done(),
                units,
            });
        }
        let (failures, killed) = over.report();
        let redone = (0..run.workers())
            .map(|number| run.table(number))
            .map(|table| u64::from(table.attempts() - table.committed()))
            .sum();
        let mut totals = {
            let member = process
                .enter(Some(driver_thread(options)), "driver")
                .map_err(PodError::from)?;
            let local = member.heap(&self.pod)?;
            results(run, &local)
                .map_err(structures::CreateError::from)
                .map_err(HostError::from)?
        };
        crate::wordcount::sort(&mut totals);
        Ok(Outcome {
            totals,
            seconds: 0.0,
            seconds_to_create: 0.0,
            seconds_of_work: work.as_secs_f64(),
            cpu_seconds: 0.0,
            bytes: options.inputs.bytes(),
            units,
            segment_bytes: self.pod.segment().size(),
            pod: self.path.clone(),
            kills_too_late: options.kills - killed,
            failures,
            units_redone: redone,
        })
    }

    fn explain(&self, why: CalledOff, options: &Options) -> RunError {
        let path = |file: u32| {
            let file = options.inputs.files().get(file as usize);
            file.map_or_else(PathBuf::new, |file| file.path.clone())
        };
        let size = self.pod.segment().size();
        match why {
            CalledOff::Interrupted => RunError::Interrupted,
            CalledOff::Full(wanted) => RunError::Full {
                size,
                wanted,
                ask: ask_for(size, self.estimate.max(size + wanted)),
            },
            CalledOff::Unreadable(file, error) => InputError::Unreadable {
                path: path(file),
                source: io::Error::from_raw_os_error(error),
            }
            .into(),
            CalledOff::Changed(file) => RunError::Changed { path: path(file) },
            CalledOff::TooLong(unit) => {
                let (unit, _) = self.run.unit(unit);
                RunError::TooLong {
                    path: path(unit.file),
                    at: unit.from,
                }
            }
            CalledOff::Failed(worker) => RunError::Failed(worker),
        }
    }
}
