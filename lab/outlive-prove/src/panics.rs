//! One panic hook for all proofs of a process. It keeps panics that are outcomes, unprinted.
//!
//! It is installed once, here. With two installers, each of which wraps the current hook in its
//! own, both may wrap the same one; the panics that the lost hook waits for would be printed from
//! then on.

use crate::{kill, schedule};
use std::panic;
use std::sync::Once;

/// Installs the hook if it is not installed.
pub(crate) fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let printing = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !kill::capture_panic(info) && !schedule::capture_panic(info) {
                printing(info);
            }
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{Bounds, scenario};
    use std::panic::catch_unwind;

    /// Both kinds of proofs begin at once, and each hears its own panics afterwards.
    #[test]
    fn who_begins_at_the_same_time_hears_as_well() {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(listen);
            }
        });
        let failing = scenario("panics")
            .memory(64)
            .thread("one", |_| panic!("on purpose"))
            .check(|_, _: &schedule::End<()>| ());
        let report = failing.explore(&Bounds::default());
        let said = report.failures.iter().map(ToString::to_string);
        assert!(said.into_iter().any(|said| said.contains("on purpose")));
        // Outside a proof, panics are printed as before.
        assert!(catch_unwind(|| panic!("printed")).is_err());
    }
}
