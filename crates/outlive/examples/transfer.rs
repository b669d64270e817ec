//! A transfer between two accounts, of which no survivor sees only one half.

use outlive::membership::ProcessOptions;
use outlive::pod::{Pod, PodOptions};
use outlive::sync::RecoverableMutex;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = format!("/dev/shm/outlive-readme-{}", std::process::id());
    let pod = Pod::create(&path, PodOptions::new().size(8 << 20).without_heap())?; // others: Pod::open(&path)
    let process = pod.join(ProcessOptions::on_host(0))?; // watched from now on, and watches others
    let member = process.enter(None, "main")?; // this thread's right to write
    let at = pod.payload().ok_or("no payload")?.offset;
    let accounts = RecoverableMutex::<[i64; 2]>::at(pod.segment().memory(), at);
    {
        let mut accounts = accounts.lock(&member)?; // also from a dead owner; the value is then whole
        accounts[0] -= 30; // if the process dies here, no survivor sees this change
        accounts[1] += 30;
    } // both changes take effect atomically
    assert_eq!(*accounts.lock(&member)?, [-30, 30]);
    drop(member);
    process.leave()?; // an orderly departure, not a death
    Pod::destroy(&path)?;
    Ok(())
}
