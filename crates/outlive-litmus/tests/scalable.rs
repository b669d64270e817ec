//! Assertions that are scalable are shown to be, and others are refused with a counterexample.

use outlive_litmus::scalable::{NotScalable, Proof, prove};
use outlive_litmus::suite;
use outlive_litmus::test::{Assertion, Test};
use outlive_litmus::text::{parse, print};

fn shipped(name: &str) -> Test {
    let found = suite::tests().into_iter().find(|it| it.name == name);
    found.unwrap_or_else(|| panic!("no test {name}"))
}

/// Returns a shipped test with `from` replaced by `to` in its text.
fn changed(name: &str, from: &str, to: &str) -> Test {
    let text = print(&shipped(name));
    assert!(text.contains(from), "{text}");
    parse(&text.replace(from, to)).unwrap().remove(0)
}

#[test]
fn the_shipped_assertions_are_scalable() {
    for test in suite::tests() {
        let proof = prove(&test).unwrap_or_else(|it| panic!("{}: {it}", test.name));
        let is_instance = matches!(proof, Proof::Instance { .. });
        let is_never = matches!(test.assertion, Assertion::Never(_));
        assert_eq!(is_instance, is_never, "{}", test.name);
    }
    assert!(matches!(
        prove(&shipped("litmus-1")),
        Ok(Proof::Enumerated { states: 3 })
    ));
    assert!(matches!(
        prove(&shipped("litmus-2")),
        Ok(Proof::Inductive { cases: 2 })
    ));
    assert!(matches!(
        prove(&shipped("litmus-3-insert-delete")),
        Ok(Proof::Inductive { cases: 16 })
    ));
}

/// Demands the refusal with this transaction, the states before and after it, and the path.
#[track_caller]
fn is_not_closed(test: &Test, wanted: [&str; 3], wanted_path: Option<&[&str]>) {
    let Err(NotScalable::NotClosed {
        before,
        transaction,
        after,
        path,
    }) = prove(test)
    else {
        panic!("{:?}", prove(test));
    };
    assert_eq!([&*before, &transaction, &after], wanted);
    let path: Option<Vec<&str>> = { path.as_ref() }.map(|it| it.iter().map(|it| &**it).collect());
    assert_eq!(path.as_deref(), wanted_path);
}

/// With constants, the transactions of Litmus 2 reach both 1 one after the other.
#[test]
fn litmus_2_with_constants_is_refused() {
    let from = "always y = x + 1 or x = y + 1 or (x = 0 and y = 0)";
    let test = changed("litmus-2", from, "always not (x = 1 and y = 1)");
    let text = print(&test).replace("a + 1", "1");
    let test = parse(&text).unwrap().remove(0);
    is_not_closed(&test, ["x = 1, y = 0", "t1", "x = 1, y = 1"], Some(&["t2"]));
}

#[test]
fn litmus_1_with_a_value_is_refused() {
    let test = changed("litmus-1", "always x = y", "always x = 1");
    assert_eq!(
        prove(&test),
        Err(NotScalable::Initially {
            state: "x = 0, y = 0".into()
        })
    );
    let test = changed("litmus-1", "always x = y", "always x != 2");
    is_not_closed(&test, ["x = 0, y = 0", "t2", "x = 2, y = 2"], Some(&[]));
}

/// The assertion of the thesis is closed, and misses a lost update.
#[test]
fn the_weaker_litmus_3_is_scalable() {
    let from = "always x = max(y, z) and (y != z or (y = 0 and z = 0))";
    let test = changed("litmus-3", from, "always y <= x and z <= x");
    assert!(matches!(prove(&test), Ok(Proof::Inductive { .. })));
    let Assertion::Always(weaker) = &test.assertion else {
        panic!("it is an always test");
    };
    let Assertion::Always(ours) = shipped("litmus-3").assertion else {
        panic!("it is an always test");
    };
    let lost_update = |it| match it {
        outlive_litmus::test::Seen::Object(_) => Some(1),
        _ => None,
    };
    assert!(weaker.holds(&lost_update) && !ours.holds(&lost_update));
}

/// An assertion that is true in all states that occur, but is not closed.
#[test]
fn states_that_do_not_occur_are_named_as_such() {
    let from = "always x = max(y, z) and (y != z or (y = 0 and z = 0))";
    let test = changed("litmus-3", from, "always y != z or (y = 0 and z = 0)");
    let Err(NotScalable::NotClosed { path: None, .. }) = prove(&test) else {
        panic!("{:?}", prove(&test));
    };
    let shown = prove(&test).unwrap_err().to_string();
    assert!(
        shown.contains("if the first of these states cannot occur"),
        "{shown}"
    );
}

