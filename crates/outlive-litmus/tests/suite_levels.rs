//! The levels of the shipped tests, checked by enumerating their executions in reference models.

use outlive_litmus::consistency::model::{instances, verify};
use outlive_litmus::consistency::{Generated, MOST_TRANSACTIONS};
use outlive_litmus::scalable::prove;
use outlive_litmus::{suite, text};

#[test]
fn the_models_confirm_the_levels_of_the_shipped_suite() {
    let mut objections = Vec::new();
    let tests = suite::tests();
    for test in &tests {
        match verify(test, instances(test)) {
            Ok(verified) => println!(
                "{}: shown by {}; not shown: {:?}; {} states",
                test.name,
                verified.shown_by.join(", "),
                verified
                    .not_shown
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>(),
                verified.states
            ),
            Err(objection) => objections.push(objection.to_string()),
        }
    }
    assert!(
        objections.is_empty(),
        "{} of {} tests:\n{}",
        objections.len(),
        tests.len(),
        objections.join("\n")
    );
}

/// Three instances of the smallest tests that share objects. DESIGN.md has the result for all.
#[test]
fn the_models_confirm_the_levels_with_three_instances() {
    let small = [
        "litmus-1",
        "litmus-1-insert-delete",
        "litmus-2",
        "litmus-2-delete-insert",
    ];
    let tests = suite::tests();
    for name in small {
        let test = tests.iter().find(|it| it.name == name).unwrap();
        let verified = verify(test, 3).unwrap_or_else(|it| panic!("{it}"));
        let fewer = verify(test, 2).unwrap();
        assert_eq!(verified.shown_by, fewer.shown_by, "{name}");
        assert!(verified.states > fewer.states, "{name}");
    }
}

/// The generated tests are within the limits of the text format, and pass the check of tests that
/// users write.
#[test]
fn generated_tests_are_read_back_from_their_text() {
    for transactions in 2..=MOST_TRANSACTIONS {
        let generated = Generated::with(transactions).expect("both definitions agree");
        for test in generated.tests() {
            let text = text::print(test);
            let read = text::parse(&text).unwrap_or_else(|it| panic!("{it}\n{text}"));
            assert_eq!(read, std::slice::from_ref(test), "{text}");
            prove(test).unwrap_or_else(|it| panic!("{it}\n{text}"));
        }
    }
}
