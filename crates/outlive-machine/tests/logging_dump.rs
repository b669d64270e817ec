//! Dumps: their form, their way, where they are kept; and who saves what.

use std::io::Write;

use outlive_machine::description::{Description, OwnUnit, ReplicaHash};
use outlive_machine::engine::{Random, Time};
use outlive_machine::line::LineAddress;
use outlive_machine::logging::{
    Advance, Archive, Begun, Cleared, Commit, DumpBarrier, Epoch, FormError, LogEntry,
    LoggingError, LoggingUnit, Numbering, Piece, Repl, ReplicaGroups, Requester, Saved, Standing,
    Stored, Through, Val, pack, unpack,
};
use outlive_machine::parts::{Content, Link, WireSizes};
use outlive_machine::program::Word;
use outlive_machine::protocol::{NodeId, NodeSet};
use proptest::prelude::*;

/// Who stores, where it does not matter.
const REQUESTER: NodeId = NodeId::new(9);

fn entry() -> impl Strategy<Value = LogEntry> {
    let numbers = (0..32usize, 0..64u8, any::<u32>(), any::<u32>());
    (
        numbers,
        0..LogEntry::WORDS,
        prop_oneof![any::<u64>(), 0..5u64],
    )
        .prop_map(|((node, core, commit, epoch), word, value)| LogEntry {
            requester: Requester {
                node: NodeId::new(node),
                core,
            },
            commit: Commit(commit),
            epoch: Epoch(epoch),
            word: Word(word),
            value,
        })
}

fn pieces(node: NodeId, round: u32, dump: &[u8]) -> Vec<Piece> {
    let piece = |(index, chunk): (usize, &[u8])| {
        let mut bytes = [0; Piece::BYTES];
        bytes[..chunk.len()].copy_from_slice(chunk);
        Piece {
            node,
            round,
            index: index as u32,
            length: dump.len() as u32,
            bytes,
        }
    };
    dump.chunks(Piece::BYTES).enumerate().map(piece).collect()
}

fn archived(dumps: &[(NodeId, u32, Vec<u8>)]) -> Archive {
    let mut archive = Archive::default();
    for (node, round, dump) in dumps {
        for piece in pieces(*node, *round, dump) {
            archive.receive(&piece).unwrap();
        }
    }
    archive
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(plain).unwrap();
    gzip.finish().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_unpacked_is_what_was_packed(entries in prop::collection::vec(entry(), 0..100), node in 0..32usize, round: u32) {
        let dump = pack(NodeId::new(node), round, &entries);
        let found = unpack(&dump).unwrap();
        prop_assert_eq!((usize::from(found.node), found.round), (node, round));
        prop_assert_eq!(found.entries, entries);
    }

    #[test]
    fn damage_is_noticed(entries in prop::collection::vec(entry(), 1..20), seed: u64) {
        let dump = pack(NodeId::new(1), 1, &entries);
        for length in 0..dump.len() {
            prop_assert!(unpack(&dump[..length]).is_err(), "cut to {} of {} bytes", length, dump.len());
        }
        let mut random = Random::new(seed);
        let mut noticed = 0;
        for at in 0..dump.len() {
            let mut damaged = dump.clone();
            damaged[at] ^= 1 << random.below(8);
            match unpack(&damaged) {
                Err(_) => noticed += 1,
                // Nothing is read from gzip's time, system and such, from bits that fill up its last byte, nor from
                // the lengths of codes that are not used.
                Ok(found) => prop_assert_eq!(&found.entries, &entries),
            }
        }
        prop_assert!(noticed + 20 >= dump.len(), "{} of {}", noticed, dump.len());
        let mut longer = dump.clone();
        longer.extend_from_slice(&[0; 3]);
        prop_assert_eq!(unpack(&longer), Err(FormError::Trailing(3)));
    }

    /// Whatever is obsolete may go; whatever is not, stays, and in order.
    #[test]
    fn truncation_keeps_what_is_needed(
        dumps in prop::collection::vec(prop::collection::vec((0..3usize, 0..4u32, 0..4u64), 1..12), 1..8),
        owners in prop::collection::vec((0..3usize, 0..4u32), 4),
    ) {
        let mut commit = 0;
        let mut packed = Vec::new();
        for (round, entries) in dumps.iter().enumerate() {
            let entries: Vec<_> = entries.iter().map(|(node, epoch, line)| {
                commit += 1;
                LogEntry {
                    requester: Requester { node: NodeId::new(*node), core: 0 },
                    commit: Commit(commit),
                    epoch: Epoch(*epoch),
                    word: Word(line * 8),
                    value: 0,
                }
            }).collect();
            packed.push((NodeId::new(0), round as u32, pack(NodeId::new(0), round as u32, &entries)));
        }
        let owned = |line: LineAddress| {
            let (node, epoch) = owners[line.0 as usize];
            Standing { epoch: Epoch(epoch), owner: Some(NodeId::new(node)) }
        };
        let needed = |entries: &[LogEntry]| -> Vec<LogEntry> {
            let younger = |entry: &LogEntry| {
                let Standing { epoch, owner } = owned(entry.word.line());
                entry.epoch > epoch || (entry.epoch, Some(entry.requester.node)) == (epoch, owner)
            };
            let same = |a: &LogEntry, b: &LogEntry| (a.requester.node, a.word) == (b.requester.node, b.word);
            let is = |entry: &&LogEntry| {
                let later = |other: &LogEntry| same(other, entry) && other.commit > entry.commit && younger(other);
                younger(entry) && !entries.iter().any(later)
            };
            entries.iter().filter(is).copied().collect()
        };
        let mut archive = archived(&packed);
        let before = archive.entries().unwrap();
        let (bytes, count) = (archive.bytes(), archive.len() as u64);
        let done = archive.truncate(owned).unwrap();
        let after = archive.entries().unwrap();
        prop_assert_eq!(needed(&after), needed(&before));
        prop_assert_eq!(after.len() as u64 + done.entries, before.len() as u64);
        prop_assert!(after.len() <= 2 * needed(&before).len());
        prop_assert_eq!(archive.len() as u64 + done.dropped_dumps, count);
        prop_assert!(archive.bytes() <= bytes);
        // Nothing is obsolete that was not before.
        prop_assert_eq!(archive.truncate(owned).unwrap().entries, 0);
        let lines: Vec<_> = (0..4).map(LineAddress).collect();
        for versions in archive.fetch(&lines).unwrap() {
            let mut naive: Vec<_> = after.iter().filter(|entry| entry.word.line() == versions.line).copied().collect();
            naive.reverse();
            prop_assert_eq!(versions.updates, naive);
        }
    }
}

