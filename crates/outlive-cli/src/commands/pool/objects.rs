//! `outlive pool put`, `get`, `list`, `pin`, `delete` and `evict`: leased objects.

use super::Which;
use crate::amount::{self, Bytes};
use crate::failure::Failure;
use crate::output;
use crate::table::Table;
use clap::Args;
use outlive_pool::{
    ObjectState, ObjectStatus, ObjectStore, Placement, Pool, ServerId, UnsealedObject,
};
use serde::Serialize;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

impl Which {
    /// Joins the pool, and opens its leased objects.
    fn objects(&self) -> Result<ObjectStore, Failure> {
        Ok(Pool::open(&self.path)?.join()?.objects()?)
    }
}

/// Arguments of `outlive pool put`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive pool put /dev/shm/pool weights model.bin\n  \
    tar c data | outlive pool put /dev/shm/pool data.tar --pin\n\n\
    The object is in the memory of the servers, and outlives this command. Objects that are not \
    used and not pinned are evicted when memory is needed.")]
pub struct Put {
    #[command(flatten)]
    which: Which,
    /// Name of the object: 1 to 255 bytes
    name: String,
    /// File with the bytes; without it, standard input
    file: Option<PathBuf>,
    /// Number of the server that gets the bytes; without it, any server that has memory
    #[arg(long, conflicts_with = "spread")]
    on: Option<u16>,
    /// Distribute the bytes over all servers, slice by slice
    #[arg(long)]
    spread: bool,
    /// Protect the object from eviction, until `outlive pool pin --off`
    #[arg(long)]
    pin: bool,
}

impl Put {
    pub fn run(self) -> Result<(), Failure> {
        let placement = match self.on {
            Some(server) => Placement::There(ServerId(server)),
            None if self.spread => Placement::Spread,
            None => Placement::Any,
        };
        let failed = |error: io::Error| match &self.file {
            Some(path) => Failure::new(format_args!("{}: {error}", path.display())),
            None => Failure::new(format_args!("standard input cannot be read: {error}")),
        };
        let objects = self.which.objects()?;
        let (mut input, bytes): (Box<dyn Read>, u64) = match &self.file {
            Some(path) => {
                let file = File::open(path).map_err(failed)?;
                let metadata = file.metadata().map_err(failed)?;
                if !metadata.is_file() {
                    return Err(Failure::new(format_args!(
                        "{} is not a regular file; pipe its contents into the command",
                        path.display()
                    )));
                }
                (Box::new(file), metadata.len())
            }
            None => {
                // The size must be known before the object is created.
                let mut all = Vec::new();
                io::stdin().lock().read_to_end(&mut all).map_err(failed)?;
                let bytes = all.len() as u64;
                (Box::new(io::Cursor::new(all)), bytes)
            }
        };
        let mut object = objects.create(&self.name, bytes, placement)?;
        fill(&mut object, &mut input, failed)?;
        if input.read(&mut [0]).map_err(&failed)? > 0 {
            return Err(Failure::new(format_args!(
                "{} has more bytes than its size says; pipe its contents into the command",
                self.file.unwrap_or_default().display()
            )));
        }
        if self.pin {
            object.pin();
        }
        drop(object.seal()?);
        output::line(format_args!(
            "put {} bytes as `{}`",
            bytes,
            output::printable(&self.name)
        ))
    }
}

/// Reads the bytes of an object into its memory.
fn fill(
    object: &mut UnsealedObject<'_>,
    input: &mut dyn Read,
    failed: impl Fn(io::Error) -> Failure,
) -> Result<(), Failure> {
    for index in 0..object.chunks() {
        // A file that has become shorter is an error: the object is given up.
        let chunk = object.chunk_mut(index)?;
        input.read_exact(chunk).map_err(&failed)?;
    }
    Ok(())
}

/// Arguments of `outlive pool get`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive pool get /dev/shm/pool weights > copy.bin\n  \
    outlive pool get /dev/shm/pool weights --wait 30    # until another process has put it\n\n\
    The object is leased, so it is neither freed nor changed, until all of it is written to \
    standard output.")]
pub struct Get {
    #[command(flatten)]
    which: Which,
    /// Name of the object
    name: String,
    /// Seconds to wait for the object
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    wait: u64,
}

