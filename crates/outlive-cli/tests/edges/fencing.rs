//! Permissions to kill: the first process of a container, users of a group, hosts by a fence
//! command.

use super::A_WHILE;
use super::support::edge::*;
use super::support::{Place, Running, command, outlive};
use outlive::host::Cgroup;
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A container with a member as its first process, which cannot be killed by a sibling, nor from
/// inside.
#[test]
fn the_first_process_of_a_container_is_fenced_by_its_control_group() {
    if !can_contain(&CONTAINER) {
        return;
    }
    let name = format!("outlive-test-{}-1", std::process::id());
    let group = match Cgroup::create(&name) {
        Ok(group) => group,
        Err(error) => return println!("skipped: {error}"),
    };
    let pattern = group
        .path()
        .to_str()
        .unwrap()
        .strip_suffix('1')
        .unwrap()
        .to_owned()
        + "{host}";
    let program = command(["x"; 0]).get_program().to_str().unwrap().to_owned();
    let fence = format!("{program} pod fence-cgroup {pattern}");
    let place = Place::new("cgroup");
    let path = place.path();
    let create = ["pod", "create", path, "--size", "4M", "--ids", "32"];
    outlive(create.into_iter().chain(["--fence-command", &fence])).succeeds();
    let mut watcher = Running::start([
        "pod",
        "host",
        path,
        "--host",
        "0",
        "--fence-command",
        &fence,
    ]);
    watcher.wait_for(&["joined"]);
    let mut first = Command::new("unshare");
    first
        .args(CONTAINER)
        .args(["--fork", "--kill-child", &program, "pod", "host", path])
        .args(["--host", "1", "--name=--help", "--fence-command", &fence]);
    let mut first = Running::of(first);
    first.wait_for(&["joined"]);
    let pids = processes(&fence);
    let pids: Vec<_> = pids.into_iter().filter(|pid| is_first(*pid)).collect();
    let [pid] = pids[..] else { panic!("{pids:?}") };
    group.add(pid).unwrap();
    signal(pid, Signal::STOP);
    watcher.wait_for(&["host 1.1", "fenced"]);
    assert_eq!(host(path, 1).map(|(generation, _)| generation), Some(2));
    assert!(group.is_empty().unwrap());
    // A group that is not the host's or does not exist is an error, and nothing is fenced.
    outlive([
        "pod",
        "fence-cgroup",
        group.path().to_str().unwrap(),
        "1",
        "--help",
    ])
    .fails(2, "{host}");
    outlive(["pod", "fence-cgroup", &pattern, "2", "--help"]).fails(1, "opening cgroup");
    // An empty group: whether the host was in it is not known.
    outlive(["pod", "fence-cgroup", &pattern, "1", "--help"]).fails(1, "is empty");
    let directory = tempfile::tempdir().unwrap();
    let plain = directory.path().join("host-1");
    fs::create_dir(&plain).unwrap();
    for (file, text) in [("cgroup.kill", ""), ("cgroup.events", "populated 0\n")] {
        fs::write(plain.join(file), text).unwrap();
    }
    let plain = format!("{}/host-{{host}}", directory.path().display());
    outlive(["pod", "fence-cgroup", &plain, "1", "--help"])
        .fails(1, "not on a cgroup v2 filesystem");
    watcher.interrupt();
    watcher.ends();
    first.kill();
    within(A_WHILE, "the group is removed", || group.remove().is_ok());
}

/// Returns whether the process is the first of a PID namespace below this one.
fn is_first(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let numbers = status.lines().find(|line| line.starts_with("NSpid:"));
    numbers.is_some_and(|line| line.ends_with("\t1"))
}

