//! The pod commands: real pods in /dev/shm, real processes.

use crate::support;
use crate::support::{Place, Running, command, outlive};
use serde_json::Value;
use std::fs;
use std::process::Stdio;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("no JSON ({error}): {text}"))
}

#[test]
fn a_pod_is_created_looked_at_checked_and_destroyed() {
    let place = Place::new("life");
    let created =
        outlive(["pod", "create", place.path(), "--size", "8M", "--ids", "32"]).succeeds();
    assert!(
        created.contains("8 MiB") && created.contains("32 ids"),
        "{created}"
    );

    let status = outlive(["pod", "status", place.path()]).succeeds();
    assert!(status.contains("no host has joined yet"), "{status}");
    let checked = outlive(["pod", "check", place.path()]).succeeds();
    assert!(checked.contains("nothing is wrong"), "{checked}");
    assert!(checked.contains("heap: "), "{checked}");

    let status = json(&outlive(["pod", "status", place.path(), "--json"]).succeeds());
    assert_eq!(status["size"], 8 << 20);
    assert_eq!(status["ids"], 32);
    assert_eq!(status["members"], Value::Array(vec![]));
    let check = json(&outlive(["pod", "check", place.path(), "--json"]).succeeds());
    assert_eq!(check["violations"], Value::Array(vec![]));
    assert_eq!(check["ids"], 32);
    assert_eq!(check["heap"]["free"], check["heap"]["bytes"]);

    outlive(["pod", "destroy", place.path()]).succeeds();
    assert!(!fs::exists(place.path()).unwrap());
}

#[test]
fn what_was_asked_for_is_kept_in_the_pod() {
    let place = Place::new("asked");
    outlive([
        "pod",
        "create",
        place.path(),
        "--size",
        "4MiB",
        "--ids",
        "16",
        "--groups",
        "2",
        "--mode",
        "660",
        "--heartbeat",
        "10ms",
        "--poll",
        "20ms",
        "--suspicion",
        "1s",
        "--fence-command",
        "/bin/false",
        "--huge",
        "transparent",
        "--prefault",
    ])
    .succeeds();
    let status = json(&outlive(["pod", "status", place.path(), "--json"]).succeeds());
    let settings = &status["settings"];
    assert_eq!(settings["heartbeat"], 0.01);
    assert_eq!(settings["poll"], 0.02);
    assert_eq!(settings["suspicion"], 1.0);
    let digest = outlive::membership::FenceCommandDigest::of("/bin/false");
    assert_eq!(settings["fence_command"], digest.to_string());
    use std::os::unix::fs::PermissionsExt;
    let mode = fs::metadata(place.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);

    let bare = Place::new("bare");
    outlive(["pod", "create", bare.path(), "--ids", "8", "--without-heap"]).succeeds();
    let check = json(&outlive(["pod", "check", bare.path(), "--json"]).succeeds());
    assert_eq!(check["heap"], Value::Null);

    let other = Place::new("machines");
    let created = outlive([
        "pod",
        "create",
        other.path(),
        "--size",
        "4M",
        "--ids",
        "8",
        "--real-hosts",
        "--json",
    ]);
    assert_eq!(json(&created.succeeds())["ids"], 8);
    let status = json(&outlive(["pod", "status", other.path(), "--json"]).succeeds());
    assert_eq!(status["settings"]["suspicion"], 0.016);
}

