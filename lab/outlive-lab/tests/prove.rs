//! The proofs and the completions from the command line.

#[path = "../../../crates/outlive-cli/tests/support/mod.rs"]
mod support;

use serde_json::Value;
use support::outlive;

#[test]
fn proofs_are_listed_run_and_counted() {
    let list = outlive(["prove", "kill", "--list"]).succeeds();
    assert!(
        list.lines().any(|line| line.starts_with("role.take ")),
        "{list}"
    );
    let ended = outlive(["prove", "kill", "role.take", "--json"]);
    if ended.errors.contains("ptrace is forbidden here") {
        println!("skipped: {}", ended.errors);
        return;
    }
    let proofs: Value = serde_json::from_str(&ended.succeeds()).unwrap();
    let proof = &proofs[0];
    assert_eq!(proof["name"], "kill: role.take");
    assert!(proof["points"].as_u64() > Some(2), "{proof:#}");
    assert!(
        proof["instructions"].as_u64() > proof["images"].as_u64(),
        "{proof:#}"
    );
    for proof in proofs.as_array().unwrap() {
        assert_eq!(proof["failures"], 0, "{proof:#}");
        assert!(
            proof["seconds"].is_number() && proof["name"].is_string(),
            "{proof:#}"
        );
    }
    let text = outlive(["prove", "kill", "role.take"]).succeeds();
    assert!(
        text.contains("1 operations") && text.contains("0 failures"),
        "{text}"
    );
}

#[test]
fn interleavings_are_listed_tried_and_counted() {
    let list = outlive(["prove", "schedule", "--list"]).succeeds();
    // Each is listed once, and the line tells how far it is explored.
    let lines: Vec<&str> = list.lines().collect();
    let named = |name: &str| {
        let is_it = |line: &&&str| line.split("  ").next() == Some(name);
        lines.iter().filter(is_it).count()
    };
    let listed = outlive(["prove", "schedule", "--list", "--json"]).succeeds();
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let listed = listed.as_array().unwrap();
    assert_eq!(lines.len(), listed.len() + 1, "{list}");
    for one in listed {
        assert_eq!(named(one["name"].as_str().unwrap()), 1, "{list}");
        assert!(
            one["default"].is_string() && one["full"].is_string(),
            "{one}"
        );
    }
    for name in ["two removers of a key", "two removers of a key, drawn"] {
        assert_eq!(named(name), 1, "{list}");
    }
    let json = outlive(["prove", "schedule", "queue of two, one", "--json"]).succeeds();
    let proofs: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(proofs.as_array().unwrap().len(), 1);
    let proof = &proofs[0];
    assert_eq!(proof["name"], "schedule: queue of two, one impatient");
    assert_eq!(proof["failures"], 0, "{proof:#}");
    assert!(
        proof["points"].as_u64() > Some(100) && proof["deaths"].as_u64() > Some(0),
        "{proof:#}"
    );
    assert_eq!(proof["seed"], Value::Null);
    outlive(["prove", "schedule", "perpetual.motion"]).fails(2, "--list");
}

#[test]
fn what_is_drawn_says_from_which_seed() {
    let run = |more: &[&str]| {
        let mut arguments = vec!["prove", "schedule", "counting, drawn"];
        arguments.extend(more);
        outlive(arguments).succeeds()
    };
    let seed = |json: &str| -> Value {
        let proofs: Value = serde_json::from_str(json).unwrap();
        assert_eq!(proofs.as_array().unwrap().len(), 1);
        proofs[0]["seed"].clone()
    };
    assert_eq!(seed(&run(&["--json"])), 1);
    assert_eq!(seed(&run(&["--json", "--seed", "4711"])), 4711);
    let text = run(&["--seed", "4711"]);
    assert!(text.contains("drawn from seed 4711 on"), "{text}");
}

#[test]
fn nodes_of_the_simulated_machine_are_crashed_and_what_wb_loses_is_seen() {
    let list = outlive(["prove", "machine-crash", "--list"]).succeeds();
    assert!(
        list.lines()
            .any(|line| line.starts_with("recxl-proactive ycsb ")),
        "{list}"
    );
    // A configuration does not match another whose name begins with it.
    let of = |name| outlive(["prove", "machine-crash", "--list", name]).succeeds();
    let proactive = of("recxl-proactive");
    assert!(proactive.lines().count() > 5 && !proactive.contains("uncoalesced"));
    assert_eq!(of("recxl-proactive ycsb").lines().count(), 2);
    for (name, loses) in [("wb ycsb", true), ("recxl-proactive ycsb", false)] {
        let run = ["prove", "machine-crash", name, "--points", "40", "--json"];
        let proofs: Value = serde_json::from_str(&outlive(run).succeeds()).unwrap();
        assert_eq!(proofs.as_array().unwrap().len(), 1);
        let proof = &proofs[0];
        assert_eq!(
            (&proof["points"], &proof["failures"]),
            (&40.into(), &0.into()),
            "{proof:#}"
        );
        assert_eq!(proof["protects"], !loses, "{proof:#}");
        assert_eq!(proof["lost"].as_u64() > Some(0), loses, "{proof:#}");
        // A configuration that loses at each of the points has no recovery that counts.
        assert!(loses || proof["recoveries"].as_u64() > Some(0), "{proof:#}");
    }
    let text = outlive(["prove", "machine-crash", "wb drawn", "--points", "40"]);
    let ended = text.succeeds();
    assert!(
        ended.contains("as expected") && ended.contains(": 0 failures"),
        "{ended}"
    );
}

