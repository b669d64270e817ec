//! The path of every run: its program is played, the result checked, written and reported.

use super::destination::Destination;
use super::flags::Flags;
use super::play::{Interrupted, play};
use crate::failure::Failure;
use outlive_run::driver::{Options, Program, Running};
use serde::Serialize;
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

/// The steps of a run that differ between programs.
pub struct Steps<C, W, D> {
    /// The text next to the progress bar: the name of the units that it counts.
    pub units: String,
    /// Computes the result another way and compares, for `--verify`. Fails if the input cannot be
    /// read once more.
    pub check: C,
    /// Writes the result to `--output`.
    pub write: W,
    /// Describes the result, with the verdict of the check, if there was one.
    pub describe: D,
}

/// The verdict of a check.
pub struct Verdict {
    wrong: Option<Failure>,
    right: String,
    difference: Option<f64>,
}

impl Verdict {
    /// Returns the verdict of `checked`; `right` is the line of the report if it is `Ok`.
    pub fn of<E: Display>(checked: Result<(), E>, right: impl Into<String>) -> Self {
        Self {
            wrong: checked.err().map(Failure::new),
            right: right.into(),
            difference: None,
        }
    }

    /// Adds the largest difference between the results.
    pub fn with_difference(self, difference: f64) -> Self {
        Self {
            difference: Some(difference),
            ..self
        }
    }

    pub fn difference(&self) -> Option<f64> {
        self.difference
    }

    pub fn is_right(&self) -> bool {
        self.wrong.is_none()
    }
}

/// The description of a result.
pub struct Text<F> {
    /// The result for JSON.
    pub found: F,
    /// Whether the fields of `found` are at the top level of the JSON report instead of in
    /// `result`.
    pub is_flat: bool,
    /// The line before the report.
    pub headline: String,
    /// The lines after the report.
    pub lines: Vec<String>,
}

/// A run, from before its input is read.
pub struct Run<'f> {
    flags: &'f Flags,
    verify: bool,
    pub options: Options,
    pub interrupted: Interrupted,
    pub destination: Option<Destination>,
}

impl<'f> Run<'f> {
    /// Begins a run, which signals interrupt from now on. Without `--kill`, `kills` hosts are
    /// killed.
    pub fn begin(flags: &'f Flags, kills: u32, verify: bool) -> Result<Self, Failure> {
        Ok(Self {
            flags,
            verify,
            options: flags.options(kills),
            interrupted: Interrupted::listen()?,
            destination: None,
        })
    }

    /// Opens the destination of the result, if one was given, so that a destination that cannot be
    /// written is known before the input is loaded. It cannot be one of the files in `read`:
    /// `to_be` says how these are used. For a pipe without a reader, waits until there is one or
    /// the run is interrupted.
    pub fn open_destination<'i>(
        &mut self,
        read: impl IntoIterator<Item = &'i Path>,
        to_be: &str,
    ) -> Result<(), Failure> {
        if let Some(path) = self.flags.output() {
            let destination = Destination::prepare(path, read, to_be, &self.interrupted)?;
            self.destination = Some(destination);
        }
        Ok(())
    }

    /// Runs `program`, checks and writes its result, and prints the report. A wrong result is
    /// reported and not written.
    pub fn play<P, R, F>(
        self,
        program: &P,
        steps: Steps<
            impl FnOnce(Arc<R>) -> Result<Verdict, Failure> + Send + 'static,
            impl FnOnce(&R, Destination) -> Result<(), Failure>,
            impl FnOnce(&R, Option<&Verdict>) -> Text<F>,
        >,
    ) -> Result<(), Failure>
    where
        P: Program<Running: Running<Result = R>>,
        R: Send + Sync + 'static,
        F: Serialize,
    {
        let outcome = play(&self.options, program, &self.interrupted, steps.units)?;
        let (result, outcome) = outcome.split();
        let result = Arc::new(result);
        let verdict = match self.verify {
            true => {
                let (check, result) = (steps.check, Arc::clone(&result));
                Some(self.interrupted.unless(move || check(result))??)
            }
            false => None,
        };
        let is_right = verdict.as_ref().is_none_or(Verdict::is_right);
        if let Some(destination) = self.destination.filter(|_| is_right) {
            (steps.write)(&result, destination)?;
        }
        let mut text = (steps.describe)(&result, verdict.as_ref());
        let (wrong, right) = verdict.map_or((None, None), |it| (it.wrong, Some(it.right)));
        text.lines.extend(right.filter(|_| is_right));
        let told = self.flags.tell(&self.options, &outcome, text);
        wrong.map_or(told, Err)
    }
}
