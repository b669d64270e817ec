//! `outlive worker`: processes that the run did not start come to work, go, and die.

mod support;

use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use serde_json::Value;
use std::fs;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::run::{Seen, Stage, plainly, processes_of, read, text, wait_until};
use support::{Place, Running, command, outlive};

/// A ranking that takes some seconds, and the path of its ranks.
struct Ranking {
    ranks: PathBuf,
    iterations: &'static str,
}

impl Ranking {
    fn new(name: &str) -> Self {
        let name = format!("outlive-worker-test-{}-{name}", std::process::id());
        let ranks = std::env::temp_dir().join(name);
        Self {
            ranks,
            iterations: "3000",
        }
    }

    /// Returns one of which much is left after a host has died, on the fastest machine.
    fn long(name: &str) -> Self {
        let mut ranking = Self::new(name);
        ranking.iterations = "8000";
        ranking
    }

    fn arguments<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let mut all = vec![
            "run",
            "pagerank",
            "rmat:13",
            "--hosts",
            "1",
            "--tolerance",
            "0",
        ];
        all.extend([
            "--iterations",
            self.iterations,
            "--output",
            self.ranks.to_str().unwrap(),
        ]);
        all.extend(more);
        all
    }

    fn written(&self) -> String {
        fs::read_to_string(&self.ranks).unwrap()
    }
}

impl Drop for Ranking {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.ranks);
    }
}

