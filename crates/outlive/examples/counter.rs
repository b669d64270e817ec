//! A counter that processes share: `counter /dev/shm/count create`, then `counter /dev/shm/count N`
//! for each host N, in as many terminals as you like. Kill some of them.

use outlive::membership::ProcessOptions;
use outlive::pod::{Pod, PodOptions};
use outlive::sync::RecoverableMutex;

/// Creates the pod, or counts in it forever.
pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("name a file in /dev/shm")?;
    let what = arguments
        .next()
        .ok_or("say `create`, or which host this is: 0, 1, 2 …")?;
    if what == "create" {
        Pod::create(&path, PodOptions::new().without_heap())?; // the program uses the payload itself
        return Ok(());
    }
    let pod = Pod::open(&path)?;
    // Each process is a host: hosts are fenced, and the processes of one host share its heartbeat.
    let process = pod.join(ProcessOptions::on_host(what.parse()?))?;
    let member = process.enter(None, "counter")?;
    let at = pod.payload().ok_or("no payload")?.offset; // all processes must use the same offset
    let counter = RecoverableMutex::<u64>::at(pod.segment().memory(), at);
    loop {
        let mut count = counter.lock(&member)?;
        *count += 1; // if killed here: no step happened, and the next process gets the lock
        if let Some(dead) = count.abandoned_by() {
            println!("{dead} died with the lock; the count is {}", *count);
        }
    }
}
