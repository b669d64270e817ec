//! Elects a leader: run `leader POD NAME` in several terminals. Kill the leader, and another
//! process leads. A leader that is stopped (Ctrl-Z) is killed before another process leads.

use outlive::pod::{Pod, PodOptions};
use outlive::sync::{Abandoned, Repair};

outlive::shared! {
    #[derive(Default)]
    struct Office {
        term: u64,
        /// The last step that a leader began.
        step: u64,
        /// 1 while that step is being made.
        in_progress: u64,
        /// The number of steps during which a leader died. Each may have been made, and is not
        /// retried.
        cut_short: u64,
    }
}

impl Repair for Office {
    fn repair(&mut self, _: Abandoned) {
        self.cut_short += std::mem::take(&mut self.in_progress);
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, name] = &arguments[..] else {
        return Err("usage: leader POD NAME".into());
    };
    let pod = Pod::open_or_create(path, PodOptions::new())?;
    let session = pod.session()?;
    let office = session.mutex("office", Office::default())?;
    let leader = session.cell::<str>("leader", "none")?; // readable without the lock
    eprintln!("{name} waits; the last leader is {}", leader.get());
    let mut office = office.lock()?; // waits until the leader has died or left
    eprintln!("{name} leads after {:?}", office.abandoned_by());
    office.term += 1;
    leader.set(name)?;
    loop {
        office.step += 1;
        office.in_progress = 1;
        office.commit(); // from here on, no other leader makes this step
        println!("{} {name} {}", office.term, office.step);
        std::thread::sleep(std::time::Duration::from_millis(1));
        office.in_progress = 0;
        office.commit();
    }
}
