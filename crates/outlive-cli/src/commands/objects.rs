//! `outlive pod objects` and `outlive pod remove-object`.

use super::Which;
use crate::failure::Failure;
use crate::output;
use crate::table::Table;
use clap::Args;
use outlive::objects::{Description, Directory};
use outlive::pod::Pod;
use serde::Serialize;

/// Arguments of `outlive pod objects`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive pod objects /dev/shm/demo\n  \
    outlive pod objects /dev/shm/demo --json | jq '.[].name'\n\n\
    The command joins the pod for a moment, as a host of its own. ENTRIES is approximate while an \
    object is in use; only maps, lists and cells have entries. USERS are the ids of the members \
    that have the object open, once for each handle.\n\n\
    JSON: an array of objects: name, type, entries, users; docs/json.md says what they mean.")]
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
    users: &'a [u32],
}

impl<'a> Object<'a> {
    fn of(it: &'a Description) -> Self {
        Self {
            name: &it.name,
            of: &it.of,
            entries: it.entries,
            users: &it.users,
        }
    }
}

/// Returns the objects of a pod. Creates no directory.
fn list(pod: &Pod) -> Result<Vec<Description>, Failure> {
    let directory = pod.heap().map(Directory::open).transpose();
    if directory.map_err(Failure::new)?.flatten().is_none() {
        return Ok(Vec::new());
    }
    pod.session()?.objects().list().map_err(Failure::new)
}

impl Objects {
    pub fn run(self) -> Result<(), Failure> {
        let all = list(&self.which.open()?)?;
        if self.json {
            let all: Vec<_> = all.iter().map(Object::of).collect();
            return output::json(&all);
        }
        if all.is_empty() {
            return output::line("no named objects");
        }
        let mut table = Table::new(["NAME", "TYPE", "ENTRIES", "USERS"]);
        for it in &all {
            let users: Vec<String> = it.users.iter().map(u32::to_string).collect();
            table.row([
                it.name.clone(),
                it.of.clone(),
                it.entries
                    .map_or_else(String::new, |entries| entries.to_string()),
                users.join(" "),
            ]);
        }
        table.lines().try_for_each(output::line)
    }
}

/// Arguments of `outlive pod remove-object`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive pod remove-object /dev/shm/demo words\n  \
    outlive pod remove-object /dev/shm/demo words --unlink   # even while it is in use\n\n\
    The object loses its name and is destroyed, with its contents. The command refuses an object \
    that members have open. With --unlink it removes the name at once; the object is destroyed \
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
        if !list(&pod)?.iter().any(|it| it.name == self.name) {
            let path = self.which.path().display();
            return Err(Failure::new(format_args!(
                "there is no object {:?}; `outlive pod objects {path}` lists the objects",
                self.name
            )));
        }
        let session = pod.session()?;
        let objects = session.objects();
        match self.unlink {
            true => objects.unlink(&self.name),
            false => objects.remove(&self.name),
        }
        .map_err(Failure::new)?;
        let done = if self.unlink { "unlinked" } else { "removed" };
        output::line(format_args!("{done} {:?}", self.name))
    }
}
