//! The first commands of a new user: doctor, help, completions, and commands in other programs.

use crate::support::outlive;
use serde_json::Value;

#[test]
fn the_doctor_says_what_there_is() {
    let text = outlive(["doctor"]).succeeds();
    assert!(
        text.contains("/dev/shm") && text.contains("ptrace"),
        "{text}"
    );
    let json: Value = serde_json::from_str(&outlive(["doctor", "--json"]).succeeds()).unwrap();
    let needed = json
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["needed"] == true);
    assert!(needed.clone().count() > 0);
    assert!(
        needed.clone().all(|one| one["available"] == true),
        "{json:#}"
    );
}

#[test]
fn shells_are_helped() {
    for shell in ["bash", "zsh", "fish"] {
        let script = outlive(["completions", shell]).succeeds();
        assert!(
            script.contains("destroy") && script.contains("--fence-command") || shell == "fish",
            "{script}"
        );
        assert!(script.contains("fence-command"), "{script}");
    }
    outlive(["completions", "abacus"]).fails(2, "");
}

#[test]
fn every_command_shows_examples() {
    for command in [
        &["pod", "create"][..],
        &["pod", "host"],
        &["pod", "status"],
        &["pod", "watch"],
        &["pod", "check"],
        &["pod", "destroy"],
        &["pod", "clean"],
        &["doctor"],
        &["completions"],
        &["pool", "create"],
        &["pool", "serve"],
        &["pool", "stat"],
        &["pool", "put"],
        &["pool", "get"],
        &["pool", "list"],
        &["pool", "pin"],
        &["pool", "delete"],
        &["pool", "evict"],
        &["pool", "resize"],
        &["pool", "drain"],
        &["pool", "rebalance"],
        &["pool", "rebuild"],
        &["pool", "demo"],
        &["pool", "destroy"],
        &["litmus", "list"],
        &["litmus", "show"],
        &["litmus", "check"],
        &["litmus", "serve"],
        &["litmus", "run"],
        &["litmus", "judge"],
        &["litmus", "generate"],
        &[],
    ] {
        let mut arguments = command.to_vec();
        arguments.push("--help");
        let help = outlive(arguments).succeeds();
        assert!(help.contains("Examples:\n  outlive"), "{help}");
    }
}

#[test]
fn commands_of_the_laboratory_are_named() {
    for command in [
        &["prove", "kill", "--all"][..],
        &["study", "locks", "--quick"],
        &["machine", "run", "ycsb", "--help"],
        &["prove"],
        &["study", "--help"],
    ] {
        outlive(command.iter().copied()).fails(2, "commands of `outlive-lab`");
    }
}
