//! A pool that resizes itself.

use crate::support::{LONG, with_spares};
use outlive_tasks::{Band, Options, WorkerPool, task};
use std::time::{Duration, Instant};

task! {
    fn fan(context, tasks: u64) {
        for number in 0..tasks {
            context.spawn(short(number))?;
        }
        Ok(())
    }

    fn short(_context, _number: u64) {
        spin(Duration::from_micros(500));
        Ok(())
    }

    fn long(_context, millis: u64) {
        spin(Duration::from_millis(millis));
        Ok(())
    }
}

fn spin(time: Duration) {
    let since = Instant::now();
    while since.elapsed() < time {
        std::hint::spin_loop();
    }
}

fn await_workers(pool: WorkerPool, workers: u32) {
    let until = Instant::now() + LONG.unwrap();
    while pool.wanted() != workers {
        let wanted = pool.wanted();
        assert!(Instant::now() < until, "{wanted} are wanted, not {workers}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_pool_follows_what_there_is_to_do() {
    let band = Band {
        fewest: 0.5,
        most: 16.0,
        ..Band::default()
    };
    let options = Options::new().elastic(1..=4, band);
    with_spares("elastic", 0, 4, options, |pod, heap, pool| {
        assert_eq!(pool.wanted(), 1);
        for round in 0..2 {
            let job = pool.submit(heap, &format!("wide {round}"), fan(2000));
            await_workers(pool, 4);
            job.unwrap().wait(LONG).unwrap();
            let until = Instant::now() + LONG.unwrap();
            for number in 0.. {
                // One task at a time: every other worker is surplus.
                let name = format!("narrow {round}, {number}");
                let job = pool.submit(heap, &name, long(300)).unwrap();
                job.wait(LONG).unwrap();
                if pool.wanted() == 1 {
                    break;
                }
                assert!(Instant::now() < until, "{:#?}", pool.status(pod));
            }
        }
    });
}
