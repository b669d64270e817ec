//! `outlive litmus run --history`, on SQLite.

use crate::support::{command, outlive};
use std::collections::BTreeSet;
use std::fs;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Returns the target of a database in a folder.
fn target(folder: &TempDir) -> String {
    format!("sqlite:{}/x.db?synchronous=off", folder.path().display())
}

/// Returns the text before the part of a line that a kill may have left.
fn whole_lines(text: &str) -> &str {
    text.rfind('\n').map_or("", |end| &text[..=end])
}

#[test]
fn a_killed_run_leaves_the_beginning_of_its_history() {
    let folder = tempfile::tempdir().unwrap();
    let target = target(&folder);
    let history = folder.path().join("history.edn");
    let mut run = command(["litmus", "run", &target, "lost-update", "--seconds", "600"]);
    run.arg("--history").arg(&history);
    let mut run = run.stdout(Stdio::null()).spawn().unwrap();
    let limit = Instant::now() + Duration::from_secs(60);
    let length = || fs::metadata(&history).map_or(0, |it| it.len());
    while length() < 100_000 && Instant::now() < limit {
        thread::sleep(Duration::from_millis(10));
    }
    run.kill().unwrap();
    run.wait().unwrap();
    let text = fs::read_to_string(&history).unwrap();
    let lines = whole_lines(&text).lines();
    let mut open = BTreeSet::new();
    for (index, line) in lines.enumerate() {
        let fields: Vec<&str> = line.splitn(4, ", ").collect();
        assert_eq!(fields[0], format!("{{:index {index}"));
        assert!(line.ends_with('}'), "{line}");
        match fields[1] {
            ":type :invoke" => assert!(open.insert(fields[2].to_owned()), "{line}"),
            _ => assert!(open.remove(fields[2]), "{line}"),
        }
    }
    assert!(
        text.len() >= 100_000,
        "the run has recorded {} bytes",
        text.len()
    );
}

#[test]
fn a_history_that_cannot_be_written_fails_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let target = target(&folder);
    for command in ["run", "judge"] {
        let run = [
            "litmus",
            command,
            &target,
            "--seconds",
            "600",
            "--history",
            "/dev/full",
        ];
        outlive(run).fails(
            1,
            "the history /dev/full cannot be written to: No space left",
        );
    }
    let missing = [
        "litmus",
        "run",
        &target,
        "--history",
        "/no/folder/history.edn",
    ];
    outlive(missing).fails(1, "name a file in an existing folder");
}
