//! Stores in memory are judged at exactly the level that they give, by tests of the shipped suite.

#[allow(dead_code)]
mod reference;

use outlive_litmus::consistency::Generated;
use outlive_litmus::driver::{Capabilities, Connection, Driver, DriverError, Key};
use outlive_litmus::level::Level;
use outlive_litmus::run::{
    self, Judgement, Kind as ViolationKind, Limit, Options, Outcome, Verdict,
};
use outlive_litmus::run::{Report, TestReport};
use outlive_litmus::suite;
use outlive_litmus::test::Test;
use reference::{Kind, Memory};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// One test or two for each phenomenon.
const NAMES: [&str; 14] = [
    "litmus-1",
    "litmus-1-insert-delete",
    "litmus-2",
    "litmus-3",
    "dirty-write",
    "lost-update",
    "write-skew",
    "read-skew",
    "aborted-read",
    "intermediate-read",
    "circular-information-flow",
    "predicate-write-skew",
    "stale-read",
    "reversed-writes",
];

/// Returns the shipped tests with these names.
fn picked(names: &[&str]) -> Vec<Test> {
    let shipped = suite::tests();
    let pick = |name: &&str| {
        let found = shipped.iter().find(|it| it.name == *name);
        found.unwrap_or_else(|| panic!("no test {name}")).clone()
    };
    names.iter().map(pick).collect()
}

fn options() -> Options {
    Options {
        clients: 3,
        limit: Limit::Instances(250),
        seed: 7,
        crashes: false,
        patience: Duration::from_secs(30),
    }
}

fn run_with(memory: Memory, tests: &[Test], options: &Options) -> Report {
    let driver: Arc<dyn Driver> = Arc::new(memory);
    let stop = AtomicBool::new(false);
    run::run(&driver, tests, options, &stop, &mut |_| ()).unwrap()
}

fn run_on(kind: Kind, options: &Options) -> Report {
    run_with(Memory::new(kind), &picked(&NAMES), options)
}

/// Returns a line for each test.
fn brief(report: &Report) -> String {
    let kinds = |it: &TestReport| -> Vec<_> {
        { it.violations.iter() }
            .map(|it| (it.kind, it.executions))
            .collect()
    };
    let line = |it: &TestReport| {
        let (name, verdict, executions) = (&it.name, &it.verdict, it.executions);
        let ms = it.elapsed.as_millis();
        format!(
            "{name}: {verdict:?} {:?}, {executions} executions, {ms} ms\n",
            kinds(it)
        )
    };
    report.tests.iter().map(line).collect()
}

/// Asserts the level, and the tests that found a violation of the state.
fn assert_judged(report: &Report, level: &str, violated: &[&str]) {
    let is_wrong = |it: &&TestReport| {
        it.violations
            .iter()
            .any(|it| it.kind == ViolationKind::State)
    };
    let found: Vec<&str> = report
        .tests
        .iter()
        .filter(is_wrong)
        .map(|it| &*it.name)
        .collect();
    assert_eq!(found, violated, "{}", brief(report));
    let judgement = Judgement::new(report);
    assert_eq!(judgement.to_string(), level, "{}", brief(report));
    assert_eq!(judgement.levels, judgement.not_refuted, "{}", brief(report));
}

fn named<'r>(report: &'r Report, name: &str) -> &'r TestReport {
    { report.tests.iter() }.find(|it| it.name == name).unwrap()
}

#[test]
fn serial_execution_is_strictly_serializable() {
    let report = run_on(Kind::Serial, &options());
    assert_judged(&report, "strict-serializable", &[]);
    for test in &report.tests {
        assert_eq!(test.verdict, Verdict::Passed, "{test:#?}");
        assert!(test.instances >= 250 && test.executions >= 250, "{test:#?}");
        assert!(test.assertions > 0, "{test:#?}");
        let all: u64 = test.outcomes.iter().map(|(_, count)| count).sum();
        assert_eq!(all, test.executions);
    }
}

#[test]
fn validated_execution_is_strictly_serializable() {
    assert_judged(
        &run_on(Kind::Optimistic, &options()),
        "strict-serializable",
        &[],
    );
}

