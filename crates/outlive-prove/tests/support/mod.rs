//! Sweeps of the library, run as tests.

#![allow(dead_code)] // each test file uses its part of this

use outlive_prove::kill::{Plan, Suite, Sweep, sweep, unless_forbidden};

/// Demands that the sweeps which `add_to` adds find nothing and cover what they declare.
#[track_caller]
pub fn assert_clean(add_to: fn(&mut Suite)) {
    let mut suite = Suite::new();
    add_to(&mut suite);
    let swept = suite.run(&Plan::quick(), |_| true, |report| println!("{report}"));
    if let Some(report) = unless_forbidden(swept) {
        report.assert_clean();
    }
}

/// Demands that each of these sweeps of broken variants finds what it must.
#[track_caller]
pub fn assert_found(broken: Vec<(Box<dyn Sweep>, &'static str)>) {
    assert!(!broken.is_empty());
    for (variant, message) in broken {
        let mut plan = Plan::quick();
        plan.most_failures = 1;
        let Some(report) = unless_forbidden(sweep(&*variant, &plan)) else {
            return;
        };
        let failure = report.failures.first();
        let failure = failure.unwrap_or_else(|| panic!("{} was not found", variant.name()));
        assert!(failure.message.contains(message), "{failure}");
    }
}
