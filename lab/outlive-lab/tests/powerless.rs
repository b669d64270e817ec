//! Proofs notice that their kills do nothing.

#[path = "../../../crates/outlive-cli/tests/support/mod.rs"]
mod support;

use support::powerless::{KILLS, powerless};

#[test]
fn proofs_by_kills_notice_that_kills_do_nothing() {
    let kill = (&KILLS[..1], "kill(2)");
    let pidfd = (&KILLS[3..], "pidfd_send_signal(2)");
    for ((calls, name), proof) in [
        (kill, &["kill", "heap Allocate"][..]),
        (kill, &["kill", "instance.join and leave"]),
        (kill, &["chaos", "--seconds", "5"]),
        (kill, &["chaos", "--tasks", "--seconds", "5"]),
        (kill, &["chaos", "--objects", "--seconds", "5"]),
        (pidfd, &["chaos", "--seconds", "5"]),
    ] {
        let arguments = [&["prove"], proof].concat();
        let (_, errors) = powerless(calls, &arguments);
        let said = format!("SIGKILL by {name} has not ended a process");
        assert!(errors.contains(&said), "{arguments:?}: {errors}");
    }
}
