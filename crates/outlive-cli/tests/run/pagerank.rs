//! `outlive run pagerank`: hosts are killed, and the ranks are those of networkx, and to the last
//! bit those of a run without failures.

use crate::support::programs::{
    an_interrupted_run_leaves_nothing, is_the_same_however_hosts_are_killed, run,
};
use crate::support::run::Stage;
use crate::support::{Ended, outlive};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Ranks a graph. Returns the output and the report.
fn rank(stage: &Stage, graph: &str, arguments: &[&str]) -> (String, Value) {
    run(stage, &[&["pagerank", graph], arguments].concat())
}

/// Returns the path of a graph that networkx has ranked.
fn fixture(name: &str) -> String {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let path = crates.join("outlive-programs/tests/pagerank").join(name);
    path.to_str().unwrap().to_owned()
}

/// Reads `vertex<TAB>rank` lines.
fn read(text: &str) -> HashMap<&str, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let ranks = lines.map(|line| {
        let (vertex, rank) = line.split_once('\t').unwrap();
        (vertex, rank.parse().unwrap())
    });
    ranks.collect()
}

#[test]
fn ranks_are_those_of_networkx_while_hosts_are_killed() {
    let stage = Stage::new("networkx");
    for (graph, ranks, rows) in [
        (fixture("packages.txt.gz"), "packages.txt.gz.ranks", "40"),
        (fixture("small.mtx"), "small.mtx.ranks", "3"),
        ("rmat:9:8:5".into(), "rmat-9-8-5.ranks", "30"),
    ] {
        let expected = fs::read_to_string(fixture(ranks)).unwrap();
        let expected = read(&expected);
        let kills = ["--kill", "2", "--task-rows", rows, "--verify", "--top", "1"];
        let (written, summary) = rank(&stage, &graph, &kills);
        let found = read(&written);
        assert_eq!(found.len(), expected.len());
        for (vertex, rank) in &expected {
            assert!((found[vertex] - rank).abs() < 1e-9, "{vertex}: {rank}");
        }
        let result = &summary["result"];
        assert_eq!(result["vertices"], expected.len());
        assert_eq!(result["converged"], true);
        assert!(result["residual"].as_f64().unwrap() < 1e-10);
        assert!(result["largest_difference"].as_f64().unwrap() < 1e-12);
        let highest = expected.iter().max_by(|a, b| a.1.total_cmp(b.1)).unwrap();
        assert_eq!(result["top"][0]["vertex"], *highest.0);
        assert_eq!(
            summary["failures"].as_array().unwrap().len(),
            2,
            "{summary}"
        );
        assert_eq!(summary["kills_missed"], 0);
    }
}

/// Returns the dependencies of packages, as apt-cache prints them: an edge list, the number of
/// packages and the number of edges. `None` without apt-cache, or if it has no lists.
fn packages() -> Option<(String, usize, usize)> {
    let printed = Command::new("apt-cache").arg("dumpavail").output().ok()?;
    let printed = String::from_utf8(printed.stdout).ok()?;
    let mut edges: HashSet<(&str, &str)> = HashSet::new();
    let mut package = "";
    for line in printed.lines() {
        let Some((field, value)) = line.split_once(": ") else {
            continue;
        };
        match field {
            "Package" => package = value,
            // One of several, of any version and architecture.
            "Depends" | "Pre-Depends" => {
                for on in value.split([',', '|']) {
                    let on = on.trim().split([' ', ':', '(']).next().unwrap_or_default();
                    edges.insert((package, on));
                }
            }
            _ => {}
        }
    }
    edges.retain(|(package, on)| !package.is_empty() && !on.is_empty());
    let names: HashSet<&str> = edges.iter().flat_map(|edge| [edge.0, edge.1]).collect();
    let lines = edges
        .iter()
        .map(|(package, on)| format!("{package} {on}\n"));
    (!edges.is_empty()).then(|| (lines.collect(), names.len(), edges.len()))
}