#[test]
fn counts_without_validation_allow_a_count_skew() {
    let report = run_on(Kind::OptimisticItems, &options());
    let levels = "strict-repeatable-read and strict-snapshot";
    assert_judged(&report, levels, &["predicate-write-skew"]);
}

#[test]
fn snapshots_allow_write_skew_only() {
    let report = run_on(Kind::Snapshot, &options());
    let violated = ["litmus-2", "write-skew", "predicate-write-skew"];
    assert_judged(&report, "strict-snapshot", &violated);
    let found = &named(&report, "write-skew").violations[0];
    let outcomes: Vec<_> = found.transactions.iter().map(|it| it.outcome).collect();
    assert_eq!(outcomes, [Outcome::Committed; 2]);
    for executed in &found.transactions {
        assert_eq!(executed.values, [("a".to_owned(), Some(0))]);
    }
    assert!(found.executions > 0 && found.state.is_empty());
}

#[test]
fn reads_of_statements_allow_lost_updates_and_skew() {
    let report = run_on(Kind::ReadCommitted, &options());
    let violated = [
        "litmus-2",
        "litmus-3",
        "lost-update",
        "write-skew",
        "read-skew",
        "predicate-write-skew",
    ];
    assert_judged(&report, "strict-read-committed", &violated);
    // The transactions of this assertion are skewed themselves; the state is right.
    let skewed = named(&report, "litmus-1");
    assert_eq!(skewed.verdict, Verdict::Violated);
    let kinds: Vec<_> = skewed.violations.iter().map(|it| it.kind).collect();
    assert_eq!(kinds, [ViolationKind::ConcurrentRead]);
}

#[test]
fn dirty_reads_are_found() {
    let report = run_on(Kind::DirtyReads, &options());
    let violated = [
        "litmus-2",
        "litmus-3",
        "lost-update",
        "write-skew",
        "read-skew",
        "aborted-read",
        "intermediate-read",
        "circular-information-flow",
        "predicate-write-skew",
    ];
    assert_judged(&report, "strict-read-uncommitted", &violated);
}

#[test]
fn dirty_writes_are_found() {
    let report = run_on(Kind::NoAtomicity, &options());
    let violated: Vec<String> = { report.violated() }.map(|it| it.name.clone()).collect();
    for name in ["litmus-1", "dirty-write", "aborted-read"] {
        assert!(violated.iter().any(|it| it == name), "{violated:?}");
    }
    assert_eq!(Judgement::new(&report).to_string(), "none");
}

#[test]
fn stale_reads_break_real_time_order_only() {
    let report = run_on(Kind::Stale, &options());
    let levels = "strict-read-committed and serializable";
    assert_judged(&report, levels, &["stale-read"]);
}

/// In each store the generated tests find no outcome that its level forbids, and in a weak store
/// they find others.
#[test]
fn generated_tests_find_what_a_level_allows() {
    let generated = Generated::with(2).unwrap();
    let tests: Vec<Test> = generated.tests().cloned().collect();
    for (kind, level) in [
        (Kind::Serial, "strict-serializable"),
        (Kind::Optimistic, "strict-serializable"),
        (Kind::Snapshot, "strict-snapshot"),
        (Kind::ReadCommitted, "strict-read-committed"),
        (Kind::DirtyReads, "strict-read-uncommitted"),
    ] {
        let report = run_with(Memory::new(kind), &tests, &options());
        let given = Level::named(level).unwrap();
        let wrong = report.tests.iter().find(|it| it.refutes(given));
        assert!(wrong.is_none(), "{kind:?}: {wrong:#?}");
        // Each test that the level does not forbid can fail; these fail often.
        let found: Vec<&str> = { report.violated() }.map(|it| &*it.name).collect();
        let expected: &[&str] = match kind {
            Kind::Snapshot => &["cycle-rw-rw"],
            Kind::ReadCommitted => &["cycle-rw-rw", "cycle-ww-rw-on-xx"],
            Kind::DirtyReads => &["cycle-rw-rw", "cycle-wr-wr"],
            _ => &[],
        };
        let is_found = |name: &&str| found.contains(name);
        assert!(
            expected.iter().all(is_found),
            "{kind:?}: {}",
            brief(&report)
        );
        assert_eq!(found.is_empty(), expected.is_empty(), "{kind:?}: {found:?}");
    }
}

