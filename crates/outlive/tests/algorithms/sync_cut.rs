//! Locks and the mutex are cut at every access, and so is their recovery; the next owner must get
//! the lock and find a whole value.

use crate::pod;
use crate::pod::{
    Countdown, DATA, IDS, LOCK, OTHER_LOCK, Pod, cut, declared, losing, native, sweep,
};
use outlive::membership::{Instance, Status};
use outlive::memory::{Memory, Ordering, PersistenceDomain};
use outlive::recovery::{
    LockKind, Logs, Operation, OperationKind, OwnLog, RecoverError, RecoverOperation, Recovering,
};
use outlive::sync::{
    self, Abandoned, BareTatas, LockError, MutexPoint, QueueLock, QueuePoint, RecoverableMutex,
    Repair, Tatas, TatasLockPoint, TatasUnlockPoint, audit_own_locks,
};
use std::collections::BTreeSet;
use std::time::Duration;

/// Cuts `live` (by 0) at every access, the recovery of 0 (by 1) at every access of that, and lets 2
/// recover the rest and run `check`. Returns the points passed.
fn cut_twice(
    pod: &Pod<Countdown>,
    live: impl Fn(&outlive::membership::Member<Countdown>),
    check: impl Fn(&outlive::membership::Member<Countdown>),
) -> BTreeSet<(&'static str, &'static str)> {
    let mut passed = BTreeSet::new();
    let cuts = sweep(|n| {
        let mut died = false;
        sweep(|m| {
            pod.memory.reset();
            let (victim, survivor) = (pod.join(0), pod.join(1));
            let points = pod::points_of(|| {
                died = cut(n, || live(&victim)).is_none();
                pod.declare_dead(0);
                let lost = cut(m, || pod.recoverers.recover(&survivor, 0).unwrap()).is_none();
                if lost {
                    pod.declare_dead(1);
                }
                let third = pod.join(2);
                pod.recoverers.recover_all(&third).unwrap();
                pod.assert_settled(0);
                assert_eq!(pod.status(0), Status::Recovered);
                check(&third);
            });
            passed = &points | &passed;
            pod.status(1) == Status::Recovered
        });
        died
    });
    assert!(cuts > 3, "{cuts}");
    passed
}

fn assert_covers(
    passed: &BTreeSet<(&'static str, &'static str)>,
    wanted: &BTreeSet<(&'static str, &'static str)>,
) {
    assert!(
        wanted.is_subset(passed),
        "not passed: {:?}",
        wanted - passed
    );
}

#[test]
fn a_logged_tatas_is_free_after_every_death() {
    let pod = Pod::new(Countdown::new());
    let (lock, other) = (
        Tatas::new(pod.memory, LOCK),
        Tatas::new(pod.memory, OTHER_LOCK),
    );
    let passed = cut_twice(
        &pod,
        |victim| {
            let outer = lock.lock(victim, &pod.recoverers).unwrap();
            let inner = other.try_lock(victim, &pod.recoverers).unwrap().unwrap();
            drop(outer);
            drop(inner);
        },
        |third| {
            assert_eq!((lock.holder(), other.holder()), (None, None));
            assert!(lock.try_lock(third, &pod.recoverers).unwrap().is_some());
            assert!(other.try_lock(third, &pod.recoverers).unwrap().is_some());
        },
    );
    let wanted = &declared::<TatasLockPoint>() | &declared::<TatasUnlockPoint>();
    assert_covers(&passed, &wanted);
}

#[test]
fn a_bare_tatas_says_who_died_to_one() {
    let pod = Pod::new(Countdown::new());
    let lock = BareTatas::new(pod.memory, LOCK);
    sweep(|n| {
        pod.memory.reset();
        let victim = pod.join(0);
        let died = cut(n, || drop(lock.lock(&victim).unwrap())).is_none();
        let held = lock.holder().is_some();
        pod.declare_dead(0);
        let survivor = pod.join(1);
        let guard = lock
            .try_lock(&survivor)
            .unwrap()
            .expect("no live member holds it");
        assert_eq!(guard.abandoned_by(), held.then_some(victim.instance()));
        drop(guard);
        assert_eq!(lock.lock(&survivor).unwrap().abandoned_by(), None);
        died
    });
}

#[test]
fn a_forgotten_entry_is_noticed() {
    // The broken variant: a lock that is taken without its entry. Recovery cannot know of it, and
    // reports success; that is why the check above reads the words.
    let pod = Pod::new(Countdown::new());
    let victim = pod.join(0);
    pod.memory
        .store(LOCK, victim.instance().to_word(), Ordering::Relaxed);
    pod.declare_dead(0);
    let survivor = pod.join(1);
    pod.recoverers.recover_all(&survivor).unwrap();
    assert!(Tatas::new(pod.memory, LOCK).holder().is_some());
}

