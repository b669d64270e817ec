//! Rounds of dumps: the saver of each entry, and the emptying of all logs.

use outlive_machine::description::{Description, OwnUnit, ReplicaHash};
use outlive_machine::engine::{Random, Time};
use outlive_machine::line::LineAddress;
use outlive_machine::logging::{
    Advance, Archive, Begun, Cleared, Commit, DumpBarrier, Epoch, LoggingUnit, Numbering, Repl,
    ReplicaGroups, Requester, Saved, Stored, Through, Val,
};
use outlive_machine::parts::{Content, Link, WireSizes};
use outlive_machine::protocol::{NodeId, NodeSet};

/// A requester, where it does not matter which.
const REQUESTER: NodeId = NodeId::new(9);

#[test]
fn a_member_of_the_group_that_stores_is_skipped_if_that_is_said() {
    let mut description = Description::default();
    description.ours.replication.own_unit = OwnUnit::Skipped;
    for nodes in [16, 4] {
        description.system.compute_nodes = nodes;
        let groups = ReplicaGroups::new(&description);
        for line in (0..500).map(LineAddress) {
            let members = groups.members(line);
            assert_eq!(members.len(), 3);
            for requester in groups.living().iter() {
                let replicas = groups.replicas(line, requester);
                assert_eq!(replicas.len(), 3);
                match members.contains(requester) {
                    false => assert_eq!(replicas, members),
                    true => assert_eq!(
                        replicas
                            .iter()
                            .filter(|node| !members.contains(*node))
                            .count(),
                        1
                    ),
                }
                assert!(!replicas.contains(requester));
                let saver = groups.saver(line, requester, groups.living()).unwrap();
                assert!(replicas.contains(saver));
                let others = groups.living().without(saver);
                let saver = groups.saver(line, requester, others).unwrap();
                assert!(replicas.contains(saver) && others.contains(saver));
            }
        }
    }
    // As many as live: with the own unit, or without; a single survivor logs for itself.
    for own_unit in [OwnUnit::Counts, OwnUnit::Skipped] {
        description.ours.replication.own_unit = own_unit;
        let groups = ReplicaGroups::new(&description);
        for count in 1..=4 {
            let living: NodeSet = groups.living().iter().take(count).collect();
            let groups = groups.regrouped(living);
            for requester in living.iter() {
                for line in (0..20).map(LineAddress) {
                    let replicas = groups.replicas(line, requester);
                    match own_unit == OwnUnit::Counts || count == 1 {
                        true => assert_eq!(replicas.len(), count.min(3)),
                        false => assert_eq!(replicas, living.without(requester)),
                    }
                    assert!(groups.saver(line, requester, living).is_some());
                }
            }
        }
    }
    // By default a group logs its own members' stores.
    let groups = ReplicaGroups::new(&Description::default());
    let line = LineAddress(7);
    let own = groups.members(line).iter().next().unwrap();
    assert_eq!(groups.replicas(line, own), groups.members(line));
}

#[test]
fn each_line_has_one_saver_and_all_have_equal_shares() {
    for hash in [ReplicaHash::Multiply, ReplicaHash::Modulo] {
        let mut description = Description::default();
        description.ours.replication.replica_hash = hash;
        let mut groups = ReplicaGroups::new(&description);
        let mut random = Random::new(8);
        let mut living = groups.living();
        while living.len() > 1 {
            let before = living;
            let (mut logs, mut saves) = ([0u32; 32], [0u32; 32]);
            // Up to two members of the group may have died since the groups were formed.
            let dying: Vec<_> = living.iter().take(2.min(living.len() - 1)).collect();
            let lines = 64 * 3 * 400;
            for line in (0..lines).map(LineAddress) {
                let members = groups.members(line);
                assert_eq!(members.len(), living.len().min(3));
                members.iter().for_each(|node| logs[node.index()] += 1);
                let saver = groups.saver(line, REQUESTER, living).unwrap();
                assert!(members.contains(saver));
                saves[saver.index()] += 1;
                // All members agree on the saver, also among fewer members.
                let fewer: NodeSet = living.iter().filter(|node| !dying.contains(node)).collect();
                let saver = groups.saver(line, REQUESTER, fewer);
                assert_eq!(
                    saver.is_some(),
                    members.iter().any(|node| fewer.contains(node))
                );
                assert!(saver.is_none_or(|saver| members.contains(saver) && fewer.contains(saver)));
                assert_eq!(groups.saver(line, REQUESTER, NodeSet::EMPTY), None);
            }
            for (what, counts, copies) in [
                ("logs", logs, living.len().min(3) as u64),
                ("saves", saves, 1),
            ] {
                let mean = lines * copies / living.len() as u64;
                for node in living.iter() {
                    let share = u64::from(counts[node.index()]);
                    assert!(
                        share > mean * 9 / 10 && share < mean * 11 / 10,
                        "{hash:?}, {node} {what} {share} lines of {lines}, {} live",
                        living.len()
                    );
                }
            }
            let victim = living
                .iter()
                .nth(random.below(living.len() as u64) as usize)
                .unwrap();
            living = living.without(victim);
            groups = groups.regrouped(living);
            assert_eq!(groups.living(), living);
            assert!(before.contains(victim) && !living.contains(victim));
        }
    }
}

