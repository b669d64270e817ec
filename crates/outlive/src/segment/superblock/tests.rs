use super::*;
use proptest::prelude::*;

fn area(kind: AreaKind, offset: u64, size: u64) -> Area {
    Area {
        kind,
        name: AreaName::new(kind.name()).unwrap(),
        class: kind.class(),
        offset: Offset::new(offset),
        size,
    }
}

const ROOTS: u64 = Roots::<Native>::BYTES;

fn valid() -> Superblock {
    Superblock {
        uuid: Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef),
        size: 1 << 20,
        domain: PersistenceDomain::Flushed,
        created: 1_700_000_000,
        areas: vec![
            area(AreaKind::Roots, 4096, ROOTS),
            area(AreaKind::Generations, 4096 + ROOTS, 8192),
            area(AreaKind::Payload, 128 << 10, (1 << 20) - (128 << 10)),
        ],
    }
}

/// Returns the refusal of a valid page after `change`, with a matching checksum.
fn refused(change: impl FnOnce(&mut Page)) -> Refusal {
    let mut page = valid().encode();
    change(&mut page);
    Superblock::decode(&sealed(page), 1 << 20).unwrap_err()
}

fn put<const N: usize>(page: &mut Page, at: usize, bytes: [u8; N]) {
    page[at..at + N].copy_from_slice(&bytes);
}

#[test]
fn a_superblock_comes_back() {
    let page = valid().encode();
    assert_eq!(Superblock::decode(&page, 1 << 20), Ok(valid()));
    // A device may have more bytes than the segment.
    assert_eq!(Superblock::decode(&page, 1 << 30), Ok(valid()));
    let write_back = Superblock {
        domain: PersistenceDomain::WriteBack,
        ..valid()
    };
    assert_eq!(
        Superblock::decode(&write_back.encode(), 1 << 20),
        Ok(write_back)
    );
}

/// The format is stored in segments: a change of these bytes is a change of format.
#[test]
fn the_format_is_the_same_for_ever() {
    let page = valid().encode();
    assert_eq!(&page[..8], b"OUTLIVE\x01");
    assert_eq!(page[8..12], 0x0A0B_0C0Du32.to_ne_bytes());
    assert_eq!(page[12..16], 7u32.to_ne_bytes());
    if cfg!(target_endian = "little") {
        // Computed by another program from the table in the documentation.
        assert_eq!(page[16..20], 0x9911_5ce0u32.to_le_bytes());
    }
}

#[test]
fn each_fault_is_called_by_its_name() {
    use Refusal as R;
    let page = valid().encode();
    let decode = Superblock::decode;
    let unfinished = |state| Err(R::NeverCompleted(state));
    assert_eq!(decode(&[], 0), unfinished(Unfinished::Empty));
    assert_eq!(decode(&[0; 4096], 1 << 20), unfinished(Unfinished::Zeroed));
    let mut marked = page;
    put(&mut marked, 0, incomplete_word(7).to_ne_bytes());
    assert_eq!(decode(&marked, 1 << 20), unfinished(Unfinished::Marked));
    assert_eq!(decode(b"#!/bin/sh\n", 10), Err(R::Foreign(*b"#!/bin/s")));
    assert_eq!(
        decode(b"#!", 2),
        Err(R::Foreign([b'#', b'!', 0, 0, 0, 0, 0, 0]))
    );
    let truncated = |expected, found| Err(R::Truncated { expected, found });
    assert_eq!(decode(&page[..100], 100), truncated(4096, 100));
    assert_eq!(
        decode(&page, (1 << 20) - 1),
        truncated(1 << 20, (1 << 20) - 1)
    );
    assert_eq!(
        refused(|page| put(page, 8, 0x0D0C_0B0Au32.to_ne_bytes())),
        R::ForeignByteOrder(0x0D0C_0B0A)
    );
    assert!(matches!(
        refused(|page| put(page, 8, 77u32.to_ne_bytes())),
        R::ForeignByteOrder(77)
    ));
    assert_eq!(
        refused(|page| put(page, 12, 8u32.to_ne_bytes())),
        R::Newer {
            found: 8,
            newest: 7
        }
    );
    assert_eq!(
        refused(|page| put(page, 12, 1u32.to_ne_bytes())),
        R::Older {
            found: 1,
            oldest: 7
        }
    );
    for at in [9, 20, 30, 45, 60, 100, 3000, 4095] {
        let mut damaged = page;
        damaged[at] ^= 0x10;
        assert!(
            matches!(decode(&damaged, 1 << 20), Err(R::Corrupt { .. })),
            "a changed bit at {at}"
        );
    }
    let field_at = |change: &dyn Fn(&mut Page)| match refused(change) {
        R::Field { at, .. } => at,
        other => panic!("{other}"),
    };
    let second = 64 + 64;
    for (at, bytes, said) in [
        (40, 4097u64, 40),
        (40, 0, 40),
        (40, 1 << 60, 40),
        (second + 8, 100, second + 8),
        (second + 8, 0, second + 8),
        (second + 8, 1 << 20, second + 8),
        (second + 8, !4095, second + 8),
        (second + 16, 0, second + 16),
        (second + 16, 5000, second + 16),
        (second + 16, 1 << 20, second + 16),
        (second + 16, !4095, second + 16),
        (64 + 16, 4096, 64 + 16),
        (second + 24, 0, second + 24),
        (second + 24, 0xFF, second + 24),
        (3000, 1, 3000),
    ] {
        let found = field_at(&|page| put(page, at, bytes.to_ne_bytes()));
        assert_eq!(found, said as u64, "{bytes:#x} at {at}");
    }
    for (at, word, said) in [
        (20, 33u32, 20),
        (48, 0, 48),
        (48, 3, 48),
        (52, 1, 52),
        (second, 0, second),
        (second + 4, 9, second + 4),
    ] {
        let found = field_at(&|page| put(page, at, word.to_ne_bytes()));
        assert_eq!(found, said as u64, "{word:#x} at {at}");
    }
    assert_eq!(
        refused(|page| put(page, 64 + 128, 2u32.to_ne_bytes())),
        R::Twice {
            first: 1,
            second: 2,
            kind: AreaKind::Generations
        }
    );
    assert_eq!(
        refused(|page| put(page, second + 8, (8192u64).to_ne_bytes())),
        R::Overlap {
            first: 0,
            second: 1,
            at: 8192
        }
    );
    assert_eq!(
        refused(|page| put(page, 64, 300u32.to_ne_bytes())),
        R::Missing(AreaKind::Roots)
    );
}

