//! Data and jobs are removed when they have no users any more, and no sooner.

use crate::support::{LONG, with_workers};
use outlive::heap::LocalHeap;
use outlive_tasks::{Job, JobError, JobState, Options, PoolError, TaskError, WorkerPool, task};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

task! {
    fn doubles(context, round: u64) {
        let number: u64 = context.input_of("number")?;
        context.output_of("doubled", &(number * 2))?;
        context.result_of(&(number + round))
    }

    fn refuses(_context) {
        Err(TaskError::new("it does not want to"))
    }

    fn copies(context) {
        let number: u64 = context.input_of("number")?;
        context.result_of(&number)
    }

    fn nothing(_context) {
        Ok(())
    }

    fn holds_on(context) {
        let data = context.input("held")?;
        STEP.store(1, Ordering::Release);
        wait_for(2);
        let now = data.to_vec();
        context.result_of(&u64::from(now.iter().all(|byte| *byte == 7) && now.len() == 5000))
    }

    fn sleeps(_context, milliseconds: u64) {
        std::thread::sleep(Duration::from_millis(milliseconds));
        Ok(())
    }
}

static STEP: AtomicU32 = AtomicU32::new(0);

fn wait_for(step: u32) {
    let since = Instant::now();
    while STEP.load(Ordering::Acquire) < step {
        assert!(since.elapsed() < LONG.unwrap());
        std::thread::yield_now();
    }
}

