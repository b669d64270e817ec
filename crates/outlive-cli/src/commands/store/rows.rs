//! `outlive store table`, `get`, `put`, `delete` and `scan`: tables and their rows.

use super::Which;
use super::client::Client;
use super::value::{Form, VALUES};
use crate::commands::run::play::Interrupted;
use crate::failure::Failure;
use crate::output;
use clap::Args;
use outlive_store::protocol::{Abort, Transaction};
use outlive_store::servers::Members;
use std::time::Duration;

/// The limit of a command's transaction.
#[derive(Args, Debug)]
pub(super) struct Limit {
    /// Time for which the transaction is retried before the command fails
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration)]
    pub timeout: Duration,
}

impl Limit {
    /// Joins the store as a client whose transactions have this limit.
    pub fn join(&self, which: &Which) -> Result<Client, Failure> {
        Client::join(&which.path, self.timeout, &Interrupted::listen()?)
    }
}

/// Arguments of `outlive store table`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive store table /dev/shm/bank accounts --keys 1000000 --value-bytes 16\n\n\
    If the table exists with values of this size, the command succeeds and changes nothing.")]
pub struct CreateTable {
    #[command(flatten)]
    which: Which,
    /// Name of the table
    table: String,
    /// Number of keys for which the table has space
    #[arg(long)]
    keys: u64,
    /// Size of a value in bytes, rounded up to a multiple of 8
    #[arg(long, default_value_t = 8)]
    value_bytes: u64,
}

impl CreateTable {
    pub fn run(self) -> Result<(), Failure> {
        let timeout = Duration::ZERO;
        let client = Limit { timeout }.join(&self.which)?;
        let number = { client.compute }.table_of_bytes(&self.table, self.keys, self.value_bytes)?;
        let name = output::printable(&self.table);
        output::line(format_args!("table {number}, {name}"))
    }
}

/// The keys of a table that a command accesses in one transaction.
#[derive(Args, Debug)]
struct Keys {
    #[command(flatten)]
    which: Which,
    /// Name of the table
    table: String,
    /// Keys to access, all in one transaction
    #[arg(required = true)]
    keys: Vec<u64>,
    #[command(flatten)]
    limit: Limit,
}

impl Keys {
    /// Executes `access`, with the number of the table, for each key in one transaction. Prints the
    /// line that it returns for a key, or, for `None`, a note that the key does not exist.
    ///
    /// # Errors
    /// [`Failure::Found`] if a key does not exist.
    fn each(
        &self,
        access: impl AsyncFn(&mut Transaction<Members>, u8, u64) -> Result<Option<String>, Abort>,
    ) -> Result<(), Failure> {
        let mut client = self.limit.join(&self.which)?;
        let table = client.table(&self.table)?.number;
        let done = client.transact(async |tx| {
            let mut lines = Vec::new();
            for key in &self.keys {
                lines.push(access(tx, table, *key).await?);
            }
            Ok(lines)
        })?;
        let lines = done.map_err(Failure::new)?;
        for (key, line) in self.keys.iter().zip(&lines) {
            match line {
                Some(line) => output::line(line)?,
                None => {
                    let table = output::printable(&self.table);
                    output::note(format_args!("table {table} has no key {key}"));
                }
            }
        }
        match lines.iter().all(Option::is_some) {
            true => Ok(()),
            false => Err(Failure::Found),
        }
    }
}

/// Arguments of `outlive store get`.
#[derive(Args, Debug)]
#[command(after_help = format!("Examples:\n  \
    outlive store get /dev/shm/bank accounts 7\n  \
    outlive store get /dev/shm/bank accounts 7 8 --numbers\n\n\
    All keys are read in one transaction. If one does not exist, the command exits with 1.\n\n\
    {VALUES}"))]
pub struct Get {
    #[command(flatten)]
    keys: Keys,
    #[command(flatten)]
    form: Form,
}

impl Get {
    pub fn run(self) -> Result<(), Failure> {
        let Self { keys, form } = self;
        keys.each(async |tx, table, key| {
            let words = tx.read_words(table, key).await?;
            Ok(words.map(|it| form.show(it)))
        })
    }
}

/// Arguments of `outlive store put`.
#[derive(Args, Debug)]
#[command(after_help = format!("Examples:\n  \
    outlive store put /dev/shm/bank names 7 ada\n  \
    outlive store put /dev/shm/bank accounts 7 100,-3 --numbers\n\n\
    {VALUES}"))]
pub struct Put {
    #[command(flatten)]
    which: Which,
    /// Name of the table
    table: String,
    /// Key to write
    key: u64,
    /// Value to write; see below for its format
    #[arg(allow_hyphen_values = true)]
    value: String,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    limit: Limit,
}

impl Put {
    pub fn run(self) -> Result<(), Failure> {
        let mut client = self.limit.join(&self.which)?;
        let table = client.table(&self.table)?;
        let words = table.geometry.value_words as usize;
        let value = self.form.parse(&self.value, words)?;
        let put = client.transact(async |tx| tx.put_words(table.number, self.key, &value).await)?;
        let done = match put.map_err(Failure::new)? {
            true => "replaced",
            false => "inserted",
        };
        output::line(format_args!("{done} key {}", self.key))
    }
}

/// Arguments of `outlive store delete`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  \
    outlive store delete /dev/shm/bank accounts 7\n\n\
    All keys are deleted in one transaction, so the log slots of the store limit their number. If \
    one does not exist, the others are deleted, and the command exits with 1.")]
pub struct Delete {
    #[command(flatten)]
    keys: Keys,
}

impl Delete {
    pub fn run(self) -> Result<(), Failure> {
        { self.keys }.each(async |tx, table, key| {
            let existed = tx.delete_words(table, key).await?;
            Ok(existed.then(|| format!("deleted key {key}")))
        })
    }
}

/// Arguments of `outlive store scan`.
#[derive(Args, Debug)]
#[command(after_help = format!("Examples:\n  \
    outlive store scan /dev/shm/bank accounts --numbers\n  \
    outlive store scan /dev/shm/bank accounts --from 100 --to 199\n\n\
    Prints a line for each key, in the order of the keys: key, tab, value. The rows are those of \
    one moment, even while transactions run.\n\n{VALUES}"))]
pub struct Scan {
    #[command(flatten)]
    which: Which,
    /// Name of the table
    table: String,
    /// The first key
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// The last key
    #[arg(long, default_value_t = u64::MAX, hide_default_value = true)]
    to: u64,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    limit: Limit,
}

impl Scan {
    pub fn run(self) -> Result<(), Failure> {
        if self.from > self.to {
            return Err(Failure::Usage(format!(
                "the range {}..={} is empty; --from must not be greater than --to",
                self.from, self.to
            )));
        }
        let mut client = self.limit.join(&self.which)?;
        let table = client.table(&self.table)?;
        let rows = client.snapshot(&[table])?;
        drop(client);
        for (key, words) in rows.iter().flat_map(|it| it.range(self.from..=self.to)) {
            output::line(format_args!("{key}\t{}", self.form.show(words)))?;
        }
        Ok(())
    }
}
