//! `outlive run kmeans`: hosts are killed, and the centres are those of the plain program, to the
//! last bit.

use crate::support::outlive;
use crate::support::programs::{
    an_interrupted_run_leaves_nothing, is_the_same_however_hosts_are_killed, refused, run,
};
use crate::support::run::Stage;
use outlive_programs::kmeans::{Options, Points, cluster};
use std::fmt::Write;
use std::fs;

/// Returns the expected `--output`, and the number of iterations.
fn expected(points: &Points, options: &Options) -> (String, u32) {
    let found = cluster(points, options).unwrap();
    let mut text = String::new();
    let centres = found.centres.chunks(points.dimensions());
    for (centre, count) in centres.zip(&found.counts) {
        let shown: Vec<String> = centre.iter().map(ToString::to_string).collect();
        writeln!(text, "{count}\t{}", shown.join(",")).unwrap();
    }
    (text, found.iterations)
}

fn options(clusters: usize) -> Options {
    Options {
        clusters,
        ..Options::default()
    }
}

#[test]
fn centres_are_the_same_to_the_last_bit_however_hosts_are_killed() {
    let stage = Stage::new("kmeans-killed");
    let (expected, iterations) = expected(&Points::generate(6000, 3, 8, 5), &options(7));
    assert!(iterations > 3, "{iterations}");
    let group = [
        "kmeans",
        "random:6000:3:8:5",
        "--clusters",
        "7",
        "--task-points",
        "100",
    ];
    let group = [&group[..], &["--verify"]].concat();
    is_the_same_however_hosts_are_killed(&stage, &group, &expected, true, |summary| {
        assert_eq!(summary["result"]["verified"], true);
        assert_eq!(summary["result"]["iterations"], iterations);
        assert_eq!(summary["units"], iterations * 60);
    });
    // The result does not depend on the division into tasks.
    for task_points in ["1", "999", "100000"] {
        let group = ["kmeans", "random:6000:3:8:5", "--clusters", "7"];
        let (found, _) = run(
            &stage,
            &[&group[..], &["--task-points", task_points]].concat(),
        );
        assert_eq!(found, expected, "{task_points}");
    }
}

#[test]
fn clusters_iterations_and_tolerance_are_what_was_asked_for() {
    let stage = Stage::new("kmeans-asked");
    let text = "x,y\n1,1\n1,2\n9,9\n9,8\n20,1.5\n";
    let path = stage.write("points.csv", text.as_bytes());
    let points = Points::parse(text.as_bytes()).unwrap();
    let asked = Options {
        clusters: 2,
        seed: 3,
        ..Options::default()
    };
    let (found, summary) = run(
        &stage,
        &[
            "kmeans",
            &path,
            "--clusters",
            "2",
            "--initial",
            "3",
            "--kill",
            "1",
            "--verify",
        ],
    );
    assert_eq!(found, expected(&points, &asked).0);
    let result = &summary["result"];
    assert_eq!(
        (&result["points"], &result["dimensions"]),
        (&5.into(), &2.into())
    );
    assert_eq!(
        (&result["converged"], &result["initial"]),
        (&true.into(), &3.into())
    );
    let asked = Options {
        clusters: 20,
        iterations: 2,
        ..Options::default()
    };
    let points = Points::generate(3000, 40, 8, 1);
    let group = [
        "kmeans",
        "random:3000:40",
        "--clusters",
        "20",
        "--iterations",
        "2",
    ];
    let (found, summary) = run(&stage, &[&group[..], &["--task-points", "77"]].concat());
    assert_eq!(found, expected(&points, &asked).0);
    assert_eq!(summary["result"]["converged"], false);
    assert_eq!(summary["result"]["verified"], serde_json::Value::Null);
    let (_, summary) = run(&stage, &["kmeans", "random:500", "--tolerance", "1e9"]);
    assert_eq!(summary["result"]["iterations"], 1);
    // As text.
    let shown = outlive([
        "run",
        "kmeans",
        &path,
        "--clusters",
        "1",
        "--verify",
        "--top",
        "1",
    ]);
    let shown = shown.succeeds();
    assert!(shown.contains("5 points of 2 coordinates in"), "{shown}");
    let end = " 5  8,4.3\nverified: grouping in another way gave the same result";
    assert!(shown.trim_end().ends_with(end), "{shown}");
}

