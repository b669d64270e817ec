//! Threads of clients.

use super::RunError;
use super::client::Client;
use super::context::Context;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

/// A thread with a client, which works on jobs one after another.
pub(super) struct Worker<J> {
    jobs: Option<Sender<J>>,
    thread: Option<JoinHandle<()>>,
}

impl<J: Send + 'static> Worker<J> {
    /// Starts a thread that calls `work` for each job, and sends the result to `results`.
    pub(super) fn start<R: Send + 'static>(
        context: &Context,
        results: Sender<Result<R, RunError>>,
        work: impl Fn(&mut Client, J) -> Result<R, RunError> + Send + 'static,
    ) -> Result<Self, RunError> {
        let (jobs, queue): (_, Receiver<J>) = mpsc::channel();
        let (driver, losses) = (Arc::clone(&context.driver), Arc::clone(&context.lost));
        let patience = context.options.patience;
        let run = move || {
            // A connection remains on its thread.
            let mut client = Client::new(&driver, patience, &losses);
            for job in queue {
                // A panic of the driver ends the run.
                let caught = panic::catch_unwind(AssertUnwindSafe(|| work(&mut client, job)));
                // After an error of another thread no results are received.
                let _ = results.send(caught.unwrap_or(Err(RunError::Panicked)));
            }
        };
        let thread = thread::Builder::new()
            .spawn(run)
            .map_err(RunError::Thread)?;
        Ok(Self {
            jobs: Some(jobs),
            thread: Some(thread),
        })
    }

    /// Gives the thread a job.
    pub(super) fn give(&self, job: J) {
        if let Some(jobs) = &self.jobs {
            // The thread receives jobs until this worker is dropped.
            let _ = jobs.send(job);
        }
    }
}

impl<J> Drop for Worker<J> {
    /// Waits until the thread has closed its connection.
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
