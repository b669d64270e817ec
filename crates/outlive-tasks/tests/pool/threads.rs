//! Pools whose workers are threads of one process.

use crate::support::{LONG, with_workers};
use outlive::membership::ProcessOptions;
use outlive::supervise::Stop;
use outlive_tasks::{JobError, Options, TaskError, WorkerPool, task};
use std::time::Duration;

task! {
    /// Sums the numbers from `from` to before `to` under the name `sum FROM`, by halves.
    fn sum(context, from: u64, to: u64) {
        let name = format!("sum {from} {to}");
        if to - from <= 10 {
            return context.output_of(&name, &(from..to).sum::<u64>());
        }
        let middle = from.midpoint(to);
        let (one, two) = (format!("sum {from} {middle}"), format!("sum {middle} {to}"));
        context.spawn(sum(from, middle).writes(&one))?;
        context.spawn(sum(middle, to).writes(&two))?;
        context.spawn(add(from, middle, to).reads(one).reads(two).writes(name))
    }

    fn add(context, from: u64, middle: u64, to: u64) {
        let one: u64 = context.input_of(&format!("sum {from} {middle}"))?;
        let two: u64 = context.input_of(&format!("sum {middle} {to}"))?;
        context.output_of(&format!("sum {from} {to}"), &(one + two))
    }

    /// Submits the sum, and returns its result.
    fn total(context, to: u64) {
        let name = format!("sum 0 {to}");
        context.spawn(sum(0, to).writes(&name))?;
        context.spawn(tell(to).reads(name))
    }

    fn tell(context, to: u64) {
        let sum: u64 = context.input_of(&format!("sum 0 {to}"))?;
        context.result_of(&sum)
    }

    /// Fills an array by halves, and creates a job that adds it up, repeatedly.
    fn rounds(context, len: u64, left: u64) {
        let (name, next) = (format!("round {left}"), format!("rounds {}", left - 1));
        let array = context.output_array::<f64>(&name, len as usize)?;
        assert_eq!(array.len() as u64, len);
        context.spawn(fill(left, 0, len))?;
        if left > 1 {
            let call = rounds(len, left - 1).writes(format!("round {}", left - 1));
            context.spawn_job(&next, call)
        } else {
            context.spawn_job("the last", check(len))
        }
    }

    fn fill(context, round: u64, from: u64, to: u64) {
        if to - from > 100 {
            let middle = from.midpoint(to);
            context.spawn(fill(round, from, middle))?;
            return context.spawn(fill(round, middle, to));
        }
        let array = context.array::<f64>(&format!("round {round}"))?;
        for index in from as usize..to as usize {
            let before = if round == 5 {
                index as f64
            } else {
                context.array::<f64>(&format!("round {}", round + 1))?.get(index)
            };
            array.set(index, before + 1.0);
        }
        Ok(())
    }

    fn check(context, len: u64) {
        let array = context.array::<f64>("round 1")?;
        let right = (0..len as usize).all(|index| array.get(index) == index as f64 + 5.0);
        context.result_of(&u64::from(right))
    }

    fn refuses(_context, why: u64) {
        Err(TaskError::new(format_args!("it does not want to, for {why} reasons")))
    }

    fn panics(_context, why: u64) {
        panic!("oh no, {why} of them")
    }

    fn spawns_what_fails(context) {
        context.spawn(refuses(3))?;
        context.spawn(panics(4).reads("the end"))
    }

    fn nothing(_context) {
        Ok(())
    }

    fn waits(context, a: u64) {
        context.spawn(nothing().reads("a").writes("b"))?;
        context.spawn(nothing().reads("b").writes("a"))?;
        let _ = a;
        Ok(())
    }
}

#[test]
fn a_recursive_sum_is_exact() {
    with_workers("sum", 3, Options::new(), |_, heap, pool| {
        for to in [5u64, 1000, 20_000] {
            let job = pool
                .submit(heap, &format!("sum to {to}"), total(to))
                .unwrap();
            let sum = job.wait_for::<u64>(LONG).unwrap();
            assert_eq!(sum, Some(to * (to - 1) / 2));
        }
        // The submitted job is found again, and its result still exists.
        let again = pool.submit(heap, "sum to 1000", total(1000)).unwrap();
        assert_eq!(again.wait_for::<u64>(LONG).unwrap(), Some(499_500));
        assert!(pool.submit(heap, "sum to 1000", total(1001)).is_err());
        assert!(pool.job(heap, "sum to 5").is_some());
    });
}

