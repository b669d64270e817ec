//! A worker that fails all its tasks does not ruin the jobs of a pool in which others work well.

use crate::support::{LONG, with_workers};
use outlive_tasks::{JobError, Options, TaskError, task};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The worker that fails, and 1 more: the first that runs a task.
static UNLUCKY: AtomicU32 = AtomicU32::new(0);

task! {
    /// Takes a moment, or fails at once on the unlucky worker, which may have a full disk.
    fn luck(context, _number: u64) {
        let me = context.worker() + 1;
        let first = UNLUCKY.compare_exchange(0, me, Ordering::SeqCst, Ordering::SeqCst);
        if first.is_ok() || first == Err(me) {
            return Err(TaskError::new("no luck"));
        }
        std::thread::sleep(Duration::from_millis(2));
        Ok(())
    }
}

#[test]
fn a_worker_that_fails_everything_steps_back() {
    const JOBS: usize = 400;
    with_workers("setback", 3, Options::new(), |_, heap, pool| {
        let jobs: Vec<_> = (0..JOBS as u64)
            .map(|number| {
                pool.submit(heap, &format!("job {number}"), luck(number))
                    .unwrap()
            })
            .collect();
        let ended = jobs.iter().map(|job| job.wait(LONG));
        let failed = ended
            .filter(|ended| matches!(ended, Err(JobError::Failed { .. })))
            .count();
        println!("{failed} of {JOBS} jobs failed");
        // The two other workers need 400 ms for all jobs. A worker that fails at once would have
        // taken nearly all of them.
        assert!(
            (3..JOBS / 4).contains(&failed),
            "{failed} of {JOBS} jobs failed"
        );
    });
}
