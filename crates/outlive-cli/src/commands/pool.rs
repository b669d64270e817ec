//! `outlive pool`: logical memory pools, and their servers.

mod demo;
mod drain;
mod moving;
mod objects;
mod rebalance;
mod rebuild;

use super::destroy::{not_opened, note_kept, refuse_members};
use crate::amount::{self, Bytes};
use crate::failure::Failure;
use crate::interruption;
use crate::look::Look;
use crate::output;
use clap::{Args, Subcommand};
use outlive::membership::{EventKind, News};
use outlive_pool::{MoveBudget, Phase, Pool, PoolError, PoolOptions, Server, ServerId};
use outlive_run::driver;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The commands of `outlive pool`.
#[derive(Subcommand, Debug)]
pub enum PoolCommand {
    /// Create a pool without servers
    Create(Create),
    /// Lend memory to a pool until interrupted
    Serve(Serve),
    /// Show the servers and the memory of a pool
    Stat(Stat),
    /// Put bytes into a pool, as an object with a name
    Put(objects::Put),
    /// Write the bytes of an object to standard output
    Get(objects::Get),
    /// Show the objects of a pool
    List(objects::List),
    /// Protect an object from eviction, or remove that protection
    Pin(objects::Pin),
    /// Remove objects
    Delete(objects::Delete),
    /// Remove objects that are not used, to free memory
    Evict(objects::Evict),
    /// Sum and rewrite a vector that is spread over servers, and kill some of them
    Demo(demo::Demo),
    /// Change the memory that a server lends
    Resize(Resize),
    /// Move the slices of a server to the other servers
    Drain(drain::Drain),
    /// Move slices to the servers whose processes use them
    Rebalance(rebalance::Rebalance),
    /// Rebuild the replicas that were lost with their servers
    Rebuild(rebuild::Rebuild),
    /// Remove a pool and the memory of its servers
    Destroy(Destroy),
}

impl PoolCommand {
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::Create(command) => command.run(),
            Self::Serve(command) => command.run(),
            Self::Stat(command) => command.run(),
            Self::Put(command) => command.run(),
            Self::Get(command) => command.run(),
            Self::List(command) => command.run(),
            Self::Pin(command) => command.run(),
            Self::Delete(command) => command.run(),
            Self::Evict(command) => command.run(),
            Self::Demo(command) => command.run(),
            Self::Resize(command) => command.run(),
            Self::Drain(command) => command.run(),
            Self::Rebalance(command) => command.run(),
            Self::Rebuild(command) => command.run(),
            Self::Destroy(command) => command.run(),
        }
    }
}

impl From<PoolError> for Failure {
    fn from(error: PoolError) -> Self {
        Self::new(output::printable(&error))
    }
}

/// The argument that names the pool.
#[derive(Args, Debug)]
struct Which {
    /// The pool: a file, for example in /dev/shm
    path: PathBuf,
}

/// Arguments of `outlive pool create`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive pool create /dev/shm/pool\n  \
    outlive pool create /dev/shm/pool --slice 16M --slices 640000    # 10 TiB of addresses\n\n\
    The pool's data is in the memory of its servers, which `outlive pool serve` starts.")]
pub struct Create {
    #[command(flatten)]
    which: Which,
    /// Size of a slice, of which allocations have whole ones: a power of two from 4K to 64M
    #[arg(long, default_value = "2M", value_parser = amount::size)]
    slice: u64,
    /// Number of slices at one time; each needs 32 bytes of the pool's file
    #[arg(long, default_value_t = 65_536)]
    slices: u64,
    /// Maximum number of servers at one time
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4095))]
    servers: u16,
    /// Maximum number of threads that access data at one time
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..))]
    readers: u16,
    /// Maximum number of hosts, processes and threads with objects at one time; a client or server
    /// counts as one of each
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(6..=65_536))]
    members: u32,
    /// Number of objects for which the pool has space; each needs 1.5 KiB of the pool's file
    #[arg(long, default_value_t = 4096)]
    objects: u32,
    /// Maximum size of all objects together, above which those that are not used are evicted:
    /// bytes, or a whole number with K, M, G or T; by default the memory of the servers
    #[arg(long, value_parser = amount::size)]
    quota: Option<u64>,
    /// Permissions of the pool's files, octal
    #[arg(long, default_value = "600", value_parser = amount::mode)]
    mode: u32,
}

impl Create {
    fn run(self) -> Result<(), Failure> {
        let options = PoolOptions::new()
            .slice_bytes(self.slice)
            .slices(self.slices)
            .servers(self.servers)
            .readers(self.readers)
            .members(self.members)
            .objects(self.objects)
            .object_quota(self.quota.unwrap_or(0))
            .mode(self.mode);
        let path = &self.which.path;
        Pool::create(path, options)?;
        output::line(format_args!(
            "created the pool {} with slices of {}; it has no memory yet: start servers with \
             `outlive pool serve {}`",
            path.display(),
            Bytes(self.slice),
            path.display(),
        ))
    }
}