#[test]
fn transactions_run_on_the_simulated_network() {
    let run = ["prove", "transactions", "losses", "--runs", "30", "--json"];
    let proofs: Value = serde_json::from_str(&outlive(run).succeeds()).unwrap();
    let proofs = proofs.as_array().unwrap();
    let names: Vec<_> = proofs
        .iter()
        .map(|it| it["name"].as_str().unwrap())
        .collect();
    let protocols = ["pandora", "ford", "log-a-latch", "latch-to-log"];
    assert_eq!(
        names,
        protocols.map(|it| format!("transactions: {it} losses"))
    );
    for proof in proofs {
        assert_eq!(
            (&proof["points"], &proof["failures"]),
            (&30.into(), &0.into()),
            "{proof:#}"
        );
        for field in ["committed", "lost_servers"] {
            assert!(proof[field].as_u64() > Some(10), "{proof:#}");
        }
        assert!(proof["client_deaths"]["log"].is_number(), "{proof:#}");
    }
    let text = outlive(["prove", "transactions", "ford clean", "--runs", "5"]).succeeds();
    assert!(text.contains("1 kinds, 5 runs: 0 failures"), "{text}");
}

#[test]
fn every_proof_is_found_in_any_case_and_explained() {
    let listed = |proof: &str, more: &[&str]| -> Vec<Value> {
        let all = ["prove", proof, "--list", "--json"];
        let arguments = all.iter().chain(more).copied();
        serde_json::from_str(&outlive(arguments).succeeds()).unwrap()
    };
    for (proof, part, number) in [
        ("kill", "mutex", 1),
        ("kill", "lock", 8),
        ("kill", "after a death", 4),
        ("kill", "SYNC", 11),
        ("schedule", "MUTE", 2),
        ("machine-crash", "ReCXL-Proactive YCSB", 1),
        ("transactions", "LOG-A-LATCH clean", 1),
        ("model", "LATCHES", 3),
    ] {
        assert_eq!(listed(proof, &[part]).len(), number, "{proof} {part}");
    }
    for proof in ["kill", "schedule", "machine-crash", "transactions", "model"] {
        for one in listed(proof, &[]) {
            let about = one["about"].as_str().unwrap_or_default();
            assert!(about.len() > 10 && !about.ends_with(": "), "{one}");
        }
    }
}

#[test]
fn a_model_holds_and_its_broken_variant_is_found() {
    let run = ["prove", "model", "skew", "--json"];
    let proofs: Value = serde_json::from_str(&outlive(run).succeeds()).unwrap();
    let proof = &proofs[0];
    assert_eq!(proof["complete"], true, "{proof:#}");
    assert!(proof["points"].as_u64() > Some(1000), "{proof:#}");
    let text = outlive(["prove", "model", "covert-latches"]).succeeds();
    assert!(
        text.contains(": found") && text.contains("T2 (read Y"),
        "{text}"
    );
}

#[test]
fn a_proof_that_is_not_there_is_bad_usage() {
    outlive(["prove", "machine-crash", "perpetual.motion"]).fails(2, "--list");
    outlive(["prove", "machine-crash"]).fails(2, "--all");
    outlive(["prove", "machine-crash", "ycsb", "--points", "0"]).fails(2, "give at least 20");
    outlive(["prove", "transactions", "ford", "--runs", "0"]).fails(2, "0 is not in 1..");
    outlive(["prove", "kill", "perpetual.motion"]).fails(2, "--list");
    outlive(["prove", "kill"]).fails(2, "--all");
    outlive(["prove", "schedule"]).fails(2, "--all");
    outlive(["prove", "kill", "--all", "role"]).fails(2, "");
}

#[test]
fn shells_are_helped() {
    for shell in ["bash", "zsh", "fish"] {
        let script = outlive(["completions", shell]).succeeds();
        assert!(script.contains("machine-crash"), "{script}");
    }
}

#[test]
fn every_command_shows_examples() {
    for command in [
        &["prove", "kill"][..],
        &["prove", "schedule"],
        &["prove", "chaos"],
        &["prove", "machine-crash"],
        &["prove", "transactions"],
        &["prove", "model"],
        &["study"],
        &["completions"],
        &[],
    ] {
        let mut arguments = command.to_vec();
        arguments.push("--help");
        let help = outlive(arguments).succeeds();
        assert!(help.contains("Examples:\n  outlive-lab"), "{help}");
    }
}
