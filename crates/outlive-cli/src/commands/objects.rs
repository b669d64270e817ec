//! `outlive pod objects`, `outlive pod dump` and `outlive pod remove-object`.

use super::Which;
use crate::failure::Failure;
use crate::output;
use crate::table::Table;
use clap::Args;
use outlive::objects::{Description, Directory, Dump as Dumped, ObjectError, Value};
use outlive::pod::Pod;
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};
use std::fmt::Display;

/// Arguments of `outlive pod objects`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive pod objects /dev/shm/demo\n  \
    outlive pod objects /dev/shm/demo --json | jq '.[].name'\n\n\
    The command does not join the pod and changes nothing. ENTRIES is approximate while an object \
    is in use, and after deaths (`outlive pod dump` reads all entries); only maps, lists and cells \
    have entries. BYTES is the size of the contents of the \
    other objects. USERS are the ids of the members that have the object open, once for each \
    handle.\n\n\
    JSON: an array of objects: name, type, entries, bytes, holder, users; docs/json.md says what \
    they mean.")]
pub struct Objects {
    #[command(flatten)]
    which: Which,
    /// Print the objects as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Object<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    of: &'a str,
    entries: Option<u64>,
    bytes: u64,
    holder: Option<String>,
    users: &'a [u32],
}

impl<'a> Object<'a> {
    fn of(it: &'a Description) -> Self {
        Self {
            name: &it.name,
            of: &it.of,
            entries: it.entries,
            bytes: it.bytes,
            holder: it.holder.map(|holder| holder.to_string()),
            users: &it.users,
        }
    }
}

/// Returns the directory of a pod, if it has one.
fn directory(pod: &Pod) -> Result<Option<Directory>, Failure> {
    let directory = pod.heap().map(Directory::open).transpose();
    Ok(directory.map_err(Failure::new)?.flatten())
}

impl Objects {
    pub fn run(self) -> Result<(), Failure> {
        let pod = self.which.observe()?;
        let all = match directory(&pod)? {
            Some(directory) => directory.observe().map_err(Failure::new)?,
            None => Vec::new(),
        };
        if self.json {
            let all: Vec<_> = all.iter().map(Object::of).collect();
            return output::json(&all);
        }
        if all.is_empty() {
            return output::line("no named objects");
        }
        let mut table = Table::new(["NAME", "TYPE", "ENTRIES", "BYTES", "USERS"]);
        for it in &all {
            let users: Vec<String> = it.users.iter().map(u32::to_string).collect();
            let (entries, bytes) = match it.entries {
                Some(entries) => (format!("about {entries}"), String::new()),
                None => (String::new(), it.bytes.to_string()),
            };
            let name = output::printable(&it.name);
            let of = output::printable(&it.of);
            table.row([name, of, entries, bytes, users.join(" ")]);
        }
        table.lines().try_for_each(output::line)
    }
}

/// Arguments of `outlive pod dump`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive pod dump /dev/shm/demo words\n  \
    outlive pod dump /dev/shm/demo words --json | jq '.contents[] | select(.key == \"ash\")'\n\n\
    The command does not join the pod and changes nothing. It reads the contents until two \
    readings agree. If the object changes during every reading, it reports that parts of the \
    contents may be of different moments. Values of types without a known layout (bytes, values \
    encoded by serde, structs in structs) are printed in hexadecimal; the text form shows their \
    first 64 bytes.\n\n\
    JSON: name, type, entries, bytes, holder, users, torn, contents; docs/json.md says what they \
    mean.")]
pub struct Dump {
    #[command(flatten)]
    which: Which,
    /// The object's name
    name: String,
    /// Print the object as JSON
    #[arg(long)]
    json: bool,
}

/// The contents of an object, serialised as JSON.
struct Contents<'a>(&'a Value);

#[derive(Serialize)]
struct Entry<'a> {
    key: Contents<'a>,
    value: Contents<'a>,
}

