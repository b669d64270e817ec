//! The allocators, killed after every instruction, and their recovery too; and ways to get them wrong,
//! each of which must be found.

mod support;

use outlive_prove::kill::{Plan, Sample, Suite, unless_forbidden};
use outlive_prove::sweeps::{buddy, heap};

#[test]
fn the_buddy_allocator_survives_a_kill_at_every_instruction() {
    support::assert_clean(buddy::add_to);
}

#[test]
fn cells_that_are_written_apart_from_the_transaction_are_found() {
    support::assert_found(buddy::broken());
}

#[test]
fn small_objects_survive_a_kill_at_every_instruction() {
    // The memory is large and the sweeps are many: fewer of the recoveries are swept in turn.
    let mut plan = Plan::quick();
    plan.recoveries = Sample::UpTo(4);
    let mut suite = Suite::new();
    heap::add_to(&mut suite);
    let swept = suite.run(&plan, |_| true, |report| println!("{report}"));
    if let Some(report) = unless_forbidden(swept) {
        report.assert_clean();
    }
}

#[test]
fn small_objects_that_are_not_noted_first_are_found() {
    support::assert_found(heap::broken());
}