/// Two units that both log everything, with a log of `stores` single words of as many lines; values
/// are drawn.
fn pair(stores: u32) -> (Description, Vec<LoggingUnit>) {
    let mut description = Description::default();
    description.system.compute_nodes = 3;
    description.logging_unit.replication_factor = 2;
    let groups =
        ReplicaGroups::new(&description).regrouped([0, 1].map(NodeId::new).into_iter().collect());
    let mut units: Vec<_> = [0, 1]
        .map(|node| LoggingUnit::new(&description, groups.clone(), NodeId::new(node)))
        .into();
    let mut random = Random::new(3);
    let (mut numbering, requester) = (
        Numbering::default(),
        Requester {
            node: NodeId::new(2),
            core: 0,
        },
    );
    for sequence in 0..stores {
        let repl = Repl {
            requester,
            sequence,
            line: LineAddress(u64::from(sequence)),
            mask: 1,
            values: [random.bits(); 8],
        };
        let commit = numbering.commit();
        for unit in &mut units {
            let now = Time::from_nanos(u64::from(sequence) * 10);
            unit.log(now, &repl).unwrap();
            let timestamp = numbering.timestamp(unit.node());
            let val = Val {
                requester,
                sequence,
                timestamp,
                commit,
                epoch: Epoch(1),
            };
            unit.validate(now, &val).unwrap();
        }
    }
    (description, units)
}

#[test]
fn a_dump_takes_the_reading_of_the_log_and_its_last_message() {
    let (description, mut units) = pair(6_400);
    let mut barrier = DumpBarrier::new([0, 1].map(NodeId::new).into_iter().collect());
    let begin = barrier.begin().unwrap();
    let Begun::Save(share) = units[0].begin(&begin).unwrap() else {
        panic!("the unit has entries to save")
    };
    // Half of the lines are its own; the whole log is read, one entry in each cycle of 2 ns.
    let groups = ReplicaGroups::new(&description).regrouped(begin.members);
    let own =
        |line: &LineAddress| groups.saver(*line, REQUESTER, begin.members) == Some(NodeId::new(0));
    let own = (0..6_400).map(LineAddress).filter(own).count() as u64;
    assert!((3_100..3_300).contains(&own));
    assert_eq!(share.entries, own);
    assert_eq!(share.read, Time::from_nanos(2 * 6_400));
    let sent: Vec<_> = share.pieces().collect();
    let count = share.bytes().div_ceil(64) as u64;
    assert_eq!(sent.len() as u64, count);
    // Drawn values do not shrink; all else nearly vanishes.
    let own = own as usize;
    assert!((own * 8..own * 10).contains(&share.bytes()));
    let wire = WireSizes::new(&description.ours.wire).bytes(Content::Line);
    let mut link = Link::new(description.cxl.link_bandwidth, Time::from_nanos(30));
    let mut arrives = Time::ZERO;
    for (index, (ready, piece)) in sent.iter().enumerate() {
        assert_eq!(piece.index as usize, index);
        let even = u128::from(share.read.picos()) * (index as u128 + 1);
        assert_eq!(u128::from(ready.picos()), even.div_ceil(u128::from(count)));
        arrives = link.send(*ready, wire).arrives;
    }
    // The link is faster than the reading: only the last message counts. So the dump takes 12.8 us
    // and a message, at 64 bytes of each 80 on the wire.
    assert_eq!(arrives, share.read + link.unloaded(wire));
    assert_eq!(link.counts().bytes, count * 80);
    assert_eq!(link.counts().waited, Time::ZERO);
}

