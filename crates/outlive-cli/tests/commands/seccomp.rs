//! Calls that a container refuses by a seccomp filter: `outlive doctor` names each with the
//! consequences, and a run or a join does without the call or fails with an error that names it.

use crate::support;
use crate::support::filter::{Call, answer};
use crate::support::{Place, command};
use serde_json::Value;
use std::fs;
use std::process::{Command, Stdio};

const F_OFD_SETLK: u32 = libc::F_OFD_SETLK as u32;
const CALLS: [Call; 13] = [
    ("fallocate", libc::SYS_fallocate, None),
    ("linkat", libc::SYS_linkat, None),
    (
        "fcntl(F_OFD_SETLK)",
        libc::SYS_fcntl,
        Some((1, F_OFD_SETLK)),
    ),
    (
        "fcntl(F_SETLEASE)",
        libc::SYS_fcntl,
        Some((1, libc::F_SETLEASE as u32)),
    ),
    ("madvise", libc::SYS_madvise, None),
    ("fchmod", libc::SYS_fchmod, None),
    ("memfd_create", libc::SYS_memfd_create, None),
    ("prctl", libc::SYS_prctl, None),
    ("get_robust_list", libc::SYS_get_robust_list, None),
    ("futex_waitv", libc::SYS_futex_waitv, None),
    ("pidfd_open", libc::SYS_pidfd_open, None),
    ("pidfd_send_signal", libc::SYS_pidfd_send_signal, None),
    ("mlock", libc::SYS_mlock, None),
];

/// Runs the command to its end, which `timeout` ensures.
fn outlive(call: Call, errno: i32, arguments: &[&str]) -> (Option<i32>, String, String) {
    let program = command(["x"; 0]);
    let mut limited = Command::new("timeout");
    limited
        .args(["--signal=KILL", "60"])
        .arg(program.get_program())
        .args(arguments);
    limited
        .stdin(Stdio::null())
        .env_remove("RUST_LOG")
        .env("RUST_BACKTRACE", "0");
    answer(&mut limited, &[call], errno);
    let ended = limited.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (ended.status.code(), text(ended.stdout), text(ended.stderr))
}

/// Returns whether every pod needs `call`.
fn is_needed(call: &str) -> bool {
    matches!(call, "fcntl(F_OFD_SETLK)" | "madvise" | "get_robust_list")
}

#[test]
fn the_doctor_names_what_is_refused() {
    for errno in [libc::EPERM, libc::ENOSYS] {
        for call in CALLS {
            let (code, output, errors) = outlive(call, errno, &["doctor", "--json"]);
            let all: Value =
                serde_json::from_str(&output).unwrap_or_else(|_| panic!("{}: {errors}", call.0));
            let row = { all.as_array().unwrap().iter() }.find(|row| {
                row["available"] == false && row["name"].as_str().unwrap().contains(call.0)
            });
            assert!(row.is_some(), "{} is refused by {errno}: {output}", call.0);
            let enough = i32::from(is_needed(call.0));
            assert_eq!(code, Some(enough), "{}: {output}", call.0);
        }
    }
}

#[test]
fn a_run_does_without_the_call_or_names_it() {
    let place = Place::new("seccomp");
    let text = format!("{}.txt", place.path());
    fs::write(&text, "to be or not to be ".repeat(1000)).unwrap();
    for errno in [libc::EPERM, libc::ENOSYS] {
        for call in CALLS {
            let run = [
                "run",
                "wordcount",
                &text,
                "--hosts",
                "2",
                "--pod",
                place.path(),
            ];
            let (code, _, errors) = outlive(call, errno, &run);
            // Hosts that would outlive their driver are not started.
            if is_needed(call.0) || call.0 == "prctl" {
                assert_eq!(code, Some(1), "{}: {errors}", call.0);
                assert!(
                    errors.contains(call.0) && errors.contains("outlive doctor"),
                    "{}: {errors}",
                    call.0
                );
            } else {
                assert_eq!(code, Some(0), "{}: {errors}", call.0);
            }
            assert!(
                !fs::exists(place.path()).unwrap(),
                "{}: the pod is left",
                call.0
            );
        }
    }
    fs::remove_file(text).unwrap();
}

#[test]
fn a_join_that_is_refused_leaves_nothing() {
    let place = Place::new("refused-join");
    support::outlive(["pod", "create", place.path(), "--size", "4M", "--ids", "16"]).succeeds();
    let number = format!(
        "{:032x}",
        outlive::pod::Pod::number_at(place.path()).unwrap()
    );
    for call in CALLS.into_iter().filter(|call| is_needed(call.0)) {
        let join = ["pod", "host", place.path(), "--host", "0"];
        let (code, _, errors) = outlive(call, libc::EPERM, &join);
        assert_eq!(code, Some(1), "{}: {errors}", call.0);
        let left: Vec<_> = { fs::read_dir("/dev/shm").unwrap().flatten() }
            .map(|file| file.file_name().into_string().unwrap_or_default())
            .filter(|name| name.contains(&number))
            .collect();
        assert!(left.is_empty(), "{}: {left:?}", call.0);
    }
}
