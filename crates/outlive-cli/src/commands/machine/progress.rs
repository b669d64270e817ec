//! How far a run is, on a terminal.

use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use outlive_machine::run::Progress;
use std::ops::ControlFlow;
use std::time::Instant;

/// A line on standard error, if that is a terminal: simulated time, instructions, and how fast they come.
pub struct Line {
    bar: ProgressBar,
    begun: Instant,
}

impl Line {
    pub fn new(what: String) -> Self {
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{prefix} {elapsed} {msg}") {
            bar.set_style(style);
        }
        bar.set_prefix(what);
        let begun = Instant::now();
        Self { bar, begun }
    }

    pub fn show(&self, progress: &Progress) -> ControlFlow<()> {
        let seconds = self.begun.elapsed().as_secs_f64();
        self.bar.set_message(format!(
            "{} simulated, {} instructions, {:.2} million a second",
            progress.now,
            HumanCount(progress.instructions),
            progress.instructions as f64 / seconds / 1e6
        ));
        self.bar.tick();
        ControlFlow::Continue(())
    }

    /// Seconds of this machine's clock since the beginning.
    pub fn seconds(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
