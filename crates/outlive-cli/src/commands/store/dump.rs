//! `outlive store dump` and `load`: all rows of a store in a file.
//!
//! A dump is a file of JSON lines: a head, then each table followed by its rows, then an end with
//! the number of rows and a checksum of all lines before. It is complete if it has an end.

use super::Which;
use super::client::Client;
use super::rows::Limit;
use super::value::{digits, from_digits};
use crate::commands::run::destination::Destination;
use crate::commands::run::play::Interrupted;
use crate::failure::Failure;
use crate::output;
use clap::Args;
use outlive_store::protocol::Rows;
use outlive_store::servers::{Store, TableEntry};
use outlive_store::tables::Geometry;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;

/// A line of a dump.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Line {
    Row {
        key: u64,
        /// The bytes in hexadecimal digits.
        value: String,
    },
    Table {
        table: String,
        value_bytes: u64,
        /// The number of keys for which the table has space.
        keys: u64,
    },
    Head {
        outlive_store_dump: u32,
    },
    End {
        rows: u64,
        /// CRC-32 of all bytes before this line.
        crc32: u32,
    },
}

const VERSION: u32 = 1;

/// Arguments of `outlive store dump`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  \
    outlive store dump /dev/shm/bank bank.dump\n  \
    outlive store load /dev/shm/new-bank bank.dump\n\n\
    The rows are those of one moment, even while transactions run. The file consists of JSON \
    lines; docs/json.md says what they mean. It appears when it is complete, and replaces an \
    existing one.")]
pub struct Dump {
    #[command(flatten)]
    which: Which,
    /// File to write
    file: PathBuf,
    #[command(flatten)]
    limit: Limit,
}

impl Dump {
    pub fn run(self) -> Result<(), Failure> {
        let interrupted = Interrupted::listen()?;
        let store = Store::observe(&self.which.path)?;
        let memory = store.configuration().memory_servers();
        let mut files: Vec<_> = memory.map(|it| store.segment_path(&it)).collect();
        files.push(self.which.path.clone());
        let files = files.iter().map(PathBuf::as_path);
        let destination = Destination::prepare(&self.file, files, "dumped", &interrupted)?;
        drop(store);
        let mut client = Client::join(&self.which.path, self.limit.timeout, &interrupted)?;
        let (tables, rows) = loop {
            let tables = client.tables();
            let rows = client.snapshot(&tables)?;
            // A table that is created meanwhile may contain rows that were in another one.
            if client.tables() == tables {
                break (tables, rows);
            }
        };
        drop(client);
        let is_file = destination.is_file();
        destination.write(|mut out| write(&mut out, &tables, &rows))?;
        let count: usize = rows.iter().map(Rows::len).sum();
        let done = format!(
            "{count} rows of {} tables are in {}",
            tables.len(),
            self.file.display()
        );
        match is_file {
            true => output::line(done),
            false => {
                output::note(done);
                Ok(())
            }
        }
    }
}

fn write(to: &mut impl Write, tables: &[TableEntry], rows: &[Rows]) -> std::io::Result<()> {
    let mut checksum = crc32fast::Hasher::new();
    let mut line = |line: Line, is_summed: bool| {
        let mut text = serde_json::to_string(&line)?;
        text.push('\n');
        if is_summed {
            checksum.update(text.as_bytes());
        }
        to.write_all(text.as_bytes())?;
        Ok::<_, std::io::Error>(checksum.clone().finalize())
    };
    let mut crc32 = line(
        Line::Head {
            outlive_store_dump: VERSION,
        },
        true,
    )?;
    for (table, rows) in tables.iter().zip(rows) {
        let head = Line::Table {
            table: table.name.clone(),
            value_bytes: u64::from(table.geometry.value_words) * 8,
            keys: table.geometry.keys(),
        };
        crc32 = line(head, true)?;
        for (key, words) in rows {
            let value = digits(words);
            crc32 = line(Line::Row { key: *key, value }, true)?;
        }
    }
    let rows = rows.iter().map(|it| it.len() as u64).sum();
    line(Line::End { rows, crc32 }, false)?;
    to.flush()
}

/// Arguments of `outlive store load`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  \
    outlive store load /dev/shm/bank bank.dump\n\n\
    Creates the tables that do not exist, and writes each row in a transaction of its own; other \
    keys remain. The whole file is checked before anything is written. If the command is \
    interrupted, execute it again.")]
pub struct Load {
    #[command(flatten)]
    which: Which,
    /// File to load, written by `outlive store dump`
    file: PathBuf,
    #[command(flatten)]
    limit: Limit,
}

