//! Runs the command where signals have no effect.

use super::command;
use super::filter::{Call, answer};
use std::process::Command;

pub const KILLS: [Call; 4] = [
    ("kill", libc::SYS_kill, None),
    ("tkill", libc::SYS_tkill, None),
    ("tgkill", libc::SYS_tgkill, None),
    ("pidfd_send_signal", libc::SYS_pidfd_send_signal, None),
];

/// Runs the command while signals are swallowed. Returns its standard output and standard error.
/// Requires that it fails within a minute.
pub fn powerless(calls: &[Call], arguments: &[&str]) -> (String, String) {
    let mut run = Command::new("timeout");
    run.args(["--signal=KILL", "60"])
        .arg(command(["x"; 0]).get_program())
        .args(arguments);
    answer(&mut run, calls, 0);
    let ended = run.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (output, errors) = (text(ended.stdout), text(ended.stderr));
    assert_eq!(
        ended.status.code(),
        Some(1),
        "{arguments:?}: {output}{errors}"
    );
    (output, errors)
}
