//! An idle pool uses no processor time. Alone in its process, because it measures that.

#[path = "pool/support/mod.rs"]
mod support;

use outlive_tasks::{Options, task};
use std::time::Duration;
use support::{LONG, with_workers};

task! {
    fn halves(context, len: u64) {
        if len > 1 {
            context.spawn(halves(len / 2))?;
            context.spawn(halves(len - len / 2))?;
        }
        Ok(())
    }
}

#[test]
fn an_idle_pool_sleeps() {
    with_workers("idle", 3, Options::new(), |_, heap, pool| {
        let job = pool.submit(heap, "first", halves(5000)).unwrap();
        job.wait(LONG).unwrap();
        let used = || {
            let clock = rustix::time::ClockId::ProcessCPUTime;
            let now = rustix::time::clock_gettime(clock);
            Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
        };
        std::thread::sleep(Duration::from_millis(100));
        let before = used();
        std::thread::sleep(Duration::from_secs(2));
        let spent = used() - before;
        println!("three idle workers use {spent:?} of processor time in two seconds");
        assert!(spent < Duration::from_millis(100), "{spent:?}");
        // The workers respond at once.
        let job = pool.submit(heap, "second", halves(5000)).unwrap();
        job.wait(LONG).unwrap();
    });
}