/// Removes data or a job as soon as it is unused, which takes workers a moment.
fn removed(mut remove: impl FnMut() -> Result<bool, PoolError>) -> bool {
    let since = Instant::now();
    loop {
        match remove() {
            Ok(was_there) => return was_there,
            Err(error) => assert!(since.elapsed() < LONG.unwrap(), "{error}"),
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

fn value(pool: &WorkerPool, heap: &LocalHeap<'_>, name: &str) -> Option<u64> {
    let data = pool.data(heap, name)?.to_vec();
    Some(u64::from_ne_bytes(data.try_into().unwrap()))
}

#[test]
fn a_pool_goes_on_for_ever_in_the_same_room() {
    with_workers("ever", 2, Options::new(), |_, heap, pool| {
        let mut blocks = Vec::new();
        for round in 0..300u64 {
            pool.put(heap, "number", &round.to_ne_bytes()).unwrap();
            let call = doubles(round).reads("number").writes("doubled");
            let job = pool.submit(heap, "double", call).unwrap();
            assert_eq!(job.wait_for::<u64>(LONG).unwrap(), Some(2 * round));
            assert_eq!(value(&pool, heap, "doubled"), Some(2 * round));
            assert!(removed(|| pool.remove_job(heap, "double")));
            assert!(removed(|| pool.remove_data(heap, "doubled")));
            assert!(removed(|| pool.remove_data(heap, "number")));
            assert_eq!(job.state(), JobState::Removed);
            assert!(matches!(job.wait(LONG), Err(JobError::Removed)));
            assert_eq!(job.name(), "");
            if round % 100 == 99 {
                blocks.push(pool.blocks(heap).unwrap().len());
            }
        }
        assert!(pool.jobs(heap).is_empty());
        // The ports that workers keep of their last tasks vary.
        assert!(blocks[2] <= blocks[0] + 8, "{blocks:?}");
        assert!(pool.check(heap).is_empty(), "{:?}", pool.check(heap));
    });
}

#[test]
fn a_job_whose_record_stands_where_another_stood_runs() {
    with_workers("again", 1, Options::new().open_jobs(1), |_, heap, pool| {
        pool.put(heap, "number", &7u64.to_ne_bytes()).unwrap();
        for round in 0..2000 {
            let job = pool.submit(heap, "copy", copies()).unwrap();
            assert_eq!(job.wait_for::<u64>(LONG).unwrap(), Some(7), "round {round}");
            assert!(removed(|| pool.remove_job(heap, "copy")));
            // Makes its memory available to the next job.
            heap.reclaim();
        }
    });
}

#[test]
fn what_is_in_use_is_refused_and_who_uses_it_named() {
    with_workers("used", 2, Options::new(), |_, heap, pool| {
        assert!(!pool.remove_data(heap, "number").unwrap());
        assert!(!pool.remove_job(heap, "copy").unwrap());
        pool.put(heap, "number", &5u64.to_ne_bytes()).unwrap();
        let first = pool.submit(heap, "first", sleeps(200)).unwrap();
        let call = copies().reads("number");
        let copy: Job<'_> = pool.submit_after(heap, "copy", call, &[&first]).unwrap();
        let error = pool.remove_data(heap, "number").unwrap_err();
        assert!(matches!(error, PoolError::DataInUse { .. }), "{error}");
        let said = error.to_string();
        assert!(
            said.contains("`number`") && said.contains("`copy`"),
            "{said}"
        );
        let said = pool.remove_job(heap, "copy").unwrap_err().to_string();
        assert!(
            said.contains("`copy`") && said.contains("not ended"),
            "{said}"
        );
        assert!(pool.remove_job(heap, "first").is_err());
        assert_eq!(copy.wait_for::<u64>(LONG).unwrap(), Some(5));
        assert!(removed(|| pool.remove_data(heap, "number")));
        assert!(!pool.remove_data(heap, "number").unwrap());
        assert!(removed(|| pool.remove_job(heap, "first")));
        // No job that has yet to begin depends on it. A new one that would is refused.
        let error = pool.submit_after(heap, "late", nothing(), &[&first]);
        assert!(error.unwrap_err().to_string().contains("was removed"));
        assert!(removed(|| pool.remove_job(heap, "copy")));
        assert!(pool.check(heap).is_empty(), "{:?}", pool.check(heap));
    });
}

#[test]
fn jobs_that_failed_are_removed_with_their_reasons() {
    with_workers("failed", 2, Options::new().open_jobs(2), |_, heap, pool| {
        for _ in 0..10 {
            let job = pool.submit(heap, "job", refuses()).unwrap();
            assert!(
                job.wait(LONG)
                    .unwrap_err()
                    .to_string()
                    .contains("not want to")
            );
            assert!(removed(|| pool.remove_job(heap, "job")));
            // Stuck: it waits for data that no task writes.
            let job = pool
                .submit(heap, "job", nothing().reads("missing"))
                .unwrap();
            let why = job.wait(LONG).unwrap_err().to_string();
            assert!(why.contains("which nothing writes"), "{why}");
            assert!(removed(|| pool.remove_job(heap, "job")));
            let job = pool.submit(heap, "job", nothing()).unwrap();
            job.wait(LONG).unwrap();
            assert_eq!(job.error(), None);
            assert!(removed(|| pool.remove_job(heap, "job")));
        }
        assert!(pool.check(heap).is_empty(), "{:?}", pool.check(heap));
    });
}

#[test]
fn a_task_has_what_it_reads_until_it_ends() {
    with_workers("held", 1, Options::new(), |_, heap, pool| {
        pool.put(heap, "held", &[7; 5000]).unwrap();
        // The task does not declare that it reads the data.
        let job = pool.submit(heap, "holds", holds_on()).unwrap();
        wait_for(1);
        assert!(pool.remove_data(heap, "held").unwrap());
        // Any block that could reuse its memory is allocated.
        for other in 0..200 {
            pool.put(heap, &format!("other {other}"), &[9; 5000])
                .unwrap();
            heap.reclaim();
        }
        STEP.store(2, Ordering::Release);
        assert_eq!(job.wait_for::<u64>(LONG).unwrap(), Some(1));
        assert!(pool.data(heap, "held").is_none());
    });
}

task! {
    fn asks_for_too_much(context, bytes: u64) {
        context.output("small", b"it is there")?;
        context.output_array::<u8>("large", bytes as usize)?;
        Ok(())
    }

    fn goes_on_nevertheless(context, bytes: u64) {
        let _ = context.spawn(nothing());
        context.output("small", b"it is there")?;
        let _ = context.output_array::<u8>("large", bytes as usize);
        context.output_array::<u8>("large", bytes as usize).map(drop)
    }
}

#[test]
fn a_full_heap_fails_the_job_and_says_how_much_was_wanted() {
    with_workers("full", 2, Options::new(), |_, heap, pool| {
        let wanted = 1u64 << 30;
        for (name, call) in [
            ("asks", asks_for_too_much(wanted)),
            ("goes on", goes_on_nevertheless(wanted)),
        ] {
            let call = call.writes("small").writes("large");
            let job = pool.submit(heap, name, call).unwrap();
            let why = job.wait(LONG).unwrap_err().to_string();
            // The block also has a header.
            assert!(
                why.contains(&(wanted + 32).to_string())
                    && why.contains(name.split(' ').next().unwrap()),
                "{why}"
            );
            // No output is visible, not even the one that was allocated.
            assert!(pool.data(heap, "small").is_none() && pool.data(heap, "large").is_none());
            assert!(removed(|| pool.remove_job(heap, name)));
        }
        // The pool is as good as new.
        pool.put(heap, "number", &1u64.to_ne_bytes()).unwrap();
        let job = pool.submit(heap, "copy", copies().reads("number")).unwrap();
        assert_eq!(job.wait_for::<u64>(LONG).unwrap(), Some(1));
        assert!(pool.check(heap).is_empty(), "{:?}", pool.check(heap));
    });
}
