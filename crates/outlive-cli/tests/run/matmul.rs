//! `outlive run matmul`: hosts are killed, and the product is that of three nested loops, to the
//! last bit.

use crate::support::programs::{an_interrupted_run_leaves_nothing, assert_killed, ways_to_die};
use crate::support::run::{Stage, assert_nothing_is_left};
use crate::support::{Ended, outlive};
use outlive_programs::matmul::{Matrix, verify::naive};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Multiplies. Returns the output and the report.
fn multiply(stage: &Stage, inputs: [&str; 2], arguments: &[&str]) -> (Vec<u8>, Value) {
    let output = stage.path("product.npy");
    let mut all = vec!["run", "matmul", inputs[0], inputs[1]];
    all.extend(["--json", "--output", &output]);
    all.extend(arguments);
    let summary: Value = serde_json::from_str(&outlive(all).succeeds()).unwrap();
    assert_nothing_is_left(&summary);
    (fs::read(&output).unwrap(), summary)
}

#[test]
fn products_are_those_of_three_loops_however_hosts_are_killed() {
    let stage = Stage::new("product");
    let (a, b) = (Matrix::generate(203, 301, 1), Matrix::generate(301, 117, 2));
    let expected = naive(&a, &b).unwrap().to_npy();
    let left = stage.write("a.npy", &a.to_npy());
    let right = stage.write("b.mtx", b.to_matrix_market().as_bytes());
    let generated = ["random:203:301:1", "random:301:117:2"];
    for (hosts, processes, threads, kills, blocks) in [
        ("1", "1", "1", 0, None),
        ("1", "1", "1", 1, Some(("50", "40"))),
        ("2", "1", "2", 1, Some(("7", "16"))),
        ("3", "2", "1", 2, Some(("1", "200"))),
        ("4", "1", "2", 6, Some(("2", "1"))),
    ] {
        let kill = kills.to_string();
        for (supervise, at) in ways_to_die(hosts, &kill) {
            let mut arguments = vec!["--kill", &kill, "--kill-at", at, "--supervise", supervise];
            arguments.extend(["--hosts", hosts, "--processes", processes]);
            arguments.extend(["--threads", threads, "--verify"]);
            if let Some((rows, columns)) = blocks {
                arguments.extend(["--task-rows", rows, "--task-columns", columns]);
            }
            let inputs = match at {
                "commit" => [&*left, &right],
                _ => generated,
            };
            let (found, summary) = multiply(&stage, inputs, &arguments);
            assert!(found == expected, "{summary}");
            let result = &summary["result"];
            assert_eq!(
                [&result["rows"], &result["depth"], &result["columns"]],
                [203, 301, 117]
            );
            assert_eq!(result["verified"], true);
            let size = |name: &str| result[name].as_u64().unwrap();
            let (rows, columns) = (size("task_rows"), size("task_columns"));
            assert_eq!(columns % 8, 0);
            let units = 203u64.div_ceil(rows) * 117u64.div_ceil(columns);
            assert_eq!(summary["units"], units);
            // Other threads of a host may finish the rest before it is killed.
            assert_killed(&summary, kills, at == "commit" && threads == "1");
        }
    }
}

#[test]
fn matrices_of_odd_shapes_are_multiplied() {
    let stage = Stage::new("shapes");
    for (rows, depth, columns) in [(1, 1, 1), (1, 3000, 1), (700, 1, 900), (1, 5, 3000)] {
        let inputs = [
            format!("random:{rows}:{depth}"),
            format!("random:{depth}:{columns}:5"),
        ];
        let (found, _) = multiply(&stage, [&inputs[0], &inputs[1]], &["--hosts", "2"]);
        let (a, b) = (
            Matrix::generate(rows, depth, 1),
            Matrix::generate(depth, columns, 5),
        );
        assert!(
            found == naive(&a, &b).unwrap().to_npy(),
            "{rows} {depth} {columns}"
        );
    }
    // As text.
    let text = stage.path("product.mtx");
    let mut arguments = vec![
        "run",
        "matmul",
        "random:40:30",
        "random:30:20",
        "--kill",
        "1",
    ];
    arguments.extend(["--task-rows", "3", "--verify", "--output", &text]);
    let shown = outlive(arguments).succeeds();
    assert!(
        shown.contains("40 x 20: the product of random:40:30:1"),
        "{shown}"
    );
    assert!(shown.contains("nothing was lost"), "{shown}");
    assert!(shown.contains("the product is right"), "{shown}");
    let (a, b) = (Matrix::generate(40, 30, 1), Matrix::generate(30, 20, 1));
    assert_eq!(
        Matrix::read(Path::new(&text)).unwrap(),
        naive(&a, &b).unwrap()
    );
}