#[test]
fn crashes_of_clients_leave_a_correct_store_correct() {
    let options = Options {
        crashes: true,
        ..options()
    };
    for kind in [Kind::Serial, Kind::Optimistic] {
        let report = run_on(kind, &options);
        assert_judged(&report, "strict-serializable", &[]);
        for test in &report.tests {
            assert!(!test.crashes.is_empty());
            assert!(test.crashes.iter().all(|it| it.crashes > 0), "{test:#?}");
            let crashed: u64 = test.crashes.iter().map(|it| it.crashes).sum();
            // Some crash after a commit or an abort.
            assert!(crashed > test.count(Outcome::Crashed) && test.count(Outcome::Crashed) > 0);
        }
        let write = &named(&report, "litmus-1").crashes[1];
        assert_eq!((&*write.transaction, &*write.after), ("t1", "write x"));
    }
}

#[test]
fn writes_of_crashed_clients_are_found() {
    let without = run_on(Kind::KeepsCrashedWrites, &options());
    assert_judged(&without, "strict-serializable", &[]);
    let options = Options {
        crashes: true,
        ..options()
    };
    let report = run_on(Kind::KeepsCrashedWrites, &options);
    assert_eq!(
        Judgement::new(&report).to_string(),
        "none",
        "{}",
        brief(&report)
    );
    // In which test depends on the transactions that overwrite the half of a crashed one.
    let found = report.tests.iter().flat_map(|it| &it.violations);
    let mut crashes = found
        .filter(|it| it.kind == ViolationKind::State)
        .flat_map(|it| it.transactions.iter().filter_map(|it| it.crashed_after));
    assert!(crashes.any(|position| position > 0), "{}", brief(&report));
}

#[test]
fn halves_of_commits_whose_clients_are_killed_are_found() {
    let without = run_on(Kind::SplitsKilledCommits, &options());
    assert_judged(&without, "strict-serializable", &[]);
    let options = Options {
        crashes: true,
        limit: Limit::Instances(5000),
        ..options()
    };
    let tests = picked(&["litmus-1", "dirty-write"]);
    let report = run_with(Memory::new(Kind::SplitsKilledCommits), &tests, &options);
    for test in &report.tests {
        assert_eq!(test.verdict, Verdict::Violated, "{test:#?}");
        let within = test.crashes.iter().filter(|it| it.within_commit);
        assert!(within.map(|it| it.crashes).sum::<u64>() > 0, "{test:#?}");
    }
}

#[test]
fn a_lock_of_a_crashed_client_blocks() {
    let options = Options {
        crashes: true,
        patience: Duration::from_millis(200),
        ..options()
    };
    let report = run_on(Kind::KeepsCrashedLock, &options);
    let blocked: Vec<_> = report.blocked().map(|it| &it.verdict).collect();
    assert!(
        matches!(blocked[..], [Verdict::Blocked(_)]),
        "{}",
        brief(&report)
    );
    let judgement = Judgement::new(&report);
    assert_eq!(judgement.to_string(), "none");
    assert!(!judgement.missing.is_empty());
}

#[test]
fn transactions_that_are_reported_aborted_and_take_effect_are_found() {
    let report = run_on(Kind::AppliesAborted, &options());
    let found = |it: &&TestReport| {
        it.violations
            .iter()
            .any(|it| it.kind == ViolationKind::AbortedWrite)
    };
    let first = report.tests.iter().find(found).expect("a visible write");
    let violation = { first.violations.iter() }.find(|it| it.kind == ViolationKind::AbortedWrite);
    let transactions = &violation.unwrap().transactions;
    assert!(transactions.iter().any(|it| it.outcome == Outcome::Aborted));
    let judgement = Judgement::new(&report).to_string();
    assert_eq!(judgement, "strict-read-uncommitted", "{}", brief(&report));
}

#[test]
fn lost_answers_prove_nothing() {
    let report = run_on(Kind::LosesAnswers, &options());
    assert_judged(&report, "strict-serializable", &[]);
    let unknown = report.tests.iter().map(|it| it.count(Outcome::Unknown));
    assert!(unknown.sum::<u64>() > 100);
}

