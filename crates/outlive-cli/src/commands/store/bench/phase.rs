//! Shows the current phase of a run, and its elapsed time, on a terminal.

use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// The current phase. Its line is removed when it is dropped.
pub struct Phase(ProgressBar);

impl Phase {
    /// Shows the first phase.
    pub fn begin(name: &'static str) -> Self {
        let bar = ProgressBar::new_spinner().with_message(name);
        if let Ok(style) = ProgressStyle::with_template("{msg}: {elapsed}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(250));
        Self(bar)
    }

    /// Shows the next phase.
    pub fn next(&self, name: &'static str) {
        self.0.reset();
        self.0.set_message(name);
        self.0.enable_steady_tick(Duration::from_millis(250));
    }

    /// Removes the line until the next phase.
    pub fn pause(&self) {
        self.0.disable_steady_tick();
        self.0.set_message("");
        self.0.finish_and_clear();
    }
}

impl Drop for Phase {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
