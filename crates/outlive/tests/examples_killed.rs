//! The programs in `examples`, killed at random moments and started again.

mod pod_file;

use outlive::pod::{Pod, PodOptions};
use outlive::sync::{Abandoned, Repair};
use pod_file::PodFile;
use std::collections::HashMap;
use std::io::Read;
use std::ops::Range;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const TIME_LIMIT: Duration = Duration::from_secs(100);

/// Returns the path of an example, which cargo builds with the tests.
fn example(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let folder = tests.ancestors().nth(2).unwrap().join("examples");
    let path = folder.join(name);
    assert!(
        path.exists(),
        "{} is missing; `cargo test -p outlive` builds it, as does `cargo build -p outlive --examples`",
        path.display()
    );
    path
}

/// A running example. It is killed when this is dropped.
struct Running {
    child: Child,
    output: Option<JoinHandle<Vec<u8>>>,
    messages: Option<JoinHandle<Vec<u8>>>,
    has_output: Arc<AtomicBool>,
}

impl Running {
    fn start(name: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(example(name));
        let command = command.args(arguments).stdin(Stdio::null());
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let has_output = Arc::new(AtomicBool::new(false));
        Self {
            output: Some(read(child.stdout.take().unwrap(), has_output.clone())),
            messages: Some(read(child.stderr.take().unwrap(), Arc::default())),
            child,
            has_output,
        }
    }

    fn has_output(&self) -> bool {
        self.has_output.load(Ordering::SeqCst)
    }

    fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
    }

    /// Kills it, if it runs, and returns its output.
    fn stop(&mut self) -> Stopped {
        self.kill();
        let status = self.child.wait().unwrap();
        let output = self.output.take().unwrap().join().unwrap();
        let messages = self.messages.take().unwrap().join().unwrap();
        let messages = String::from_utf8(messages).unwrap();
        assert!(
            status.success() || status.signal() == Some(libc::SIGKILL),
            "{status}: {messages}"
        );
        Stopped {
            has_ended: status.success(),
            output,
            messages,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
        let _ = self.child.wait();
    }
}

/// Reads a pipe to its end on another thread, and sets `is_begun` at the first byte.
fn read(mut pipe: impl Read + Send + 'static, is_begun: Arc<AtomicBool>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut output = vec![0];
        if pipe.read_exact(&mut output).is_err() {
            return Vec::new();
        }
        is_begun.store(true, Ordering::SeqCst);
        pipe.read_to_end(&mut output).unwrap();
        output
    })
}

/// The output of an example that was killed or has ended by itself.
struct Stopped {
    has_ended: bool,
    output: Vec<u8>,
    messages: String,
}

impl Stopped {
    /// Returns the whole lines of its output. A line that the kill cut off does not count.
    fn lines(&self) -> Vec<&str> {
        let output = str::from_utf8(&self.output).unwrap();
        let lines = output.split_inclusive('\n');
        lines.filter_map(|line| line.strip_suffix('\n')).collect()
    }
}

/// Returns a number below `bound` that follows from `seed`.
fn draw(seed: &mut u64, bound: u64) -> u64 {
    *seed = { seed.wrapping_mul(0x5851_F42D_4C95_7F2D) }.wrapping_add(0x1405_7B7E_F767_814F);
    (*seed >> 33) % bound
}

/// Whether a client is killed before or after its operation, the operation takes effect once.
#[test]
fn clients_count_exactly_once() {
    const COUNT_PER_CLIENT: u64 = 20_000;
    const NAMES: [&str; 3] = ["ann", "bob", "cid"];
    let place = PodFile::new("example-acknowledged");
    let most = COUNT_PER_CLIENT.to_string();
    let start = |name: &str| Running::start("acknowledged", &[&place.0, name, &most]);
    let (mut seed, mut kills) = (7, 0);
    let mut clients: Vec<_> = NAMES.map(|name| (name, start(name), 0u64)).into();
    let until = Instant::now() + TIME_LIMIT;
    while !clients.is_empty() {
        assert!(Instant::now() < until, "the clients do not end");
        std::thread::sleep(Duration::from_millis(3 + draw(&mut seed, 15)));
        let index = draw(&mut seed, clients.len() as u64) as usize;
        let (name, client, acknowledged) = &mut clients[index];
        let stopped = client.stop();
        for line in stopped.lines() {
            let token: u64 = line.parse().unwrap();
            assert!(
                token > *acknowledged,
                "{name}: {token} after {acknowledged}"
            );
            *acknowledged = token;
        }
        if stopped.has_ended {
            // A kill between an operation and its acknowledgement loses the latter.
            assert!(*acknowledged <= COUNT_PER_CLIENT);
            clients.swap_remove(index);
        } else {
            kills += 1;
            *client = start(name);
        }
    }
    assert!(kills > 0);
    let pod = Pod::open(&place.0).unwrap();
    let session = pod.session().unwrap();
    let counts = session.map::<str, u64>("counts").unwrap();
    assert_eq!(
        counts.get("all"),
        Some(COUNT_PER_CLIENT * NAMES.len() as u64),
        "{kills}"
    );
}

