//! A process that has a pod open keeps repairs and creators out, and a refused attempt changes
//! nothing, in particular not its own lock.

use outlive::host::Linux;
use outlive::membership::ProcessOptions;
use outlive::pod::{Pod, PodError, PodOptions};
use outlive::segment::{CreateError, OpenError, Segment};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let name = format!("outlive-test-locks-{name}-{}", std::process::id());
        Self(PathBuf::from("/dev/shm").join(name))
    }
}

/// Returns an opening of the file at `path` that has locked the byte of its users, if it could.
fn locks(path: &Path) -> Option<File> {
    let file = File::options().read(true).write(true).open(path).unwrap();
    // SAFETY: a flock is plain numbers, for which zeros are valid.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_start = 1 << 61;
    lock.l_len = 1;
    // SAFETY: the descriptor is open and `lock` a valid flock.
    let locked = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    (locked == 0).then_some(file)
}

fn locked(path: &Path) -> File {
    locks(path).expect("no other opening")
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = Pod::destroy_forcibly(&self.0);
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
        // The member keeps its lock for any attempt of others, and so does the repairer: both keep
        // a creator out.
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

/// On a filesystem without unnamed files the file can be found while it is being created.
#[test]
fn a_file_that_is_being_created_is_its_creators() {
    let scratch = Scratch::new("creator");
    let path = &scratch.0;
    let mut taken = None;
    let created = Segment::builder()
        .named_from_the_start()
        .size(1 << 20)
        .initialise(|_, _| {
            let other = Segment::builder().replace(true).create(path);
            taken = Some((locks(path).is_some(), other.map(|_| ())));
        })
        .create(path);
    created.unwrap().close().unwrap();
    let (is_locked, other) = taken.unwrap();
    assert!(!is_locked, "another process locks it");
    assert!(matches!(other, Err(CreateError::Busy { .. })), "{other:?}");
}

#[test]
fn a_creation_that_fails_removes_its_own_file_only() {
    let scratch = Scratch::new("failing");
    let path = &scratch.0;
    for is_replaced in [false, true] {
        let failing = std::panic::AssertUnwindSafe(|| {
            let builder = Segment::builder().named_from_the_start().size(1 << 20);
            let fails = builder.initialise(|_, _| {
                if is_replaced {
                    std::fs::remove_file(path).unwrap();
                    std::fs::write(path, "another").unwrap();
                }
                panic!("as the test wants it");
            });
            fails.create(path).map(|_| ())
        });
        std::panic::catch_unwind(failing).unwrap_err();
        assert_eq!(path.exists(), is_replaced);
    }
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_pod_is_not_opened_while_another_process_has_it_for_itself() {
    let scratch = Scratch::new("open");
    let path = &scratch.0;
    let pod = Pod::create(path, PodOptions::new().size(4 << 20)).unwrap();
    pod.close().unwrap();
    let repairer = locked(path);
    let refused = Pod::open(path).map(|_| ());
    assert!(
        matches!(refused, Err(PodError::Open(OpenError::Busy { .. }))),
        "{refused:?}"
    );
    drop(repairer);
    Pod::open(path).unwrap().close().unwrap();
}

#[test]
fn each_opening_has_a_lock_of_its_own_which_ends_with_it() {
    let scratch = Scratch::new("own");
    let path = &scratch.0;
    let first = Pod::create(path, PodOptions::new().size(4 << 20)).unwrap();
    first.os().unwrap();
    // A descriptor that is passed to another process shares its description, and so its locks.
    let passed = first.segment().file().try_clone().unwrap();
    let second = Pod::of(Segment::from_file(passed).unwrap()).unwrap();
    assert!(matches!(first.repair(), Err(PodError::InUse { .. })));
    second.os().unwrap();
    first.close().unwrap();
    second.repair().expect("the first opening is closed");
    second.close().unwrap();
}

/// The copies of a child that another thread is just starting, before it executes its program.
#[test]
fn a_child_with_copies_of_the_descriptors_keeps_no_lock() {
    let scratch = Scratch::new("copies");
    let path = &scratch.0;
    let first = Pod::create(path, PodOptions::new().size(4 << 20)).unwrap();
    let second = Pod::open(path).unwrap();
    first.os().unwrap();
    let side_file = || {
        let files = Linux::side_files().unwrap();
        files
            .into_iter()
            .find(|file| file.pod == first.segment().uuid().as_u128())
    };
    // SAFETY: the child only waits for a signal.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: waits for a signal, or for the alarm if the test fails.
        unsafe {
            libc::alarm(60);
            loop {
                libc::pause();
            }
        }
    }
    first.close().unwrap();
    let removed = side_file().map(|file| file.remove());
    let repaired = second.repair().map(|_| ());
    // SAFETY: ends and reaps this thread's own child.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, core::ptr::null_mut(), 0);
    }
    repaired.expect("the first opening is closed");
    assert!(matches!(removed, Some(Ok(true))), "{removed:?}");
    second.close().unwrap();
}

#[test]
fn all_handles_of_one_opening_know_of_its_members() {
    let scratch = Scratch::new("handles");
    let one = Pod::create(&scratch.0, PodOptions::new().size(4 << 20)).unwrap();
    let two = Pod::of(one.segment()).unwrap();
    let process = one.join(ProcessOptions::on_host(0)).unwrap();
    assert!(matches!(two.close(), Err(PodError::InUse { .. })));
    assert!(matches!(two.repair(), Err(PodError::InUse { .. })));
    process.leave().unwrap();
    two.close().unwrap();
}

/// The kernel keeps the mapping from a forked child, which may have other memory at its address.
#[test]
fn a_close_after_a_fork_leaves_the_memory_of_the_child() {
    let scratch = Scratch::new("fork");
    let size = 64 << 20;
    let pod = Pod::create(&scratch.0, PodOptions::new().size(size)).unwrap();
    // SAFETY: the child allocates, closes and ends; the C library keeps its allocator usable.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: ends a child that hangs.
            unsafe { libc::alarm(60) };
            // As large as the hole that the mapping has left.
            let own = vec![7u8; size as usize - (1 << 20)];
            let is_closed = pod.segment().close().is_ok();
            let is_whole = std::hint::black_box(&own).iter().all(|byte| *byte == 7);
            // SAFETY: ends the child without the parent's destructors.
            unsafe { libc::_exit(i32::from(!(is_closed && is_whole))) }
        }
        child => {
            let mut status = -1;
            // SAFETY: waits for this thread's own child.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert_eq!(status, 0, "the child lost its memory");
        }
    }
    pod.close().unwrap();
}

/// The lock of the file belongs to the parent as well: a child that made it exclusive would keep
/// all others out of the pod.
#[test]
fn a_repair_in_a_forked_child_is_refused() {
    let scratch = Scratch::new("repairing-child");
    let pod = Pod::create(&scratch.0, PodOptions::new().size(4 << 20)).unwrap();
    // SAFETY: the child calls `repair`, which allocates, and ends; the C library keeps its
    // allocator usable.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: ends a child that hangs.
            unsafe { libc::alarm(60) };
            let is_refused = matches!(pod.repair(), Err(PodError::InUse { .. }));
            // SAFETY: ends the child without the parent's destructors.
            unsafe { libc::_exit(i32::from(!is_refused)) }
        }
        child => {
            let mut status = -1;
            // SAFETY: waits for this thread's own child.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert_eq!(status, 0, "the child repaired the pod");
        }
    }
    Pod::open(&scratch.0).unwrap().close().unwrap();
    pod.close().unwrap();
}
