//! Presence and cords, with real processes: which resources the kernel frees, when, and which
//! processes it kills. Membership relies on these facts.

mod host_support;

use host_support::{Child, Shared, TestPod, nap, run, sleep_for_ever, until};
use outlive::host::{Linux, Os};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::process::ExitCode;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    run(&[
        ("one_process_has_an_id", one_process_has_an_id),
        (
            "a_descriptor_that_is_another_files_proves_no_death",
            a_descriptor_that_is_another_files_proves_no_death,
        ),
        (
            "a_reader_of_the_file_is_not_present",
            a_reader_of_the_file_is_not_present,
        ),
        (
            "freed_by_a_kill_and_not_kept_by_a_fork",
            freed_by_a_kill_and_not_kept_by_a_fork,
        ),
        (
            "freed_by_exec_though_the_process_lives",
            freed_by_exec_though_the_process_lives,
        ),
        (
            "kept_by_who_shares_the_address_space",
            kept_by_who_shares_the_address_space,
        ),
        (
            "seen_from_another_pid_namespace",
            seen_from_another_pid_namespace,
        ),
        (
            "a_cord_kills_a_stopped_sibling",
            a_cord_kills_a_stopped_sibling,
        ),
        (
            "a_cord_that_a_stranger_made_is_not_used",
            a_cord_that_a_stranger_made_is_not_used,
        ),
        (
            "not_kept_by_a_child_that_was_forked_while_it_was_claimed",
            not_kept_by_a_child_that_was_forked_while_it_was_claimed,
        ),
        (
            "a_cord_is_not_kept_by_a_child_that_was_forked_while_it_was_tied",
            a_cord_is_not_kept_by_a_child_that_was_forked_while_it_was_tied,
        ),
        (
            "freed_at_once_though_a_fork_has_the_descriptor",
            freed_at_once_though_a_fork_has_the_descriptor,
        ),
        (
            "a_cord_is_of_one_incarnation_and_ends_with_exec",
            a_cord_is_of_one_incarnation_and_ends_with_exec,
        ),
    ])
}

/// How long a freed byte may take to be seen.
const LIMIT: Duration = Duration::from_secs(20);

fn becomes(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        nap();
    }
}

fn exec_sleep() -> ! {
    let program = c"/bin/sleep";
    let arguments = [program.as_ptr(), c"60".as_ptr(), core::ptr::null()];
    // SAFETY: strings that end in zero, and a list that does.
    unsafe {
        libc::execv(program.as_ptr(), arguments.as_ptr());
        libc::_exit(99)
    }
}

fn signal(child: &Child, signal: i32) {
    // SAFETY: it has not been reaped, so the pid is its own.
    unsafe { libc::kill(child.pid as i32, signal) };
}

/// A program that closes descriptors that it has not opened, and then opens files of its own.
fn a_descriptor_that_is_another_files_proves_no_death() {
    let pod = TestPod::new();
    let os = pod.attach();
    let first = os.claim_presence(3).unwrap().expect("it is free");
    Child::run(|| {
        let os = pod.attach();
        assert!(os.is_present(3) && !os.is_present(4));
        // SAFETY: the descriptors are used by the tested code, which must tolerate this.
        unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
        let others: Vec<_> = (0..64).map(|_| tempfile::tempfile().unwrap()).collect();
        assert!(os.is_present(3), "a living process was taken for dead");
        assert!(os.claim_presence(4).is_err());
        drop(others);
    })
    .succeed();
    drop(first);
}

fn one_process_has_an_id() {
    let pod = TestPod::new();
    let os = pod.attach();
    assert!(!os.is_present(3));
    let first = os.claim_presence(3).unwrap().expect("it is free");
    assert!(os.is_present(3), "one's own is seen too");
    assert!(!os.is_present(2) && !os.is_present(4));
    assert!(os.claim_presence(3).unwrap().is_none(), "claimed twice");
    Child::run(|| {
        let os = pod.attach();
        assert!(os.is_present(3));
        assert!(os.claim_presence(3).unwrap().is_none());
        assert!(os.claim_presence(4).unwrap().is_some());
    })
    .succeed();
    drop(first);
    assert!(!os.is_present(3));
    // The largest possible id.
    let last = os.claim_presence(65_535).unwrap();
    assert!(last.is_some() && os.is_present(65_535));
}