#[test]
fn what_cannot_be_is_refused_with_a_reason() {
    let place = Place::new("refused");
    let path = place.path();
    let looks = |path: &str, why: &str| {
        for command in ["status", "check", "watch"] {
            outlive(["pod", command, path]).fails(1, why);
        }
        outlive(["pod", "host", path, "--host", "0"]).fails(1, why);
    };
    // The path does not exist.
    looks(path, "nothing is there");
    outlive(["pod", "destroy", path]).fails(1, "nothing is there");
    outlive(["pod", "create", "/nowhere/at/all"]).fails(1, "directory");
    // A file of another format.
    fs::write(path, vec![b'x'; 1 << 20]).unwrap();
    looks(path, "not");
    outlive(["pod", "destroy", path]).fails(1, "not removed");
    outlive(["pod", "destroy", path, "--force"]).fails(1, "not removed");
    outlive(["pod", "create", path]).fails(1, "exists already");
    assert!(fs::exists(path).unwrap(), "a foreign file was removed");
    // An empty file, which may belong to any program.
    fs::write(path, "").unwrap();
    looks(path, "it is empty");
    outlive(["pod", "destroy", path]).fails(1, "not a segment: it is empty");
    outlive(["pod", "destroy", path, "--force"]).fails(1, "not a segment");
    assert!(fs::exists(path).unwrap(), "an empty file was removed");
    fs::remove_file(path).unwrap();
    // A pod exists.
    outlive(["pod", "create", path, "--size", "4M", "--ids", "16"]).succeeds();
    outlive(["pod", "create", path]).fails(1, "exists already");
    outlive(["pod", "check", path]).succeeds();
    // Truncated; a damaged pod can be destroyed.
    fs::OpenOptions::new()
        .write(true)
        .open(path)
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    looks(path, path);
    outlive(["pod", "destroy", path]).succeeds();
    assert!(!fs::exists(path).unwrap());
}

#[test]
fn there_is_no_room_for_more_than_there_is() {
    let place = Place::new("room");
    let refused = outlive(["pod", "create", place.path(), "--size", "4000G"]);
    refused.fails(1, "not enough space");
    assert!(
        !fs::exists(place.path()).unwrap(),
        "something was left behind"
    );
    // Too small for its own tables; the size that the message names suffices.
    for ids in ["1", "256", "5000"] {
        let create =
            |size: &str| outlive(["pod", "create", place.path(), "--ids", ids, "--size", size]);
        let refused = create("4K");
        assert!(
            !fs::exists(place.path()).unwrap(),
            "something was left behind"
        );
        let (_, asked) = refused.errors.split_once("at least ").unwrap();
        let (enough, _) = asked.split_once(" bytes").unwrap();
        let less = enough.parse::<u64>().unwrap() - 4096;
        create(&less.to_string()).fails(1, "request at least");
        create(enough).succeeds();
        outlive(["pod", "check", place.path()]).succeeds();
        outlive(["pod", "destroy", place.path()]).succeeds();
    }
    outlive(["pod", "create", place.path(), "--domain", "write-back"]).fails(1, "write-back");
    // Huge pages are refused on a filesystem that has none.
    outlive(["pod", "create", place.path(), "--huge", "reserved"])
        .fails(1, "mount -t hugetlbfs none");
    assert!(
        !fs::exists(place.path()).unwrap(),
        "something was left behind"
    );
}

#[test]
fn a_log_says_what_was_made_and_has_colours_on_a_terminal_only() {
    let place = Place::new("log");
    let mut create = command(["pod", "create", place.path(), "--size", "4M", "--ids", "16"]);
    let ended = create
        .env("RUST_LOG", "outlive=debug")
        .env_remove("NO_COLOR")
        .output()
        .unwrap();
    let log = String::from_utf8(ended.stderr).unwrap();
    for word in [
        place.path(),
        "bytes=4194304",
        "created a segment",
        "area=payload",
    ] {
        assert!(log.contains(word), "{word:?} is not in the log: {log}");
    }
    assert!(!log.contains('\x1b'), "{log:?}");
    for (colour, is_coloured) in [("", true), ("1", false)] {
        // `script` runs its command on a terminal.
        let program = command(["x"; 0]).get_program().to_str().unwrap().to_owned();
        let shown = format!("{program} pod status {}", place.path());
        let mut script = std::process::Command::new("script");
        script
            .args(["-qec", &shown, "/dev/null"])
            .stdin(Stdio::null());
        let Ok(ended) = script
            .env("RUST_LOG", "outlive=debug")
            .env("NO_COLOR", colour)
            .output()
        else {
            return println!("skipped: there is no `script` here");
        };
        let shown = String::from_utf8(ended.stdout).unwrap();
        assert!(shown.contains("opened a segment"), "{shown:?}");
        assert_eq!(shown.contains('\x1b'), is_coloured, "{shown:?}");
    }
}

