//! The edge of the operating system, as a user meets it: containers of one kernel, restarts, copies, files that are removed.
//! What needs root is skipped with a message where it is not to be had.

mod support;

use outlive::host::Linux;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use support::{Place, Running, command, outlive};

/// Longer than the suspicion time, after which a host that is taken for dead would be.
const A_WHILE: Duration = Duration::from_millis(2600);

/// What makes a container of a command: new namespaces, in which a shell is the first process.
fn contained(unshare: &[&str], before: &str, arguments: &[&str]) -> Command {
    let mut container = Command::new("unshare");
    container
        .args(unshare)
        .args(["--fork", "--kill-child", "sh", "-c"])
        .arg(format!("{before}\n\"$@\"; exit $?"))
        .arg("sh")
        .arg(command(["x"; 0]).get_program())
        .args(arguments)
        .env_remove("RUST_LOG")
        .env("RUST_BACKTRACE", "0");
    container
}

const CONTAINER: [&str; 2] = ["--pid", "--mount-proc"];

/// Whether containers can be made here.
fn can_contain(unshare: &[&str]) -> bool {
    let made = Command::new("unshare")
        .args(unshare)
        .args(["--fork", "true"])
        .output();
    let can = made.is_ok_and(|made| made.status.success());
    if !can {
        println!(
            "skipped: `unshare {}` does not work here (needs root)",
            unshare.join(" ")
        );
    }
    can
}

fn status(path: &str) -> Value {
    serde_json::from_str(&outlive(["pod", "status", path, "--json"]).succeeds()).unwrap()
}

/// The generation of a host, and whether it is there.
fn host(path: &str, id: u64) -> Option<(u64, bool)> {
    let status = status(path);
    let members = status["members"].as_array().unwrap();
    let host = members
        .iter()
        .find(|member| member["id"] == id && member["level"] == "host")?;
    let is_there = host["status"] == "live" && host["there"] != false;
    Some((host["generation"].as_u64()?, is_there))
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

#[track_caller]
fn within(limit: Duration, what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn create(path: &str) -> String {
    outlive(["pod", "create", path, "--size", "4M", "--ids", "32"]).succeeds();
    status(path)["uuid"].as_str().unwrap().replace('-', "")
}

/// Processes whose command line ends in `tail`.
fn processes(tail: &str) -> Vec<u32> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let is_one = line.trim_end().ends_with(tail) && line.contains("/outlive pod");
        (is_one && !line.starts_with("unshare") && !line.starts_with("sh ")).then_some(pid)
    })
    .collect()
}

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
    // And outside of any.
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
    // A join that is refused leaves nothing.
    let left = fs::read_dir("/dev/shm").unwrap().flatten();
    let left: Vec<_> = left
        .map(|file| file.file_name().to_string_lossy().into_owned())
        .filter(|name| name.contains(&uuid))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_foreign_proc_is_not_believed() {
    // The parent's /proc, in which the number of the member is another process's.
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
    // By what the kernel says, and not by its silence.
    let told = outside.wait_for(&["host 0.1", "died"]);
    assert!(!told.contains("fenced"), "{told}");
    outside.interrupt();
    outside.ends();
}

