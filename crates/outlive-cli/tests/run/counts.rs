//! The counts of `outlive run wordcount` are those of an independent count, however hosts are
//! killed.

use crate::support::outlive;
use crate::support::run::{Stage, plainly, text};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Seek, Write};
use std::process::{Command, Stdio};

#[test]
fn the_shipped_text_is_counted_while_hosts_are_killed() {
    let stage = Stage::new("shipped");
    let (counts, summary) = stage.count(&[]);
    assert_eq!(counts[&b"the"[..]], 63_919);
    assert_eq!(counts[&b"jerusalem"[..]], 814);
    assert_eq!((counts.len(), &summary["words"]), (12_544, &791_450.into()));
    let failures = summary["failures"].as_array().unwrap();
    assert_eq!(failures.len(), 2);
    for failure in failures {
        let time = |what: &str| {
            failure[what]
                .as_f64()
                .unwrap_or_else(|| panic!("{failure}"))
        };
        assert!(time("killed_at") <= time("detected_at"));
        assert!(time("detected_at") <= time("recovered_at"));
        assert_eq!(failure["units_redone"], 1, "{failure}");
        // A process of another host proved it.
        assert!(failure["detected_by"].is_string(), "{failure}");
        assert_ne!(failure["detected_by_host"], failure["host"], "{failure}");
    }
    assert_eq!(summary["units_redone"], 2);
    // As text.
    let shown = outlive(["run", "wordcount", "--top", "3", "--verify"]).succeeds();
    assert!(
        shown.contains("verified: counting in another way gave the same result"),
        "{shown}"
    );
    assert!(shown.contains("nothing was lost"), "{shown}");
    assert!(shown.contains("63919  the"), "{shown}");
}

#[test]
fn counts_are_exact_however_hosts_are_killed() {
    let stage = Stage::new("killed");
    let text = text(8_000_000, 1);
    let expected = plainly(&[&text]);
    let path = stage.write("text", &text);
    for (hosts, threads, kills) in [(1, 1, 1), (2, 2, 1), (3, 1, 2), (4, 1, 3), (4, 2, 6)] {
        for supervise in ["restart", "none"] {
            if supervise == "none" && kills >= hosts {
                continue;
            }
            for at in ["commit", "random"] {
                for _ in 0..3 {
                    let (hosts, kills) = (hosts.to_string(), kills.to_string());
                    let threads = threads.to_string();
                    let (counts, summary) = stage.count(&[
                        &path,
                        "--hosts",
                        &hosts,
                        "--threads",
                        &threads,
                        "--kill",
                        &kills,
                        "--kill-at",
                        at,
                        "--supervise",
                        supervise,
                    ]);
                    assert!(counts == expected, "{summary}");
                    let redone = summary["units_redone"].as_u64().unwrap();
                    let lost: u64 = kills.parse::<u64>().unwrap() * threads.parse::<u64>().unwrap();
                    assert!(redone <= lost, "{summary}");
                    if at == "commit" {
                        assert_eq!(summary["kills_missed"], 0, "{summary}");
                        assert!(redone >= kills.parse().unwrap(), "{summary}");
                    }
                }
            }
        }
    }
}

#[test]
fn trees_of_processes_are_killed_and_come_back_as_a_whole() {
    let stage = Stage::new("trees");
    let text = text(6_000_000, 11);
    let expected = plainly(&[&text]);
    let path = stage.write("text", &text);
    let tree = ["--hosts", "2", "--processes", "2", "--threads", "2"];
    let mut whole = 0;
    for (supervise, kills) in [("restart", 2), ("none", 1)] {
        for at in ["commit", "random"] {
            for _ in 0..4 {
                let kill = kills.to_string();
                let mut arguments = vec![&path[..], "--kill", &kill, "--kill-at", at];
                arguments.extend(["--supervise", supervise, "--unit", "32K"]);
                arguments.extend(tree);
                let (counts, summary) = stage.count(&arguments);
                assert!(counts == expected, "{summary}");
                assert_eq!(
                    (&summary["processes"], &summary["threads"]),
                    (&2.into(), &2.into())
                );
                let failures = summary["failures"].as_array().unwrap();
                let number = |of: &Value, what: &str| of[what].as_u64().unwrap();
                let late = number(&summary, "kills_missed");
                assert_eq!(failures.len() as u64 + late, kills, "{summary}");
                let mut threads_lost = 0;
                for failure in failures {
                    let processes = number(failure, "processes_lost");
                    let threads = number(failure, "threads_lost");
                    let redone = number(failure, "units_redone");
                    assert!(processes <= 2 && threads <= 2 * processes, "{failure}");
                    assert!(redone <= threads, "{failure}");
                    assert!(failure["recovered_at"].is_number(), "{failure}");
                    let lost = failure["lost"].as_array().unwrap();
                    assert_eq!(lost.len() as u64, processes + threads, "{failure}");
                    threads_lost += threads;
                    whole += u32::from((processes, threads) == (2, 4));
                }
                let redone = number(&summary, "units_redone");
                assert!(redone <= threads_lost, "{summary}");
                if at == "commit" {
                    assert_eq!(late, 0, "{summary}");
                    assert!(redone >= kills, "{summary}");
                }
            }
        }
    }
    // Some were killed with all their members.
    assert!(whole >= 4, "{whole} whole trees were killed");
}

