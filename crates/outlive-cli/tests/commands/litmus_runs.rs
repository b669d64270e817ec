//! `outlive litmus run` and `judge`, on SQLite, and on a store without isolation.

use crate::support::explained::assert_explained;
use crate::support::{Place, outlive};
use serde_json::Value;
use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const HEADING: &str = "## `outlive litmus judge";

/// A database of SQLite in a folder of its own. Drop removes it.
struct Database(tempfile::TempDir);

impl Database {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn target(&self, parameters: &str) -> String {
        format!("sqlite:{}/x.db{parameters}", self.0.path().display())
    }
}

#[test]
fn sqlite_is_judged() {
    let database = Database::new();
    let target = database.target("?synchronous=off");
    let junit = Place::new("litmus-junit");
    let mut judge = vec!["litmus", "judge", &target, "--seconds", "3", "--json"];
    judge.extend(["--only", "read-write", "--seed", "7", "--faults", "client"]);
    judge.extend(["--junit", junit.path()]);
    let printed = outlive(judge).succeeds();
    assert_explained(HEADING, &printed);
    let report: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(report["seed"], 7);
    assert_eq!(report["target"], *target);
    assert_eq!(report["only"], serde_json::json!(["read-write"]));
    let tests = report["tests"].as_array().unwrap();
    for test in tests {
        assert_eq!(test["verdict"], "passed", "{test:#}");
        let crashes = test["crashes"].as_array().unwrap();
        assert!(crashes.iter().all(|it| it["crashes"].as_u64() > Some(0)));
    }
    let levels = report["not_refuted"].as_array().unwrap().iter();
    let levels: Vec<&str> = levels.map(|it| it.as_str().unwrap()).collect();
    assert_eq!(report["level"], levels.join(" and "));
    let junit = fs::read_to_string(junit.path()).unwrap();
    assert_eq!(junit.matches("<testcase").count(), tests.len());
    assert!(junit.contains("failures=\"0\""), "{junit}");
}

#[test]
fn an_expected_level_that_is_not_given_fails() {
    let database = Database::new();
    let target = database.target("?cache=shared&read=uncommitted");
    let judge = ["litmus", "judge", &target, "--seconds", "10"];
    let expect = ["--expect", "read-committed"];
    let ended = outlive(judge.into_iter().chain(expect).chain(["--seed", "7"]));
    assert_eq!(ended.code, Some(1), "{}", ended.output);
    for needed in [
        "state wrong",
        &format!("repeat: outlive litmus run '{target}' aborted-read "),
        "\nexpected: read-committed\n",
    ] {
        assert!(ended.output.contains(needed), "{needed}: {}", ended.output);
    }
    let only = ["--only", "aborted-read"];
    outlive(judge.into_iter().chain(only)).succeeds();
    outlive(judge.into_iter().chain(only).chain(expect)).fails(2, "--only");
    outlive(["litmus", "judge", &target, "--expect", "quite-good"]).fails(2, "strict-serializable");
}

