//! The text format: each test is printed as a text that is read as the same test, and errors say
//! where and what to write instead.

use outlive_litmus::level::{Isolation, Level};
use outlive_litmus::suite;
use outlive_litmus::test::{
    Assertion, Comparison, Condition, Expression, Family, Local, Object, Seen, Step, Test,
    Transaction,
};
use outlive_litmus::text::{parse, print};
use proptest::collection::vec;
use proptest::prelude::*;

const SOUND: &str = "\
test a-test
about \"It is a test.\"
family read-write
objects x = 0, y absent

transaction t1 {
    a = read x
    n = count objects
    write x = a + 1
}

transaction t2 {
    insert y = 1
}

t1 before t2

never t1 committed and t1.a = 1
forbidden from read-committed
";

#[test]
fn the_shipped_tests_are_printed_as_they_are_read() {
    for test in suite::tests() {
        let text = print(&test);
        assert!(text.lines().all(|it| it.chars().count() <= 100), "{text}");
        assert_eq!(parse(&text).unwrap(), [test], "{text}");
    }
    assert_eq!(print(&parse(SOUND).unwrap()[0]), SOUND);
}

/// Replaces `from` by `to` in [`SOUND`], and demands an error at `token`.
#[track_caller]
fn fails(from: &str, to: &str, (line, column): (usize, usize), token: &str, says: &[&str]) {
    assert!(SOUND.contains(from), "{from}");
    let error = parse(&SOUND.replacen(from, to, 1)).unwrap_err();
    let shown = error.to_string();
    assert_eq!((error.line, error.column), (line, column), "{shown}");
    assert_eq!(error.token, token, "{shown}");
    for it in says {
        assert!(shown.contains(it), "{shown}");
    }
}

#[test]
fn errors_of_the_grammar_say_where_and_what_to_write() {
    fails("test a-test", "tests", (1, 1), "`tests`", &["`test NAME`"]);
    fails(
        "a-test",
        "A-test",
        (1, 6),
        "`A-test`",
        &["lower-case letters"],
    );
    fails("a-test", "-a", (1, 6), "`-a`", &["lower-case letters"]);
    fails("\"It", "It", (2, 7), "`It`", &["double quotes"]);
    fails(
        "test.\"",
        "test.",
        (2, 7),
        "`\"It is a test.\\nfamily read-write\\nobjects...`",
        &["no end"],
    );
    fails("It is", "\\is", (2, 8), "`\\i`", &["\\\\"]);
    fails("It is", "\\u{110000}", (2, 8), "`\\u`", &["\\u{HEX}"]);
    fails(
        "read-write",
        "reads",
        (3, 8),
        "`reads`",
        &["direct-write, read-write"],
    );
    fails("x = 0", "x 0", (4, 11), "`0`", &["`= NUMBER` or `absent`"]);
    fails("x = 0", "x = -", (4, 14), "`,`", &["as `-1`"]);
    fails(
        "0, y",
        "9223372036854775808, y",
        (4, 13),
        "`9223372036854775808`",
        &["64 bits"],
    );
    fails(
        "x = 0",
        "read = 0",
        (4, 9),
        "`read`",
        &["word of the language"],
    );
    fails("x = 0", "ü = 0", (4, 9), "`ü`", &["lower-case letter"]);
    fails("{\n    a", "\n    a", (7, 5), "`a`", &["braces"]);
    fails("a = read x", "read x", (7, 5), "`read`", &["`a = read x`"]);
    fails("a = read x", "a = x", (7, 9), "`x`", &["`read` or `count`"]);
    fails(
        "count objects",
        "count x",
        (8, 15),
        "`x`",
        &["`count objects`"],
    );
    fails("= a + 1", "= a +", (10, 1), "`}`", &["name of a value"]);
    fails("= a + 1", "= (a + 1", (10, 1), "`}`", &["`)`"]);
    fails("= a + 1", "= max(a)", (9, 20), "`)`", &["`max(a, b)`"]);
    fails("    insert y = 1\n", "", (13, 1), "`}`", &["no steps"]);
    fails(
        "write x = a + 1\n}\n",
        "write x = a + 1\n",
        (11, 1),
        "`transaction`",
        &["no end", "`}`"],
    );
    fails("t1.a = 1", "t1.a == 1", (18, 29), "`=`", &["write `=`"]);
    fails(
        "= 1\nforbidden",
        "\nforbidden",
        (18, 24),
        "`t1`",
        &["a condition is expected"],
    );
    fails(
        "t1.a = 1",
        "t1.a = 1 = 1",
        (18, 33),
        "`=`",
        &["`a < b and b < c`"],
    );
    fails(
        "t1.a = 1",
        "(t1.a = 1) + 1 = 1",
        (18, 24),
        "`(`",
        &["a number is expected"],
    );
    fails(
        "t1.a = 1",
        "t1.a + 1 is absent",
        (18, 24),
        "`t1`",
        &["only a value"],
    );
    fails(
        "t1.a = 1",
        "t1.a is gone",
        (18, 32),
        "`gone`",
        &["`absent` or `present`"],
    );
    fails("t1 committed", "t1", (18, 10), "`and`", &["`t1 committed`"]);
    fails(
        "forbidden",
        "forbid",
        (19, 1),
        "`forbid`",
        &["`forbidden from LEVEL`"],
    );
    fails(
        "from read-committed",
        "from",
        (20, 1),
        "the end of the text",
        &["serializable"],
    );
    fails(
        "from read-committed",
        "from read-committed test",
        (20, 1),
        "the end of the text",
        &["name of a test"],
    );
}