#[test]
fn a_file_and_the_overlay_above_it_have_one_memory_and_two_kinds_of_locks() {
    let base = std::env::temp_dir().join(format!("outlive-overlay-{}", std::process::id()));
    let at = |name: &str| base.join(name).to_str().unwrap().to_owned();
    let merged = at("merged");
    for name in ["lower", "upper", "work", "merged"] {
        fs::create_dir_all(at(name)).unwrap();
    }
    let layers = format!(
        "lowerdir={},upperdir={},workdir={}",
        at("lower"),
        at("upper"),
        at("work")
    );
    let mount = Command::new("mount")
        .args(["-t", "overlay", "overlay", "-o", &layers, &merged])
        .output();
    if !mount.is_ok_and(|mount| mount.status.success()) {
        fs::remove_dir_all(&base).unwrap();
        return println!("skipped: an overlay cannot be mounted here (needs root)");
    }
    let (above, below) = (at("merged/pod"), at("upper/pod"));
    create(&above);
    let mut first = Running::start(["pod", "host", &above, "--host", "0"]);
    first.wait_for(&["joined"]);
    // From below its lock is not seen, and proves nothing.
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
            "host {id} lives and was taken for dead"
        );
    }
    // A copy is recognised there too.
    let copy = at("merged/copy");
    fs::copy(&above, &copy).unwrap();
    outlive(["pod", "host", &copy, "--host", "0"]).fails(1, "--adopt-copy");
    second.kill();
    first.wait_for(&["host 1.1", "died"]);
    first.interrupt();
    first.ends();
    outlive(["pod", "destroy", &copy]).succeeds();
    outlive(["pod", "destroy", &above]).succeeds();
    assert!(
        Command::new("umount")
            .arg(&merged)
            .status()
            .unwrap()
            .success()
    );
    fs::remove_dir_all(&base).unwrap();
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
        // By its process, since this container is no PID namespace that would end with its first.
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
fn a_small_dev_shm_holds_a_pod_that_can_be_joined() {
    if !can_contain(&CONTAINER) {
        return;
    }
    // The default size is refused with the size that fits; that size leaves space for the side file
    // of any number of ids.
    for ids in ["256", "1024"] {
        let before = format!(
            r#"mount -t tmpfs -o size=64m tmpfs /dev/shm
            "$1" pod create /dev/shm/pod --ids {ids} 2>/dev/shm/said && exit 3
            fits=$(sed -n 's/.*ask for at most \([0-9]*\) bytes.*/\1/p' /dev/shm/said)
            rm /dev/shm/said
            "$1" pod create /dev/shm/pod --ids {ids} --size "$fits" || exit 4"#
        );
        let arguments = ["pod", "host", "/dev/shm/pod", "--host", "0"];
        let mut host = Running::of(contained(&CONTAINER, &before, &arguments));
        host.wait_for(&["created", "joined"]);
        host.kill();
    }
}

#[test]
fn the_doctor_sees_a_dev_shm_that_is_small_or_read_only() {
    if !can_contain(&CONTAINER) {
        return;
    }
    let doctor = |mount: &str| {
        let ended = contained(&CONTAINER, mount, &["doctor", "--json"])
            .output()
            .unwrap();
        let all: Value = serde_json::from_slice(&ended.stdout).unwrap();
        let of = |name: &str| {
            let mut rows = all.as_array().unwrap().iter();
            rows.find(|row| row["name"] == name).unwrap().clone()
        };
        (
            ended.status.code(),
            of("/dev/shm"),
            of("room for a pod"),
            of("namespaces"),
        )
    };
    let (code, shm, pod, namespaces) = doctor("mount -t tmpfs -o size=64m tmpfs /dev/shm");
    assert_eq!(
        (code, &shm["available"], &pod["available"]),
        (Some(0), &true.into(), &false.into())
    );
    assert!(
        namespaces["detail"]
            .as_str()
            .unwrap()
            .contains("PID namespace: its own")
    );
    let (code, shm, ..) = doctor("mount -t tmpfs -o ro tmpfs /dev/shm");
    assert_eq!((code, &shm["available"]), (Some(1), &false.into()));
    assert!(
        shm["detail"].as_str().unwrap().contains("read-only"),
        "{shm}"
    );
    // A command that fails for this reason says what to do.
    let mount = "mount -t tmpfs -o ro tmpfs /dev/shm";
    let ended = contained(&CONTAINER, mount, &["pod", "create", "/dev/shm/pod"])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(
        errors.contains("open failed for /dev/shm") && errors.contains("remount,rw"),
        "{errors}"
    );
}

