//! The interface to the operating system: containers of one kernel, restarts, copies, files that
//! are removed. Tests that need root are skipped with a message without it.

mod cleaning;
mod fencing;
#[path = "../support/mod.rs"]
mod support;

use outlive::host::Linux;
use outlive::pod::Pod;
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use support::edge::*;
use support::{Place, Running, command, outlive};

/// Longer than the suspicion time: a host that is taken for dead would be fenced by then.
const A_WHILE: Duration = Duration::from_millis(2600);

#[test]
fn a_container_that_was_killed_comes_back_with_another_pid_namespace() {
    if !can_contain(&CONTAINER) {
        return;
    }
    let place = Place::new("again");
    let path = place.path();
    create(path);
    let arguments = ["pod", "host", path, "--host", "0"];
    for round in 0..3 {
        let mut container = Running::of(contained(&CONTAINER, "", &arguments));
        container.wait_for(&["host 0.", "joined"]);
        assert_eq!(host(path, 0), Some((1 + 2 * round, true)));
        container.kill();
        within(A_WHILE, "the host is gone", || {
            host(path, 0).is_some_and(|(_, there)| !there)
        });
    }
    // And outside of any container.
    let mut last = Running::start(arguments);
    last.wait_for(&["joined"]);
    last.interrupt();
    last.ends();
    let left: Vec<_> = Linux::side_files().unwrap();
    let of_pod = left
        .iter()
        .filter(|file| Some(file.pod) == outlive::pod::Pod::number_at(path));
    assert!(of_pod.count() <= 1, "side files of dead containers stay");
}

#[test]
fn containers_share_a_pod_and_a_stopped_one_is_killed_from_a_sibling() {
    if !can_contain(&CONTAINER) {
        return;
    }
    let place = Place::new("siblings");
    let path = place.path();
    create(path);
    let hosts = ["0", "1"].map(|id| ["pod", "host", path, "--host", id]);
    let mut watcher = Running::of(contained(&CONTAINER, "", &hosts[0]));
    watcher.wait_for(&["joined"]);
    let mut stopped = Running::of(contained(&CONTAINER, "", &hosts[1]));
    stopped.wait_for(&["joined"]);
    std::thread::sleep(A_WHILE);
    assert_eq!(
        (host(path, 0), host(path, 1)),
        (Some((1, true)), Some((1, true)))
    );
    let pids = processes(&format!("{path} --host 1"));
    let [pid] = pids[..] else { panic!("{pids:?}") };
    signal(pid, Signal::STOP);
    watcher.wait_for(&["host 1.1", "fenced"]);
    assert_eq!(host(path, 1).map(|(generation, _)| generation), Some(2));
    assert!(
        processes(&format!("{path} --host 1")).is_empty(),
        "it was not killed"
    );
    assert_eq!(host(path, 0), Some((1, true)));
}