#[test]
fn cache_output_is_correct_when_users_are_killed() {
    let place = PodFile::new("example-cache");
    let folder = tempfile::tempdir().unwrap();
    let mut seed = 7;
    let files: Vec<(PathBuf, Vec<u8>)> = (0..30)
        .map(|number| {
            let path = folder.path().join(number.to_string());
            let content = vec![number as u8; draw(&mut seed, 20_000) as usize];
            std::fs::write(&path, &content).unwrap();
            (path, content)
        })
        .collect();
    // A small pod: the files fill only a part of its heap.
    drop(Pod::create(&place.0, PodOptions::new().size(16 << 20).ids(64)).unwrap());
    let mut ended = 0;
    for round in 0..60 {
        let used: Vec<_> = (0..200)
            .map(|_| &files[draw(&mut seed, 30) as usize])
            .collect();
        let mut arguments = vec![&*place.0];
        arguments.extend(used.iter().map(|(path, _)| Path::to_str(path).unwrap()));
        let mut user = Running::start("cache", &arguments);
        if round % 3 == 0 {
            assert!(user.child.wait().unwrap().success());
            ended += 1;
        } else {
            std::thread::sleep(Duration::from_millis(draw(&mut seed, 12)));
        }
        let output = user.stop().output;
        let whole: Vec<u8> = used
            .into_iter()
            .flat_map(|(_, content)| content)
            .copied()
            .collect();
        assert!(whole.starts_with(&output), "round {round}");
        assert!(
            round % 3 != 0 || whole.len() == output.len(),
            "round {round}"
        );
    }
    assert_eq!(ended, 20);
}

/// Each piece has the right result, and is credited once, to the worker that stored it.
#[test]
fn pieces_of_work_count_exactly_once() {
    const PIECES: usize = 100_000;
    const WORKERS: u64 = 3;
    const ROUNDS: u64 = 80;
    const TOTAL: &str = "100000 pieces, 78498 primes";
    let place = PodFile::new("example-work-list");
    let start = |worker: u64| {
        let arguments = [&*place.0, &worker.to_string(), &PIECES.to_string()];
        Running::start("work_list", &arguments)
    };
    let (mut seed, mut kills) = (7, 0);
    let mut workers: Vec<_> = (1..=WORKERS)
        .map(|worker| (worker, start(worker)))
        .collect();
    let mut acknowledged = HashMap::new();
    let until = Instant::now() + TIME_LIMIT;
    for round in 0.. {
        let is_last = round >= ROUNDS;
        let killed = match draw(&mut seed, 6) {
            _ if workers.is_empty() => break,
            0 => 0..workers.len(),
            _ => one(draw(&mut seed, workers.len() as u64) as usize),
        };
        // Most workers are killed while they work, some while they start and recover.
        while (is_last || draw(&mut seed, 50) > 0) && { workers[killed.clone()].iter_mut() }
            .any(|(_, it)| it.is_running() && (is_last || !it.has_output()))
        {
            assert!(Instant::now() < until, "the workers do not end");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(draw(&mut seed, 5000)));
        for (_, process) in &mut workers[killed.clone()] {
            process.kill();
        }
        for index in killed.rev() {
            let (worker, process) = &mut workers[index];
            let stopped = process.stop();
            let mut lines = stopped.lines();
            if stopped.has_ended {
                assert_eq!(lines.pop(), Some(TOTAL));
            } else {
                lines.retain(|line| *line != TOTAL);
            }
            for line in lines {
                let piece: u64 = line.parse().unwrap();
                let other = acknowledged.insert(piece, *worker);
                assert_eq!(other, None, "{worker} does piece {piece} again");
            }
            if stopped.has_ended {
                workers.swap_remove(index);
            } else {
                kills += 1;
                *process = start(*worker);
            }
        }
    }
    assert!(kills > 0);
    let lost = PIECES - acknowledged.len();
    let pod = Pod::open(&place.0).unwrap();
    let session = pod.session().unwrap();
    let results = session.map::<u64, [u64; 2]>("results").unwrap();
    let totals = session.map::<u64, [u64; 2]>("totals").unwrap();
    let mut credits: HashMap<u64, [u64; 2]> = HashMap::new();
    for (piece, expected) in primes_of_pieces(PIECES).into_iter().enumerate() {
        let piece = piece as u64;
        let [primes, worker] = results.get(&piece).unwrap();
        assert_eq!(primes, expected, "piece {piece}");
        // The acknowledgement is lost if its worker was killed just before printing it.
        let by = acknowledged.remove(&piece);
        assert!(by.is_none_or(|by| by == worker), "{by:?}, {worker}");
        let credit = credits.entry(worker).or_default();
        *credit = [credit[0] + 1, credit[1] + primes];
    }
    assert_eq!(results.iter().count(), PIECES);
    assert!(acknowledged.is_empty(), "{acknowledged:?}");
    assert!(
        lost <= kills,
        "{lost} acknowledgements lost in {kills} kills"
    );
    let totals: HashMap<u64, [u64; 2]> = totals.iter().collect();
    println!("{kills} kills, {lost} acknowledgements lost, {totals:?}");
    assert_eq!(totals, credits);
}