#[test]
fn a_round_saves_each_entry_once_and_empties_all_logs() {
    let (_, mut units) = pair(1_000);
    let members: NodeSet = [0, 1].map(NodeId::new).into_iter().collect();
    let all: Vec<_> = units[0].log_entries().collect();
    let mut barrier = DumpBarrier::new(members);
    let mut archive = Archive::default();
    let begin = barrier.begin().unwrap();
    assert_eq!(barrier.begin(), None, "one at a time");
    assert_eq!(barrier.ask(), None);
    let mut clear = None;
    for unit in &mut units {
        assert_eq!(clear, None, "only when all have saved");
        let Begun::Save(share) = unit.begin(&begin).unwrap() else {
            panic!("the unit has entries to save")
        };
        assert!(unit.begin(&begin).is_err());
        assert!(
            unit.regroup(ReplicaGroups::new(&Description::default()))
                .is_err()
        );
        let stored = share
            .pieces()
            .filter_map(|(_, piece)| archive.receive(&piece).unwrap())
            .last();
        let saved = unit.stored(&stored.unwrap()).unwrap();
        assert!(unit.stored(&stored.unwrap()).is_err());
        assert_eq!(unit.log_len(), 1_000, "it stays until all have saved");
        clear = barrier.saved(&saved).unwrap();
        assert!(barrier.saved(&saved).is_err());
    }
    let Some(Advance::Clear(clear)) = clear else {
        panic!("all have saved")
    };
    // A log has become full: when all have cleared, the next round begins by itself.
    assert_eq!(barrier.ask(), None);
    let mut next = None;
    for unit in &mut units {
        let cleared = unit.clear(&clear).unwrap();
        assert_eq!(unit.log_len(), 0);
        assert_eq!(unit.counts().cleared, 1_000);
        assert!(unit.clear(&clear).is_err());
        next = barrier.cleared(&cleared).unwrap();
    }
    let Some(Advance::Begin(next)) = next else {
        panic!("a round was requested")
    };
    assert_eq!((next.round, next.members), (begin.round + 1, members));
    let mut saved = archive.entries().unwrap();
    saved.sort_by_key(|entry| entry.commit);
    assert_eq!(saved, all);
    // Nothing to save: no dump, but the unit takes part in the round.
    let mut advance = None;
    for unit in &mut units {
        let Begun::Nothing { saved, read } = unit.begin(&next).unwrap() else {
            panic!("its log is empty")
        };
        assert_eq!(read, Time::ZERO);
        advance = barrier.saved(&saved).unwrap();
    }
    let Some(Advance::Clear(clear)) = advance else {
        panic!("all have saved")
    };
    let [one, two] = [0, 1].map(|at: usize| units[at].clear(&clear).unwrap());
    assert_eq!(barrier.cleared(&one).unwrap(), None);
    let stale = Cleared { round: 1, ..two };
    assert!(barrier.cleared(&stale).is_err());
    assert_eq!(barrier.cleared(&two).unwrap(), None);
    assert!(barrier.is_idle());
}

#[test]
fn a_round_that_is_wanted_anew_follows_one_that_is_under_way() {
    let (description, alone) = (Description::default(), NodeId::new(0));
    let groups = ReplicaGroups::new(&description);
    let mut unit = LoggingUnit::new(&description, groups, alone);
    let mut barrier = DumpBarrier::new([0, 1].map(NodeId::new).into_iter().collect());
    let begin = barrier.begin().unwrap();
    let Begun::Nothing { saved, .. } = unit.begin(&begin).unwrap() else {
        panic!("its log is empty")
    };
    assert_eq!(barrier.saved(&saved).unwrap(), None, "the other one saves");
    let Some(Advance::Clear(clear)) = barrier.lose(NodeId::new(1)) else {
        panic!("dead units are not awaited")
    };
    assert_eq!(barrier.begin_anew(), None);
    let cleared = unit.clear(&clear).unwrap();
    let Some(Advance::Begin(next)) = barrier.cleared(&cleared).unwrap() else {
        panic!("another round is requested")
    };
    assert_eq!(next.round, begin.round + 1);
    assert_eq!(next.members, NodeSet::only(alone));
}

