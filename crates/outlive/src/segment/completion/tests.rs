use super::super::killing_memory::Mortal;
use super::super::superblock::{Refusal, Superblock, Unfinished};
use super::super::{AreaKind, area};
use super::*;
use outlive_memory::{CrashPoint, Native, PersistenceDomain};
use uuid::Uuid;

const SIZE: u64 = 64 << 10;

fn page(uuid: u128, domain: PersistenceDomain) -> Page {
    Superblock {
        uuid: Uuid::from_u128(uuid),
        size: SIZE,
        domain,
        created: 0,
        areas: area::plan(Some(SIZE), &[], 32).unwrap().areas,
    }
    .encode()
}

fn first_word(memory: Mortal) -> u64 {
    memory.load(Offset::new(0), Ordering::Relaxed)
}

/// A whole creation over the current contents.
fn create(memory: Mortal, page: &Page) -> Result<(), Overtaken> {
    let creation = Creation::begin(memory, first_word(memory), 7)?;
    creation.clear(|_| {})?;
    creation.complete(page)
}

/// A wrong creation: the whole superblock in one copy, including the first word.
fn create_early(memory: Mortal, page: &Page) -> Result<(), Overtaken> {
    let creation = Creation::begin(memory, first_word(memory), 7)?;
    memory.persist(Offset::new(0), 8);
    memory.copy_in(Offset::new(0), page);
    memory.persist(Offset::new(0), SUPERBLOCK_BYTES);
    creation.clear(|_| {})?;
    Ok(())
}

fn decode(memory: Mortal) -> Result<Superblock, Refusal> {
    Superblock::decode(&load_page(memory.0), SIZE)
}

/// Returns whether all bytes behind the superblock are zeros.
fn clean(memory: Mortal) -> bool {
    let mut rest = vec![1; (SIZE - SUPERBLOCK_BYTES) as usize];
    memory.0.copy_out(Offset::new(SUPERBLOCK_BYTES), &mut rest);
    rest.iter().all(|&byte| byte == 0)
}

/// Kills a creation over an older segment after each access and loses caches where they can be
/// lost. Returns the number of outcomes, and of those that are neither the old segment, nor an
/// incomplete one, nor the whole new one.
fn sweep(
    domain: PersistenceDomain,
    create: impl Fn(Mortal, &Page) -> Result<(), Overtaken>,
    after: impl Fn(Mortal),
) -> (u64, u64) {
    let (old, new) = (page(1, domain), page(2, domain));
    let (mut places, mut wrong) = (0, 0);
    let memory = Mortal::new(SIZE, domain);
    let mut life = 0;
    loop {
        memory.0.copy_in(Offset::new(0), &old);
        memory.0.copy_in(Offset::new(SIZE - 64), &[0xEE; 64]);
        let survived = memory.with_life_of(life, || create(memory, &new)).is_some();
        memory.after_its_host_died(|| {
            places += 1;
            let left_well = match decode(memory) {
                Ok(found) if found.uuid.as_u128() == 1 => !survived && !clean(memory),
                Ok(found) => found.uuid.as_u128() == 2 && clean(memory),
                Err(Refusal::NeverCompleted(Unfinished::Marked)) => !survived,
                Err(_) => false,
            };
            wrong += u64::from(!left_well);
            after(memory);
        });
        if survived {
            break;
        }
        // Only some of the many stores that clear memory or write the page.
        life += match life {
            20..8170 => 79,
            8260..8680 => 23,
            _ => 1,
        };
        assert!(life < 1_000_000);
    }
    (places, wrong)
}

/// The next creator starts over and completes.
fn start_over(memory: Mortal) {
    let domain = memory.domain();
    assert_eq!(create(memory, &page(3, domain)), Ok(()));
    assert_eq!(decode(memory).map(|found| found.uuid.as_u128()), Ok(3));
    assert!(clean(memory));
}

#[test]
fn a_death_at_any_access_leaves_the_old_an_incomplete_or_the_new_segment() {
    for domain in [PersistenceDomain::Flushed, PersistenceDomain::WriteBack] {
        let (places, wrong) = sweep(domain, create, start_over);
        assert_eq!(wrong, 0, "{domain}, {places} places");
        assert!(places > 150, "{places} places");
    }
    let passed = Mortal::passed();
    for point in CreatePoint::ALL {
        assert!(passed.contains(point.name()), "{point:?} is not covered");
    }
}

#[test]
fn a_creation_that_publishes_early_is_caught() {
    for domain in [PersistenceDomain::Flushed, PersistenceDomain::WriteBack] {
        let (_, wrong) = sweep(domain, create_early, |_| {});
        assert!(wrong > 0, "{domain}");
    }
}

#[test]
fn who_was_overtaken_does_not_complete() {
    let memory = Mortal::new(SIZE, PersistenceDomain::Flushed);
    let slow = Creation::begin(memory, 0, 1).unwrap();
    assert_eq!(Creation::begin(memory, 0, 2).unwrap_err(), Overtaken);
    let fast = Creation::begin(memory, first_word(memory), 2).unwrap();
    let (one, two) = (
        page(1, PersistenceDomain::Flushed),
        page(2, PersistenceDomain::Flushed),
    );
    assert_eq!(slow.complete(&one), Err(Overtaken));
    assert_eq!(fast.complete(&two), Ok(()));
    // Nor does it clear or write any of the memory that is the other's now.
    let last = Offset::new(SIZE - 8);
    memory.store(last, 7u64, Ordering::Relaxed);
    assert_eq!(slow.clear(|_| {}), Err(Overtaken));
    assert_eq!(slow.complete(&one), Err(Overtaken));
    assert_eq!(memory.load::<u64>(last, Ordering::Relaxed), 7);
    assert_eq!(decode(memory).map(|found| found.uuid.as_u128()), Ok(2));
}

#[test]
fn an_erased_segment_is_none() {
    let memory = Native::leaked(SIZE, PersistenceDomain::Flushed);
    memory.copy_in(Offset::new(0), &page(1, PersistenceDomain::Flushed));
    let word = memory.load(Offset::new(0), Ordering::Relaxed);
    assert_eq!(erase(memory, word + 1), Err(Overtaken));
    assert_eq!(erase(memory, word), Ok(()));
    assert_eq!(load_page(memory), [0; SUPERBLOCK_BYTES as usize]);
    assert!(AreaKind::from_code(0).is_none());
}
