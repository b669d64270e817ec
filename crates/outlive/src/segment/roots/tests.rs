use super::super::killing_memory::Mortal;
use super::table::SLOT_BYTES;
use super::*;
use outlive_memory::{CrashPoint, Ordering, PersistenceDomain};
use proptest::prelude::*;

crate::shared! { #[allow(dead_code)] struct Point { x: u64, y: u64 } }
crate::shared! { #[allow(dead_code)] struct Pixel { x: u64, y: i64 } }

const SIZE: u64 = 128 << 10;
const VALUE: Offset = Offset::new(64 << 10);

fn table<M: Memory>(memory: M) -> Roots<M> {
    Roots::new(memory, Offset::new(4096))
}

fn fresh() -> Roots<Native> {
    table(Native::leaked(SIZE, PersistenceDomain::Flushed))
}

#[test]
fn a_root_is_found_by_name_and_type() {
    let roots = fresh();
    assert_eq!(roots.find::<Point>("p"), Ok(None));
    roots.publish::<Point>("p", VALUE).unwrap();
    roots.publish::<[u32; 3]>("q", VALUE + 16).unwrap();
    assert_eq!(roots.find::<Point>("p").unwrap().unwrap().offset(), VALUE);
    assert_eq!(
        roots.find::<[u32; 3]>("q").unwrap().unwrap().offset(),
        VALUE + 16
    );
    assert_eq!(roots.find::<Point>("r"), Ok(None));
    let list = roots.list().unwrap();
    assert_eq!(list.len(), 2);
    assert_eq!(list[1].description, "[u32; 3] (12 bytes, align 4)");
    assert!(roots.check().is_empty());
}

#[test]
fn a_mismatch_names_both_types_with_their_layouts() {
    let roots = fresh();
    roots.publish::<Point>("p", VALUE).unwrap();
    for error in [
        roots.find::<Pixel>("p").map(|_| ()).unwrap_err(),
        roots.publish::<Pixel>("p", VALUE).map(|_| ()).unwrap_err(),
    ] {
        let message = error.to_string();
        for part in [
            "Point (16 bytes, align 8: x u64 @0, y u64 @8)",
            "Pixel (16 bytes, align 8: x u64 @0, y i64 @8)",
        ] {
            assert!(message.contains(part), "{message}");
        }
    }
}

#[test]
fn to_publish_again_is_success_and_elsewhere_an_error() {
    let roots = fresh();
    for _ in 0..3 {
        roots.publish::<u64>("n", VALUE).unwrap();
    }
    let error = roots.publish::<u64>("n", VALUE + 8).unwrap_err();
    let (name, at) = ("n".to_owned(), VALUE);
    assert_eq!(error, RootError::Exists { name, at });
    assert_eq!(roots.list().unwrap().len(), 1);
}

#[test]
fn names_places_and_a_full_table_are_refused() {
    let roots = fresh();
    for name in ["", "a\0b", &"x".repeat(65)] {
        assert_eq!(
            roots.publish::<u64>(name, VALUE),
            Err(RootError::Name(name.into()))
        );
    }
    for at in [0, 3, SIZE - 4, SIZE, Offset::SPAN - 8] {
        let result = roots.publish::<u64>("n", Offset::new(at));
        assert!(matches!(result, Err(RootError::Place { .. })), "{at}");
    }
    for index in 0..Roots::<Native>::SLOTS {
        let name = format!("{index:064}");
        roots.publish::<u64>(&name, VALUE).unwrap();
    }
    let name = "one more".to_owned();
    assert_eq!(
        roots.publish::<u64>(&name, VALUE),
        Err(RootError::Full { name })
    );
    assert_eq!(roots.list().unwrap().len(), Roots::<Native>::SLOTS);
    assert!(roots.check().is_empty());
}

#[test]
fn a_long_description_is_cut_at_a_character() {
    for length in 200..240 {
        let text = table::cut("ä".repeat(length / 2) + "b");
        assert!(text.len() <= 224);
    }
}

/// Kills a publisher after each access, then lets another one publish a different root and the
/// first root again. Returns the number of outcomes, and of those that are wrong.
fn sweep(
    domain: PersistenceDomain,
    publish: impl Fn(Roots<Mortal>) -> Result<(), RootError>,
) -> (u64, u64) {
    let (mut places, mut wrong) = (0, 0);
    let memory = Mortal::new(SIZE, domain);
    for life in 0.. {
        memory.0.copy_in(Offset::new(0), &vec![0; SIZE as usize]);
        let roots = table(memory);
        roots.publish::<u64>("before", VALUE).unwrap();
        let survived = memory.with_life_of(life, || publish(roots)).is_some();
        memory.after_its_host_died(|| {
            places += 1;
            let good = || -> Result<bool, RootError> {
                let seen = roots.find::<Point>("p")?;
                if survived && seen.is_none() {
                    return Ok(false);
                }
                roots.publish::<Pixel>("another", VALUE + 32)?;
                let still = roots.find::<Point>("p")?;
                roots.publish::<Point>("p", VALUE)?;
                let names: Vec<String> = roots.list()?.into_iter().map(|root| root.name).collect();
                let expected = match seen {
                    Some(_) => ["before", "p", "another"],
                    None => ["before", "another", "p"],
                };
                Ok(still == seen && names == expected && roots.check().is_empty())
            };
            wrong += u64::from(good() != Ok(true));
        });
        if survived {
            break;
        }
        assert!(life < 10_000);
    }
    (places, wrong)
}

#[test]
fn a_death_at_any_access_publishes_wholly_or_not_at_all() {
    for domain in [PersistenceDomain::Flushed, PersistenceDomain::WriteBack] {
        let (places, wrong) = sweep(domain, |roots| {
            roots.publish::<Point>("p", VALUE).map(|_| ())
        });
        assert_eq!(wrong, 0, "{domain}, {places} places");
        assert!(places > 80, "{places} places");
    }
    let passed = Mortal::passed();
    for point in PublishPoint::ALL {
        assert!(passed.contains(point.name()), "{point:?} is not covered");
    }
}

/// A wrong publication: the state first, then the contents.
#[test]
fn a_publication_before_its_contents_is_caught() {
    let early = |roots: Roots<Mortal>| {
        let memory = roots.memory;
        let slot = roots.table + SLOT_BYTES;
        memory.store(slot, 1u64 << 2 | 2, Ordering::Release);
        // The contents of the slot before it, word by word, with another name.
        for word in 0..40 {
            let at = 128 + word * 16;
            let mut value: u128 = memory.load(roots.table + at, Ordering::Relaxed);
            if word == 0 {
                value = value >> 64 << 64 | u128::from(u64::from_ne_bytes(*b"p\0\0\0\0\0\0\0"));
            }
            memory.store(slot + at, value, Ordering::Relaxed);
        }
        Ok(())
    };
    let (_, wrong) = sweep(PersistenceDomain::Flushed, early);
    assert!(wrong > 10, "{wrong}");
}

/// A claimer that slept through the whole publication of another changes nothing when it wakes.
#[test]
fn a_late_claimer_changes_nothing() {
    let memory = Mortal::new(SIZE, PersistenceDomain::Flushed);
    for life in 0..300 {
        memory.0.copy_in(Offset::new(0), &vec![0; SIZE as usize]);
        let roots = table(memory);
        let late = memory.with_life_of(life, || roots.publish::<Point>("late", VALUE));
        if late.is_some() {
            break;
        }
        // The rest of the sleeper's fill is replaced by its whole fill, under its old claim.
        let Found::Open(state) = roots.slot(0).look().unwrap() else {
            continue;
        };
        let sleeper = Roots::<Mortal>::describe::<Point>("late", VALUE).unwrap();
        let winner = Roots::<Mortal>::describe::<Pixel>("winner", VALUE + 32).unwrap();
        assert_eq!(roots.slot(0).take(state, &winner, 3), Ok(Taken::Published));
        assert_eq!(roots.slot(0).take(state, &sleeper, 0), Ok(Taken::Changed));
        assert_eq!(roots.slot(0).resume(1, &sleeper), Ok(false));
        assert_eq!(roots.list().unwrap(), [winner]);
    }
}

#[test]
fn competing_threads_publish_each_name_once() {
    let roots = fresh();
    const THREADS: u64 = 8;
    const NAMES: u64 = 60;
    let winners: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    let place = VALUE + thread * 8;
                    (0..NAMES)
                        .map(|step| (step + thread * 7) % NAMES)
                        .filter(
                            |n| match roots.publish::<u64>(&format!("root {n}"), place) {
                                Ok(_) => true,
                                Err(RootError::Exists { .. }) => false,
                                Err(other) => panic!("{other}"),
                            },
                        )
                        .collect::<Vec<u64>>()
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    let mut sorted = winners.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..NAMES).collect::<Vec<_>>());
    assert_eq!(roots.list().unwrap().len() as u64, NAMES);
    assert!(roots.check().is_empty());
}