/// Directories are being repaired: a concurrent round could remove an entry that the repair needs.
#[test]
fn no_round_begins_for_the_dead() {
    let [a, b] = [0, 1].map(NodeId::new);
    let mut barrier = DumpBarrier::new(NodeSet::only(a).with(b));
    let round = barrier.begin().expect("none is under way").round;
    for node in [a, b] {
        let through = Through::default();
        let saved = Saved {
            node,
            round,
            through,
        };
        barrier.saved(&saved).unwrap();
    }
    // A log is full again, and b dies before it has cleared.
    assert_eq!(barrier.ask(), None);
    barrier.cleared(&Cleared { node: a, round }).unwrap();
    assert_eq!(barrier.lose(b), None);
    assert!(barrier.is_idle());
    // Requested before another death, in the same recovery or in the next.
    let again = barrier.begin_anew().expect("none is under way").round;
    assert_eq!(again, round + 1);
}

#[test]
fn what_was_sent_to_old_groups_is_saved_by_whoever_has_it() {
    let description = Description::default();
    let groups = ReplicaGroups::new(&description);
    let here = NodeId::new(4);
    let requester = Requester {
        node: NodeId::new(9),
        core: 0,
    };
    // After node 0 has died, this line has another group, which includes this node, and another
    // member saves the line.
    let living = groups.living().without(NodeId::new(0));
    let new = groups.regrouped(living);
    let pair = |node| NodeSet::only(here).with(node);
    let (line, other) = (0..100_000)
        .map(LineAddress)
        .find_map(|line| {
            let (old, members) = (groups.members(line), new.members(line));
            let moved = old != members && old.contains(here) && members.contains(here);
            let saves = |node: &NodeId| new.saver(line, REQUESTER, pair(*node)) == Some(*node);
            let other = members.without(here).iter().find(saves)?;
            moved.then_some((line, other))
        })
        .unwrap();
    for unvalidated in [true, false] {
        let mut unit = LoggingUnit::new(&description, groups.clone(), here);
        let repl = Repl {
            requester,
            sequence: 0,
            line,
            mask: 1,
            values: [1; 8],
        };
        let val = Val {
            requester,
            sequence: 0,
            timestamp: 1,
            commit: Commit(1),
            epoch: Epoch(1),
        };
        unit.log(Time::ZERO, &repl).unwrap();
        if unvalidated {
            unit.regroup(new.clone()).unwrap();
            unit.validate(Time::ZERO, &val).unwrap();
        } else {
            unit.validate(Time::ZERO, &val).unwrap();
            unit.regroup(new.clone()).unwrap();
        }
        // The other member has never had the entry, but has had later commits of the same node.
        let mut through = Through::default();
        through.set(requester.node, Commit(5));
        let mut barrier = DumpBarrier::new(pair(other));
        let begin = barrier.begin().unwrap();
        let Begun::Save(share) = unit.begin(&begin).unwrap() else {
            panic!("no other unit can save it")
        };
        assert_eq!(share.entries, 1);
        let round = begin.round;
        let saved = unit.stored(&Stored { node: here, round }).unwrap();
        barrier.saved(&saved).unwrap();
        let theirs = Saved {
            node: other,
            round,
            through,
        };
        let Some(Advance::Clear(clear)) = barrier.saved(&theirs).unwrap() else {
            panic!("all have saved")
        };
        unit.clear(&clear).unwrap();
        assert_eq!(unit.log_len(), 0);
        // Entries that are logged under the new groups are the other member's to save.
        unit.log(
            Time::ZERO,
            &Repl {
                sequence: 1,
                ..repl
            },
        )
        .unwrap();
        let val = Val {
            sequence: 1,
            timestamp: 2,
            commit: Commit(2),
            ..val
        };
        unit.validate(Time::ZERO, &val).unwrap();
        assert_eq!(
            barrier.cleared(&Cleared { node: here, round }).unwrap(),
            None
        );
        assert_eq!(
            barrier.cleared(&Cleared { node: other, round }).unwrap(),
            None
        );
        let begin = barrier.begin().unwrap();
        assert!(matches!(unit.begin(&begin).unwrap(), Begun::Nothing { .. }));
    }
}
