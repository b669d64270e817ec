//! Counts exactly once, however often it is killed: `acknowledged NAME MOST` counts to MOST, and
//! goes on where it was when it is started again. Run some with different names.

use outlive::objects::LastRequest;
use outlive::pod::{Pod, PodOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(name), Some(most)) = (arguments.next(), arguments.next()) else {
        return Err("usage: acknowledged NAME MOST".into());
    };
    let pod = Pod::open_or_create("/dev/shm/acknowledged", PodOptions::new())?;
    let session = pod.session()?;
    let counts = session.map::<str, u64>("counts")?;
    let me = session.client(&name)?; // what became of its last request is settled by now
    let first = match me.last() {
        None => 1,
        Some(LastRequest { token, took_effect }) => token + u64::from(took_effect),
    };
    for token in first..=most.parse()? {
        counts.request(&me, token).upsert("all", &1, |n| n + 1)?;
        println!("{token}"); // the acknowledgement
    }
    eprintln!("all clients have counted to {:?}", counts.get("all"));
    Ok(())
}
