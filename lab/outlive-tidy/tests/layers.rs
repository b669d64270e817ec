//! No arrow points up: the allowed uses between crates, and between the modules of the core and of
//! the tasks.

use outlive_tidy::{arrows, files, root};
use std::fs;

/// The core's layers, from the ground up. Modules of one layer may use each other.
const CORE: &[&[&str]] = &[
    &["fork", "fork_exclusion"],
    &["segment"],
    &["host"],
    &["membership"],
    &["recovery"],
    &["sync"],
    &["heap"],
    &["structures"],
    &["objects"],
    &["supervise"],
    &["pod"],
];

/// Those of the tasks.
const TASKS: &[&[&str]] = &[
    &["engine"],
    &["store"],
    &["functions"],
    &["pool"],
    &["interface"],
];

/// Those of the store.
const STORE: &[&[&str]] = &[
    &["verbs"],
    &["tables"],
    &["protocol"],
    &["servers"],
    &["workloads"],
];

/// Those of the memory pools.
const POOL: &[&[&str]] = &[
    &["layout"],
    &["error", "coherent"],
    &["catalogue"],
    &["pool", "data", "objects"],
    &["internals"],
];

/// Those of the litmus tests.
const LITMUS: &[&[&str]] = &[
    &["level"],
    &["test", "driver"],
    &["text", "scalable"],
    &["consistency"],
    &["suite", "recording"],
    &["run"],
    &["explain"],
];

/// Demands that each module of the crate in `crates/NAME` is in a layer, and uses none of a layer
/// above its own.
fn demand_layers(name: &str, layers: &[&[&str]]) {
    let layer = |module: &str| layers.iter().position(|layer| layer.contains(&module));
    let mut wrong = Vec::new();
    for arrow in arrows(&root().join("crates").join(name).join("src")) {
        let (Some(from), Some(to)) = (layer(&arrow.from), layer(&arrow.to)) else {
            wrong.push(format!("{arrow:?}: a module in this has no layer"));
            continue;
        };
        if to > from {
            let file = arrow.file.display();
            wrong.push(format!(
                "{file}: `{}` uses `{}`, which is above it",
                arrow.from, arrow.to
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn modules_of_the_core_use_those_below_them() {
    demand_layers("outlive", CORE);
}

#[test]
fn modules_of_the_tasks_use_those_below_them() {
    demand_layers("outlive-tasks", TASKS);
}

#[test]
fn modules_of_the_store_use_those_below_them() {
    demand_layers("outlive-store", STORE);
}

#[test]
fn modules_of_the_memory_pools_use_those_below_them() {
    demand_layers("outlive-pool", POOL);
}

#[test]
fn modules_of_the_litmus_tests_use_those_below_them() {
    demand_layers("outlive-litmus", LITMUS);
}

/// The crates, from the ground up, each with those of this repository that it may use. For tests,
/// the product's may use more.
const CRATES: &[(&str, &[&str])] = &[
    ("crates/outlive-memory", &[]),
    ("crates/outlive", &["outlive-memory"]),
    ("crates/outlive-tasks", &["outlive-memory", "outlive"]),
    ("crates/outlive-store", &["outlive-memory", "outlive"]),
    ("crates/outlive-pool", &["outlive-memory", "outlive"]),
    ("crates/outlive-litmus", &[]),
    ("crates/outlive-run", &["outlive", "outlive-tasks"]),
    (
        "crates/outlive-programs",
        &["outlive", "outlive-tasks", "outlive-run"],
    ),
    (
        "crates/outlive-cli",
        &[
            "outlive",
            "outlive-tasks",
            "outlive-store",
            "outlive-pool",
            "outlive-litmus",
            "outlive-run",
            "outlive-programs",
        ],
    ),
];

#[test]
fn the_product_does_not_use_the_laboratory_and_uses_no_crate_above() {
    for (path, allowed) in CRATES {
        let manifest =
            fs::read_to_string(root().join(path).join("Cargo.toml")).expect("a manifest");
        let (_, dependencies) = manifest
            .split_once("\n[dependencies]\n")
            .unwrap_or_default();
        let dependencies = dependencies.split("\n[").next().unwrap_or_default();
        for line in dependencies.lines() {
            let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
            let is_ours = name == "outlive" || name.starts_with("outlive-");
            assert!(
                !is_ours || allowed.contains(&name),
                "{path} depends on {name}"
            );
        }
    }
    let known = |path: &str| CRATES.iter().any(|(it, _)| *it == path);
    for manifest in files(&root().join("crates"), "toml") {
        let directory = manifest.parent().expect("a file of a crate");
        let path = directory.strip_prefix(root()).expect("below the root");
        assert!(
            known(&path.to_string_lossy()),
            "the crate {} is not in the list of layers",
            path.display()
        );
    }
}