#[test]
fn the_queue_is_mended_after_every_death() {
    let pod = Pod::new(Countdown::new());
    let lock = QueueLock::new(pod.memory, LOCK);
    let mut passed = cut_twice(
        &pod,
        |victim| drop(lock.lock(victim, &pod.recoverers).unwrap()),
        |third| {
            assert!(!lock.is_held(pod.logs));
            assert!(lock.try_lock(third, &pod.recoverers).unwrap().is_some());
        },
    );
    // A waiter between a live holder and another waiter, cut while it enters, waits, and leaves.
    let cuts = sweep(|n| {
        let mut died = false;
        sweep(|m| {
            pod.memory.reset();
            let (victim, survivor) = (pod.join(0), pod.join(1));
            let (holder, last) = (pod.join(2), pod.join(3));
            let points = pod::points_of(|| {
                let held = lock.lock(&holder, &pod.recoverers).unwrap();
                let wait = |member, hints| {
                    let timeout = Duration::from_micros(hints);
                    lock.lock_for(member, &pod.recoverers, timeout)
                        .unwrap()
                        .is_some()
                };
                died = cut(n, || assert!(!wait(&victim, 3))).is_none();
                pod.declare_dead(0);
                if cut(m, || pod.recoverers.recover(&survivor, 0).unwrap()).is_none() {
                    pod.declare_dead(1);
                }
                // A waiter recovers the member before it in the queue; the holder still holds.
                assert!(!wait(&last, 5));
                assert!(lock.is_held(pod.logs));
                drop(held);
                assert!(wait(&last, 5));
                pod.recoverers.recover_all(&last).unwrap();
                pod.assert_settled(0);
                assert!(lock.try_lock(&last, &pod.recoverers).unwrap().is_some());
            });
            passed = &points | &passed;
            pod.status(1) == Status::Recovered
        });
        died
    });
    assert!(cuts > 20, "{cuts}");
    assert_covers(&passed, &declared::<QueuePoint>());
}

/// Both words are committed one by one when goods move; between the two, `moving` is not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Stock {
    on_shelf: u64,
    moving: u64,
    checksum: u64,
}

impl Stock {
    fn new(on_shelf: u64, moving: u64) -> Self {
        let checksum = !(on_shelf ^ moving.rotate_left(32));
        Self {
            on_shelf,
            moving,
            checksum,
        }
    }
}

impl Repair for Stock {
    fn repair(&mut self, _: Abandoned) {
        // (Reads of a dead thread while it unwinds in these tests are irrelevant.)
        let whole = *self == Self::new(self.on_shelf, self.moving);
        assert!(whole || std::thread::panicking(), "half-done: {self:?}");
        *self = Self::new(self.on_shelf + self.moving, 0);
    }
}

#[test]
fn a_mutex_shows_no_half_done_update_after_a_death() {
    let memory = Countdown::new();
    let pod = Pod::new(memory);
    let mut passed = BTreeSet::new();
    let cuts = sweep(|n| {
        let mut died = false;
        sweep(|m| {
            memory.reset();
            let mutex = RecoverableMutex::create(memory, LOCK, Stock::new(100, 0));
            let (victim, second) = (pod.join(0), pod.join(1));
            let points = pod::points_of(|| {
                died = cut(n, || {
                    let mut stock = mutex.lock(&victim).unwrap();
                    *stock = Stock::new(90, 10);
                    stock.commit();
                    *stock = Stock::new(95, 5);
                })
                .is_none();
                pod.declare_dead(0);
                // The repairing member dies as well.
                if cut(m, || drop(mutex.lock(&second).unwrap())).is_none() {
                    pod.declare_dead(1);
                }
                let third = pod.join(2);
                let stock = mutex.lock(&third).unwrap();
                if died || pod.status(1) == Status::Dead {
                    assert!(
                        *stock == Stock::new(100, 0) || *stock == Stock::new(95, 5),
                        "{stock:?}"
                    );
                } else {
                    assert_eq!(*stock, Stock::new(95, 5));
                }
            });
            passed = &points | &passed;
            pod.status(1) == Status::Dead
        });
        died
    });
    assert!(cuts > 10, "{cuts}");
    assert_covers(&passed, &declared::<MutexPoint>());
}

