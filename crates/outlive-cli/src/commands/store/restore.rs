//! `outlive store restore`: new replicas in place of lost ones.

use super::Which;
use crate::amount::Bytes;
use crate::failure::Failure;
use crate::output;
use clap::Args;
use outlive_store::servers::Store;
use serde::Serialize;

/// Arguments of `outlive store restore`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  \
    outlive store restore /dev/shm/bank    # on the live memory servers\n\n\
    Copies each object that has lost a replica to another live memory server, while transactions \
    run. If the command dies, the next one continues. It exits with 1 if replicas are still \
    missing. `outlive store add-memory` adds a memory server and runs this command.\n\n\
    JSON: path, replicas, objects, bytes, missing_replicas, under_replicated, without_space and \
    lost; docs/json.md says what they mean.")]
pub struct Restore {
    #[command(flatten)]
    which: Which,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Answer {
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
        let missing = restored.missing;
        let answer = Answer {
            path: self.which.path.display().to_string(),
            replicas: restored.replicas,
            objects: restored.copied.objects,
            bytes: restored.copied.bytes,
            missing_replicas: missing.replicas,
            under_replicated: missing.partitions,
            without_space: restored.without_space,
            lost: missing.lost,
        };
        if self.json {
            output::json(&answer)?;
        } else {
            output::line(format_args!(
                "{}: {} replicas of partitions restored; {} objects with {} copied",
                answer.path,
                answer.replicas,
                answer.objects,
                Bytes(answer.bytes),
            ))?;
        }
        answer.complete()
    }
}

impl Answer {
    /// Returns an error if replicas are missing.
    fn complete(&self) -> Result<(), Failure> {
        if self.lost > 0 {
            return Err(Failure::new(format_args!(
                "all replicas of {} partitions of {} are lost, and with them their keys; if you \
                 have a dump, load it into a new store (`outlive store load`)",
                self.lost, self.path
            )));
        }
        if self.missing_replicas > 0 {
            return Err(Failure::new(format_args!(
                "{} replicas of {} partitions are still missing, {} of them for lack of space; \
                 start more memory servers with `outlive store add-memory {}`",
                self.missing_replicas, self.under_replicated, self.without_space, self.path,
            )));
        }
        Ok(())
    }
}
