//! Targets of `outlive litmus`: the stores that have a driver.

use crate::failure::Failure;
use crate::output;
use crate::store_driver;
use outlive_litmus::driver::{Driver, DriverError, SCHEMES, Scheme, open_among};

/// Returns the kinds of targets: those of `outlive_litmus`, and the stores of this project.
pub fn schemes() -> Vec<Scheme> {
    [SCHEMES, &[store_driver::SCHEME]].concat()
}

/// Returns the list of targets for the help of a command.
pub fn help() -> String {
    let widest = schemes().iter().map(|it| it.form.len()).max();
    let lines = schemes().into_iter().map(|Scheme { form, about, .. }| {
        format!("  {form:width$}  {about}\n", width = widest.unwrap_or(0))
    });
    format!("Targets:\n{}", lines.collect::<String>())
}

/// Opens the driver for a target.
///
/// ```
/// let error = outlive_cli::target::open("outlive-store:/dev/shm/none").err().unwrap();
/// assert!(error.to_string().starts_with("outlive-store:/dev/shm/none: "));
/// ```
///
/// # Errors
/// If the scheme is unknown, or the driver refuses the target.
pub fn open(target: &str) -> Result<Box<dyn Driver>, DriverError> {
    open_among(target, &schemes())
}

impl From<DriverError> for Failure {
    fn from(error: DriverError) -> Self {
        // Targets and the messages of stores can contain control characters.
        let paragraph = output::printable(&error);
        match error.is_malformed {
            true => Self::Usage(paragraph),
            false => Self::Failed(paragraph),
        }
    }
}