/// Users that may only read the pod's file can have read locks on it. They delay no detection.
fn a_reader_of_the_file_is_not_present() {
    let pod = TestPod::new();
    let os = pod.attach();
    let file = pod.file_of_segment();
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let reader = File::open(path).unwrap();
    // SAFETY: plain numbers, for which zeros are valid.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    lock.l_type = libc::F_RDLCK as libc::c_short;
    lock.l_start = (1 << 62) + 3;
    lock.l_len = 1;
    // SAFETY: the descriptor is open and `lock` a valid flock.
    let answer = unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    assert_eq!(answer, 0);
    assert!(!os.is_present(3), "a reader was taken for a member");
    // A claim would exclude the reader.
    assert!(os.claim_presence(3).unwrap().is_none());
    drop(reader);
    drop(os.claim_presence(3).unwrap().expect("it is free"));
}

fn freed_by_a_kill_and_not_kept_by_a_fork() {
    let (pod, shared) = (TestPod::new(), Shared::new());
    let os = pod.attach();
    let mut child = Child::run(|| {
        let os = pod.attach();
        let _presence = os.claim_presence(1).unwrap().unwrap();
        // SAFETY: this process has one thread.
        let grandchild = unsafe { libc::fork() };
        if grandchild == 0 {
            sleep_for_ever();
        }
        shared.at(1).store(grandchild as u32, SeqCst);
        shared.at(0).store(1, SeqCst);
        sleep_for_ever();
    });
    shared.wait(0, 1);
    assert!(os.is_present(1));
    child.kill();
    child.reap();
    becomes("the byte is free", || !os.is_present(1));
    // SAFETY: the grandchild is an orphan of ours that sleeps.
    unsafe { libc::kill(shared.at(1).load(SeqCst) as i32, libc::SIGKILL) };
}

fn freed_by_exec_though_the_process_lives() {
    let (pod, shared) = (TestPod::new(), Shared::new());
    let os = pod.attach();
    let mut child = Child::run(|| {
        let _presence = pod.attach().claim_presence(1).unwrap().unwrap();
        shared.at(0).store(1, SeqCst);
        shared.wait(1, 1);
        exec_sleep();
    });
    shared.wait(0, 1);
    assert!(os.is_present(1));
    shared.at(1).store(1, SeqCst);
    becomes("the byte is free", || !os.is_present(1));
    let mut status = 0;
    // SAFETY: our own child; it is only observed.
    let ended = unsafe { libc::waitpid(child.pid as i32, &mut status, libc::WNOHANG) };
    assert_eq!(ended, 0, "the process has ended");
    child.kill();
    child.reap();
}

/// A child that was made with CLONE_VM (as by vfork) goes on writing after its parent was killed
/// and reaped.
fn kept_by_who_shares_the_address_space() {
    extern "C" fn write_on(word: *mut libc::c_void) -> libc::c_int {
        // SAFETY: a word of a shared page that is never unmapped.
        let word = unsafe { core::sync::atomic::AtomicU32::from_ptr(word.cast()) };
        loop {
            word.fetch_add(1, SeqCst);
        }
    }
    let (pod, shared) = (TestPod::new(), Shared::new());
    let os = pod.attach();
    let mut parent = Child::run(|| {
        let _presence = pod.attach().claim_presence(1).unwrap().unwrap();
        let stack = vec![0u128; 4096].leak();
        // SAFETY: the child runs on a stack of its own, touches one shared word, and never returns.
        let child = unsafe {
            libc::clone(
                write_on,
                stack.as_mut_ptr_range().end.cast(),
                libc::CLONE_VM,
                shared.at(2).as_ptr().cast(),
            )
        };
        shared.at(1).store(child as u32, SeqCst);
        shared.at(0).store(1, SeqCst);
        sleep_for_ever();
    });
    shared.wait(0, 1);
    let child = shared.at(1).load(SeqCst) as i32;
    assert!(child > 0, "clone failed");
    parent.kill();
    parent.reap();
    let seen = shared.at(2).load(SeqCst);
    shared.wait(2, seen.wrapping_add(1000));
    assert!(
        os.is_present(1),
        "free while a process writes in that address space"
    );
    // SAFETY: the clone is an orphan of ours.
    unsafe { libc::kill(child, libc::SIGKILL) };
    becomes("the byte is free", || !os.is_present(1));
    let last = shared.at(2).load(SeqCst);
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(
        shared.at(2).load(SeqCst),
        last,
        "written after the byte was free"
    );
}

