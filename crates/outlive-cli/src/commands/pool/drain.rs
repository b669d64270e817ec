//! `outlive pool drain`: the slices of a server move to the other servers.

use super::moving::{Moved, Moving, Words};
use crate::failure::Failure;
use clap::Args;
use outlive_pool::ServerId;
use serde::Serialize;

/// Arguments of `outlive pool drain`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive pool drain /dev/shm/pool 1\n  \
    outlive pool drain /dev/shm/pool 1 --budget 500M\n\n\
    Readers and writers continue, and addresses stay the same. The slices go to the servers with \
    the most free memory. Those of leased objects do not move. The command exits with 1 if slices \
    remain. Clients can still allocate on the server. To remove a server, end `outlive pool serve` \
    with Ctrl-C, which moves its slices as well.\n\n\
    JSON: path, server, moved, bytes, seconds and remaining (address, why).")]
pub struct Drain {
    #[command(flatten)]
    moving: Moving,
    /// Number of the server
    server: u16,
}

#[derive(Serialize)]
struct Answer {
    server: u16,
    moved: u64,
}

impl Drain {
    pub fn run(self) -> Result<(), Failure> {
        let server = self.server;
        let done = format!("moved from server {server}");
        let words = Words {
            thing: "slice",
            done: &done,
            remains: "remains",
        };
        self.moving.run(
            |client, budget| {
                let drained = client.drain(ServerId(server), budget)?;
                Ok(Moved {
                    count: drained.moved,
                    remaining: drained.remaining,
                })
            },
            |moved| Answer { server, moved },
            words,
        )
    }
}
