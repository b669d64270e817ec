//! `outlive pod destroy`.

use super::Which;
use crate::failure::Failure;
use crate::look::{Look, Presence, Seen};
use crate::output;
use clap::Args;
use outlive::pod::Pod;

/// The end of a pod.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive pod destroy /dev/shm/demo\n  \
    outlive pod destroy /dev/shm/demo --force   # although members live\n\n\
    A file loses its name, a device its superblock. Members that have a file open go on with it until the \
    last of them ends. What is damaged or was never completed is removed too; what is not a segment is not.")]
pub struct Destroy {
    #[command(flatten)]
    which: Which,
    /// Remove it although members live
    #[arg(long)]
    force: bool,
}

impl Destroy {
    pub fn run(self) -> Result<(), Failure> {
        let path = self.which.path();
        if !self.force {
            self.refuse_while_used()?;
        }
        if let Some(kept) = Pod::destroy(path)? {
            output::note(format_args!(
                "{} is still used by processes that have the pod open; when they have ended, `outlive pod \
                 clean --remove` removes it",
                kept.display()
            ));
        }
        output::line(format_args!("destroyed the pod {}", path.display()))
    }

    fn refuse_while_used(&self) -> Result<(), Failure> {
        // What cannot be opened has no members that could be known; whether it may be removed is decided
        // there.
        let Ok(pod) = self.which.open() else {
            return Ok(());
        };
        let look = Look::at(&pod);
        // Closed, because a process that has the pod open prevents its removal.
        pod.close()?;
        let there: Vec<&Seen> = look.there().collect();
        let Some(first) = there.first() else {
            return Ok(());
        };
        let elsewhere = there
            .iter()
            .all(|seen| seen.presence == Some(Presence::Unknown));
        let path = self.which.path().display();
        let count = match there.len() {
            1 => "a member".into(),
            many => format!("{many} members"),
        };
        let sure = if elsewhere {
            " (as far as can be told from here)"
        } else {
            ""
        };
        Err(Failure::new(format_args!(
            "{path} was not destroyed, since it has {count}{sure}, among them the {} {}: stop them first \
             (`outlive pod status {path}` names them), or say --force",
            first.level(),
            first.status.instance(),
        )))
    }
}
