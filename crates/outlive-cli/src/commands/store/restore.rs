//! `outlive store restore`: new replicas in place of lost ones.

use super::Which;
use crate::amount::Bytes;
use crate::failure::Failure;
use crate::output;
use clap::Args;
use outlive_store::servers::{Restored, Store};
use serde::Serialize;
use std::path::Path;

/// Arguments of `outlive store restore`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  \
    outlive store restore /dev/shm/bank    # on memory servers that are there already\n\n\
    `outlive store add-memory` adds a memory server and restores. This command copies each object that has lost a replica to another live memory server, while transactions \
    run. If the command dies, the next one continues. It exits with 1 if replicas are still \
    missing.\n\n\
    JSON: path, replicas, objects, bytes, missing_replicas, under_replicated, without_space and \
    lost; docs/json.md says what they mean.")]
pub struct Restore {
    #[command(flatten)]
    which: Which,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// The result of a restoration.
#[derive(Serialize)]
pub struct Answer {
    path: String,
    replicas: u64,
    objects: u64,
    bytes: u64,
    missing_replicas: u64,
    under_replicated: u64,
    without_space: u64,
    lost: u64,
}

impl Restore {
    pub fn run(self) -> Result<(), Failure> {
        let store = Store::open(&self.which.path)?;
        let restored = store.join_compute()?.restore()?;
        let answer = Answer::of(&self.which.path, restored);
        if self.json {
            output::json(&answer)?;
        } else {
            answer.say()?;
        }
        answer
            .missing()
            .map_or(Ok(()), |missing| Err(Failure::new(missing)))
    }
}

impl Answer {
    pub fn of(path: &Path, restored: Restored) -> Self {
        let missing = restored.missing;
        Self {
            path: path.display().to_string(),
            replicas: restored.replicas,
            objects: restored.copied.objects,
            bytes: restored.copied.bytes,
            missing_replicas: missing.replicas,
            under_replicated: missing.partitions,
            without_space: restored.without_space,
            lost: missing.lost,
        }
    }

    pub fn say(&self) -> Result<(), Failure> {
        output::line(format_args!(
            "{}: {} replicas of partitions restored; {} objects with {} copied",
            self.path,
            self.replicas,
            self.objects,
            Bytes(self.bytes),
        ))
    }

    /// Describes the replicas that are missing, if there are any.
    pub fn missing(&self) -> Option<String> {
        if self.lost > 0 {
            return Some(format!(
                "all replicas of {} partitions of {} are lost, and with them their keys; if you have a \
                 dump, load it into a new store (`outlive store load`)",
                self.lost, self.path
            ));
        }
        (self.missing_replicas > 0).then(|| {
            format!(
                "{} replicas of {} partitions are still missing, {} of them for lack of space; \
                 start more memory servers with `outlive store add-memory {}`",
                self.missing_replicas, self.under_replicated, self.without_space, self.path,
            )
        })
    }
}