#[test]
fn arrays_of_whole_numbers_are_multiplied() {
    let stage = Stage::new("whole-numbers");
    let array = |kind: &str, order: &str, data: &[u8]| {
        let header =
            format!("{{'descr': '{kind}', 'fortran_order': {order}, 'shape': (2, 2), }}\n");
        let len = (header.len() as u16).to_le_bytes();
        [b"\x93NUMPY\x01\x00", &len[..], header.as_bytes(), data].concat()
    };
    // 1 2, 3 -4 and 5 6, 7 8.
    let left = [1i16, 3, 2, -4].map(i16::to_be_bytes).concat();
    let left = stage.write("left.npy", &array(">i2", "True", &left));
    let right = [5f32, 6.0, 7.0, 8.0].map(f32::to_le_bytes).concat();
    let right = stage.write("right.npy", &array("<f4", "False", &right));
    let (found, _) = multiply(&stage, [&left, &right], &["--verify"]);
    let found = Matrix::parse(&found).unwrap();
    assert_eq!(found.elements(), [19.0, 22.0, -13.0, -14.0]);
}

#[test]
fn what_cannot_be_multiplied_is_refused() {
    let stage = Stage::new("refused");
    let run = |arguments: &[&str]| -> Ended {
        let mut all = vec!["run", "matmul"];
        all.extend(arguments);
        outlive(all)
    };
    let missing = stage.path("missing");
    run(&[&missing, "random:2:2"]).fails(1, "missing cannot be read: No such file");
    run(&["random:2:2", "random:3:2"]).fails(2, "2 columns cannot be multiplied with 3 rows");
    run(&["random:2", "random:3:2"]).fails(2, "write random:ROWS:COLUMNS[:SEED]");
    run(&["random:2:2", "random:2:2", "--task-rows", "0"]).fails(2, "--task-rows");
    let text = stage.write("text", b"a b c\n");
    run(&["random:2:2", &text]).fails(1, "text: this is not a matrix");
    let short = stage.write("short.npy", &Matrix::generate(3, 3, 1).to_npy()[..150]);
    run(&[&short, "random:3:3"]).fails(1, "short.npy: ");
    let bad = stage.write(
        "bad.mtx",
        b"%%MatrixMarket matrix array real general\n1 1\nnan\n",
    );
    run(&[&bad, "random:1:1"]).fails(1, "bad.mtx: element 0 is NaN");
    let good = stage.write("good.npy", &Matrix::generate(2, 2, 1).to_npy());
    run(&[&good, &good, "--output", &good]).fails(1, "would be replaced");
    assert_eq!(fs::read(&good).unwrap(), Matrix::generate(2, 2, 1).to_npy());
    let place = stage.path("no/where");
    run(&["random:2:2", "random:2:2", "--output", &place]).fails(1, "cannot be written");
    let inputs = ["random:400:400", "random:400:400"];
    run(&[inputs[0], inputs[1], "--size", "4M"]).fails(1, "--size");
    let mut none = vec![inputs[0], inputs[1], "--hosts", "2", "--kill", "2"];
    none.extend(["--supervise", "none", "--task-rows", "9"]);
    run(&none).fails(1, "all 2 hosts are dead");
}

#[test]
fn an_interrupted_multiplication_leaves_nothing() {
    let stage = Stage::new("product-interrupted");
    let output = stage.write("product.npy", b"as it was");
    // At least half a minute's work.
    let large = ["matmul", "random:5000:5000", "random:5000:5000"];
    an_interrupted_run_leaves_nothing(&[&large[..], &["--output", &output]].concat());
    assert_eq!(fs::read(&output).unwrap(), b"as it was");
    // The file beside it is gone too.
    assert_eq!(fs::read_dir(&stage.directory).unwrap().count(), 1);
}
