//! Containers, and the status of a pod's hosts.

use super::{command, outlive};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

/// Returns a command in a container: new namespaces, in which a shell is the first process.
pub fn contained(unshare: &[&str], before: &str, arguments: &[&str]) -> Command {
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

pub const CONTAINER: [&str; 2] = ["--pid", "--mount-proc"];

/// Returns whether containers can be created here.
pub fn can_contain(unshare: &[&str]) -> bool {
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

pub fn status(path: &str) -> Value {
    serde_json::from_str(&outlive(["pod", "status", path, "--json"]).succeeds()).unwrap()
}

/// Returns the generation of a host, and whether it is present.
pub fn host(path: &str, id: u64) -> Option<(u64, bool)> {
    let status = status(path);
    let members = status["members"].as_array().unwrap();
    let host = members
        .iter()
        .find(|member| member["id"] == id && member["level"] == "host")?;
    let is_there = host["status"] == "live" && host["there"] != false;
    Some((host["generation"].as_u64()?, is_there))
}

pub fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

#[track_caller]
pub fn within(limit: Duration, what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub fn create(path: &str) -> String {
    outlive(["pod", "create", path, "--size", "4M", "--ids", "32"]).succeeds();
    status(path)["uuid"].as_str().unwrap().replace('-', "")
}

/// Returns the processes whose command line ends in `tail`.
pub fn processes(tail: &str) -> Vec<u32> {
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
