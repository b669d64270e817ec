//! A run from the command line, with interruptions and a progress bar.

use super::host_command;
use crate::failure::Failure;
use crate::interruption;
use indicatif::{ProgressBar, ProgressStyle};
use outlive::supervise::Stop;
use outlive_run::driver::{self, Options, Outcome, Program, Progress, RunError, Running};
use signal_hook::consts::SIGQUIT;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// The flag that a signal has requested the end of the run.
#[derive(Clone)]
pub struct Interrupted(Arc<AtomicBool>);

impl Interrupted {
    /// Handles signals from now on. A terminal does not stop this process any more.
    pub fn listen() -> Result<Self, Failure> {
        driver::not_stopped_by_a_terminal();
        let [int, term, hup] = interruption::SIGNALS;
        Ok(Self(interruption::flag(&[int, term, hup, SIGQUIT])?))
    }

    /// Returns whether such a signal has arrived.
    pub fn is_heard(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Executes `work`, which may take long, on a thread of its own. If the run is interrupted,
    /// returns an error without waiting for the thread.
    pub fn unless<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let work = thread::Builder::new()
            .spawn(work)
            .map_err(Failure::no_thread)?;
        while !work.is_finished() {
            if self.is_heard() {
                return Err(Failure::new("interrupted"));
            }
            thread::sleep(Duration::from_millis(5));
        }
        work.join()
            .map_err(|panic| std::panic::resume_unwind(panic))
    }
}

/// Calls `load`, which loads an input. On a terminal, shows a spinner until it returns.
pub fn loading<T>(what: String, load: impl FnOnce() -> T) -> T {
    let spinner = ProgressBar::new_spinner();
    spinner.set_message(what);
    tick(&spinner);
    let loaded = load();
    spinner.finish_and_clear();
    loaded
}

/// Calls `load` as [`loading`] does, for an input that may never end: a pipe. Returns early if the
/// run is interrupted.
pub fn loading_unless<T: Send + 'static>(
    interrupted: &Interrupted,
    what: String,
    load: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    loading(what, || interrupted.unless(load))
}

/// Keeps a bar moving by a thread of its own, if the bar is shown and a thread can be started (the
/// bar would panic otherwise).
fn tick(bar: &ProgressBar) {
    if !bar.is_hidden() && thread::Builder::new().spawn(|| ()).is_ok() {
        bar.enable_steady_tick(Duration::from_millis(100));
    }
}

/// Runs `program` on hosts that are this executable. `what` is the unit of the progress bar.
pub fn play<P: Program>(
    options: &Options,
    program: &P,
    interrupted: &Interrupted,
    what: String,
) -> Result<Outcome<<P::Running as Running>::Result>, Failure> {
    let command = host_command()?;
    let stop = Stop::default();
    let bar = bar(what);
    let mut progress = {
        let bar = bar.clone();
        move |now: Progress| show(&bar, &now)
    };
    let is_over = AtomicBool::new(false);
    let outcome = thread::scope(|scope| {
        // Also without progress: after a run, the size that a segment should have had may be
        // counted.
        let listener = thread::Builder::new().spawn_scoped(scope, || {
            while !is_over.load(Ordering::Relaxed) {
                if interrupted.is_heard() {
                    stop.stop();
                }
                thread::sleep(Duration::from_millis(5));
            }
        });
        let _over = Over(&is_over);
        listener.map_err(RunError::Thread)?;
        driver::run(options, program, command, &stop, &mut progress)
    });
    bar.finish_and_clear();
    outcome.map_err(|error| match error {
        RunError::Impossible { .. } => Failure::Usage(error.to_string()),
        RunError::AllDead { .. } | RunError::Failed(_) | RunError::Job(_) => {
            Failure::new(format_args!(
                "{error} (--seed {} repeats the choices of this run)",
                options.seed
            ))
        }
        _ => Failure::new(error),
    })
}

/// Sets a flag on drop, also in a panic.
struct Over<'o>(&'o AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns a progress bar on standard error, which is shown if that is a terminal.
fn bar(what: String) -> ProgressBar {
    let bar = ProgressBar::new(1);
    bar.set_message(what);
    tick(&bar);
    match ProgressStyle::with_template("{prefix:7} {wide_bar} {pos}/{len} {msg} {elapsed}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn show(bar: &ProgressBar, now: &Progress) {
    bar.set_length(now.stretch.units);
    bar.set_prefix(now.stretch.phase);
    bar.set_position(now.stretch.done);
}
