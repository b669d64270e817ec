//! Dumps: their format, their path, and their storage.

use std::io::Write;

use outlive_machine::engine::Random;
use outlive_machine::line::LineAddress;
use outlive_machine::logging::{
    Archive, Commit, Epoch, FormError, LogEntry, LoggingError, Piece, Requester, Standing, Stored,
    pack, unpack,
};
use outlive_machine::program::Word;
use outlive_machine::protocol::NodeId;
use proptest::prelude::*;

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
                // Reading ignores gzip's time, system and such, the bits that fill up its last
                // byte, and the lengths of unused codes.
                Ok(found) => prop_assert_eq!(&found.entries, &entries),
            }
        }
        prop_assert!(noticed + 20 >= dump.len(), "{} of {}", noticed, dump.len());
        let mut longer = dump.clone();
        longer.extend_from_slice(&[0; 3]);
        prop_assert_eq!(unpack(&longer), Err(FormError::Trailing(3)));
    }

    /// Only obsolete entries may be removed; the others stay, in order.
    #[test]
    fn truncation_keeps_what_is_needed(
        dumps in prop::collection::vec(prop::collection::vec((1..5u32, 0..4u64, 0..2u64), 1..12), 1..8),
        said in prop::collection::vec((0..5u32, any::<bool>()), 4),
    ) {
        // An epoch has one owner.
        let owner = |line: LineAddress, epoch: Epoch| NodeId::new((line.0 as usize + epoch.0 as usize * 2) % 3);
        let mut commit = 0;
        let mut packed = Vec::new();
        for (round, entries) in dumps.iter().enumerate() {
            let entries: Vec<_> = entries.iter().map(|(epoch, line, place)| {
                commit += 1;
                let (epoch, word) = (Epoch(*epoch), Word(line * 8 + place));
                let requester = Requester { node: owner(word.line(), epoch), core: 0 };
                LogEntry { requester, commit: Commit(commit), epoch, word, value: u64::from(commit) }
            }).collect();
            packed.push((NodeId::new(0), round as u32, pack(NodeId::new(0), round as u32, &entries)));
        }
        let standing = |line: LineAddress| {
            let (epoch, owned) = said[line.0 as usize];
            let epoch = Epoch(epoch);
            Standing { epoch, owner: owned.then(|| owner(line, epoch)) }
        };
        let needed = |entries: &[LogEntry]| -> Vec<LogEntry> {
            let is = |entry: &&LogEntry| {
                let Standing { epoch, owner } = standing(entry.word.line());
                let mut of_line = entries.iter().filter(|other| other.word.line() == entry.word.line());
                let later = |other: &LogEntry| other.epoch > entry.epoch
                    || (other.epoch, other.word) == (entry.epoch, entry.word) && other.commit > entry.commit;
                let is_owned = entry.epoch > epoch || entry.epoch == epoch && owner.is_some();
                is_owned && !of_line.any(later)
            };
            entries.iter().filter(is).copied().collect()
        };
        let mut archive = archived(&packed);
        let before = archive.entries().unwrap();
        let (bytes, count) = (archive.bytes(), archive.len() as u64);
        let (done, left) = archive.truncate(standing).unwrap();
        let after = archive.entries().unwrap();
        prop_assert_eq!(needed(&after), needed(&before));
        let mut lines: Vec<_> = needed(&before).iter().map(|entry| entry.word.line()).collect();
        lines.sort_unstable();
        lines.dedup();
        prop_assert_eq!(left, lines);
        prop_assert_eq!(after.len() as u64 + done.entries, before.len() as u64);
        prop_assert!(after.len() <= 2 * needed(&before).len());
        prop_assert_eq!(archive.len() as u64 + done.dropped_dumps, count);
        prop_assert!(archive.bytes() <= bytes);
        // No entry becomes obsolete by truncation.
        prop_assert_eq!(archive.truncate(standing).unwrap().0.entries, 0);
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
        assert_eq!(archive.truncate(|_| nobody).unwrap_err(), error);
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
    // A dump that the unit's death has cut short is discarded; complete dumps are kept.
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
