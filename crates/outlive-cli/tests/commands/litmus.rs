//! `outlive litmus list`, `show`, `check` and `generate`.

use crate::support::explained::assert_explained;
use crate::support::{Place, outlive};
use serde_json::Value;

/// A file of tests. Drop removes it.
fn file(name: &str, text: &str) -> Place {
    let place = Place::new(&format!("litmus-{name}"));
    std::fs::write(place.path(), text).unwrap();
    place
}

#[test]
fn the_shipped_tests_are_listed() {
    let text = outlive(["litmus", "list"]).succeeds();
    let line = text.lines().find(|it| it.starts_with("lost-update "));
    let words: Vec<&str> = line.unwrap().split_whitespace().collect();
    assert_eq!(
        words,
        [
            "lost-update",
            "read-write",
            "never",
            "repeatable-read,",
            "snapshot"
        ]
    );
    let json: Value =
        serde_json::from_str(&outlive(["litmus", "list", "--json"]).succeeds()).unwrap();
    let tests = json.as_array().unwrap();
    assert!(text.ends_with(&format!(
        "{} tests; `outlive litmus show TEST` prints one\n",
        tests.len()
    )));
    let one = tests
        .iter()
        .find(|it| it["name"] == "litmus-1-insert-delete")
        .unwrap();
    assert_eq!(one["family"], "direct-write");
    assert_eq!(one["assertion"], "always");
    assert_eq!(one["condition"], "x = y or (x is absent and y is absent)");
    assert_eq!(one["objects"][0]["name"], "x");
    assert_eq!(one["objects"][0]["initial"], Value::Null);
    assert_eq!(one["transactions"], serde_json::json!(["t1", "t2"]));
    assert_eq!(
        one["forbidden_from"],
        serde_json::json!(["read-uncommitted"])
    );
    assert!(
        one["about"]
            .as_str()
            .unwrap()
            .starts_with("Litmus 1 with insertions")
    );
}

#[test]
fn each_shipped_test_is_shown_and_passes_the_check() {
    let json: Value =
        serde_json::from_str(&outlive(["litmus", "list", "--json"]).succeeds()).unwrap();
    for family in ["direct-write", "indirect-write", "real-time"] {
        let of_it = json
            .as_array()
            .unwrap()
            .iter()
            .filter(|it| it["family"] == family);
        let names: Vec<&str> = of_it.map(|it| it["name"].as_str().unwrap()).collect();
        let texts = names
            .iter()
            .map(|it| outlive(["litmus", "show", it]).succeeds());
        let place = file(family, &texts.collect::<String>());
        let checked = outlive(["litmus", "check", place.path()]).succeeds();
        assert_eq!(checked.lines().count(), names.len(), "{checked}");
        for (line, name) in checked.lines().zip(names) {
            assert!(
                line.starts_with(&format!("{}: {name}: ", place.path())),
                "{line}"
            );
        }
        let listed = outlive(["litmus", "list", place.path()]).succeeds();
        assert!(
            listed.contains(family) && !listed.contains("predicate"),
            "{listed}"
        );
    }
    outlive(["litmus", "show", "lost-updat"]).fails(1, "similar names: lost-update,");
    outlive(["litmus", "show", "a\u{1b}"]).fails(1, "the name `a\\u{1b}`; `outlive litmus list`");
}

#[test]
fn errors_are_found_with_their_places() {
    let sound = outlive(["litmus", "show", "litmus-1"]).succeeds();
    let wrong = file("wrong\u{7}", &sound.replace("write y = 2", "write z = 2"));
    let shown = wrong.path().replace('\u{7}', "\\u{7}");
    let error =
        format!("{shown}:14:11: at `z`: the test has no object with this name; the objects");
    outlive(["litmus", "list", wrong.path()]).fails(1, &error);
    let open = file("open", &sound.replace("always x = y", "always x <= 1"));
    let empty = file("empty", "# no tests\n");
    let ended = outlive([
        "litmus",
        "check",
        wrong.path(),
        open.path(),
        empty.path(),
        "/missing",
    ]);
    assert_eq!(ended.code, Some(1), "{}", ended.errors);
    let lines: Vec<&str> = ended.output.lines().collect();
    assert_eq!(lines.len(), 4, "{}", ended.output);
    assert!(lines[0].starts_with(&error), "{}", lines[0]);
    let counterexample =
        "it holds in the state x = 0, y = 0, and after t2 it fails in the state x = 2";
    assert!(lines[1].contains(counterexample), "{}", lines[1]);
    assert!(lines[2].ends_with("the file has no tests"), "{}", lines[2]);
    assert!(
        lines[3].starts_with("the tests in /missing cannot be read"),
        "{}",
        lines[3]
    );
    outlive(["litmus", "check"]).fails(2, "<FILES>...");
}

