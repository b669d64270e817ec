//! Counting, killed after every instruction, and its recovery too; and ways to get it wrong.

use outlive_prove::kill::{Plan, Sample, Suite, sweep, unless_forbidden};
use outlive_workloads::sweeps;

#[test]
fn counts_are_exact_after_a_kill_at_every_instruction() {
    let mut suite = Suite::new();
    sweeps::add_to(&mut suite);
    let mut plan = Plan::quick();
    plan.recoveries = Sample::UpTo(3);
    let swept = suite.run(&plan, |_| true, |report| println!("{report}"));
    if let Some(report) = unless_forbidden(swept) {
        report.assert_clean();
    }
}

#[test]
fn wrong_counts_are_found() {
    for (variant, message) in sweeps::broken() {
        let mut plan = Plan::quick();
        plan.most_failures = 1;
        let Some(report) = unless_forbidden(sweep(&*variant, &plan)) else {
            return;
        };
        let failure = report.failures.first();
        let failure = failure.unwrap_or_else(|| panic!("{} was not found", variant.name()));
        println!("{failure}");
        assert!(failure.message.contains(message), "{failure}");
    }
}
