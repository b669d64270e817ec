//! A compute server that executes single transactions for a command.

use crate::commands::run::play::Interrupted;
use crate::failure::Failure;
use crate::output;
use core::pin::pin;
use core::task::Poll;
use outlive_store::protocol::{
    Abort, Conflict, Coordinator, Retry, Rows, Transaction, TransactionError,
};
use outlive_store::servers::{ComputeServer, Members, Store, TableEntry};
use outlive_store::verbs::block_on;
use std::path::Path;
use std::time::Duration;

/// A compute server with one coordinator. It leaves the store when it is dropped.
pub struct Client {
    coordinator: Coordinator<Members>,
    pub compute: ComputeServer,
    interrupted: Interrupted,
}

impl Client {
    /// Joins the store at `path`. Its transactions are retried for `limit`.
    pub fn join(path: &Path, limit: Duration, interrupted: &Interrupted) -> Result<Self, Failure> {
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
            interrupted: interrupted.clone(),
        })
    }

    /// Executes `work`, unless the command is interrupted.
    fn execute<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut Coordinator<Members>) -> Result<T, TransactionError>,
    ) -> Result<Result<T, TransactionError>, Failure> {
        let mut working = pin!(work(&mut self.coordinator));
        block_on(core::future::poll_fn(|context| {
            if self.interrupted.is_heard() {
                return Poll::Ready(Err(Failure::new("interrupted")));
            }
            working.as_mut().poll(context).map(Ok)
        }))
    }

    /// Executes a transaction, unless the command is interrupted. Returns the value that `body`
    /// returned.
    pub fn transact<T>(
        &mut self,
        body: impl AsyncFn(&mut Transaction<Members>) -> Result<T, Abort>,
    ) -> Result<Result<T, TransactionError>, Failure> {
        self.execute(async |coordinator| Ok(coordinator.transaction(body).await?.value))
    }

    /// Returns the tables of the store.
    pub fn tables(&self) -> Vec<TableEntry> {
        self.compute.store().configuration().tables().collect()
    }

    /// Returns the table `name`.
    pub fn table(&self, name: &str) -> Result<TableEntry, Failure> {
        let tables = self.tables();
        let names: Vec<_> = { tables.iter() }
            .map(|it| output::printable(&it.name))
            .collect();
        { tables.into_iter() }
            .find(|it| it.name == name)
            .ok_or_else(|| {
                let name = output::printable(&name);
                Failure::new(match names.as_slice() {
                    [] => format!(
                        "the store has no tables; create `{name}` with `outlive store table`"
                    ),
                    names => format!(
                        "the store has no table `{name}`; its tables are {}; `outlive store table` \
                         creates tables",
                        names.join(", ")
                    ),
                })
            })
    }

    /// Returns the rows of tables at one moment.
    pub fn snapshot(&mut self, tables: &[TableEntry]) -> Result<Vec<Rows>, Failure> {
        let tables: Vec<u8> = tables.iter().map(|it| it.number).collect();
        let rows = self.execute(async |coordinator| coordinator.snapshot(&tables).await)?;
        rows.map_err(|error| {
            let changed = matches!(
                error,
                TransactionError::DeadlineExceeded
                    | TransactionError::TooManyConflicts {
                        last: Conflict::Changed | Conflict::Latched(_),
                        ..
                    }
            );
            let advice = match changed {
                true => "; wait for the programs that change them, or raise --timeout",
                false => "",
            };
            Failure::new(format_args!(
                "no consistent snapshot of the tables could be read: {error}{advice}"
            ))
        })
    }
}
