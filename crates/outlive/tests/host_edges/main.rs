//! Kernel facts that the interface to the operating system relies on, and its conclusions where
//! `/proc` is another namespace's, another user took a name, or a clearer was killed.

mod clearing;
#[path = "../host_support/mod.rs"]
mod host_support;
mod places;
mod substitutes;
mod users;

use host_support::{Child, Shared, TestPod, hold, run, sleep_for_ever, until};
use outlive::host::{Linux, Liveness, Obituary, Os, OsError, ProcessIdentity, ThreadIdentity};
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering::SeqCst;

fn main() -> ExitCode {
    run(&[
        ("nspid_tells_whose_proc_it_is", nspid_tells_whose_proc_it_is),
        (
            "thread_ids_of_two_namespaces_collide",
            thread_ids_of_two_namespaces_collide,
        ),
        (
            "a_lock_lives_as_long_as_its_mapping",
            a_lock_lives_as_long_as_its_mapping,
        ),
        (
            "a_lock_is_seen_from_another_namespace",
            a_lock_is_seen_from_another_namespace,
        ),
        (
            "a_failed_conversion_keeps_the_lock",
            a_failed_conversion_keeps_the_lock,
        ),
        (
            "a_stranger_in_a_foreign_proc_proves_nothing",
            a_stranger_in_a_foreign_proc_proves_nothing,
        ),
        (
            "each_pid_namespace_has_its_own_file",
            each_pid_namespace_has_its_own_file,
        ),
        (
            "two_places_of_one_name_are_two_systems",
            two_places_of_one_name_are_two_systems,
        ),
        ("an_overlay_is_refused", places::an_overlay_is_refused),
        (
            "a_host_is_not_buried_by_another_side_file",
            places::a_host_is_not_buried_by_another_side_file,
        ),
        (
            "a_process_that_enters_a_time_namespace_is_of_another_system",
            places::a_process_that_enters_a_time_namespace_is_of_another_system,
        ),
        (
            "a_process_whose_first_thread_has_ended_is_where_it_was",
            places::a_process_whose_first_thread_has_ended_is_where_it_was,
        ),
        (
            "a_thread_with_descriptors_of_its_own_names_its_own_file",
            places::a_thread_with_descriptors_of_its_own_names_its_own_file,
        ),
        (
            "a_boot_id_that_is_not_the_kernels_is_of_no_machine",
            substitutes::a_boot_id_that_is_not_the_kernels_is_of_no_machine,
        ),
        (
            "a_directory_in_the_place_of_proc_is_no_proc",
            substitutes::a_directory_in_the_place_of_proc_is_no_proc,
        ),
        (
            "a_proc_of_another_namespace_gives_no_start_time",
            substitutes::a_proc_of_another_namespace_gives_no_start_time,
        ),
        (
            "a_descriptor_of_another_file_proves_no_death",
            substitutes::a_descriptor_of_another_file_proves_no_death,
        ),
        (
            "a_forked_child_has_no_pod_at_its_parents_addresses",
            substitutes::a_forked_child_has_no_pod_at_its_parents_addresses,
        ),
        (
            "a_process_that_has_lost_its_presence_ends",
            substitutes::a_process_that_has_lost_its_presence_ends,
        ),
        (
            "no_code_of_a_forked_child_gets_its_parents_addresses",
            substitutes::no_code_of_a_forked_child_gets_its_parents_addresses,
        ),
        (
            "a_forked_child_has_no_obituary_at_its_parents_addresses",
            substitutes::a_forked_child_has_no_obituary_at_its_parents_addresses,
        ),
        (
            "names_of_other_users_are_passed_over",
            users::names_of_other_users_are_passed_over,
        ),
        (
            "a_file_of_an_unmapped_user_is_refused",
            users::a_file_of_an_unmapped_user_is_refused,
        ),
        (
            "the_same_id_of_another_user_namespace_is_another_user",
            users::the_same_id_of_another_user_namespace_is_another_user,
        ),
        (
            "root_gives_the_file_to_the_owner_of_the_pod",
            users::root_gives_the_file_to_the_owner_of_the_pod,
        ),
        (
            "a_new_holder_is_not_judged_by_what_stands_of_the_last",
            clearing::a_new_holder_is_not_judged_by_what_stands_of_the_last,
        ),
        (
            "a_clearer_killed_at_any_step_blocks_nothing",
            clearing::a_clearer_killed_at_any_step_blocks_nothing,
        ),
    ])
}

