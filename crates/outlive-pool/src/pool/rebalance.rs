//! Moves of slices to the servers whose processes use them.
//!
//! Readers sample their accesses. In each period the rebalancer takes the new samples, and counts
//! them by slice and by the server whose process has accessed it; accesses of processes that are no
//! servers are nearest to none. Earlier counts are halved. A slice moves to the server with the
//! most accesses if these are enough, and at least twice those of the server that has it, and the
//! slice has not moved in the last ten periods: so a slice that two servers use equally stays.

use super::{Client, MoveBudget};
use crate::coherent::{Phase, ServerId};
use crate::error::PoolError;
use crate::layout::Address;
use core::time::Duration;
use outlive::membership::Instance;
use std::collections::HashMap;
use std::time::Instant;

/// The smallest sum of samples with which a slice moves.
const LEAST: f64 = 4.0;
/// The smallest ratio of the accesses of the new server to those of the old one.
const RATIO: f64 = 2.0;
/// The number of periods in which a slice that has moved stays.
const REST: u32 = 10;

/// The counts of the accesses of all processes, from which slices are moved.
#[derive(Debug, Default)]
pub struct Rebalancer {
    period: u32,
    /// The reader of each line, and the number of its last sample.
    seen: HashMap<usize, (Instance, u32)>,
    slices: HashMap<Address, Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    /// By the number of the server and its generation.
    by_server: HashMap<(ServerId, u64), f64>,
    /// The period in which the slice was moved.
    moved: Option<u32>,
}

impl Counts {
    fn of(&self, server: ServerId) -> f64 {
        let of_it = { self.by_server.iter() }.filter(|((id, _), _)| *id == server);
        of_it.map(|(_, accesses)| accesses).sum()
    }
}

/// A move of a slice that saves accesses to another server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlannedMove {
    /// The first address of the slice.
    pub address: Address,
    /// The server that has it.
    pub from: ServerId,
    /// The server whose process uses it most.
    pub to: ServerId,
    /// The sampled accesses of the process of the old server, earlier ones with less weight.
    pub here: f64,
    /// Those of the process of the new server.
    pub there: f64,
}

/// The result of a period.
#[derive(Debug, Default)]
pub struct Rebalanced {
    /// The moves that were carried out.
    pub moved: Vec<PlannedMove>,
    /// Those that were not, each with the reason.
    pub refused: Vec<(PlannedMove, PoolError)>,
    /// The number of moves that the budget of the period did not allow.
    pub postponed: usize,
}

impl Rebalancer {
    /// Returns a rebalancer without samples.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the samples since the last call of the readers that existed then and still exist. A
    /// sample stands for about 64 guards.
    pub fn observe(&mut self, client: &Client) {
        let coherent = client.pool().coherent();
        // The owner of a dead server's entry is the survivor that recovers it.
        let servers: HashMap<Instance, (ServerId, u64)> = { coherent.servers() }
            .filter(|it| matches!(it.phase, Phase::Live | Phase::Leaving))
            .filter_map(|it| Some((it.owner?, (it.id, it.generation))))
            .collect();
        self.period += 1;
        self.slices.retain(|_, counts| {
            counts.by_server.values_mut().for_each(|it| *it /= 2.0);
            let rests = counts.moved.is_some_and(|it| self.period - it <= REST);
            rests || counts.by_server.values().any(|it| *it >= 0.1)
        });
        for samples in coherent.samples() {
            let last = samples.all.iter().map(|(number, _)| *number).max();
            let last = last.unwrap_or(0);
            let before = self.seen.insert(samples.line, (samples.owner, last));
            let before = match before {
                Some((owner, number)) if owner == samples.owner => number,
                // The samples may be those of an earlier reader.
                _ => last,
            };
            let is_new = |number: u32| number.wrapping_sub(before) as i32 > 0;
            let new: Vec<u64> = { samples.all.iter() }
                .filter(|(number, _)| is_new(*number))
                .map(|(_, slice)| *slice)
                .collect();
            let Some(server) = servers.get(&samples.owner).filter(|_| !new.is_empty()) else {
                continue;
            };
            // The ring has lost the older ones.
            let weight = f64::from(last.wrapping_sub(before)) / new.len() as f64;
            for slice in new {
                if let Some(address) = coherent.movable(slice) {
                    let counts = self.slices.entry(address).or_default();
                    *counts.by_server.entry(*server).or_default() += weight;
                }
            }
        }
    }

    /// Returns the moves that the samples suggest, those that save most first.
    pub fn plan(&self, client: &Client) -> Vec<PlannedMove> {
        let coherent = client.pool().coherent();
        let planned = self.slices.iter().filter_map(|(address, counts)| {
            let live = { counts.by_server.iter() }.filter(|it| coherent.is_live(it.0.0, it.0.1));
            let ((to, _), there) = live.max_by(|a, b| a.1.total_cmp(b.1))?;
            let from = coherent.server_at(*address)?;
            let (to, there, here) = (*to, *there, counts.of(from));
            let rests = counts.moved.is_some_and(|it| self.period - it < REST);
            let gains = to != from && there >= LEAST && there >= RATIO * here;
            (gains && !rests).then_some(PlannedMove {
                address: *address,
                from,
                to,
                here,
                there,
            })
        });
        let mut planned: Vec<_> = planned.collect();
        let gain = |it: &PlannedMove| it.there - it.here;
        planned.sort_by(|a, b| gain(b).total_cmp(&gain(a)));
        planned
    }
}

impl Client {
    /// Observes the accesses of all processes since the last call, and moves slices to the servers
    /// whose processes use them. With a bandwidth in `budget`, copies at most what that permits in
    /// `period`, the time between two calls. One process of a pool calls this.
    ///
    /// # Crash
    /// As [`move_slice`](Self::move_slice). The samples that were taken are forgotten.
    pub fn rebalance(
        &self,
        rebalancer: &mut Rebalancer,
        period: Duration,
        budget: MoveBudget,
    ) -> Rebalanced {
        rebalancer.observe(self);
        let planned = rebalancer.plan(self);
        let mut result = Rebalanced::default();
        let begin = Instant::now();
        for (done, planned_move) in planned.iter().enumerate() {
            if budget.bytes_per_second.is_some() && begin.elapsed() >= period {
                result.postponed = planned.len() - done;
                break;
            }
            let PlannedMove { address, to, .. } = *planned_move;
            match self.move_slice(address, to, budget) {
                Ok(_) => {
                    if let Some(counts) = rebalancer.slices.get_mut(&address) {
                        counts.moved = Some(rebalancer.period);
                    }
                    result.moved.push(*planned_move);
                }
                Err(error) => result.refused.push((*planned_move, error)),
            }
        }
        self.collect();
        result
    }
}
