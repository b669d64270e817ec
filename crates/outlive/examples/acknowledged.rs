//! Counts exactly once, however often it is killed: `acknowledged POD NAME MOST` counts to MOST,
//! and goes on where it was when it is started again. Run some of them, with different names.

use outlive::pod::{Pod, PodOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, name, most] = &arguments[..] else {
        return Err("usage: acknowledged POD NAME MOST".into());
    };
    let pod = Pod::open_or_create(path, PodOptions::new())?;
    let session = pod.session()?;
    let counts = session.map::<str, u64>("counts")?;
    let me = session.client(name)?; // the outcome of its last request is known from here on
    for token in me.next_token()..=most.parse()? {
        counts.request(&me, token).upsert("all", &1, |n| n + 1)?;
        println!("{token}"); // the acknowledgement
    }
    eprintln!("all have counted to {}", counts.get("all").unwrap_or(0));
    Ok(())
}
