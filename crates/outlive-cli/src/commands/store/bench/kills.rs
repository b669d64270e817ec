//! The kills of a benchmark: their times, victims and recoveries.

use super::super::compute::monotonic;
use super::servers::Server;
use super::{PATIENCE, stopped};
use crate::failure::Failure;
use outlive::membership::Instance;
use outlive_store::servers::{ComputeServer, Phase};
use outlive_store::verbs::ServerId;
use serde::Serialize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The kind of a killed server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Compute,
    Memory,
    /// A compute server that restores lost replicas.
    Restorer,
}

/// Kills of one server of each kind at a time after the start.
#[derive(Clone, Debug)]
pub struct Kill {
    pub kinds: Vec<Kind>,
    pub at: Duration,
}

/// Parses kinds and a time.
pub fn parse(text: &str) -> Result<Kill, String> {
    let Some((kind, time)) = text.split_once('@') else {
        return Err("give a kind of server and a time, such as compute@2s".into());
    };
    let kinds = match kind {
        "compute" => vec![Kind::Compute],
        "memory" => vec![Kind::Memory],
        "both" => vec![Kind::Compute, Kind::Memory],
        _ => return Err(format!("`{kind}` is not compute, memory or both")),
    };
    let at = humantime::parse_duration(time).map_err(|error| error.to_string())?;
    Ok(Kill { kinds, at })
}

/// A killed server. Times are on the monotonic clock, in nanoseconds; 0 if not known yet.
#[derive(Clone, Debug)]
pub struct Killed {
    pub kind: Kind,
    pub server: u16,
    owner: Option<Instance>,
    pub at: u64,
    pub detected: u64,
    pub recovered: u64,
    pub forward: u64,
    pub back: u64,
}

impl Killed {
    /// Kills a server, a restorer if it restores now.
    pub fn kill(kind: Kind, child: &mut Server, compute: &ComputeServer) -> Result<Self, Failure> {
        let configuration = compute.store().configuration();
        let owner = match kind {
            Kind::Memory => None,
            Kind::Compute => configuration.owner_of(child.id),
            Kind::Restorer => configuration.restorer(),
        };
        if kind == Kind::Restorer {
            let mut servers = configuration.compute_servers();
            child.id = servers
                .find(|it| Some(it.owner) == owner)
                .map_or(0, |it| it.id);
        }
        Ok(Self {
            kind,
            server: child.id,
            owner,
            at: child.kill()?,
            detected: 0,
            recovered: 0,
            forward: 0,
            back: 0,
        })
    }

    /// Records the times of the events that the store's status shows by now. Returns whether the
    /// server is recovered.
    pub fn watch(&mut self, compute: &ComputeServer) -> bool {
        let configuration = compute.store().configuration();
        let (is_detected, is_recovered) = match self.kind {
            Kind::Compute | Kind::Restorer => (
                self.owner.is_none_or(|owner| compute.is_gone(owner)),
                // If the id has another owner, it has failed and was recycled.
                self.owner.is_none_or(|owner| {
                    configuration.has_failed(self.server)
                        || configuration.owner_of(self.server) != Some(owner)
                }),
            ),
            Kind::Memory => {
                let entry = configuration.memory_server(ServerId(self.server));
                let epoch = configuration.epoch();
                let is_lost = configuration.lost(epoch).any(|it| it.0 == self.server);
                (
                    entry.is_none_or(|entry| entry.phase != Phase::Live),
                    is_lost && configuration.is_settled(epoch),
                )
            }
        };
        let now = monotonic();
        if (is_detected || is_recovered) && self.detected == 0 {
            self.detected = now;
        }
        if is_recovered && self.recovered == 0 {
            self.recovered = now;
        }
        is_recovered
    }
}

/// The servers of a benchmark.
pub struct Servers<'a> {
    pub compute: &'a mut [Server],
    /// Compute servers that have not begun: one for each that is killed, or none.
    pub standbys: &'a mut [Server],
    pub memory: &'a mut [Server],
}

/// The times of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// The start on the monotonic clock, in nanoseconds.
    pub start: u64,
    pub duration: Duration,
}

/// Kills servers of each kind at their times, and waits for their recovery. Then a standby takes
/// the place of a compute server.
pub fn execute(
    kills: &[Kill],
    compute: &ComputeServer,
    servers: &mut Servers<'_>,
    Times { start, duration }: Times,
    stop: &AtomicBool,
) -> Result<Vec<Killed>, Failure> {
    let configuration = compute.store().configuration();
    let since = |at: u64| Duration::from_nanos(monotonic() - at);
    let mut kills = kills.to_vec();
    kills.sort_unstable_by_key(|it| it.at);
    let mut computes = servers.compute.iter_mut().rev();
    let mut memories = servers.memory.iter_mut().rev();
    let mut standbys = servers.standbys.iter_mut();
    let mut all = Vec::new();
    for Kill { kinds, at } in kills {
        while since(start) < at {
            if stop.load(Ordering::Relaxed) {
                return Err(stopped());
            }
            let left = at.saturating_sub(since(start));
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
        let before = configuration.recovered();
        let mut killed = Vec::new();
        for kind in kinds {
            let victim = match kind {
                Kind::Compute => computes.next(),
                Kind::Memory => memories.next(),
                Kind::Restorer => None,
            };
            let victim = victim.expect("the number of kills is checked");
            killed.push(Killed::kill(kind, victim, compute)?);
        }
        let (begin, killed_now) = (monotonic(), killed.len());
        loop {
            let recovered = killed.iter_mut().map(|it| it.watch(compute));
            if recovered.filter(|it| *it).count() == killed_now {
                break;
            }
            if stop.load(Ordering::Relaxed) {
                return Err(stopped());
            }
            if since(begin) > PATIENCE {
                return Err(Failure::new(format_args!(
                    "a killed server was not recovered within {} s; `outlive store status` shows \
                     its state while the run lasts",
                    PATIENCE.as_secs()
                )));
            }
            std::thread::sleep(Duration::from_micros(20));
        }
        if killed.iter().any(|it| it.kind == Kind::Compute)
            && let Some(standby) = standbys.next()
        {
            standby.begin(duration.saturating_sub(since(start)))?;
        }
        let after = configuration.recovered();
        if let Some(it) = killed.iter_mut().find(|it| it.kind == Kind::Compute) {
            it.forward = after.forward - before.forward;
            it.back = after.back - before.back;
        }
        all.extend(killed);
    }
    Ok(all)
}