#[test]
fn packages_are_ranked_by_what_depends_on_them() {
    let Some((list, vertices, edges)) = packages() else {
        println!(
            "skipped: there is no apt-cache here that knows packages (`apt-get update` gets it their lists)"
        );
        return;
    };
    let stage = Stage::new("packages");
    let graph = stage.write("packages", list.as_bytes());
    // Several parts, for any number of packages.
    let rows = vertices.div_ceil(20).to_string();
    let arguments = ["--task-rows", &rows, "--verify", "--top", "20"];
    let (expected, alone) = rank(
        &stage,
        &graph,
        &[&arguments[..], &["--hosts", "1"]].concat(),
    );
    let kills = ["--hosts", "3", "--kill", "2"];
    let (found, killed) = rank(&stage, &graph, &[&arguments[..], &kills].concat());
    assert!(found == expected, "{killed:#}");
    assert_eq!(killed["failures"].as_array().unwrap().len(), 2);
    for summary in [alone, killed] {
        let result = &summary["result"];
        assert_eq!(
            (&result["vertices"], &result["edges"]),
            (&vertices.into(), &edges.into())
        );
        assert!(
            result["largest_difference"].as_f64().unwrap() < 1e-12,
            "{result}"
        );
        assert_eq!(result["converged"], true);
        let top: Vec<&str> = { result["top"].as_array().unwrap().iter() }
            .map(|top| top["vertex"].as_str().unwrap())
            .collect();
        println!(
            "{vertices} packages, {edges} dependencies: {}",
            top.join(", ")
        );
        // A dependency of almost all packages, wherever there are packages of Debian.
        assert!(vertices < 1000 || top.contains(&"libc6"), "{top:?}");
    }
}

#[test]
fn ranks_are_the_same_to_the_last_bit_however_hosts_are_killed() {
    let stage = Stage::new("killed");
    let graph = "rmat:13";
    let (expected, alone) = rank(&stage, graph, &["--hosts", "1", "--task-rows", "300"]);
    assert_eq!(alone["units_redone"], 0);
    let iterations = &alone["result"]["iterations"];
    assert_eq!(alone["units"], iterations.as_u64().unwrap() * 28);
    let ranking = ["pagerank", graph, "--task-rows", "300"];
    is_the_same_however_hosts_are_killed(&stage, &ranking, &expected, true, |summary| {
        assert_eq!(&summary["result"]["iterations"], iterations);
    });
}

#[test]
fn iterations_damping_and_tolerance_are_what_was_asked_for() {
    let stage = Stage::new("asked");
    let arguments = [
        "--iterations",
        "10",
        "--tolerance",
        "0",
        "--damping",
        "0.5",
        "--verify",
    ];
    let (_, summary) = rank(&stage, "rmat:8", &arguments);
    let result = &summary["result"];
    assert_eq!(
        (&result["iterations"], &result["converged"]),
        (&10.into(), &false.into())
    );
    assert_eq!(result["damping"], 0.5);
    let (ranks, summary) = rank(&stage, "rmat:4", &["--iterations", "0"]);
    assert_eq!(summary["result"]["residual"], Value::Null);
    assert!(
        ranks.lines().all(|line| line.ends_with("\t0.0625")),
        "{ranks}"
    );
    // As text.
    let list = stage.write(
        "list",
        b"# weighted\nhome about 0.5\nabout home 2\nhome n\xc3\xa9ws 1\n",
    );
    let (ranks, _) = rank(&stage, &list, &[]);
    let names: Vec<&str> = ranks
        .lines()
        .map(|line| line.split('\t').next().unwrap())
        .collect();
    assert_eq!(names, ["home", "about", "n\u{e9}ws"]);
    let shown = outlive([
        "run", "pagerank", &list, "--kill", "1", "--verify", "--top", "1",
    ]);
    assert!(
        shown.errors.contains("has more than edges"),
        "{}",
        shown.errors
    );
    let shown = shown.succeeds();
    assert!(shown.contains("nothing was lost"), "{shown}");
    assert!(shown.contains("3 vertices and 3 edges"), "{shown}");
    assert!(
        shown.contains("from that of the plain computation"),
        "{shown}"
    );
    assert!(shown.contains("  home\n"), "{shown}");
}

