//! SQLite in /dev/shm, with a write-ahead log and `synchronous=OFF`.
//!
//! Its statements are prepared once, its cache and its map hold the whole database, and a client
//! that waits for the other one yields instead of sleeping for milliseconds.

use super::accounts::{Account, Accounts, NAMES, execute, only_reads};
use super::client::Bank;
use super::requests::{Load, Request};
use crate::StudyError;
use rusqlite::{Connection, Statement};
use std::path::Path;
use std::time::Duration;

fn failed(error: rusqlite::Error) -> StudyError {
    StudyError::void(format!("SQLite: {error}"))
}

/// The statements of a table.
struct Table {
    insert: Statement<'static>,
    read: Statement<'static>,
    write: Statement<'static>,
    add: Statement<'static>,
    sum: Statement<'static>,
}

struct Sqlite {
    tables: Vec<Table>,
    begin: Statement<'static>,
    begin_writing: Statement<'static>,
    commit: Statement<'static>,
    load: Load,
}

/// Opens the database in `directory`, or creates it.
pub fn open(directory: &Path, load: Load) -> Result<Box<dyn Bank>, StudyError> {
    connect(directory, load).map_err(failed)
}

fn connect(directory: &Path, load: Load) -> Result<Box<dyn Bank>, rusqlite::Error> {
    let mut connection = Connection::open(directory.join("database"))?;
    connection.busy_handler(Some(wait))?;
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; PRAGMA cache_size = -524288; \
         PRAGMA mmap_size = 1073741824;",
    )?;
    for name in NAMES {
        connection.execute_batch(&format!(
            "CREATE TABLE IF NOT EXISTS {name} \
             (id INTEGER PRIMARY KEY, cents INTEGER NOT NULL, changes INTEGER NOT NULL)"
        ))?;
    }
    // The statements borrow the connection, which this process uses until its end.
    let connection: &'static Connection = Box::leak(Box::new(connection));
    let prepare = |sql: String| connection.prepare(&sql);
    let table = |name: &&str| {
        Ok(Table {
            insert: prepare(format!("INSERT INTO {name} VALUES (?, ?, 0)"))?,
            read: prepare(format!("SELECT cents, changes FROM {name} WHERE id = ?"))?,
            write: prepare(format!(
                "UPDATE {name} SET cents = ?, changes = ? WHERE id = ?"
            ))?,
            add: prepare(format!(
                "UPDATE {name} SET cents = cents + ?, changes = changes + 1 WHERE id = ?"
            ))?,
            sum: prepare(format!("SELECT coalesce(sum(cents), 0) FROM {name}"))?,
        })
    };
    Ok(Box::new(Sqlite {
        tables: NAMES
            .iter()
            .map(table)
            .collect::<Result<_, rusqlite::Error>>()?,
        begin: connection.prepare("BEGIN")?,
        begin_writing: connection.prepare("BEGIN IMMEDIATE")?,
        commit: connection.prepare("COMMIT")?,
        load,
    }))
}

/// Waits for another connection, for the `tries`-th time. Returns whether to try again.
fn wait(tries: i32) -> bool {
    match tries {
        ..100 => std::thread::yield_now(),
        _ => std::thread::sleep(Duration::from_micros(20)),
    }
    // About ten seconds.
    tries < 200_000
}

fn expect_one(changed: usize, key: u64) -> Result<(), StudyError> {
    match changed {
        1 => Ok(()),
        _ => Err(StudyError::void(format!("SQLite has lost account {key}"))),
    }
}

impl Accounts for Vec<Table> {
    fn read(&mut self, table: usize, key: u64) -> Result<Account, StudyError> {
        let account = self[table].read.query_row([key as i64], |row| {
            Ok(Account {
                cents: row.get(0)?,
                changes: row.get(1)?,
            })
        });
        account.map_err(failed)
    }

    fn write(&mut self, table: usize, key: u64, account: Account) -> Result<(), StudyError> {
        let Account { cents, changes } = account;
        let changed = self[table].write.execute([cents, changes, key as i64]);
        expect_one(changed.map_err(failed)?, key)
    }

    fn add(&mut self, table: usize, key: u64, cents: i64) -> Result<(), StudyError> {
        let changed = self[table].add.execute([cents, key as i64]);
        expect_one(changed.map_err(failed)?, key)
    }
}

impl Bank for Sqlite {
    fn fill(&mut self) -> Result<(), StudyError> {
        self.begin_writing.execute([]).map_err(failed)?;
        for table in &mut self.tables[..self.load.workload.tables()] {
            for key in 0..self.load.keys {
                let inserted = table.insert.execute([key as i64, Load::INITIAL]);
                inserted.map_err(failed)?;
            }
        }
        self.commit.execute([]).map_err(failed)?;
        Ok(())
    }

    fn execute(&mut self, requests: &[Request]) -> Result<i64, StudyError> {
        let mut change = 0;
        for request in requests {
            let begin = match only_reads(request) {
                true => &mut self.begin,
                false => &mut self.begin_writing,
            };
            begin.execute([]).map_err(failed)?;
            change += execute(&mut self.tables, *request)?;
            self.commit.execute([]).map_err(failed)?;
        }
        Ok(change)
    }

    fn sum(&mut self) -> Result<i64, StudyError> {
        let mut sum = 0;
        for table in &mut self.tables {
            let all = table.sum.query_row([], |row| row.get::<_, i64>(0));
            sum += all.map_err(failed)?;
        }
        Ok(sum)
    }
}
