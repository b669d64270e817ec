//! Runs whose input is a pipe: it is read once, and outlives hosts like any other input.

use crate::support::programs::assert_killed;
use crate::support::run::{Stage, assert_nothing_is_left, plainly, read, text, wait_until};
use crate::support::{Ended, Running, command, outlive, outlive_reading};
use outlive_programs::histogram::{Format, Layout, count, generate};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::process::{Command, Stdio};
use std::thread;

/// Runs `outlive run` with `input` in a pipe as its standard input.
fn piped(arguments: &[&str], input: &[u8]) -> Ended {
    let (reader, mut writer) = io::pipe().unwrap();
    thread::scope(|scope| {
        // The command may end before it has read everything.
        scope.spawn(move || writer.write_all(input));
        outlive_reading([&["run"][..], arguments].concat(), reader)
    })
}

/// A named pipe in `stage`.
fn named_pipe(stage: &Stage, name: &str) -> String {
    let path = stage.path(name);
    mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    path
}

#[test]
fn words_from_a_pipe_are_counted_however_hosts_are_killed() {
    let stage = Stage::new("piped");
    let bytes = text(1_500_000, 5);
    let (expected, output) = (plainly(&[&bytes]), stage.path("counts"));
    for (hosts, kills, supervise, at) in [
        ("1", 0, "restart", "commit"),
        ("2", 2, "restart", "commit"),
        ("3", 2, "none", "random"),
    ] {
        let kill = kills.to_string();
        let mut count = vec![
            "wordcount",
            "/dev/stdin",
            "--json",
            "--verify",
            "--output",
            &output,
        ];
        count.extend(["--hosts", hosts, "--kill", &kill, "--kill-at", at]);
        count.extend(["--supervise", supervise, "--unit", "16K"]);
        let summary: Value = serde_json::from_str(&piped(&count, &bytes).succeeds()).unwrap();
        assert!(read(&output) == expected, "{summary:#}");
        assert_eq!(summary["bytes"], bytes.len());
        assert_eq!(summary["verified"], true);
        assert_killed(&summary, kills, at == "commit");
        assert_nothing_is_left(&summary);
    }
}

#[test]
fn two_pipes_and_a_file_are_one_text() {
    let stage = Stage::new("two-pipes");
    let texts = [text(300_000, 6), text(200_000, 7), b"a file".to_vec()];
    let pipes = ["first", "second"].map(|name| named_pipe(&stage, name));
    let (file, output) = (stage.write("file", &texts[2]), stage.path("counts"));
    let ended = thread::scope(|scope| {
        for (pipe, text) in pipes.iter().zip(&texts) {
            scope.spawn(move || {
                let mut pipe = OpenOptions::new().write(true).open(pipe).unwrap();
                pipe.write_all(text).unwrap();
            });
        }
        let inputs = [&*pipes[0], &file, &pipes[1]];
        let count = [&["run", "wordcount", "--output", &output][..], &inputs].concat();
        outlive(count)
    });
    assert!(ended.succeeds().contains("of 3 files"));
    assert!(read(&output) == plainly(&texts.each_ref().map(|text| &text[..])));
}

#[test]
fn an_empty_pipe_is_an_empty_text() {
    let counted = piped(&["wordcount", "/dev/stdin", "--verify"], b"").succeeds();
    assert!(
        counted.contains("0 words, 0 distinct, in 0 bytes"),
        "{counted}"
    );
    let counted = piped(&["histogram", "/dev/stdin", "--verify"], b"").succeeds();
    assert!(counted.contains("0 values in 0 bytes"), "{counted}");
}

#[test]
fn what_came_before_a_writer_died_is_counted() {
    let mut writer = Command::new("sh");
    let writer = writer
        .args(["-c", "echo one two; kill -9 $$"])
        .stdout(Stdio::piped());
    let mut writer = writer.spawn().unwrap();
    let count = ["run", "wordcount", "/dev/stdin", "--verify"];
    let counted = outlive_reading(count, writer.stdout.take().unwrap()).succeeds();
    assert!(
        counted.contains("2 words, 2 distinct, in 8 bytes"),
        "{counted}"
    );
    assert!(!writer.wait().unwrap().success());
}

