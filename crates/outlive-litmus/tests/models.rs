//! The levels of the generated tests, checked by enumerating their executions in reference models.

use outlive_litmus::consistency::model::{Objection, Verified, verify};
use outlive_litmus::consistency::{Generated, MOST_TRANSACTIONS};
use outlive_litmus::level::{Isolation, Level};
use outlive_litmus::test::{Comparison, Condition, Test};
use std::collections::{BTreeMap, BTreeSet};

fn generated(transactions: usize) -> Generated {
    Generated::with(transactions).expect("both definitions of the levels agree")
}

fn verified(test: &Test) -> Verified {
    verify(test, 1).unwrap_or_else(|it| panic!("{it}: {test:?}"))
}

/// Each outcome occurs in some model, and in none whose level forbids it.
#[test]
fn the_models_confirm_the_levels_of_all_generated_tests() {
    let (mut tests, mut states) = (0, 0);
    let mut not_shown: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut names = BTreeSet::new();
    for transactions in 2..=MOST_TRANSACTIONS {
        for test in generated(transactions).tests() {
            let verified = verified(test);
            tests += 1;
            states += verified.states;
            for level in verified.not_shown {
                not_shown
                    .entry(level.to_string())
                    .or_default()
                    .push(test.name.clone());
            }
            assert!(
                names.insert(test.name.clone()),
                "{} occurs twice",
                test.name
            );
        }
    }
    println!("{tests} tests, {states} states");
    for (level, tests) in &not_shown {
        println!("{level} allows, and no model shows: {}", tests.join(" "));
    }
    // Two models are stricter than their levels in a way that matters: under write locks versions
    // are in the order of commits, and counts see the newest committed state.
    let numbers = not_shown
        .iter()
        .map(|(level, tests)| (level.as_str(), tests.len()));
    let numbers: Vec<_> = numbers.collect();
    assert_eq!(
        numbers,
        [
            ("strict-read-uncommitted", 16),
            ("strict-repeatable-read", 1)
        ]
    );
}

/// A test with too weak or too strong levels, or without a possible outcome, is refused.
#[test]
fn the_models_refuse_wrong_levels() {
    let tests = generated(2);
    let of_words = |name: &str| {
        let found = tests.words.iter().find(|it| it.name == name);
        found.expect("a generated test").clone()
    };
    let skew = of_words("cycle-rw-rw");
    assert_eq!(
        skew.forbidden_from,
        [Level::new(Isolation::RepeatableRead, false)]
    );
    let wrong = Test {
        forbidden_from: vec![Level::new(Isolation::Snapshot, false)],
        ..skew.clone()
    };
    let objection = verify(&wrong, 1).expect_err("snapshots show write skew");
    assert!(matches!(objection, Objection::Occurs { .. }), "{objection}");
    let impossible = Condition::Compare(
        outlive_litmus::test::Expression::Constant(0),
        Comparison::Equal,
        outlive_litmus::test::Expression::Constant(1),
    );
    let vacuous = Test {
        assertion: outlive_litmus::test::Assertion::Never(impossible),
        ..skew
    };
    let objection = verify(&vacuous, 1).expect_err("nothing shows it");
    assert!(
        matches!(objection, Objection::Vacuous { .. }),
        "{objection}"
    );
}
