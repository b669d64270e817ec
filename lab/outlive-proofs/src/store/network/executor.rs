//! Runs tasks on the network in an order that the seed determines.

use super::{ComputeId, Network};
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

/// A task of a compute server. It is dropped when the server crashes.
pub type Task<'a> = (ComputeId, Pin<Box<dyn Future<Output = ()> + 'a>>);

/// The error of a run that did not end within its limit of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// The number of tasks that had not ended.
    pub tasks: usize,
}

impl Network {
    /// Polls the tasks and executes steps of the network, in random order, until all tasks have
    /// ended and no verb or completion is under way.
    ///
    /// # Errors
    /// If that takes more than `limit` steps.
    pub fn run(&self, mut tasks: Vec<Task<'_>>, limit: u64) -> Result<(), Stuck> {
        let mut context = Context::from_waker(Waker::noop());
        let mut rests_until = vec![0; tasks.len()];
        for _ in 0..limit {
            for which in (0..tasks.len()).rev() {
                if self.is_dead(tasks[which].0) {
                    drop(tasks.swap_remove(which));
                    rests_until.swap_remove(which);
                }
            }
            let is_task = !tasks.is_empty() && self.inner.borrow_mut().random.u8(..3) == 0;
            if is_task {
                let which = self.inner.borrow_mut().random.usize(..tasks.len());
                if rests_until[which] > self.steps() && self.step() {
                    continue;
                }
                if let Some(until) = self.stall() {
                    rests_until[which] = until;
                    continue;
                }
                if let Poll::Ready(()) = tasks[which].1.as_mut().poll(&mut context) {
                    drop(tasks.swap_remove(which));
                    rests_until.swap_remove(which);
                }
            } else if !self.step() && tasks.is_empty() {
                return Ok(());
            }
        }
        // A transaction that is dropped waits for its verbs, and no step follows: those of a dead
        // server fail.
        for (compute, _) in &tasks {
            if !self.is_dead(*compute) {
                self.crash(*compute);
            }
        }
        Err(Stuck { tasks: tasks.len() })
    }
}
