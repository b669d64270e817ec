//! Assertions for tests: sweeps find no fault in sound operations, and one in broken ones.

use super::{KillError, Plan, Suite, Sweep, sweep, unless_forbidden};
use crate::parallel::{Event, in_lanes};
use core::ops::ControlFlow;

/// Runs the sweeps that `add_to` adds, for tests. Where processes may not be traced, nothing is
/// demanded.
///
/// # Panics
/// If a sweep finds a fault or is not possible, or if a declared crash point is not covered.
#[track_caller]
pub fn assert_clean(add_to: impl FnOnce(&mut Suite), plan: &Plan) {
    let mut suite = Suite::new();
    add_to(&mut suite);
    let swept = suite.run(
        plan,
        |_| true,
        |_, event| {
            if let Event::Ends(report) = event {
                println!("{report}");
            }
            ControlFlow::Continue(())
        },
    );
    if let Some(report) = unless_forbidden(swept) {
        report.assert_clean();
    }
}

/// Runs sweeps of broken variants, for tests, until each has found a fault. Where processes may not
/// be traced, nothing is demanded.
///
/// # Panics
/// If a sweep finds nothing, or its first fault does not contain its message; or if there is none.
#[track_caller]
pub fn assert_found(broken: Vec<(Box<dyn Sweep>, &'static str)>) {
    assert!(!broken.is_empty());
    let plan = Plan {
        most_failures: 1,
        ..Plan::quick()
    };
    in_lanes(
        &broken,
        |(variant, _)| sweep(&**variant, &plan),
        |at, event| {
            let Event::Ends(swept) = event else {
                return ControlFlow::Continue(());
            };
            let (variant, message) = &broken[at];
            // A variant that fails without a kill is found, too.
            if let Err(KillError::Broken { reason, .. }) = &swept {
                println!("{}: {reason}", variant.name());
                assert!(reason.contains(message), "{reason}");
                return ControlFlow::Continue(());
            }
            let Some(report) = unless_forbidden(swept) else {
                return ControlFlow::Break(());
            };
            let failure = report.failures.first();
            let failure = failure.unwrap_or_else(|| panic!("{} was not found", variant.name()));
            println!("{failure}");
            assert!(failure.message.contains(message), "{failure}");
            ControlFlow::Continue(())
        },
    );
}
