//! Cgroups that hold a host, core dumps, and the probe, with real processes.

mod host_support;

use host_support::{Child, Shared, run, sleep_for_ever, until};
use outlive::host::{Capabilities, Cgroup, CoreDumps, OsError, run_fence_command};
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
        // A double fork: the parent of the process that stays is gone, which no walk over parents finds.
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
