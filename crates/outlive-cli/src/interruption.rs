//! Interruptions of a command by signals.

use crate::failure::Failure;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The signals by which users, service managers and terminals end a command.
pub const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Returns a flag that each of `signals` sets from now on, instead of ending the process.
///
/// # Errors
/// If a handler cannot be installed.
pub fn flag(signals: &[i32]) -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    for &signal in signals {
        signal_hook::flag::register(signal, Arc::clone(&flag)).map_err(|error| {
            Failure::new(format_args!(
                "the handler of signal {signal} cannot be installed: {error}"
            ))
        })?;
    }
    Ok(flag)
}
