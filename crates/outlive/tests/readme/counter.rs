use outlive::membership::ProcessOptions;
use outlive::pod::{Pod, PodOptions};
use outlive::sync::RecoverableMutex;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("name a file in /dev/shm")?;
    let what = arguments
        .next()
        .ok_or("say `create`, or which host this is: 0, 1, 2 …")?;
    if what == "create" {
        Pod::create(&path, PodOptions::new().without_heap())?; // the payload is ours
        return Ok(());
    }
    let pod = Pod::open(&path)?;
    // Each process is a host: hosts are fenced, and the processes of one host share its heart.
    let process = pod.join(ProcessOptions::on_host(what.parse()?))?;
    let member = process.enter(None, "counter")?;
    let at = pod.payload().ok_or("no payload")?.offset; // where it is, all have to agree on
    let counter = RecoverableMutex::<u64>::at(pod.segment().memory(), at);
    loop {
        let mut count = counter.lock(&member)?;
        *count += 1; // killed here, this step did not happen, and the lock is the next one's
        if let Some(dead) = count.abandoned_by() {
            println!("{dead} died with the lock; the count is {}", *count);
        }
    }
}
