//! Reads named objects from outside the pod.
//!
//! An observer is not a member: it writes nothing, and has neither a pin nor a lease. An object may
//! be destroyed while the observer reads it, and its block may be reused. The observer loads every
//! offset and size once, and checks it before it uses it, so it never accesses a byte outside the
//! memory. It reads contents until two readings agree. If a block changes between two readings and
//! changes back, the two readings agree too.
//!
//! Tests: `tests/objects_observed.rs`.

use super::directory::TAGS;
use super::object::MUTEX_OVER;
use super::record::{Record, State};
use super::value::{Type, Value};
use super::{Description, Directory, ObjectError, array, client};
use crate::membership::InstanceId;
use crate::structures::{Finding, Snapshot, snapshot_of};
use crate::sync;
use core::time::Duration;
use outlive_memory::{Memory, Offset, Ordering};
use std::collections::HashMap;

/// The maximum number of readings of an object that changes.
const MAX_READINGS: u32 = 8;
/// The time between two readings.
const READING_PAUSE: Duration = Duration::from_millis(1);

/// The contents of an object.
#[derive(Clone, Debug)]
pub struct Dump {
    /// The description of the object.
    pub description: Description,
    /// The contents of the object, decoded.
    pub contents: Value,
    /// Whether the object changed during every reading. If so, parts of the contents may be of
    /// different moments, or wrong.
    pub is_torn: bool,
}

/// The contents of an object, as bytes.
#[derive(Clone, PartialEq)]
enum Raw {
    Plain(Vec<u8>),
    Entries(Snapshot),
}

impl Raw {
    /// Returns whether nothing in it is impossible, as it may be during a change.
    fn is_sound(&self) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Entries(snapshot) => snapshot.findings.is_empty(),
        }
    }

    fn entries(&self) -> usize {
        match self {
            Self::Plain(_) => 0,
            Self::Entries(snapshot) => snapshot.entries.len(),
        }
    }
}