#[test]
fn a_process_without_descriptors_says_how_to_raise_the_limit() {
    let place = Place::new("descriptors");
    create(place.path());
    let mut join = Command::new("sh");
    join.args(["-c", r#"ulimit -n 8; exec "$@""#, "sh"])
        .arg(command(["x"; 0]).get_program());
    let ended = join
        .args(["pod", "host", place.path(), "--host", "0"])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(
        !ended.status.success() && errors.contains("ulimit -n"),
        "{errors}"
    );
    assert!(!errors.contains("mount /proc"), "{errors}");
}

#[test]
fn a_truncated_file_is_named_by_those_who_die_of_it() {
    if !can_contain(&CONTAINER) {
        return;
    }
    let place = Place::new("truncated");
    let path = place.path();
    create(path);
    let side_file = || {
        let number = outlive::pod::Pod::number_at(path);
        let mut all = Linux::side_files().unwrap().into_iter();
        all.find(|file| Some(file.pod) == number).unwrap().path
    };
    let arguments = ["pod", "host", path, "--host", "0"];
    let said = format!("{path}.said");
    let mut host = command(arguments);
    host.stderr(fs::File::create(&said).unwrap());
    let mut host = Running::of(host);
    host.wait_for(&["joined"]);
    let side_file = side_file();
    let file = fs::File::options().write(true).open(&side_file).unwrap();
    file.set_len(4096).unwrap();
    host.wait_gone();
    let errors = fs::read_to_string(&said).unwrap();
    fs::remove_file(&said).unwrap();
    let named = format!("outlive: {} has lost pages", side_file.display());
    assert!(errors.contains(&named), "{errors}");
}

#[test]
fn a_run_whose_pod_is_truncated_says_how_to_remove_what_it_leaves() {
    if !can_contain(&CONTAINER) {
        return;
    }
    let script = r#"
        mount -t tmpfs tmpfs /dev/shm
        cd /dev/shm
        timeout 60 "$1" run pagerank rmat:10 --pod /dev/shm/pod --tolerance 0 --iterations 1000000 2>said >out &
        run=$!
        for i in $(seq 600); do ls | grep -q cord.3 && break; sleep 0.1; done
        truncate -s 4096 pod
        wait $run
        echo "code $?"
        grep lost said
        eval "$(sed -n "s|.*leaves with \`\(.*\) outlive pod \(.*\)\`.*|\1 '$1' pod \2|p" said)"
        rm said out
        echo "left: $(ls -A | tr '\n' ' ')"
        exit"#;
    let ended = contained(&CONTAINER, script, &[]).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    for line in [
        "code 135",
        "outlive: /dev/shm/pod has lost pages",
        "outlive: the run is lost",
    ] {
        assert!(said.contains(line), "{said}");
    }
    assert!(said.trim_end().ends_with("left:"), "{said}");
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
    // Removed while it is used, as by `rm` or when a user logs out.
    for file in side_files() {
        fs::remove_file(&file.path).unwrap();
    }
    let busy = outlive(arguments);
    busy.fails(1, "in use");
    let mut other = Running::start(["pod", "host", path, "--host", "1"]);
    other.wait_for(&["joined"]);
    host.kill();
    other.wait_for(&["host 0.3", "died"]);
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
fn a_limit_on_descriptors_that_is_too_low_is_named() {
    let place = Place::new("descriptors");
    let path = place.path();
    create(path);
    let program = command(["x"; 0]).get_program().to_owned();
    let limited = |most: u32| {
        let mut host = Command::new("sh");
        let line = format!("ulimit -n {most}; exec \"$0\" pod host \"$1\" --host 0 2>&1");
        host.args(["-c", &line]).arg(&program).arg(path);
        host
    };
    let refused = limited(15).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stdout).into_owned();
    assert!(
        !refused.status.success() && said.contains("RLIMIT_NOFILE") && said.contains("ulimit -n"),
        "{said}"
    );
    let mut host = Running::of(limited(16));
    host.wait_for(&["joined"]);
    host.interrupt();
    host.ends();
}

#[test]
fn files_that_are_removed_under_a_member_are_reported_once() {
    let place = Place::new("unlinked");
    let path = place.path();
    create(path);
    let number = outlive::pod::Pod::number_at(path);
    let mut host = Command::new("sh");
    let program = command(["x"; 0]).get_program().to_owned();
    host.args(["-c", "exec \"$0\" pod host \"$1\" --host 0 2>&1"])
        .arg(program)
        .arg(path);
    let mut host = Running::of(host);
    host.wait_for(&["joined"]);
    fs::remove_file(path).unwrap();
    let pods = format!("{path} was removed");
    host.wait_for(&[&pods, "create the pod again"]);
    for file in Linux::side_files().unwrap() {
        if Some(file.pod) == number {
            fs::remove_file(&file.path).unwrap();
        }
    }
    // The second message comes with a later round, so the first would have come again.
    let said = host.wait_for(&["RemoveIPC"]);
    assert_eq!(said.matches(&pods).count(), 1, "{said}");
    host.interrupt();
    host.ends();
    Linux::remove_cords(Some("/dev/shm".as_ref()), number.unwrap());
}

#[test]
fn a_copy_is_joined_to_adopt_it_only() {
    let place = Place::new("original");
    let copied = Place::new("copied");
    let (path, copy) = (place.path(), copied.path());
    create(path);
    let mut original = Running::start(["pod", "host", path, "--host", "0"]);
    original.wait_for(&["joined"]);
    fs::copy(path, copy).unwrap();
    outlive(["pod", "host", copy, "--host", "0"]).fails(1, "--adopt-copy");
    // What lies beside the original is not the copy's to remove.
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
    let mut adopted = Running::start(["pod", "host", copy, "--host", "0", "--adopt-copy"]);
    adopted.wait_for(&["host 0.3 joined"]);
    std::thread::sleep(A_WHILE);
    assert_eq!(host(path, 0), Some((1, true)));
    // From now on it is a pod as any other.
    adopted.interrupt();
    adopted.ends();
    let mut again = Running::start(["pod", "host", copy, "--host", "0"]);
    again.wait_for(&["joined"]);
    again.interrupt();
    again.ends();
    original.interrupt();
    original.ends();
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
        "it stands in the pod"
    );
    let join = ["pod", "host", path, "--host", "0"];
    outlive(join).fails(1, "OUTLIVE_FENCE_COMMAND");
    let other = ["--fence-command", "/bin/true"];
    outlive(join.into_iter().chain(other)).fails(1, "not the one that the pod was created with");
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
    outlive(["pod", "bury", path, "--host", "0"]).fails(2, "--yes-it-is-off");
    let sure = |host| ["pod", "bury", path, "--host", host, "--yes-it-is-off"];
    outlive(sure("0")).fails(1, "no host that is up");
    let mut running = Running::start(["pod", "host", path, "--host", "0"]);
    running.wait_for(&["joined"]);
    outlive(sure("0")).fails(1, &format!("pid {}", running.id()));
    running.kill();
    // Of the dead it may be said.
    let said = outlive(sure("0")).succeeds();
    assert!(said.contains("host 0.1 counts as dead"), "{said}");
    assert_eq!(host(path, 0).map(|(generation, _)| generation), Some(2));
    outlive(["pod", "check", path]).succeeds();
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

/// Starts each run as a user of its own, whose threads are counted.
#[test]
fn a_run_that_may_not_start_threads_says_so() {
    use std::os::unix::process::CommandExt;
    let place = Place::new("threads");
    let text = format!("{}.txt", place.path());
    fs::write(&text, "to be or not to be ".repeat(1000)).unwrap();
    let uid = 100_000 + std::process::id();
    let run = |threads: u64| {
        let mut run = Command::new("timeout");
        run.args(["--signal=KILL", "60"])
            .arg(command(["x"; 0]).get_program());
        run.args(["run", "wordcount", &text, "--hosts", "2"])
            .env("RUST_BACKTRACE", "0");
        let limit = move || {
            let most = libc::rlimit {
                rlim_cur: threads,
                rlim_max: threads,
            };
            // SAFETY: system calls alone.
            let done = unsafe {
                libc::setrlimit(libc::RLIMIT_NPROC, &raw const most) == 0
                    && libc::setgroups(0, std::ptr::null()) == 0
                    && libc::setresgid(uid, uid, uid) == 0
                    && libc::setresuid(uid, uid, uid) == 0
            };
            if done {
                Ok(())
            } else {
                Err(std::io::Error::last_os_error())
            }
        };
        // SAFETY: `limit` makes system calls only.
        unsafe { run.pre_exec(limit) };
        run.output()
    };
    fs::set_permissions(&text, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    if !run(1000).is_ok_and(|ended| ended.status.success()) {
        fs::remove_file(&text).unwrap();
        return println!("skipped: the command cannot be run as another user here (needs root)");
    }
    // Up to 7 threads are too few even for one host; with some more, one host may do the work of
    // both.
    for threads in 2..12 {
        let ended = run(threads).unwrap();
        let errors = String::from_utf8_lossy(&ended.stderr);
        assert!(!errors.contains("panicked"), "{threads}: {errors}");
        if threads > 7 && ended.status.success() {
            continue;
        }
        assert_eq!(ended.status.code(), Some(1), "{threads}: {errors}");
        let says_so = ["thread", "a host cannot be started"];
        assert!(
            says_so.iter().any(|words| errors.contains(words)),
            "{threads}: {errors}"
        );
    }
    fs::remove_file(&text).unwrap();
}
