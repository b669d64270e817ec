//! What tests demand of sweeps: of sound operations that nothing is found, of broken ones that something is.

use super::{KillError, Plan, Suite, Sweep, sweep, unless_forbidden};
use crate::lanes::{Event, in_lanes};
use core::ops::ControlFlow;

/// Runs the sweeps that `add_to` adds, for tests. Where processes may not be traced, nothing is demanded.
///
/// # Panics
/// If one of them finds something, cannot be made, or a crash point that they declare is not covered.
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

/// Runs sweeps of broken variants, for tests, until each has found something. Where processes may not be traced,
/// nothing is demanded.
///
/// # Panics
/// If one finds nothing, or first something else than its message says; or if there is none.
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
            // One that fails though nobody is killed is found, too.
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
