//! `outlive unpack`: restores the files of an archive of `outlive run dedup`, identical to the last
//! byte.

use crate::amount::{self, Bytes};
use crate::failure::Failure;
use crate::output::{self, first_lines};
use clap::Args;
use outlive_programs::dedup::archive::Archive;
use outlive_programs::dedup::restore::NotKept;
use outlive_programs::dedup::unpack::{Options, UnpackError, Unpacked, unpack_with};
use serde::Serialize;
use std::fs::File;
use std::path::PathBuf;

/// Arguments of `outlive unpack`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive run dedup src/ --output src.dedup\n  \
    outlive unpack src.dedup copy/      # makes copy/src\n  \
    outlive unpack home.dedup old/ --owners --xattrs   # as root, if the archive was made with both\n\n\
    The whole index is checked before anything is created, and each chunk before it is written. A \
    damaged archive is refused with an error that says where it is damaged; files that were \
    unpacked before stay. Nothing is created outside of DIR. A small archive can contain huge \
    files with repeated content, or very many directories: an archive is refused if it is larger \
    than the free space or than --max-size. The index takes about ten times its length in memory; \
    it has about 60 bytes for each distinct chunk of about 8 KiB.\n\n\
    Modes, times, hard links and holes are restored. --owners restores owners, and --xattrs \
    restores extended attributes. --set-ids restores setuid and setgid bits of files, and file \
    capabilities (these with --xattrs). A setuid bit is restored only on a file that has its \
    archived user, and a setgid bit only on a file that has its archived group. Attributes that \
    cannot be restored, for instance because the filesystem does not support them, are listed at \
    the end. With --strict, the exit code is then 1.\n\n\
    JSON: files, bytes, hard_links, hole_bytes, not_kept (path, what, why).")]
pub struct Unpack {
    /// Archive that `outlive run dedup --output` has written
    #[arg(value_name = "ARCHIVE")]
    archive: PathBuf,
    /// Directory for the files, which is empty or does not exist yet
    #[arg(value_name = "DIR")]
    into: PathBuf,
    /// Refuse an archive that takes more space: files in whole blocks of 4 KiB, and one block for
    /// each directory and each link
    #[arg(long, value_name = "SIZE", value_parser = amount::size)]
    max_size: Option<u64>,
    /// Refuse an archive with a longer index
    #[arg(long, value_name = "SIZE", value_parser = amount::size, default_value = "128M")]
    max_index: u64,
    /// Restore owners that `outlive run dedup --owners` has archived. Requires root
    #[arg(long)]
    owners: bool,
    /// Restore extended attributes that `outlive run dedup --xattrs` has archived
    #[arg(long)]
    xattrs: bool,
    /// Restore setuid and setgid bits of files, and file capabilities. Use it only for archives
    /// whose author you trust: such programs act with the rights of their owner
    #[arg(long)]
    set_ids: bool,
    /// Exit with code 1 if an archived attribute could not be restored; all others are restored
    #[arg(long)]
    strict: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Found {
    files: u64,
    bytes: u64,
    hard_links: u64,
    hole_bytes: u64,
    not_kept: Vec<Lost>,
}

/// An attribute that could not be restored, for JSON.
#[derive(Serialize)]
struct Lost {
    path: String,
    what: String,
    why: String,
}

impl Lost {
    fn of(lost: &NotKept) -> Self {
        Self {
            path: lost.path.display().to_string(),
            what: lost.what.to_string(),
            why: lost.why.clone(),
        }
    }
}

impl Unpack {
    pub fn run(self) -> Result<(), Failure> {
        let named = |error: &dyn std::fmt::Display| {
            Failure::new(format_args!("{}: {error}", self.archive.display()))
        };
        let archive = File::open(&self.archive).map_err(|error| named(&error))?;
        let archive =
            Archive::open_at_most(archive, self.max_index).map_err(|error| named(&error))?;
        let options = Options {
            most: self.max_size.unwrap_or(u64::MAX),
            owners: self.owners,
            xattrs: self.xattrs,
            set_ids: self.set_ids,
        };
        let unpacked = unpack_with(&archive, &self.into, &options);
        let unpacked = unpacked.map_err(|error| match &error {
            UnpackError::TooLarge { .. }
            | UnpackError::NoRoom { .. }
            | UnpackError::TooMany { .. }
            | UnpackError::NoOwners
            | UnpackError::NotRoot => named(&error),
            UnpackError::Archive(_) => named(&format_args!(
                "{error}; the files that were unpacked before this error are in {}",
                self.into.display()
            )),
            _ => Failure::new(error),
        })?;
        self.tell(&unpacked, &archive)?;
        match unpacked.not_kept.len() {
            0 => Ok(()),
            _ if !self.strict => Ok(()),
            count => Err(Failure::new(format_args!(
                "{count} archived attributes could not be restored; everything else was unpacked"
            ))),
        }
    }

    fn tell(&self, unpacked: &Unpacked, archive: &Archive<File>) -> Result<(), Failure> {
        let not_kept = &unpacked.not_kept;
        if self.json {
            return output::json(&Found {
                files: unpacked.files,
                bytes: unpacked.bytes,
                hard_links: unpacked.hard_links,
                hole_bytes: unpacked.hole_bytes,
                not_kept: not_kept.iter().map(Lost::of).collect(),
            });
        }
        let (files, into) = (unpacked.files, self.into.display());
        output::line(format_args!(
            "{files} files of {} in {into}",
            Bytes(unpacked.bytes)
        ))?;
        if unpacked.hard_links > 0 {
            output::line(format_args!("{} hard links", unpacked.hard_links))?;
        }
        if unpacked.hole_bytes > 0 {
            output::line(format_args!("holes of {}", Bytes(unpacked.hole_bytes)))?;
        }
        let entries = archive.entries();
        if !self.owners && !entries.is_empty() && archive.has_owners() {
            output::line("owners were not restored: --owners restores them")?;
        }
        if !self.xattrs && entries.iter().any(|it| !it.attributes.xattrs.is_empty()) {
            output::line("extended attributes were not restored: --xattrs restores them")?;
        }
        if !not_kept.is_empty() {
            output::line("not restored:")?;
        }
        first_lines(not_kept.iter())
            .into_iter()
            .try_for_each(output::line)
    }
}
