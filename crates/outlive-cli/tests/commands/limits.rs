//! Limits, and files that are truncated or removed: the messages name the cause and the remedy.
//! Tests that need root are skipped with a message without it.

use crate::support::edge::*;
use crate::support::{Place, Running, command, outlive};
use outlive::host::Linux;
use serde_json::Value;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

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
            fits=$(sed -n 's/.*request at most \([0-9]*\) bytes.*/\1/p' /dev/shm/said)
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
    // A command that fails for this reason names the remedy.
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
fn a_limit_on_descriptors_that_is_too_low_is_named() {
    let place = Place::new("descriptors");
    let path = place.path();
    create(path);
    let program = command(["x"; 0]).get_program().to_owned();
    let limited = |most: u32| {
        let mut host = Command::new("sh");
        let line = format!("ulimit -n {most}; exec \"$0\" pod host \"$1\" --host 0");
        host.args(["-c", &line]).arg(&program).arg(path);
        host
    };
    // Named by the check of the limit, or by a call that fails before it.
    for most in [8, 15] {
        let refused = limited(most).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            !refused.status.success() && said.contains("ulimit -n"),
            "{most}: {said}"
        );
        assert!(!said.contains("mount /proc"), "{most}: {said}");
    }
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
    let number = number.unwrap();
    let cords = Linux::cords().unwrap().into_iter();
    let cords: Vec<_> = cords.filter(|cord| cord.pod == number).collect();
    for cord in &cords {
        fs::remove_file(&cord.path).unwrap();
    }
    // If the kernel has leases.
    if !cords.is_empty() {
        host.wait_for(&["can no longer kill this process"]);
    }
    host.interrupt();
    host.ends();
}

#[test]
fn a_run_with_little_address_space_ends_with_counts_or_a_message() {
    let place = Place::new("little");
    let run = |kib: u64| {
        let pod = ["--pod", place.path()];
        let run = ["run", "wordcount", "--hosts", "4", "--kill", "2"];
        let mut run = command(run.into_iter().chain(pod));
        let limit = move || {
            let most = libc::rlimit {
                rlim_cur: kib << 10,
                rlim_max: kib << 10,
            };
            // SAFETY: a system call only.
            match unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const most) } {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        };
        // SAFETY: `limit` makes a system call only.
        unsafe { run.pre_exec(limit) };
        run.output().unwrap()
    };
    for kib in [50_000, 80_000, 90_000, 100_000, 150_000] {
        let ended = run(kib);
        let (output, errors) = (
            String::from_utf8_lossy(&ended.stdout),
            String::from_utf8_lossy(&ended.stderr),
        );
        assert!(!errors.contains("panicked"), "{kib} KiB: {errors}");
        // Which request is refused depends on the layout of the program. If it is one for the heap,
        // Rust's runtime aborts the process, which leaves its pod and the side file.
        let is_aborted = errors.contains("memory allocation of ");
        match ended.status.success() {
            true => assert!(output.contains("791450 words"), "{kib} KiB: {output}"),
            false => assert!(
                is_aborted || errors.contains("outlive: "),
                "{kib} KiB: {errors}"
            ),
        }
        if is_aborted {
            let _ = fs::remove_file(place.path());
            outlive(["pod", "clean", "--remove"]).succeeds();
        }
    }
}

/// Starts each run as a user of its own, so that the limit counts only its threads.
#[test]
fn a_run_that_may_not_start_threads_says_so() {
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
            // SAFETY: system calls only.
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
        // (The limit may even prevent a host from reporting it; then the hosts are reported as
        // dead.)
        let says_so = ["thread", "a host cannot be started", "hosts are dead"];
        assert!(
            says_so.iter().any(|words| errors.contains(words)),
            "{threads}: {errors}"
        );
    }
    fs::remove_file(&text).unwrap();
}
