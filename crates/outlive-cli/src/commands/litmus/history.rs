//! The history of a run, for public checkers.

use crate::failure::Failure;
use crate::output;
use outlive_litmus::driver::Driver;
use outlive_litmus::recording::{Recording, RecordingError};
use std::path::Path;
use std::sync::Arc;

/// The history of a run, if the user asked for one.
pub struct History(Option<Recording>);

impl History {
    /// Begins the history in `path`. Returns it, and the driver that records its transactions.
    pub fn begin(
        path: Option<&Path>,
        driver: Arc<dyn Driver>,
    ) -> Result<(Self, Arc<dyn Driver>), Failure> {
        let Some(path) = path else {
            return Ok((Self(None), driver));
        };
        let recording = Recording::create(path).map_err(failed)?;
        let driver = recording.driver(driver);
        Ok((Self(Some(recording)), driver))
    }

    /// Ends the history.
    pub fn end(self) -> Result<(), Failure> {
        match self.0 {
            Some(recording) => recording.finish().map(drop).map_err(failed),
            None => Ok(()),
        }
    }
}

fn failed(error: RecordingError) -> Failure {
    // The name of the file can contain control characters.
    Failure::new(output::printable(&error))
}