#[test]
fn errors_of_the_meaning_say_where_and_what_to_write() {
    fails(
        "write x",
        "write z",
        (9, 11),
        "`z`",
        &["the objects are: x, y"],
    );
    fails("y absent", "x absent", (4, 16), "`x`", &["another object"]);
    fails(
        "transaction t2",
        "transaction t1",
        (12, 13),
        "`t1`",
        &["another transaction"],
    );
    fails(
        "transaction t2",
        "transaction x",
        (12, 13),
        "`x`",
        &["an object has this name"],
    );
    fails("n = count", "a = count", (8, 5), "`a`", &["another value"]);
    fails(
        "= a + 1",
        "= b + 1",
        (9, 15),
        "`b`",
        &["the values up to here are: a, n"],
    );
    fails("= a + 1", "= y + 1", (9, 15), "`y`", &["`a = read y`"]);
    fails(
        "insert y = 1",
        "insert y = a",
        (13, 16),
        "`a`",
        &["up to here are: none"],
    );
    fails(
        "insert y = 1",
        "abort delete y",
        (13, 11),
        "`delete`",
        &["never executed"],
    );
    fails(
        "never t1 committed",
        "always t1 committed",
        (18, 8),
        "`t1`",
        &["objects alone"],
    );
    fails(
        "never t1 committed",
        "always committed(t1) = 1",
        (18, 8),
        "`committed`",
        &["objects"],
    );
    fails(
        "t1.a = 1",
        "t1.b = 1",
        (18, 27),
        "`b`",
        &["its values are: a, n"],
    );
    fails(
        "t1.a = 1",
        "t3.a = 1",
        (18, 24),
        "`t3`",
        &["the objects are: x, y"],
    );
    fails(
        "committed and",
        "committed and committed(x) = 1 and",
        (18, 34),
        "`x`",
        &["are: t1, t2"],
    );
    fails(
        "t1 before t2",
        "t1 before t3",
        (16, 11),
        "`t3`",
        &["the transactions are: t1, t2"],
    );
    fails(
        "t1 before t2",
        "t1 before t1",
        (16, 1),
        "`t1`",
        &["own end"],
    );
    fails(
        "before t2",
        "before t2\nt2 before t1",
        (17, 1),
        "`t2`",
        &["own end"],
    );
    fails(
        "before t2",
        "before t2\nt1 before t2",
        (17, 1),
        "`t1`",
        &["leave it out"],
    );
    fails(
        "from read-committed",
        "from acid",
        (19, 16),
        "`acid`",
        &["strict-serializable"],
    );
    fails(
        "from read",
        "from snapshot, read",
        (19, 26),
        "`read-committed`",
        &["weakest"],
    );
    fails(
        "from read-committed\n",
        &format!("from snapshot\n{SOUND}"),
        (20, 6),
        "`a-test`",
        &["another test"],
    );
}