/// A counter that decreases fails the assertion only after many transactions.
#[test]
fn a_failure_after_many_transactions_is_found() {
    let from = "always y = x + 1 or x = y + 1 or (x = 0 and y = 0)";
    let test = changed("litmus-2", from, "always x < 1000000 and y < 1000000");
    let Err(NotScalable::NotClosed { before, .. }) = prove(&test) else {
        panic!("{:?}", prove(&test));
    };
    assert!(before.contains("999999"), "{before}");
}

#[test]
fn conditions_on_sums_are_undecided() {
    let from = "always y = x + 1 or x = y + 1 or (x = 0 and y = 0)";
    let test = changed("litmus-2", from, "always x + y < 1000000");
    let Err(NotScalable::Undecided { reason, .. }) = prove(&test) else {
        panic!("{:?}", prove(&test));
    };
    assert!(reason.contains("more than one value with `+`"), "{reason}");
    let test = changed("litmus-2", from, "always x < 8589934592");
    let Err(NotScalable::Undecided { reason, .. }) = prove(&test) else {
        panic!("{:?}", prove(&test));
    };
    assert!(reason.contains("32 bits"), "{reason}");
}

/// Values that double in each step are refused, not expanded.
#[test]
fn values_of_many_sums_are_undecided() {
    let doubled: String = (0..60)
        .map(|it| format!("b{it} = read y write y = max(x0, min(b{it}, x0 - b{it}))\n"))
        .collect();
    let steps = format!("{{ x0 = read x {doubled} write x = x0 + 1 }}");
    let text = format!(
        "test many about \"\" family read-write objects x = 0, y = 0 transaction t1 {steps}
        always x = x and y = y forbidden from serializable"
    );
    let test = parse(&text).unwrap().remove(0);
    let Err(NotScalable::Undecided { reason, .. }) = prove(&test) else {
        panic!("{:?}", prove(&test));
    };
    assert!(reason.contains("sums"), "{reason}");
}

/// A value that is added to itself has a factor of 2^130 in the end.
#[test]
fn values_with_large_factors_are_undecided() {
    let doubled: String = (0..65)
        .map(|it| format!("a{it} = read x write x = a{it} + a{it} + a{it} + a{it}\n"))
        .collect();
    let text = format!(
        "test many about \"\" family read-write objects x = 1 transaction t1 {{ {doubled} }}
        always x >= 0 forbidden from serializable"
    );
    let test = parse(&text).unwrap().remove(0);
    let Err(NotScalable::Undecided { reason, .. }) = prove(&test) else {
        panic!("{:?}", prove(&test));
    };
    assert!(reason.contains("a multiple of a value"), "{reason}");
}

#[test]
fn outcomes_of_serial_executions_are_refused() {
    let test = changed("write-skew", "t1.a = 0 and t2.a = 0", "t1.a = 0");
    let Err(NotScalable::Serial { execution }) = prove(&test) else {
        panic!("{:?}", prove(&test));
    };
    assert_eq!(execution, "t1 commits, t2 commits, with x = 1, y = 1");
    // Without the order, the read may come first.
    let test = changed("stale-read", "t1 before t2\n", "");
    let Err(NotScalable::Serial { execution }) = prove(&test) else {
        panic!("{:?}", prove(&test));
    };
    assert_eq!(execution, "t2 commits, t1 commits, with x = 1");
    // An unknown outcome is neither committed nor aborted.
    let test = changed(
        "lost-update",
        "t1 committed and t2 committed and x != 2",
        "not t1 aborted and not t2 aborted and x != 2",
    );
    let Err(NotScalable::Serial { execution }) = prove(&test) else {
        panic!("{:?}", prove(&test));
    };
    assert!(execution.contains("cut off"), "{execution}");
}

/// An optimistic store may show a mixture of states to a transaction that it aborts.
#[test]
fn reads_of_aborted_transactions_can_be_any() {
    let test = changed("read-skew", "t1 committed and ", "");
    let Err(NotScalable::Serial { execution }) = prove(&test) else {
        panic!("{:?}", prove(&test));
    };
    assert!(
        execution.contains("t1 aborts (and may have read any values)"),
        "{execution}"
    );
    let test = changed("read-skew", "t1.a != t1.b", "(t1.a != t1.b and x = 2)");
    assert!(prove(&test).is_ok());
}

#[test]
fn executions_are_limited() {
    let mut text = String::from("test many about \"\" family read-write objects x = 0\n");
    for it in 0..12 {
        text += &format!("transaction t{it} {{ write x = {it} }}\n");
    }
    text += "never x = 99 forbidden from serializable";
    let test = parse(&text).unwrap().remove(0);
    let Err(NotScalable::Undecided { reason, .. }) = prove(&test) else {
        panic!("{:?}", prove(&test));
    };
    assert!(reason.contains("serial executions"), "{reason}");
}