#[test]
fn users_of_a_group_share_a_pod_and_a_stopped_one_is_killed_by_another() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root can become other users");
    }
    const ALICE: u32 = 61_001;
    const BOB: u32 = 61_002;
    let by = |user: u32, arguments: &[&str]| {
        let mut command = command(arguments);
        command.uid(user).gid(61_100);
        command
    };
    let place = Place::new("users");
    let path = place.path();
    let create = [
        "pod", "create", path, "--size", "4M", "--ids", "32", "--mode", "660",
    ];
    assert!(by(ALICE, &create).output().unwrap().status.success());
    let uuid = status(path)["uuid"].as_str().unwrap().replace('-', "");
    let hosts = ["0", "1"].map(|id| ["pod", "host", path, "--host", id]);
    let mut alice = Running::of(by(ALICE, &hosts[0]));
    alice.wait_for(&["joined"]);
    let mut bob = Running::of(by(BOB, &hosts[1]));
    bob.wait_for(&["joined"]);
    // On another user's host, he has a cord of his own.
    let mut guest = Running::of(by(BOB, &hosts[0]));
    guest.wait_for(&["joined"]);
    guest.interrupt();
    guest.ends();
    std::thread::sleep(A_WHILE);
    assert_eq!(
        (host(path, 0), host(path, 1)),
        (Some((1, true)), Some((1, true)))
    );
    let stop = |id: u32| {
        let pids = processes(&format!("{path} --host {id}"));
        let [pid] = pids[..] else { panic!("{pids:?}") };
        signal(pid, Signal::STOP);
    };
    stop(1);
    alice.wait_for(&["host 1.1", "fenced"]);
    let named = ["--name", "bob\u{1b}[2J"];
    let mut bob = Running::of(by(BOB, &[&hosts[1][..], &named].concat()));
    bob.wait_for(&["host 1.3", "joined"]);
    // A name chosen by another user cannot control a terminal.
    let shown = outlive(["pod", "status", path]).succeeds();
    let is_safe = shown.contains("bob") && !shown.contains('\u{1b}');
    assert!(is_safe, "{shown}");
    stop(0);
    bob.wait_for(&["host 0.1", "fenced"]);
    assert_eq!(host(path, 0).map(|(generation, _)| generation), Some(2));
    // A worker reads the files that the pod names, so it refuses another user's pod.
    let worker = by(BOB, &["worker", "--pod", path]).output().unwrap();
    let errors = String::from_utf8_lossy(&worker.stderr);
    assert!(
        !worker.status.success() && errors.contains("belongs to user 61001"),
        "{errors}"
    );
    // A user outside the group cannot even look.
    let mut stranger = command(hosts[1]);
    stranger.uid(61_003).gid(61_003);
    assert!(!stranger.output().unwrap().status.success());
    // Alice cannot remove his cord, whose directory has the sticky bit, and says so; he can.
    bob.kill();
    let mut destroy = by(ALICE, &["pod", "destroy", path]);
    let destroyed = destroy.env("RUST_LOG", "warn").output().unwrap();
    let errors = String::from_utf8_lossy(&destroyed.stderr);
    assert!(
        destroyed.status.success() && errors.contains(".cord.1.3"),
        "{errors}"
    );
    let cleaned = by(BOB, &["pod", "clean", "--remove", "--json"])
        .output()
        .unwrap();
    let cleaned: Value = serde_json::from_slice(&cleaned.stdout).unwrap();
    let is_cord = |kept: &&Value| {
        kept["path"]
            .as_str()
            .is_some_and(|path| path.contains(&uuid))
    };
    let kept: Vec<_> = cleaned.as_array().unwrap().iter().filter(is_cord).collect();
    assert!(kept.len() == 1 && kept[0]["removed"] == true, "{kept:?}");
}

#[test]
fn the_fence_command_comes_from_who_joins() {
    let place = Place::new("fence");
    let path = place.path();
    let create = ["pod", "create", path, "--size", "4M", "--ids", "16"];
    outlive(
        create
            .into_iter()
            .chain(["--fence-command", "/bin/false now"]),
    )
    .succeeds();
    let raw = fs::read(path).unwrap();
    let text = b"/bin/false";
    assert!(
        !raw.windows(text.len()).any(|window| window == text),
        "the command is stored in the pod"
    );
    let join = ["pod", "host", path, "--host", "0"];
    outlive(join).fails(1, "OUTLIVE_FENCE_COMMAND");
    let other = ["--fence-command", "/bin/true"];
    outlive(join.into_iter().chain(other))
        .fails(1, "differs from the command that the pod was created with");
    let mut given = Running::start(
        join.into_iter()
            .chain(["--fence-command", "/bin/false now"]),
    );
    given.wait_for(&["joined"]);
    given.interrupt();
    given.ends();
    let mut by_environment = command(join);
    by_environment.env("OUTLIVE_FENCE_COMMAND", "/bin/false now");
    let mut by_environment = Running::of(by_environment);
    by_environment.wait_for(&["joined"]);
    by_environment.interrupt();
    by_environment.ends();
    let plain = Place::new("fenceless");
    outlive(["pod", "create", plain.path(), "--size", "4M", "--ids", "16"]).succeeds();
    let join = [
        "pod",
        "host",
        plain.path(),
        "--host",
        "0",
        "--fence-command",
        "/bin/true",
    ];
    outlive(join).fails(1, "was created without one");
}