#[test]
fn nonsense_is_bad_usage() {
    let place = Place::new("usage");
    let path = place.path();
    for flags in [
        &["--size", "many"][..],
        &["--size", "0"],
        &["--ids", "0"],
        &["--ids", "65537"],
        &["--mode", "rw"],
        &["--mode", "644"],
        &["--heartbeat", "0ms"],
        &["--heartbeat", "soon"],
        &["--real-hosts", "--poll", "1ms"],
        &["--huge", "very"],
        &["--fence-command", ""],
        &["--colour", "red"],
    ] {
        let mut arguments = vec!["pod", "create", path];
        arguments.extend(flags);
        outlive(arguments).fails(2, "");
        assert!(!fs::exists(path).unwrap(), "{flags:?} created something");
    }
    outlive(["pod", "create", "memfd:x"]).fails(2, "memfd");
    outlive(["pod", "host", path]).fails(2, "--host");
    outlive(["pod", "host", path, "--host", "65536"]).fails(2, "");
    outlive(["pod"]).fails(2, "");
    outlive(["pods"]).fails(2, "");
    // A live view needs a terminal.
    outlive(["pod", "create", path, "--size", "4M", "--ids", "16"]).succeeds();
    outlive(["pod", "watch", path]).fails(2, "--once");
    outlive(["pod", "host", path, "--host", "16"]).fails(1, "id 16 does not exist");
}

#[test]
fn a_host_that_is_killed_is_told_to_the_other() {
    let place = Place::new("killed");
    let path = place.path();
    outlive(["pod", "create", path, "--size", "8M", "--ids", "32"]).succeeds();
    let mut survivor = Running::start(["pod", "host", path, "--host", "0", "--name", "alpha"]);
    survivor.wait_for(&["host 0.1 joined"]);
    let mut victim = Running::start([
        "pod",
        "host",
        path,
        "--host",
        "1",
        "--name",
        "beta",
        "--processes",
        "2",
        "--threads",
        "2",
    ]);
    // The threads of its child too.
    let joined = survivor.wait_for(&[
        "beta",
        "idler 1.0.0",
        "idler 1.0.1",
        "idler 1.1.0",
        "idler 1.1.1",
    ]);

    let status = json(&outlive(["pod", "status", path, "--json"]).succeeds());
    let members = status["members"].as_array().unwrap();
    let live = |members: &[Value]| {
        members
            .iter()
            .filter(|member| member["status"] == "live")
            .count()
    };
    // Two hosts; one process with a thread; two processes with two threads each.
    assert_eq!(live(members), 10, "{status:#}");
    assert!(
        members.iter().all(|member| member["there"] == true),
        "{status:#}"
    );
    outlive(["pod", "destroy", path]).fails(1, "10 members");

    victim.kill();
    // If the reporter of a death dies itself, the next member that checks reports that death.
    let deaths = joined
        .lines()
        .filter_map(|line| line.strip_suffix(" joined")?.split_once(" ("))
        .map(|(_, who)| format!("({who} died"));
    let deaths: Vec<String> = deaths.collect();
    let deaths: Vec<&str> = deaths.iter().map(String::as_str).collect();
    let told = survivor.wait_for(&deaths);
    assert_eq!(told.matches("died").count(), 7, "{told}");
    assert_eq!(
        told.matches(") died").count(),
        7,
        "a member died without a name: {told}"
    );

    let status = json(&outlive(["pod", "status", path, "--json"]).succeeds());
    let members = status["members"].as_array().unwrap();
    assert_eq!(live(members), 3, "{status:#}");
    let host = members.iter().find(|member| member["id"] == 1).unwrap();
    assert_eq!(host["generation"], 2, "{host:#}");
    assert_eq!(host["instance"], "1.1", "{host:#}");
    let text = outlive(["pod", "status", path]).succeeds();
    assert!(
        text.contains("generation 2") && text.contains("alpha"),
        "{text}"
    );
    outlive(["pod", "check", path]).succeeds();

    // The id can be joined again, under a new generation.
    let mut again = Running::start(["pod", "host", path, "--host", "1"]);
    again.wait_for(&["host 1.3 joined"]);
    // A second command with the same number reports that it is an additional process.
    let mut beside = Running::start(["pod", "host", path, "--host", "1"]);
    beside.wait_for(&[
        "host 1.3 joined",
        "host 1.3 was up already",
        "one more process",
    ]);
    beside.interrupt();
    assert!(beside.ends().contains("left in good order"));
    again.interrupt();
    let last = again.ends();
    assert!(last.contains("left in good order"), "{last}");
    survivor.wait_for(&["host 1.3 (host 1) left"]);
    survivor.interrupt();
    assert!(survivor.ends().contains("left in good order"));
    outlive(["pod", "check", path]).succeeds();
    outlive(["pod", "destroy", path]).succeeds();
}

