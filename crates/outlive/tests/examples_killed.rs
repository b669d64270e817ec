//! The programs in `examples`, killed at random moments and started again.

use outlive::pod::{Pod, PodOptions};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const TIME_LIMIT: Duration = Duration::from_secs(100);

/// A pod in /dev/shm that is destroyed at the end.
struct TemporaryPod(String);

impl TemporaryPod {
    fn new(name: &str) -> Self {
        Self(format!(
            "/dev/shm/outlive-example-{name}-{}",
            std::process::id()
        ))
    }
}

impl Drop for TemporaryPod {
    fn drop(&mut self) {
        let _ = Pod::destroy(&self.0);
    }
}

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
}

impl Running {
    fn start(name: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(example(name));
        let command = command.args(arguments).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut pipe = child.stdout.take().unwrap();
        let output = std::thread::spawn(move || {
            let mut output = Vec::new();
            pipe.read_to_end(&mut output).unwrap();
            output
        });
        Self {
            child,
            output: Some(output),
        }
    }

    /// Returns whether it has ended by itself.
    fn has_ended(&mut self) -> bool {
        match self.child.try_wait().unwrap() {
            None => false,
            Some(status) => {
                assert!(status.success(), "{status}");
                true
            }
        }
    }

    /// Kills it, if it runs, and returns its output.
    fn stop(&mut self) -> Vec<u8> {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.output.take().unwrap().join().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
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
    let place = TemporaryPod::new("acknowledged");
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
        let ended = client.has_ended();
        let output = String::from_utf8(client.stop()).unwrap();
        // A line cut off by the kill is no acknowledgement.
        for line in output.split_inclusive('\n').filter(|it| it.ends_with('\n')) {
            let token: u64 = line.trim_end().parse().unwrap();
            assert!(
                token > *acknowledged,
                "{name}: {token} after {acknowledged}"
            );
            *acknowledged = token;
        }
        if ended {
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
    let place = TemporaryPod::new("cache");
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
        let output = user.stop();
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
