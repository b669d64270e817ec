//! `outlive run dedup`: archives files on hosts, and some of them are killed.

use super::destination::Destination;
use super::flags::Flags;
use super::play::loading;
use super::steps::{Run, Steps, Text as RunText, Verdict};
use crate::amount::{self, Bytes};
use crate::failure::Failure;
use crate::output::first_lines;
use clap::Args;
use outlive_programs::dedup::archive::Archive;
use outlive_programs::dedup::exclude::Pattern;
use outlive_programs::dedup::tree::{Selection, Tree, TreeError};
use outlive_programs::dedup::{Archived, Archiving, Options, Text, verify};
use serde::Serialize;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

/// Arguments of `outlive run dedup`.
#[derive(Args, Debug)]
#[command(mut_arg("output", |output| {
    output.value_name("ARCHIVE").help("Write the archive to this file; `outlive unpack` unpacks \
        it. An existing file is replaced only after all is done; it cannot be one of the files to \
        be archived")
}))]
#[command(after_help = "Examples:\n  \
    outlive run dedup src/ --output src.dedup --kill 2     # two of four hosts are killed\n  \
    outlive unpack src.dedup copy/                         # the identical files\n  \
    outlive run dedup /usr/lib/python3 --hosts 2 --verify  # the size of the archive only\n  \
    outlive run dedup src/ --output src.dedup --exclude '*.o' --exclude src/target/ --exclude '**/cache/*.tmp'\n  \
    outlive run dedup /home --output home.dedup --owners --xattrs   # for root to restore\n\n\
    Files are divided into chunks of 2 to 64 KiB (most about 8 KiB), at boundaries that their \
    content determines. Chunks are compared by their SHA-256, and each distinct chunk is stored \
    once, compressed. Names, modes (with setuid, setgid and sticky bits), modification times, \
    symbolic links, hard links and holes are archived as well. --owners archives owners, and \
    --xattrs archives extended attributes. Hard links to symbolic links, access times and device \
    files are not archived. The archive is identical to the last byte for any number of hosts, \
    whichever of them die.\n\n\
    Sockets, FIFOs and devices in a directory are reported and left out. Files and directories in \
    it that cannot be read are reported and left out as well. The archive of all others is \
    written, and the exit code is 1. With --strict, the run fails before it writes the archive. \
    Each FILE and DIR itself has to be readable.\n\n\
    PATTERN is similar to a line of a .gitignore file, without negation by !. Without a /, it is \
    compared with the last part of a name, at any depth ('*.o'). With a /, it is compared with the \
    whole name in the archive (src/target). A / at its end restricts it to directories. * and ? do \
    not match a /. ** matches any number of directories, [ab] one of several characters, and {a,b} \
    one of several texts.\n\n\
    Each host is a process tree of its own (--processes) and a member of a pod in /dev/shm that is \
    created for the run and removed after it. The pod holds a part of the files at a time \
    (--window), twice as much of the archive, and additionally about 3% of the size of all files. \
    With --kill K, K hosts are killed by SIGKILL, spread over the run.\n\n\
    JSON: result (files, bytes, hard_links, hole_bytes, chunks, distinct, archive_bytes, windows, \
    level, task_bytes, verified, owners, xattrs, excluded, left_out), seconds, cpu_seconds, units, \
    units_redone, seed, pod, failures (host, killed_at, detected_at, detected_by, recovered_at, \
    rejoined_at, units_redone, ...; seconds since the hosts were started) and more: docs/json.md \
    names them all.")]
pub struct Command {
    /// Files, and directories with all that is in them
    #[arg(value_name = "FILE|DIR", required = true)]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    flags: Flags,
    /// Compression level, from 0 (none) to 9
    #[arg(long, value_name = "L", default_value_t = Options::default().level,
          value_parser = clap::value_parser!(u32).range(0..=9))]
    level: u32,
    /// Number of input bytes of a task, from 4K to 64M [default: chosen by the files and the number
    /// of workers]
    #[arg(long, value_name = "SIZE", value_parser = amount::size)]
    task_bytes: Option<u64>,
    /// Size of the part of the files in the pod at a time, from 256K to 1G [default: 15M; less for
    /// 1 to 3 workers]
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