/// Runs `body` as the process `pid` of a new PID namespace, as a child of its first process.
/// `false` if this machine does not let us.
fn in_a_namespace(shared: &Shared, body: impl FnOnce()) -> Option<Child> {
    let middle = Child::run(|| {
        // SAFETY: a call without memory.
        if unsafe { libc::unshare(libc::CLONE_NEWPID) } != 0 {
            shared.at(100).store(2, SeqCst);
            return;
        }
        // The first process of the namespace; its end ends all.
        let mut init = Child::run(|| {
            shared.at(100).store(1, SeqCst);
            let mut member = Child::run(body);
            member.reap();
        });
        init.reap();
    });
    if shared.wait(100, 1) == 2 {
        println!("skipped: no new PID namespace can be made here");
        return None;
    }
    Some(middle)
}

fn seen_from_another_pid_namespace() {
    let (pod, shared) = (TestPod::new(), Shared::new());
    let os = pod.attach();
    let outside = os.identity();
    let member = in_a_namespace(&shared, || {
        let os = pod.attach();
        assert_ne!(
            os.identity(),
            outside,
            "one operating system for two namespaces"
        );
        let _presence = os.claim_presence(1).unwrap().unwrap();
        shared.at(0).store(1, SeqCst);
        sleep_for_ever();
    });
    let Some(mut middle) = member else { return };
    shared.wait(0, 1);
    assert!(os.is_present(1));
    // Its parent's death takes the namespace along.
    middle.kill();
    middle.reap();
    becomes("the byte is free", || !os.is_present(1));
}

fn a_cord_kills_a_stopped_sibling() {
    let (pod, shared) = (TestPod::new(), Shared::new());
    let os = pod.attach();
    let member = in_a_namespace(&shared, || {
        let os = pod.attach();
        let _presence = os.claim_presence(1).unwrap().unwrap();
        let _cord = os.tie_cord(7, 1).unwrap();
        shared.at(0).store(1, SeqCst);
        // SAFETY: a call without memory. Stopped, it does nothing for its own end.
        unsafe { libc::raise(libc::SIGSTOP) };
        sleep_for_ever();
    });
    let Some(_middle) = member else { return };
    shared.wait(0, 1);
    // A sibling namespace's process pulls.
    shared.at(100).store(0, SeqCst);
    let puller = in_a_namespace(&shared, || {
        let pulled = pod.attach().pull_cord(7, 1);
        shared.at(3).store(if pulled { 1 } else { 2 }, SeqCst);
        sleep_for_ever();
    });
    let Some(_puller) = puller else { return };
    assert_eq!(shared.wait(3, 1), 1, "the cord was not pulled");
    becomes("the stopped process is gone", || !os.is_present(1));
}

fn a_cord_is_of_one_incarnation_and_ends_with_exec() {
    let (pod, shared) = (TestPod::new(), Shared::new());
    let os = pod.attach();
    assert!(!os.pull_cord(7, 1), "there is none");
    let mut child = Child::run(|| {
        let os = pod.attach();
        let _presence = os.claim_presence(1).unwrap().unwrap();
        let _cord = os.tie_cord(7, 2).unwrap();
        shared.at(0).store(1, SeqCst);
        shared.wait(1, 1);
        exec_sleep();
    });
    shared.wait(0, 1);
    let idle = Child::run(|| {
        let _cord = pod.attach().tie_cord(7, 3).unwrap();
        shared.at(2).store(1, SeqCst);
        sleep_for_ever();
    });
    shared.wait(2, 1);
    assert!(!os.pull_cord(7, 1), "another incarnation's");
    assert!(os.is_present(1));
    shared.at(1).store(1, SeqCst);
    becomes("the byte is free", || !os.is_present(1));
    until(|| !os.pull_cord(7, 2));
    std::thread::sleep(Duration::from_millis(20));
    let mut status = 0;
    for process in [&child, &idle] {
        // SAFETY: our own child; it is only observed.
        let ended = unsafe { libc::waitpid(process.pid as i32, &mut status, libc::WNOHANG) };
        assert_eq!(
            ended, 0,
            "a process was killed that is not tied to the cord"
        );
    }
    assert!(os.pull_cord(7, 3));
    idle.wait_zombie();
    // A removed cord does not exist any more.
    os.remove_cord(7, 3);
    assert!(!os.pull_cord(7, 3));
    signal(&child, libc::SIGKILL);
    child.reap();
}