/// Runs `body` in a child in new namespaces, as the first process of a new PID namespace if `flags`
/// asks for one. `false`, with a message, if namespaces cannot be made here.
fn unshared(flags: libc::c_int, body: impl FnOnce()) -> bool {
    const REFUSED: i32 = 77;
    let mut child = Child::run(|| {
        // SAFETY: affects this child only, which has one thread.
        if unsafe { libc::unshare(flags) } != 0 {
            println!("skipped: unshare: {}", std::io::Error::last_os_error());
            // SAFETY: ends the child.
            unsafe { libc::_exit(REFUSED) };
        }
        if flags & libc::CLONE_NEWNS != 0 {
            let root = c"/".as_ptr();
            let none = core::ptr::null();
            // SAFETY: valid strings; the mounts of this namespace are its own from here on.
            let answer = unsafe {
                libc::mount(
                    none,
                    root,
                    none,
                    libc::MS_REC | libc::MS_PRIVATE,
                    none.cast(),
                )
            };
            assert_eq!(answer, 0);
        }
        Child::run(body).succeed();
    });
    match child.reap() {
        0 => true,
        status if libc::WEXITSTATUS(status) == REFUSED => false,
        status => panic!("the child failed: {status:#x}"),
    }
}

fn mount(kind: &str, at: &str) {
    let (kind, at) = (CString::new(kind).unwrap(), CString::new(at).unwrap());
    // SAFETY: valid strings; in a mount namespace of the caller's own.
    let answer = unsafe {
        libc::mount(
            kind.as_ptr(),
            at.as_ptr(),
            kind.as_ptr(),
            0,
            core::ptr::null(),
        )
    };
    assert_eq!(answer, 0, "{}", std::io::Error::last_os_error());
}

fn nspid() -> Vec<u32> {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let ids = line.unwrap().split_whitespace();
    ids.map(|id| id.parse().unwrap()).collect()
}

fn nspid_tells_whose_proc_it_is() {
    assert_eq!(nspid(), [std::process::id()]);
    // The parent's /proc: the outer number comes first.
    unshared(libc::CLONE_NEWPID, || {
        let ids = nspid();
        assert_eq!((ids.len(), ids[1]), (2, std::process::id()));
        assert_eq!(std::process::id(), 1);
    });
    unshared(libc::CLONE_NEWPID | libc::CLONE_NEWNS, || {
        mount("proc", "/proc");
        assert_eq!(nspid(), [1]);
    });
}

fn thread_ids_of_two_namespaces_collide() {
    let shared = Shared::new();
    for _ in 0..2 {
        if !unshared(libc::CLONE_NEWPID, || {
            shared.at(host_support::tid() as usize).fetch_add(1, SeqCst);
        }) {
            return;
        }
    }
    assert_eq!(shared.at(1).load(SeqCst), 2);
}

/// The kernel's structure for a lock of `kind` on byte 7.
fn byte_lock(kind: libc::c_int) -> libc::flock {
    // SAFETY: plain integers.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_start = 7;
    lock.l_len = 1;
    lock
}

fn set_lock(file: &File, kind: libc::c_int) -> bool {
    let mut lock = byte_lock(kind);
    // SAFETY: the structure lives across the call.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw mut lock) == 0 }
}

/// Whether another description has the byte locked.
fn is_locked(file: &File) -> bool {
    let mut lock = byte_lock(libc::F_WRLCK);
    // SAFETY: as above.
    let answer = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    assert_eq!(answer, 0);
    lock.l_type != libc::F_UNLCK as libc::c_short
}

