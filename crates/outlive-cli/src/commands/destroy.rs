//! `outlive pod destroy`.

use super::Which;
use crate::failure::Failure;
use crate::look::{Look, Presence, Seen};
use crate::output;
use clap::Args;
use outlive::pod::Pod;
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
        if let Some(kept) = kept {
            output::note(format_args!(
                "{} is still used by processes that have the pod open; when they have ended, `outlive pod \
                 clean --remove` removes it",
                kept.display()
            ));
        }
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
        refuse_members(self.which.path(), &look, "pod")
    }
}

/// Returns an error if `look` at the `kind` ("pod" or "store") at `path` shows members.
pub(super) fn refuse_members(path: &Path, look: &Look, kind: &str) -> Result<(), Failure> {
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
         them first (`outlive {kind} status {path}` lists them), or use --force",
        first.level(),
        first.status.instance(),
    )))
}
