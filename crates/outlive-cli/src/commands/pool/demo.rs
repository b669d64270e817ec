//! `outlive pool demo`: a vector that is spread over servers, some of which are killed.

use crate::failure::Failure;
use crate::interruption;
use crate::output;
use clap::Args;
use outlive_pool::{
    Client, MoveBudget, Phase, Placement, Pool, PoolError, PoolOptions, PoolVec, Reader,
    Redundancy, ServerId, ServerStatus,
};
use serde::Serialize;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Arguments of `outlive pool demo`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive pool demo --servers 4\n  \
    outlive pool demo --servers 4 --kill 1 --json\n  \
    outlive pool demo --servers 4 --kill 1 --replicas 1\n\n\
    Each server is a process. The pool is created for the run in /dev/shm, and removed. The slices \
    of one server move to the others, its memory is made private and shared again, and slices move \
    back. After each kill the lost replicas of the vector are rebuilt, if at least as many servers \
    remain as there are replicas. A test slice without replicas on each killed server is lost. With \
    one replica (`--replicas 1`, the default with fewer than three servers) the part of the vector \
    on a killed server is lost as well: the sum is not printed, and the command exits with 1.\n\n\
    JSON: expected, sum, right, steps, failures and more; docs/json.md says what they mean.")]
pub struct Demo {
    /// Number of servers
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    servers: u16,
    /// Number of servers that are killed before the last sum
    #[arg(long, default_value_t = 0)]
    kill: u16,
    /// Number of servers that have each part of the vector [default: 2 with three or more servers,
    /// otherwise 1]
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=3))]
    replicas: Option<u8>,
    /// Number of elements of the vector, 8 bytes each
    #[arg(long, default_value_t = 4_000_000, value_parser = clap::value_parser!(u64).range(1..=1 << 34))]
    elements: u64,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

const SLICE: u64 = 256 << 10;
/// The maximum time until a server is ready, or a death is known.
const PATIENCE: Duration = Duration::from_secs(30);

/// A step of the demo.
#[derive(Serialize)]
struct Step {
    name: &'static str,
    seconds: f64,
    /// The bytes of the vector that the step read, wrote or moved.
    bytes: u64,
}

/// A killed server.
#[derive(Serialize)]
struct Loss {
    server: u16,
    /// The time from the kill until the server was known to be dead.
    detected_us: u64,
    lost_elements: u64,
    /// The error of the slice that had no replica.
    error: Option<String>,
}

#[derive(Serialize)]
struct Answer {
    servers: u16,
    replicas: u8,
    elements: u64,
    expected: u64,
    sum: Option<u64>,
    right: bool,
    reason: Option<String>,
    lost_elements: u64,
    steps: Vec<Step>,
    failures: Vec<Loss>,
}

/// A server process. It is killed when it is dropped.
struct Process {
    child: Child,
    /// The server leaves when the pipe closes.
    _input: Option<ChildStdin>,
    id: ServerId,
}

impl Process {
    fn start(path: &Path, bytes: u64) -> Result<Self, Failure> {
        let failed = |error| Failure::new(format_args!("a server cannot be started: {error}"));
        let program = std::env::current_exe().map_err(failed)?;
        let mut child = Command::new(program)
            .args(["pool", "serve", "--until-end-of-input", "--size"])
            .arg(bytes.to_string())
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let mut process = Self {
            child,
            _input: input,
            id: ServerId(0),
        };
        let mut line = String::new();
        let mut output = BufReader::new(output.expect("standard output is a pipe"));
        // The line ends with the process at the latest.
        output.read_line(&mut line).map_err(failed)?;
        let number = line
            .strip_prefix("server ")
            .and_then(|it| it.split(' ').next());
        let number = number.and_then(|it| it.parse().ok());
        process.id =
            ServerId(number.ok_or_else(|| {
                Failure::new("a server of the demo has ended; its message is above")
            })?);
        // Later lines are read to their end, so that the server never waits for the pipe.
        let reading = std::thread::Builder::new()
            .spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        reading.map_err(Failure::no_thread)?;
        Ok(process)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The pool of the demo, which is removed with this value.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = Pool::destroy(&self.0);
    }
}

