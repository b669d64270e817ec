//! LMDB in /dev/shm, with `WRITEMAP` and `NOSYNC`: commits write the mapped file, and wait for no
//! disk.

use super::accounts::{Account, Accounts, CHECKING, NAMES, SAVINGS, execute, only_reads};
use super::client::Bank;
use super::requests::{Load, Request};
use crate::StudyError;
use heed::types::Bytes;
use heed::{
    CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, IntegerComparator, RoTxn, RwTxn,
};
use std::path::Path;

/// The largest size of the file, which is sparse.
const MAP: usize = 4 << 30;

type Rows = Database<'static, Bytes, Bytes, IntegerComparator>;

fn failed(error: heed::Error) -> StudyError {
    StudyError::void(format!("LMDB: {error}"))
}

struct Lmdb {
    env: &'static Env,
    tables: [Rows; 2],
    load: Load,
}

/// Opens the environment in `directory`, or creates it.
pub fn open(directory: &Path, load: Load) -> Result<Box<dyn Bank>, StudyError> {
    let mut options = EnvOpenOptions::new();
    options.map_size(MAP).max_dbs(NAMES.len() as u32);
    // SAFETY: the file is written by LMDB alone, whose readers do not outlive their transactions.
    // After a crash of the machine, which these flags do not survive, the file does not exist.
    let env = unsafe {
        options.flags(EnvFlags::WRITE_MAP | EnvFlags::NO_SYNC);
        options.open(directory)
    };
    // The tables borrow the environment, which this process uses until its end.
    let env: &'static Env = Box::leak(Box::new(env.map_err(failed)?));
    let tables = env.create_databases_and_commit(
        env.write_txn().map_err(failed)?,
        |opener, txn| -> Result<_, heed::Error> {
            let mut create = |name| {
                let options = opener.database_options().types::<Bytes, Bytes>();
                let mut options = options.key_comparator::<IntegerComparator>();
                options.name(name).create(txn)
            };
            let tables = (create(NAMES[CHECKING])?, create(NAMES[SAVINGS])?);
            Ok(CommitOrAbort::<_, ()>::Commit(tables))
        },
    );
    let (checking, savings) = tables.map_err(failed)?.unwrap_commit();
    Ok(Box::new(Lmdb {
        env,
        tables: [checking, savings],
        load,
    }))
}

fn read(rows: Rows, txn: &RoTxn, key: u64) -> Result<Account, StudyError> {
    let found = rows.get(txn, &key.to_ne_bytes()).map_err(failed)?;
    let found = found.and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
    let found = found.ok_or_else(|| StudyError::void(format!("LMDB has lost account {key}")))?;
    let (cents, changes) = found.split_at(8);
    let word = |bytes: &[u8]| i64::from_ne_bytes(bytes.try_into().expect("8 bytes"));
    Ok(Account {
        cents: word(cents),
        changes: word(changes),
    })
}

fn write(rows: Rows, txn: &mut RwTxn, key: u64, account: Account) -> Result<(), StudyError> {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&account.cents.to_ne_bytes());
    bytes[8..].copy_from_slice(&account.changes.to_ne_bytes());
    rows.put(txn, &key.to_ne_bytes(), &bytes).map_err(failed)
}

struct Writing<'a> {
    tables: [Rows; 2],
    txn: RwTxn<'a>,
}

impl Accounts for Writing<'_> {
    fn read(&mut self, table: usize, key: u64) -> Result<Account, StudyError> {
        read(self.tables[table], &self.txn, key)
    }

    fn write(&mut self, table: usize, key: u64, account: Account) -> Result<(), StudyError> {
        write(self.tables[table], &mut self.txn, key, account)
    }
}

struct Reading<'a> {
    tables: [Rows; 2],
    txn: RoTxn<'a, heed::WithTls>,
}

impl Accounts for Reading<'_> {
    fn read(&mut self, table: usize, key: u64) -> Result<Account, StudyError> {
        read(self.tables[table], &self.txn, key)
    }

    fn write(&mut self, _: usize, key: u64, _: Account) -> Result<(), StudyError> {
        unreachable!("a transaction that only reads writes account {key}")
    }
}

impl Bank for Lmdb {
    fn fill(&mut self) -> Result<(), StudyError> {
        let mut txn = self.env.write_txn().map_err(failed)?;
        let account = Account {
            cents: Load::INITIAL,
            changes: 0,
        };
        for rows in &self.tables[..self.load.workload.tables()] {
            for key in 0..self.load.keys {
                write(*rows, &mut txn, key, account)?;
            }
        }
        txn.commit().map_err(failed)
    }

    fn execute(&mut self, requests: &[Request]) -> Result<i64, StudyError> {
        let tables = self.tables;
        let mut change = 0;
        for request in requests {
            if only_reads(request) {
                let txn = self.env.read_txn().map_err(failed)?;
                change += execute(&mut Reading { tables, txn }, *request)?;
            } else {
                let txn = self.env.write_txn().map_err(failed)?;
                let mut writing = Writing { tables, txn };
                change += execute(&mut writing, *request)?;
                writing.txn.commit().map_err(failed)?;
            }
        }
        Ok(change)
    }

    fn sum(&mut self) -> Result<i64, StudyError> {
        let txn = self.env.read_txn().map_err(failed)?;
        let mut sum = 0;
        for rows in &self.tables[..self.load.workload.tables()] {
            for key in 0..self.load.keys {
                sum += read(*rows, &txn, key)?.cents;
            }
        }
        Ok(sum)
    }
}