#[test]
fn what_cannot_be_ranked_is_refused() {
    let stage = Stage::new("refused");
    let run = |arguments: &[&str]| -> Ended {
        let mut all = vec!["run", "pagerank"];
        all.extend(arguments);
        outlive(all)
    };
    run(&[&stage.path("missing")]).fails(1, "missing cannot be read: No such file");
    run(&["/dev/null"]).fails(1, "/dev/null has no edge and no vertex");
    run(&["rmat:99"]).fails(2, "rmat:SCALE");
    run(&["rmat:4", "--damping", "1.5"]).fails(2, "from 0 to 1");
    run(&["rmat:4", "--tolerance=-1"]).fails(2, "0 or more");
    let list = stage.write("list", b"1 2\n2\n");
    run(&[&list]).fails(1, "list, line 2: the line has only the field \"2\"");
    let list = stage.write("list", b"1 2\n2 1\n");
    run(&[&list, "--output", &list]).fails(1, "would be replaced");
    assert_eq!(fs::read(&list).unwrap(), b"1 2\n2 1\n");
    let matrix = stage.write(
        "m",
        b"%%MatrixMarket matrix coordinate pattern general\n2 2 1\n3 1\n",
    );
    run(&[&matrix]).fails(1, "m, line 3: row 3, column 1 is outside");
    let none = [
        "rmat:8",
        "--hosts",
        "2",
        "--kill",
        "2",
        "--supervise",
        "none",
        "--task-rows",
        "9",
    ];
    run(&none).fails(1, "all 2 hosts are dead");
    let taken = stage.write("taken", b"something");
    run(&["rmat:4", "--pod", &taken]).fails(1, "exists already");
    run(&["rmat:16", "--size", "4M"]).fails(1, "--size");
}

/// The edges 1 2, 2 3, 3 1 and 1 3, compressed by `xz`, `zstd`, `bzip2` and `gzip`.
const PACKED: [(&str, &[u8]); 4] = [
    ("xz", b"\
    \xFD\x37\x7A\x58\x5A\x00\x00\x04\xE6\xD6\xB4\x46\x02\x00\x21\x01\x16\x00\x00\x00\x74\x2F\xE5\xA3\
    \x01\x00\x0F\x31\x20\x32\x0A\x32\x20\x33\x0A\x33\x20\x31\x0A\x31\x20\x33\x0A\x00\xDC\xF0\xD3\xDA\
    \x31\xE9\x2B\x47\x00\x01\x28\x10\xE5\x0B\x6C\x60\x1F\xB6\xF3\x7D\x01\x00\x00\x00\x00\x04\x59\x5A\
    "),
    ("zstd", b"\
    \x28\xB5\x2F\xFD\x04\x58\x81\x00\x00\x31\x20\x32\x0A\x32\x20\x33\x0A\x33\x20\x31\x0A\x31\x20\x33\
    \x0A\x80\xF9\x56\x49\
    "),
    ("bzip2", b"\
    \x42\x5A\x68\x39\x31\x41\x59\x26\x53\x59\xE7\x46\x5C\x72\x00\x00\x04\xD8\x00\x00\x10\x40\x00\x38\
    \x00\x20\x00\x21\x2A\x7E\x94\xFD\x41\x9A\x0B\xF6\x31\xA8\x54\x78\x5D\xC9\x14\xE1\x42\x43\x9D\x19\
    \x71\xC8\
    "),
    ("gzip", b"\
    \x1F\x8B\x08\x00\x00\x00\x00\x00\x00\x03\x33\x54\x30\xE2\x32\x52\x30\xE6\x32\x56\x30\xE4\x32\x04\
    \xD2\x00\xCE\x27\x80\x06\x10\x00\x00\x00\
    "),
];

