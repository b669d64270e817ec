//! Which workers do not come out of a task, as the driver of a run sees it: noted for the report, and their hosts fenced if
//! that is asked for.

use super::Record;
use crate::driver::{Attendant, Deadline};
use crate::host::HostError;
use outlive::membership::Process;
use outlive_tasks::{Deadlines, WorkerPool};

/// The driver's look at the workers' tasks.
pub(super) struct Overseer<'p> {
    record: Record,
    pool: &'p WorkerPool,
    /// Who asks for fences.
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

    /// Looks, and notes the run's own workers that are overdue and were not before.
    pub fn look(&mut self) -> Result<(), HostError> {
        let Some((deadlines, deadline)) = &mut self.deadlines else {
            return Ok(());
        };
        let generations = self.process.tables().generations();
        for overdue in deadlines.look(self.pool, generations)? {
            if let Some(number) = self.record.worker_of(overdue.worker.id) {
                self.record.is_overdue(number);
            }
            // Who is gone by now has come out of it.
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