#[test]
fn jobs_follow_jobs() {
    with_workers("rounds", 2, Options::new(), |_, heap, pool| {
        let first = pool.submit(heap, "first", rounds(1000, 5).writes("round 5"));
        first.unwrap().wait(LONG).unwrap();
        let since = std::time::Instant::now();
        let last = loop {
            if let Some(last) = pool.job(heap, "the last") {
                break last;
            }
            assert!(since.elapsed() < LONG.unwrap());
            std::thread::sleep(Duration::from_millis(1));
        };
        assert_eq!(last.wait_for::<u64>(LONG).unwrap(), Some(1));
    });
}

#[test]
fn failures_are_named_and_the_pool_goes_on() {
    with_workers("failures", 2, Options::new(), |_, heap, pool| {
        let failure = |name: &str, call| {
            let job = pool.submit(heap, name, call).unwrap();
            match job.wait(LONG) {
                Err(JobError::Failed { why, .. }) => why,
                other => panic!("{name}: {other:?}"),
            }
        };
        let why = failure("refused", refuses(7));
        assert!(
            why.contains("threads::refuses(why: 7)") && why.contains("for 7 reasons"),
            "{why}"
        );
        assert!(pool.check(heap).is_empty(), "{:?}", pool.check(heap));
        let why = failure("panics", panics(8));
        assert!(
            why.contains("panics(why: 8)") && why.contains("oh no, 8 of them"),
            "{why}"
        );
        let why = failure("child", spawns_what_fails());
        assert!(why.contains("refuses(why: 3)"), "{why}");
        let why = failure("unknown", nothing().reads("what nobody writes"));
        assert!(
            why.contains("`what nobody writes`, which nothing writes"),
            "{why}"
        );
        let why = failure("cycle", waits(1));
        assert!(
            why.contains("a cycle") && why.contains("nothing()"),
            "{why}"
        );
        // A job that depends on one that failed.
        let bad = pool.job(heap, "refused").unwrap();
        let after = pool
            .submit_after(heap, "after", nothing(), &[&bad])
            .unwrap();
        let error = after.wait(LONG).unwrap_err().to_string();
        assert!(error.contains("`refused`"), "{error}");
        // The pool is as good as new.
        let job = pool.submit(heap, "good", total(500)).unwrap();
        assert_eq!(job.wait_for::<u64>(LONG).unwrap(), Some(124_750));
    });
}

task! {
    fn sums_an_array(context) {
        let array = context.array::<u32>("numbers")?;
        let total: u64 = array.to_vec().into_iter().map(u64::from).sum();
        let again: u64 = array.atomics().iter().map(|n| u64::from(n.load(std::sync::atomic::Ordering::Relaxed))).sum();
        assert_eq!(total, again);
        let text = context.input("text")?.to_vec();
        context.result_of(&(total + text.len() as u64))
    }

    fn busy(_context, milliseconds: u64) {
        let since = std::time::Instant::now();
        while since.elapsed() < Duration::from_millis(milliseconds) {
            std::hint::spin_loop();
        }
        Ok(())
    }

    fn keeps_busy(context, left: u32) {
        context.spawn(busy(1))?;
        if left > 0 { context.spawn(keeps_busy(left - 1)) } else { Ok(()) }
    }

    fn writes_unsaid(context) {
        context.output("nobody asked", &[1])
    }

    fn writes_first(context, value: u64) {
        context.output_of("who was first", &value)
    }
}

#[test]
fn data_from_outside_is_read_by_jobs() {
    with_workers("put", 2, Options::new(), |_, heap, pool| {
        pool.put(heap, "text", b"seven b").unwrap();
        let error = pool.put(heap, "text", b"again").unwrap_err().to_string();
        assert!(error.contains("`text` has data already"), "{error}");
        pool.put_array::<u32>(heap, "numbers", 1001, |array| {
            (0..1001).for_each(|index| array.set(index, index as u32));
        })
        .unwrap();
        let job = pool.submit(heap, "sums", sums_an_array()).unwrap();
        assert_eq!(job.wait_for::<u64>(LONG).unwrap(), Some(500_507));
        // Undeclared names are refused. Of two tasks that write one name, one has it.
        let job = pool.submit(heap, "unsaid", writes_unsaid()).unwrap();
        let why = job.wait(LONG).unwrap_err().to_string();
        assert!(
            why.contains("`nobody asked`") && why.contains(".writes"),
            "{why}"
        );
        for value in 0..2 {
            let call = writes_first(value).writes("who was first");
            pool.submit(heap, &format!("first {value}"), call).unwrap();
        }
        for value in 0..2 {
            let job = pool.job(heap, &format!("first {value}")).unwrap();
            job.wait(LONG).unwrap();
        }
        let data = pool.data(heap, "who was first").unwrap().to_vec();
        assert!(data[0] < 2 && data.len() == 8);
    });
}

