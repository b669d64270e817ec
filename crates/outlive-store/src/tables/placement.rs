//! The memory servers of a partition.

use super::geometry::mix;
use super::{Geometry, ObjectId};
use crate::verbs::{RemoteOffset, ServerId};

/// The largest number of replicas of an object.
pub const MAX_REPLICAS: usize = 8;

/// The place of a partition's replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The memory server that holds the replica.
    pub server: ServerId,
    /// The start of the partition in the server's region.
    pub base: RemoteOffset,
    /// The step of a restoration with which the replica joined its partition; 0 if it has been
    /// there since the table was created. Steps are counted from 1. With each odd one, replicas
    /// join and begin to receive all writes. With the next one, they are complete.
    pub step: u8,
}

impl Place {
    /// Returns whether writes go to the replica after this number of steps.
    pub const fn is_used(&self, steps: u8) -> bool {
        self.step <= steps
    }

    /// Returns whether the replica has all objects after this number of steps, so that it can be a
    /// primary.
    pub const fn is_complete(&self, steps: u8) -> bool {
        self.step == 0 || self.step < steps
    }

    /// Returns the offset of a word of `object` in the server's region.
    pub fn of(&self, object: ObjectId, word: u64) -> RemoteOffset {
        self.base + (object.offset() + word)
    }
}

/// A table's sizes and the places of its replicas.
#[derive(Clone, Debug)]
pub struct TableLayout {
    /// The sizes of the table.
    pub geometry: Geometry,
    /// The places of each partition's replicas, in the order in which these joined. The first one
    /// that is complete and live is the primary. A replica that joins therefore never replaces a
    /// live primary.
    pub places: Vec<Vec<Place>>,
}

impl TableLayout {
    /// Returns the places of an object's replicas.
    pub fn replicas(&self, object: ObjectId) -> &[Place] {
        &self.places[usize::from(object.partition())]
    }
}

/// Chooses `count` of `servers` for `point`, in order of preference, by rendezvous hashing: a form
/// of consistent hashing, in which a server that is added or lost changes only its own share of the
/// choices.
pub fn choose(point: u64, servers: &[ServerId], count: usize) -> Vec<ServerId> {
    let mut servers = servers.to_vec();
    let weight = |server: &ServerId| mix(mix(point) ^ u64::from(server.0));
    servers.sort_unstable_by_key(|server| core::cmp::Reverse(weight(server)));
    servers.truncate(count);
    servers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_server_changes_its_own_share_only() {
        let all: Vec<_> = (0..5).map(ServerId).collect();
        let left: Vec<_> = (0..4).map(ServerId).collect();
        let mut shares = [0; 5];
        for point in 0..1000 {
            let (before, after) = (choose(point, &all, 2), choose(point, &left, 2));
            shares[usize::from(before[0].0)] += 1;
            if !before.contains(&ServerId(4)) {
                assert_eq!(before, after);
            }
        }
        assert!(
            shares.iter().all(|share| (120..280).contains(share)),
            "{shares:?}"
        );
    }
}