#[test]
fn what_is_no_dump_is_told_apart() {
    let plain = |version: u16, count: u64, entry: &[u8]| {
        let mut plain = b"RXLOGDMP".to_vec();
        plain.extend_from_slice(&version.to_le_bytes());
        plain.extend_from_slice(&[3, 0, 9, 0, 0, 0]);
        plain.extend_from_slice(&count.to_le_bytes());
        plain.extend_from_slice(entry);
        gzip(&plain)
    };
    let mut entry = [0; 24];
    assert_eq!(unpack(&plain(1, 1, &entry)).unwrap().entries.len(), 1);
    assert_eq!(unpack(&plain(2, 1, &entry)), Err(FormError::Header));
    assert_eq!(unpack(&gzip(b"RXLOG")), Err(FormError::Header));
    assert!(matches!(
        unpack(b"no gzip, by no means"),
        Err(FormError::Gzip(_))
    ));
    for count in [0, 2, u64::MAX, u64::MAX / 24 + 2] {
        let wrong = Err(FormError::Length {
            entries: count,
            bytes: 24,
        });
        assert_eq!(unpack(&plain(1, count, &entry)), wrong);
    }
    entry[0] = 32;
    assert_eq!(unpack(&plain(1, 1, &entry)), Err(FormError::Entry(0)));
    entry[0] = 31;
    entry[1] = 64;
    assert_eq!(unpack(&plain(1, 1, &entry)), Err(FormError::Entry(0)));
}

#[test]
fn a_damaged_dump_in_an_archive_is_an_error_that_names_it() {
    let node = NodeId::new(2);
    let entry = LogEntry {
        requester: Requester { node, core: 0 },
        commit: Commit(1),
        epoch: Epoch(1),
        word: Word(8),
        value: 5,
    };
    let sound = pack(node, 1, &[entry]);
    let mut damaged = pack(node, 2, &[entry]);
    let middle = damaged.len() / 2;
    damaged[middle] ^= 4;
    let mislaid = pack(node, 8, &[entry]);
    for (dump, mislays) in [(damaged, false), (mislaid, true)] {
        let mut archive = archived(&[(node, 1, sound.clone()), (node, 2, dump)]);
        let error = archive.fetch(&[LineAddress(1)]).unwrap_err();
        let LoggingError::Damaged {
            node: of,
            round: 2,
            ref why,
        } = error
        else {
            panic!("{error}")
        };
        assert_eq!(of, node);
        assert_eq!(*why == FormError::Mislaid { node: 2, round: 8 }, mislays);
        let nobody = Standing {
            epoch: Epoch(2),
            owner: None,
        };
        assert_eq!(archive.truncate(|_| nobody), Err(error));
        assert_eq!(archive.len(), 2, "nothing is dropped");
    }
}

