//! The side file: it appears complete or not at all, is refused when it is invalid, and is never
//! removed while in use.

mod host_support;

use host_support::{Child, Shared, TestPod, hold, run, sleep_for_ever};
use outlive::host::{Access, Linux, Obituary, Os, OsError};
use outlive::segment::Segment;
use std::fs::{self, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering::SeqCst;

fn main() -> ExitCode {
    run(&[
        ("many_create_one_file", many_create_one_file),
        (
            "killed_at_every_system_call_of_creation",
            killed_at_every_system_call_of_creation,
        ),
        ("in_use_is_not_removed", in_use_is_not_removed),
        (
            "what_an_earlier_boot_left_is_replaced",
            what_an_earlier_boot_left_is_replaced,
        ),
        ("a_wrong_file_is_refused", a_wrong_file_is_refused),
        ("the_mode_is_as_told", the_mode_is_as_told),
        (
            "what_a_file_without_users_says_is_forgotten",
            what_a_file_without_users_says_is_forgotten,
        ),
        (
            "without_descriptors_nothing_is_concluded",
            without_descriptors_nothing_is_concluded,
        ),
        (
            "memory_of_two_kinds_is_refused",
            memory_of_two_kinds_is_refused,
        ),
        ("a_copy_is_not_used", a_copy_is_not_used),
        (
            "what_another_user_writes_holds_nobody_up",
            what_another_user_writes_holds_nobody_up,
        ),
        (
            "a_word_that_was_made_vacant_unmaps_no_window",
            a_word_that_was_made_vacant_unmaps_no_window,
        ),
        (
            "a_file_with_a_lease_is_passed_over",
            a_file_with_a_lease_is_passed_over,
        ),
        (
            "a_file_of_a_stranger_is_passed_over",
            a_file_of_a_stranger_is_passed_over,
        ),
    ])
}

fn files(pod: &TestPod) -> Vec<PathBuf> {
    let all = Linux::side_files().unwrap();
    let ours = all.into_iter().filter(|file| file.pod == pod.id);
    ours.map(|file| file.path).collect()
}

fn many_create_one_file() {
    for _ in 0..20 {
        let pod = TestPod::new();
        let shared = Shared::new();
        let children: Vec<_> = (0..8)
            .map(|slot| {
                Child::run(|| {
                    shared.at(0).fetch_add(1, SeqCst);
                    while shared.at(1).load(SeqCst) == 0 {}
                    hold(pod.attach(), slot);
                    shared.at(2).fetch_add(1, SeqCst);
                    shared.wait(3, 1);
                })
            })
            .collect();
        shared.wait(0, 8);
        shared.at(1).store(1, SeqCst);
        let pids: Vec<_> = children.iter().map(|child| child.pid).collect();
        // While they use the file: a process that is alone with it clears it.
        shared.wait(2, 8);
        let os = pod.attach();
        shared.at(3).store(1, SeqCst);
        children.into_iter().for_each(Child::succeed);
        assert_eq!(files(&pod).len(), 1);
        for (slot, &tid) in pids.iter().enumerate() {
            assert_eq!(os.obituary(slot as u32), Obituary::Marked { tid });
        }
    }
}

/// Kills a child that does `body` at its `stops`-th stop at a system call. Returns whether it ended
/// before.
fn killed_at(stops: u32, body: impl FnOnce()) -> bool {
    let mut child = Child::run(|| {
        // SAFETY: asks to be traced by the parent and stops.
        unsafe {
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
            libc::raise(libc::SIGSTOP);
        }
        body();
    });
    for _ in 0..=stops {
        let mut status = 0;
        // SAFETY: our own child, which is traced.
        unsafe {
            libc::waitpid(child.pid as i32, &mut status, 0);
            if libc::WIFEXITED(status) {
                child.forget();
                return true;
            }
            libc::ptrace(libc::PTRACE_SYSCALL, child.pid, 0, 0);
        }
    }
    false
}

fn killed_at_every_system_call_of_creation() {
    let mut finished = false;
    let mut stops = 0;
    while !finished {
        let pod = TestPod::new();
        finished = killed_at(stops, || _ = pod.attach());
        let left = files(&pod);
        assert!(left.len() <= 1, "{left:?}");
        let os = pod.attach();
        hold(os, 1);
        os.release_obituary(1);
        stops += 1;
    }
    println!("killed at {stops} system call stops");
    assert!(stops > 20);
}

fn in_use_is_not_removed() {
    let pod = TestPod::new();
    let ready = Shared::new();
    let mut child = Child::run(|| {
        pod.attach();
        ready.at(0).store(1, SeqCst);
        sleep_for_ever();
    });
    ready.wait(0, 1);
    let in_use = |result| matches!(result, Err(OsError::InUse { .. }));
    let looks_used = || {
        let all = Linux::side_files().unwrap();
        let ours = all.into_iter().filter(|file| file.pod == pod.id);
        ours.map(|file| file.is_in_use().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(looks_used(), [true]);
    assert!(in_use(Linux::remove_side_file(pod.id)));
    // Nor when this process is attached too; and it stays attached to a file that others find.
    let os = pod.attach();
    hold(os, 1);
    assert!(in_use(Linux::remove_side_file(pod.id)));
    Child::run(|| assert!(matches!(pod.attach().obituary(1), Obituary::Held { .. }))).succeed();
    os.release_obituary(1);
    child.kill();
    child.reap();
    assert_eq!(Linux::remove_side_file(pod.id).unwrap(), 1);
    assert_eq!(Linux::remove_side_file(pod.id).unwrap(), 0);
    assert!(files(&pod).is_empty());
    hold(pod.attach(), 1);
}

fn what_an_earlier_boot_left_is_replaced() {
    let pod = TestPod::new();
    pod.attach();
    let now = files(&pod).remove(0);
    let name = now.file_name().unwrap().to_str().unwrap();
    let boot = name.split('.').nth(2).unwrap();
    let earlier = now.with_file_name(name.replace(boot, &"0".repeat(32)));
    let unfinished = now.with_file_name(format!("{name}.unfinished"));
    assert_eq!(Linux::remove_side_file(pod.id).unwrap(), 1);
    fs::write(&earlier, "whatever stood there").unwrap();
    pod.attach();
    assert_eq!(files(&pod), std::slice::from_ref(&now));
    fs::write(&unfinished, "").unwrap();
    assert_eq!(Linux::remove_side_file(pod.id).unwrap(), 2);
}

fn a_wrong_file_is_refused() {
    let pod = TestPod::new();
    pod.attach();
    let path = files(&pod).remove(0);
    // A child has attached to nothing yet.
    let refusal = |slots: u32| {
        let (mut read, write) = std::io::pipe().unwrap();
        Child::run(|| {
            let error =
                Linux::attach(pod.id, slots, Access::default(), pod.file(), true).unwrap_err();
            assert!(matches!(error, OsError::Refused { .. }), "{error}");
            std::io::Write::write_all(&mut { write }, error.to_string().as_bytes()).unwrap();
        })
        .succeed();
        std::io::read_to_string(&mut read).unwrap()
    };
    let refused_for = |slots, why: &str| {
        let message = refusal(slots);
        assert!(message.contains(why), "{message}");
        assert!(message.contains(path.to_str().unwrap()), "{message}");
    };
    refused_for(17, "it has 16 obituaries, but the pod has 17 ids");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let mut good = [0; 104];
    file.read_exact_at(&mut good, 0).unwrap();
    for at in 0..good.len() {
        let mut bad = good;
        bad[at] ^= 4;
        file.write_all_at(&bad, 0).unwrap();
        refused_for(
            16,
            match at {
                0..8 => "it is not a side file of outlive",
                8..12 => "it has format version ",
                _ => "its header is damaged",
            },
        );
    }
    file.write_all_at(&good, 0).unwrap();
    Child::run(|| assert_eq!(pod.attach().obituary(1), Obituary::Vacant)).succeed();
    fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(4096)
        .unwrap();
    refused_for(16, "it has 4096 bytes");
    file.set_len(10).unwrap();
    refused_for(16, "its header cannot be read");
}

/// What cannot be determined is not a "no": an operator's word would be taken against a live host,
/// and an opening would share the lock of the sender's.
fn without_descriptors_nothing_is_concluded() {
    let pod = TestPod::new();
    let _os = pod.attach();
    let passed = |file: &std::sync::Arc<fs::File>| file.try_clone().unwrap();
    let file = pod.file_of_segment();
    let passed = [(); 4].map(|()| passed(&file));
    Child::run(|| {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let few = rustix::process::Rlimit {
            current: Some(4096),
            maximum: limit.maximum,
        };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, few).unwrap();
        assert!(Linux::has_side_file(pod.id).unwrap());
        let mut all = Vec::new();
        let mut use_up = || all.extend(std::iter::from_fn(|| fs::File::open("/dev/null").ok()));
        use_up();
        Linux::has_side_file(pod.id).unwrap_err();
        // The first may use a descriptor that the library has kept for this case.
        let opened = passed.map(|file| {
            use_up();
            Segment::from_file(file)
        });
        let error = opened.last().unwrap().as_ref().unwrap_err().to_string();
        assert!(error.contains("open once more"), "{error}");
    })
    .succeed();
}

/// Presence is locked in one of the two files, and others conclude from the kind of memory in
/// which.
fn memory_of_two_kinds_is_refused() {
    let pod = TestPod::new();
    let os = pod.attach();
    assert!(os.identity().one_kernel);
    let attach = |one| Linux::attach(pod.id, pod.slots, Access::default(), pod.file(), one);
    let refused = attach(false).unwrap_err().to_string();
    assert!(refused.contains("of another kind"), "{refused}");
    os.detach().unwrap();
    let shared = attach(false).unwrap();
    assert!(!shared.identity().one_kernel);
    attach(true).unwrap_err();
}

/// A copy that takes the name of the file would show no members, although it has the original's
/// number.
fn a_copy_is_not_used() {
    let pod = TestPod::new();
    let os = pod.attach();
    hold(os, 1);
    let path = files(&pod).remove(0);
    let copy = path.with_file_name(format!("outlive-copy-{:x}", pod.id));
    fs::copy(&path, &copy).unwrap();
    fs::rename(&copy, &path).unwrap();
    Child::run(|| {
        let other = pod.attach();
        assert_ne!(other.identity().id, os.identity().id);
        assert_eq!(other.obituary(1), Obituary::Vacant);
    })
    .succeed();
    os.release_obituary(1);
}

fn open(path: &PathBuf) -> fs::File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap()
}

/// A mark of a clearing that never ends, and a word that only says that a waiter exists.
fn what_another_user_writes_holds_nobody_up() {
    let pod = TestPod::new();
    let os = pod.attach();
    let file = open(&files(&pod)[0]);
    file.write_all_at(&0x8000_0000u32.to_ne_bytes(), word_at(1))
        .unwrap();
    hold(os, 1);
    os.release_obituary(1);
    assert_eq!(os.obituary(1), Obituary::Vacant);
    file.write_all_at(&1u32.to_ne_bytes(), 1024).unwrap();
    Child::run(|| {
        let error = Linux::attach(pod.id, 16, Access::default(), pod.file(), true).unwrap_err();
        assert!(matches!(error, OsError::InUse { .. }), "{error}");
    })
    .succeed();
    file.write_all_at(&0u32.to_ne_bytes(), 1024).unwrap();
    Child::run(|| _ = pod.attach()).succeed();
}

/// A thread holds an obituary, another user sets its word to vacant, and a second thread takes it:
/// the list of the first still leads into its window.
fn a_word_that_was_made_vacant_unmaps_no_window() {
    let pod = TestPod::new();
    pod.attach();
    let path = files(&pod).remove(0);
    let file = open(&path);
    Child::run(|| {
        let os = pod.attach();
        let windows = || {
            let maps = fs::read_to_string("/proc/self/maps").unwrap();
            maps.lines()
                .filter(|line| line.ends_with(path.to_str().unwrap()))
                .count()
        };
        let before = windows();
        hold(os, 1);
        file.write_all_at(&0u32.to_ne_bytes(), word_at(1)).unwrap();
        std::thread::spawn(move || hold(os, 1)).join().unwrap();
        assert_eq!(windows(), before + 2, "a window was unmapped");
        // The word belongs to the other thread: there is nothing to release.
        os.release_obituary(1);
    })
    .succeed();
}

/// Another process has a lease on the file that has the first name, and keeps it from being opened.
fn a_file_with_a_lease_is_passed_over() {
    let pod = TestPod::new();
    Child::run(|| _ = pod.attach()).succeed();
    let path = files(&pod).remove(0);
    let (ready, is_set) = (Shared::new(), 1);
    let mut holder = Child::run(|| {
        let file = open(&path);
        // SAFETY: system calls with numbers; the signal that asks for the lease is ignored.
        unsafe {
            libc::signal(libc::SIGIO, libc::SIG_IGN);
            assert_eq!(
                libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK),
                0
            );
        }
        ready.at(0).store(is_set, SeqCst);
        sleep_for_ever();
    });
    ready.wait(0, is_set);
    hold(pod.attach(), 1);
    assert!(PathBuf::from(format!("{}.1", path.display())).exists());
    holder.kill();
    holder.reap();
}

