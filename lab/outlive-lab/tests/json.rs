//! Every field that `--json` prints is explained in `docs/json.md`.

#[path = "../../../crates/outlive-cli/tests/support/mod.rs"]
mod support;

use serde_json::Value;
use support::explained::{EXPLAINED, assert_explained};
use support::outlive;

#[test]
fn the_fields_of_proofs_are_explained() {
    let heading = "## `outlive-lab prove";
    let list = outlive(["prove", "schedule", "--list", "--json"]).succeeds();
    let parsed: Value = serde_json::from_str(&list).unwrap();
    for field in parsed[0].as_object().unwrap().keys() {
        assert!(EXPLAINED.contains(&format!("`{field}`")), "{field}");
    }
    let schedule = outlive(["prove", "schedule", "role, two backups", "--json"]).succeeds();
    assert_explained(heading, &schedule);
    let chaos = outlive(["prove", "chaos", "--seconds", "1.5", "--json"]).succeeds();
    assert_explained(heading, &chaos);
    let objects = ["prove", "chaos", "--objects", "--seconds", "1.5", "--json"];
    assert_explained(heading, &outlive(objects).succeeds());
    let kill = outlive(["prove", "kill", "role.take", "--json"]);
    match kill.errors.contains("ptrace is forbidden here") {
        true => println!("skipped: {}", kill.errors),
        false => assert_explained(heading, &kill.succeeds()),
    }
}