#[test]
fn nesting_is_limited() {
    for (open, close) in [("(", ")"), ("max(1, ", ")"), ("1 + ", "")] {
        let deep = |levels: usize| {
            let value = [&open.repeat(levels), "a", &close.repeat(levels)].concat();
            parse(&SOUND.replacen("a + 1", &value, 1))
        };
        assert!(deep(20).is_ok());
        let error = deep(100_000).unwrap_err();
        assert!(error.problem.contains("64 levels"), "{error}");
    }
    for (open, close) in [("not ", ""), ("all(", ")"), ("not (", ")")] {
        let condition = [&open.repeat(100_000), "x = 1", &close.repeat(100_000)].concat();
        let error = parse(&SOUND.replacen("t1.a = 1", &condition, 1)).unwrap_err();
        assert!(error.problem.contains("64 levels"), "{error}");
    }
}

/// At the limit, in the forms that are printed with the most parentheses.
#[test]
fn tests_at_the_limit_are_printed_as_they_are_read() {
    for (open, close) in [
        ("1 - (", ")"),
        ("", " + 1"),
        ("max(", ", 1)"),
        ("min(1, ", ")"),
    ] {
        let of = |levels: usize| {
            let number = [&open.repeat(levels), "x", &close.repeat(levels)].concat();
            let facts = format!("({number} = 1 or x = 1)");
            let condition = [&"not (y = 1 and ".repeat(30), &*facts, &")".repeat(30)].concat();
            parse(&SOUND.replacen("t1.a = 1", &condition, 1))
        };
        let test = of(63).unwrap().remove(0);
        let text = print(&test);
        assert_eq!(parse(&text), Ok(vec![test]), "{text}");
        assert!(of(64).is_err());
    }
}

#[test]
fn other_forms_mean_the_same() {
    let same = |from: &str, to: &str| {
        let text = SOUND.replacen(from, to, 1);
        assert_eq!(parse(&text).unwrap(), parse(SOUND).unwrap(), "{text}");
    };
    same("t1.a = 1", "(((t1.a)) = (1))");
    same("t1 committed", "committed(t1) = 1");
    same("a = read x\n    n", "a=read x;n");
    same("It is a", "It\n    is\t\r\n\n\u{20}\u{20}a");
    same("It is", "\\u{49}t is");
    same("objects x", "objects # the first\n x");
    let compared = |condition: &str| {
        parse(&SOUND.replacen("t1.a = 1", condition, 1)).unwrap()[0]
            .assertion
            .clone()
    };
    assert_eq!(compared("x > 1"), compared("1 < x"));
    assert_eq!(compared("x >= 1 - y"), compared("1 - y <= x"));
    assert_ne!(compared("x = 1 or y = 1"), compared("(x = 1 or y = 1)"));
    assert_eq!(
        compared("max(x, y, 1) = 1"),
        compared("max(max(x, y), 1) = 1")
    );
    assert_eq!(compared("not x is absent"), compared("x is present"));
    assert_eq!(compared("x - -1 = 1"), compared("x - (-1) = 1"));
    assert_eq!(compared("x -1 = 1"), compared("x - 1 = 1"));
}

const OBJECTS: usize = 3;
const TRANSACTIONS: usize = 2;
/// Each transaction reads and counts.
const LOCALS: usize = 2;

fn expression<N: Clone + std::fmt::Debug + 'static>(
    name: impl Strategy<Value = N> + 'static,
) -> BoxedStrategy<Expression<N>> {
    let leaf = prop_oneof![
        any::<i64>().prop_map(Expression::Constant),
        name.prop_map(Expression::Value),
    ];
    leaf.prop_recursive(4, 24, 2, |inner| {
        let both = (inner.clone(), inner).prop_map(|(a, b)| (Box::new(a), Box::new(b)));
        (both, 0..4).prop_map(|((a, b), operator)| match operator {
            0 => Expression::Add(a, b),
            1 => Expression::Subtract(a, b),
            2 => Expression::Max(a, b),
            _ => Expression::Min(a, b),
        })
    })
    .boxed()
}

