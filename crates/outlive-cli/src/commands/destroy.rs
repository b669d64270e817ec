//! `outlive pod destroy`.

use super::Which;
use crate::failure::Failure;
use crate::look::{Look, Presence, Seen};
use crate::output;
use clap::Args;
use outlive::pod::Pod;
use std::fmt::Display;
use std::path::Path;

/// Arguments of `outlive pod destroy`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive pod destroy /dev/shm/demo\n  \
    outlive pod destroy /dev/shm/demo --force   # even if members live\n\n\
    The command removes the name of a file, or the superblock on a device. Members that have the \
    file open can use it until the last of them ends. A damaged or incomplete segment is removed \
    too; a file that is not a segment is not removed.")]
pub struct Destroy {
    #[command(flatten)]
    which: Which,
    /// Destroy the pod even if members live
    #[arg(long)]
    force: bool,
}

impl Destroy {
    pub fn run(self) -> Result<(), Failure> {
        let path = self.which.path();
        let kept = match self.force {
            true => Pod::destroy_forcibly(path)?,
            false => {
                self.refuse_while_used()?;
                Pod::destroy(path)?
            }
        };
        note_kept(kept.as_deref());
        output::line(format_args!("destroyed the pod {}", path.display()))
    }

    fn refuse_while_used(&self) -> Result<(), Failure> {
        // The members of a pod that cannot be opened are not known; `Pod::destroy` decides about
        // it.
        let Ok(pod) = self.which.open() else {
            return Ok(());
        };
        let look = Look::at(&pod);
        // Closed, because a process that has the pod open prevents its removal.
        pod.close()?;
        refuse_members(self.which.path(), &look, "pod status")
    }
}

/// Prints a note about the side file that processes with the destroyed pod still use.
pub(super) fn note_kept(side_file: Option<&Path>) {
    if let Some(kept) = side_file {
        output::note(format_args!(
            "{} is still used by processes that have the pod open; when they have ended, `outlive pod \
             clean --remove` removes it",
            kept.display()
        ));
    }
}

/// Returns the failure to open the store or pool at `path`, with a hint if it is a pod: that can be
/// removed nevertheless.
pub(super) fn not_opened(path: &Path, error: impl Display) -> Failure {
    match Pod::observe(path) {
        Ok(_) => Failure::new(format_args!(
            "{error}; --force removes this pod; `outlive pod destroy` removes it if it has no live \
             members"
        )),
        Err(_) => Failure::new(error),
    }
}

/// Returns an error if `look` at the pod at `path` shows members. `outlive LISTING` lists them.
pub(super) fn refuse_members(path: &Path, look: &Look, listing: &str) -> Result<(), Failure> {
    let there: Vec<&Seen> = look.there().collect();
    let Some(first) = there.first() else {
        return Ok(());
    };
    let elsewhere = there
        .iter()
        .all(|seen| seen.presence == Some(Presence::Unknown));
    let path = path.display();
    let count = match there.len() {
        1 => "a member".into(),
        many => format!("{many} members"),
    };
    let sure = if elsewhere {
        " (as far as can be determined from here)"
    } else {
        ""
    };
    Err(Failure::new(format_args!(
        "{path} was not destroyed, because it has {count}{sure}, among them the {} {}: stop \
         them first (`outlive {listing} {path}` lists them), or use --force",
        first.level(),
        first.status.instance(),
    )))
}
