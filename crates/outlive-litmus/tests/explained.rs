//! The explanations of violations: by planted faults, by their text, and as a page.

#[allow(dead_code)]
mod reference;

use outlive_litmus::driver::Driver;
use outlive_litmus::explain::{self, Explanation, Fault, Finding, Page, Tested};
use outlive_litmus::level::Level;
use outlive_litmus::run::{self, Executed, Limit, Options, Outcome, Report, Violation};
use outlive_litmus::test::{Assertion, Test};
use outlive_litmus::{suite, text};
use reference::{Kind, Memory};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

fn named(name: &str) -> Test {
    { suite::tests().into_iter() }
        .find(|it| it.name == name)
        .expect("a shipped test")
}

/// Runs a test on a store with a fault, with other seeds until it finds a violation.
fn violated(kind: Kind, test: &Test) -> Report {
    let run = |seed| {
        let driver: Arc<dyn Driver> = Arc::new(Memory::new(kind));
        let options = Options {
            clients: 3,
            limit: Limit::Instances(400),
            seed,
            crashes: false,
            patience: Duration::from_secs(30),
        };
        let tests = std::slice::from_ref(test);
        run::run(
            &driver,
            tests,
            &options,
            &AtomicBool::new(false),
            &mut |_| (),
        )
        .unwrap()
    };
    let reports = (0..200).map(run);
    let is_found =
        |it: &Report| { it.tests[0].violations.iter() }.any(|it| it.kind == run::Kind::State);
    let found = { reports }.find(is_found);
    found.unwrap_or_else(|| panic!("{kind:?} violates {} in no run", test.name))
}

fn explained(kind: Kind, test: &Test) -> Explanation {
    let report = violated(kind, test);
    let violations = &report.tests[0].violations;
    let state = violations
        .iter()
        .find(|it| it.kind == run::Kind::State)
        .unwrap();
    let explanation = explain::explain(test, state);
    println!(
        "{kind:?} {}:\n  {}",
        test.name,
        explain::lines(&explanation).join("\n  ")
    );
    explanation
}

#[test]
fn planted_faults_show_their_cycles() {
    for (kind, test, word, anomaly) in [
        (
            Kind::Snapshot,
            "write-skew",
            "rw rw",
            "write skew (G2-item)",
        ),
        (Kind::Snapshot, "litmus-2", "rw rw", "write skew (G2-item)"),
        (
            Kind::ReadCommitted,
            "lost-update",
            "rw ww",
            "lost update (P4)",
        ),
        (
            Kind::ReadCommitted,
            "read-skew",
            "rw wr",
            "read skew (G-single)",
        ),
        (
            Kind::ReadCommitted,
            "unrepeatable-read",
            "rw wr",
            "unrepeatable read (G-single)",
        ),
        (Kind::DirtyReads, "aborted-read", "wr", "aborted read (G1a)"),
        (
            Kind::DirtyReads,
            "circular-information-flow",
            "wr wr",
            "circular information flow (G1c)",
        ),
        (
            Kind::NoAtomicity,
            "dirty-write",
            "ww ww",
            "dirty write (G0)",
        ),
        (
            Kind::OptimisticItems,
            "predicate-write-skew",
            "rw rw",
            "write skew over a predicate (G2)",
        ),
        (Kind::Stale, "stale-read", "rt rw", "stale read"),
        (Kind::Stale, "stale-count", "rt rw", "stale count"),
    ] {
        let test = named(test);
        let explanation = explained(kind, &test);
        let name = &test.name;
        assert_eq!(explanation.result, Finding::Interleaving, "{name}");
        assert_eq!(
            (&*explanation.word(), explanation.anomaly),
            (word, anomaly),
            "{name}"
        );
        for level in &explanation.forbidden_from {
            assert!(test.is_forbidden_at(*level), "{name}: {level}");
        }
        let cycle = explanation.cycle_line();
        let (first, last) = (cycle.split(" --").next(), cycle.rsplit("--> ").next());
        assert!(word == "wr" || first == last, "{cycle}");
        // On shared objects, transactions that are left out may have written after these.
        let is_shared = matches!(test.assertion, Assertion::Always(_));
        assert!(is_shared || !explanation.serial.is_empty(), "{name}");
        let observed: Vec<_> = explanation.observed.iter().map(|it| it.1).collect();
        assert!(
            explanation.serial.iter().all(|it| it.values != observed),
            "{explanation:#?}"
        );
    }
}

