//! `outlive run histogram`: hosts are killed, and the counts are those of the plain program.

use crate::support::outlive;
use crate::support::programs::{
    an_interrupted_run_leaves_nothing, is_the_same_however_hosts_are_killed, refused, run,
};
use crate::support::run::Stage;
use outlive_programs::histogram::{Format, Layout, count, generate};
use std::fmt::Write;
use std::fs;

/// Returns the expected `--output`.
fn expected(file: &[u8], format: Format) -> String {
    let layout = Layout::find(file, format).unwrap();
    let bins = count(file, &layout);
    let mut text = String::new();
    for (channel, counts) in layout.channels().iter().zip(bins.counts()) {
        for (value, count) in counts.iter().enumerate() {
            writeln!(text, "{channel}\t{value}\t{count}").unwrap();
        }
    }
    text
}

#[test]
fn counts_are_the_same_however_hosts_are_killed() {
    let stage = Stage::new("histogram-killed");
    let picture = generate::bmp(601, 500, 3);
    let path = stage.write("picture.bmp", &picture);
    let expected = expected(&picture, Format::Any);
    // Parts begin within pixels, and within the padding of rows.
    let count = ["histogram", &path, "--task-bytes", "7777", "--verify"];
    is_the_same_however_hosts_are_killed(&stage, &count, &expected, true, |summary| {
        assert_eq!(summary["result"]["verified"], true);
        assert_eq!(summary["result"]["values"], 601 * 500 * 3);
        assert_eq!(summary["units"], (1804u64 * 500).div_ceil(7777));
    });
}

#[test]
fn pictures_and_any_files_are_counted() {
    let stage = Stage::new("histogram-files");
    let ppm = generate::ppm(64, 65, 9);
    let path = stage.write("picture.ppm", &ppm);
    let (found, summary) = run(&stage, &["histogram", &path, "--verify", "--kill", "1"]);
    assert_eq!(found, expected(&ppm, Format::Any));
    assert_eq!(summary["result"]["channels"][0]["channel"], "red");
    let (found, summary) = run(&stage, &["histogram", &path, "--verify", "--bytes"]);
    assert_eq!(found, expected(&ppm, Format::Bytes));
    assert_eq!(summary["result"]["values"], ppm.len());
    assert_eq!(summary["result"]["bytes"], ppm.len());
    let nothing = stage.write("nothing", b"");
    let (found, summary) = run(&stage, &["histogram", &nothing, "--verify"]);
    assert_eq!(found, expected(b"", Format::Any));
    assert_eq!(
        summary["result"]["channels"][0]["mode"],
        serde_json::Value::Null
    );
    let (found, _) = run(
        &stage,
        &["histogram", "random:33:20:4", "--task-bytes", "100"],
    );
    assert_eq!(found, expected(&generate::bmp(33, 20, 4), Format::Any));
    // As text.
    let bytes = stage.write("bytes", &[7, 7, 9]);
    let shown = outlive(["run", "histogram", &bytes, "--kill", "1", "--verify"]).succeeds();
    assert!(shown.contains("3 values in 3 bytes of"), "{shown}");
    assert!(
        shown.contains(" bytes  from 7 to 9, mean 7.667, most frequent 7: 2 times"),
        "{shown}"
    );
    assert!(
        shown.contains("verified: counting in another way gave the same result"),
        "{shown}"
    );
    let empty = stage.write("empty", b"");
    let shown = outlive(["run", "histogram", &empty]).succeeds();
    assert!(shown.contains("0 values in 0 bytes of"), "{shown}");
    assert!(
        shown.ends_with("\nthe file is empty: there was nothing to count\n"),
        "{shown}"
    );
    let (counts, summary) = run(&stage, &["histogram", &empty]);
    assert!(counts.lines().all(|line| line.ends_with("\t0")), "{counts}");
    assert_eq!(
        summary["result"]["channels"][0]["mode"],
        serde_json::Value::Null
    );
}

