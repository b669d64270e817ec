//! A compute server that executes single transactions for a command.

use crate::failure::Failure;
use crate::output;
use outlive_store::protocol::{Coordinator, Retry, Rows};
use outlive_store::servers::{ComputeServer, Direct, Members, Store, TableEntry};
use outlive_store::verbs::block_on;
use std::path::Path;
use std::time::Duration;

/// A compute server with one coordinator.
pub struct Client {
    /// Dropped before the server leaves the store.
    pub coordinator: Coordinator<Members<Direct>>,
    pub compute: ComputeServer,
}

impl Client {
    /// Joins the store at `path`. Its transactions are retried for `limit`.
    pub fn join(path: &Path, limit: Duration) -> Result<Self, Failure> {
        let compute = Store::open(path)?.join_compute()?;
        let coordinator = { compute.worker()?.coordinator() }.map_err(Failure::new)?;
        let coordinator = coordinator.retry(Retry {
            attempts: u32::MAX,
            deadline: Some(limit),
            ..Retry::default()
        });
        Ok(Self {
            coordinator,
            compute,
        })
    }

    /// The tables of the store.
    pub fn tables(&self) -> Vec<TableEntry> {
        self.compute.store().configuration().tables().collect()
    }

    /// The table `name`.
    pub fn table(&self, name: &str) -> Result<TableEntry, Failure> {
        let tables = self.tables();
        let names: Vec<_> = { tables.iter() }
            .map(|it| output::printable(&it.name))
            .collect();
        { tables.into_iter() }
            .find(|it| it.name == name)
            .ok_or_else(|| {
                Failure::new(match names.as_slice() {
                    [] => format!(
                        "the store has no tables; create `{name}` with `outlive store table`"
                    ),
                    names => format!(
                        "the store has no table `{name}`, but {}; `outlive store table` creates \
                         tables",
                        names.join(", ")
                    ),
                })
            })
    }

    /// The rows of tables at one moment.
    pub fn snapshot(&mut self, tables: &[TableEntry]) -> Result<Vec<Rows>, Failure> {
        let tables: Vec<u8> = tables.iter().map(|it| it.number).collect();
        block_on(self.coordinator.snapshot(&tables)).map_err(|error| {
            Failure::new(format_args!(
                "the tables could not be read at one moment: {error}; wait for the programs that \
                 change them, or raise --timeout"
            ))
        })
    }
}