#[test]
fn pieces_come_in_any_order_once_and_are_nothing_until_all_are_there() {
    let node = NodeId::new(3);
    let entries: Vec<_> = (0..200)
        .map(|at| LogEntry {
            requester: Requester { node, core: 1 },
            commit: Commit(at as u32 + 1),
            epoch: Epoch(1),
            word: Word(at * at * at),
            value: at.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        })
        .collect();
    let dump = pack(node, 7, &entries);
    let mut pieces = pieces(node, 7, &dump);
    assert!(pieces.len() > 20);
    let mut random = Random::new(4);
    for at in (1..pieces.len()).rev() {
        pieces.swap(at, random.below(at as u64 + 1) as usize);
    }
    let mut archive = Archive::default();
    for (at, piece) in pieces.iter().enumerate() {
        assert!(archive.is_empty());
        let last = at + 1 == pieces.len();
        let stored = archive.receive(piece).unwrap();
        assert_eq!(stored, last.then_some(Stored { node, round: 7 }));
        assert!(archive.receive(piece).is_err());
    }
    assert_eq!(archive.entries().unwrap(), entries);
    assert_eq!(archive.bytes(), dump.len() as u64);
    // What its unit's death has cut short is forgotten; what was whole is kept.
    for piece in &pieces[1..] {
        archive.receive(&Piece { round: 8, ..*piece }).unwrap();
    }
    let other = Piece {
        length: 3,
        round: 8,
        ..pieces[0]
    };
    assert!(archive.receive(&other).is_err());
    archive.lose(node);
    assert_eq!(archive.len(), 1);
    assert_eq!(
        archive
            .receive(&Piece {
                round: 8,
                ..pieces[0]
            })
            .unwrap(),
        None
    );
}

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
            // Two of the group may be dead since the groups were formed.
            let dying: Vec<_> = living.iter().take(2.min(living.len() - 1)).collect();
            let lines = 64 * 3 * 400;
            for line in (0..lines).map(LineAddress) {
                let members = groups.members(line);
                assert_eq!(members.len(), living.len().min(3));
                members.iter().for_each(|node| logs[node.index()] += 1);
                let saver = groups.saver(line, REQUESTER, living).unwrap();
                assert!(members.contains(saver));
                saves[saver.index()] += 1;
                // All members know the same saver, also among fewer.
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

/// Two units that both log everything, with a log of `stores` single words of as many lines, values drawn.
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
        panic!("it has what to save")
    };
    // Half of the lines are its own; the whole log is read, an entry in each cycle of 2 ns.
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
    // Drawn values do not shrink, all else nearly vanishes.
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
    // The link is faster than the reading: only the last message counts. So the dump takes 12.8 us and a message, at
    // 64 bytes of each 80 on the wire.
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
            panic!("it has what to save")
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
    // A log is full meanwhile: when all have cleared, the next round begins by itself.
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
        panic!("one was asked for")
    };
    assert_eq!((next.round, next.members), (begin.round + 1, members));
    let mut saved = archive.entries().unwrap();
    saved.sort_by_key(|entry| entry.commit);
    assert_eq!(saved, all);
    // Nothing to save: no dump, but part of the round.
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
    // Whoever only asks gets the round that is being saved, and a recovery does not.
    assert_eq!(barrier.ask(), None);
    assert_eq!(barrier.begin_anew(), None);
    let Some(Advance::Clear(clear)) = barrier.lose(NodeId::new(1)) else {
        panic!("the dead are not awaited")
    };
    let cleared = unit.clear(&clear).unwrap();
    let Some(Advance::Begin(next)) = barrier.cleared(&cleared).unwrap() else {
        panic!("another one is wanted")
    };
    assert_eq!(next.round, begin.round + 1);
    assert_eq!(next.members, NodeSet::only(alone));
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
    // When node 0 has died, this line's group is another one, with this node, and another member saves the line.
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
        // The other has never had it, but has had later commits of the same node.
        let mut through = Through::default();
        through.set(requester.node, Commit(5));
        let mut barrier = DumpBarrier::new(pair(other));
        let begin = barrier.begin().unwrap();
        let Begun::Save(share) = unit.begin(&begin).unwrap() else {
            panic!("nobody else can save it")
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
        // What comes under the new groups is the other's to save.
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
