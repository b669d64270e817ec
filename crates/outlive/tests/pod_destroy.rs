//! The removal of a pod: refused while it has live members, and possible when they are dead.

mod pod_file;

use outlive::host::Linux;
use outlive::membership::ProcessOptions;
use outlive::pod::{Pod, PodError, PodOptions};
use pod_file::PodFile;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
/// The variable by which the test starts its own program as a member.
const PATH: &str = "OUTLIVE_DESTROY_TEST";

fn create(place: &PodFile) -> Pod {
    Pod::create(&place.0, PodOptions::new().size(8 << 20).ids(32)).unwrap()
}

/// Joins and waits forever, if the test has started it for that.
#[test]
fn member() {
    let Ok(path) = std::env::var(PATH) else {
        return;
    };
    let pod = Pod::open(path).unwrap();
    let session = pod.session().unwrap();
    session.counter("joined").unwrap().add(1);
    loop {
        std::thread::park();
    }
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn members_of_this_process_prevent_it() {
    let place = PodFile::new("destroy-own");
    let pod = create(&place);
    let process = pod.join(ProcessOptions::on_host(3)).unwrap();
    let refused = Pod::destroy(&place.0).unwrap_err();
    assert!(matches!(refused, PodError::InUse { .. }), "{refused}");
    let text = refused.to_string();
    let named = format!("process {} (pid {}", process.instance(), std::process::id());
    assert!(
        text.contains(&named) && text.contains("2 members"),
        "{text}"
    );
    process.leave().unwrap();
    // That it is open does not prevent it.
    assert_eq!(Pod::destroy(&place.0).unwrap(), None);
    assert!(!Path::new(&place.0).exists());
}

#[test]
fn members_of_another_process_prevent_it_until_they_are_dead() {
    let place = PodFile::new("destroy-other");
    let pod = create(&place);
    let mut command = Command::new(std::env::current_exe().unwrap());
    let command = command
        .args(["member", "--exact", "--nocapture"])
        .env(PATH, &place.0);
    let child = Killed(command.stdout(Stdio::null()).spawn().unwrap());
    let until = Instant::now() + LIMIT;
    while pod.status().members.len() < 3 {
        assert!(Instant::now() < until, "the child does not join");
        std::thread::sleep(Duration::from_millis(1));
    }
    let refused = Pod::destroy(&place.0).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains(&format!("pid {}", child.0.id())),
        "{refused}"
    );
    // No member is left to report the death.
    drop(child);
    assert_eq!(Pod::destroy(&place.0).unwrap(), None);
}

#[test]
fn a_forced_removal_leaves_members_in_memory_without_a_name() {
    let place = PodFile::new("destroy-forced");
    let pod = create(&place);
    let session = pod.session().unwrap();
    let hits = session.counter("hits").unwrap();
    Pod::destroy_forcibly(&place.0).unwrap();
    hits.add(1);
    assert_eq!(hits.get(), 1);
    assert!(matches!(pod.session(), Err(PodError::Removed { .. })));
    drop(hits);
    drop(session);
    let files = Linux::side_files().unwrap();
    assert!(files.iter().all(|file| file.pod != pod.number()));
}
