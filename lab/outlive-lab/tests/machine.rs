//! The simulated machine from the command line: runs, and descriptions of traces.

#[path = "../../../crates/outlive-cli/tests/support/mod.rs"]
mod support;

use outlive_machine::cluster::MessageKind;
use outlive_machine::description::Protocol;
use outlive_machine::program::Word;
use outlive_machine::protocol::{DirectoryState, Name, NodeState};
use outlive_machine::trace::{About, Encoding, Event, TraceWriter};
use serde_json::Value;
use std::process::Command;
use support::outlive;

fn trace() -> Vec<u8> {
    let mut writer = TraceWriter::new(Vec::new(), 2, Encoding::Deflate).unwrap();
    writer.image(Word(0), &[1, 2]).unwrap();
    for thread in 0..2 {
        writer.event(thread, Event::Compute(3)).unwrap();
        let word = Word(7);
        writer
            .event(thread, Event::Load { word, value: None })
            .unwrap();
        writer
            .event(thread, Event::Store { word, value: 5 })
            .unwrap();
    }
    let origin = vec![("program".into(), "a \u{1b}[31mtest".into())];
    let about = About {
        words: 8,
        threads: 2,
        origin,
        ..About::default()
    };
    writer.finish(&about).unwrap()
}

#[test]
fn a_trace_is_described() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("trace");
    std::fs::write(&file, trace()).unwrap();
    let path = file.to_str().unwrap();
    let json = outlive(["machine", "trace-info", path, "--json"]).succeeds();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["total"]["instructions"], 10);
    assert_eq!(json["threads"][1]["loads"], 1);
    assert_eq!(json["total"]["store_fraction"], 0.5);
    assert_eq!(
        (&json["shared_bytes"], &json["image_bytes"]),
        (&64.into(), &16.into())
    );
    let text = outlive(["machine", "trace-info", path]).succeeds();
    assert!(
        text.contains("instructions") && !text.contains('\u{1b}'),
        "{text}"
    );
}

#[test]
fn a_cut_trace_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("trace");
    let mut bytes = trace();
    bytes.truncate(bytes.len() - 1);
    std::fs::write(&file, bytes).unwrap();
    outlive(["machine", "trace-info", file.to_str().unwrap()]).fails(1, "ends too early");
}

#[test]
fn what_is_wrong_with_a_trace_is_its_cause() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("trace");
    let path = file.to_str().unwrap();
    let info = |path: &str| outlive(["machine", "trace-info", path]);
    info(path).fails(1, "cannot be opened: No such file");
    info(directory.path().to_str().unwrap()).fails(1, "this is a directory");
    let whole = trace();
    std::fs::write(&file, [&whole[..], b"more"].concat()).unwrap();
    info(path).fails(
        1,
        &format!(
            "byte {}: the trace ends here, and the file is 4 bytes longer",
            whole.len()
        ),
    );
    let mut flipped = whole.clone();
    *flipped.last_mut().unwrap() ^= 1;
    std::fs::write(&file, &flipped).unwrap();
    info(path).fails(1, "the last 8 bytes are not");
    let mut reserved = whole.clone();
    reserved[12] = 1;
    std::fs::write(&file, &reserved).unwrap();
    info(path).fails(1, "at byte 12: reserved bytes are not zero");
    // Without a writer, opening the pipe would block.
    let pipe = directory.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    for command in ["trace-info", "run"] {
        outlive(["machine", command, pipe.to_str().unwrap()]).fails(1, "this is a pipe");
    }
    outlive(["machine", "run", "/dev/null"]).fails(1, "this is a device");
}

#[test]
fn a_trace_without_operations_is_no_result() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("trace");
    let writer = TraceWriter::new(Vec::new(), 1, Encoding::Plain).unwrap();
    let about = About {
        words: 8,
        threads: 1,
        region_only: true,
        ..About::default()
    };
    std::fs::write(&file, writer.finish(&about).unwrap()).unwrap();
    let path = file.to_str().unwrap();
    let said = outlive(["machine", "trace-info", path]).succeeds();
    assert!(
        said.contains("no operations") && said.contains("0 locks"),
        "{said}"
    );
    outlive(["machine", "run", path]).fails(1, "outlive_roi_begin");
}