#[test]
fn many_files_and_small_units_lose_nothing_at_their_borders() {
    let stage = Stage::new("files");
    let texts: Vec<Vec<u8>> = (0..12)
        .map(|n| text([0, 1, 7, 100, 5000, 70_000][n % 6], n as u64))
        .map(|mut text| {
            // Files end within words, which do not run into the next file.
            text.truncate(text.len().saturating_sub(3));
            text
        })
        .collect();
    for (n, text) in texts.iter().enumerate() {
        stage.write(&format!("in/{}/{n}", n % 3), text);
    }
    let slices: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
    let expected = plainly(&slices);
    for unit in ["64", "1000", "16K"] {
        let (counts, _) = stage.count(&[&stage.path("in"), "--unit", unit, "--kill", "2"]);
        assert!(counts == expected, "units of {unit}");
    }
    let empty = stage.write("empty", b"");
    let (counts, summary) = stage.count(&[&empty]);
    assert_eq!((counts.len(), &summary["units"]), (0, &0.into()));
}

/// Returns the counts of the pipeline, with a line feed added at the end of files without one.
fn pipeline(paths: &[&str]) -> BTreeMap<Vec<u8>, u64> {
    let mut text = Vec::new();
    for path in paths {
        text.extend(fs::read(path).unwrap());
        if paths.len() > 1 && text.last().is_some_and(|last| *last != b'\n') {
            text.push(b'\n');
        }
    }
    let mut whole = tempfile::tempfile().unwrap();
    whole.write_all(&text).unwrap();
    whole.rewind().unwrap();
    let script = "LC_ALL=C tr -s '[:space:]' '\\n' | LC_ALL=C sort | LC_ALL=C uniq -c";
    let pipeline = Command::new("sh")
        .args(["-c", script])
        .stdin(whole)
        .stdout(Stdio::piped())
        .output()
        .unwrap();
    let mut counts = BTreeMap::new();
    for line in pipeline.stdout.split(|byte| *byte == b'\n') {
        let line = line.trim_ascii_start();
        if let Some(at) = line.iter().position(|byte| *byte == b' ') {
            let count = std::str::from_utf8(&line[..at]).unwrap().parse().unwrap();
            counts.insert(line[at + 1..].to_vec(), count);
        }
    }
    counts
}

#[test]
fn white_space_separates_as_the_pipeline_has_it() {
    let stage = Stage::new("pipeline");
    let mut bytes = text(400_000, 7);
    bytes.insert(0, b'x');
    bytes.extend_from_slice(b" \x0b\x0c\r\n tail\xff\xfe \t bytes");
    let path = stage.write("text", &bytes);
    let arguments = [&path, "--tokens", "whitespace", "--kill", "1"];
    let (counts, summary) = stage.count(&arguments);
    assert!(summary["verified"].is_null());
    assert!(counts == pipeline(&[&path]));
    // A text that begins with white space has one empty line.
    bytes.splice(0..0, *b"\t \r\n");
    let begins = stage.write("begins", &bytes);
    let (counts, _) = stage.count(&[&begins, "--tokens", "whitespace", "--unit", "1K"]);
    assert_eq!(counts.get(&b""[..]), Some(&1));
    assert!(counts == pipeline(&[&begins]));
    for small in ["", "\n", " \t ", "word", " word", "a  b\n"] {
        let path = stage.write("small", small.as_bytes());
        let (counts, summary) = stage.count(&[&path, "--tokens", "whitespace", "--verify"]);
        assert_eq!(counts, pipeline(&[&path]), "{small:?}");
        assert_eq!(summary["verified"], true);
    }
    let empty = stage.write("empty", b"");
    for files in [[&empty[..], &begins, &path], [&path, &begins, &empty]] {
        let mut arguments = files.to_vec();
        arguments.extend(["--tokens", "whitespace", "--verify"]);
        let (counts, summary) = stage.count(&arguments);
        assert!(counts == pipeline(&files), "{files:?}");
        assert_eq!(summary["verified"], true);
    }
}
