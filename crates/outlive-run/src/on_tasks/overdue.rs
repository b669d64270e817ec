//! Workers that do not finish a task, as the driver of a run sees them: they are recorded for the
//! report, and their hosts are fenced if that was requested.

use super::Record;
use crate::driver::{Attendant, Deadline};
use crate::host::HostError;
use outlive::membership::Process;
use outlive_tasks::{Deadlines, WorkerPool};

/// The driver's observation of the workers' tasks.
pub(super) struct Overseer<'p> {
    record: Record,
    pool: &'p WorkerPool,
    /// The process that requests fences.
    process: &'p Process,
    deadlines: Option<(Deadlines, Deadline)>,
}

impl<'p> Overseer<'p> {
    pub fn new(record: Record, pool: &'p WorkerPool, attendant: &Attendant<'p>) -> Self {
        let Attendant {
            process, deadline, ..
        } = *attendant;
        Self {
            record,
            pool,
            process,
            deadlines: deadline.map(|deadline| (Deadlines::new(deadline.limit), deadline)),
        }
    }

    /// Checks all workers, and records the run's own workers that have become overdue.
    pub fn look(&mut self) -> Result<(), HostError> {
        let Some((deadlines, deadline)) = &mut self.deadlines else {
            return Ok(());
        };
        let generations = self.process.tables().generations();
        for overdue in deadlines.look(self.pool, generations)? {
            if let Some(number) = self.record.worker_of(overdue.worker.id) {
                self.record.is_overdue(number);
            }
            // A worker that is gone by now needs no fence.
            let fenced = deadline
                .fences
                .then(|| self.process.fence(overdue.worker))
                .and_then(Result::ok);
            match fenced {
                Some(host) => tracing::warn!(%host, "{overdue}; its host is fenced"),
                None => tracing::warn!("{overdue}"),
            }
        }
        Ok(())
    }
}