impl Serialize for Contents<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Unsigned(number) => match u64::try_from(*number) {
                Ok(number) => to.serialize_u64(number),
                Err(_) => to.serialize_u128(*number),
            },
            Value::Signed(number) => match i64::try_from(*number) {
                Ok(number) => to.serialize_i64(number),
                Err(_) => to.serialize_i128(*number),
            },
            Value::Float(number) => to.serialize_f64(*number),
            Value::Text(text) => to.serialize_str(text),
            Value::Bytes(bytes) => {
                let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                to.serialize_str(&hex)
            }
            Value::List(values) => {
                let mut list = to.serialize_seq(Some(values.len()))?;
                for value in values {
                    list.serialize_element(&Contents(value))?;
                }
                list.end()
            }
            Value::Fields(fields) => {
                let mut map = to.serialize_map(Some(fields.len()))?;
                for (name, value) in fields {
                    map.serialize_entry(name, &Contents(value))?;
                }
                map.end()
            }
            Value::Entries(entries) => {
                let mut list = to.serialize_seq(Some(entries.len()))?;
                for (key, value) in entries {
                    let (key, value) = (Contents(key), Contents(value));
                    list.serialize_element(&Entry { key, value })?;
                }
                list.end()
            }
            Value::Nothing => to.serialize_none(),
        }
    }
}

#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    object: Object<'a>,
    /// Whether the object changed during every reading.
    torn: bool,
    contents: Contents<'a>,
}

impl Dump {
    pub fn run(self) -> Result<(), Failure> {
        let pod = self.which.observe()?;
        let name = self.name.clone();
        let found = match directory(&pod)? {
            Some(directory) => directory.dump(&self.name),
            None => Err(ObjectError::NotFound { name }),
        };
        let Dumped {
            description,
            contents,
            is_torn,
        } = found.map_err(|error| self.which.explain(error))?;
        if self.json {
            return output::json(&Whole {
                object: Object::of(&description),
                torn: is_torn,
                contents: Contents(&contents),
            });
        }
        let name = output::printable(&description.name);
        output::line(format_args!(
            "{name}: {}",
            output::printable(&description.of)
        ))?;
        let line = |label: &dyn Display, value: &Value| {
            let line = format!("  {label}: {value}");
            output::line(output::printable(&line))
        };
        match &contents {
            Value::Entries(entries) => {
                { entries.iter() }.try_for_each(|(key, value)| line(key, value))
            }
            Value::Fields(fields) => {
                { fields.iter() }.try_for_each(|(name, value)| line(name, value))
            }
            Value::List(values) => {
                { values.iter().enumerate() }.try_for_each(|(at, value)| line(&at, value))
            }
            value => output::line(format_args!("  {}", output::printable(value))),
        }?;
        if is_torn {
            output::note(
                "it changed during every reading; parts of it may be of different moments",
            );
        }
        Ok(())
    }
}

/// Arguments of `outlive pod remove-object`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive pod remove-object /dev/shm/demo words\n  \
    outlive pod remove-object /dev/shm/demo words --unlink   # even while it is in use\n\n\
    The object loses its name and is destroyed, with its contents. The command refuses an object \
    that members have open. With --unlink it removes the name immediately; the object is destroyed \
    when its last user closes it or is recovered after its death.")]
pub struct RemoveObject {
    #[command(flatten)]
    which: Which,
    /// The object's name
    name: String,
    /// Remove the name even while members have the object open
    #[arg(long)]
    unlink: bool,
}

impl RemoveObject {
    pub fn run(self) -> Result<(), Failure> {
        let pod = self.which.open()?;
        let not_found = || ObjectError::NotFound {
            name: self.name.clone(),
        };
        // Checked first, because a session would create a directory.
        directory(&pod)?.ok_or_else(|| self.which.explain(not_found()))?;
        let session = pod.session()?;
        let objects = session.objects();
        match self.unlink {
            true => objects.unlink(&self.name),
            false => objects.remove(&self.name),
        }
        .map_err(|error| self.which.explain(error))?;
        let done = if self.unlink { "unlinked" } else { "removed" };
        output::line(format_args!("{done} {:?}", self.name))
    }
}

impl Which {
    /// Adds a hint to the error about an object that does not exist.
    fn explain(&self, error: ObjectError) -> Failure {
        match error {
            ObjectError::NotFound { .. } => Failure::new(format_args!(
                "{error}; `outlive pod objects {}` lists the objects",
                self.path().display()
            )),
            error => Failure::new(error),
        }
    }
}
