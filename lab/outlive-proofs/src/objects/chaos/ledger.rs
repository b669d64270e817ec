//! The ledger of one incarnation of a worker: a file to which the worker appends a line before and
//! after each operation.
//!
//! The file is anonymous, and the driver keeps it open, so it outlives the worker and needs no
//! removal. It is the standard output of the worker. A line counts only with its newline: the last
//! append of a killed worker may be torn.

use crate::killing::text;
use core::fmt;
use core::str::{FromStr, SplitWhitespace};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::process::Stdio;

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// Creates the object `id` under the name `to`.
    Create,
    /// Renames the object `id`, or any object if `id` is 0, from the name `from` to `to`.
    Rename,
    /// Unlinks or removes the object `id`, or any object if `id` is 0, from the name `from`.
    Remove,
    /// Adds one to the object `id`.
    Add,
    /// Adds one to the total `to`, by the request with the token `id`.
    Count,
}

impl What {
    pub const ALL: [Self; 5] = [
        Self::Create,
        Self::Rename,
        Self::Remove,
        Self::Add,
        Self::Count,
    ];

    /// Returns its name in ledgers and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "creations",
            Self::Rename => "renamings",
            Self::Remove => "removals",
            Self::Add => "additions",
            Self::Count => "requests",
        }
    }
}

/// An operation that a worker is about to carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    pub what: What,
    pub id: u64,
    pub from: u32,
    pub to: u32,
}

/// One line of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// The last request of the worker's client when the worker opened it: the token, and whether
    /// the request took effect. The token is 0 if the client had made no request.
    Last(u64, bool),
    /// The worker has found its own object with this identity under this name.
    Found(u64, u32),
    /// The worker has found all of its objects.
    FoundAll,
    /// The operation begins.
    Begin(Operation),
    /// The operation has ended. The value says whether it took effect.
    End(bool),
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Last(token, effect) => write!(f, "last {token} {effect}"),
            Self::Found(id, name) => write!(f, "found {id} {name}"),
            Self::FoundAll => write!(f, "found-all"),
            Self::Begin(Operation { what, id, from, to }) => {
                write!(f, "begin {} {id} {from} {to}", what.name())
            }
            Self::End(effect) => write!(f, "end {effect}"),
        }
    }
}

fn next<T: FromStr>(words: &mut SplitWhitespace<'_>) -> Option<T> {
    words.next()?.parse().ok()
}

impl Note {
    fn read(line: &str) -> Option<Self> {
        let words = &mut line.split_whitespace();
        let note = match words.next()? {
            "last" => Self::Last(next(words)?, next(words)?),
            "found" => Self::Found(next(words)?, next(words)?),
            "found-all" => Self::FoundAll,
            "begin" => {
                let name = words.next()?;
                Self::Begin(Operation {
                    what: What::ALL.into_iter().find(|what| what.name() == name)?,
                    id: next(words)?,
                    from: next(words)?,
                    to: next(words)?,
                })
            }
            "end" => Self::End(next(words)?),
            _ => return None,
        };
        words.next().is_none().then_some(note)
    }

    /// Appends the line to the ledger of this process.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn append(self) -> Result<(), String> {
        // One system call writes the whole line.
        let line = format!("{self}\n");
        std::io::stdout().write_all(line.as_bytes()).map_err(text)
    }
}

/// The driver's handle of a ledger.
#[derive(Debug)]
pub struct Ledger(File);

impl Ledger {
    /// Creates an empty ledger.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn new() -> Result<Self, String> {
        let file = memfd_create("outlive-chaos-ledger", MemfdFlags::CLOEXEC).map_err(text)?;
        Ok(Self(file.into()))
    }

    /// Returns it as the standard output of a worker.
    ///
    /// # Errors
    /// If this process has too many open files.
    pub fn output(&self) -> Result<Stdio, String> {
        Ok(self.0.try_clone().map_err(text)?.into())
    }

    /// Returns all notes. The worker must be dead.
    ///
    /// # Errors
    /// If a line with a newline is not a note.
    pub fn notes(mut self) -> Result<Vec<Note>, String> {
        let mut all = Vec::new();
        self.0.rewind().map_err(text)?;
        self.0.read_to_end(&mut all).map_err(text)?;
        notes_in(&all)
    }
}

fn notes_in(bytes: &[u8]) -> Result<Vec<Note>, String> {
    let whole = bytes.iter().rposition(|byte| *byte == b'\n');
    let whole = String::from_utf8_lossy(&bytes[..whole.map_or(0, |end| end + 1)]);
    let note = |line| {
        Note::read(line).ok_or_else(|| format!("the line `{line}` in a ledger is not a note"))
    };
    whole.lines().map(note).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_torn_last_line_is_ignored() {
        let operation = |what| Operation {
            what,
            id: 7,
            from: 1,
            to: 2,
        };
        let mut notes = vec![Note::Last(3, true), Note::Found(4, 5), Note::FoundAll];
        for what in What::ALL {
            notes.extend([Note::Begin(operation(what)), Note::End(false)]);
        }
        let lines: String = notes.iter().map(|note| format!("{note}\n")).collect();
        assert_eq!(notes_in(lines.as_bytes()), Ok(notes.clone()));
        notes.pop();
        for torn in 1..="end false\n".len() {
            let torn = &lines.as_bytes()[..lines.len() - torn];
            assert_eq!(notes_in(torn), Ok(notes.clone()));
        }
        assert!(notes_in(b"end\nend true\n").is_err());
    }
}
