//! Checks that a driver keeps the contract of [`Driver`] and [`Connection`].
//!
//! The tests check the isolation of concurrent transactions. These checks are about the assumptions
//! of the tests: steps have the effects that the traits describe; refused and aborted transactions,
//! and those of dropped connections, have no effect; connections see each other's commits.

use super::{Capabilities, Connection, Driver, DriverError, Key, StepError};
use std::collections::BTreeMap;
use std::time::Duration;

/// A requirement that a driver does not meet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the driver does not conform: {check}: {problem}")]
pub struct Violation {
    /// The name of the [check](CHECKS).
    pub check: &'static str,
    /// A sentence that says how the requirement is not met.
    pub problem: String,
}

/// A check of one requirement.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// The requirement, as text.
    pub name: &'static str,
    /// Returns whether a store with these capabilities has to meet it.
    pub applies: fn(Capabilities) -> bool,
    run: fn(&dyn Driver) -> Outcome,
}

/// All checks, in the order in which they are executed.
pub const CHECKS: &[Check] = &[
    Check {
        name: "objects have the values that were set",
        applies: |_| true,
        run: set_values,
    },
    Check {
        name: "a table with objects is not created again",
        applies: |_| true,
        run: create_again,
    },
    Check {
        name: "a transaction reads its own writes",
        applies: |_| true,
        run: own_writes,
    },
    Check {
        name: "a transaction sees its own insertions and deletions",
        applies: |it| it.insert_delete,
        run: own_insertions,
    },
    Check {
        name: "a write of an absent object is refused and undoes the transaction",
        applies: |it| it.abort,
        run: refused_write,
    },
    Check {
        name: "refused insertions and deletions undo the transaction",
        applies: |it| it.insert_delete && it.abort,
        run: refused_insertion,
    },
    Check {
        name: "an abort undoes the transaction",
        applies: |it| it.abort,
        run: abort,
    },
    Check {
        name: "a dropped connection undoes its transaction and blocks no other",
        applies: |it| it.abort,
        run: drop_connection,
    },
    Check {
        name: "a count is that of the objects in a half-open range",
        applies: |it| it.count,
        run: count,
    },
    Check {
        name: "connections see each other's commits",
        applies: |_| true,
        run: commits,
    },
    Check {
        name: "threads use connections of their own",
        applies: |_| true,
        run: threads,
    },
    Check {
        name: "a removed table can be created again, and is empty",
        applies: |_| true,
        run: destroy,
    },
];

/// Executes all checks that apply, on a store in which the driver's table does not exist or is
/// empty. The table is removed at the end.
///
/// # Errors
/// The first requirement that is not met.
pub fn check(driver: &dyn Driver) -> Result<(), Violation> {
    driver.create().map_err(|error| Violation {
        check: "the table is created",
        problem: error.to_string(),
    })?;
    let capabilities = driver.capabilities();
    let checks = CHECKS.iter().filter(|it| (it.applies)(capabilities));
    for Check { name, run, .. } in checks {
        let outcome = prepared(driver).and_then(|()| run(driver));
        outcome.map_err(|problem| {
            // A table that remains disturbs the next run. The first problem is reported, not that
            // problem to report.
            let _ = driver.destroy();
            Violation {
                check: name,
                problem,
            }
        })?;
    }
    driver.destroy().map_err(|error| Violation {
        check: "the table is removed",
        problem: error.to_string(),
    })
}

/// The outcome of a check; an error is a sentence about the problem.
type Outcome<T = ()> = Result<T, String>;

/// A connection.
type Client = Box<dyn Connection>;

