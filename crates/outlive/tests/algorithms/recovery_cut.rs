//! Operations of the log are cut at every access, and so is their recovery; a third member must
//! then find all or nothing.

use crate::pod;
use crate::pod::{Countdown, DATA, IDS, LOCK, Pod, cut, declared, sweep};
use outlive::membership::Status;
use outlive::memory::{CrashPoint, Memory, Offset, Ordering};
use outlive::recovery::{
    LogClosePoint, LogOpenPoint, Operation, OperationKind, OperationPoint, OwnLog, Progress,
    RecoverError, RecoverOperation, RecoverPoint, Recovered, Recovering, RedoPoint,
};
use outlive::sync::Tatas;

const TRANSFER: OperationKind = OperationKind::new(7);

/// Undoes an unfinished operation: the redo log has been applied before.
struct Undo;

impl<M: Memory> RecoverOperation<M> for Undo {
    fn recover(&self, dead: &Recovering<'_, M>, operation: &Operation) -> Result<(), RecoverError> {
        assert_eq!(operation.kind, TRANSFER);
        dead.running(operation).abandon(&[13]);
        Ok(())
    }
}

fn with_handler(memory: Countdown) -> Pod<Countdown> {
    let mut pod = Pod::new(memory);
    pod.recoverers = outlive::sync::recoverers(pod.logs).operation(TRANSFER, Undo);
    pod
}

/// Adds 5 to four words of four sizes, under a lock, and records the result.
fn transfer(pod: &Pod<Countdown>, member: &outlive::membership::Member<Countdown>) {
    let log = OwnLog::of(member);
    let operation = log.begin(TRANSFER, &[5]);
    let held = Tatas::new(pod.memory, LOCK)
        .lock(member, &pod.recoverers)
        .unwrap();
    let mut redo = held.redo().unwrap();
    let sum = redo.load::<u64>(DATA) + 5;
    redo.store(DATA, sum).unwrap();
    redo.store(DATA + 8, sum as u32).unwrap();
    redo.store(DATA + 16, sum as u16).unwrap();
    redo.store(DATA + 24, sum as u8).unwrap();
    assert_eq!(redo.load::<u64>(DATA), sum);
    operation.finish_by(&mut redo, &[sum]).unwrap();
    redo.commit();
    drop(held);
}

/// Checks the state that every survivor must find: four equal words, and a true last result.
fn check(pod: &Pod<Countdown>, last_sum: u64) {
    let words = [
        pod.memory.load::<u64>(DATA, Ordering::Relaxed),
        pod.memory.load::<u32>(DATA + 8, Ordering::Relaxed).into(),
        pod.memory.load::<u16>(DATA + 16, Ordering::Relaxed).into(),
        pod.memory.load::<u8>(DATA + 24, Ordering::Relaxed).into(),
    ];
    assert!(
        words == [last_sum; 4] || words == [last_sum - 5; 4],
        "{words:?}"
    );
    let log = pod.logs.of(0);
    let last = log
        .operation()
        .unwrap()
        .expect("the first transfer at least");
    if last.arguments[0] == 5 && last.sequence == last_sum / 5 {
        match last.progress {
            Progress::Done => assert_eq!((words[0], last.result[0]), (last_sum, last_sum)),
            Progress::Undone => assert_eq!((words[0], last.result[0]), (last_sum - 5, 13)),
            Progress::Running => panic!("unsettled"),
        }
    } else {
        assert_eq!(words[0], last_sum - 5);
    }
    let heir = log
        .inherited()
        .unwrap()
        .expect("kept for the next incarnation");
    assert_eq!(heir, last);
    pod.assert_settled(0);
    assert_eq!(pod.status(0), Status::Recovered);
    assert_eq!(Tatas::new(pod.memory, LOCK).holder(), None);
}

#[test]
fn a_logged_update_is_all_or_nothing_wherever_its_owner_and_its_recoverer_die() {
    let memory = Countdown::new();
    let pod = with_handler(memory);
    let mut passed = Default::default();
    let mut images = 0;
    let operation_cuts = sweep(|n| {
        let mut died = false;
        let recovery_cuts = sweep(|m| {
            memory.reset();
            let dead = pod.join(0);
            transfer(&pod, &dead);
            let survivor = pod.join(1);
            let points = pod::points_of(|| {
                died = cut(n, || transfer(&pod, &dead)).is_none();
                pod.declare_dead(0);
                images += 1;
                if cut(m, || pod.recoverers.recover(&survivor, 0).unwrap()).is_some() {
                    m_was_enough(&pod);
                } else {
                    pod.declare_dead(1);
                }
                let third = pod.join(2);
                pod.recoverers.recover_all(&third).unwrap();
            });
            passed = &points | &passed;
            check(&pod, 10);
            // The next incarnation continues from there.
            let heir = pod.join(0);
            let before = pod.get(0);
            transfer(&pod, &heir);
            assert_eq!(pod.get(0), before + 5);
            OwnLog::of(&heir).close().unwrap();
            pod.status(1) == Status::Recovered
        });
        assert!(recovery_cuts > 20, "{recovery_cuts}");
        died
    });
    assert!(operation_cuts > 40, "{operation_cuts}");
    let mut wanted = &declared::<RedoPoint>() | &declared::<OperationPoint>();
    wanted.retain(|point| *point != ("log.operation", OperationPoint::Finished.name()));
    wanted = &wanted | &declared::<RecoverPoint>();
    assert!(wanted.is_subset(&passed), "{:?}", &wanted - &passed);
    println!("{operation_cuts} cuts of the operation, {images} with those of its recovery");
}