/// Arguments of `outlive pool serve`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive pool serve /dev/shm/pool               # in one terminal\n  \
    outlive pool serve /dev/shm/pool --size 1G     # in another; kill -9 it\n\n\
    Clients use the memory without processor time of this server. It also rebuilds the lost \
    replicas of all servers. On Ctrl-C it moves its slices to other servers and leaves. Slices that \
    do not fit there and have no other replica, and those of leased objects, are lost.")]
pub struct Serve {
    #[command(flatten)]
    which: Which,
    /// Size of the memory that the server lends: bytes, or a whole number with K, M, G or T
    #[arg(long, default_value = "64M", value_parser = amount::size)]
    size: u64,
    /// Size of the server's private memory in the same segment; without it there is none
    #[arg(long, value_parser = amount::size)]
    private: Option<u64>,
    /// Leave when standard input is closed
    #[arg(long, hide = true)]
    until_end_of_input: bool,
}

/// The maximum time until an interruption is handled.
const PATIENCE: Duration = Duration::from_millis(200);

/// The time between two releases of memory of dead clients that readers still used.
const BETWEEN_COLLECTS: Duration = Duration::from_secs(5);

impl Serve {
    fn run(self) -> Result<(), Failure> {
        let stop = interruption::flag(&interruption::SIGNALS)?;
        // A stopped server is fenced, and its memory is lost.
        driver::not_stopped_by_a_terminal();
        let mut server =
            Pool::open(&self.which.path)?.serve(self.size, self.private.unwrap_or(0))?;
        if self.until_end_of_input {
            stop_at_end_of_input(&stop)?;
        }
        let objects = server.client().objects()?;
        output::line(format_args!(
            "{} serves {}, process {}",
            server.id(),
            Bytes(server.shared_bytes()),
            server.instance()
        ))?;
        let mut events = server.events();
        let is_stopped = || stop.load(Ordering::Acquire);
        let mut collected = Instant::now();
        while !is_stopped() {
            if let Some(bytes) = server.requested() {
                let resized = server.resize_and_move(bytes, MoveBudget::default());
                let lends = Bytes(server.shared_bytes());
                say(match resized {
                    Ok(()) => format!("lends {lends}"),
                    Err(error) => format!("still lends {lends}: {}", output::printable(&error)),
                });
            }
            if collected.elapsed() >= BETWEEN_COLLECTS {
                objects::collect(&objects);
                rebuild(&server, &stop);
                collected = Instant::now();
            }
            if let Some(News::Event(event)) = events.wait_for_unless(PATIENCE, is_stopped)
                && event.kind == EventKind::ProcessDied
            {
                say(format!("process {} died", event.instance));
            }
        }
        drop(objects);
        match server.move_and_leave(MoveBudget::default()) {
            Ok(()) => output::line("left the pool"),
            Err((server, PoolError::StillHeld { .. })) => {
                // Not the frames: readers may still use those of slices that were moved.
                let status = server.client().pool().status();
                let own = { status.servers.iter() }.find(|it| it.entry.id == server.id());
                let slices = own.map_or(0, |it| it.slices);
                drop(server);
                output::line(format_args!(
                    "left the pool; {slices} slices are lost, unless they have replicas"
                ))
            }
            Err((_, error)) => Err(error.into()),
        }
    }
}

/// Rebuilds lost replicas, and prints their number.
fn rebuild(server: &Server, stop: &AtomicBool) {
    let goes_on = || !stop.load(Ordering::Acquire);
    let rebuilt = { server.client() }.rebuild_while(MoveBudget::default(), goes_on);
    let rebuilt = rebuilt.rebuilt;
    if rebuilt > 0 {
        say(format!("rebuilt {}", amount::Many(rebuilt, "replica")));
    }
}

/// Prints a line, if its reader is still there: the memory of a server is worth more than its
/// lines.
fn say(text: String) {
    let _ = output::line(text);
}

fn stop_at_end_of_input(stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    let stop = Arc::clone(stop);
    let reading = std::thread::Builder::new().spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        stop.store(true, Ordering::Release);
    });
    reading.map(drop).map_err(Failure::no_thread)
}

/// Arguments of `outlive pool stat`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive pool stat /dev/shm/pool\n  \
    outlive pool stat /dev/shm/pool --json")]