#[test]
fn when_nobody_is_left_the_dead_are_seen_to_be_gone() {
    let place = Place::new("alone");
    let path = place.path();
    outlive(["pod", "create", path, "--size", "4M", "--ids", "16"]).succeeds();
    let mut last = Running::start(["pod", "host", path, "--host", "3"]);
    last.wait_for(&["joined"]);
    last.kill();
    let status = outlive(["pod", "status", path]).succeeds();
    assert_eq!(status.matches("live, but gone").count(), 3, "{status}");
    let live = outlive(["pod", "status", path, "--live"]).succeeds();
    assert!(live.contains("no host has joined now"), "{live}");
    // The next member to join retires them.
    let mut next = Running::start(["pod", "host", path, "--host", "3"]);
    next.wait_for(&["host 3.3 joined"]);
    next.interrupt();
    next.ends();
    outlive(["pod", "check", path]).succeeds();
    outlive(["pod", "destroy", path]).succeeds();
}

#[test]
fn the_dead_are_recovered_by_a_repair_when_nobody_is_there() {
    let place = Place::new("repair");
    let path = place.path();
    outlive(["pod", "create", path, "--size", "4M", "--ids", "16"]).succeeds();
    let nothing = outlive(["pod", "check", path, "--repair"]).succeeds();
    assert!(nothing.contains("nothing was repaired"), "{nothing}");
    let mut last = Running::start(["pod", "host", path, "--host", "3"]);
    last.wait_for(&["joined"]);
    outlive(["pod", "check", path, "--repair"]).fails(1, "is in use");
    last.kill();
    let done = json(&outlive(["pod", "check", path, "--repair", "--json"]).succeeds());
    let recovered = done["repaired"]["recovered"].as_array().unwrap();
    assert_eq!(recovered.len(), 3, "{done:#}");
    assert_eq!(done["alive"], 0, "{done:#}");
    let again = outlive(["pod", "check", path, "--repair"]).succeeds();
    assert!(again.contains("nothing was repaired"), "{again}");
    outlive(["pod", "destroy", path]).succeeds();
}

#[test]
fn a_pod_whose_ids_all_belong_to_the_dead_is_joined_and_repaired() {
    for (name, repairs) in [("full-joined", false), ("full-repaired", true)] {
        let place = Place::new(name);
        let path = place.path();
        outlive(["pod", "create", path, "--size", "4M", "--ids", "4"]).succeeds();
        let mut last = Running::start(["pod", "host", path, "--host", "0", "--threads", "2"]);
        last.wait_for(&["joined"]);
        last.kill();
        if repairs {
            outlive(["pod", "check", path, "--repair"]).succeeds();
        }
        let mut next = Running::start(["pod", "host", path, "--host", "0", "--threads", "2"]);
        next.wait_for(&["joined"]);
        next.kill();
        outlive(["pod", "check", path]).succeeds();
        outlive(["pod", "destroy", path]).succeeds();
    }
}

#[test]
fn a_pod_is_not_destroyed_by_a_link_to_it() {
    let place = Place::new("linked");
    let link = Place::new("link");
    let path = place.path();
    outlive(["pod", "create", path, "--size", "4M", "--ids", "16"]).succeeds();
    std::os::unix::fs::symlink(path, link.path()).unwrap();
    outlive(["pod", "destroy", link.path()]).fails(1, "is a symbolic link");
    assert!(fs::symlink_metadata(link.path()).is_ok());
    fs::remove_file(link.path()).unwrap();
    outlive(["pod", "destroy", path]).succeeds();
}

