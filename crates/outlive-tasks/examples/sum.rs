//! Sums numbers with tasks that spawn tasks, on three workers of a pod.

use outlive::membership::ProcessOptions;
use outlive::pod::{Pod, PodOptions};
use outlive::supervise::Stop;
use outlive_tasks::{Options, WorkerPool, task};

task! {
    /// Writes the sum of the numbers from `from` to before `to` under a name, by halving the range.
    fn sum(context, from: u64, to: u64) {
        if to - from <= 1000 {
            return context.output_of(&format!("{from}..{to}"), &(from..to).sum::<u64>());
        }
        let middle = from.midpoint(to);
        let (one, two) = (format!("{from}..{middle}"), format!("{middle}..{to}"));
        context.spawn(sum(from, middle).writes(&one))?;
        context.spawn(sum(middle, to).writes(&two))?;
        // Runs when both are there, and writes the output of this task.
        context.spawn(add(from, to).reads(one).reads(two).writes(format!("{from}..{to}")))
    }

    fn add(context, from: u64, to: u64) {
        let middle = from.midpoint(to);
        let one: u64 = context.input_of(&format!("{from}..{middle}"))?;
        let two: u64 = context.input_of(&format!("{middle}..{to}"))?;
        context.output_of(&format!("{from}..{to}"), &(one + two))
    }

    fn total(context, to: u64) {
        context.spawn(sum(0, to).writes(format!("0..{to}")))?;
        context.spawn(tell(to).reads(format!("0..{to}")))
    }

    fn tell(context, to: u64) {
        let total: u64 = context.input_of(&format!("0..{to}"))?;
        context.result_of(&total)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = format!("/dev/shm/outlive-sum-{}", std::process::id());
    let pod = Pod::create(&path, PodOptions::new().size(32 << 20))?;
    let process = pod.join(ProcessOptions::on_host(0))?;
    let member = process.enter(None, "caller")?;
    let heap = member.heap(&pod)?;
    let pool = WorkerPool::create(&pod, &heap, "sums", Options::new())?;

    let stop = Stop::default();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            // Threads of other processes can do the same: they open the pod and the pool.
            scope.spawn(|| {
                let member = process.enter(None, "worker").unwrap();
                let heap = member.heap(&pod).unwrap();
                pool.work(&heap, &stop).unwrap()
            });
        }
        let job = pool.submit(&heap, "the sum", total(100_000));
        let sum = job.map(|job| job.wait_for::<u64>(None));
        stop.stop();
        assert_eq!(sum??, Some(4_999_950_000));
        Ok::<(), Box<dyn std::error::Error>>(())
    })?;
    drop((pool, heap));
    drop(member);
    process.leave()?;
    Ok(Pod::destroy(&path).map(drop)?)
}