fn a_cord_that_a_stranger_made_is_not_used() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root can make files of other users");
    }
    let pod = TestPod::new();
    let os = pod.attach();
    let cords = || {
        let all = Linux::cords().unwrap().into_iter();
        let ours = all.filter(|cord| cord.pod == pod.id);
        ours.map(|cord| cord.path).collect::<Vec<_>>()
    };
    let path = format!("/dev/shm/outlive.{:032x}.cord.7.1.00000000", pod.id);
    let chown = |user| std::os::unix::fs::chown(&path, Some(user), Some(user)).unwrap();
    let mode = |mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(&path, mode).unwrap();
    };
    std::fs::write(&path, "").unwrap();
    mode(0o600);
    let second = format!("{path}.second");
    // A file of another user, one that all may pull, and one that has another name somewhere.
    let unfit: [&dyn Fn(); 3] = [&|| chown(1234), &|| mode(0o666), &|| {
        std::fs::hard_link(&path, &second).unwrap();
    }];
    for make in unfit {
        make();
        drop(os.tie_cord(7, 1).unwrap());
        let mut all = cords();
        all.retain(|cord| *cord != std::path::Path::new(&path));
        assert_eq!(all.len(), 1, "it was used, or is in the way: {all:?}");
        assert!(!os.has_cord_of_another(7, 1));
        std::fs::remove_file(&all[0]).unwrap();
        chown(0);
        mode(0o600);
    }
    std::fs::remove_file(&second).unwrap();
    // One that fits is used. The first of the next incarnation removes it.
    drop(os.tie_cord(7, 1).unwrap());
    assert_eq!(cords(), [std::path::Path::new(&path)]);
    drop(os.tie_cord(7, 2).unwrap());
    assert!(!std::path::Path::new(&path).exists());
}

fn not_kept_by_a_child_that_was_forked_while_it_was_claimed() {
    fork_while(|_, os| os.claim_presence(1).unwrap().is_none());
}

fn a_cord_is_not_kept_by_a_child_that_was_forked_while_it_was_tied() {
    fork_while(|pod, os| {
        drop(os.tie_cord(7, 1).unwrap());
        let all = Linux::cords().unwrap().into_iter();
        let ours = all.filter(|cord| cord.pod == pod.id);
        let inodes: Vec<_> = ours
            .map(|cord| std::fs::metadata(&cord.path).unwrap().ino())
            .collect();
        let has_lease = |line: &str| {
            let is_of = |inode| line.contains(&format!(":{inode} "));
            line.contains(" LEASE ") && inodes.iter().any(is_of)
        };
        let locks = std::fs::read_to_string("/proc/locks").unwrap();
        locks.lines().any(has_lease)
    });
}

/// One thread forks while another one claims and frees. The children live on. `claim` returns
/// whether what it claims is not free.
fn fork_while(claim: impl Fn(&TestPod, &Linux) -> bool) {
    const FORKS: u32 = 100;
    let (pod, shared) = (TestPod::new(), Shared::new());
    Child::run(|| {
        let os = pod.attach();
        std::thread::scope(|scope| {
            let forking = scope.spawn(|| {
                let mut children = Vec::new();
                while shared.at(0).load(SeqCst) < FORKS {
                    // SAFETY: the child makes system calls only.
                    match unsafe { libc::fork() } {
                        0 => sleep_for_ever(),
                        child => children.push(child),
                    }
                    shared.at(0).fetch_add(1, SeqCst);
                    nap();
                }
                shared.wait(1, 1);
                for child in children {
                    // SAFETY: our own child, which is reaped right after.
                    unsafe { libc::kill(child, libc::SIGKILL) };
                    // SAFETY: as above; its status is not needed.
                    unsafe { libc::waitpid(child, core::ptr::null_mut(), 0) };
                }
            });
            let mut was_kept = false;
            while shared.at(0).load(SeqCst) < FORKS && !was_kept {
                was_kept = claim(&pod, os);
            }
            shared.at(0).store(FORKS, SeqCst);
            shared.at(1).store(1, SeqCst);
            forking.join().unwrap();
            assert!(!was_kept, "a forked child keeps it");
        });
    })
    .succeed();
}

fn freed_at_once_though_a_fork_has_the_descriptor() {
    let pod = TestPod::new();
    let os = pod.attach();
    let held = os.claim_presence_briefly(3).unwrap().expect("it is free");
    assert!(os.is_present(3));
    let _child = Child::run(|| sleep_for_ever());
    drop(held);
    assert!(!os.is_present(3), "a forked child keeps it");
}
