//! `outlive pool rebuild`: replicas that were lost with their servers are rebuilt on others.

use super::moving::{Moved, Moving, Words};
use crate::failure::Failure;
use clap::Args;
use serde::Serialize;

/// Arguments of `outlive pool rebuild`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive pool rebuild /dev/shm/pool\n  \
    outlive pool rebuild /dev/shm/pool --budget 500M\n\n\
    Readers and writers continue. `outlive pool serve` does the same every few seconds. A slice is \
    rebuilt on a server that has no other replica of it. The command exits with 1 if it could not \
    rebuild a replica; a server may be rebuilding it.\n\n\
    JSON: path, rebuilt, bytes, seconds and remaining (address, why).")]
pub struct Rebuild {
    #[command(flatten)]
    moving: Moving,
}

#[derive(Serialize)]
struct Answer {
    rebuilt: u64,
}

impl Rebuild {
    pub fn run(self) -> Result<(), Failure> {
        let words = Words {
            thing: "replica",
            done: "rebuilt",
            remains: "is lost",
        };
        self.moving.run(
            |client, budget| {
                let result = client.rebuild(budget);
                Ok(Moved {
                    count: result.rebuilt,
                    remaining: result.remaining,
                })
            },
            |rebuilt| Answer { rebuilt },
            words,
        )
    }
}