/// No real database of the golden table with transactions shows a dirty write; this store does.
#[test]
fn a_store_without_isolation_gives_no_level() {
    let has_python = Command::new("python3")
        .args(["-c", "import fcntl, json"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|it| it.success());
    if !has_python {
        println!("skipped: no python3 with the module fcntl is installed");
        return;
    }
    // The folder is in memory, because each step of this store writes its file.
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let target = format!(
        "exec:python3 -B '{}/../outlive-litmus/tests/stores/no_isolation.py' '{}/objects'",
        env!("CARGO_MANIFEST_DIR"),
        folder.path().display()
    );
    let judge = ["litmus", "judge", &target, "--seconds", "30", "--json"];
    let only = ["--only", "direct-write", "--seed", "7"];
    let printed = outlive(judge.into_iter().chain(only)).succeeds();
    let report: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(report["level"], "none");
    let tests = report["tests"].as_array().unwrap().iter();
    let violations = tests.flat_map(|it| it["violations"].as_array().unwrap());
    let mut wrong = violations.filter(|it| it["kind"] == "state wrong");
    let is_dirty = wrong.any(|it| it["explanation"]["anomaly"] == "dirty write (G0)");
    assert!(is_dirty, "{printed}");
}

#[test]
fn a_malformed_target_is_wrong_usage() {
    let run = |target: &str| outlive(["litmus", "run", target, "write-skew", "--seconds", "1"]);
    run("oracle:x").fails(2, "the scheme `oracle` is unknown");
    run("sqlite:").fails(2, "it must be in a file");
    run("sqlite:/tmp/x.db?journal=none").fails(2, "journal");
    run("sqlite:/nonexistent/x.db").fails(1, "unable to open");
    run("outlive-store:/dev/shm/none").fails(1, "nothing is there");
}

#[test]
fn a_violation_is_explained() {
    let database = Database::new();
    let target = database.target("?cache=shared&read=uncommitted");
    let page = Place::new("litmus-html");
    let run = ["litmus", "run", &target, "aborted-read", "--seed", "7"];
    let ended = outlive(run.into_iter().chain(["--json", "--html", page.path()]));
    assert_eq!(ended.code, Some(1), "{}", ended.output);
    assert_explained(HEADING, &ended.output);
    let report: Value = serde_json::from_str(&ended.output).unwrap();
    let explanation = &report["tests"][0]["violations"][0]["explanation"];
    assert_eq!(explanation["result"], "interleaving", "{explanation:#}");
    assert_eq!(explanation["anomaly"], "aborted read (G1a)");
    assert_eq!(explanation["inferred"], true);
    assert_eq!(explanation["cycle"][0]["kind"], "wr");
    assert_eq!(explanation["interleaving"][0]["step"], "write x = 1");
    let page = fs::read_to_string(page.path()).unwrap();
    for needed in ["<svg ", "inferred", "aborted read (G1a)", "--seed 7"] {
        assert!(page.contains(needed), "{needed}");
    }
    let text = outlive(run).output;
    assert!(
        text.contains("t1 (aborted by its user) --wr x--> t2"),
        "{text}"
    );
}

#[test]
fn a_file_without_tests_is_refused() {
    let (database, file) = (Database::new(), Place::new("litmus-empty"));
    fs::write(file.path(), "# no test\n").unwrap();
    outlive(["litmus", "run", &database.target(""), file.path()]).fails(1, "has no tests");
}

#[test]
fn a_test_that_cannot_fail_is_noted() {
    let (database, file) = (Database::new(), Place::new("litmus-vacuous"));
    let skew = outlive(["litmus", "show", "write-skew"]).succeeds();
    let vacuous = skew.replace("t1.a = 0", "t1.a = 0 and t1.a = 1");
    assert_ne!(vacuous, skew);
    fs::write(file.path(), vacuous).unwrap();
    let target = database.target("");
    let run = ["litmus", "run", &target, file.path(), "--instances", "50"];
    let ended = outlive(run);
    assert!(
        ended.errors.contains("cannot find a violation"),
        "{}",
        ended.errors
    );
}

#[test]
fn generated_tests_pass_on_sqlite() {
    let (database, file) = (Database::new(), Place::new("litmus-generated"));
    let generated = outlive(["litmus", "generate", "--transactions", "2"]).succeeds();
    fs::write(file.path(), &generated).unwrap();
    let target = database.target("?synchronous=off");
    let run = ["litmus", "run", &target, file.path(), "--instances", "100"];
    let printed = outlive(run.into_iter().chain(["--json"])).succeeds();
    let report: Value = serde_json::from_str(&printed).unwrap();
    let tests = report["tests"].as_array().unwrap();
    assert_eq!(tests.len(), generated.matches("\nforbidden from ").count());
    for test in tests {
        assert_eq!(test["verdict"], "passed", "{test:#}");
    }
}

#[test]
fn single_tests_run() {
    let database = Database::new();
    let target = database.target("");
    let run = ["litmus", "run", &target, "write-skew", "--instances", "50"];
    let text = outlive(run.into_iter().chain(["--seed", "7"])).succeeds();
    assert!(
        text.contains("passed") && text.ends_with("seed 7\n"),
        "{text}"
    );
    let printed = outlive(run.into_iter().chain(["--json"])).succeeds();
    assert_explained(HEADING, &printed);
    let dry = outlive(run.into_iter().chain(["--dry-run"])).succeeds();
    assert!(dry.ends_with("1 test of 50 instances each\n"), "{dry}");
    outlive(["litmus", "run", &target, "none-such"]).fails(2, "neither a shipped test nor a file");
}

#[test]
fn a_kill_that_hits_nothing_fails() {
    let database = Database::new();
    let target = database.target("");
    let mut judge = vec![
        "litmus",
        "judge",
        &target,
        "--only",
        "aborted-read",
        "--seconds",
        "1",
    ];
    judge.extend(["--kill", "true", "--recover", "true", "--patience", "1"]);
    outlive(judge.clone()).fails(1, "no client lost its connection");
    judge[8] = "false";
    outlive(judge).fails(1, "the command of --kill failed");
}

/// Waits until a process has ended; its new parent may reap it later.
fn assert_ends(pid: &str) {
    let is_alive = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat.rsplit_once(") ").map_or("X", |it| it.1);
        !state.starts_with(['X', 'Z'])
    };
    let begin = Instant::now();
    while is_alive() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{pid} is alive");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_command_that_hangs_is_killed_with_its_group() {
    let database = Database::new();
    let target = database.target("");
    let pids = database.0.path().join("pids");
    let hangs = format!("sleep 1000 & echo $$ $! >> {}; wait", pids.display());
    let judge = ["litmus", "judge", &target, "--only", "aborted-read"];
    let judge = judge
        .into_iter()
        .chain(["--seconds", "1", "--command-seconds", "1"]);
    let recover = ["--kill", "true", "--recover", &hangs, "--patience", "1"];
    let message = |option| format!("the command of {option} did not end within 1 s");
    outlive(judge.clone().chain(["--start", &hangs])).fails(1, &message("--start"));
    outlive(judge.chain(recover)).fails(1, &message("--recover"));
    let pids = fs::read_to_string(pids).unwrap();
    assert!(pids.lines().count() >= 2, "{pids}");
    pids.split_whitespace().for_each(assert_ends);
}