impl<M: Memory> Directory<M> {
    /// Returns the descriptions of all objects, sorted by name, for a caller that is not a member.
    /// An object that is created, renamed or removed during the call may be missing, or listed
    /// under both names. A damaged object may be missing too.
    ///
    /// # Errors
    /// If every attempt to read the names failed.
    ///
    /// # Crash
    /// The caller writes nothing.
    pub fn observe(&self) -> Result<Vec<Description>, ObjectError> {
        let mut users: HashMap<u64, Vec<InstanceId>> = HashMap::new();
        for id in 0..self.ids() {
            for slot in self.slots(id) {
                // A lease that is being given up has a tag, so its word matches no object.
                let at: u64 = self.memory().load(slot, Ordering::Acquire);
                if at != 0 {
                    users.entry(at).or_default().push(id);
                }
            }
        }
        let described = |(name, at): (Vec<u8>, u64)| {
            let (name, record) = (String::from_utf8(name).ok()?, self.record(at)?);
            // A stale entry leads to an object that has another name.
            let is_named = record.is_named(&name).ok()?;
            let users = users.get(&at).cloned().unwrap_or_default();
            let description = Description::of(name, record, users);
            description.ok().filter(|_| is_named)
        };
        let entries = self.entries()?.into_iter();
        let mut all: Vec<_> = entries.filter_map(described).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// Returns the contents of the object `name`, for a caller that is not a member.
    ///
    /// # Errors
    /// If no object has that name, or the object is damaged.
    ///
    /// # Crash
    /// The caller writes nothing.
    pub fn dump(&self, name: &str) -> Result<Dump, ObjectError> {
        let read = || {
            let mut all = self.observe()?.into_iter();
            let not_found = || ObjectError::NotFound { name: name.into() };
            let description = all.find(|it| it.name == name).ok_or_else(not_found)?;
            let raw = self.raw(&description)?;
            Ok::<_, ObjectError>((description, raw))
        };
        let (mut best, mut is_torn) = (read()?, true);
        let mut last = best.1.clone();
        for _ in 1..MAX_READINGS {
            let (description, raw) = read()?;
            if raw == last {
                is_torn = false;
                best = (description, raw);
                break;
            }
            last.clone_from(&raw);
            // A sound reading, or else the one that came furthest.
            let worth = |raw: &Raw| (raw.is_sound(), raw.entries());
            if worth(&raw) >= worth(&best.1) {
                best = (description, raw);
            }
        }
        let (description, raw) = best;
        if !is_torn && !raw.is_sound() {
            return Err(ObjectError::Damaged {
                at: description.contents,
                what: "the structure is not sound; run `outlive pod check` for details",
            });
        }
        let contents = interpret(&description.of, raw);
        Ok(Dump {
            description,
            contents,
            is_torn,
        })
    }

    /// Returns the faults of the names, the objects and the leases. No member may change them
    /// during the call.
    pub(crate) fn check(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut find = |at: Offset, what: String| findings.push(Finding { at, what });
        let memory = self.memory();
        let entries = match snapshot_of(memory, self.names_at()) {
            // The check of the structures reports the findings in the map of names.
            Ok(names) => names.entries,
            Err(error) => {
                find(self.names_at(), error.to_string());
                Vec::new()
            }
        };
        for (name, at) in entries {
            let name = String::from_utf8_lossy(&name).into_owned();
            let at = word_of(&at);
            let record = match Record::checked(memory, at) {
                Ok(record) => record,
                Err(error) => {
                    find(Offset::from_raw(at), format!("`{name}`: {error}"));
                    continue;
                }
            };
            if let Some(what) = wrong_with(record, &name) {
                find(record.at(), format!("`{name}`: {what}"));
            }
        }
        for id in 0..self.ids() {
            for slot in self.slots(id) {
                let word: u64 = memory.load(slot, Ordering::Acquire);
                if word != 0 && Record::checked(memory, word & !TAGS).is_err() {
                    find(slot, format!("a lease of id {id} leads to no object"));
                }
            }
            if let Some(link) = self.bad_link(id) {
                find(link, format!("the leases of id {id} lead to no block"));
            }
        }
        findings
    }

    /// Returns the entries of the map of names.
    fn entries(&self) -> Result<Vec<(Vec<u8>, u64)>, ObjectError> {
        for _ in 0..MAX_READINGS {
            let names = snapshot_of(self.memory(), self.names_at())?;
            if names.findings.is_empty() {
                let entries = names.entries.into_iter();
                return Ok(entries.map(|(name, at)| (name, word_of(&at))).collect());
            }
            std::thread::sleep(READING_PAUSE);
        }
        Err(ObjectError::Damaged {
            at: self.names_at(),
            what: "the map of names is not sound; run `outlive pod check` for details",
        })
    }

    fn record(&self, at: u64) -> Option<Record<M>> {
        Record::checked(self.memory(), at).ok()
    }

    /// Reads the contents of an object.
    fn raw(&self, of: &Description) -> Result<Raw, ObjectError> {
        let (memory, at) = (self.memory(), of.contents);
        if of.entries.is_none() {
            let damaged = |_| ObjectError::Damaged {
                at,
                what: "its contents are not inside the memory",
            };
            Offset::checked(at.raw(), of.bytes, 8, memory.size()).map_err(damaged)?;
            let mut bytes = vec![0; of.bytes as usize];
            memory.copy_out(at, &mut bytes);
            return Ok(Raw::Plain(bytes));
        }
        let header = Offset::from_raw(memory.load(at, Ordering::Acquire));
        Ok(Raw::Entries(snapshot_of(memory, header)?))
    }
}

/// Returns the fault of the object to which `name` leads, if it has one.
fn wrong_with<M: Memory>(record: Record<M>, name: &str) -> Option<String> {
    match record.state() {
        Some(State::Live(_) | State::NameLocked(_)) => {}
        other => return Some(format!("it has a name, but its state is {other:?}")),
    }
    let described = record
        .kind()
        .and_then(|_| Ok((record.entries()?, record.name()?)));
    match described {
        Err(error) => Some(error.to_string()),
        Ok((_, (own, version))) => {
            let was_named = || {
                record
                    .other_name(version)
                    .is_some_and(|other| other == name)
            };
            (own != name && !was_named()).then(|| format!("its name is `{own}`"))
        }
    }
}

fn word_of(bytes: &[u8]) -> u64 {
    bytes
        .first_chunk()
        .map_or(0, |word| u64::from_le_bytes(*word))
}

/// Reads the contents of an object whose type is described as `of`.
fn interpret(of: &str, raw: Raw) -> Value {
    match raw {
        Raw::Entries(Snapshot { entries, .. }) => match of.strip_prefix("cell of ") {
            Some(of) => {
                let value = entries
                    .first()
                    .map(|(_, value)| Type::parse(of).read(value));
                value.unwrap_or(Value::Nothing)
            }
            None => interpret_entries(of, entries),
        },
        Raw::Plain(bytes) => interpret_plain(of, &bytes).unwrap_or(Value::Bytes(bytes)),
    }
}

fn interpret_entries(of: &str, entries: Vec<(Vec<u8>, Vec<u8>)>) -> Value {
    let types = of.strip_prefix("map of ").or(of.strip_prefix("list of "));
    // The name of an encoding may contain ` to `. Then the bytes are shown.
    let types = types.and_then(|types| types.split_once(" to "));
    let (key, value) = types.map_or((Type::Opaque, Type::Opaque), |(key, value)| {
        (Type::parse(key), Type::parse(value))
    });
    let entries = entries.iter();
    let mut entries: Vec<_> = { entries }
        .map(|(a, b)| (key.read(a), value.read(b)))
        .collect();
    entries.sort_by(|(a, _), (b, _)| a.compare(b));
    Value::Entries(entries)
}

fn interpret_plain(of: &str, bytes: &[u8]) -> Option<Value> {
    let number = |number: u64| Value::Unsigned(number.into());
    if let Some(of) = of.strip_prefix("array of ") {
        let of = Type::parse(of);
        let size = of.size().filter(|size| *size <= bytes.len())?;
        if of == Type::Unsigned(1) {
            return Some(Value::Bytes(bytes.to_vec()));
        }
        let stride = array::stride(size as u64) as usize;
        let elements = bytes.chunks_exact(stride);
        return Some(Value::List(
            elements.map(|it| of.read(&it[..size])).collect(),
        ));
    }
    if let Some(of) = of.strip_prefix(MUTEX_OVER) {
        let of = Type::parse(of);
        let size = of.size().filter(|size| *size <= bytes.len())?;
        let (holder, value) = sync::parts_of(bytes, size)?;
        let holder = holder.map_or(Value::Nothing, |it| Value::Text(it.to_string()));
        let fields = [("holder", holder), ("value", of.read(value))];
        let fields = fields.map(|(name, value)| (name.to_owned(), value));
        return Some(Value::Fields(fields.into()));
    }
    match of {
        "counter" => Some(number(word_of(bytes))),
        "client" => Some(client::last_in(bytes)),
        "barrier" => Some(Value::Fields(vec![(
            "seats".into(),
            number(word_of(bytes)),
        )])),
        _ => None,
    }
}