#[test]
fn graphs_are_read_as_people_have_them() {
    let stage = Stage::new("formats");
    let few = ["--hosts", "1"];
    let plain = stage.write("plain", b"1 2\n2 3\n3 1\n1 3\n");
    let (expected, summary) = rank(&stage, &plain, &few);
    assert_eq!(summary["result"]["header"], Value::Null);
    let padded = [PACKED[3].1, &[0; 1000]].concat();
    for (name, bytes, header) in [
        ("comma", &b"1,2\n2, 3\n3,1\n1,3\n"[..], None),
        ("semicolon", b"src;dst;weight\r\n1;2;0,5\r\n2;\"3\";1\r\n3;1;1\r\n1;3;1\r\n", Some("src;dst;weight")),
        ("header", b"node_1\tnode_2\n1\t2\n2\t3\n3\t1\n1\t3\n", Some("node_1\tnode_2")),
        ("mac", b"1 2\r2 3\r3 1\r1 3\r", None),
        ("fortran", b"%%MatrixMarket matrix coordinate real general\n3 3 4\n1 2 1D+5\n2 3 1\n3 1 1\n1 3 -2.5d-1\n", None),
        ("xz", PACKED[0].1, None),
        ("zstd", PACKED[1].1, None),
        ("bzip2", PACKED[2].1, None),
        ("gzip", PACKED[3].1, None),
        ("tape.gz", &padded, None),
    ] {
        let graph = stage.write(name, bytes);
        let (ranks, summary) = rank(&stage, &graph, &few);
        assert_eq!(ranks, expected, "{name}");
        assert_eq!(summary["result"]["header"], serde_json::json!(header), "{name}");
    }
    // As text.
    let cities = stage.write(
        "cities",
        b"From,To\nNew York,\"Paris, Texas\"\n\"Paris, Texas\",Rome\n",
    );
    let shown = outlive(["run", "pagerank", &cities, "--top", "1"]).succeeds();
    assert!(
        shown.contains("line 1, \"From,To\", was read as a header, not as an edge"),
        "{shown}"
    );
    assert!(shown.trim_end().ends_with("  Rome"), "{shown}");
    let doubtful = stage.write("doubtful", b"city,town\nRome,Paris\nParis,Rome\n");
    let shown = outlive(["run", "pagerank", &doubtful]);
    assert!(shown.errors.contains("line 1 of"), "{}", shown.errors);
    assert!(
        shown.errors.contains("remove it if it is a header"),
        "{}",
        shown.errors
    );
    let spaced = stage.write("spaced", b"New York,Rome\nRome,New York\n");
    let (ranks, _) = rank(&stage, &spaced, &["--separator", "comma"]);
    assert_eq!(ranks, "New York\t0.5\nRome\t0.5\n");
}

#[test]
fn what_is_no_graph_is_named_and_replaces_nothing() {
    let stage = Stage::new("foreign");
    let kept = stage.write("ranks", b"kept");
    let fails = |name: &str, bytes: &[u8], told: &str| {
        let graph = stage.write(name, bytes);
        outlive(["run", "pagerank", &graph, "--output", &kept]).fails(1, told);
        assert_eq!(fs::read(&kept).unwrap(), b"kept", "{name}");
    };
    for (name, packed) in PACKED {
        let told = format!("{name} is compressed by {name} and cannot be unpacked");
        fails(name, &packed[..packed.len() - 5], &told);
        fails(name, &[packed, b"1 2\n"].concat(), &told);
    }
    fails(
        "a.lz4",
        b"\x04\x22\x4D\x18\x64\x40",
        "a.lz4 is compressed by lz4",
    );
    fails("a.json", b"{\"nodes\": []}\n", "a.json is a JSON file");
    fails(
        "a.graphml",
        b"<?xml version=\"1.0\"?>\n<graphml/>\n",
        "a.graphml is an XML file",
    );
    fails(
        "a.txt",
        b"\xFF\xFE1\0 \x002\0\n\0",
        "a.txt is text in UTF-16",
    );
    fails(
        "a.mtx",
        b"%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 2\n",
        "a.mtx, line 1: ",
    );
    fails(
        "nul",
        b"1 2\n2 3\0\n",
        "nul, line 2: the line contains the byte 0x00",
    );
    fails(
        "mixed",
        b"1 2\n1, 2\n",
        "mixed, line 2: the separator of fields",
    );
    fails("york", b"New York,Rome\n", "--separator");
    let matrix = stage.write(
        "m",
        b"%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 2\n",
    );
    outlive(["run", "pagerank", &matrix, "--separator", "tab"]).fails(1, "leave out --separator");
    outlive(["run", "pagerank", "rmat:4", "--separator", "tab"])
        .fails(2, "this graph is generated");
    outlive(["run", "pagerank", &matrix, "--separator", "x"])
        .fails(2, "space, tab, comma or semicolon");
}

#[test]
fn an_interrupted_ranking_leaves_nothing() {
    let _stage = Stage::new("interrupted");
    let ranking = ["pagerank", "rmat:14", "--tolerance", "0"];
    an_interrupted_run_leaves_nothing(&[&ranking[..], &["--iterations", "1000000"]].concat());
}