fn m_was_enough(pod: &Pod<Countdown>) {
    assert_eq!(pod.status(0), Status::Recovered);
}

#[test]
fn a_log_is_opened_and_closed_whole_or_not() {
    let memory = Countdown::new();
    let pod = with_handler(memory);
    let mut passed = Default::default();
    sweep(|n| {
        memory.reset();
        let first = pod.join(0);
        transfer(&pod, &first);
        let mut died = false;
        let points = pod::points_of(|| {
            died = cut(n, || OwnLog::of(&first).close().unwrap()).is_none();
            pod.declare_dead(0);
            let survivor = pod.join(1);
            pod.recoverers.recover_all(&survivor).unwrap();
        });
        passed = &points | &passed;
        check(&pod, 5);
        died
    });
    sweep(|n| {
        memory.reset();
        let first = pod.join(0);
        transfer(&pod, &first);
        pod.declare_dead(0);
        let survivor = pod.join(1);
        pod.recoverers.recover_all(&survivor).unwrap();
        let second = pod.stranger(0);
        let mut died = false;
        let points = pod::points_of(|| {
            died = cut(n, || OwnLog::open(&second).unwrap()).is_none();
        });
        passed = &points | &passed;
        pod.declare_dead(0);
        pod.recoverers.recover_all(&survivor).unwrap();
        check(&pod, 5);
        died
    });
    let wanted = &declared::<LogOpenPoint>() | &declared::<LogClosePoint>();
    assert!(wanted.is_subset(&passed), "{:?}", &wanted - &passed);
}

#[test]
fn a_live_claimant_is_never_overtaken_and_a_dead_one_is_recovered_in_turn() {
    let memory = Countdown::new();
    let pod = Pod::new(memory);
    let dead = pod.join(0);
    std::mem::forget(
        Tatas::new(memory, LOCK)
            .lock(&dead, &pod.recoverers)
            .unwrap(),
    );
    pod.declare_dead(0);
    let (slow, other) = (pod.join(1), pod.join(2));
    // The claimant stops right after it has claimed.
    let claimed = (0..).find(|&n| {
        assert!(cut(n, || pod.recoverers.recover(&slow, 0)).is_none());
        pod.logs.of(0).claimant() == Some(slow.instance())
    });
    assert!(claimed.is_some());
    for _ in 0..3 {
        let outcome = pod.recoverers.recover(&other, 0);
        assert_eq!(outcome, Ok(Recovered::ByAnother(slow.instance())));
        let lock = Tatas::new(memory, LOCK);
        assert!(lock.try_lock(&other, &pod.recoverers).unwrap().is_none());
        assert_eq!(lock.holder(), Some(dead.instance()));
    }
    pod.declare_dead(1);
    let outcome = pod.recoverers.recover(&other, 0).unwrap();
    assert!(
        matches!(outcome, Recovered::Completed { owner, locks: 1, .. } if owner == dead.instance())
    );
    assert_eq!(
        pod.recoverers.recover(&other, 0),
        Ok(Recovered::NothingLeft)
    );
    assert_eq!(pod.recoverers.recover_all(&other), Ok(1));
    pod.assert_settled(1);
}

#[test]
fn an_incarnation_recovers_its_predecessor_itself() {
    let memory = Countdown::new();
    let pod = with_handler(memory);
    let dead = pod.join(3);
    let _running = OwnLog::of(&dead).begin(TRANSFER, &[1]);
    std::mem::forget(
        Tatas::new(memory, LOCK)
            .lock(&dead, &pod.recoverers)
            .unwrap(),
    );
    pod.declare_dead(3);
    // No other member exists: the dead id's next incarnation begins, and may not open yet.
    let state = pod.generations.state(3).unwrap();
    let next = outlive::membership::State {
        generation: state.generation + 1,
        status: Status::Joining,
        ..state
    };
    // SAFETY: no thread acts as the incarnation that this ends; one acts as the one it begins.
    assert!(unsafe { pod.generations.assume_state(3, state, next) });
    let instance = outlive::membership::Instance::new(3, next.generation);
    // SAFETY: this thread alone acts as this instance.
    let heir = unsafe {
        outlive::membership::Member::assume(memory, pod.generations, instance, pod.logs.at(3), None)
    };
    assert_eq!(OwnLog::open(&heir).err(), Some(dead.instance()));
    let outcome = pod.recoverers.recover(&heir, 3).unwrap();
    assert!(matches!(
        outcome,
        Recovered::Completed {
            operation: true,
            locks: 1,
            ..
        }
    ));
    let log = OwnLog::open(&heir).unwrap();
    assert_eq!(
        log.log().inherited().unwrap().unwrap().progress,
        Progress::Undone
    );
    log.forget_inherited();
    assert_eq!(log.log().inherited(), Ok(None));
}