#[test]
fn the_operators_word_is_not_taken_against_evidence() {
    let place = Place::new("bury");
    let path = place.path();
    create(path);
    let unsure = ["pod", "bury", path, "--host", "0"];
    outlive(unsure).fails(1, "not a host that is up");
    let sure = |host| ["pod", "bury", path, "--host", host, "--yes-it-is-off"];
    outlive(sure("0")).fails(1, "not a host that is up");
    let mut running = Running::start(["pod", "host", path, "--host", "0"]);
    running.wait_for(&["joined"]);
    outlive(unsure).fails(2, "--yes-it-is-off");
    outlive(sure("0")).fails(1, &format!("pid {}", running.id()));
    running.kill();
    // A dead host may be declared dead.
    let said = outlive(sure("0")).succeeds();
    assert!(said.contains("host 0.1 counts as dead"), "{said}");
    assert_eq!(host(path, 0).map(|(generation, _)| generation), Some(2));
    // The id is joined again: the word is not taken about the new host, nor about a thread.
    let mut running = Running::start(["pod", "host", path, "--host", "0"]);
    running.wait_for(&["host 0.3", "joined"]);
    outlive(sure("0")).fails(1, &format!("pid {}", running.id()));
    running.kill();
    outlive(sure("0")).succeeds();
    let others = ["pod", "host", path, "--host", "1", "--threads", "30"];
    let mut others = Running::start(others);
    others.wait_for(&["host 1.1", "joined"]);
    within(A_WHILE * 4, "a thread has the id", || {
        let status = status(path);
        let mut members = status["members"].as_array().unwrap().iter();
        members.any(|member| member["id"] == 0 && member["level"] == "thread")
    });
    outlive(sure("0")).fails(
        1,
        "id 0 is not a host that is up: thread, generation 5, live",
    );
    others.kill();
    outlive(["pod", "check", path]).succeeds();
}

#[test]
fn all_users_share_a_pod_of_mode_666_and_a_stopped_one_is_killed_by_another() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root can become other users");
    }
    let by = |user: u32, arguments: &[&str]| {
        let mut command = command(arguments);
        command.uid(user).gid(user);
        command
    };
    let place = Place::new("all-users");
    let path = place.path();
    let create = [
        "pod", "create", path, "--size", "4M", "--ids", "32", "--mode", "666",
    ];
    assert!(by(61_001, &create).output().unwrap().status.success());
    let host_of = |id| ["pod", "host", path, "--host", id];
    let mut first = Running::of(by(61_001, &host_of("0")));
    first.wait_for(&["joined"]);
    let mut second = Running::of(by(61_002, &host_of("1")));
    second.wait_for(&["joined"]);
    let pids = processes(&format!("{path} --host 1"));
    let [pid] = pids[..] else { panic!("{pids:?}") };
    signal(pid, Signal::STOP);
    first.wait_for(&["host 1.1", "fenced"]);
    assert_eq!(host(path, 1).map(|(generation, _)| generation), Some(2));
    // Its work is recovered; another user takes its place.
    let mut third = Running::of(by(61_003, &host_of("1")));
    third.wait_for(&["host 1.3", "joined"]);
    third.interrupt();
    third.ends();
    first.kill();
    // The directory has the sticky bit.
    let destroy = ["pod", "destroy", path];
    let destroyed = by(61_003, &destroy).output().unwrap();
    assert!(!destroyed.status.success() && fs::exists(path).unwrap());
    let destroyed = by(61_001, &destroy).output().unwrap();
    assert!(destroyed.status.success() && !fs::exists(path).unwrap());
}