/// Returns an execution of a transaction, in microseconds.
fn executed(
    transaction: &str,
    outcome: Outcome,
    values: &[(&str, i64)],
    (begin, end): (u64, u64),
) -> Executed {
    let value = |it: &(&str, i64)| (it.0.to_owned(), Some(it.1));
    Executed {
        transaction: transaction.into(),
        outcome,
        values: values.iter().map(value).collect(),
        crashed_after: None,
        begin: Duration::from_micros(begin),
        end: Duration::from_micros(end),
    }
}

fn violation(state: &[(&str, i64)], transactions: Vec<Executed>) -> Violation {
    Violation {
        kind: run::Kind::State,
        state: state
            .iter()
            .map(|it| (it.0.to_owned(), Some(it.1)))
            .collect(),
        transactions,
        after: Duration::from_millis(12),
        executions: 34,
    }
}

fn lines(test: &str, violation: &Violation) -> String {
    explain::lines(&explain::explain(&named(test), violation)).join("\n")
}

const DONE: Outcome = Outcome::Committed;

#[test]
fn a_lost_update_is_shown() {
    let transactions = vec![
        executed("t1", DONE, &[("a", 0)], (0, 90)),
        executed("t2", DONE, &[("a", 0)], (10, 80)),
    ];
    let text = lines("lost-update", &violation(&[("x", 1)], transactions));
    assert_eq!(
        text,
        include_str!("explained/lost-update.txt").trim_end(),
        "{text}"
    );
}

#[test]
fn a_stale_read_is_shown() {
    let transactions = vec![
        executed("t1", DONE, &[], (0, 40)),
        executed("t2", DONE, &[("a", 0)], (50, 80)),
    ];
    let text = lines("stale-read", &violation(&[], transactions));
    assert_eq!(
        text,
        include_str!("explained/stale-read.txt").trim_end(),
        "{text}"
    );
}

#[test]
fn two_reads_of_an_object_are_told_apart() {
    let transactions = vec![
        executed("t1", DONE, &[("a", 0), ("b", 1)], (0, 90)),
        executed("t2", DONE, &[], (10, 80)),
    ];
    let violation = violation(&[], transactions);
    let explanation = explain::explain(&named("unrepeatable-read"), &violation);
    let meanings: Vec<&str> = { explanation.cycle.iter() }
        .map(|it| &*it.meaning)
        .collect();
    assert_eq!(
        meanings,
        [
            "t1 read x = 0, and did not see that t2 wrote x = 1",
            "t1 read x = 1, after t2 wrote x = 1",
        ]
    );
}

#[test]
fn half_of_a_transaction_is_a_lost_write() {
    let transactions = vec![executed("t1", DONE, &[], (0, 40))];
    let text = lines("litmus-1", &violation(&[("x", 1), ("y", 0)], transactions));
    assert_eq!(
        text,
        include_str!("explained/lost-write.txt").trim_end(),
        "{text}"
    );
}

#[test]
fn a_write_of_a_crashed_client_is_named() {
    let crashed = Executed {
        crashed_after: Some(1),
        ..executed("t1", Outcome::Crashed, &[], (0, 40))
    };
    let found = violation(&[("x", 1), ("y", 0)], vec![crashed]);
    let explanation = explain::explain(&named("litmus-1"), &found);
    println!("{}", explain::lines(&explanation).join("\n"));
    let Finding::Fault(faults) = &explanation.result else {
        panic!("{explanation:#?}");
    };
    let is_kept = |it: &Fault| {
        matches!(
            it,
            Fault::Kept {
                outcome: "crashed",
                ..
            }
        )
    };
    assert!(faults.iter().all(is_kept), "{faults:?}");
    assert_eq!(explanation.cycle_line(), "t1 (crashed) --wr x--> assertion");
}