#[test]
fn a_panic_is_rolled_back_and_repaired() {
    let pod = Pod::new(native());
    let mutex = RecoverableMutex::create(pod.memory, LOCK, Stock::new(100, 0));
    let member = pod.join(0);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut stock = mutex.lock(&member).unwrap();
        *stock = Stock::new(60, 40);
        stock.commit();
        *stock = Stock::new(1, 1);
        std::panic::resume_unwind(Box::new(()));
    }));
    assert!(panicked.is_err());
    assert_eq!(mutex.holder(), None);
    let mut stock = mutex.lock(&member).unwrap();
    assert_eq!((*stock, stock.abandoned_by()), (Stock::new(100, 0), None));
    *stock = Stock::new(7, 0);
    stock.roll_back();
    drop(stock);
    assert_eq!(
        *mutex.try_lock(&member).unwrap().unwrap(),
        Stock::new(100, 0)
    );
}

/// Panics in `work`.
fn panic_in(work: impl FnOnce() -> Never) {
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    assert!(panicked.is_err());
}

enum Never {}

fn panic_now() -> Never {
    std::panic::resume_unwind(Box::new(()))
}

/// A macro, as the guards have no trait in common.
macro_rules! is_poisoned_until_it_is_cleared {
    ($lock:expr, $by:expr) => {{
        let (lock, [one, two]) = ($lock, $by);
        assert_eq!(lock(one).poison().set_by(), None);
        // A panic outside of a change, and a change without a panic.
        panic_in(|| {
            let held = lock(one);
            drop(held.poison().on_panic());
            panic_now()
        });
        assert_eq!(lock(two).poison().set_by(), None);
        let panic_by = |by| {
            panic_in(|| {
                let held = lock(by);
                let _change = held.poison().on_panic();
                panic_now()
            });
        };
        panic_by(one);
        // Reading the state does not clear it.
        drop(lock(one));
        assert_eq!(lock(two).poison().set_by(), Some(one.instance().id));
        let held = lock(two);
        assert_eq!(held.poison().set_by(), Some(one.instance().id));
        held.poison().clear();
        assert_eq!(held.poison().set_by(), None);
        drop(held);
        assert_eq!(lock(one).poison().set_by(), None);
        panic_by(two);
        assert_eq!(lock(one).poison().set_by(), Some(two.instance().id));
    }};
}

#[test]
fn an_owner_that_panics_in_a_change_poisons_the_lock_until_that_is_cleared() {
    for domain in [PersistenceDomain::Flushed, PersistenceDomain::WriteBack] {
        let pod = Pod::new(outlive::memory::Native::leaked(pod::SIZE, domain));
        let (one, two) = (pod.join(0), pod.join(1));
        let bare = BareTatas::new(pod.memory, LOCK);
        is_poisoned_until_it_is_cleared!(|by| bare.lock(by).unwrap(), [&one, &two]);
        let logged = Tatas::new(pod.memory, OTHER_LOCK);
        is_poisoned_until_it_is_cleared!(
            |by| logged.lock(by, &pod.recoverers).unwrap(),
            [&one, &two]
        );
        if domain == PersistenceDomain::Flushed {
            let queue = QueueLock::new(pod.memory, OTHER_LOCK + 128);
            is_poisoned_until_it_is_cleared!(
                |by| queue.lock(by, &pod.recoverers).unwrap(),
                [&one, &two]
            );
        }
    }
}

/// A value that is dropped during a panic, and changes data in its drop.
struct ChangesInItsDrop<'a>(&'a BareTatas, &'a outlive::membership::Member);

impl Drop for ChangesInItsDrop<'_> {
    fn drop(&mut self) {
        let held = self.0.lock(self.1).unwrap();
        drop(held.poison().on_panic());
    }
}

#[test]
fn a_change_that_begins_during_a_panic_is_not_cut_short_by_it() {
    let pod = Pod::new(native());
    let member = pod.join(0);
    let lock = BareTatas::new(pod.memory, LOCK);
    panic_in(|| {
        let _changes = ChangesInItsDrop(&lock, &member);
        panic_now()
    });
    assert_eq!(lock.lock(&member).unwrap().poison().set_by(), None);
}