#[test]
fn bitmaps_of_8_and_32_bits_are_counted_however_hosts_are_killed() {
    let stage = Stage::new("histogram-bitmaps");
    let masks = Some([0xFF00_0000, 0x00FF_0000, 0xFF00]);
    for (name, picture) in [
        (
            "palette.bmp",
            generate::bmp_of_8_bits(301, 97, 4, |number| [number, 9, 255 - number]),
        ),
        (
            "gray.bmp",
            generate::bmp_of_8_bits(301, 97, 4, |number| [number; 3]),
        ),
        ("unused.bmp", generate::bmp_of_32_bits(301, 97, 4, None)),
        ("masks.bmp", generate::bmp_of_32_bits(301, 97, 4, masks)),
    ] {
        let path = stage.write(name, &picture);
        let count = [
            "histogram",
            &path,
            "--task-bytes",
            "777",
            "--verify",
            "--kill",
            "1",
        ];
        let (found, summary) = run(&stage, &count);
        assert_eq!(found, expected(&picture, Format::Any), "{name}");
        let channels = if name == "gray.bmp" { 1 } else { 3 };
        assert_eq!(summary["result"]["values"], 301 * 97 * channels, "{name}");
        // The colours are those of the picture of 24 bits.
        if name.ends_with("ks.bmp") || name.starts_with("un") {
            assert_eq!(
                found,
                expected(&generate::bmp(301, 97, 4), Format::Any),
                "{name}"
            );
        }
    }
}

#[test]
fn what_only_begins_like_a_picture_is_counted_as_bytes() {
    let stage = Stage::new("histogram-text");
    let text = stage.write("text", b"BMW builds cars.\n");
    let (found, _) = run(&stage, &["histogram", &text]);
    assert_eq!(found, expected(b"BMW builds cars.\n", Format::Bytes));
}

#[test]
fn what_cannot_be_counted_is_refused() {
    let stage = Stage::new("histogram-refused");
    let count = |arguments: &[&str]| {
        let mut all = vec!["histogram"];
        all.extend(arguments);
        refused(&all)
    };
    count(&[&stage.path("missing")]).fails(1, "missing cannot be read: No such file");
    let directory = stage.directory.to_str().unwrap();
    stage.write("one", b"1");
    count(&[directory]).fails(1, "is not a file; name one file");
    let cut = stage.write("cut.bmp", &generate::bmp(20, 20, 1)[..500]);
    count(&[&cut]).fails(1, "the bitmap is cut off: it has 500 bytes");
    let (_, summary) = run(&stage, &["histogram", &cut, "--bytes"]);
    assert_eq!(summary["result"]["values"], 500);
    let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
    let picture = stage.write("picture.png", png);
    count(&[&picture]).fails(
        1,
        "picture.png: this is a PNG picture, whose values are compressed",
    );
    let (_, summary) = run(&stage, &["histogram", &picture, "--bytes"]);
    assert_eq!(summary["result"]["values"], png.len());
    let mut packed = generate::bmp_of_8_bits(4, 4, 1, |number| [number; 3]);
    packed[30] = 1;
    let packed = stage.write("packed.bmp", &packed);
    count(&[&packed]).fails(1, "run lengths (RLE8)");
    let deep = stage.write("deep.ppm", b"P6 2 1 65535 ");
    count(&[&deep]).fails(1, "values up to 65535");
    count(&["random:0:5"]).fails(2, "write random:WIDTH:HEIGHT[:SEED], WIDTH from 1 to 30000");
    count(&["random:5"]).fails(2, "write random:WIDTH:HEIGHT");
    count(&[&cut, "--task-bytes", "0"]).fails(2, "a size cannot be 0");
    let kept = stage.write("kept", b"to be kept");
    count(&[&kept, "--output", &kept]).fails(1, "would be replaced");
    assert_eq!(fs::read(&kept).unwrap(), b"to be kept");
    let taken = stage.write("taken", b"something");
    count(&[&kept, "--pod", &taken]).fails(1, "exists already");
    let small = ["random:2000:2000", "--task-bytes", "1K", "--size", "8M"];
    count(&small).fails(1, "--size");
    let none = [
        "random:99:99",
        "--task-bytes",
        "99",
        "--hosts",
        "2",
        "--kill",
        "2",
    ];
    count(&[&none[..], &["--supervise", "none"]].concat()).fails(1, "all 2 hosts are dead");
}

#[test]
fn an_interrupted_count_leaves_nothing() {
    let stage = Stage::new("histogram-interrupted");
    // A hole of many gigabytes.
    let path = stage.write("hole", b"");
    let hole = fs::OpenOptions::new().write(true).open(&path).unwrap();
    hole.set_len(200 << 30).unwrap();
    an_interrupted_run_leaves_nothing(&["histogram", &path, "--task-bytes", "4M"]);
}