/// A machine of four cores, as a file in this directory.
fn small(directory: &tempfile::TempDir, more: &str) -> String {
    let file = directory.path().join("small.toml");
    let nodes = "[system]\ncompute_nodes = 4\nmemory_nodes = 2\ncores_per_node = 1\n";
    std::fs::write(&file, format!("{nodes}{more}")).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn a_workload_runs_is_checked_and_repeats() {
    let directory = tempfile::tempdir().unwrap();
    let machine = small(&directory, "");
    let run = |configuration: &str, more: &[&str]| {
        let run = ["machine", "run", "ocean-cp", "--size", "test", "--machine"];
        let with = [machine.as_str(), "--configuration", configuration];
        outlive(run.into_iter().chain(with).chain(more.iter().copied())).succeeds()
    };
    let json = |configuration: &str| -> Value {
        let mut json: Value = serde_json::from_str(&run(configuration, &["--json"])).unwrap();
        let mut took = |name| {
            let took = json.as_object_mut().unwrap().remove(name);
            took.and_then(|took| took.as_f64()).unwrap()
        };
        let simulating = took("simulating_seconds");
        assert!(0.0 < simulating && simulating < took("host_seconds"));
        json
    };
    for configuration in [
        "wb",
        "wt",
        "baseline",
        "parallel",
        "proactive",
        "uncoalesced",
    ] {
        let first = json(configuration);
        assert_eq!(
            (&first["checked"], &first["threads"]),
            (&true.into(), &4.into())
        );
        let name = first["configuration"].as_str().unwrap();
        assert!(name.ends_with(configuration), "{name}");
        let replicates = !matches!(configuration, "wb" | "wt");
        assert_eq!(first["messages"]["Repl"].is_object(), replicates, "{first}");
        assert_eq!(first["largest_log_bytes"].as_u64() > Some(0), replicates);
        assert_eq!(first["replica_wait"].is_number(), replicates, "{first}");
        let loads = first["loads"].as_object().unwrap().values();
        let all: f64 = loads.map(|share| share.as_f64().unwrap()).sum();
        assert!((all - 1.0).abs() < 1e-9 && first["busiest_link"]["busy"].as_f64() < Some(1.0));
    }
    assert_eq!(json("proactive"), json("recxl-proactive"));
    assert_ne!(json("proactive")["seconds"], json("wb")["seconds"]);
    let text = run("proactive", &["--trace", "0x1"]);
    for said in [
        "is right",
        "published",
        "17.00%",
        "SPLASH-2 ocean",
        "loads found in the L1",
        "the busiest link",
        "5.8 (the paper)",
        "Repl ",
        "CN",
    ] {
        assert!(text.contains(said), "{said} is not in {text}");
    }
}

#[test]
fn a_node_dies_in_a_run() {
    let directory = tempfile::tempdir().unwrap();
    let machine = small(&directory, "");
    let run = |configuration| {
        let what = [
            "machine",
            "run",
            "ycsb",
            "--size",
            "test",
            "--machine",
            &machine,
        ];
        let how = [
            "--configuration",
            configuration,
            "--crash",
            "1@10us",
            "--json",
        ];
        outlive([&what[..], &how].concat())
    };
    let json: Value = serde_json::from_str(&run("proactive").succeeds()).unwrap();
    let fallout = &json["fallout"];
    assert_eq!(fallout["deaths"][0]["node"], 1);
    assert!(fallout["recovered_seconds"].as_f64() > fallout["deaths"][0]["seconds"].as_f64());
    assert_eq!(
        (&fallout["lost"], &fallout["living"]),
        (&0.into(), &"ended".into())
    );
    assert_eq!(
        (&fallout["promised"], &fallout["together"]),
        (&true.into(), &1.into())
    );
    assert_eq!(json["checked"], false);
    // Nothing was promised, so that is not a failure.
    let json: Value = serde_json::from_str(&run("wb").succeeds()).unwrap();
    assert!(json["fallout"]["lost"].as_u64() > Some(0));
    assert_eq!(json["fallout"]["promised"], false);
}

#[test]
fn too_many_deaths_and_those_after_the_end_are_told() {
    let run = [
        "machine",
        "run",
        "ycsb",
        "--size",
        "test",
        "--configuration",
    ];
    let with = |configuration, crashes: &[&'static str]| {
        let crashes = crashes.iter().flat_map(|crash| ["--crash", crash]);
        outlive(run.into_iter().chain([configuration]).chain(crashes))
    };
    let four = ["0@20us", "1@20us", "2@20us", "3@20us"];
    let said = with("proactive", &four).says(1);
    assert!(said.contains("More nodes died than this machine promises to survive: 4 nodes"));
    let said = with("wb", &["3@1s"]).succeeds();
    assert!(said.contains("was checked and is right") && said.contains("had already ended at "));
    with("wb", &["3@20us", "CN3@30us"]).fails(2, "CN3 is to die twice");
    let said = with("proactive", &["3@0us"]).succeeds();
    assert!(said.contains("CN3 died at 0 ns"), "{said}");
}

#[test]
fn a_trace_runs() {
    let directory = tempfile::tempdir().unwrap();
    let (machine, file) = (small(&directory, ""), directory.path().join("trace"));
    std::fs::write(&file, trace()).unwrap();
    let run = [
        "machine",
        "run",
        file.to_str().unwrap(),
        "--machine",
        machine.as_str(),
        "--json",
    ];
    for more in [
        &[][..],
        &["--recorded-order", "--configuration", "proactive"],
    ] {
        let json = outlive(run.into_iter().chain(more.iter().copied())).succeeds();
        let json: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            (&json["instructions"], &json["checked"]),
            (&10.into(), &false.into())
        );
        assert!(json["size"].is_null() && json["store_fraction"] == 0.5);
    }
    let size = ["--size", "test"];
    outlive(run.into_iter().chain(size)).fails(2, "as it was recorded");
    let alone = directory.path().join("alone.toml");
    std::fs::write(&alone, "system = { compute_nodes = 1, cores_per_node = 1 }").unwrap();
    let alone = alone.to_str().unwrap();
    outlive(["machine", "run", run[2], "--machine", alone])
        .fails(2, "has 2 threads (the first is main)");
    std::fs::write(&file, &trace()[..100]).unwrap();
    outlive(run).fails(1, "ends too early");
}