impl Get {
    pub fn run(self) -> Result<(), Failure> {
        let objects = self.which.objects()?;
        let object = match self.wait {
            0 => objects.get(&self.name)?,
            seconds => {
                let waited = objects.wait(&self.name, Duration::from_secs(seconds))?;
                waited.ok_or_else(|| {
                    Failure::new(format_args!(
                        "the object `{}` was not sealed within {seconds} seconds",
                        output::printable(&self.name)
                    ))
                })?
            }
        };
        let mut out = io::stdout().lock();
        for chunk in object.chunks() {
            out.write_all(chunk?)?;
        }
        Ok(out.flush()?)
    }
}

/// Arguments of `outlive pool list`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive pool list /dev/shm/pool\n  \
    outlive pool list /dev/shm/pool --json | jq '.[].name'\n\n\
    STATE: a sealed object can be read; a live process is writing an unsealed one; a lost one has \
    bytes on a server that died, or its creator died before it sealed the object, and can only be \
    replaced or deleted. USERS is the number of leases. IDLE is the time since the last use in \
    seconds.")]
pub struct List {
    #[command(flatten)]
    which: Which,
    /// Print the objects as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Listed {
    name: String,
    bytes: u64,
    state: &'static str,
    pinned: bool,
    users: Vec<u32>,
    last_use_ms: u64,
}

impl From<ObjectStatus> for Listed {
    fn from(it: ObjectStatus) -> Self {
        Self {
            name: it.name,
            bytes: it.bytes,
            state: match it.state {
                ObjectState::Unsealed => "unsealed",
                ObjectState::Sealed => "sealed",
                ObjectState::Lost => "lost",
            },
            pinned: it.is_pinned,
            users: it.users,
            last_use_ms: it.last_use,
        }
    }
}

impl List {
    pub fn run(self) -> Result<(), Failure> {
        let all = self.which.objects()?.list()?;
        let all: Vec<Listed> = all.into_iter().map(Listed::from).collect();
        if self.json {
            return output::json(&all);
        }
        if all.is_empty() {
            return output::line(format_args!("{} has no objects", self.which.path.display()));
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.map_or(0, |since| since.as_millis() as u64);
        let mut table = Table::new(["NAME", "BYTES", "STATE", "PINNED", "USERS", "IDLE"]);
        for it in &all {
            table.row([
                output::printable(&it.name),
                Bytes(it.bytes).to_string(),
                it.state.into(),
                if it.pinned { "yes" } else { "no" }.into(),
                it.users.len().to_string(),
                (now.saturating_sub(it.last_use_ms) / 1000).to_string(),
            ]);
        }
        table.lines().try_for_each(output::line)
    }
}

/// Arguments of `outlive pool pin`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive pool pin /dev/shm/pool weights\n  \
    outlive pool pin /dev/shm/pool weights --off\n\n\
    A pin belongs to the pool: it stays when this command ends, and any process can remove it.")]
pub struct Pin {
    #[command(flatten)]
    which: Which,
    /// Name of the object
    name: String,
    /// Remove the pin
    #[arg(long)]
    off: bool,
}

impl Pin {
    pub fn run(self) -> Result<(), Failure> {
        Ok(self.which.objects()?.pin(&self.name, !self.off)?)
    }
}

/// Arguments of `outlive pool delete`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive pool delete /dev/shm/pool weights\n\n\
    The name is removed immediately. The memory is freed when the last process that uses the \
    object releases it or dies.")]
pub struct Delete {
    #[command(flatten)]
    which: Which,
    /// Names of objects
    #[arg(required = true)]
    names: Vec<String>,
}

impl Delete {
    pub fn run(self) -> Result<(), Failure> {
        let objects = self.which.objects()?;
        for name in &self.names {
            objects.delete(name)?;
        }
        Ok(())
    }
}

/// Arguments of `outlive pool evict`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive pool evict /dev/shm/pool 1G\n\n\
    Objects that are used or pinned stay. Of the others, the least recently used ones are removed \
    first.")]
pub struct Evict {
    #[command(flatten)]
    which: Which,
    /// Size of the memory to free: bytes, or a whole number with K, M, G or T
    #[arg(value_parser = amount::size)]
    size: u64,
}

impl Evict {
    pub fn run(self) -> Result<(), Failure> {
        let freed = self.which.objects()?.evict(self.size)?;
        output::line(format_args!("freed {}", Bytes(freed)))
    }
}

/// Removes the unsealed objects of dead processes, and frees the memory of destroyed objects.
pub fn collect(objects: &ObjectStore) {
    if let Err(error) = objects.collect() {
        output::note(format_args!(
            "objects of dead processes remain: {}",
            output::printable(&error)
        ));
    }
}