impl Load {
    pub fn run(self) -> Result<(), Failure> {
        let file = &self.file;
        let read = std::fs::File::open(file).map_err(|error| Fault::new(0, error));
        let tables = read.and_then(|it| parse(BufReader::new(it)));
        let tables = tables.map_err(|Fault { line, what }| {
            let name = file.display();
            Failure::new(match line {
                0 => format!("{name} cannot be read: {what}"),
                line => format!(
                    "{name} is not a complete dump of a store: line {line}: {what}; nothing was \
                     written"
                ),
            })
        })?;
        let mut client = self.limit.join(&self.which)?;
        let mut numbers = Vec::new();
        for table in &tables {
            let Loaded { name, keys, .. } = table;
            numbers.push({ &client.compute }.table_of_bytes(name, *keys, table.value_bytes)?);
        }
        let mut count = 0u64;
        for (table, number) in tables.iter().zip(numbers) {
            for (key, value) in &table.rows {
                let put = client.transact(async |tx| tx.put_words(number, *key, value).await);
                put?.map_err(|error| {
                    Failure::new(format_args!(
                        "key {key} of table {} was not written: {error}; {count} rows were \
                         written before it",
                        output::printable(&table.name)
                    ))
                })?;
                count += 1;
            }
        }
        drop(client);
        output::line(format_args!(
            "loaded {count} rows of {} tables",
            tables.len()
        ))
    }
}

/// A table of a dump.
#[derive(Debug, PartialEq, Eq)]
struct Loaded {
    name: String,
    value_bytes: u64,
    keys: u64,
    rows: Rows,
}

/// The fault of a file: its line, counted from 1, or 0 if the file cannot be read.
#[derive(Debug, PartialEq, Eq)]
struct Fault {
    line: usize,
    what: String,
}

impl Fault {
    fn new(line: usize, what: impl Display) -> Self {
        let what = what.to_string();
        Self { line, what }
    }
}

/// The longest line that a dump can have: a value has at most 8 KiB.
const MAX_LINE_BYTES: u64 = 1 << 16;