/// The result of a sum over the parts that are left.
struct Sum {
    sum: u64,
    lost: Vec<(ServerId, u64)>,
}

impl Demo {
    pub fn run(self) -> Result<(), Failure> {
        if self.kill > self.servers {
            let (kill, servers) = (self.kill, self.servers);
            return Err(Failure::Usage(format!(
                "--kill {kill} is more than the {servers} servers; lower it"
            )));
        }
        let stop = interruption::flag(&interruption::SIGNALS)?;
        let path = PathBuf::from(format!("/dev/shm/outlive-pool-demo-{}", std::process::id()));
        let replicas = self.replicas();
        if u16::from(replicas) > self.servers {
            let servers = self.servers;
            return Err(Failure::Usage(format!(
                "--replicas {replicas} is more than the {servers} servers; lower it"
            )));
        }
        let slices = (self.elements * 8).div_ceil(SLICE);
        let members = 8 + 4 * u32::from(self.servers);
        let options = PoolOptions::new()
            .slice_bytes(SLICE)
            .slices(slices * u64::from(replicas) + u64::from(self.kill) + 16)
            .servers(self.servers)
            .readers(4)
            .members(members);
        let pool = Pool::create(&path, options)?;
        let _place = Place(path.clone());
        let mut demo = Run {
            stop,
            steps: Vec::new(),
            bytes: self.elements * 8,
            redundancy: Redundancy::Replicas(replicas),
        };
        // Those that are left have space for all replicas, or for the slices of one more server if
        // none is killed. A quarter more, because a server cannot have two replicas of a slice.
        let others = u64::from(self.servers.saturating_sub(self.kill.max(1))).max(1);
        let all = slices * u64::from(replicas);
        let of_each = (all + all / 4).div_ceil(others).min(slices) + 1;
        let of_each = of_each * SLICE;
        let mut servers = demo.step("start servers", 0, |_| {
            (0..self.servers)
                .map(|_| Process::start(&path, of_each))
                .collect::<Result<Vec<_>, _>>()
        })?;
        let client = pool.join()?;
        let answer = self.on(&mut demo, &client, &mut servers)?;
        drop(servers);
        self.print(answer)
    }

    fn on(
        &self,
        demo: &mut Run,
        client: &Client,
        servers: &mut Vec<Process>,
    ) -> Result<Answer, Failure> {
        let reader = client.reader()?;
        let bytes = demo.bytes;
        let vector: PoolVec<u64> = demo.step("allocate", 0, |run| {
            let (len, place) = (self.elements, Placement::Spread);
            Ok(PoolVec::allocate_with(client, len, place, run.redundancy)?)
        })?;
        demo.step("fill", bytes, |_| Ok(vector.fill(&reader, value)?))?;
        let first = demo.step("sum", bytes, |run| run.sum(client, &reader, &vector))?;
        let expected = expected(self.elements, value);
        if first.sum != expected || !first.lost.is_empty() {
            let losses = Vec::new();
            return Ok(self.answer(demo, expected, first, losses));
        }
        demo.step("rewrite", bytes, |_| {
            let all = 0..self.elements;
            Ok(vector.update_range(&reader, all, |_, it| rewritten(it))?)
        })?;
        let expected = self::expected(self.elements, |index| rewritten(value(index)));
        // With as many servers as replicas, each server has a replica of every slice, and no slice
        // can move.
        if self.servers > u16::from(self.replicas()) {
            demo.migrate(client, servers[0].id)?;
            let moved = demo.step("sum after moves", bytes, |run| {
                run.sum(client, &reader, &vector)
            })?;
            if moved.sum != expected || !moved.lost.is_empty() {
                return Ok(self.answer(demo, expected, moved, Vec::new()));
            }
        }
        let mut losses = Vec::new();
        for _ in 0..self.kill {
            let victim = servers.pop().expect("as many servers as kills");
            let alone = client.allocate(SLICE, Placement::There(victim.id))?;
            let mut loss = demo.step("kill a server", 0, |run| run.kill(client, victim))?;
            loss.error = reader.guard(alone).err().map(|error| error.to_string());
            losses.push(loss);
            let lost = client.pool().status().degraded * SLICE;
            if lost > 0 && servers.len() >= usize::from(self.replicas()) {
                demo.step("rebuild", lost, |run| run.rebuild(client))?;
            }
        }
        let last = demo.step("sum again", bytes, |run| run.sum(client, &reader, &vector))?;
        for loss in &mut losses {
            let of_it = last.lost.iter().filter(|it| it.0.0 == loss.server);
            loss.lost_elements = of_it.map(|it| it.1).sum();
        }
        drop(reader);
        demo.step("free", 0, |_| Ok(client.free(vector.address())?))?;
        Ok(self.answer(demo, expected, last, losses))
    }