/// Returns the right result of each piece: the number of primes in ten numbers.
fn primes_of_pieces(pieces: usize) -> Vec<u64> {
    let mut is_prime = vec![true; 10 * pieces];
    is_prime[..2].fill(false);
    for n in 2..is_prime.len() {
        if is_prime[n] {
            { is_prime.iter_mut().skip(n * n).step_by(n) }.for_each(|it| *it = false);
        }
    }
    { is_prime.chunks(10) }
        .map(|piece| piece.iter().filter(|it| **it).count() as u64)
        .collect()
}

outlive::shared! {
    /// The state of the example `leader`.
    #[derive(Debug, Default)]
    struct Office { term: u64, step: u64, in_progress: u64, cut_short: u64 }
}

impl Repair for Office {
    fn repair(&mut self, _: Abandoned) {
        self.cut_short += std::mem::take(&mut self.in_progress);
    }
}

/// The last term and step that the killed leaders have printed.
#[derive(Debug, Default)]
struct Terms {
    term: u64,
    step: u64,
    /// The number of steps.
    steps: u64,
}

impl Terms {
    /// Adds the lines that one process printed before it was killed. The calls are in the order of
    /// the kills, which is the order of the terms: each leader leads until it is dead.
    fn add(&mut self, name: &str, stopped: &Stopped) {
        let before = self.term;
        for line in stopped.lines() {
            let line: Vec<&str> = line.split(' ').collect();
            let [term, who, step] = line[..] else {
                panic!("{name}: {line:?}");
            };
            let (term, step): (u64, u64) = (term.parse().unwrap(), step.parse().unwrap());
            assert_eq!(who, name);
            assert!(term > before, "{name} leads in term {term}, after {self:?}");
            assert!(
                self.term == before || term == self.term,
                "{name} leads in term {term} too, after {self:?}"
            );
            assert!(
                step > self.step,
                "{name} makes the step {step}, after {self:?}"
            );
            assert!(
                before == 0 || stopped.messages.contains("leads after Some"),
                "{name} knows of no death: {}",
                stopped.messages
            );
            (self.term, self.step) = (term, step);
            self.steps += 1;
        }
    }
}

/// At most one process leads at a time and in a term, and no step is made twice or forgotten.
#[test]
fn a_killed_leader_is_succeeded_in_the_next_term() {
    const NAMES: [&str; 4] = ["ann", "bob", "cid", "dot"];
    const ROUNDS: u64 = 50;
    let place = PodFile::new("example-leader");
    let start = |name: &str| Running::start("leader", &[&place.0, name]);
    let mut processes: Vec<(&str, Running)> = NAMES.map(|name| (name, start(name))).into();
    let (mut seed, mut kills, mut terms) = (7, 0, Terms::default());
    let until = Instant::now() + TIME_LIMIT;
    for round in 0..ROUNDS {
        let killed = match draw(&mut seed, 8) {
            0 => 0..processes.len(),
            1 | 2 => one(draw(&mut seed, NAMES.len() as u64) as usize),
            _ => loop {
                if let Some(leader) = processes.iter().position(|(_, it)| it.has_output()) {
                    break one(leader);
                }
                assert!(Instant::now() < until, "there is no leader: {terms:?}");
                std::thread::sleep(Duration::from_millis(1));
            },
        };
        std::thread::sleep(Duration::from_micros(draw(&mut seed, 10_000)));
        let mut leaders: Vec<_> = processes.iter_mut().collect();
        leaders.retain(|(_, process)| process.has_output());
        leaders.retain_mut(|(_, process)| process.is_running());
        assert!(leaders.len() < 2, "two lead in round {round}: {terms:?}");
        for (_, process) in &mut processes[killed.clone()] {
            process.kill();
        }
        for (name, process) in &mut processes[killed] {
            terms.add(name, &process.stop());
            *process = start(name);
            kills += 1;
        }
    }
    for (_, process) in &mut processes {
        process.kill();
    }
    for (name, process) in &mut processes {
        terms.add(name, &process.stop());
        kills += 1;
    }
    let pod = Pod::open(&place.0).unwrap();
    let session = pod.session().unwrap();
    let office = session.mutex("office", Office::default()).unwrap();
    let office = *office.lock().unwrap();
    println!("{kills} kills, {terms:?}, {office:?}");
    let both = || format!("{office:?}, {terms:?}");
    assert!(terms.term > ROUNDS / 4, "{}", both());
    assert!(office.term >= terms.term, "{}", both());
    assert!(office.step >= terms.step, "{}", both());
    // A step that was not printed was cut short by a kill.
    assert!(office.step - terms.steps <= office.cut_short, "{}", both());
    assert!(office.cut_short <= kills, "{}", both());
    // Many leaders were killed during a step.
    assert!(office.cut_short > ROUNDS / 10, "{}", both());
    let leader = session.cell::<str>("leader", "none").unwrap().get();
    assert!(NAMES.contains(&&*leader), "{leader}");
}

/// Returns the range of one index.
fn one(index: usize) -> Range<usize> {
    index..index + 1
}