#[test]
fn misuse_and_damage_are_errors() {
    let pod = Pod::new(native());
    let member = pod.join(0);
    let instance = member.instance();
    let brief = Duration::from_millis(2);

    let bare = BareTatas::new(pod.memory, LOCK);
    let held = bare.lock(&member).unwrap();
    let again = LockError::AlreadyHeld {
        instance,
        lock: LOCK,
    };
    assert_eq!(bare.lock(&member).unwrap_err(), again);
    drop(held);
    let tatas = Tatas::new(pod.memory, LOCK);
    let held = tatas.lock(&member, &pod.recoverers).unwrap();
    assert_eq!(tatas.try_lock(&member, &pod.recoverers).unwrap_err(), again);
    let other = pod.join(1);
    assert!(
        tatas
            .lock_for(&other, &pod.recoverers, brief)
            .unwrap()
            .is_none()
    );
    drop(held);
    let queue = QueueLock::new(pod.memory, OTHER_LOCK);
    let held = queue.lock(&member, &pod.recoverers).unwrap();
    let again = LockError::AlreadyHeld {
        instance,
        lock: OTHER_LOCK,
    };
    assert_eq!(queue.lock(&member, &pod.recoverers).unwrap_err(), again);
    assert!(queue.try_lock(&other, &pod.recoverers).unwrap().is_none());
    assert!(
        queue
            .lock_for(&other, &pod.recoverers, brief)
            .unwrap()
            .is_none()
    );
    drop(held);
    assert!(queue.try_lock(&other, &pod.recoverers).unwrap().is_some());
    // The failed attempts left no entry behind.
    assert_eq!(
        pod.logs.of(0).locks().count() + pod.logs.of(1).locks().count(),
        0
    );

    for word in [Instance::new(IDS, 3).to_word(), 5] {
        pod.memory.store(LOCK, word, Ordering::Relaxed);
        pod.memory.store(OTHER_LOCK, u64::MAX, Ordering::Relaxed);
        let foreign = LockError::ForeignOwner { lock: LOCK, word };
        assert_eq!(bare.lock(&member).unwrap_err(), foreign);
        assert_eq!(tatas.lock(&member, &pod.recoverers).unwrap_err(), foreign);
        let failed = queue.try_lock(&member, &pod.recoverers);
        assert!(matches!(failed, Err(LockError::ForeignOwner { .. })));
        let failed = queue.lock(&member, &pod.recoverers);
        assert!(matches!(failed, Err(LockError::ForeignOwner { .. })));
    }

    let log = OwnLog::of(&member);
    let mut entries: Vec<_> = (0..Logs::<outlive::memory::Native>::LOCKS as u64)
        .map(|i| log.list(DATA + i * 16, LockKind::new(9)).unwrap())
        .collect();
    pod.memory.store(LOCK, 0u64, Ordering::Relaxed);
    let failed = tatas.lock(&member, &pod.recoverers);
    assert!(matches!(failed, Err(LockError::TooManyLocks(_))));
    assert_eq!(tatas.holder(), None);
    log.unlist(entries.swap_remove(7));
    assert!(tatas.lock(&member, &pod.recoverers).is_ok());
}

/// A handler that panics a given number of times, and then reports the operation as done.
struct Panics(std::sync::atomic::AtomicU32);

impl<M: Memory> RecoverOperation<M> for Panics {
    fn recover(&self, dead: &Recovering<'_, M>, operation: &Operation) -> Result<(), RecoverError> {
        use std::sync::atomic::Ordering::Relaxed;
        let more = |left: u32| left.checked_sub(1);
        if self.0.fetch_update(Relaxed, Relaxed, more).is_ok() {
            std::panic::resume_unwind(Box::new("not today"));
        }
        dead.running(operation).finish(&[]);
        Ok(())
    }
}

/// A waiter recovers the dead member before it with a handler of the program, which panics: the
/// waiter gets an error and blocks no other waiter.
#[test]
fn a_handler_that_panics_leaves_no_ghost_in_the_queue() {
    const KIND: OperationKind = OperationKind::new(77);
    let pod = Pod::new(native());
    let recoverers = sync::recoverers(pod.logs).operation(KIND, Panics(2.into()));
    let (victim, waiter, other) = (pod.join(0), pod.join(1), pod.join(2));
    let (queue, tatas) = (
        QueueLock::new(pod.memory, LOCK),
        Tatas::new(pod.memory, OTHER_LOCK),
    );
    std::mem::forget(queue.lock(&victim, &recoverers).unwrap());
    std::mem::forget(tatas.lock(&victim, &recoverers).unwrap());
    let _ = OwnLog::of(&victim).begin(KIND, &[]);
    pod.declare_dead(0);
    let failed = queue.lock(&waiter, &recoverers).unwrap_err();
    assert!(matches!(failed, LockError::Unrecovered { .. }), "{failed}");
    let failed = tatas.lock(&waiter, &recoverers).unwrap_err();
    assert!(failed.to_string().contains("not today"), "{failed}");
    assert_eq!(pod.logs.of(1).locks().count(), 0);
    // The next one recovers, and does not wait.
    drop(queue.lock(&other, &recoverers).unwrap());
    drop(tatas.lock(&other, &recoverers).unwrap());
    drop(queue.lock(&waiter, &recoverers).unwrap());
    assert!(!queue.is_held(pod.logs));
}