    fn answer(&self, demo: &mut Run, expected: u64, sum: Sum, failures: Vec<Loss>) -> Answer {
        let lost_elements = sum.lost.iter().map(|it| it.1).sum();
        let reason = match (lost_elements, sum.sum == expected) {
            (0, true) => None,
            (0, false) => Some("the sum differs from the expected one".to_owned()),
            (lost, _) => Some(format!(
                "{lost} elements were on servers that died, and no replica is left"
            )),
        };
        Answer {
            servers: self.servers,
            replicas: self.replicas(),
            elements: self.elements,
            expected,
            sum: (lost_elements == 0).then_some(sum.sum),
            right: reason.is_none(),
            reason,
            lost_elements,
            steps: core::mem::take(&mut demo.steps),
            failures,
        }
    }

    fn replicas(&self) -> u8 {
        let default = if self.servers > 2 { 2 } else { 1 };
        self.replicas.unwrap_or(default)
    }

    fn print(&self, answer: Answer) -> Result<(), Failure> {
        if self.json {
            output::json(&answer)?;
        } else {
            for step in &answer.steps {
                let rate = step.bytes as f64 / step.seconds.max(1e-9) / 1e9;
                match step.bytes {
                    0 => output::line(format_args!("{:<15} {:.3} s", step.name, step.seconds))?,
                    _ => output::line(format_args!(
                        "{:<15} {:.3} s, {rate:.2} GB/s",
                        step.name, step.seconds
                    ))?,
                }
            }
            for loss in &answer.failures {
                output::line(format_args!(
                    "server {} was killed: known after {} µs, {} elements are lost",
                    loss.server, loss.detected_us, loss.lost_elements
                ))?;
                if let Some(error) = &loss.error {
                    output::line(format_args!("  a slice without replicas: {error}"))?;
                }
            }
            match (answer.sum, &answer.reason) {
                (Some(sum), None) => output::line(format_args!("the sum is {sum}, as expected"))?,
                (Some(sum), Some(reason)) => {
                    output::line(format_args!("the sum is {sum}: {reason}"))?
                }
                (None, reason) => {
                    let reason = reason.as_deref().unwrap_or_default();
                    output::line(format_args!("there is no sum: {reason}"))?
                }
            }
        }
        match answer.right {
            true => Ok(()),
            false => Err(Failure::Found),
        }
    }
}

const fn value(index: u64) -> u64 {
    index.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20
}

const fn rewritten(value: u64) -> u64 {
    value.wrapping_mul(3).wrapping_add(1)
}

fn expected(elements: u64, of: impl Fn(u64) -> u64) -> u64 {
    (0..elements).map(of).fold(0, u64::wrapping_add)
}

/// The state of a run.
struct Run {
    stop: Arc<AtomicBool>,
    steps: Vec<Step>,
    bytes: u64,
    redundancy: Redundancy,
}

