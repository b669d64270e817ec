//! Tasks that wait although their inputs exist, because a deque is full or a process without a
//! deque brought the data. They are run while another worker is busy all the time, all of them
//! after one or two walks, and are not kept when their job has failed.

use crate::support::{LONG, with_workers};
use outlive::memory::{Memory, Ordering as Order};
use outlive_tasks::{Context, Options, TaskError, task};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The number of tasks of a sprout: fewer than a new deque has space for, so that none grows.
const EACH: u64 = 200;

/// Per test: the number of tasks that have looked, and whether a worker is busy.
static LOOKED: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
static BUSY: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

/// Takes every block that is available to this worker, and keeps one in a pending-allocation cell.
fn fill(context: &Context<'_>) {
    let (heap, memory) = (context.heap(), context.memory());
    let (kept, pending) = (heap.pending_cell(6), heap.pending_cell(7));
    heap.allocate_into(1 << 16, kept).unwrap();
    for bytes in { (10..26).rev().map(|log2| 1 << log2) }.chain((1..64).rev().map(|it| it * 16)) {
        while heap.allocate_into(bytes, pending).is_ok() {
            // The block is leaked: the pod ends with the test.
            memory.store(pending, 0u64, Order::Relaxed);
        }
    }
}

task! {
    /// Spawns `sprouts`, whose tasks all read one name, and a task that writes it in a full heap
    /// once all of them wait, so that the deque has no space for most of them.
    fn fan(context, test: u64, sprouts: u64) {
        let mut last = fills(test).writes("seen");
        for number in 0..sprouts {
            let name = format!("sprout {number}");
            context.spawn(sprout(test, number).writes(&name))?;
            last = last.reads(name);
        }
        context.spawn(last)
    }

    fn sprout(context, test: u64, number: u64) {
        for _ in 0..EACH {
            context.spawn(looks(test).reads("seen"))?;
        }
        context.output(&format!("sprout {number}"), b"grown")
    }

    fn fills(context, _test: u64) {
        context.output("seen", b"it is")?;
        fill(context);
        Ok(())
    }

    /// In the last test the first one fails its job, and frees memory again.
    fn looks(context, test: u64) {
        if LOOKED[test as usize].fetch_add(1, Ordering::AcqRel) == 0 && test == FAILS {
            context.heap().free_from(context.heap().pending_cell(6), 0).unwrap();
            return Err(TaskError::new("it is not what it was"));
        }
        Ok(())
    }

    /// Does nothing else until `until` tasks have looked.
    fn busy(_context, test: u64, until: u64) {
        BUSY[test as usize].store(1, Ordering::Release);
        let since = Instant::now();
        while LOOKED[test as usize].load(Ordering::Acquire) < until {
            if since.elapsed() > LONG.unwrap() / 2 {
                let looked = LOOKED[test as usize].load(Ordering::Acquire);
                return Err(TaskError::new(format_args!("{looked} of {until} have looked")));
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    fn quiet(_context) {
        Ok(())
    }
}

const POSTPONED: u64 = 0;
const BROUGHT: u64 = 1;
const MANY: u64 = 2;
const FAILS: u64 = 3;

fn await_busy(test: u64) {
    let since = Instant::now();
    while BUSY[test as usize].load(Ordering::Acquire) == 0 {
        assert!(since.elapsed() < LONG.unwrap());
        std::thread::yield_now();
    }
}

#[test]
fn who_waits_for_room_is_run_beside_one_who_is_busy_for_ever() {
    let options = Options::new().tries(1);
    with_workers("room", 2, options, |_, heap, pool| {
        let busy = pool.submit(heap, "busy", busy(POSTPONED, 10 * EACH));
        await_busy(POSTPONED);
        let fan = pool.submit(heap, "fan", fan(POSTPONED, 10)).unwrap();
        busy.unwrap().wait(LONG).unwrap();
        fan.wait(LONG).unwrap();
    });
    assert_eq!(
        LOOKED[POSTPONED as usize].load(Ordering::Acquire),
        10 * EACH
    );
}

#[test]
fn who_waits_for_what_is_brought_is_run_beside_one_who_is_busy_for_ever() {
    let options = Options::new().tries(1);
    with_workers("brought", 2, options, |pod, heap, pool| {
        let busy = pool.submit(heap, "busy", busy(BROUGHT, 1)).unwrap();
        await_busy(BROUGHT);
        let waits = pool.submit(heap, "waits", looks(BROUGHT).reads("late"));
        let since = Instant::now();
        while !pool.status(pod).unwrap().open.contains(&"waits".to_owned()) {
            assert!(since.elapsed() < LONG.unwrap());
            std::thread::yield_now();
        }
        pool.put(heap, "late", b"at last").unwrap();
        busy.wait(LONG).unwrap();
        waits.unwrap().wait(LONG).unwrap();
    });
}

#[test]
fn a_walk_finds_all_of_them() {
    let served = with_workers("walks", 1, Options::new(), |_, heap, pool| {
        let fan = pool.submit(heap, "fan", fan(MANY, 100)).unwrap();
        fan.wait(LONG).unwrap();
    });
    let looked: u64 = served.iter().map(|served| served.looked).sum();
    println!(
        "{looked} descriptors were looked at for {} tasks",
        100 * EACH
    );
    // Each walk reads at most twice as many descriptors as there are tasks. One walk finds all
    // tasks, and another finds no more.
    assert!((100 * EACH..8 * 100 * EACH).contains(&looked), "{looked}");
}

#[test]
fn those_of_a_job_that_failed_are_not_kept() {
    let options = Options::new().tries(1);
    let served = with_workers("failed", 1, options, |_, heap, pool| {
        let fan = pool.submit(heap, "fan", fan(FAILS, 10)).unwrap();
        let why = fan.wait(LONG).unwrap_err().to_string();
        assert!(why.contains("it is not what it was"), "{why}");
        // The job is complete when no worker has work.
        let next = pool.submit(heap, "quiet", quiet()).unwrap();
        next.wait(LONG).unwrap();
    });
    let looked = LOOKED[FAILS as usize].load(Ordering::Acquire);
    let skipped: u64 = served.iter().map(|served| served.skipped).sum();
    assert_eq!(looked + skipped, 10 * EACH, "{looked} and {skipped}");
}