#[test]
fn threads_fill_nodes_or_are_spread() {
    let run = ["machine", "run", "ycsb", "--size", "test", "--json"];
    let nodes = |more: &[&'static str]| -> Value {
        let json = outlive(run.into_iter().chain(more.iter().copied())).succeeds();
        let json: Value = serde_json::from_str(&json).unwrap();
        json["nodes"].clone()
    };
    assert_eq!(nodes(&["--threads", "4"]), 1);
    assert_eq!(nodes(&["--threads", "5"]), 2);
    assert_eq!(nodes(&["--threads", "4", "--spread"]), 4);
    assert_eq!(nodes(&["--threads", "17", "--spread"]), 9);
}

/// The page names every kind of message and every state that a report or a trace may show.
#[test]
fn the_page_about_the_machine_is_complete() {
    let page = include_str!("../../../docs/machine.md");
    let kinds = MessageKind::ALL.iter().map(|kind| format!("{kind:?}"));
    let nodes = NodeState::ALL.iter().map(|state| format!("{state:?}"));
    let directories = DirectoryState::ALL.iter().map(|state| format!("{state:?}"));
    let protocols = Protocol::ALL.iter().map(|one| one.name().to_owned());
    for name in kinds.chain(nodes).chain(directories).chain(protocols) {
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
}

#[test]
fn what_cannot_be_run_is_said() {
    let run =
        |more: &[&'static str]| outlive(["machine", "run"].into_iter().chain(more.iter().copied()));
    run(&["perpetual-motion"]).fails(2, "outlive-lab machine list");
    run(&["ycbs"]).fails(2, "did you mean ycsb?");
    run(&["perpetual.trace"]).fails(1, "there is no file");
    run(&["ycsb", "--size", "huge"]).fails(2, "tenfold");
    run(&["ycsb", "--configuration", "wbb"]).fails(2, "uncoalesced");
    run(&["ycsb", "--threads", "65"]).fails(2, "64 cores");
    run(&["ycsb", "--threads", "-1"]).fails(2, "-1 is not in 1..=65535");
    run(&["ycsb", "--seed", "-1"]).fails(2, "give a whole number from 0");
    run(&["ycsb", "--crash", "-1@1us"]).fails(2, "such as 3@50us");
    run(&["ycsb", "--size", "test", "--trace", "line"]).fails(2, "divided by 64");
    run(&["ycsb", "--size", "test", "--trace", "99999999"]).fails(2, "does not exist");
    run(&["ycsb", "--recorded-order"]).fails(2, "is for traces");
    run(&["ycsb", "--machine", "/nowhere.toml"]).fails(1, "cannot be read");
    // The line of the fault, and the correction.
    let directory = tempfile::tempdir().unwrap();
    let wrong = small(&directory, "[l3]\nwayz = 8\n");
    outlive(["machine", "run", "ycsb", "--machine", wrong.as_str()])
        .fails(1, "line 6, column 1: there is no field `wayz`");
    outlive(["machine", "show", wrong.as_str()]).fails(1, "did you mean `ways`?");
    // A file may be of a machine that cannot replicate.
    let alone = small(&directory, "[logging_unit]\nreplication_factor = 0\n");
    let run = [
        "machine",
        "run",
        "ycsb",
        "--size",
        "test",
        "--machine",
        alone.as_str(),
    ];
    outlive(run).succeeds();
    let proactive = ["--configuration", "proactive"];
    outlive(run.into_iter().chain(proactive)).fails(
        1,
        "line 6, column 22: recxl-proactive has no node that logs a store",
    );
}

#[test]
fn what_is_no_compiler_is_told_so() {
    let make = ["machine", "record-build", "--", "make", "program"];
    outlive(make).fails(2, "`make` is not a compiler of C or C++");
    outlive(["machine", "record-build", "--", "no-such-compiler-here"]).fails(1, "did not start");
}

#[test]
fn machines_and_workloads_are_shown() {
    let shown = outlive(["machine", "show"]).succeeds();
    assert!(shown.contains("link_bandwidth = \"160 GB/s\"") && shown.contains("[ours.core]"));
    // The output is read back as the same.
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("shown.toml");
    std::fs::write(&file, &shown).unwrap();
    assert_eq!(
        outlive(["machine", "show", file.to_str().unwrap()]).succeeds(),
        shown
    );
    let json: Value =
        serde_json::from_str(&outlive(["machine", "show", "--json"]).succeeds()).unwrap();
    assert_eq!(json["cxl"]["link_bandwidth"], "160 GB/s");
    assert_eq!(json["ours"]["core"]["width"], 5);
    outlive(["machine", "show", "ycsb"]).fails(1, "this is a workload");
    let list = outlive(["machine", "list"]).succeeds();
    let json: Value =
        serde_json::from_str(&outlive(["machine", "list", "--json"]).succeeds()).unwrap();
    assert_eq!(json["workloads"].as_array().unwrap().len(), 9);
    for listed in ["workloads", "sizes", "configurations"]
        .iter()
        .flat_map(|of| json[of].as_array().unwrap())
    {
        let name = listed["name"].as_str().unwrap();
        assert!(
            list.lines().any(|line| line.starts_with(name)),
            "{name} is not in {list}"
        );
    }
}
