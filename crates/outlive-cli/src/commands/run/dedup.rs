//! `outlive run dedup`: archives files on hosts, and some of them are killed.

use super::destination::Destination;
use super::flags::Flags;
use super::play::{Interrupted, loading, play};
use crate::amount::{self, Bytes};
use crate::failure::Failure;
use crate::output::first_lines;
use clap::Args;
use outlive_workloads::dedup::archive::Archive;
use outlive_workloads::dedup::exclude::Pattern;
use outlive_workloads::dedup::tree::{Selection, Tree, TreeError};
use outlive_workloads::dedup::{Archived, Archiving, Options, Text, verify};
use outlive_workloads::driver;
use serde::Serialize;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

/// The archiving of files.
#[derive(Args, Debug)]
#[command(mut_arg("output", |output| {
    output.value_name("ARCHIVE").help("Write the archive there; `outlive unpack` unpacks it. What is there stays until all is done; \
        it cannot be one of the files")
}))]
#[command(after_help = "Examples:\n  \
    outlive run dedup src/ --output src.dedup --kill 2     # two of four hosts are killed\n  \
    outlive unpack src.dedup copy/                         # the identical files\n  \
    outlive run dedup /usr/lib/python3 --hosts 2 --verify  # how small it would be\n  \
    outlive run dedup src/ --output src.dedup --exclude '*.o' --exclude src/target/ --exclude '**/cache/*.tmp'\n  \
    outlive run dedup /home --output home.dedup --owners --xattrs   # for root to restore\n\n\
    Files are cut into chunks where their content says so (2 to 64 KiB, most some 8), chunks are compared by their SHA-256, and each \
    different one is kept once, compressed. Names, modes (with setuid, setgid and sticky bits), \
    modification times, symbolic links, hard links and holes are archived as well. --owners archives \
    owners, and --xattrs archives extended attributes. Hard links to symbolic links, access times and \
    device files are not archived. The archive is identical to the last byte for any number of hosts, \
    and after any deaths of hosts.\n\n\
    Sockets, FIFOs and devices in a directory are reported and left out. Files and directories in it that \
    cannot be read are reported and left out as well. The archive of all others is written, and the exit \
    code is 1. With --strict, the run fails before it writes the archive. Each FILE and DIR itself has to \
    be readable.\n\n\
    PATTERN is similar to a line of a .gitignore file, without negation by !. Without a /, it is compared with the last part of a name, at any \
    depth ('*.o'). With a /, it is compared with the whole name in the archive (src/target). A / at its end \
    restricts it to directories. * and ? do not match a /. ** matches any number of directories, [ab] one \
    of several characters, and {a,b} one of several texts.\n\n\
    Each host is a process tree of its own (--processes), a member of a pod in /dev/shm that is made for the run and removed after it. \
    The pod holds --window of the files at a time, twice as much of the archive, and some 3% of the size of all files. \
    Killed hosts get SIGKILL: --kill of them, spread over the run.\n\n\
    JSON: result (files, bytes, hard_links, hole_bytes, chunks, distinct, archive_bytes, windows, level, task_bytes, verified, owners, \
    xattrs, excluded, left_out), seconds, \
    cpu_seconds, units, units_redone, seed, pod, failures (host, killed_at, detected_at, detected_by, recovered_at, \
    rejoined_at, units_redone, ...; seconds since the hosts were started) and more: docs/json.md names them all.")]
pub struct Command {
    /// Files, and directories with all that is in them
    #[arg(value_name = "FILE|DIR", required = true)]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    flags: Flags,
    /// How hard to compress: 0 (not at all) to 9
    #[arg(long, value_name = "L", default_value_t = Options::default().level,
          value_parser = clap::value_parser!(u32).range(0..=9))]
    level: u32,
    /// How many bytes a task is about, from 4K to 64M [default: chosen by the files and the number of workers]
    #[arg(long, value_name = "SIZE", value_parser = amount::size)]
    task_bytes: Option<u64>,
    /// How much of the files is in the pod at a time, from 256K to 1G [default: 15M; less for 1 to 3 workers]
    #[arg(long, value_name = "SIZE", value_parser = amount::size)]
    window: Option<u64>,
    /// Exclude entries that match PATTERN, and the contents of directories that match; may be
    /// repeated
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<Pattern>,
    /// Archive owners, as numbers; `outlive unpack --owners` restores them
    #[arg(long)]
    owners: bool,
    /// Archive extended attributes; `outlive unpack --xattrs` restores them
    #[arg(long)]
    xattrs: bool,
    /// Refuse the run if an entry cannot be archived
    #[arg(long)]
    strict: bool,
    /// Read the archive and compare its bytes and attributes with those of the files
    #[arg(long)]
    verify: bool,
}

/// What an archive is written to.
type Out = Box<dyn Write + Send>;

