//! The checks after a run.

use super::{OBSERVER, RETRY, STEPS, TABLE, World, mortals};
use crate::store::network::Task;
use core::cell::{Cell, RefCell};
use outlive_store::protocol::{Checked, Retry, check, slots_in_use};

/// The number of attempts in which each key has to be writable after a run.
const ATTEMPTS: u32 = 8;

/// Checks that the replicas are equal, that no latch has a live holder, and that the log
/// slots of each compute server that was recovered are empty.
pub(super) fn check_tables(world: &World) -> Result<(), String> {
    let result = RefCell::new(Ok(Checked::default()));
    let logs = Cell::new(0);
    let checking = async {
        let worker = world.worker(OBSERVER, OBSERVER);
        *result.borrow_mut() = check(&worker, core::iter::once(0), |_| false).await;
        for dead in mortals().filter(|it| world.is_out(*it) && world.has_had_id(*it)) {
            let worker = world.worker(OBSERVER, dead);
            let left = slots_in_use(&worker).await.expect("the log servers answer");
            logs.set(logs.get() + left);
        }
    };
    let task: Task<'_> = (OBSERVER, Box::pin(checking));
    let ended = world.network.run(vec![task], STEPS);
    ended.map_err(|_| "the check did not end".to_owned())?;
    let checked = result.into_inner().map_err(|error| error.to_string())?;
    if checked.held > 0 || !checked.problems.is_empty() {
        return Err(format!("{checked:?}"));
    }
    if logs.get() > 0 {
        return Err(format!("{} log slots are not empty", logs.get()));
    }
    Ok(())
}

/// Writes all keys, each in at most [`ATTEMPTS`] attempts. Fails if a latch is left that cannot be
/// stolen.
pub(super) fn write_all(world: &World) -> Result<(), String> {
    // A server can have been lost after the detector ended.
    world.network.cancel_faults();
    world.note_losses();
    let writing = async {
        let worker = world.worker(OBSERVER, OBSERVER);
        let coordinator = worker.coordinator().expect("a free slot");
        let mut coordinator = coordinator.retry(Retry {
            attempts: ATTEMPTS,
            ..RETRY
        });
        for key in 0..world.plan.keys {
            let value = [world.value(); 2];
            let written = coordinator.transaction(async |tx| {
                if !tx.write(TABLE, key, &value).await? {
                    tx.insert(TABLE, key, &value).await?;
                }
                Ok(())
            });
            if let Err(error) = written.await {
                let error = format!("key {key} cannot be written after the run: {error}");
                world.errors.borrow_mut().push(error);
            }
        }
        worker.finish().await.expect("the observer has its rights");
    };
    let task: Task<'_> = (OBSERVER, Box::pin(writing));
    let ended = world.network.run(vec![task], STEPS);
    ended.map_err(|_| "the writes after the run did not end".to_owned())?;
    world
        .errors
        .borrow()
        .first()
        .map_or(Ok(()), |it| Err(it.clone()))
}