#[test]
fn a_word_that_fell_back_to_its_former_owner_is_released_by_the_audit() {
    let memory = outlive::memory::Native::leaked(pod::SIZE, PersistenceDomain::WriteBack);
    let pod = Pod::new(memory);
    let (member, other) = (pod.join(0), pod.join(1));
    let lock = Tatas::new(memory, LOCK);
    drop(lock.lock(&member, &pod.recoverers).unwrap());
    // The other host took the lock and died before its line was written back: the memory has the
    // word as it was when `member` held the lock.
    memory.store(LOCK, member.instance().to_word(), Ordering::Relaxed);
    assert!(lock.try_lock(&other, &pod.recoverers).unwrap().is_none());
    let held = Tatas::new(memory, OTHER_LOCK)
        .lock(&member, &pod.recoverers)
        .unwrap();
    let locks = [lock, Tatas::new(memory, OTHER_LOCK)];
    assert_eq!(audit_own_locks(&member, locks), 1);
    assert_eq!(lock.holder(), None);
    assert_eq!(locks[1].holder(), Some(member.instance()));
    drop(held);
    assert!(lock.try_lock(&other, &pod.recoverers).unwrap().is_some());
}

#[test]
fn bare_locks_and_mutexes_that_fell_back_are_released_by_the_audit_too() {
    let memory = outlive::memory::Native::leaked(pod::SIZE, PersistenceDomain::WriteBack);
    let pod = Pod::new(memory);
    let (member, other) = (pod.join(0), pod.join(1));
    let (bare, mutex) = (
        BareTatas::new(memory, LOCK),
        RecoverableMutex::<u64>::at(memory, OTHER_LOCK),
    );
    // Another host took each and died before its line was written back.
    for at in [LOCK, OTHER_LOCK] {
        memory.store(at, member.instance().to_word(), Ordering::Relaxed);
    }
    assert!(bare.try_lock(&other).unwrap().is_none());
    assert!(mutex.try_lock(&other).unwrap().is_none());
    assert!(!bare.audit(&other), "not its own");
    assert!(bare.audit(&member) && mutex.audit(&member));
    let held = (bare.lock(&member).unwrap(), mutex.lock(&member).unwrap());
    assert!(!bare.audit(&member), "it is held");
    assert!(!mutex.audit(&member), "it is held");
    drop(held);
    assert!(mutex.try_lock(&other).unwrap().is_some());
    // Where words do not fall back, a holder need not have the lock in its log.
    let pod = Pod::new(native());
    let member = pod.join(0);
    let bare = BareTatas::new(pod.memory, LOCK);
    let held = bare.lock(&member).unwrap();
    assert!(!bare.audit(&member));
    drop(held);
}

/// While others take and release a lock all the time, a try ends, and so does a wait with a
/// time-out; nothing is held then.
#[test]
fn tries_and_time_outs_end_although_another_is_always_faster() {
    let pod = Pod::new(Countdown::new());
    let member = pod.join(0);
    let (memory, recoverers) = (pod.memory, &pod.recoverers);
    let bare = BareTatas::new(memory, LOCK);
    let logged = Tatas::new(memory, LOCK);
    let queue = QueueLock::new(memory, LOCK);
    const FEW: u64 = 10;
    const SOME: u64 = 1000;
    let time = Duration::from_micros(SOME);
    let lost = |most, takes: &dyn Fn() -> bool| {
        let times = losing(LOCK, most, || assert!(!takes()));
        assert!((1..=most).contains(&times), "{times} tries");
    };
    lost(FEW, &|| bare.try_lock(&member).unwrap().is_some());
    lost(FEW, &|| {
        logged.try_lock(&member, recoverers).unwrap().is_some()
    });
    lost(FEW, &|| {
        queue.try_lock(&member, recoverers).unwrap().is_some()
    });
    lost(SOME + FEW, &|| {
        bare.lock_for(&member, time).unwrap().is_some()
    });
    lost(SOME + FEW, &|| {
        let held = logged.lock_for(&member, recoverers, time).unwrap();
        held.is_some()
    });
    lost(SOME + FEW, &|| {
        let held = queue.lock_for(&member, recoverers, time).unwrap();
        held.is_some()
    });
    drop(
        queue
            .try_lock(&member, recoverers)
            .unwrap()
            .expect("it is free"),
    );
    pod.leave(member);
}