pub struct Stat {
    #[command(flatten)]
    which: Which,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct StatAnswer {
    path: String,
    slice_bytes: u64,
    slices: u64,
    allocated: u64,
    lost: u64,
    degraded: u64,
    owned: u64,
    kept: u64,
    objects: u64,
    servers: Vec<ServerAnswer>,
}

#[derive(Serialize)]
struct ServerAnswer {
    server: u16,
    generation: u64,
    phase: String,
    process: Option<String>,
    bytes: u64,
    slices: u64,
}

impl Stat {
    fn run(self) -> Result<(), Failure> {
        let status = Pool::observe(&self.which.path)?.status();
        let slice_bytes = status.sizes.slice_bytes();
        let servers = { status.servers.iter() }.map(|it| ServerAnswer {
            server: it.entry.id.0,
            generation: it.entry.generation,
            phase: it.entry.phase.to_string(),
            process: it.entry.owner.map(|owner| owner.to_string()),
            bytes: it.entry.bytes,
            slices: it.slices,
        });
        let answer = StatAnswer {
            path: self.which.path.display().to_string(),
            slice_bytes,
            slices: status.sizes.slices,
            allocated: status.slices,
            lost: status.lost,
            degraded: status.degraded,
            owned: status.owned,
            kept: status.kept,
            objects: status.objects,
            servers: servers.collect(),
        };
        if self.json {
            return output::json(&answer);
        }
        let is_live = |server: &&ServerAnswer| server.phase == Phase::Live.to_string();
        output::line(format_args!(
            "{}: {} live servers; {} of {} slices of {} are allocated, {} of them lost, {} \
             replicas to rebuild; {} allocations belong to clients, {} are kept; {} sealed objects",
            answer.path,
            answer.servers.iter().filter(is_live).count(),
            answer.allocated,
            answer.slices,
            Bytes(slice_bytes),
            answer.lost,
            answer.degraded,
            answer.owned,
            answer.kept,
            answer.objects,
        ))?;
        for server in &answer.servers {
            output::line(format_args!(
                "  server {}, generation {}: {}, {} slices in a region of {}",
                server.server,
                server.generation,
                server.phase,
                server.slices,
                Bytes(server.bytes),
            ))?;
        }
        Ok(())
    }
}

/// Arguments of `outlive pool resize`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive pool serve /dev/shm/pool --size 1G --private 3G    # in another terminal: server 1\n  \
    outlive pool resize /dev/shm/pool 1 2G\n\n\
    The boundary between the server's shared and private memory moves; the sum stays the same. \
    Clients continue. Slices in the part that becomes private are moved to other servers; if these \
    have too little memory, the boundary does not move.")]
pub struct Resize {
    #[command(flatten)]
    which: Which,
    /// Number of the server
    server: u16,
    /// Size of the memory that the server lends: bytes, or a whole number with K, M, G or T
    #[arg(value_parser = amount::size)]
    size: u64,
}

/// The maximum time until a server follows a request.
const FOLLOWS: Duration = Duration::from_secs(10);

/// The maximum time until a server that has taken a request has resized.
const RESIZES: Duration = Duration::from_secs(1);

impl Resize {
    fn run(self) -> Result<(), Failure> {
        let (pool, server) = (Pool::open(&self.which.path)?, ServerId(self.server));
        pool.request_resize(server, self.size)?;
        let begin = Instant::now();
        while pool.has_request(server)? {
            if begin.elapsed() > FOLLOWS {
                return Err(Failure::new(format_args!(
                    "{server} has not followed the request for {} seconds; it is stopped, or its \
                     program does not take requests",
                    FOLLOWS.as_secs()
                )));
            }
            std::thread::sleep(PATIENCE / 20);
        }
        let slice_bytes = pool.status().sizes.slice_bytes();
        let wanted = self.size.div_ceil(slice_bytes);
        let frames = || {
            let status = pool.status();
            let found = { status.servers.iter() }.find(|it| it.entry.id == server);
            found.and_then(|it| it.frames).unwrap_or(0)
        };
        // The server resizes after it has taken the request.
        let taken = Instant::now();
        while frames() != wanted && taken.elapsed() < RESIZES {
            std::thread::sleep(PATIENCE / 20);
        }
        let frames = frames();
        let lends = Bytes(frames * slice_bytes);
        match frames == wanted {
            true => output::line(format_args!("{server} lends {lends}")),
            false => Err(Failure::new(format_args!(
                "{server} still lends {lends}: its segment is too small, or slices in the part \
                 that would become private cannot be moved; `outlive pool serve` prints the reason"
            ))),
        }
    }
}

/// Arguments of `outlive pool destroy`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive pool destroy /dev/shm/pool")]
pub struct Destroy {
    #[command(flatten)]
    which: Which,
    /// Destroy the pool even if it has live members, which keep their mappings
    #[arg(long)]
    force: bool,
}

impl Destroy {
    fn run(self) -> Result<(), Failure> {
        let path = &self.which.path;
        if !self.force {
            let pool = Pool::observe(path).map_err(|error| not_opened(path, error))?;
            refuse_members(path, &Look::at(pool.pod()), "pool stat")?;
        }
        note_kept(Pool::destroy(path)?.as_deref());
        output::line(format_args!("destroyed the pool {}", path.display()))
    }
}