#[test]
fn a_value_without_a_writer_is_invented() {
    let transactions = vec![executed("t1", DONE, &[], (0, 40))];
    let text = lines("litmus-1", &violation(&[("x", 1), ("y", 7)], transactions));
    let expected = "No interleaving of the transactions explains this: the assertion read y = 7, \
                    which no transaction wrote.\nobserved: x = 1, y = 7";
    assert_eq!(text, expected);
}

/// The values grow: a short explanation begins long after the first state.
#[test]
fn a_violation_long_after_the_first_state_is_explained() {
    let mut transactions = Vec::new();
    for round in 0..10 {
        let (time, value) = (100 * round, 2 * round as i64);
        transactions.push(executed("t1", DONE, &[("a", value)], (time, time + 40)));
        transactions.push(executed(
            "t2",
            DONE,
            &[("a", value + 1)],
            (time + 50, time + 90),
        ));
    }
    // Both increment the counter from 20 on.
    transactions.push(executed("t2", DONE, &[("a", 20)], (2000, 2090)));
    transactions.push(executed("t1", DONE, &[("a", 20)], (2010, 2080)));
    let test = named("litmus-3");
    let found = violation(&[("x", 21), ("y", 21), ("z", 21)], transactions);
    let explanation = explain::explain(&test, &found);
    println!("{}", explain::lines(&explanation).join("\n"));
    assert_eq!(explanation.result, Finding::Interleaving);
    assert_eq!(explanation.anomaly, "lost update (P4)");
    assert!(explanation.start.is_some());
}

#[test]
fn pages_are_well_formed() {
    let mut test = named("dirty-write");
    test.about = "A <script>alert(\"&\")</script> \u{1b}[2J \u{202e} sentence.".into();
    let report = violated(Kind::NoAtomicity, &test);
    let explanations: Vec<Explanation> = { report.tests[0].violations.iter() }
        .map(|it| explain::explain(&test, it))
        .collect();
    let (Assertion::Always(condition) | Assertion::Never(condition)) = &test.assertion;
    let page = explain::page(&Page {
        target: "exec:sh -c 'a < b && \"c\"'",
        level: Some("none"),
        faults: &["client"],
        seed: 7,
        tests: vec![Tested {
            report: &report.tests[0],
            assertion: text::assertion(condition, &test),
            explanations: &explanations,
            repeat: "outlive litmus run 'a<b' dirty-write --seed 7".into(),
        }],
    });
    assert_balanced(&page);
    for needed in [
        "&lt;script&gt;",
        "exec:sh -c &#39;a &lt; b &amp;&amp; &quot;c&quot;&#39;",
        "id=\"test-dirty-write\"",
        "href=\"#test-dirty-write\"",
        "<svg viewBox",
        "inferred",
        "--seed 7",
        "prefers-color-scheme",
    ] {
        assert!(page.contains(needed), "{needed}");
    }
    for forbidden in [
        "<script", "src=", "url(", "@import", "<link", "\u{1b}", "\u{202e}",
    ] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
}