/// A file in /dev/shm that is removed at the end.
struct TestFile(PathBuf);

impl TestFile {
    fn new() -> Self {
        let name = format!("outlive-edges-{}", uuid::Uuid::new_v4().simple());
        let path = PathBuf::from("/dev/shm").join(name);
        fs::write(&path, vec![0; 4096]).unwrap();
        Self(path)
    }

    /// A new description, which cannot write.
    fn look(&self) -> File {
        File::open(&self.0).unwrap()
    }

    fn open(&self) -> File {
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(&self.0)
            .unwrap()
    }

    /// Locks the byte, maps the file through the same description, and closes the descriptor.
    fn lock_by_mapping(&self) {
        let file = self.open();
        assert!(set_lock(&file, libc::F_WRLCK));
        let (access, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping, which stays.
        unsafe {
            let at = libc::mmap(
                core::ptr::null_mut(),
                4096,
                access,
                shared,
                file.as_raw_fd(),
                0,
            );
            assert_ne!(at, libc::MAP_FAILED);
            assert_eq!(libc::madvise(at, 4096, libc::MADV_DONTFORK), 0);
        }
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn a_lock_lives_as_long_as_its_mapping() {
    let file = TestFile::new();
    let look = file.look();
    let ready = Shared::new();
    // Without a descriptor, and not in a forked child; freed by SIGKILL.
    let mut child = Child::run(|| {
        file.lock_by_mapping();
        let forked = Child::run(|| sleep_for_ever());
        ready.at(0).store(forked.pid, SeqCst);
        sleep_for_ever();
    });
    let forked = ready.wait(0, 1);
    assert!(is_locked(&look));
    child.kill();
    child.reap();
    until(|| !is_locked(&look));
    // SAFETY: a grandchild, which nothing reaps before it is killed; it may have died with its
    // parent.
    unsafe { libc::kill(forked as i32, libc::SIGKILL) };

    // By exec.
    let _child = Child::run(|| {
        file.lock_by_mapping();
        ready.at(1).store(1, SeqCst);
        ready.wait(2, 1);
        let mut sleep = std::process::Command::new("sleep");
        panic!(
            "{}",
            std::os::unix::process::CommandExt::exec(sleep.arg("100"))
        );
    });
    ready.wait(1, 1);
    assert!(is_locked(&look));
    ready.at(2).store(1, SeqCst);
    until(|| !is_locked(&look));

    // A vfork child keeps the address space, and with it the lock.
    let mut child = Child::run(|| {
        file.lock_by_mapping();
        // SAFETY: without CLONE_FS and the like the child has its own copy of everything except the
        // memory; it uses no more than the shared words, and this process waits for it.
        let pid = unsafe {
            libc::syscall(
                libc::SYS_clone,
                libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
                0,
                0,
                0,
                0,
            )
        };
        if pid == 0 {
            ready.at(3).store(1, SeqCst);
            while ready.at(4).load(SeqCst) == 0 {
                core::hint::spin_loop();
            }
            // SAFETY: ends this process alone.
            unsafe { libc::syscall(libc::SYS_exit, 0) };
        }
    });
    ready.wait(3, 1);
    child.kill();
    child.reap();
    (0..50).for_each(|_| host_support::nap());
    assert!(is_locked(&look), "the vfork child lives");
    ready.at(4).store(1, SeqCst);
    until(|| !is_locked(&look));
}

fn a_lock_is_seen_from_another_namespace() {
    let file = TestFile::new();
    let mine = file.open();
    assert!(set_lock(&mine, libc::F_RDLCK));
    unshared(libc::CLONE_NEWPID, || assert!(is_locked(&file.look())));
    assert!(!is_locked(&mine), "not its own");
}

fn a_failed_conversion_keeps_the_lock() {
    let file = TestFile::new();
    let (one, other) = (file.open(), file.open());
    assert!(set_lock(&one, libc::F_RDLCK) && set_lock(&other, libc::F_RDLCK));
    assert!(!set_lock(&one, libc::F_WRLCK));
    drop(other);
    assert!(is_locked(&file.look()), "the read lock is still there");
    assert!(set_lock(&one, libc::F_WRLCK));
}

/// A process outside dies and is not reaped; its pid is that of a live thread inside, where `/proc`
/// is the outer one.
fn a_stranger_in_a_foreign_proc_proves_nothing() {
    let pod = TestPod::new();
    let shared = Shared::new();
    // The outer process with the pid that the member inside will have.
    let stranger = Child::run(|| sleep_for_ever());
    stranger.kill();
    stranger.wait_zombie();
    unshared(libc::CLONE_NEWPID, || {
        // The next pid inside is the stranger's outside.
        fs::write(
            "/proc/sys/kernel/ns_last_pid",
            (stranger.pid - 1).to_string(),
        )
        .unwrap();
        let member = Child::run(|| {
            hold(pod.attach(), 1);
            shared.at(0).store(1, SeqCst);
            sleep_for_ever();
        });
        if member.pid != stranger.pid {
            println!(
                "skipped: the member has pid {}, not {}",
                member.pid, stranger.pid
            );
            return;
        }
        shared.wait(0, 1);
        let os = pod.attach();
        let process = os.this_thread().process;
        assert_eq!((process.pid, process.start_time), (1, 0));
        for start_time in [0, 4711] {
            let process = ProcessIdentity {
                pid: member.pid,
                start_time,
            };
            let thread = ThreadIdentity {
                process,
                tid: member.pid,
                start_time,
            };
            assert_eq!(os.thread_liveness(thread), Liveness::Unknown);
            // A pid alone is no reason to kill.
            let refused = os.open_process(process);
            assert!(
                matches!(refused, Err(OsError::Missing { .. })),
                "{refused:?}"
            );
        }
        assert!(!os.clear_if_gone(1));
        let held = Obituary::Held { tid: member.pid };
        assert_eq!(os.obituary(1), held);
        let holder = os.holder(1).expect("it is known");
        assert_eq!((holder.tid, holder.start_time), (member.pid, 0));
        let mut member = member;
        member.kill();
        member.reap();
        assert_eq!(os.obituary(1), Obituary::Marked { tid: member.pid });
        assert_eq!(os.thread_liveness(holder), Liveness::Gone);
        Linux::remove_side_file(pod.id).unwrap();
    });
}

fn names(pod: &TestPod) -> Vec<PathBuf> {
    let all = Linux::side_files().unwrap().into_iter();
    let mut names: Vec<_> = all
        .filter(|file| file.pod == pod.id)
        .map(|file| file.path)
        .collect();
    names.sort();
    names
}

fn each_pid_namespace_has_its_own_file() {
    let pod = TestPod::new();
    let os = pod.attach();
    hold(os, 1);
    let outer = os.identity().id;
    // A child of the process that is attached makes its own.
    unshared(libc::CLONE_NEWPID, || {
        let os = pod.attach();
        assert_ne!(os.identity().id, outer);
        assert_eq!(os.obituary(1), Obituary::Vacant);
        assert_eq!(names(&pod).len(), 2);
    });
    os.release_obituary(1);
}

/// Same boot, same namespaces, another /dev/shm: these once had the same identity by chance.
fn two_places_of_one_name_are_two_systems() {
    let pod = TestPod::new();
    let os = pod.attach();
    let outer = (os.identity(), names(&pod));
    unshared(libc::CLONE_NEWNS, || {
        mount("tmpfs", "/dev/shm");
        let os = pod.attach();
        assert_eq!(names(&pod), outer.1, "the same name");
        assert_ne!(os.identity().id, outer.0.id);
        assert_eq!(os.identity().boot, outer.0.boot);
    });
}