/// The tests and the counterexample in the document are those of the command.
#[test]
fn the_examples_of_the_document_are_true() {
    let document = include_str!("../../../../docs/litmus.md");
    let blocks: Vec<&str> = document.split("```\n").collect();
    let with = |text: &str| {
        blocks
            .iter()
            .find(|it| it.contains(text))
            .unwrap()
            .to_string()
    };
    let first = file("first", &with("test lost-update\n"));
    let proved = outlive(["litmus", "check", first.path()]).succeeds();
    assert!(proved.contains("lost-update: false after all"), "{proved}");
    let constants = file("constants", &with("test litmus-2-with-constants\n"));
    let found = outlive(["litmus", "check", constants.path()]);
    assert_eq!(found.code, Some(1), "{}", found.errors);
    let shown = document.split("check constants.litmus\n").nth(1).unwrap();
    let shown = shown.split("\n```").next().unwrap().replace('\n', " ");
    assert_eq!(
        found
            .output
            .trim()
            .replace(constants.path(), "constants.litmus"),
        shown
    );
}

#[test]
fn generated_tests_are_printed_as_a_file_that_passes_the_check() {
    let arguments = ["litmus", "generate", "--transactions", "2"];
    let all = outlive(arguments).succeeds();
    let generated = file("generated", &all);
    let checked = outlive(["litmus", "check", generated.path()]).succeeds();
    assert_eq!(
        checked.lines().count(),
        all.matches("\nforbidden from ").count()
    );
    // They run on a store. One that proves nothing, because nothing overlapped, is no violation.
    let folder = tempfile::tempdir().unwrap();
    let target = format!("sqlite:{}/x.db", folder.path().display());
    let run = ["litmus", "run", &target, generated.path()];
    let ended = outlive([&run[..], &["--instances", "30", "--json"]].concat());
    let report: Value = serde_json::from_str(&ended.output).unwrap();
    let tests = report["tests"].as_array().unwrap();
    assert_eq!(tests.len(), all.matches("\nforbidden from ").count());
    for test in tests {
        assert!(test["executions"].as_u64() > Some(0), "{test:#}");
        assert_eq!(
            test["violations"].as_array().map(Vec::len),
            Some(0),
            "{test:#}"
        );
    }
    let skews = outlive([&arguments[..], &["--family", "read-write"]].concat()).succeeds();
    assert!(skews.contains("test cycle-rw-rw\n"), "{skews}");
    assert!(!skews.contains("family direct-write"), "{skews}");
}

/// Levels that a reference model contradicts are found, and refuted assertions do not run.
#[test]
fn wrong_levels_and_assertions_are_refused() {
    let sound = outlive(["litmus", "show", "write-skew"]).succeeds();
    let weak = "forbidden from repeatable-read";
    let wrong = file("levels", &sound.replace(weak, "forbidden from snapshot"));
    let ended = outlive(["litmus", "check", wrong.path()]);
    assert_eq!(ended.code, Some(1), "{}", ended.output);
    let objection = "snapshot forbids that the assertion fails, but it fails in the model";
    assert!(ended.output.contains(objection), "{}", ended.output);
    let ended = outlive(["litmus", "check", "--json", wrong.path()]);
    assert_explained("## `outlive litmus check", &ended.output);
    let json: Value = serde_json::from_str(&ended.output).unwrap();
    assert_eq!(json[0]["levels"], "wrong");
    assert_eq!(json[0]["sound"], false);
    let right = file("right", &sound);
    let json: Value =
        serde_json::from_str(&outlive(["litmus", "check", "--json", right.path()]).succeeds())
            .unwrap();
    assert_eq!(json[0]["levels"], "confirmed");
    let shared = outlive(["litmus", "show", "litmus-2"]).succeeds();
    let shared = file("shared", &shared);
    let checked = outlive(["litmus", "check", shared.path(), "--instances", "3"]).succeeds();
    assert!(checked.contains("levels confirmed"), "{checked}");
    let open = file(
        "refuted",
        &sound.replace("t1.a = 0 and t2.a = 0", "t1.a = 0"),
    );
    let folder = tempfile::tempdir().unwrap();
    let target = format!("sqlite:{}/x.db", folder.path().display());
    let run = ["litmus", "run", &target, open.path()];
    outlive(run).fails(1, "the outcome occurs in a correct execution");
}

#[test]
fn generated_tests_and_counts_are_printed_as_json() {
    let generate = ["litmus", "generate", "--transactions", "2", "--json"];
    let printed = outlive(generate).succeeds();
    assert_explained("## `outlive litmus generate", &printed);
    let tests: Value = serde_json::from_str(&printed).unwrap();
    let first = &tests[0];
    let heading = format!("test {}\n", first["name"].as_str().unwrap());
    assert!(
        first["text"].as_str().unwrap().starts_with(&heading),
        "{first:#}"
    );
    let counted = outlive(generate.into_iter().chain(["--counts"])).succeeds();
    assert_explained("## `outlive litmus generate", &counted);
    let counts: Value = serde_json::from_str(&counted).unwrap();
    assert_eq!(
        (&counts[0]["cycles"], &counts[0]["shared"]),
        (&8.into(), &3.into())
    );
}

#[test]
fn numbers_of_cycles_stand_beside_independent_counts() {
    let text = outlive(["litmus", "generate", "--counts"]).succeeds();
    let row = |line: &str| -> Vec<usize> {
        let cells = line.split_whitespace();
        cells.map(|it| it.parse().unwrap()).collect()
    };
    let rows: Vec<Vec<usize>> = text.lines().skip(1).map(row).collect();
    assert_eq!(
        rows,
        [
            [2, 8, 8, 8, 3, 3],
            [3, 20, 20, 20, 19, 19],
            [4, 51, 51, 51, 89, 89]
        ]
    );
}