fn fill(memory: Native, bytes: &[u8]) {
    memory.copy_in(Offset::new(4096), bytes);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_bytes_are_roots_or_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..2000),
        states in prop::collection::vec(prop_oneof![Just(0u64), 0u64..12, any::<u64>()], 0..5),
    ) {
        let roots = fresh();
        fill(roots.memory, &bytes);
        for (slot, state) in states.into_iter().enumerate() {
            roots.memory.store(roots.table + slot as u64 * SLOT_BYTES, state, Ordering::Relaxed);
        }
        let listed = roots.list();
        let found = roots.find::<u64>("x");
        let violations = roots.check();
        prop_assert_eq!(listed.is_err() && violations.is_empty(), false);
        prop_assert!(!matches!(found, Ok(Some(_))));
        if let Ok(ptr) = roots.publish::<u64>("x", VALUE) {
            prop_assert_eq!(roots.find::<u64>("x"), Ok(Some(ptr)));
        }
    }

    #[test]
    fn a_damaged_table_is_sound_or_refused(
        changes in prop::collection::vec((0u64..3 * SLOT_BYTES / 8, prop_oneof![any::<u64>(), 0u64..8]), 1..4),
    ) {
        let roots = fresh();
        roots.publish::<Point>("p", VALUE).unwrap();
        roots.publish::<u64>("n", VALUE).unwrap();
        for (word, value) in changes {
            roots.memory.copy_in(roots.table + word * 8, &value.to_ne_bytes());
        }
        let _ = roots.check();
        for root in roots.list().unwrap_or_default() {
            prop_assert!(root.offset.byte() + root.size <= SIZE);
            prop_assert!(root.offset.byte() % root.align == 0);
        }
        let _ = roots.publish::<Pixel>("new", VALUE);
        if let Ok(Some(found)) = roots.find::<Point>("p") {
            prop_assert!(found.offset().byte() + 16 <= SIZE);
        }
    }
}