#[test]
fn a_pool_shrinks_and_grows() {
    let options = Options::new().workers(2);
    with_workers("sizes", 0, options, |pod, heap, pool| {
        let stop = Stop::default();
        let process = pod.join(ProcessOptions::on_host(0)).unwrap();
        let living = || pool.status(pod).unwrap().living();
        let wait_for = |count: u32| {
            let since = std::time::Instant::now();
            while living() != count {
                assert!(since.elapsed() < LONG.unwrap(), "{:#?}", pool.status(pod));
                std::thread::sleep(Duration::from_millis(2));
            }
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    let (process, stop) = (&process, &stop);
                    scope.spawn(move || {
                        let member = process.enter(None, "spare").unwrap();
                        let heap = member.heap(pod).unwrap();
                        pool.stand_by(&heap, stop).unwrap()
                    })
                })
                .collect();
            wait_for(2);
            let job = pool.submit(heap, "with two", total(20_000)).unwrap();
            job.wait(LONG).unwrap();
            pool.resize(heap, 4).unwrap();
            wait_for(4);
            pool.submit(heap, "busy", keeps_busy(200)).unwrap();
            pool.resize(heap, 1).unwrap();
            wait_for(1);
            let job = pool.submit(heap, "with one", total(20_000)).unwrap();
            job.wait(LONG).unwrap();
            stop.stop();
            let tasks: u64 = threads
                .into_iter()
                .map(|one| one.join().unwrap().tasks)
                .sum();
            assert!(tasks > 10_000, "{tasks}");
        });
        process.leave().unwrap();
    });
}

#[test]
fn a_worker_that_is_not_heard_of_is_suspected() {
    let options = Options::new().freeze(Duration::from_millis(100));
    with_workers("frozen", 3, options, |pod, heap, pool| {
        pool.submit(heap, "long", busy(1500)).unwrap();
        let job = pool.submit(heap, "short ones", keeps_busy(1200)).unwrap();
        let (frontier, freeze) = pool.frontier();
        let mut watch = outlive_tasks::frontier::Watch::default();
        let generations = pod.tables().generations();
        let since = std::time::Instant::now();
        let frozen = loop {
            let frozen = watch.look(frontier, generations, freeze);
            if !frozen.is_empty() {
                break frozen;
            }
            assert!(since.elapsed() < LONG.unwrap());
            std::thread::sleep(Duration::from_millis(5));
        };
        println!("{frozen:?} at {}", frontier.get());
        assert!(frozen.iter().all(|one| one.since >= freeze));
        job.wait(LONG).unwrap();
    });
}

#[test]
fn a_pool_is_looked_at_by_programs_that_know_no_tasks() {
    with_workers("look", 1, Options::new(), |pod, heap, pool| {
        pool.submit(heap, "long", busy(300)).unwrap();
        assert_eq!(WorkerPool::names(pod).unwrap(), ["pool"]);
        let since = std::time::Instant::now();
        let running = loop {
            let status = WorkerPool::inspect(pod, "pool").unwrap();
            if let Some((name, _)) = status.workers.iter().find_map(|one| one.running.clone()) {
                assert_eq!(status.open, ["long"]);
                break name;
            }
            assert!(since.elapsed() < LONG.unwrap(), "{status:#?}");
        };
        assert!(running.contains("threads::busy"), "{running}");
        pool.job(heap, "long").unwrap().wait(LONG).unwrap();
        assert!(pool.check(heap).is_empty(), "{:?}", pool.check(heap));
    });
}

#[test]
fn advice_follows_the_two_triggers() {
    use outlive_tasks::{Advice, Band};
    with_workers("advice", 1, Options::new().workers(4), |pod, heap, pool| {
        let status = pool.status(pod).unwrap();
        assert!(
            matches!(status.advice(Band::default()), Advice::Replace(3 | 4)),
            "{status:?}"
        );
        pool.resize(heap, 1).unwrap();
        let mut status = pool.status(pod).unwrap();
        (status.original, status.ready) = (1, 1000);
        if status.living() == 1 {
            assert_eq!(status.advice(Band::default()), Advice::Grow(1));
            status.ready = 3;
            assert_eq!(status.advice(Band::default()), Advice::Stay);
        }
    });
}
