//! A small suite: one test or two for each phenomenon.

use outlive_litmus::level::Level;
use outlive_litmus::test::{
    Assertion, Comparison, Condition, Expression, Family, Local, Object, Seen, Step, Test,
    Transaction,
};

type Value = Expression<Local>;
type Seeing = Condition<Seen>;

fn constant<N>(number: i64) -> Expression<N> {
    Expression::Constant(number)
}

/// The value of the first read, plus 1.
fn next() -> Value {
    let first = Expression::Value(Local(0));
    Expression::Add(Box::new(first), Box::new(constant(1)))
}

fn read(object: usize, into: usize) -> Step {
    let into = Local(into);
    Step::Read { object, into }
}

fn write(object: usize, value: Value) -> Step {
    Step::Write { object, value }
}

fn insert(object: usize, value: i64) -> Step {
    let value = constant(value);
    Step::Insert { object, value }
}

fn transaction(name: &str, steps: Vec<Step>) -> Transaction {
    let returns = |it: &&Step| matches!(it, Step::Read { .. } | Step::Count { .. });
    let count = steps.iter().filter(returns).count();
    Transaction {
        name: name.into(),
        locals: ["a", "b"][..count].iter().map(|it| (*it).into()).collect(),
        steps,
    }
}

fn compare(a: Expression<Seen>, comparison: Comparison, b: Expression<Seen>) -> Seeing {
    Condition::Compare(a, comparison, b)
}

fn object(object: usize) -> Expression<Seen> {
    Expression::Value(Seen::Object(object))
}

fn is(name: Seen, value: i64) -> Seeing {
    compare(Expression::Value(name), Comparison::Equal, constant(value))
}

fn returned(transaction: usize, local: usize) -> Seen {
    let local = Local(local);
    Seen::Read { transaction, local }
}

/// All of the transactions committed, and all of `others`.
fn committed<const N: usize>(transactions: [usize; N], others: Vec<Seeing>) -> Assertion {
    let committed = transactions.map(|it| is(Seen::Committed(it), 1));
    Assertion::Never(Condition::All(
        committed.into_iter().chain(others).collect(),
    ))
}

fn test(
    (name, family): (&str, Family),
    initial: &[Option<i64>],
    transactions: Vec<Vec<Step>>,
    assertion: Assertion,
    forbidden_from: &[&str],
) -> Test {
    let objects = ["x", "y", "z"].iter().zip(initial);
    let objects = objects.map(|(name, initial)| Object {
        name: (*name).into(),
        initial: *initial,
    });
    let named = ["t1", "t2", "t3"].iter().zip(transactions);
    Test {
        name: name.into(),
        about: format!("Tests {name}."),
        family,
        objects: objects.collect(),
        transactions: named
            .map(|(name, steps)| transaction(name, steps))
            .collect(),
        order: Vec::new(),
        assertion,
        forbidden_from: forbidden_from
            .iter()
            .map(|it| Level::named(it).expect("a level"))
            .collect(),
    }
}

/// Returns all of them.
pub fn all() -> Vec<Test> {
    let mut all = shared();
    all.extend(separate());
    all
}

const BOTH: &[&str] = &["repeatable-read", "snapshot"];