/// Returns a file as numpy.save writes it.
fn npy(kind: &str, order: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{kind}', 'fortran_order': {order}, 'shape': ({shape}), }}\n");
    let len = (header.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\x00", &len[..], header.as_bytes(), data].concat()
}

#[test]
fn points_in_arrays_are_those_in_text() {
    let stage = Stage::new("kmeans-arrays");
    let group = |name: &str, bytes: &[u8]| {
        let path = stage.write(name, bytes);
        run(
            &stage,
            &[
                "kmeans",
                &path,
                "--clusters",
                "2",
                "--kill",
                "1",
                "--verify",
            ],
        )
        .0
    };
    let expected = group("text", b"1 10\n2 20\n90 100\n80 120\n");
    assert_eq!(
        group("fortran", b"1d0,1D+1\n2D0,2D1\n9D1,1D2\n8D1,1.2d2\n"),
        expected
    );
    let numbers = [1u8, 10, 2, 20, 90, 100, 80, 120];
    assert_eq!(
        group("u1.npy", &npy("|u1", "False", "4, 2", &numbers)),
        expected
    );
    let floats = numbers.map(|it| f32::from(it).to_be_bytes()).concat();
    assert_eq!(
        group("f4.npy", &npy(">f4", "False", "4, 2", &floats)),
        expected
    );
    let columns = [1i64, 2, 90, 80, 10, 20, 100, 120]
        .map(i64::to_le_bytes)
        .concat();
    assert_eq!(
        group("i8.npy", &npy("<i8", "True", "4, 2", &columns)),
        expected
    );
}

#[test]
fn what_cannot_be_grouped_is_refused() {
    let stage = Stage::new("kmeans-refused");
    let group = |arguments: &[&str]| {
        let mut all = vec!["kmeans"];
        all.extend(arguments);
        refused(&all)
    };
    group(&[&stage.path("missing")]).fails(1, "missing cannot be read: No such file");
    let ragged = stage.write("ragged", b"1 2\n3\n");
    group(&[&ragged]).fails(
        1,
        "ragged: line 2 has 1 coordinates, but the points before it have 2",
    );
    let empty = stage.write("empty", b"# nothing\n");
    group(&[&empty]).fails(1, "empty: the input contains no point");
    let half = stage.write("half.npy", &npy("<f2", "False", "1, 1", &[0, 0]));
    group(&[&half]).fails(
        1,
        "half.npy: NumPy's header says elements of kind <f2; f4, f8",
    );
    let flat = stage.write("flat.npy", &npy("|u1", "False", "2,", &[0, 0]));
    group(&[&flat]).fails(1, "array.reshape(-1, 1)");
    let large = stage.write("large.npy", &npy("<u8", "False", "1, 1", &[255; 8]));
    group(&[&large]).fails(
        1,
        "element 0 is 18446744073709551615, which a 64-bit floating-point",
    );
    let two = stage.write("two", b"1 2\n3 4\n3 4\n");
    group(&[&two]).fails(2, "8 groups of 2 distinct points are not possible");
    group(&[&two, "--clusters", "0"]).fails(2, "--clusters");
    group(&[&two, "--tolerance=-1"]).fails(2, "0 or more");
    group(&[&two, "--tolerance", "nan"]).fails(2, "0 or more");
    group(&["random:0"]).fails(2, "write random:POINTS[:DIMENSIONS][:CENTRES][:SEED]");
    group(&["random:1073741824:2"]).fails(2, "ask for fewer points");
    group(&[&two, "--clusters", "2", "--output", &two]).fails(1, "would be replaced");
    assert_eq!(fs::read(&two).unwrap(), b"1 2\n3 4\n3 4\n");
    group(&["random:300000:10", "--size", "8M"]).fails(1, "--size");
    let none = [
        "random:999",
        "--task-points",
        "9",
        "--hosts",
        "2",
        "--kill",
        "2",
    ];
    group(&[&none[..], &["--supervise", "none"]].concat()).fails(1, "all 2 hosts are dead");
}

#[test]
fn an_interrupted_grouping_leaves_nothing() {
    let _stage = Stage::new("kmeans-interrupted");
    let group = ["kmeans", "random:300000:3:1000", "--clusters", "3000"];
    an_interrupted_run_leaves_nothing(&group);
    // Iterations that follow each other quickly.
    let quick = [
        "kmeans",
        "random:60000:2:60000",
        "--clusters",
        "300",
        "--task-points",
        "100",
    ];
    an_interrupted_run_leaves_nothing(&[&quick[..], &["--iterations", "1000000"]].concat());
}
