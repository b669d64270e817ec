//! Allocates and frees in more processes than there are cores, beside busy loops, and reports slow
//! operations.
//!
//! `oversubscribed [PROCESSES [BUSY LOOPS [SECONDS]]]`, by default 8, 12 and 10. Prints the number
//! of operations, how many of them took longer than 100 ms, and the slowest.

use outlive::membership::{ProcessOptions, Settings};
use outlive::memory::{Memory, Ordering};
use outlive::pod::{Pod, PodOptions};
use std::env::{args, current_exe, var};
use std::error::Error;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SLOW: Duration = Duration::from_millis(100);

fn main() -> Result<(), Box<dyn Error>> {
    let numbers: Vec<u64> = (args().skip(1).map(|arg| arg.parse())).collect::<Result<_, _>>()?;
    let number = |index, default| numbers.get(index).copied().unwrap_or(default);
    let (processes, loops, seconds) = (number(0, 8), number(1, 12), number(2, 10));
    let length = Duration::from_secs(seconds);
    match var("OVERSUBSCRIBED").ok().as_deref() {
        None => {}
        Some("loop") => {
            let end = Instant::now() + length;
            while Instant::now() < end {}
            return Ok(());
        }
        Some(pod) => return work(pod, length),
    }
    let path = format!("/dev/shm/outlive-oversubscribed-{}", std::process::id());
    let options = (PodOptions::new().size(256 << 20).ids(64)).settings(Settings {
        uid: rustix::process::geteuid().as_raw(),
        suspicion: Duration::from_secs(60),
        ..Settings::default()
    });
    Pod::create(&path, options)?;
    let start = |role: &str| {
        let mut command = Command::new(current_exe()?);
        command.args([processes, loops, seconds].map(|number| number.to_string()));
        command.env("OVERSUBSCRIBED", role).stdout(Stdio::piped());
        command.spawn()
    };
    let workers = (0..processes)
        .map(|_| start(&path))
        .collect::<Result<Vec<_>, _>>()?;
    let busy = (0..loops)
        .map(|_| start("loop"))
        .collect::<Result<Vec<_>, _>>()?;
    let (mut operations, mut slow, mut worst) = (0, 0, 0);
    for worker in workers {
        let output = String::from_utf8(worker.wait_with_output()?.stdout)?;
        let counts: Vec<u64> =
            (output.split_whitespace().map(str::parse)).collect::<Result<_, _>>()?;
        let [done, late, slowest] = counts[..] else {
            return Err("a worker failed".into());
        };
        (operations, slow, worst) = (operations + done, slow + late, worst.max(slowest));
    }
    for busy in busy {
        busy.wait_with_output()?;
    }
    Pod::destroy(&path)?;
    println!("{operations} operations, {slow} above 100 ms, the slowest {worst} ms");
    Ok(())
}

/// Allocates and frees blocks of all sizes, and prints the number of operations, that of slow ones,
/// and the slowest in milliseconds.
fn work(pod: &str, length: Duration) -> Result<(), Box<dyn Error>> {
    let pod = Pod::open(pod)?;
    let process = pod.join(ProcessOptions::on_host(0))?;
    let thread = process.enter(None, "worker")?;
    let (heap, memory) = (thread.heap(&pod)?, thread.memory());
    let (mut operations, mut slow, mut worst) = (0u64, 0u64, Duration::ZERO);
    let (mut size, end) = (64, Instant::now() + length);
    while Instant::now() < end {
        size = if size > 1 << 16 { 64 } else { size * 2 };
        for allocates in [true, false] {
            let start = Instant::now();
            if allocates {
                let block = heap.allocate_into(size, heap.pending_cell(0))?;
                memory.store(block, 1u64, Ordering::Relaxed);
            } else {
                heap.free_from(heap.pending_cell(0), 0)?;
            }
            let took = start.elapsed();
            operations += 1;
            slow += u64::from(took > SLOW);
            worst = worst.max(took);
        }
    }
    println!("{operations} {slow} {}", worst.as_millis());
    Ok(())
}
