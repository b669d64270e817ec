//! Studies from the command line.

#[path = "../../../crates/outlive-cli/tests/support/mod.rs"]
mod support;

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;
use support::outlive;

/// A directory that is removed when the test ends.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let name = format!("outlive-cli-study-{}-{name}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a plain name")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn studies_are_listed() {
    let list = outlive(["study", "list"]).succeeds();
    let json: Value =
        serde_json::from_str(&outlive(["study", "list", "--json"]).succeeds()).unwrap();
    let names: Vec<_> = json.as_array().unwrap().iter().collect();
    for name in [
        "locks",
        "notify",
        "crowd",
        "buddy",
        "heap",
        "map",
        "objects",
        "leased-objects",
        "pool-access",
        "pool-replicas",
        "spawn",
        "wordcount-kills",
        "guests",
        "lupin-table1",
        "lupin-restart",
        "lupin-table3",
        "lupin-table4",
        "modc-fig3",
        "modc-fig4",
        "pandora-table4.1",
        "pandora-fig4.4",
        "pandora-fig4.5",
        "pandora-fig4.6",
        "pandora-latch-to-log",
        "pandora-fig4.7",
        "pandora-fig4.8",
        "pandora-fig4.9",
        "pandora-fig4.10",
        "pandora-fig4.11",
        "pandora-fig4.12",
        "pandora-fig4.13",
        "pandora-fig4.14",
        "pandora-stolen",
        "pandora-blocking",
        "pandora-flat",
        "recxl-fig2",
        "recxl-fig10",
        "recxl-fig11",
        "recxl-fig12",
        "recxl-fig13",
        "recxl-fig14",
        "recxl-fig15",
        "recxl-fig16",
        "recxl-fig17",
        "recxl-fig18",
        "recxl-tenfold",
        "recxl-ours",
        "store-peers",
        "dart-compare",
    ] {
        assert!(list.lines().any(|line| line.starts_with(name)), "{list}");
        assert!(names.iter().any(|listed| listed["name"] == name), "{json}");
    }
}

#[test]
fn a_study_prints_rows_writes_files_and_judges_its_goals() {
    let directory = Directory::new("buddy");
    let ended = outlive([
        "study",
        "buddy",
        "--quick",
        "--json",
        "--output",
        directory.path(),
    ]);
    let rows: Value = serde_json::from_str(&ended.output).unwrap();
    let rows = rows.as_array().unwrap();
    assert!(rows.len() > 4, "{rows:#?}");
    let expected = BTreeSet::from(outlive_studies::Row::FIELDS);
    for row in rows {
        let fields: BTreeSet<_> = row
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(fields, expected);
        assert_eq!(row["study"], "buddy");
        assert_eq!(row["goal"].is_null(), row["holds"].is_null());
        if !row["goal"].is_null() {
            assert!(row["goal"]["value"].is_number() && row["low"].is_number());
        }
    }
    // No time is judged here; but the exit code must agree with the output.
    let missed = rows.iter().any(|row| row["holds"] == false);
    assert_eq!(ended.code, Some(i32::from(missed)), "{}", ended.errors);
    let csv = std::fs::read_to_string(directory.0.join("buddy.csv")).unwrap();
    assert_eq!(csv.lines().count(), rows.len() + 1);
    // No bar is visible here: a line for each row but the last, which is about the whole study.
    let lines: Vec<_> = ended.errors.lines().collect();
    assert_eq!(lines.len(), rows.len() - 1, "{}", ended.errors);
    for (line, row) in lines.iter().zip(rows) {
        let (case, metric) = (&row["case"], &row["metric"]);
        let (case, metric) = (case.as_str().unwrap(), metric.as_str().unwrap());
        let said = format!("buddy: {case}, {metric}: ");
        assert!(line.starts_with(&said), "{line}");
    }
    let svg = std::fs::read_to_string(directory.0.join("buddy.svg")).unwrap();
    assert!(svg.contains("</svg>") && svg.contains("16 MB"));
}

/// The first of the simulated studies that is advised.
#[test]
fn a_first_look_at_a_simulated_figure_alarms_nobody() {
    let directory = Directory::new("recxl");
    let arguments = ["study", "recxl-fig2", "--quick", "--output"];
    let said = outlive(arguments.into_iter().chain([directory.path()])).succeeds();
    let last = said.lines().rev().nth(1).unwrap_or_default();
    assert!(
        last.starts_with("no goals are judged: with --quick"),
        "{said}"
    );
    for alarming in ["MISSED", "the paper's: ", "  paper", "stolen", "95%"] {
        assert!(!said.contains(alarming), "{alarming} is in {said}");
    }
}

#[test]
fn a_scale_is_for_those_that_have_one() {
    outlive(["study", "recxl-fig13", "--quick", "--scale", "20"]).fails(
        2,
        "--scale does not apply to recxl-fig13: it is for modc-fig3 and modc-fig4",
    );
    outlive(["study", "modc-fig3", "locks", "--scale", "20"]).fails(2, "does not apply to locks");
}

#[test]
fn rows_of_a_study_that_fails_are_printed_nevertheless() {
    let directory = Directory::new("unwritten");
    // It fails after all measurements, since its file cannot be written.
    std::fs::create_dir_all(directory.0.join("buddy.csv")).unwrap();
    let arguments = ["study", "buddy", "--quick", "--json", "--output"];
    let ended = outlive(arguments.into_iter().chain([directory.path()]));
    assert_eq!(ended.code, Some(1), "{}", ended.errors);
    assert!(
        ended.errors.contains("cannot be written"),
        "{}",
        ended.errors
    );
    let rows: Value = serde_json::from_str(&ended.output).expect("rows");
    let is_row = |row: &Value| row["study"] == "buddy" && row["case"].is_string();
    let rows = rows.as_array().unwrap();
    assert!(rows.len() > 4 && rows.iter().all(is_row), "{rows:#?}");
}

#[test]
fn what_makes_no_sense_is_bad_usage() {
    outlive(["study", "perpetual-motion"]).fails(2, "outlive-lab study list");
    outlive(["study"]).fails(2, "");
    outlive(["study-part"]).fails(2, "started by studies only");
}

#[test]
fn a_directory_that_cannot_be_made_is_said() {
    outlive([
        "study",
        "buddy",
        "--quick",
        "--output",
        "/proc/nowhere/at/all",
    ])
    .fails(1, "cannot be created");
}
