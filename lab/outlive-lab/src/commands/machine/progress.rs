//! The progress of a run, on a terminal.

use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use outlive_machine::run::Progress;
use std::cell::Cell;
use std::ops::ControlFlow;
use std::time::Instant;

/// Durations in seconds of this computer's clock.
#[derive(Clone, Copy, Debug)]
pub struct Took {
    /// The whole run: setting up memory, simulating, checking the result.
    pub seconds: f64,
    /// From the first event to the last.
    pub simulating: f64,
}

/// A line on standard error, if that is a terminal: simulated time, instructions, and their rate.
pub struct Line {
    bar: ProgressBar,
    begun: Instant,
    /// The times of the run's first and last progress.
    heard: Cell<Option<(Instant, Instant)>>,
}

impl Line {
    pub fn new(what: String) -> Self {
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{prefix} {elapsed} {msg}") {
            bar.set_style(style);
        }
        bar.set_prefix(what);
        Self {
            bar,
            begun: Instant::now(),
            heard: Cell::new(None),
        }
    }

    pub fn show(&self, progress: &Progress) -> ControlFlow<()> {
        let now = Instant::now();
        let first = self.heard.get().map_or(now, |(first, _)| first);
        self.heard.set(Some((first, now)));
        let seconds = (now - first).as_secs_f64().max(f64::MIN_POSITIVE);
        self.bar.set_message(format!(
            "{} simulated, {} instructions, {:.2} million a second",
            progress.now,
            HumanCount(progress.instructions),
            progress.instructions as f64 / seconds / 1e6
        ));
        self.bar.tick();
        ControlFlow::Continue(())
    }

    /// Returns the run's duration by this computer's clock.
    pub fn took(&self) -> Took {
        let heard = self.heard.get();
        Took {
            seconds: self.begun.elapsed().as_secs_f64(),
            simulating: heard.map_or(0.0, |(first, last)| (last - first).as_secs_f64()),
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