fn the_mode_is_as_told() {
    for mode in [0o600, 0o660] {
        let pod = TestPod::new();
        let access = Access {
            mode,
            group: Some(rustix::process::getegid().as_raw()),
            owner: None,
        };
        Linux::attach(pod.id, 4, access, pod.file(), true).unwrap();
        let path = files(&pod).remove(0);
        assert_eq!(
            fs::metadata(path).unwrap().permissions().mode() & 0o7777,
            mode
        );
    }
}

/// The word of an obituary of a pod with 16, as the file has it.
fn word_at(slot: u64) -> u64 {
    host_support::words_at(16) + slot / 3 * 4096 + 4096 - 24 + slot % 3 * 8
}

fn open_to_write(path: &PathBuf) -> fs::File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap()
}

fn what_a_file_without_users_says_is_forgotten() {
    let pod = TestPod::new();
    Child::run(|| hold(pod.attach(), 1)).succeed();
    let path = files(&pod).remove(0);
    // The state that a thread of a former PID namespace would have left if this namespace had its
    // number.
    let file = open_to_write(&path);
    file.write_all_at(&std::process::id().to_ne_bytes(), word_at(2))
        .unwrap();
    let number = |os: &Linux| os.identity().id;
    let first = {
        let (mut read, write) = std::io::pipe().unwrap();
        Child::run(|| {
            let os = pod.attach();
            assert_eq!(
                os.obituary(1),
                Obituary::Vacant,
                "a mark of an earlier user"
            );
            assert_eq!(os.obituary(2), Obituary::Vacant, "an id of an earlier user");
            hold(os, 2);
            let number = number(os).to_ne_bytes();
            std::io::Write::write_all(&mut { write }, &number).unwrap();
        })
        .succeed();
        let mut number = [0; 16];
        std::io::Read::read_exact(&mut read, &mut number).unwrap();
        u128::from_ne_bytes(number)
    };
    // A damaged file that no process uses is created again.
    file.write_all_at(b"damaged", 0).unwrap();
    let os = pod.attach();
    assert_eq!(os.obituary(2), Obituary::Vacant);
    assert_ne!(
        number(os),
        first,
        "another file is another operating system"
    );
    assert_eq!(files(&pod), [path]);
}