/// Asserts that each element is closed, that attributes are quoted, and that `&` begins an entity.
fn assert_balanced(page: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = page
        .strip_prefix("<!DOCTYPE html>")
        .expect("a document type");
    while let Some(at) = rest.find('<') {
        let words = &rest[..at];
        assert!(
            !words.contains('>') || open.last() == Some(&"style"),
            "{words}"
        );
        for entity in words.split('&').skip(1) {
            let name = entity.split(';').next().unwrap();
            assert!(
                ["amp", "lt", "gt", "quot", "#39"].contains(&name),
                "{entity}"
            );
        }
        let end = at + rest[at..].find('>').expect("the end of a tag");
        let tag = &rest[at + 1..end];
        rest = &rest[end + 1..];
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        assert!(!tag.contains('<'), "{tag}");
        let name = tag.trim_matches('/').split(' ').next().unwrap();
        match (tag.starts_with('/'), tag.ends_with('/')) {
            (true, _) => assert_eq!(open.pop(), Some(name), "{tag}"),
            (false, true) => {}
            (false, false) => open.push(name),
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

/// The levels of an explanation are among those of the test for each cycle of the generator.
#[test]
fn each_generated_cycle_is_explained() {
    let mut count = 0;
    for generated in outlive_litmus::consistency::Word::all(2) {
        let history = generated.history();
        let name = "generated".to_owned();
        let family = outlive_litmus::test::Family::ReadWrite;
        let made = outlive_litmus::consistency::test_of(&history, name, String::new(), family);
        let Some(test) = made.unwrap() else { continue };
        let violation = reference_execution(&test);
        let explanation = explain::explain(&test, &violation);
        let lines = explain::lines(&explanation).join("\n");
        let edges = generated.to_string().replace('-', " ");
        if let Finding::Fault(faults) = &explanation.result {
            // A write that an earlier one overwrites is a lost write as well.
            let is_lost = |it: &Fault| matches!(it, Fault::Lost { .. });
            assert!(
                edges == "ww rt" && faults.iter().all(is_lost),
                "{edges}: {lines}"
            );
            count += 1;
            continue;
        }
        let is_same = format!("{edges} {edges}").contains(&explanation.word());
        assert!(
            is_same && explanation.word().len() == edges.len(),
            "{edges}: {lines}"
        );
        let levels: Vec<Level> = explanation.forbidden_from.clone();
        assert_eq!(levels, test.forbidden_from, "{lines}");
        count += 1;
    }
    assert_eq!(count, 8);
}

/// Returns the violation whose values are those that a generated test forbids.
fn reference_execution(test: &Test) -> Violation {
    use outlive_litmus::test::{Condition, Expression, Local, Seen, Step};
    let Assertion::Never(Condition::All(parts)) = &test.assertion else {
        panic!("an outcome");
    };
    let value = |wanted: Seen| {
        parts.iter().find_map(|it| match it {
            Condition::Compare(Expression::Value(seen), _, Expression::Constant(value))
                if *seen == wanted =>
            {
                Some(*value)
            }
            _ => None,
        })
    };
    let transaction = |(number, it): (usize, &outlive_litmus::test::Transaction)| {
        let is_after = test.order.iter().any(|order| order.1 == number);
        let local = |(at, name): (usize, &String)| {
            let local = Local(at);
            (
                name.clone(),
                value(Seen::Read {
                    transaction: number,
                    local,
                }),
            )
        };
        Executed {
            values: it.locals.iter().enumerate().map(local).collect(),
            ..executed(
                &it.name,
                DONE,
                &[],
                if is_after { (50, 90) } else { (0, 40) },
            )
        }
    };
    let object = |(number, it): (usize, &outlive_litmus::test::Object)| {
        // Only objects with several writers are in the outcome.
        let writes = test.transactions.iter().flat_map(|it| &it.steps);
        let mut written = writes.filter_map(|it| match it {
            Step::Write { object, value } if *object == number => value.evaluate(&|_| None),
            _ => None,
        });
        let last = value(Seen::Object(number)).or_else(|| written.next());
        (it.name.clone(), last.or(it.initial))
    };
    let objects: Vec<_> = test.objects.iter().enumerate().map(object).collect();
    let is_named = (0..objects.len()).any(|it| value(Seen::Object(it)).is_some());
    Violation {
        state: if is_named { objects } else { Vec::new() },
        ..violation(
            &[],
            test.transactions
                .iter()
                .enumerate()
                .map(transaction)
                .collect(),
        )
    }
}