#[test]
fn an_old_commit_validates_no_new_records() {
    let memory = Countdown::new();
    let pod = Pod::new(memory);
    let commit_word = pod.logs.at(0) + 0x308;
    let dead = pod.join(0);
    let held = Tatas::new(memory, LOCK)
        .lock(&dead, &pod.recoverers)
        .unwrap();
    let one_store = |value: u64| {
        let mut redo = held.redo().unwrap();
        redo.store(DATA, value).unwrap();
        redo
    };
    // The word of a transaction that commits and dies before it retires.
    let committed = (0..100)
        .find_map(|n| {
            cut(n, || one_store(1).commit());
            let word: u64 = memory.load(commit_word, Ordering::Relaxed);
            memory.store(commit_word + 8, 0u64, Ordering::Relaxed);
            (word != 0).then_some(word)
        })
        .expect("a commit word");
    assert!(pod.logs.of(0).redo_committed());
    // It is retired, and other records are appended. If lost caches bring the old word back, it
    // must not make the new records count.
    memory.store(commit_word, 0u64, Ordering::Relaxed);
    std::mem::forget(one_store(2));
    std::mem::forget(held);
    memory.store(commit_word, committed, Ordering::Relaxed);
    assert!(!pod.logs.of(0).redo_committed());
    pod.set(0, 0);
    pod.declare_dead(0);
    let survivor = pod.join(1);
    pod.recoverers.recover(&survivor, 0).unwrap();
    assert_eq!(pod.get(0), 0);
}

#[test]
fn what_cannot_be_recovered_is_left_to_another() {
    let memory = Countdown::new();
    let pod = Pod::new(memory);
    let dead = pod.join(0);
    let _running = OwnLog::of(&dead).begin(TRANSFER, &[]);
    pod.declare_dead(0);
    let survivor = pod.join(1);
    let (owner, kind) = (dead.instance(), TRANSFER);
    let error = pod.recoverers.recover(&survivor, 0);
    assert_eq!(error, Err(RecoverError::NoHandler { owner, kind }));
    assert_eq!(pod.logs.of(0).claimant(), Some(owner));
    let able = outlive::sync::recoverers(pod.logs).operation(TRANSFER, Undo);
    let outcome = able.recover(&survivor, 0).unwrap();
    assert!(matches!(
        outcome,
        Recovered::Completed {
            operation: true,
            ..
        }
    ));

    let no_id = able.recover(&survivor, IDS);
    assert_eq!(
        no_id,
        Err(RecoverError::NoSuchId {
            id: IDS,
            capacity: IDS
        })
    );
    let foreign = pod.logs.at(2) + 0x40;
    memory.store(foreign, 1u64 << 32 | 77, Ordering::Relaxed);
    let damaged = able.recover(&survivor, 2);
    assert!(matches!(damaged, Err(RecoverError::ForeignInstance { at, .. }) if at == foreign));
}

#[test]
fn misuse_is_an_error() {
    let memory = Countdown::new();
    let pod = Pod::new(memory);
    let member = pod.join(0);
    let log = OwnLog::of(&member);
    assert!(matches!(
        log.redo_under(()),
        Err(outlive::recovery::RedoError::NoLock { .. })
    ));
    let held = Tatas::new(memory, LOCK)
        .lock(&member, &pod.recoverers)
        .unwrap();
    let mut redo = held.redo().unwrap();
    assert!(matches!(
        held.redo(),
        Err(outlive::recovery::RedoError::Nested { .. })
    ));
    for bad in [Offset::new(pod::SIZE), DATA + 3] {
        let error = redo.store(bad, 1u64);
        assert!(matches!(
            error,
            Err(outlive::recovery::RedoError::Target(_))
        ));
    }
    let mut stored = 0u64;
    while redo.store(DATA, stored).is_ok() {
        stored += 1;
    }
    assert_eq!(
        stored as usize,
        outlive::recovery::Logs::<Countdown>::RECORDS
    );
    drop(redo);
    assert_eq!(pod.get(0), 0);
    assert!(log.close().is_err());
    drop(held);
    let running = log.begin(TRANSFER, &[]);
    assert!(log.close().is_err());
    running.abandon(&[]);
    log.close().unwrap();
}