fn condition(name: BoxedStrategy<Seen>) -> BoxedStrategy<Condition<Seen>> {
    let comparison = prop::sample::select(vec![
        Comparison::Equal,
        Comparison::Different,
        Comparison::Less,
        Comparison::AtMost,
    ]);
    let leaf = prop_oneof![
        (
            expression(name.clone()),
            comparison,
            expression(name.clone())
        )
            .prop_map(|(a, comparison, b)| Condition::Compare(a, comparison, b)),
        name.prop_map(Condition::Absent),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Condition::All),
            vec(inner.clone(), 0..4).prop_map(Condition::Any),
            inner.prop_map(|it| Condition::Not(Box::new(it))),
        ]
    })
    .boxed()
}

fn seen() -> BoxedStrategy<Seen> {
    prop_oneof![
        (0..OBJECTS).prop_map(Seen::Object),
        (0..TRANSACTIONS).prop_map(Seen::Committed),
        (0..TRANSACTIONS, 0..LOCALS).prop_map(|(transaction, local)| Seen::Read {
            transaction,
            local: Local(local)
        }),
    ]
    .boxed()
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let value = || expression((0..LOCALS).prop_map(Local));
    let step = prop_oneof![
        (0..OBJECTS, value()).prop_map(|(object, value)| Step::Write { object, value }),
        (0..OBJECTS, value()).prop_map(|(object, value)| Step::Insert { object, value }),
        (0..OBJECTS).prop_map(|object| Step::Delete { object }),
    ];
    (vec(step, 0..4), any::<bool>()).prop_map(|(more, aborts)| {
        let reads = [
            Step::Read {
                object: 1,
                into: Local(0),
            },
            Step::Count { into: Local(1) },
        ];
        let abort = aborts.then_some(Step::Abort);
        reads.into_iter().chain(more).chain(abort).collect()
    })
}

fn test() -> impl Strategy<Value = Test> {
    let assertion = prop_oneof![
        condition((0..OBJECTS).prop_map(Seen::Object).boxed()).prop_map(Assertion::Always),
        condition(seen()).prop_map(Assertion::Never),
    ];
    let initial = vec(any::<Option<i64>>(), OBJECTS);
    let steps = vec(steps(), TRANSACTIONS);
    let family = prop::sample::select(Family::ALL.to_vec());
    let sentence = "[ -~äöü\n\t]{0,250}|\\PC{0,40}|.{0,40}";
    (sentence, family, initial, steps, any::<bool>(), assertion).prop_map(
        |(about, family, initial, steps, is_ordered, assertion)| Test {
            name: "a-test".into(),
            about,
            family,
            objects: { initial.into_iter().enumerate() }
                .map(|(it, initial)| Object {
                    name: format!("x{it}"),
                    initial,
                })
                .collect(),
            transactions: { steps.into_iter().enumerate() }
                .map(|(it, steps)| Transaction {
                    name: format!("t{it}"),
                    locals: vec!["a".into(), "n".into()],
                    steps,
                })
                .collect(),
            order: if is_ordered { vec![(1, 0)] } else { vec![] },
            assertion,
            forbidden_from: vec![
                Level::new(Isolation::Snapshot, true),
                Level::new(Isolation::RepeatableRead, false),
            ],
        },
    )
}

proptest! {
    #[test]
    fn each_test_is_printed_as_it_is_read(test in test()) {
        let text = print(&test);
        prop_assert_eq!(parse(&text), Ok(vec![test]), "{}", text);
    }

    #[test]
    fn cut_and_repeated_texts_are_read_or_refused(at in 0..SOUND.len(), again in 0..SOUND.len()) {
        // Neither panics, and an error is at a place of the text.
        let text = [&SOUND[..at], &SOUND[again..]].concat();
        if let Err(error) = parse(&text) {
            let line = text.lines().nth(error.line - 1).unwrap_or_default();
            prop_assert!(error.column <= line.chars().count() + 1, "{}", error);
        }
    }
}