/// The output of an archive.
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
        let mut run = Run::begin(&self.flags, 0, self.verify)?;
        run.open_destination(read, "archived")?;
        let (out, archive) = self.archive(run.destination.as_ref())?;
        let how = Options {
            level: self.level,
            task_bytes: self.task_bytes,
            window: self.window,
            workers: run.options.workers(),
        };
        let unwritable =
            |error| Failure::new(format_args!("the archive cannot be written: {error}"));
        let archiving = Archiving::begin(&tree, &text, how, out).map_err(unwritable)?;
        let steps = Steps {
            units: format!("units of {}", Bytes(text.bytes())),
            check: {
                let tree = Arc::clone(&tree);
                move |_| {
                    let archive = archive.ok_or_else(|| {
                        Failure::new("the archive is not in a file, so it cannot be verified")
                    })?;
                    // The archive was created here, so its index is as long as the files require.
                    let checked = Archive::open_at_most(archive, u64::MAX)
                        .map_err(verify::Mismatch::from)
                        .and_then(|archive| verify::verify(&archive, &tree));
                    let right = "the archive agrees with the files, byte by byte";
                    Ok(Verdict::of(checked, right))
                }
            },
            // It was written during the run.
            write: |_: &Archived, destination: Destination| destination.keep(),
            describe: |archived: &Archived, verdict: Option<&Verdict>| {
                self.describe(&tree, archived, verdict)
            },
        };
        run.play(&archiving, steps)?;
        require_readable(&tree)
    }

    /// Returns the output of the archive, and the same file for reading, if it is one. Without a
    /// destination and `--verify`, only the size is of interest, so the archive is discarded.
    fn archive(&self, destination: Option<&Destination>) -> Result<(Out, Option<File>), Failure> {
        let failed = |error: io::Error| {
            Failure::new(format_args!(
                "a temporary file for the archive cannot be created: {error}; name a writable directory \
                 in TMPDIR"
            ))
        };
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

    fn describe(
        &self,
        tree: &Tree,
        archived: &Archived,
        verdict: Option<&Verdict>,
    ) -> RunText<Found> {
        let summary = &archived.summary;
        let found = Found {
            files: summary.files,
            bytes: summary.bytes,
            hard_links: summary.hard_links,
            hole_bytes: summary.hole_bytes,
            chunks: summary.chunks,
            distinct: summary.distinct,
            archive_bytes: summary.archive_bytes,
            windows: archived.windows,
            level: self.level,
            task_bytes: archived.task_bytes,
            verified: verdict.map(Verdict::is_right),
            owners: self.owners,
            xattrs: self.xattrs,
            excluded: tree.excluded(),
            left_out: tree.left_out().iter().map(LeftOut::of).collect(),
        };
        let headline = format!(
            "{} in {} files, {} chunks, {} of them distinct: an archive of {}",
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
        if found.excluded > 0 {
            lines.push(format!("excluded by --exclude: {}", found.excluded));
        }
        if !found.left_out.is_empty() {
            lines.push("not archived:".into());
            lines.extend(first_lines(found.left_out.iter().map(|it| &it.message)));
        }
        RunText {
            is_flat: false,
            found,
            headline,
            lines,
        }
    }
}

/// Fails if an entry could not be read, as `tar` does after it has archived the rest. A special
/// file is not a failure, since it has no content.
fn require_readable(tree: &Tree) -> Result<(), Failure> {
    let unread = tree.left_out().iter().filter(|error| !error.is_special());
    match unread.count() {
        0 => Ok(()),
        count => Err(Failure::new(format_args!(
            "{count} of the entries to be archived could not be read; make them readable, or \
             exclude them with --exclude; the archive contains all others"
        ))),
    }
}

/// An entry that is not in the archive, for JSON.
#[derive(Serialize)]
struct LeftOut {
    path: String,
    /// `true` for a socket, a FIFO or a device, `false` for an entry that could not be read.
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

/// The result for JSON.
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
