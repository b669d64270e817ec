//! Stores behind child processes.

use super::assert_conforms;
use outlive_litmus::driver::conformance;
use outlive_litmus::driver::exec::Exec;
use outlive_litmus::driver::{self, Driver, StepError};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A time limit that no test reaches.
const LONG: Duration = Duration::from_secs(60);

/// The commands of a shell that answer the first request.
const HELLO: &str = r#"read -r line; echo '{"ok":{"version":1,"abort":true}}'"#;

/// Returns a target with a store in Python, `program` in the crate's directory, or `None` if there
/// is no Python.
fn python(program: &str, directory: &Path) -> Option<String> {
    let version = Command::new("python3")
        .args(["-c", "import fcntl, json"])
        .stderr(Stdio::null())
        .status();
    if !version.is_ok_and(|it| it.success()) {
        println!("skipped: no python3 with the module fcntl is installed");
        return None;
    }
    let (root, file) = (env!("CARGO_MANIFEST_DIR"), directory.join("objects"));
    Some(format!(
        "exec:python3 -B '{root}/{program}' '{}'",
        file.display()
    ))
}

#[test]
fn the_example_in_python_conforms() {
    let directory = tempfile::tempdir().unwrap();
    if let Some(target) = python("examples/dict_store.py", directory.path()) {
        assert_conforms(&*driver::open(&target).unwrap());
    }
}

#[test]
fn a_store_without_isolation_does_not_conform() {
    let directory = tempfile::tempdir().unwrap();
    let Some(target) = python("tests/stores/no_isolation.py", directory.path()) else {
        return;
    };
    let driver = driver::open(&target).unwrap();
    let violation = conformance::check(&*driver).unwrap_err();
    let undone = "a write of an absent object is refused and undoes the transaction";
    assert_eq!(violation.check, undone, "{violation}");

    driver.create().unwrap();
    driver.set(&[(1, Some(10))]).unwrap();
    let (mut writer, mut reader) = (driver.connect().unwrap(), driver.connect().unwrap());
    writer.begin().unwrap();
    writer.write(1, 11).unwrap();
    reader.begin().unwrap();
    assert_eq!(reader.read(1), Ok(Some(11)), "an uncommitted value");
}