/// Reads a dump.
fn parse(mut from: impl BufRead) -> Result<Vec<Loaded>, Fault> {
    let (mut tables, mut count) = (Vec::<Loaded>::new(), 0);
    let mut checksum = crc32fast::Hasher::new();
    let mut text = Vec::new();
    for number in 1.. {
        text.clear();
        let fault = |what: &dyn Display| Fault::new(number, what);
        let line = std::io::Read::take(&mut from, MAX_LINE_BYTES).read_until(b'\n', &mut text);
        line.map_err(|error| Fault::new(0, error))?;
        if text.is_empty() {
            return Err(fault(&"the end is missing: the file is truncated"));
        }
        let line: Line = serde_json::from_slice(&text).map_err(|error| fault(&error))?;
        match (line, tables.last_mut()) {
            (Line::Head { outlive_store_dump }, _) if number == 1 => {
                if outlive_store_dump != VERSION {
                    let known = format_args!("version {outlive_store_dump}, not {VERSION}");
                    return Err(fault(&known));
                }
            }
            _ if number == 1 => return Err(fault(&"it has no head")),
            (Line::Head { .. }, _) => return Err(fault(&"it has a second head")),
            (
                Line::Table {
                    table,
                    value_bytes,
                    keys,
                },
                _,
            ) => {
                if value_bytes == 0 || !value_bytes.is_multiple_of(8) || value_bytes > 1 << 13 {
                    return Err(fault(&format_args!(
                        "a value cannot have {value_bytes} bytes"
                    )));
                }
                if !(1..=Geometry::MAX_KEYS).contains(&keys) {
                    return Err(fault(&format_args!("a table cannot have {keys} keys")));
                }
                if tables.iter().any(|it| it.name == table) {
                    return Err(fault(&"a table occurs twice"));
                }
                tables.push(Loaded {
                    name: table,
                    value_bytes,
                    keys,
                    rows: BTreeMap::new(),
                });
            }
            (Line::Row { .. }, None) => return Err(fault(&"a row comes before its table")),
            (Line::Row { key, value }, Some(table)) => {
                let words = (table.value_bytes / 8) as usize;
                let Some(value) = from_digits(&value, words) else {
                    let bytes = table.value_bytes;
                    let what = format_args!("the value of key {key} is not {bytes} bytes");
                    return Err(fault(&what));
                };
                if table.rows.insert(key, value.into()).is_some() {
                    return Err(fault(&format_args!("key {key} occurs twice")));
                }
                count += 1;
            }
            (Line::End { rows, crc32 }, _) => {
                if rows != count || crc32 != checksum.finalize() {
                    return Err(fault(&"the checksum or the number of rows is wrong"));
                }
                let more = from.fill_buf().map_err(|error| Fault::new(0, error))?;
                if !more.is_empty() {
                    return Err(Fault::new(number + 1, "data follows the end"));
                }
                return Ok(tables);
            }
        }
        checksum.update(&text);
    }
    unreachable!("a file has an end")
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlive_store::tables::Geometry;

    fn dump() -> (Vec<TableEntry>, Vec<Rows>, Vec<u8>) {
        let table = |number, name: &str, words| TableEntry {
            number,
            name: name.into(),
            geometry: Geometry::for_keys(1000, words, 16),
        };
        let tables = vec![table(0, "accounts", 1), table(3, "naïve \"names\"\n", 2)];
        let row = |key: u64, words: &[u64]| (key, words.into());
        let rows = vec![
            Rows::from([row(0, &[0]), row(7, &[u64::MAX]), row(u64::MAX, &[1])]),
            Rows::from([row(5, &[1, 2])]),
        ];
        let mut file = Vec::new();
        write(&mut file, &tables, &rows).unwrap();
        (tables, rows, file)
    }

    #[test]
    fn a_dump_is_read_as_it_was_written() {
        let (tables, rows, file) = dump();
        let loaded = parse(file.as_slice()).unwrap();
        assert_eq!(loaded.len(), 2);
        for ((loaded, table), rows) in loaded.iter().zip(tables).zip(rows) {
            assert_eq!(loaded.name, table.name);
            assert_eq!(loaded.rows, rows);
            let words = (loaded.value_bytes / 8) as u32;
            let geometry = Geometry::for_keys(loaded.keys, words, 16);
            assert_eq!(geometry, table.geometry);
        }
    }

    #[test]
    fn nothing_follows_a_dump() {
        let (.., mut file) = dump();
        file.extend_from_within(..);
        let fault = parse(file.as_slice()).unwrap_err();
        assert_eq!(
            (fault.line, fault.what.as_str()),
            (9, "data follows the end")
        );
    }

    #[test]
    fn every_truncation_and_changed_byte_is_found() {
        let (.., file) = dump();
        for length in 0..file.len() - 1 {
            assert!(parse(&file[..length]).is_err(), "{length} bytes");
        }
        let whole = parse(file.as_slice()).unwrap();
        for at in 0..file.len() {
            for bit in 0..8 {
                let mut file = file.clone();
                file[at] ^= 1 << bit;
                // A change that leaves the meaning is harmless: white space after the end.
                if let Ok(loaded) = parse(file.as_slice()) {
                    assert_eq!(loaded, whole, "bit {bit} of byte {at}");
                }
            }
        }
    }

    #[test]
    fn faults_name_their_line() {
        let fault = |text: &str| parse(text.as_bytes()).unwrap_err();
        let head = r#"{"outlive_store_dump":1}"#;
        let table = r#"{"table":"t","value_bytes":8,"keys":1}"#;
        let row = r#"{"key":1,"value":"0000000000000000"}"#;
        for (text, line, what) in [
            (String::new(), 1, "truncated"),
            ("no dump\n".into(), 1, "expected"),
            (row.into(), 1, "no head"),
            (r#"{"outlive_store_dump":2}"#.into(), 1, "version 2, not 1"),
            (format!("{head}\n{head}\n"), 2, "second head"),
            (format!("{head}\n{row}\n"), 2, "before its table"),
            (
                format!("{head}\n{table}\n{row}\n{row}\n"),
                4,
                "occurs twice",
            ),
            (
                format!("{head}\n{table}\n{}\n", row.replace("00\"", "\"")),
                3,
                "is not 8 bytes",
            ),
            (
                format!("{head}\n{}\n", table.replace(":8", ":7")),
                2,
                "a value cannot have 7 bytes",
            ),
            (
                format!("{head}\n{table}\n{table}\n"),
                3,
                "a table occurs twice",
            ),
            (
                format!("{head}\n{}\n", table.replace(":1", ":0")),
                2,
                "a table cannot have 0 keys",
            ),
            (
                format!("{head}\n{{\"rows\":0,\"crc32\":1}}\n"),
                2,
                "checksum",
            ),
        ] {
            let fault = fault(&text);
            assert_eq!(fault.line, line, "{text}: {fault:?}");
            assert!(fault.what.contains(what), "{text}: {fault:?}");
        }
    }
}
