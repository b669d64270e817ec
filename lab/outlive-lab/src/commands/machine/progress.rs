//! How far a run is, on a terminal.

use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use outlive_machine::run::Progress;
use std::cell::Cell;
use std::ops::ControlFlow;
use std::time::Instant;

/// Seconds of this computer's clock.
#[derive(Clone, Copy, Debug)]
pub struct Took {
    /// All that the run took: its memory is set up, it is simulated, its result is checked.
    pub seconds: f64,
    /// From the first event to the last.
    pub simulating: f64,
}

/// A line on standard error, if that is a terminal: simulated time, instructions, and how fast they come.
pub struct Line {
    bar: ProgressBar,
    begun: Instant,
    /// When it first and last heard of the run.
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

    /// What the run has taken of this computer's time.
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