/// Replaces the table by one without objects.
fn prepared(driver: &dyn Driver) -> Outcome {
    driver.destroy().map_err(text)?;
    driver.create().map_err(text)
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

fn connect(driver: &dyn Driver) -> Outcome<Client> {
    driver
        .connect()
        .map_err(|error: DriverError| error.to_string())
}

/// The number of attempts of a transaction that the store aborts.
const ATTEMPTS: u32 = 1000;

/// Executes a transaction, and repeats it if the store aborts it.
fn execute<T>(
    client: &mut Client,
    mut body: impl FnMut(&mut dyn Connection) -> Result<T, StepError>,
) -> Outcome<Result<T, StepError>> {
    let mut attempt = || {
        client.begin()?;
        body(&mut **client)
    };
    let mut last = String::new();
    for _ in 0..ATTEMPTS {
        match attempt() {
            Err(StepError::Aborted(reason)) => last = reason,
            Err(StepError::Lost(reason)) => return Err(format!("a connection was lost: {reason}")),
            outcome => return Ok(outcome),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(format!(
        "the store aborted a transaction {ATTEMPTS} times: {last}"
    ))
}

/// Executes a transaction without concurrent ones, and commits it.
fn commit<T>(
    client: &mut Client,
    mut body: impl FnMut(&mut dyn Connection) -> Result<T, StepError>,
) -> Outcome<T> {
    let outcome = execute(client, |it| {
        let value = body(it)?;
        it.commit().map(|()| value)
    })?;
    outcome.map_err(|error| format!("a transaction failed: {error}"))
}

/// Executes a transaction that is refused.
fn expect_refusal(
    client: &mut Client,
    step: &str,
    body: impl FnMut(&mut dyn Connection) -> Result<(), StepError>,
) -> Outcome {
    match execute(client, body)? {
        Err(StepError::Refused) => Ok(()),
        outcome => Err(format!("{step} was not refused, but returned {outcome:?}")),
    }
}

/// Checks the values of objects, in a transaction.
fn expect(client: &mut Client, objects: &[(Key, Option<i64>)]) -> Outcome {
    let found = commit(client, |it| read(it, objects.iter().map(|(key, _)| *key)))?;
    compare(objects, &found)
}

fn read(
    client: &mut dyn Connection,
    keys: impl Iterator<Item = Key>,
) -> Result<Vec<(Key, Option<i64>)>, StepError> {
    keys.map(|key| Ok((key, client.read(key)?))).collect()
}

fn compare(expected: &[(Key, Option<i64>)], found: &[(Key, Option<i64>)]) -> Outcome {
    let different = expected.iter().zip(found).find(|(a, b)| a != b);
    match different {
        None => Ok(()),
        Some(((key, expected), (_, found))) => Err(format!(
            "object {key} has {found:?}, and should have {expected:?}"
        )),
    }
}

fn set(driver: &dyn Driver, objects: &[(Key, Option<i64>)]) -> Outcome {
    driver.set(objects).map_err(text)
}

/// The largest key.
const LAST: Key = (1 << 63) - 1;

fn set_values(driver: &dyn Driver) -> Outcome {
    let mut before = connect(driver)?;
    let mut objects: BTreeMap<_, _> = (0..1200).map(|it| (it, Some(-(it as i64)))).collect();
    objects.extend([
        (0, Some(i64::MIN)),
        (1 << 40, Some(i64::MAX)),
        (LAST, Some(7)),
    ]);
    let all: Vec<_> = objects.iter().map(|(key, value)| (*key, *value)).collect();
    set(driver, &all)?;
    for (key, value) in [(3, Some(8)), (4, None), (LAST, None), (5000, None)] {
        objects.insert(key, value);
        set(driver, &[(key, value)])?;
    }
    // Few at a time, because stores limit the size of transactions.
    let all: Vec<_> = objects.into_iter().collect();
    let mut after = connect(driver)?;
    for part in all.chunks(16) {
        expect(&mut before, part)?;
        expect(&mut after, part)?;
    }
    Ok(())
}

fn create_again(driver: &dyn Driver) -> Outcome {
    driver
        .create()
        .map_err(|error| format!("an empty table is refused: {error}"))?;
    set(driver, &[(1, Some(1))])?;
    match driver.create() {
        Ok(()) => Err("`create` succeeded, although the table has an object".into()),
        Err(_) => Ok(()),
    }
}

fn own_writes(driver: &dyn Driver) -> Outcome {
    set(driver, &[(1, Some(10)), (2, Some(20))])?;
    let mut client = connect(driver)?;
    let found = commit(&mut client, |it| {
        it.write(1, 11)?;
        it.write(2, i64::MIN)?;
        let first = read(it, 1..4)?;
        it.write(1, 12)?;
        Ok([first, read(it, 1..4)?].concat())
    })?;
    let own = [(1, Some(11)), (2, Some(i64::MIN)), (3, None)];
    let last = [(1, Some(12)), (2, Some(i64::MIN)), (3, None)];
    compare(&[own, last].concat(), &found)?;
    expect(&mut client, &last)
}

fn own_insertions(driver: &dyn Driver) -> Outcome {
    set(driver, &[(1, Some(10)), (2, Some(20))])?;
    let mut client = connect(driver)?;
    let found = commit(&mut client, |it| {
        it.insert(3, 30)?;
        it.delete(1)?;
        let first = read(it, 1..4)?;
        it.write(3, 31)?;
        it.delete(2)?;
        it.insert(2, 21)?;
        Ok([first, read(it, 1..4)?].concat())
    })?;
    let own = [(1, None), (2, Some(20)), (3, Some(30))];
    let last = [(1, None), (2, Some(21)), (3, Some(31))];
    compare(&[own, last].concat(), &found)?;
    expect(&mut client, &last)?;
    commit(&mut client, |it| {
        it.delete(3)?;
        it.insert(1, 12)
    })?;
    expect(&mut client, &[(1, Some(12)), (2, Some(21)), (3, None)])
}

fn refused_write(driver: &dyn Driver) -> Outcome {
    set(driver, &[(1, Some(10))])?;
    let mut client = connect(driver)?;
    expect_refusal(&mut client, "a write of an absent object", |it| {
        it.write(1, 11)?;
        it.write(2, 21)
    })?;
    expect(&mut client, &[(1, Some(10)), (2, None)])?;
    expect(&mut connect(driver)?, &[(1, Some(10)), (2, None)])
}

fn refused_insertion(driver: &dyn Driver) -> Outcome {
    let objects = [(1, Some(10)), (2, Some(20)), (3, None), (4, None)];
    set(driver, &objects)?;
    let mut client = connect(driver)?;
    expect_refusal(&mut client, "an insertion of a present object", |it| {
        it.insert(3, 30)?;
        it.delete(2)?;
        it.insert(1, 11)
    })?;
    expect(&mut client, &objects)?;
    expect_refusal(&mut client, "a deletion of an absent object", |it| {
        it.delete(1)?;
        it.delete(4)
    })?;
    expect_refusal(&mut client, "a write of a deleted object", |it| {
        it.delete(1)?;
        it.write(1, 11)
    })?;
    expect(&mut client, &objects)
}

fn abort(driver: &dyn Driver) -> Outcome {
    set(driver, &[(1, Some(10)), (2, Some(20))])?;
    let inserts = driver.capabilities().insert_delete;
    let mut client = connect(driver)?;
    let outcome = execute(&mut client, |it| {
        it.write(1, 11)?;
        if inserts {
            it.delete(2)?;
            it.insert(3, 30)?;
        }
        it.abort()
    })?;
    outcome.map_err(|error| format!("`abort` failed: {error}"))?;
    let outcome = execute(&mut client, |it| it.abort())?;
    outcome.map_err(|error| format!("`abort` after `begin` failed: {error}"))?;
    let before = [(1, Some(10)), (2, Some(20)), (3, None)];
    expect(&mut client, &before)?;
    expect(&mut connect(driver)?, &before)
}

fn drop_connection(driver: &dyn Driver) -> Outcome {
    set(driver, &[(1, Some(10)), (2, Some(20))])?;
    let mut survivor = connect(driver)?;
    for step in 0..4 {
        let mut cut = connect(driver)?;
        let outcome = execute(&mut cut, |it| {
            if step > 0 {
                it.write(1, 11)?;
            }
            if step > 1 {
                it.write(2, 21)?;
            }
            it.read(1).map(drop)
        })?;
        outcome.map_err(|error| format!("a transaction failed: {error}"))?;
        drop(cut);
        let value = 20 + step;
        // The store notices that the connection was dropped a moment later.
        commit(&mut survivor, |it| it.write(2, value))?;
        expect(&mut survivor, &[(1, Some(10)), (2, Some(value))])?;
    }
    Ok(())
}

fn count(driver: &dyn Driver) -> Outcome {
    set(
        driver,
        &[(1, Some(0)), (4, Some(0)), (5, Some(0)), (9, Some(0))],
    )?;
    let mut client = connect(driver)?;
    let inserts = driver.capabilities().insert_delete;
    let found = commit(&mut client, |it| {
        let mut found = Vec::new();
        for range in [0..10, 1..9, 2..4, 4..5, 5..5, 5..64] {
            found.push(it.count(range)?);
        }
        if inserts {
            it.delete(4)?;
            it.insert(2, 0)?;
            it.insert(3, 0)?;
            found.push(it.count(2..5)?);
        }
        Ok(found)
    })?;
    let expected = [4, 3, 0, 1, 0, 2, 2];
    match expected.starts_with(&found) {
        true => Ok(()),
        false => Err(format!(
            "the counts are {found:?}, and should be {expected:?}"
        )),
    }
}

fn commits(driver: &dyn Driver) -> Outcome {
    set(driver, &[(1, Some(10))])?;
    let mut clients = [connect(driver)?, connect(driver)?];
    commit(&mut clients[0], |_| Ok(()))?;
    for value in 11..21 {
        let [writer, reader] = &mut clients;
        commit(writer, |it| it.write(1, value))?;
        expect(reader, &[(1, Some(value))])?;
        set(driver, &[(2, Some(value))])?;
        expect(writer, &[(1, Some(value)), (2, Some(value))])?;
        expect(reader, &[(1, Some(value)), (2, Some(value))])?;
        clients.reverse();
    }
    Ok(())
}

fn threads(driver: &dyn Driver) -> Outcome {
    const THREADS: u64 = 4;
    const ADDITIONS: i64 = 10;
    let objects: Vec<_> = (0..THREADS).map(|key| (key, Some(0))).collect();
    set(driver, &objects)?;
    let count = |key| -> Outcome {
        let mut client = connect(driver)?;
        for _ in 0..ADDITIONS {
            // An addition that is executed again was aborted, so it had no effect.
            commit(&mut client, |it| {
                let value = it.read(key)?.unwrap_or(i64::MIN);
                it.write(key, value + 1)
            })?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let counting: Vec<_> = (0..THREADS)
            .map(|key| scope.spawn(move || count(key)))
            .collect();
        counting.into_iter().try_for_each(|it| match it.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    let objects: Vec<_> = (0..THREADS).map(|key| (key, Some(ADDITIONS))).collect();
    expect(&mut connect(driver)?, &objects)
}

fn destroy(driver: &dyn Driver) -> Outcome {
    set(driver, &[(1, Some(10))])?;
    driver.destroy().map_err(text)?;
    driver
        .destroy()
        .map_err(|error| format!("a second removal failed: {error}"))?;
    driver.create().map_err(text)?;
    expect(&mut connect(driver)?, &[(1, None)])
}
