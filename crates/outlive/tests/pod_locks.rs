//! A process that has a pod open keeps repairs and creators out, and a refused attempt changes
//! nothing, in particular not its own lock.

use outlive::membership::ProcessOptions;
use outlive::pod::{Pod, PodError, PodOptions};
use outlive::segment::{CreateError, OpenError, Segment};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let name = format!("outlive-test-locks-{name}-{}", std::process::id());
        Self(PathBuf::from("/dev/shm").join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = Pod::destroy(&self.0);
    }
}

#[test]
fn a_refused_repair_keeps_the_lock_of_its_own_opening() {
    let scratch = Scratch::new("repair");
    let path = &scratch.0;
    let busy = Pod::create(path, PodOptions::new().size(4 << 20)).unwrap();
    let process = busy.join(ProcessOptions::on_host(0)).unwrap();
    for _ in 0..50 {
        let repairer = Pod::open(path).unwrap();
        let refused = repairer.repair().map(|_| ());
        assert!(
            matches!(refused, Err(PodError::InUse { .. })),
            "{refused:?}"
        );
        // The member keeps its lock whatever others try, and so does the repairer: both keep a
        // creator out.
        let replaced = Segment::builder().replace(true).create(path).map(|_| ());
        assert!(
            matches!(replaced, Err(CreateError::Busy { .. })),
            "{replaced:?}"
        );
        repairer.close().unwrap();
    }
    process.leave().unwrap();
    let other = Pod::open(path).unwrap();
    // `busy.repair()` is refused because of the other opening. When that is closed, the lock of
    // `busy` alone keeps the creator out.
    assert!(matches!(busy.repair(), Err(PodError::InUse { .. })));
    other.close().unwrap();
    let replaced = Segment::builder().replace(true).create(path).map(|_| ());
    assert!(
        matches!(replaced, Err(CreateError::Busy { .. })),
        "{replaced:?}"
    );
    busy.repair().expect("no other process has it open");
    busy.close().unwrap();
}

#[test]
fn a_pod_is_not_opened_while_another_process_has_it_for_itself() {
    let scratch = Scratch::new("open");
    let path = &scratch.0;
    let pod = Pod::create(path, PodOptions::new().size(4 << 20)).unwrap();
    pod.close().unwrap();
    let repairer = File::options().read(true).write(true).open(path).unwrap();
    // SAFETY: a flock is plain numbers, for which zeros are valid.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_start = 1 << 61;
    lock.l_len = 1;
    // SAFETY: the descriptor is open and `lock` a valid flock.
    let locked = unsafe { libc::fcntl(repairer.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    assert_eq!(locked, 0);
    let refused = Pod::open(path).map(|_| ());
    assert!(
        matches!(refused, Err(PodError::Open(OpenError::Busy { .. }))),
        "{refused:?}"
    );
    drop(repairer);
    Pod::open(path).unwrap().close().unwrap();
}