impl Command {
    pub fn run(self) -> Result<(), Failure> {
        let selection = Selection {
            owners: self.owners,
            xattrs: self.xattrs,
            exclude: self.exclude.clone(),
            strict: self.strict,
        };
        let tree = loading("looking for files".into(), || {
            Tree::find_with(&self.paths, &selection)
        });
        let tree = Arc::new(tree.map_err(Failure::new)?);
        let text = Text::find(&tree).map_err(Failure::new)?;
        let read = tree.entries().iter().map(|source| &*source.path);
        let interrupted = Interrupted::listen()?;
        let destination = self.flags.destination(read, "archived", &interrupted)?;
        let (out, archive) = self.archive(destination.as_ref())?;
        let options = self.flags.options(0);
        let how = Options {
            level: self.level,
            task_bytes: self.task_bytes,
            window: self.window,
            workers: options.workers(),
        };
        let unwritable =
            |error| Failure::new(format_args!("the archive cannot be written: {error}"));
        let archiving = Archiving::begin(&tree, &text, how, out).map_err(unwritable)?;
        let what = format!("units of {}", Bytes(text.bytes()));
        let outcome = play(&options, &archiving, &interrupted, what)?;
        drop(archiving);
        if let (true, Some(archive)) = (self.verify, archive) {
            let tree = Arc::clone(&tree);
            interrupted
                // Made here, and as long as there are files.
                .unless(move || verify::verify(&Archive::open_at_most(archive, u64::MAX)?, &tree))?
                .map_err(|wrong: verify::Wrong| Failure::new(wrong))?;
        }
        if let Some(destination) = destination {
            destination.keep()?;
        }
        self.tell(&options, &outcome, &tree)?;
        require_readable(&tree)
    }

    /// What the archive is written to, and the same to be read again, if it is a file. If it is only to be known how small
    /// it is, it goes nowhere.
    fn archive(&self, destination: Option<&Destination>) -> Result<(Out, Option<File>), Failure> {
        let failed =
            |error: io::Error| Failure::new(format_args!("a file cannot be made: {error}"));
        match destination {
            Some(destination) if self.verify && !destination.is_file() => {
                Err(Failure::new(format_args!(
                    "{} cannot be read again, so --verify is not possible; name an ordinary file",
                    destination.path().display()
                )))
            }
            Some(destination) => Ok((destination.out()?, destination.file()?)),
            None if self.verify => {
                let file = tempfile::tempfile().map_err(failed)?;
                Ok((Box::new(file.try_clone().map_err(failed)?), Some(file)))
            }
            None => Ok((Box::new(io::sink()), None)),
        }
    }

    fn tell(
        &self,
        options: &driver::Options,
        outcome: &driver::Outcome<Archived>,
        tree: &Tree,
    ) -> Result<(), Failure> {
        let Archived {
            summary,
            windows,
            task_bytes,
        } = outcome.result;
        let found = Found {
            files: summary.files,
            bytes: summary.bytes,
            hard_links: summary.hard_links,
            hole_bytes: summary.hole_bytes,
            chunks: summary.chunks,
            distinct: summary.distinct,
            archive_bytes: summary.archive_bytes,
            windows,
            level: self.level,
            task_bytes,
            // What is wrong is an error.
            verified: self.verify.then_some(true),
            owners: self.owners,
            xattrs: self.xattrs,
            excluded: tree.excluded(),
            left_out: tree.left_out().iter().map(LeftOut::of).collect(),
        };
        let headline = format!(
            "{} of {} files, of {} chunks, {} of them different: an archive of {}",
            Bytes(found.bytes),
            found.files,
            found.chunks,
            found.distinct,
            Bytes(found.archive_bytes)
        );
        let mut lines = Vec::new();
        if found.hard_links > 0 {
            lines.push(format!("{} hard links", found.hard_links));
        }
        if found.hole_bytes > 0 {
            lines.push(format!("holes of {}", Bytes(found.hole_bytes)));
        }
        if self.verify {
            lines.push("the archive has what the files have, byte by byte".into());
        }
        if found.excluded > 0 {
            lines.push(format!("excluded by --exclude: {}", found.excluded));
        }
        if !found.left_out.is_empty() {
            lines.push("not archived:".into());
            lines.extend(first_lines(found.left_out.iter().map(|it| &it.message)));
        }
        self.flags.tell(options, outcome, &found, headline, lines)
    }
}

/// Fails if an entry could not be read, as `tar` does after it has archived the rest. A special
/// file is not a failure, since it has no content.
fn require_readable(tree: &Tree) -> Result<(), Failure> {
    let unread = tree.left_out().iter().filter(|error| !error.is_special());
    match unread.count() {
        0 => Ok(()),
        count => Err(Failure::new(format_args!(
            "{count} of the things to be archived could not be read; make them readable, or leave \
             them out with --exclude; the archive has all others"
        ))),
    }
}

/// An entry that is not in the archive, for JSON.
#[derive(Serialize)]
struct LeftOut {
    path: String,
    /// Whether it is a socket, a FIFO or a device. Otherwise it could not be read.
    special: bool,
    message: String,
}

impl LeftOut {
    fn of(error: &TreeError) -> Self {
        Self {
            path: error.path().display().to_string(),
            special: error.is_special(),
            message: error.to_string(),
        }
    }
}

/// What came of it, as programs read it.
#[derive(Serialize)]
struct Found {
    files: u64,
    bytes: u64,
    hard_links: u64,
    hole_bytes: u64,
    chunks: u64,
    distinct: u64,
    archive_bytes: u64,
    windows: u64,
    level: u32,
    task_bytes: u64,
    /// Whether the archive was compared with the files.
    verified: Option<bool>,
    owners: bool,
    xattrs: bool,
    excluded: u64,
    left_out: Vec<LeftOut>,
}
