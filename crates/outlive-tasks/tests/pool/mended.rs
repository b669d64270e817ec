//! Defects that a hostile review of the pool found, each as it was found.

use crate::support::{LONG, with_workers};
use outlive_tasks::{Options, task};

task! {
    fn quiet(_context) {
        Ok(())
    }

    fn writes_one(context, number: u64) {
        context.output_of(&format!("missing {number}"), &number)
    }

    fn writes_named(context, number: u64) {
        context.output_of(&format!("hoped {number}"), &number)
    }

    fn sleeps(_context, milliseconds: u64) {
        std::thread::sleep(std::time::Duration::from_millis(milliseconds));
        Ok(())
    }

    fn takes(_context, words: [[u64; 1024]; 128]) {
        let _ = words;
        Ok(())
    }
}

#[test]
fn arguments_that_are_too_long_end_no_worker() {
    let body = || {
        with_workers("long", 2, Options::new(), |_, heap, pool| {
            // It is refused, or its job fails; but no worker ends.
            if let Ok(job) = pool.submit(heap, "long", takes([[7; 1024]; 128])) {
                let error = job.wait(LONG).unwrap_err().to_string();
                assert!(error.contains("the maximum is"), "{error}");
            }
            pool.submit(heap, "good", quiet())
                .unwrap()
                .wait(LONG)
                .unwrap();
        })
    };
    // A mebibyte is passed on the stack, several times.
    let thread = std::thread::Builder::new().stack_size(64 << 20).spawn(body);
    thread.unwrap().join().unwrap();
}

#[test]
fn who_fills_a_block_may_put_another() {
    with_workers("nested", 1, Options::new(), |_, heap, pool| {
        let outer = pool.put_array::<u64>(heap, "outer", 1000, |array| {
            pool.put(heap, "inner", &[5; 8000]).unwrap();
            for index in 0..1000 {
                array.set(index, index as u64);
            }
        });
        let outer = outer.unwrap();
        assert!((0..1000).all(|index| outer.get(index) == index as u64));
        assert!(pool.data(heap, "inner").unwrap().to_vec() == [5; 8000]);
        assert_ne!(
            pool.data(heap, "outer").unwrap().block(),
            pool.data(heap, "inner").unwrap().block()
        );
        // Neither has a free block.
        for more in 0..50 {
            pool.put(heap, &format!("more {more}"), &[9; 8000]).unwrap();
        }
        assert!((0..1000).all(|index| outer.get(index) == index as u64));
        // A caller that panics releases its staging slot. The rounds are more than the slots.
        for round in 0..20 {
            let fill = std::panic::AssertUnwindSafe(|| {
                let _ = pool.put_array::<u64>(heap, &format!("never {round}"), 10, |_| {
                    panic!("in the middle")
                });
            });
            assert!(std::panic::catch_unwind(fill).is_err());
        }
        pool.put(heap, "after", b"all").unwrap();
    });
}

#[test]
fn jobs_that_are_stuck_hold_no_root() {
    with_workers("stuck", 2, Options::new().open_jobs(1), |_, heap, pool| {
        for round in 0..10 {
            let call = quiet().reads(format!("missing {round}"));
            let stuck = pool.submit(heap, &format!("stuck {round}"), call).unwrap();
            let error = stuck.wait(LONG).unwrap_err().to_string();
            assert!(error.contains("which nothing writes"), "{error}");
        }
        // A task that writes such a name finds the tasks that waited for it.
        for round in 0..10 {
            let call = writes_one(round).writes(format!("missing {round}"));
            let job = pool.submit(heap, &format!("late {round}"), call).unwrap();
            job.wait(LONG).unwrap();
        }
        assert!(pool.check(heap).is_empty(), "{:?}", pool.check(heap));
        let blocks = pool.blocks(heap).unwrap();
        let different: std::collections::HashSet<_> = blocks.iter().collect();
        assert_eq!(different.len(), blocks.len());
    });
}

#[test]
fn a_job_gets_the_root_of_one_that_waited() {
    with_workers("roots", 2, Options::new().open_jobs(1), |_, heap, pool| {
        for round in 0..200u32 {
            let name = format!("missing {round}");
            let call = quiet().reads(&name);
            let job = pool.submit(heap, &format!("waits {round}"), call).unwrap();
            // It may be found stuck before, or have its data by then: it has waited or not.
            for _ in 0..round * 50 {
                std::hint::spin_loop();
            }
            pool.put(heap, &name, b"there").unwrap();
            match job.wait(LONG) {
                Ok(_) | Err(outlive_tasks::JobError::Failed { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    });
}

#[test]
fn who_waits_for_a_job_without_a_root_is_not_stuck() {
    with_workers("hope", 2, Options::new().open_jobs(2), |_, heap, pool| {
        for round in 0..16 {
            let submit =
                |what: &str, call| pool.submit(heap, &format!("{what} {round}"), call).unwrap();
            let first = submit("first", sleeps(30));
            let reads = submit("reads", quiet().reads(format!("hoped {round}")));
            let stuck = submit("stuck", quiet().reads("what nobody writes"));
            let call = writes_named(round).writes(format!("hoped {round}"));
            let name = format!("writes {round}");
            let writes = pool.submit_after(heap, &name, call, &[&first]).unwrap();
            reads.wait(LONG).unwrap();
            writes.wait(LONG).unwrap();
            assert!(stuck.wait(LONG).is_err());
        }
    });
}