fn shared() -> Vec<Test> {
    let equal = || compare(object(0), Comparison::Equal, object(1));
    let zero = |it| compare(object(it), Comparison::Equal, constant(0));
    let absent = |it| Condition::Absent(Seen::Object(it));
    let one_more = |a, b| {
        let more = Expression::Add(Box::new(object(b)), Box::new(constant(1)));
        compare(object(a), Comparison::Equal, more)
    };
    let greatest = Expression::Max(Box::new(object(1)), Box::new(object(2)));
    let both = |value| vec![write(0, constant(value)), write(1, constant(value))];
    let next_to = |other| vec![read(0, 0), write(0, next()), write(other, next())];
    vec![
        test(
            ("equal-writes", Family::DirectWrite),
            &[Some(0), Some(0)],
            vec![both(1), both(2)],
            Assertion::Always(equal()),
            &["read-uncommitted"],
        ),
        test(
            ("equal-inserts", Family::DirectWrite),
            &[None, None],
            vec![
                vec![insert(0, 1), insert(1, 1)],
                vec![insert(0, 2), insert(1, 2)],
                vec![Step::Delete { object: 0 }, Step::Delete { object: 1 }],
            ],
            Assertion::Always(Condition::Any(vec![
                equal(),
                Condition::All(vec![absent(0), absent(1)]),
            ])),
            &["read-uncommitted"],
        ),
        test(
            ("one-apart", Family::ReadWrite),
            &[Some(0), Some(0)],
            vec![
                vec![read(0, 0), write(1, next())],
                vec![read(1, 0), write(0, next())],
            ],
            Assertion::Always(Condition::Any(vec![
                one_more(0, 1),
                one_more(1, 0),
                Condition::All(vec![zero(0), zero(1)]),
            ])),
            &["repeatable-read"],
        ),
        test(
            ("copied-counter", Family::IndirectWrite),
            &[Some(0), Some(0), Some(0)],
            vec![next_to(1), next_to(2)],
            Assertion::Always(Condition::All(vec![
                compare(object(0), Comparison::Equal, greatest),
                Condition::Any(vec![
                    compare(object(1), Comparison::Different, object(2)),
                    Condition::All(vec![zero(1), zero(2)]),
                ]),
            ])),
            BOTH,
        ),
    ]
}

fn separate() -> Vec<Test> {
    let one = |object| write(object, constant(1));
    let increment = || vec![read(0, 0), write(0, next())];
    let mut stale = test(
        ("stale-read", Family::RealTime),
        &[Some(0)],
        vec![vec![one(0)], vec![read(0, 0)]],
        committed([0, 1], vec![is(returned(1, 0), 0)]),
        &["strict-read-committed"],
    );
    stale.order = vec![(0, 1)];
    let into = Local(0);
    vec![
        test(
            ("dirty-write", Family::DirectWrite),
            &[Some(0), Some(0)],
            vec![
                vec![one(0), one(1)],
                vec![write(0, constant(2)), write(1, constant(2))],
            ],
            committed(
                [0, 1],
                vec![compare(object(0), Comparison::Different, object(1))],
            ),
            &["read-uncommitted"],
        ),
        test(
            ("lost-update", Family::ReadWrite),
            &[Some(0)],
            vec![increment(), increment()],
            committed([0, 1], vec![is(Seen::Object(0), 1)]),
            BOTH,
        ),
        test(
            ("write-skew", Family::ReadWrite),
            &[Some(0), Some(0)],
            vec![vec![read(0, 0), one(1)], vec![read(1, 0), one(0)]],
            committed([0, 1], vec![is(returned(0, 0), 0), is(returned(1, 0), 0)]),
            &["repeatable-read"],
        ),
        test(
            ("read-skew", Family::ReadWrite),
            &[Some(0), Some(0)],
            vec![vec![one(0), one(1)], vec![read(0, 0), read(1, 1)]],
            committed([0, 1], vec![is(returned(1, 0), 0), is(returned(1, 1), 1)]),
            BOTH,
        ),
        test(
            ("aborted-read", Family::AbortedRead),
            &[Some(0)],
            vec![vec![one(0), Step::Abort], vec![read(0, 0)]],
            committed([1], vec![is(returned(1, 0), 1)]),
            &["read-committed"],
        ),
        test(
            ("intermediate-read", Family::IntermediateRead),
            &[Some(0)],
            vec![vec![one(0), write(0, constant(2))], vec![read(0, 0)]],
            committed([1], vec![is(returned(1, 0), 1)]),
            &["read-committed"],
        ),
        test(
            ("circular-reads", Family::IndirectWrite),
            &[Some(0), Some(0)],
            vec![vec![one(0), read(1, 0)], vec![one(1), read(0, 0)]],
            committed([0, 1], vec![is(returned(0, 0), 1), is(returned(1, 0), 1)]),
            &["read-committed"],
        ),
        test(
            ("count-skew", Family::Predicate),
            &[None, None],
            vec![
                vec![Step::Count { into }, insert(0, 1)],
                vec![Step::Count { into }, insert(1, 1)],
            ],
            committed([0, 1], vec![is(returned(0, 0), 0), is(returned(1, 0), 0)]),
            &["serializable"],
        ),
        stale,
    ]
}