#[test]
fn a_client_is_killed_within_its_commit() {
    let connected = |answer: &str| {
        let begin = r#"read -r line; echo '{"ok":null}'"#;
        let exec = Exec::start(&format!("{HELLO}; {begin}; read -r line; {answer}"), LONG).unwrap();
        assert!(exec.kills_in_commits());
        let mut client = exec.connect().unwrap();
        client.begin().unwrap();
        client
    };
    let mut silent = connected("sleep 60");
    assert_eq!(silent.commit_and_kill(Duration::from_millis(5)), None);
    assert!(matches!(silent.begin(), Err(StepError::Lost(_))));
    let mut answers = connected(r#"echo '{"ok":null}'"#);
    assert_eq!(answers.commit_and_kill(LONG), Some(Ok(())));
    let mut aborts = connected(r#"echo '{"aborted":"a conflict"}'"#);
    let aborted = aborts.commit_and_kill(LONG);
    assert!(
        matches!(aborted, Some(Err(StepError::Aborted(_)))),
        "{aborted:?}"
    );
}

/// Returns the problem with which a child of `command` does not greet.
fn refusal(command: &str, limit: Duration) -> String {
    match Exec::start(command, limit) {
        Ok(_) => panic!("{command} is accepted"),
        Err(error) => {
            assert_eq!(error.target, format!("exec:{command}"));
            error.problem
        }
    }
}

#[test]
fn children_that_do_not_speak_the_protocol_are_refused() {
    let problem = |command: &str| refusal(command, LONG);
    assert_eq!(problem("exit 3"), "it exited with code 3");
    assert_eq!(problem("kill -9 $$"), "it was killed by signal 9");
    assert_eq!(
        problem("outlive-no-such-program"),
        "it exited with code 127"
    );
    assert!(problem("echo welcome; cat").contains("welcome"));
    let long = problem("read -r line; head -c 100000 /dev/zero | tr '\\0' x; cat");
    assert!(long.contains("a line of more than"), "{long}");
    let version = problem(r#"read -r line; echo '{"ok":{"version":2}}'; cat"#);
    assert!(version.contains("version 2 of the protocol"), "{version}");
    let error = problem(r#"read -r line; echo '{"error":"no server runs"}'; cat"#);
    assert_eq!(error, "no server runs");
    let closed = problem("exec >&-; sleep 1000");
    assert!(closed.contains("closed its standard output"), "{closed}");
}

#[test]
fn a_child_that_does_not_answer_is_refused() {
    let problem = refusal("cat > /dev/null", Duration::from_millis(100));
    assert_eq!(problem, "it did not answer within 100ms");
}

/// Returns the reason for which a connection is lost when the child answers `begin` with `answer`,
/// commands of a shell.
fn loss(answer: &str, limit: Duration) -> String {
    let driver = Exec::start(&format!("{HELLO}; read -r line; {answer}"), limit).unwrap();
    let mut client = driver.connect().unwrap();
    let Err(StepError::Lost(reason)) = client.begin() else {
        panic!("{answer} is accepted");
    };
    assert_eq!(client.read(1), Err(StepError::Lost(reason.clone())));
    reason
}

#[test]
fn a_child_that_fails_later_is_a_lost_connection() {
    let reason = |answer: &str| loss(answer, LONG);
    assert_eq!(reason("exit 4"), "it exited with code 4");
    assert_eq!(
        reason(r#"echo '{"lost":"the server is gone"}'; cat"#),
        "the server is gone"
    );
    let wrong = reason("echo welcome; cat");
    assert!(
        wrong.contains(r#""welcome", which is not a valid answer"#),
        "{wrong}"
    );
    let wrong = reason(r#"echo '{"ok":7}'; cat"#);
    assert!(wrong.contains("does not answer this request"), "{wrong}");
    let wrong = reason(r#"echo '{"error":"a step"}'; cat"#);
    assert!(wrong.contains("does not answer this request"), "{wrong}");
    let late = loss("cat > /dev/null", Duration::from_millis(200));
    assert_eq!(late, "it did not answer within 200ms");
}

#[test]
fn a_line_too_many_is_a_lost_connection() {
    let twice = r#"read -r line; echo '{"ok":null}
{"ok":null}'; cat"#;
    let driver = Exec::start(&format!("{HELLO}; {twice}"), LONG).unwrap();
    let mut client = driver.connect().unwrap();
    client.begin().unwrap();
    let Err(StepError::Lost(reason)) = client.commit() else {
        panic!("the second line is taken for the answer to the next request");
    };
    assert!(reason.contains("before it received a request"), "{reason}");
}

#[test]
fn answers_become_outcomes() {
    let answers = r#"for answer in '{"ok":null}' '{"ok":null}' '{"ok":-3}' '{"aborted":"x"}' \
        '{"refused":null}' '{"refused":"x"}'; do read -r line; echo "$answer"; done"#;
    let driver = Exec::start(&format!("{HELLO}; {answers}"), LONG).unwrap();
    let capabilities = driver.capabilities();
    assert!(capabilities.abort && !capabilities.count && !capabilities.insert_delete);
    let mut client = driver.connect().unwrap();
    assert_eq!(client.begin(), Ok(()));
    assert_eq!(client.read(1), Ok(None));
    assert_eq!(client.read(1), Ok(Some(-3)));
    assert_eq!(client.commit(), Err(StepError::Aborted("x".into())));
    assert_eq!(client.write(1, 1), Err(StepError::Refused));
    assert_eq!(client.write(1, 1), Err(StepError::Refused));
}

/// Returns whether the process runs.
fn runs(pid: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = status.rsplit(')').next().unwrap_or_default().trim_start();
    !state.is_empty() && !state.starts_with('Z')
}

#[test]
fn a_dropped_connection_kills_its_child_and_the_childs_children() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pids");
    let command = format!(
        "sleep 1000 & echo $$ $! > '{}'; {HELLO}; cat",
        file.display()
    );
    // The child for preparations writes the file first.
    let driver = Exec::start(&command, LONG).unwrap();
    let client = driver.connect().unwrap();
    let pids = fs::read_to_string(file).unwrap();
    assert!(pids.split_whitespace().all(runs), "{pids}");
    drop(client);
    let begin = Instant::now();
    while pids.split_whitespace().any(runs) {
        assert!(begin.elapsed() < LONG, "{pids} run");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn the_child_for_preparations_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let flag = directory.path().join("flag");
    let once = format!("[ -e '{0}' ] || {{ touch '{0}'; exit; }}", flag.display());
    let command = format!("{HELLO}; read -r line; {once}; echo '{{\"ok\":null}}'; cat");
    Exec::start(&command, LONG).unwrap().create().unwrap();
    assert!(flag.exists());

    let refused = format!("{HELLO}; read -r line; echo '{{\"error\":\"full\"}}'; cat");
    let error = Exec::start(&refused, LONG).unwrap().create().unwrap_err();
    assert_eq!(error.problem, "full");
}
