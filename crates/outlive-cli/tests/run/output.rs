//! The destinations of a run's result and of its report: neither overwrites the other.

use crate::support::run::Stage;
use crate::support::{self, outlive};
use outlive_programs::dedup::{pack_alone, tree::Tree};
use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::process::{Command, Stdio};

/// The arguments of all runs here.
const RANK: [&str; 5] = ["run", "pagerank", "rmat:7", "--hosts", "2"];

/// Returns the ranks in a file that was named by `--output`.
fn ranks(stage: &Stage) -> String {
    let path = stage.path("ranks");
    outlive(RANK.into_iter().chain(["--output", &path])).succeeds();
    fs::read_to_string(path).unwrap()
}

fn run(more: &[&str]) -> Command {
    support::command(RANK.iter().chain(more))
}

/// Runs it to its end, and requires success.
#[track_caller]
fn succeeds(mut run: Command) -> (String, String) {
    let ended = run.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (output, errors) = (text(ended.stdout), text(ended.stderr));
    assert!(ended.status.success(), "{output}{errors}");
    (output, errors)
}

#[test]
fn a_redirected_output_has_the_results_and_nothing_else() {
    let stage = Stage::new("redirected");
    let ranks = ranks(&stage);
    let at = stage.path("out");
    let said = |errors: &str| errors.contains("128 vertices") && errors.contains("processor time");
    for output in ["/dev/stdout", "/proc/self/fd/1", "/dev/fd/1"] {
        let mut to_file = run(&["--output", output]);
        to_file.stdout(File::create(&at).unwrap());
        let (_, errors) = succeeds(to_file);
        assert!(
            fs::read_to_string(&at).unwrap() == ranks && said(&errors),
            "{output}: {errors}"
        );
        let (piped, errors) = succeeds(run(&["--output", output]));
        assert!(piped == ranks && said(&errors), "{output}: {errors}");
    }
    // Existing contents stay, and later output comes after them.
    let mut appended = run(&["--output", "/dev/stdout"]);
    appended.stdout(OpenOptions::new().append(true).open(&at).unwrap());
    succeeds(appended);
    assert!(fs::read_to_string(&at).unwrap() == format!("{ranks}{ranks}"));
    // As JSON, too.
    let mut json = run(&["--output", "/dev/stdout", "--json"]);
    json.stdout(File::create(&at).unwrap());
    let (_, errors) = succeeds(json);
    let summary: Value = serde_json::from_str(&errors).expect(&errors);
    assert_eq!(summary["result"]["vertices"], 128);
    assert!(fs::read_to_string(&at).unwrap() == ranks);
    // A result that goes to /dev/null does not move the report.
    let (shown, _) = succeeds(run(&["--output", "/dev/null"]));
    assert!(said(&shown), "{shown}");
}

/// `> file 2>&1`, and `2> file` for the results.
#[test]
fn results_and_what_is_said_can_be_in_one_file() {
    let stage = Stage::new("both");
    let ranks = ranks(&stage);
    let at = stage.path("out");
    for output in ["/dev/stdout", "/dev/stderr"] {
        let file = File::create(&at).unwrap();
        let mut both = run(&["--output", output]);
        both.stdout(file.try_clone().unwrap()).stderr(file);
        assert!(both.status().unwrap().success());
        let found = fs::read_to_string(&at).unwrap();
        let said = found.strip_prefix(&ranks);
        let said = said.unwrap_or_else(|| panic!("{output}: {found}"));
        assert!(said.starts_with("128 vertices"), "{output}: {said}");
    }
}

#[test]
fn the_file_that_is_written_to_is_not_replaced() {
    let stage = Stage::new("itself");
    let at = stage.path("out");
    let mut itself = run(&["--output", &at]);
    itself
        .stdout(File::create(&at).unwrap())
        .stderr(Stdio::piped());
    let ended = itself.output().unwrap();
    let errors = String::from_utf8(ended.stderr).unwrap();
    assert!(
        errors.contains("is the file of standard output or standard error"),
        "{errors}"
    );
    assert_eq!(
        (ended.status.code(), fs::read(&at).unwrap()),
        (Some(1), Vec::new())
    );
}

#[test]
fn an_archive_that_was_redirected_is_one() {
    let stage = Stage::new("redirected-archive");
    let file = stage.write("text", &support::run::text(300_000, 5));
    let at = stage.path("archive");
    let mut archive = support::command(["run", "dedup", &file, "--output", "/dev/stdout"]);
    archive.stdout(File::create(&at).unwrap());
    let (_, errors) = succeeds(archive);
    assert!(errors.contains("an archive of"), "{errors}");
    let mut plain = Vec::new();
    pack_alone(&Tree::find(&[&file]).unwrap(), 6, &mut plain).unwrap();
    assert!(fs::read(&at).unwrap() == plain);
}
