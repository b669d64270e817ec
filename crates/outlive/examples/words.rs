//! Counts words for all processes that share a pod: `words ash oak ash`, in as many terminals as
//! you like.

use outlive::pod::{Pod, PodOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pod = Pod::open_or_create("/dev/shm/words", PodOptions::new())?; // one process creates it
    let session = pod.session()?; // watched from now on, and watches others
    let words = session.map::<str, u64>("words")?;
    for word in std::env::args().skip(1) {
        words.upsert(&word, &1, |n| n + 1)?; // if the process dies here, the word is counted or not
    }
    for (word, count) in words.iter() {
        println!("{word} {count}");
    }
    Ok(())
}