#[test]
fn a_pod_that_is_used_is_destroyed_by_force_only() {
    let place = Place::new("force");
    let path = place.path();
    outlive(["pod", "create", path, "--size", "4M", "--ids", "16"]).succeeds();
    let uuid = json(&outlive(["pod", "status", path, "--json"]).succeeds())["uuid"]
        .as_str()
        .unwrap()
        .replace('-', "");
    let kept = || {
        let files = fs::read_dir("/dev/shm").unwrap().flatten();
        files
            .filter(|file| file.file_name().to_string_lossy().contains(&uuid))
            .count()
    };
    let mut host = Running::start(["pod", "host", path, "--host", "0"]);
    host.wait_for(&["joined"]);
    // The side file, and the host's cord.
    assert_eq!(kept(), 2);
    let listed = || {
        let listed = json(&outlive(["pod", "clean", "--json"]).succeeds());
        let mut files = listed.as_array().unwrap().iter();
        let mine = files.find(|file| file["pod"] == uuid.as_str());
        mine.unwrap().clone()
    };
    let mine = listed();
    assert_eq!(
        (&mine["found"], &mine["in_use"]),
        (&path.into(), &true.into())
    );
    outlive(["pod", "destroy", path]).fails(1, "--force");
    assert!(fs::exists(path).unwrap());
    let forced = outlive(["pod", "destroy", path, "--force"]);
    assert!(
        forced.errors.contains("clean --remove"),
        "{}",
        forced.errors
    );
    forced.succeeds();
    assert!(!fs::exists(path).unwrap());
    // Its pod has lost its name, but is still used.
    let mine = listed();
    assert_eq!(
        (&mine["found"], &mine["in_use"]),
        (&Value::Null, &true.into())
    );
    let text = outlive(["pod", "clean"]).succeeds();
    let line = text.lines().find(|line| line.contains(&uuid)).unwrap();
    assert!(line.ends_with("in use; stays"), "{text}");
    host.interrupt();
    assert!(host.ends().contains("left in good order"));
    // It could not be removed while it was in use, and was left over afterwards.
    let mine = listed();
    assert_eq!(
        (&mine["found"], &mine["in_use"]),
        (&Value::Null, &false.into())
    );
    place.remove_side_files(&uuid);
    assert_eq!(kept(), 0);
}

#[test]
fn a_frame_of_the_live_view_is_text() {
    let place = Place::new("watch");
    let path = place.path();
    outlive(["pod", "create", path, "--size", "4M", "--ids", "16"]).succeeds();
    let empty = outlive(["pod", "watch", path, "--once", "--every", "10ms"]).succeeds();
    assert!(empty.contains("there are no members"), "{empty}");
    let mut host = Running::start(["pod", "host", path, "--host", "2", "--name", "gamma"]);
    host.wait_for(&["joined"]);
    let frame = outlive(["pod", "watch", path, "--once", "--width", "100"]).succeeds();
    assert!(
        frame.contains("host 2.1") && frame.contains("gamma"),
        "{frame}"
    );
    assert!(
        frame.contains("thread 14.1") && frame.contains("(fabric manager)"),
        "{frame}"
    );
    assert!(
        frame.lines().all(|line| line.chars().count() <= 100),
        "{frame}"
    );
    // The host sends heartbeats, so its rate is above zero.
    let line = frame
        .lines()
        .find(|line| line.contains("process 15.1 "))
        .unwrap();
    let rate = line.split_whitespace().find_map(|word| {
        word.parse::<f64>()
            .ok()
            .filter(|_| word.contains('.') && word != "15.1")
    });
    assert!(rate.is_some_and(|rate| rate > 0.0), "{line}");
    host.interrupt();
    host.ends();
}

#[test]
fn a_reader_who_goes_away_ends_the_command_quietly() {
    let place = Place::new("pipe");
    let path = place.path();
    outlive(["pod", "create", path, "--size", "4M", "--ids", "16"]).succeeds();
    for arguments in [
        &["pod", "status", path][..],
        &["completions", "bash"],
        &["pod", "check", path],
    ] {
        let mut child = support::command(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            errors.is_empty() && output.status.code() == Some(0),
            "{:?}: {errors}",
            output.status
        );
    }
    // A host whose output is closed leaves in good order.
    let mut host = Running::start_and_stop_reading(["pod", "host", path, "--host", "0"]);
    let mut other = Running::start(["pod", "host", path, "--host", "1"]);
    // Before the host has joined, an interrupt would kill it.
    other.wait_for(&["joined"]);
    host.ends();
    other.interrupt();
    other.ends();
    let status = json(&outlive(["pod", "status", path, "--json"]).succeeds());
    let left = |member: &Value| member["status"] == "left" && member["generation"] == 1;
    let members = status["members"].as_array().unwrap();
    assert!(members.len() == 6 && members.iter().all(left), "{status:#}");
}