#[test]
fn a_picture_from_a_pipe_is_counted_however_hosts_are_killed() {
    let stage = Stage::new("piped-picture");
    let (picture, output) = (generate::bmp(601, 300, 3), stage.path("counts"));
    let layout = Layout::find(&picture, Format::Any).unwrap();
    let bins = count(&picture, &layout);
    let expected: String = { layout.channels().iter().zip(bins.counts()) }
        .flat_map(|(channel, counts)| {
            let counts = counts.iter().enumerate();
            counts.map(move |(value, count)| format!("{channel}\t{value}\t{count}\n"))
        })
        .collect();
    for kill in ["0", "2"] {
        let mut count = vec![
            "histogram",
            "/dev/stdin",
            "--json",
            "--verify",
            "--output",
            &output,
        ];
        count.extend(["--task-bytes", "777", "--kill", kill]);
        let summary: Value = serde_json::from_str(&piped(&count, &picture).succeeds()).unwrap();
        assert!(
            fs::read_to_string(&output).unwrap() == expected,
            "{summary:#}"
        );
        assert_eq!(summary["result"]["bytes"], picture.len());
        assert_killed(&summary, kill.parse().unwrap(), true);
        assert_nothing_is_left(&summary);
    }
}

/// More than one piece of the copy in the pod.
#[test]
fn a_long_stream_is_counted_to_its_end() {
    let stage = Stage::new("long-stream");
    let (bytes, output): (Vec<u8>, _) = (
        (0..70 << 20).map(|at| (at / 1000) as u8).collect(),
        stage.path("counts"),
    );
    let mut count = vec!["histogram", "/dev/stdin", "--hosts", "2"];
    count.extend(["--kill", "1", "--output", &output]);
    piped(&count, &bytes).succeeds();
    let mut counts = [0u64; 256];
    bytes
        .iter()
        .for_each(|byte| counts[usize::from(*byte)] += 1);
    let counts = counts.iter().enumerate();
    let expected: String = counts
        .map(|(value, count)| format!("bytes\t{value}\t{count}\n"))
        .collect();
    assert_eq!(fs::read_to_string(&output).unwrap(), expected);
}

#[test]
fn a_pipe_that_nobody_writes_to_is_not_waited_for_after_an_interruption() {
    let stage = Stage::new("silent-pipe");
    let pipe = named_pipe(&stage, "pipe");
    for program in ["wordcount", "histogram"] {
        for opened in [false, true] {
            let mut run = command(["run", program, &pipe]);
            let mut running = Running::of({
                run.stderr(Stdio::null());
                run
            });
            // An open pipe does not end while this process may write.
            let _writer = opened.then(|| OpenOptions::new().write(true).open(&pipe).unwrap());
            // Signals are caught from then on.
            let status = format!("/proc/{}/status", running.id());
            wait_until("signals are caught", || {
                let status = fs::read_to_string(&status).unwrap();
                let caught = status
                    .lines()
                    .find_map(|line| line.strip_prefix("SigCgt:\t"));
                u64::from_str_radix(caught.unwrap(), 16).unwrap() & 2 != 0
            });
            running.interrupt();
            assert_eq!(running.ends_with(1), "");
        }
    }
}

#[test]
fn a_copy_that_has_no_space_names_the_directory_and_what_to_do() {
    let (reader, mut writer) = io::pipe().unwrap();
    writer.write_all(b"some words").unwrap();
    drop(writer);
    let mut count = command(["run", "wordcount", "/dev/stdin"]);
    let output = count
        .env("TMPDIR", "/nowhere")
        .stdin(reader)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("/dev/stdin is copied to a temporary file in /nowhere first"),
        "{said}"
    );
    assert!(said.contains("set TMPDIR"), "{said}");
}