/// Returns the number of tasks that a worker reported at its end.
fn tasks(said: &str) -> u64 {
    let (_, end) = said.split_once("left in good order; ").expect(said);
    end.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn workers_come_and_go_and_die_and_the_ranks_are_the_same() {
    let (alone, together) = (Ranking::new("alone"), Ranking::new("together"));
    outlive(alone.arguments(&[])).succeeds();
    let place = Place::new("workers");
    let mut run = Running::start(together.arguments(&["--pod", place.path()]));
    let worker = |more: &[&'static str]| {
        let mut all = vec!["worker", "--pod", place.path(), "--wait", "30"];
        all.extend(more);
        Running::start(all)
    };
    let mut workers = [
        worker(&["--name", "to-be-killed"]),
        worker(&["--threads", "2"]),
        worker(&["--pool", "pagerank"]),
        worker(&["--spare"]),
    ];
    for worker in &mut workers {
        worker.wait_for(&["works in the pool pagerank"]);
    }
    let [killed, sent_away, stays, spare] = &mut workers;
    std::thread::sleep(Duration::from_millis(100));
    killed.kill();
    std::thread::sleep(Duration::from_millis(50));
    sent_away.signal(Signal::TERM);
    let said = sent_away.ends();
    assert!(
        tasks(&said) > 0 && said.contains("with 2 threads"),
        "{said}"
    );
    run.ends();
    let said = stays.ends();
    assert!(tasks(&said) > 0, "{said}");
    // The pool wanted all workers that come; now it wants none, and the pod is gone.
    spare.ends();
    assert_eq!(alone.written(), together.written());
}

/// The hosts of a run with spares have all places that its pool wants; other workers are
/// additional, and are never surplus.
#[test]
fn workers_come_to_a_run_with_spares() {
    let (alone, together) = (Ranking::long("alone-spares"), Ranking::long("spares"));
    outlive(alone.arguments(&[])).succeeds();
    let place = Place::new("workers-spares");
    let spares = [
        "--spares",
        "1",
        "--supervise",
        "none",
        "--task-rows",
        "1024",
    ];
    let kept = ["--pod", place.path()];
    let mut run = Running::start(together.arguments(&[&kept[..], &spares].concat()));
    let mut workers = [&["--threads", "2"][..], &[]].map(|more| {
        let mut all = vec!["worker", "--pod", place.path(), "--wait", "30"];
        all.extend(more);
        Running::start(all)
    });
    for worker in &mut workers {
        worker.wait_for(&["works in the pool pagerank"]);
    }
    // The worker of a host, once all have come and no dead one is unrecovered.
    let of_a_host = || {
        let status = pod(&place, &["status"])?;
        let pool = &status["pools"][0];
        let workers = pool["workers"].as_array()?.iter();
        let mut own = workers.filter(|worker| worker["is_guest"] == false);
        let (first, second) = (own.next()?, own.next());
        let all = pool["guests"] == 3 && second.is_none() && first["lives"] == true;
        all.then(|| first["instance"].clone())
    };
    let mut before = None;
    wait_until("a host and both workers work", || {
        before = of_a_host();
        before.is_some()
    });
    let host = processes_of(place.path()).into_iter().find(is_first_host);
    host.expect("a host works").kill();
    // Despite the workers beside it, which are not replacements.
    wait_until("the spare works, and so do both workers", || {
        let now = of_a_host();
        now.is_some() && now != before
    });
    // Neither has ended by itself.
    let [sent_away, stays] = &mut workers;
    sent_away.signal(Signal::TERM);
    let done = tasks(&sent_away.ends());
    let said = run.ends();
    assert!(said.contains(", replaced by host 1 after "), "{said}");
    // How they share the work depends on the machine.
    assert!(done + tasks(&stays.ends()) > 0);
    assert_eq!(alone.written(), together.written());
}

/// Returns whether it is host 0 of a run.
fn is_first_host(seen: &Seen) -> bool {
    let environment = fs::read(format!("/proc/{}/environ", seen.pid)).unwrap_or_default();
    { environment.split(|byte| *byte == 0) }.any(|word| word == b"OUTLIVE_HOST=0")
}

/// A worker's table is that of its place in the pool, so the counting workers need not be known in
/// advance.
#[test]
fn workers_come_and_die_in_the_middle_of_a_word_count() {
    let (stage, place) = (Stage::new("volunteers"), Place::new("words"));
    let bytes = text(20_000_000, 13);
    let path = stage.write("text", &bytes);
    let counts = stage.path("counts");
    let worker = |more: &[&'static str]| {
        let mut all = vec!["worker", "--pod", place.path(), "--wait", "30"];
        all.extend(more);
        Running::start(all)
    };
    let mut workers = [worker(&[]), worker(&["--threads", "2"]), worker(&[])];
    let run = ["run", "wordcount", &path, "--hosts", "1", "--unit", "64"];
    let kept = ["--pod", place.path(), "--output", &counts];
    let mut run = Running::start(run.into_iter().chain(kept));
    for worker in &mut workers {
        worker.wait_for(&["works in the pool wordcount"]);
    }
    let [stays, both, killed] = &mut workers;
    killed.kill();
    std::thread::sleep(Duration::from_millis(50));
    both.kill();
    run.ends();
    assert!(tasks(&stays.ends()) > 0);
    assert!(read(&counts) == plainly(&[&bytes]));
}

/// Returns the output of a pod command as JSON; `None` if it fails.
fn pod(place: &Place, what: &[&str]) -> Option<Value> {
    let arguments = ["pod", what[0], place.path(), "--json"];
    let ended = command(arguments.iter().chain(&what[1..]))
        .output()
        .unwrap();
    let answer = serde_json::from_slice(&ended.stdout).ok();
    answer.filter(|_| ended.status.success())
}

/// An observer sees the pool, its workers and their tasks; when all are dead and recovered, the
/// pool's structures are checked.
#[test]
fn the_pool_is_seen_from_outside() {
    let (ranking, place) = (Ranking::new("seen"), Place::new("seen"));
    let mut run = Running::start(ranking.arguments(&["--pod", place.path()]));
    wait_until("a worker is at a task", || {
        let Some(status) = pod(&place, &["status"]) else {
            return false;
        };
        let pool = &status["pools"][0];
        let worker = &pool["workers"][0];
        pool["name"] == "pagerank"
            && pool["damaged"].is_null()
            && pool["living"].as_u64() > Some(0)
            && !pool["open"].as_array().unwrap().is_empty()
            && worker["lives"] == true
            && worker["task"]
                .as_str()
                .is_some_and(|task| task.contains("pagerank::"))
    });
    let shown = outlive(["pod", "status", place.path()]).succeeds();
    assert!(shown.contains("pool pagerank: "), "{shown}");
    let check = pod(&place, &["check"]).expect("nothing is wrong");
    assert_eq!(check["pools"]["in_use"], serde_json::json!(["pagerank"]));
    run.kill();
    // Its hosts die with it; before that, nothing is repaired.
    let mut repaired = None;
    wait_until("all are dead, and recovered", || {
        repaired = pod(&place, &["check", "--repair"]);
        repaired.is_some()
    });
    let check = repaired.unwrap();
    assert_eq!(
        check["pools"]["checked"],
        serde_json::json!(["pagerank"]),
        "{check}"
    );
    assert_eq!(check["violations"], serde_json::json!([]));
}

#[test]
fn what_has_no_pool_is_refused() {
    let place = Place::new("no-pool");
    let work = |more: &[&str]| {
        let mut all = vec!["worker", "--pod", place.path()];
        all.extend(more);
        outlive(all)
    };
    work(&[]).fails(1, "nothing is there");
    outlive(["pod", "create", place.path()]).succeeds();
    work(&[]).fails(1, "has no pool of workers; --wait");
    work(&["--pool", "sums"]).fails(1, "has no pool `sums`; it has none");
    work(&["--threads", "0"]).fails(2, "--threads");
    let began = Instant::now();
    work(&["--wait", "1"]).fails(1, "has no pool of workers");
    assert!(began.elapsed() >= Duration::from_secs(1));
}

/// `mpirun` starts them, and reports if one of them fails.
#[test]
fn mpirun_starts_workers() {
    if Command::new("mpirun").arg("--version").output().is_err() {
        println!("skipped: there is no mpirun here (OpenMPI's, of the package openmpi-bin)");
        return;
    }
    let (alone, together) = (Ranking::new("before-mpi"), Ranking::new("mpi"));
    outlive(alone.arguments(&[])).succeeds();
    let place = Place::new("mpirun");
    let mut run = Running::start(together.arguments(&["--pod", place.path()]));
    let worker = command(["worker", "--pod", place.path(), "--wait", "30"]);
    let mut mpirun = Command::new("mpirun");
    mpirun.args(["-n", "3", "--oversubscribe"]);
    if rustix::process::getuid().is_root() {
        mpirun.arg("--allow-run-as-root");
    }
    mpirun.arg(worker.get_program()).args(worker.get_args());
    let ended = mpirun.stdin(Stdio::null()).output().expect("mpirun");
    let said = String::from_utf8_lossy(&ended.stdout);
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{said}{errors}");
    assert_eq!(
        said.matches("left in good order; ").count(),
        3,
        "{said}{errors}"
    );
    run.ends();
    assert_eq!(alone.written(), together.written());
}

/// Prevents a process from opening files from now on.
fn let_it_open_nothing(pid: u32) {
    let pid = Pid::from_raw(pid as i32);
    let none = Rlimit {
        current: Some(3),
        maximum: Some(3),
    };
    prlimit(pid, Resource::Nofile, none).expect("a child's limits may be lowered");
}

/// Starts a worker for the run in the pod at `place`, which works and then cannot open files any
/// more. Returns how it ends.
fn cannot_read(place: &Place, threads: &str) -> (Option<i32>, String) {
    let pod = ["worker", "--pod", place.path(), "--wait", "30"];
    let worker = command(pod.iter().chain(&["--threads", threads]))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let works = || Seen::of(worker.id()).is_some_and(|seen| seen.seconds > 0.05);
    wait_until("the started worker works", works);
    let_it_open_nothing(worker.id());
    let ended = worker.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    (ended.status.code(), said)
}

/// Creates a file of `bytes` zeros that takes no space.
fn hole(stage: &Stage, name: &str, bytes: u64) -> String {
    let path = stage.write(name, b"");
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(bytes).unwrap();
    path
}

/// Creates a file of `bytes` zeros that takes space: an archive has them.
fn zeros(stage: &Stage, name: &str, bytes: u64) -> String {
    let path = stage.write(name, b"");
    let mut file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    io::copy(&mut io::repeat(0).take(bytes), &mut file).unwrap();
    path
}

#[test]
fn a_volunteer_that_cannot_read_an_input_steps_back_and_the_run_is_done_without_it() {
    let stage = Stage::new("cannot-read");
    let bytes = 2u64 << 30;
    let file = hole(&stage, "hole", bytes);
    for (number, threads) in ["1", "2"].into_iter().enumerate() {
        let place = Place::new(&format!("cannot-read-{number}"));
        let counts = stage.path("counts");
        let mut all = vec!["run", "histogram", &file, "--hosts", "1", "--json"];
        all.extend(["--pod", place.path(), "--output", &counts]);
        let mut run = Running::start(all);
        let (code, said) = cannot_read(&place, threads);
        assert_eq!(code, Some(1), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains("this worker cannot execute task `"), "{said}");
        let why = format!("{file} cannot be read: Too many open files");
        assert!(said.contains(&why), "{said}");
        let summary: Value = serde_json::from_str(&run.ends()).unwrap();
        let units = bytes.div_ceil(8 << 20);
        assert_eq!(summary["units"], units);
        assert!(summary["units_redone"].as_u64().unwrap() >= 1, "{summary}");
        let written = fs::read_to_string(&counts).unwrap();
        assert!(
            written.starts_with(&format!("bytes\t0\t{bytes}\n")),
            "{written}"
        );
    }
}

#[test]
fn a_volunteer_that_cannot_read_a_file_to_be_archived_names_it() {
    let stage = Stage::new("cannot-archive");
    let file = zeros(&stage, "zeros", 600 << 20);
    let (place, archive) = (Place::new("cannot-archive"), stage.path("archive"));
    let mut all = vec!["run", "dedup", &file, "--hosts", "1", "--window", "1M"];
    all.extend(["--pod", place.path(), "--output", &archive]);
    let mut run = Running::start(all);
    let (code, said) = cannot_read(&place, "1");
    assert_eq!(code, Some(1), "{said}");
    let why = format!("{file} cannot be read: Too many open files");
    assert!(said.contains(&why) && said.lines().count() == 1, "{said}");
    run.ends();
    let unpacked = outlive(["unpack", &archive, &stage.path("copy")]).succeeds();
    assert!(unpacked.contains("1 files of 600 MiB"), "{unpacked}");
}

#[test]
fn a_run_whose_input_nobody_can_read_any_more_fails_and_names_it() {
    let stage = Stage::new("nobody-reads");
    let place = Place::new("nobody-reads");
    let pod = place.path().to_owned();
    let programs: [&[&str]; 2] = [&["histogram"], &["dedup", "--window", "1M"]];
    for program in programs {
        for hosts in [&["--hosts", "1"][..], &["--hosts", "2", "--spares", "1"]] {
            let file = match program[0] {
                "dedup" => zeros(&stage, "input", 600 << 20),
                _ => hole(&stage, "input", 64 << 30),
            };
            let (name, more) = program.split_first().unwrap();
            let mut all = vec!["run", name, &file, "--pod", &pod];
            all.extend(more.iter().chain(hosts));
            let running = command(&all)
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            wait_until("the pod is there", || fs::exists(&pod).unwrap());
            std::thread::sleep(Duration::from_millis(300));
            fs::remove_file(&file).unwrap();
            let ended = running.wait_with_output().unwrap();
            let said = String::from_utf8(ended.stderr).unwrap();
            assert_eq!(ended.status.code(), Some(1), "{said}");
            assert!(
                said.contains("input cannot be read: No such file"),
                "{said}"
            );
            assert_eq!(said.lines().count(), 1, "{said}");
            assert!(!fs::exists(&pod).unwrap());
        }
    }
}

#[test]
fn a_run_for_several_machines_has_their_settings_and_a_fence_command_that_workers_bring() {
    let (ranking, place) = (Ranking::new("machines"), Place::new("machines"));
    let fence = ["--fence-command", "/bin/false never"];
    let mut arguments = ranking.arguments(&["--pod", place.path(), "--heartbeat", "40ms"]);
    arguments.extend(["--suspicion", "30s"]);
    arguments.extend(fence);
    let mut run = Running::start(arguments);
    let worker = ["worker", "--pod", place.path(), "--wait", "30"];
    outlive(worker).fails(
        1,
        "the pod was created with one, which every process must give",
    );
    let mut brings = Running::start(worker.into_iter().chain(fence));
    brings.wait_for(&["works in the pool pagerank"]);
    let status = outlive(["pod", "status", place.path(), "--json"]).succeeds();
    let settings = &serde_json::from_str::<Value>(&status).unwrap()["settings"];
    assert_eq!(settings["heartbeat"], 0.04);
    assert_eq!(settings["suspicion"], 30.0);
    assert!(settings["fence_command"].is_string(), "{settings}");
    run.ends();
    brings.ends();
}