impl Run {
    fn step<T>(
        &mut self,
        name: &'static str,
        bytes: u64,
        step: impl FnOnce(&Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        if self.stop.load(Ordering::Acquire) {
            return Err(Failure::new("interrupted; the pool is removed"));
        }
        let began = Instant::now();
        let result = step(self)?;
        let seconds = began.elapsed().as_secs_f64();
        self.steps.push(Step {
            name,
            seconds,
            bytes,
        });
        Ok(result)
    }

    /// Moves the slices of a server to the others, makes its memory private and shared again, and
    /// moves slices back.
    fn migrate(&mut self, client: &Client, server: ServerId) -> Result<(), Failure> {
        let budget = MoveBudget::default();
        let had = self.slices_of(client, server);
        self.step("drain a server", had * SLICE, |_| {
            match client.drain(server, budget)?.remaining.into_iter().next() {
                None => Ok(()),
                Some((_, error)) => Err(error.into()),
            }
        })?;
        let lent = self.frames_of(client, server) * SLICE;
        self.step("shrink it", 0, |run| run.resize(client, server, SLICE))?;
        self.step("grow it", 0, |run| run.resize(client, server, lent))?;
        self.step("move back", had * SLICE, |_| {
            let mut left = had;
            for address in client.slices() {
                if left == 0 {
                    break;
                }
                match client.move_slice(address, server, budget) {
                    Ok(moved) => left -= u64::from(moved),
                    Err(PoolError::HasReplica { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(())
        })
    }

    fn status_of<T>(
        &self,
        client: &Client,
        server: ServerId,
        of: impl Fn(&ServerStatus) -> T,
    ) -> Option<T> {
        let servers = client.pool().status().servers;
        { servers.iter() }.find(|it| it.entry.id == server).map(of)
    }

    fn slices_of(&self, client: &Client, server: ServerId) -> u64 {
        self.status_of(client, server, |it| it.slices).unwrap_or(0)
    }

    fn frames_of(&self, client: &Client, server: ServerId) -> u64 {
        let frames = self.status_of(client, server, |it| it.frames);
        frames.flatten().unwrap_or(0)
    }

    /// Requests that a server lends `bytes` bytes, and waits until it does.
    fn resize(&self, client: &Client, server: ServerId, bytes: u64) -> Result<(), Failure> {
        let began = Instant::now();
        client.pool().request_resize(server, bytes)?;
        while self.frames_of(client, server) != bytes / SLICE {
            if began.elapsed() > PATIENCE {
                return Err(Failure::new(format_args!(
                    "{server} has not resized after {PATIENCE:?}"
                )));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Rebuilds the lost replicas; servers may do so at the same time.
    fn rebuild(&self, client: &Client) -> Result<(), Failure> {
        let began = Instant::now();
        while client.has_lost_replicas() {
            let rebuilt = client.rebuild(MoveBudget::default());
            if let Some((_, error)) = rebuilt.remaining.into_iter().next()
                && began.elapsed() > PATIENCE
            {
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Sums the parts of the vector. Lost ones are counted, and add nothing.
    fn sum(&self, client: &Client, reader: &Reader, vector: &PoolVec<u64>) -> Result<Sum, Failure> {
        let mut all = Sum {
            sum: 0,
            lost: Vec::new(),
        };
        for part in vector.parts(client) {
            let elements = part.end - part.start;
            match vector.fold_range(reader, part, 0u64, u64::wrapping_add) {
                Ok(sum) => all.sum = all.sum.wrapping_add(sum),
                Err(PoolError::Lost { server, .. }) => all.lost.push((server, elements)),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(all)
    }

    /// Kills a server, and waits until the pool says that it is dead.
    fn kill(&self, client: &Client, mut victim: Process) -> Result<Loss, Failure> {
        let began = Instant::now();
        let killed = victim.child.kill();
        killed.map_err(|error| Failure::new(format_args!("a server cannot be killed: {error}")))?;
        let mut events = client.events();
        let is_dead = || {
            let servers = client.pool().status().servers;
            let mut of_it = servers.iter().filter(|it| it.entry.id == victim.id);
            of_it.any(|it| it.entry.phase == Phase::Dead)
        };
        while !is_dead() {
            if began.elapsed() > PATIENCE {
                return Err(Failure::new(format_args!(
                    "the death of {} is not known after {PATIENCE:?}",
                    victim.id
                )));
            }
            events.wait_for_unless(Duration::from_millis(1), is_dead);
        }
        Ok(Loss {
            server: victim.id.0,
            detected_us: began.elapsed().as_micros() as u64,
            lost_elements: 0,
            error: None,
        })
    }
}