#[test]
fn no_nonce_makes_the_mark_the_complete_magic() {
    let complete = u32::from_ne_bytes(*b"IVE\x01");
    for nonce in [0, 1, complete, complete.swap_bytes(), u32::MAX] {
        assert_eq!(Magic::of(incomplete_word(nonce)), Magic::Incomplete);
    }
}

/// Asserts that every number of an accepted superblock is valid.
fn sound(superblock: &Superblock, capacity: u64) {
    assert!(superblock.size <= capacity && superblock.size.is_multiple_of(4096));
    for (index, area) in superblock.areas.iter().enumerate() {
        assert!(area.offset.byte() >= 4096 && area.offset.byte().is_multiple_of(4096));
        assert!(area.size >= 4096 && area.size.is_multiple_of(4096));
        assert!(area.end() <= superblock.size);
        assert!(!area.name.as_str().is_empty());
        for other in &superblock.areas[..index] {
            assert!(other.kind != area.kind);
            assert!(other.end() <= area.offset.byte() || area.end() <= other.offset.byte());
        }
    }
    assert!(
        superblock
            .areas
            .iter()
            .any(|area| area.kind == AreaKind::Roots)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn arbitrary_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..5000), capacity: u64) {
        prop_assert!(Superblock::decode(&bytes, capacity).is_err());
        let mut marked = bytes.clone();
        marked.splice(..marked.len().min(8), *b"OUTLIVE\x01");
        for capacity in [capacity, marked.len() as u64] {
            prop_assert!(Superblock::decode(&marked, capacity).is_err());
        }
    }

    #[test]
    fn a_damaged_page_is_refused(flips in prop::collection::btree_set(0usize..4096 * 8, 1..4)) {
        let mut page = valid().encode();
        for &bit in &flips {
            page[bit / 8] ^= 1 << (bit % 8);
        }
        // A CRC of 32 bits finds any three changed bits in a page.
        prop_assert!(Superblock::decode(&page, 1 << 20).is_err());
    }

    #[test]
    fn what_passes_the_checksum_is_sound_or_refused(
        changes in prop::collection::vec(
            (0usize..512, prop_oneof![any::<u64>(), 0u64..40, (0u64..300).prop_map(|page| page * 4096)], any::<bool>()),
            1..6,
        ),
        capacity in prop_oneof![Just(1u64 << 20), 0u64..1 << 21, any::<u64>()],
    ) {
        let mut page = valid().encode();
        for (word, value, half) in changes {
            // Mostly where there are fields.
            let at = if word < 400 { word % 40 * 8 } else { word * 8 };
            if half {
                page[at..at + 4].copy_from_slice(&(value as u32).to_ne_bytes());
            } else {
                page[at..at + 8].copy_from_slice(&value.to_ne_bytes());
            }
        }
        if let Ok(superblock) = Superblock::decode(&sealed(page), capacity) {
            sound(&superblock, capacity);
            prop_assert_eq!(Superblock::decode(&superblock.encode(), capacity), Ok(superblock));
        }
    }
}