fn a_file_of_a_stranger_is_passed_over() {
    let pod = TestPod::new();
    Child::run(|| _ = pod.attach()).succeed();
    let path = files(&pod).remove(0);
    fs::remove_file(&path).unwrap();
    let other = |number: u32| PathBuf::from(format!("{}.{number}", path.display()));
    // A directory, a FIFO without a reader, a link, and a file with more rights than the pod has.
    fs::create_dir(&path).unwrap();
    let fifo = std::ffi::CString::new(other(1).to_str().unwrap()).unwrap();
    // SAFETY: a string that ends in zero.
    assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
    std::os::unix::fs::symlink("/dev/zero", other(2)).unwrap();
    fs::write(other(3), "").unwrap();
    fs::set_permissions(other(3), fs::Permissions::from_mode(0o666)).unwrap();
    let mut next = 4;
    if rustix::process::geteuid().is_root() {
        // Of a user that is neither this one nor the pod's owner.
        fs::write(other(4), "").unwrap();
        fs::set_permissions(other(4), fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::chown(other(4), Some(1234), Some(1234)).unwrap();
        next = 5;
    } else {
        println!("skipped: a file of another user (needs root)");
    }
    let os = pod.attach();
    hold(os, 1);
    assert!(other(next).exists(), "not at name {next}");
    Child::run(|| assert!(matches!(pod.attach().obituary(1), Obituary::Held { .. }))).succeed();
    os.release_obituary(1);
    fs::remove_dir(&path).unwrap();
    for number in 1..=4 {
        let _ = fs::remove_file(other(number));
    }
}
