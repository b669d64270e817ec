//! `outlive worker`: processes that nobody told the run of come to work, go, and die.

mod support;

use rustix::process::Signal;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::run::{Stage, plainly, read, text};
use support::{Place, Running, command, outlive};

/// A ranking that takes some seconds, and where its ranks are written.
struct Ranking {
    ranks: PathBuf,
}

impl Ranking {
    fn new(name: &str) -> Self {
        let name = format!("outlive-worker-test-{}-{name}", std::process::id());
        let ranks = std::env::temp_dir().join(name);
        Self { ranks }
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
            "3000",
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

/// How many tasks a worker said at its end that it had done.
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
    // The pool wanted as many as there is room for; it wants nobody now, and there is no pod any more.
    spare.ends();
    assert_eq!(alone.written(), together.written());
}

/// A worker's table is that of its place in the pool, so that nobody has to know beforehand who counts.
#[test]
fn workers_come_and_die_in_the_middle_of_a_word_count() {
    let (stage, place) = (Stage::new("volunteers"), Place::new("words"));
    let bytes = text(8_000_000, 13);
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

/// `mpirun` starts them, and says itself if one of them fails.
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
