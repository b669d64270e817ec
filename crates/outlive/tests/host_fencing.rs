//! Cgroups that hold a host, core dumps, and the probe, with real processes.

mod host_support;

use host_support::{Child, Shared, run, sleep_for_ever, until};
use outlive::host::{Capabilities, Cgroup, CoreDumps, FenceError, OsError, run_fence_command};
use std::process::ExitCode;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    run(&[
        (
            "a_killed_cgroup_leaves_no_orphan",
            a_killed_cgroup_leaves_no_orphan,
        ),
        (
            "a_fence_command_dies_with_its_caller",
            a_fence_command_dies_with_its_caller,
        ),
        (
            "a_fence_command_is_heard_by_a_program_that_ignores_its_children",
            a_fence_command_is_heard_by_a_program_that_ignores_its_children,
        ),
        (
            "a_fence_command_is_heard_by_a_program_that_reaps_all_its_children",
            a_fence_command_is_heard_by_a_program_that_reaps_all_its_children,
        ),
        (
            "a_fence_command_whose_descriptors_are_closed_has_failed",
            a_fence_command_whose_descriptors_are_closed_has_failed,
        ),
        (
            "core_dumps_can_be_switched_off",
            core_dumps_can_be_switched_off,
        ),
        ("the_probe_changes_nothing", the_probe_changes_nothing),
    ])
}

fn a_killed_cgroup_leaves_no_orphan() {
    let name = format!("outlive.test.{}", std::process::id());
    let group = match Cgroup::create(&name) {
        Ok(group) => group,
        Err(error @ OsError::Missing { .. }) => return println!("skipped: {error}"),
        Err(error) => panic!("{error}"),
    };
    let shared = Shared::new();
    let mut child = Child::run(|| {
        shared.wait(0, 1);
        // A double fork: the remaining process has lost its parent, so a walk over parents does not
        // find it.
        let middle = Child::run(|| {
            // SAFETY: this process has one thread.
            if unsafe { libc::fork() } == 0 {
                loop {
                    shared.at(1).fetch_add(1, SeqCst);
                }
            }
        });
        middle.succeed();
        sleep_for_ever();
    });
    assert!(group.is_empty().unwrap());
    group.add(child.pid).unwrap();
    shared.at(0).store(1, SeqCst);
    shared.wait(1, 1);
    assert!(!group.is_empty().unwrap());
    assert!(!group.wait_empty(Duration::from_millis(20)).unwrap());
    assert!(group.remove().is_err(), "it is in use");
    let other = Cgroup::open(group.path()).unwrap();
    other.kill().unwrap();
    assert!(other.wait_empty(Duration::from_secs(60)).unwrap());
    child.reap();
    let count = shared.at(1).load(SeqCst);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(shared.at(1).load(SeqCst), count, "the orphan lives");
    assert!(group.remove().unwrap());
    assert!(!group.remove().unwrap());
}

fn a_fence_command_dies_with_its_caller() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let script = format!("echo $$ > {path}; exec sleep 1000");
    let command = ["sh", "-c", &script, "sh"].map(Into::into);
    let mut caller = Child::run(|| {
        let _ = run_fence_command(&command, 7, "blue", Duration::from_secs(1000));
    });
    let pid = || -> Option<u32> { std::fs::read_to_string(path).ok()?.trim().parse().ok() };
    until(|| pid().is_some());
    let pid = pid().unwrap();
    caller.kill();
    caller.reap();
    // Gone, or a zombie that its new parent has yet to reap.
    let is_dead = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.map_or(true, |stat| stat.contains(") Z "))
    };
    let late = Instant::now() + Duration::from_secs(20);
    until(|| is_dead() || Instant::now() > late);
    let has_died = is_dead();
    if !has_died {
        // SAFETY: the program was started above and lives, so its pid is its own.
        unsafe { libc::kill(pid as i32, libc::SIGKILL) };
    }
    assert!(has_died, "the fence command lives on");
}

fn fence(script: &str) -> Result<(), FenceError> {
    let command = ["sh", "-c", script, "sh"].map(Into::into);
    run_fence_command(&command, 7, "blue", Duration::from_secs(60))
}

/// Then the kernel discards the status of each child.
fn a_fence_command_is_heard_by_a_program_that_ignores_its_children() {
    let child = Child::run(|| {
        // SAFETY: the action has no handler.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
        fence("exit 0").unwrap();
        let failed = fence("exit 1").unwrap_err();
        assert!(matches!(failed, FenceError::Failed { .. }), "{failed}");
    });
    child.succeed();
}

/// As supervisors do, by a thread and by a handler.
fn a_fence_command_is_heard_by_a_program_that_reaps_all_its_children() {
    extern "C" fn reap(_: libc::c_int) {
        // SAFETY: the call takes an address that it may write to.
        while unsafe { libc::waitpid(-1, &mut 0, libc::WNOHANG) } > 0 {}
    }
    let child = Child::run(|| {
        let reap = reap as extern "C" fn(libc::c_int);
        // SAFETY: the handler is async-signal-safe.
        unsafe { libc::signal(libc::SIGCHLD, reap as *const () as usize) };
        std::thread::spawn(move || {
            loop {
                reap(0);
                std::thread::yield_now();
            }
        });
        for _ in 0..100 {
            let failed = fence("exit 1").unwrap_err();
            assert!(matches!(failed, FenceError::Failed { .. }), "{failed}");
            fence("exit 0").unwrap();
        }
    });
    child.succeed();
}

/// As daemons do. The status is lost, and no other process's is taken for it.
fn a_fence_command_whose_descriptors_are_closed_has_failed() {
    let child = Child::run(|| {
        let fencing = std::thread::spawn(|| fence("sleep 0.5; exit 1"));
        std::thread::sleep(Duration::from_millis(200));
        // SAFETY: closes the descriptors of the call above too, which is what this test is about.
        unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
        // Others, which are readable, and the pidfds of children that have succeeded.
        let mut others = Vec::new();
        for _ in 0..8 {
            others.push(std::fs::File::open("/dev/zero").unwrap());
            let child = Child::run(|| ());
            let pid = rustix::process::Pid::from_raw(child.pid as i32).unwrap();
            let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty());
            others.push(pidfd.unwrap().into());
        }
        let failed = fencing.join().unwrap().unwrap_err();
        assert!(failed.to_string().contains("was lost"), "{failed}");
        // Their numbers were those of the call, which has closed them.
        std::mem::forget(others);
    });
    child.succeed();
}

fn core_dumps_can_be_switched_off() {
    let mut child = Child::run(|| {
        CoreDumps::switch_off().unwrap();
        let now = CoreDumps::of_this_process();
        let socket = matches!(&now, CoreDumps::Handled { handler } if handler.starts_with('@'));
        assert!(now == CoreDumps::Off || socket, "{now}");
        // SAFETY: ends this process by a signal that dumps.
        unsafe {
            libc::signal(libc::SIGQUIT, libc::SIG_DFL);
            libc::raise(libc::SIGQUIT);
        }
    });
    let status = child.reap();
    assert!(libc::WIFSIGNALED(status), "{status:#x}");
    assert!(!libc::WCOREDUMP(status), "it was dumped");
}

fn the_probe_changes_nothing() {
    let before = CoreDumps::of_this_process();
    let capabilities = Capabilities::probe();
    println!("{capabilities}");
    assert!(capabilities.enough());
    assert_eq!(CoreDumps::of_this_process(), before);
    for one in capabilities.missing() {
        let text = capabilities.to_string();
        assert!(text.contains(one.name) && text.contains(one.cost));
    }
}
