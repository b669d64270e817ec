//! `outlive unpack`: the files of an archive that `outlive run dedup` made, identical to the last byte.

use crate::amount::{self, Bytes};
use crate::failure::Failure;
use crate::output;
use clap::Args;
use outlive_workloads::dedup::archive::Archive;
use outlive_workloads::dedup::unpack::{UnpackError, unpack_at_most};
use serde::Serialize;
use std::fs::File;
use std::path::PathBuf;

/// The unpacking of an archive.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive run dedup src/ --output src.dedup\n  \
    outlive unpack src.dedup copy/      # makes copy/src\n\n\
    All of the index is checked before anything is made, and each chunk before it is written: a damaged archive is refused, and \
    it is said where it is damaged; what was unpacked before that stays. Nothing is made outside of DIR. A small archive can be \
    of huge files, in which the same comes again and again, or of very many directories: one for which there is no room is refused, \
    or that is larger than --max-size. The index takes memory, some ten times as much as it is long; it has about 60 bytes for each \
    different chunk of some 8 KiB.\n\n\
    JSON: files, bytes.")]
pub struct Unpack {
    /// What `outlive run dedup --output` has written
    #[arg(value_name = "ARCHIVE")]
    archive: PathBuf,
    /// Where the files are made: a directory that is empty, or not there yet
    #[arg(value_name = "DIR")]
    into: PathBuf,
    /// Refuse an archive that takes more: its files, in whole blocks of 4 KiB, and such a block for each directory and each link
    #[arg(long, value_name = "SIZE", value_parser = amount::size)]
    max_size: Option<u64>,
    /// Refuse an archive whose index is longer
    #[arg(long, value_name = "SIZE", value_parser = amount::size, default_value = "128M")]
    max_index: u64,
    /// Print what was unpacked as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Found {
    files: u64,
    bytes: u64,
}

impl Unpack {
    pub fn run(self) -> Result<(), Failure> {
        let named = |error: &dyn std::fmt::Display| {
            Failure::new(format_args!("{}: {error}", self.archive.display()))
        };
        let archive = File::open(&self.archive).map_err(|error| named(&error))?;
        let archive =
            Archive::open_at_most(archive, self.max_index).map_err(|error| named(&error))?;
        let most = self.max_size.unwrap_or(u64::MAX);
        let unpacked = unpack_at_most(&archive, &self.into, most);
        let unpacked = unpacked.map_err(|error| match &error {
            UnpackError::TooLarge { .. }
            | UnpackError::NoRoom { .. }
            | UnpackError::TooMany { .. } => named(&error),
            UnpackError::Archive(_) => named(&format_args!(
                "{error}; what was unpacked before is in {}",
                self.into.display()
            )),
            _ => Failure::new(error),
        })?;
        let found = Found {
            files: unpacked.files,
            bytes: unpacked.bytes,
        };
        if self.json {
            return output::json(&found);
        }
        let (files, into) = (found.files, self.into.display());
        output::line(format_args!(
            "{files} files of {} in {into}",
            Bytes(found.bytes)
        ))
    }
}