#[test]
fn the_first_process_of_a_container_is_refused_with_the_line_to_add() {
    if !can_contain(&CONTAINER) {
        return;
    }
    let place = Place::new("init");
    let path = place.path();
    let uuid = create(path);
    let mut first = Command::new("unshare");
    first.args(CONTAINER).args(["--fork", "--kill-child"]);
    first
        .arg(command(["x"; 0]).get_program())
        .args(["pod", "host", path, "--host", "0"]);
    let ended = first.output().unwrap();
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(
        !ended.status.success() && errors.contains("docker run --init"),
        "{errors}"
    );
    // A refused join leaves nothing.
    let left = fs::read_dir("/dev/shm").unwrap().flatten();
    let left: Vec<_> = left
        .map(|file| file.file_name().to_string_lossy().into_owned())
        .filter(|name| name.contains(&uuid))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_foreign_proc_is_not_believed() {
    // The parent's /proc, where the pid of the member is another process's.
    if !can_contain(&["--pid"]) {
        return;
    }
    let place = Place::new("proc");
    let path = place.path();
    create(path);
    let mut container = Running::of(contained(
        &["--pid"],
        "",
        &["pod", "host", path, "--host", "0"],
    ));
    container.wait_for(&["joined"]);
    let mut outside = Running::start(["pod", "host", path, "--host", "1"]);
    outside.wait_for(&["joined"]);
    std::thread::sleep(A_WHILE);
    assert_eq!(
        (host(path, 0), host(path, 1)),
        (Some((1, true)), Some((1, true)))
    );
    container.kill();
    // By evidence from the kernel, and not by silence.
    let told = outside.wait_for(&["host 0.1 (host 0) died"]);
    assert!(!told.contains("fenced"), "{told}");
    outside.interrupt();
    outside.ends();
}

#[test]
fn a_file_and_the_overlay_above_it_have_one_memory_and_two_kinds_of_locks() {
    let Some(overlay) = Overlay::mounted("kinds") else {
        return;
    };
    let at = |name: &str| overlay.at(name);
    let (above, below) = (at("merged/pod"), at("upper/pod"));
    create(&above);
    let mut first = Running::start(["pod", "host", &above, "--host", "0"]);
    first.wait_for(&["joined"]);
    // Through the layer below, its lock is not visible, which proves nothing.
    for id in ["0", "1"] {
        outlive(["pod", "host", &below, "--host", id]).fails(1, "fence command");
    }
    let mut second = Running::start(["pod", "host", &above, "--host", "1"]);
    second.wait_for(&["joined"]);
    std::thread::sleep(A_WHILE);
    for id in [0, 1] {
        let now = host(&above, id);
        assert_eq!(
            now,
            Some((1, true)),
            "host {id} lives and was declared dead"
        );
    }
    // A copy is recognised there too.
    let copy = at("merged/copy");
    fs::copy(&above, &copy).unwrap();
    outlive(["pod", "host", &copy, "--host", "0"]).fails(1, "--adopt-copy");
    fs::remove_file(&copy).unwrap();
    // The pod's side file shows that a process of this machine lives. Without it, an operator's
    // confirmation is refused while a process has the pod open.
    let uuid = status(&above)["uuid"].as_str().unwrap().replace('-', "");
    for file in fs::read_dir("/dev/shm").unwrap().flatten() {
        if file.file_name().to_string_lossy().contains(&uuid) {
            fs::remove_file(file.path()).unwrap();
        }
    }
    let bury = ["pod", "bury", &above, "--host", "1", "--yes-it-is-off"];
    outlive(bury).fails(1, "which may be one of the host's");
    let from_below = ["pod", "bury", &below, "--host", "1", "--yes-it-is-off"];
    outlive(from_below).fails(1, "by another file");
    second.kill();
    first.wait_for(&["host 1.1 (host 1) died"]);
    first.interrupt();
    first.ends();
    // The only process dies, and the side file, which would prove it, goes with its /dev/shm.
    let program = command(["x"; 0]).get_program().to_owned();
    let mut alone = Command::new("unshare");
    alone
        .args([
            "-m",
            "sh",
            "-c",
            "mount -t tmpfs s /dev/shm && exec \"$0\" pod host \"$1\" --host 2",
        ])
        .arg(program)
        .arg(&above);
    let mut alone = Running::of(alone);
    alone.wait_for(&["joined"]);
    let bury = ["pod", "bury", &above, "--host", "2", "--yes-it-is-off"];
    outlive(bury).fails(1, "which may be one of the host's");
    alone.kill();
    outlive(["pod", "host", &above, "--host", "3"]).fails(1, "outlive pod bury");
    outlive(bury).succeeds();
    let mut next = Running::start(["pod", "host", &above, "--host", "3"]);
    next.wait_for(&["joined"]);
    next.interrupt();
    next.ends();
    outlive(["pod", "destroy", &above]).succeeds();
}

/// The file below is no copy of the file above, although the kernel gives it another number: the
/// two are one memory. An adoption would rename the pod under its members.
#[test]
fn the_file_below_an_overlay_is_not_adopted_while_a_host_beats_above() {
    let fill = |lower: &str| drop(create(&format!("{lower}/pod")));
    let Some(overlay) = Overlay::over("adopt", fill) else {
        return;
    };
    let (above, below) = (overlay.at("merged/pod"), overlay.at("upper/pod"));
    let adopt = |path, host| ["pod", "host", path, "--host", host, "--adopt-copy"];
    let mut first = Running::start(adopt(&above, "0"));
    first.wait_for(&["joined"]);
    outlive(adopt(&below, "1")).fails(1, "it is not a copy: host 0 is alive in it");
    outlive(["pod", "create", &below, "--replace"])
        .fails(1, "the heartbeat of host 0 continues in it");
    // The locks of its processes are on the other file.
    assert!(Pod::open(&below).unwrap().is_present(0).unwrap());
    // Nothing has changed for others.
    let mut second = Running::start(["pod", "host", &above, "--host", "2"]);
    second.wait_for(&["joined"]);
    for mut host in [first, second] {
        host.interrupt();
        host.ends();
    }
    outlive(["pod", "destroy", &above]).succeeds();
}

/// A mounted overlay, in a directory of its own.
struct Overlay {
    base: PathBuf,
}

impl Overlay {
    /// Mounts an empty one. Returns `None` where that is not possible.
    fn mounted(name: &str) -> Option<Self> {
        Self::over(name, |_| ())
    }

    /// Mounts one over the directory that `fill` has filled.
    fn over(name: &str, fill: impl FnOnce(&str)) -> Option<Self> {
        let name = format!("outlive-overlay-{name}-{}", std::process::id());
        let overlay = Self {
            base: std::env::temp_dir().join(name),
        };
        let at = |name: &str| overlay.at(name);
        for name in ["lower", "upper", "work", "merged"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        fill(&at("lower"));
        let layers = format!(
            "lowerdir={},upperdir={},workdir={}",
            at("lower"),
            at("upper"),
            at("work")
        );
        let mount = Command::new("mount")
            .args(["-t", "overlay", "overlay", "-o", &layers, &at("merged")])
            .output();
        if mount.is_ok_and(|mount| mount.status.success()) {
            return Some(overlay);
        }
        println!("skipped: an overlay cannot be mounted here (needs root)");
        None
    }

    fn at(&self, name: &str) -> String {
        self.base.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.at("merged")).output();
        fs::remove_dir_all(&self.base).unwrap();
    }
}

#[test]
fn places_with_a_shm_or_a_time_of_their_own_are_told_apart() {
    let place = Place::new("places");
    let directory = std::env::temp_dir().join(format!("outlive-edges-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let path = directory.join("pod");
    let path = path.to_str().unwrap();
    create(path);
    let own_shm = "mount -t tmpfs tmpfs /dev/shm";
    let containers: [(&[&str], &str); 2] = [
        (&["--mount"], own_shm),
        (&["--time", "--boottime", "100000"], ""),
    ];
    let mut running = Vec::new();
    for (id, (unshare, before)) in containers.into_iter().enumerate() {
        if can_contain(unshare) {
            let id = id.to_string();
            let arguments = ["pod", "host", path, "--host", &id];
            let mut host = Running::of(contained(unshare, before, &arguments));
            host.wait_for(&["joined"]);
            running.push((id.parse().unwrap(), host));
        }
    }
    let mut outside = Running::start(["pod", "host", path, "--host", "9"]);
    outside.wait_for(&["joined"]);
    std::thread::sleep(A_WHILE);
    for (id, _) in &running {
        assert_eq!(host(path, *id), Some((1, true)), "host {id}");
    }
    assert_eq!(host(path, 9), Some((1, true)));
    for (id, mut host_) in running {
        // Kills its process: this container has no PID namespace that would end with its first one.
        for pid in processes(&format!("{path} --host {id}")) {
            signal(pid, Signal::KILL);
        }
        host_.kill();
        within(A_WHILE, "its death is noticed", || {
            host(path, id).is_some_and(|(generation, _)| generation == 2)
        });
    }
    outside.interrupt();
    outside.ends();
    outlive(["pod", "destroy", path]).succeeds();
    fs::remove_dir_all(&directory).unwrap();
    drop(place);
}

#[test]
fn removed_side_files_lose_no_pod() {
    let directory = std::env::temp_dir().join(format!("outlive-removed-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let path = directory.join("pod");
    let path = path.to_str().unwrap();
    create(path);
    let arguments = ["pod", "host", path, "--host", "0"];
    let side_files = || -> Vec<_> {
        let number = outlive::pod::Pod::number_at(path);
        let all = Linux::side_files().unwrap().into_iter();
        all.filter(|file| Some(file.pod) == number).collect()
    };
    // A pod that `clean` does not find, after all of its processes were killed.
    let mut host = Running::start(arguments);
    host.wait_for(&["joined"]);
    host.kill();
    for file in side_files() {
        file.remove().unwrap();
    }
    let mut host = Running::start(arguments);
    host.wait_for(&["host 0.3 joined"]);
    // Removed while in use, as by `rm` or when a user logs out.
    for file in side_files() {
        fs::remove_file(&file.path).unwrap();
    }
    let busy = outlive(arguments);
    busy.fails(1, "in use");
    let mut other = Running::start(["pod", "host", path, "--host", "1"]);
    other.wait_for(&["joined"]);
    host.kill();
    other.wait_for(&["host 0.3 (host 0) died"]);
    let mut host = Running::start(arguments);
    host.wait_for(&["host 0.5 joined"]);
    host.interrupt();
    host.ends();
    other.interrupt();
    other.ends();
    outlive(["pod", "destroy", path]).succeeds();
    assert!(side_files().is_empty());
    assert_eq!(
        fs::read_dir(&directory).unwrap().count(),
        0,
        "something stays beside the pod"
    );
    fs::remove_dir(&directory).unwrap();
}

#[test]
fn a_copy_is_joined_to_adopt_it_only() {
    let place = Place::new("original");
    let copied = Place::new("copied");
    let (path, copy) = (place.path(), copied.path());
    // A fence command that leaves a trace.
    let (script, trace) = (format!("{path}.sh"), format!("{path}.fenced"));
    fs::write(&script, format!("#!/bin/sh\ntouch {trace}\nexit 1\n")).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let with = ["--fence-command", &script];
    let create = ["pod", "create", path, "--size", "4M", "--ids", "32"];
    outlive(create.into_iter().chain(with)).succeeds();
    let join = |path| ["pod", "host", path, "--host", "0"].into_iter().chain(with);
    let mut original = Running::start(join(path));
    original.wait_for(&["joined"]);
    fs::copy(path, copy).unwrap();
    outlive(join(copy)).fails(1, "--adopt-copy");
    outlive(["pod", "check", copy, "--repair"]).fails(1, "--adopt-copy");
    // The files of the original pod are not the copy's to remove.
    let beside = || {
        let number = format!("{:032x}", outlive::pod::Pod::number_at(path).unwrap());
        let all = fs::read_dir("/dev/shm").unwrap().flatten();
        all.filter(|file| file.file_name().to_string_lossy().contains(&number))
            .count()
    };
    let before = beside();
    outlive(["pod", "destroy", copy, "--force"]).succeeds();
    assert_eq!((beside(), before), (2, 2));
    fs::copy(path, copy).unwrap();
    let mut adopted = Running::start(join(copy).chain(["--adopt-copy"]));
    adopted.wait_for(&["host 0.3 joined"]);
    std::thread::sleep(A_WHILE);
    assert_eq!(host(path, 0), Some((1, true)));
    // From now on it is an ordinary pod.
    adopted.interrupt();
    adopted.ends();
    let mut again = Running::start(join(copy));
    again.wait_for(&["joined"]);
    again.interrupt();
    again.ends();
    assert_eq!(host(path, 0), Some((1, true)));
    original.interrupt();
    original.ends();
    assert!(!Path::new(&trace).exists(), "a host was fenced");
    fs::remove_file(script).unwrap();
}

#[test]
fn a_pipe_with_the_name_of_a_side_file_holds_nothing_up() {
    let place = Place::new("pipe");
    let path = place.path();
    let uuid = create(path);
    let pipe = format!("/dev/shm/outlive.{uuid}.{:032x}.{:016x}", 7, 7);
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    outlive(["pod", "clean"]).succeeds();
    let mut host = Running::start(["pod", "host", path, "--host", "0"]);
    host.wait_for(&["joined"]);
    host.interrupt();
    host.ends();
    outlive(["pod", "destroy", path]).succeeds();
    assert!(Path::new(&pipe).exists(), "what is not ours was removed");
    fs::remove_file(&pipe).unwrap();
}