#[test]
fn operations_that_are_missing_limit_the_level() {
    let capabilities = Capabilities {
        count: false,
        ..Capabilities::ALL
    };
    let memory = Memory::with(Kind::Serial, capabilities);
    let report = run_with(memory, &picked(&NAMES), &options());
    let not_run = &named(&report, "predicate-write-skew").verdict;
    assert!(matches!(not_run, Verdict::NotApplicable(_)), "{not_run:?}");
    let judgement = Judgement::new(&report);
    let levels = "strict-repeatable-read and strict-snapshot";
    assert_eq!(judgement.to_string(), levels);
    assert_eq!(judgement.missing, ["predicate-write-skew"]);
    let not_refuted = judgement.not_refuted.iter().map(ToString::to_string);
    assert_eq!(not_refuted.collect::<Vec<_>>(), ["strict-serializable"]);
}

#[test]
fn transactions_that_never_commit_are_no_result() {
    let tests = picked(&["write-skew"]);
    let report = run_with(Memory::new(Kind::AbortsAll), &tests, &options());
    let verdict = &report.tests[0].verdict;
    // Its transactions that read the objects do not commit either.
    assert!(matches!(verdict, Verdict::Blocked(_)), "{verdict:?}");
    assert_eq!(Judgement::new(&report).to_string(), "none");
}

/// A store in memory that cannot prepare the objects of one test in its middle.
struct FailsOnce {
    memory: Memory,
    sets: AtomicU64,
    failing: std::ops::Range<u64>,
}

impl Driver for FailsOnce {
    fn capabilities(&self) -> Capabilities {
        self.memory.capabilities()
    }

    fn create(&self) -> Result<(), DriverError> {
        self.memory.create()
    }

    fn set(&self, objects: &[(Key, Option<i64>)]) -> Result<(), DriverError> {
        match self
            .failing
            .contains(&self.sets.fetch_add(1, Ordering::Relaxed))
        {
            true => Err(DriverError::new("memory", "no space")),
            false => self.memory.set(objects),
        }
    }

    fn connect(&self) -> Result<Box<dyn Connection>, DriverError> {
        self.memory.connect()
    }

    fn destroy(&self) -> Result<(), DriverError> {
        Err(DriverError::new("memory", "no access"))
    }
}

#[test]
fn an_error_ends_its_test_only() {
    let run = |failing| {
        let driver: Arc<dyn Driver> = Arc::new(FailsOnce {
            memory: Memory::new(Kind::Snapshot),
            sets: AtomicU64::new(0),
            failing,
        });
        let stop = AtomicBool::new(false);
        let tests = picked(&["litmus-1", "write-skew", "lost-update", "read-skew"]);
        run::run(&driver, &tests, &options(), &stop, &mut |_| ()).unwrap()
    };
    let verdicts = |report: &Report| -> Vec<&str> {
        { report.tests.iter() }
            .map(|it| it.verdict.name())
            .collect()
    };
    let report = run(0..1);
    assert_eq!(
        verdicts(&report),
        ["failed", "violated", "passed", "passed"]
    );
    let reason = report.tests[0].verdict.reason().unwrap();
    assert!(reason.contains("no space"), "{reason}");
    assert_eq!(Judgement::new(&report).to_string(), "none");
    assert!(report.left.unwrap().contains("no access"));
    let report = run(0..u64::MAX);
    assert_eq!(
        verdicts(&report),
        ["failed", "failed", "failed", "not exercised"]
    );
}

#[test]
fn a_run_stops_when_it_is_asked_to() {
    let driver: Arc<dyn Driver> = Arc::new(Memory::new(Kind::Serial));
    let options = Options {
        limit: Limit::Time(Duration::from_secs(3600)),
        ..options()
    };
    let stop = AtomicBool::new(false);
    let mut calls = 0;
    let result = run::run(&driver, &picked(&NAMES), &options, &stop, &mut |progress| {
        calls += 1;
        assert_eq!((progress.test, progress.ended), ("litmus-1", 0));
        let has_run = progress.executions > 0;
        stop.fetch_or(has_run, std::sync::atomic::Ordering::Relaxed);
    });
    let report = result.unwrap();
    assert!(report.is_stopped && calls > 0);
    assert!(report.tests[0].executions > 0);
    let is_open = |it: &TestReport| matches!(it.verdict, Verdict::NotExercised(_));
    assert!(report.tests.iter().all(is_open), "{report:#?}");
}
