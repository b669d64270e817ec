//! Threads contend for each lock, and some of them repeatedly die with it; the protected value must
//! be counted exactly.

use crate::pod::{DATA, IDS, LOCK, Pod, native};
use outlive::membership::{Instance, Member, State, Status};
use outlive::memory::{Memory, Native, Ordering};
use outlive::sync::{BareTatas, QueueLock, RecoverableMutex, Tatas, Waiting};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const ROUNDS: u64 = 400;

/// Each of four threads runs `round` this many times, and dies after every 20th in the middle: it
/// stops, is declared dead, waits for its recovery and continues as the next incarnation.
fn contend(round: impl Fn(&Pod<Native>, &Member<Native>, bool) + Sync) -> Pod<Native> {
    let memory = native();
    std::thread::scope(|scope| {
        for id in 0..IDS {
            let round = &round;
            scope.spawn(move || {
                let pod = Pod::new(memory);
                let mut member = pod.join(id);
                for n in 1..=ROUNDS {
                    let dies = (n + u64::from(id)) % 20 == 0;
                    round(&pod, &member, dies);
                    if dies {
                        pod.declare_dead(id);
                        while pod.status(id) == Status::Dead {
                            // If no other thread wants its lock any more, its recovery falls to an
                            // onlooker.
                            std::thread::sleep(Duration::from_micros(200));
                            recover_as_onlooker(&pod, id);
                        }
                        member = pod.join(id);
                    }
                }
                pod.leave(member);
            });
        }
    });
    Pod::new(memory)
}

/// The next incarnation recovers its predecessor, if no other member is about to, and leaves.
fn recover_as_onlooker(pod: &Pod<Native>, dead: u32) {
    let state = pod.generations.state(dead).unwrap();
    let next = State {
        generation: state.generation + 1,
        status: Status::Joining,
        ..state
    };
    // SAFETY: no thread acts as the incarnation that this ends; one acts as the one it begins.
    if state.status == Status::Dead && unsafe { pod.generations.assume_state(dead, state, next) } {
        let (instance, log) = (Instance::new(dead, next.generation), pod.logs.at(dead));
        // SAFETY: this thread alone acts as this instance, until it leaves below.
        let heir = unsafe { Member::assume(pod.memory, pod.generations, instance, log, None) };
        while pod.logs.of(dead).claimant().is_some() {
            pod.recoverers.recover(&heir, dead).unwrap();
            std::thread::yield_now();
        }
        pod.leave(heir);
    }
}

fn add_one(pod: &Pod<Native>) {
    let at = DATA;
    let value: u64 = pod.memory.load(at, Ordering::Relaxed);
    pod.memory.store(at, value + 1, Ordering::Relaxed);
}

#[test]
fn bare_tatas_counts_exactly_under_deaths() {
    let taken_over = AtomicU64::new(0);
    let pod = contend(|pod, member, dies| {
        let held = BareTatas::new(pod.memory, LOCK).lock(member).unwrap();
        taken_over.fetch_add(held.abandoned_by().is_some().into(), Relaxed);
        add_one(pod);
        if dies {
            std::mem::forget(held);
        }
    });
    assert_eq!(pod.get(0), u64::from(IDS) * ROUNDS);
    let last = BareTatas::new(pod.memory, LOCK).holder().is_some();
    let deaths = u64::from(IDS) * ROUNDS / 20;
    assert_eq!(taken_over.into_inner() + u64::from(last), deaths);
}

#[test]
fn logged_tatas_redoes_what_the_dead_had_committed() {
    let pod = contend(|pod, member, dies| {
        let held = Tatas::new(pod.memory, LOCK)
            .lock(member, &pod.recoverers)
            .unwrap();
        let mut redo = held.redo().unwrap();
        for word in 0..4 {
            let value = redo.load::<u64>(DATA + word * 8) + 1;
            redo.store(DATA + word * 8, value).unwrap();
        }
        if dies {
            std::mem::forget(redo);
            std::mem::forget(held);
        } else {
            redo.commit();
        }
    });
    let deaths = u64::from(IDS) * ROUNDS / 20;
    for word in 0..4 {
        assert_eq!(pod.get(word), u64::from(IDS) * ROUNDS - deaths);
    }
    assert_eq!(Tatas::new(pod.memory, LOCK).holder(), None);
}

#[test]
fn the_queue_lock_counts_exactly_under_deaths_and_impatience() {
    let gave_up = AtomicU64::new(0);
    let pod = contend(|pod, member, dies| {
        let waiting = Waiting {
            spins: 20,
            yielding: Duration::from_micros(5),
            nap: Duration::from_micros(100),
        };
        let lock = QueueLock::new(pod.memory, LOCK).waiting(waiting);
        let held = loop {
            let patience = Duration::from_micros(50 + 50 * u64::from(member.instance().id));
            if let Some(held) = lock.lock_for(member, &pod.recoverers, patience).unwrap() {
                break held;
            }
            gave_up.fetch_add(1, Relaxed);
        };
        add_one(pod);
        if dies {
            std::mem::forget(held);
        }
    });
    assert_eq!(pod.get(0), u64::from(IDS) * ROUNDS);
    assert!(!QueueLock::new(pod.memory, LOCK).is_held(pod.logs));
    println!("{} left the queue", gave_up.into_inner());
}

#[test]
fn a_mutex_counts_exactly_under_deaths() {
    let pod = contend(|pod, member, dies| {
        let mutex = RecoverableMutex::<[u64; 3]>::at(pod.memory, LOCK);
        let mut value = mutex.lock(member).unwrap();
        assert!(value[0] == value[1] && value[1] == value[2]);
        *value = value.map(|word| word + 1);
        if dies {
            std::mem::forget(value);
        }
    });
    let member = pod.join(0);
    let mutex = RecoverableMutex::<[u64; 3]>::at(pod.memory, LOCK);
    let deaths = u64::from(IDS) * ROUNDS / 20;
    assert_eq!(
        *mutex.lock(&member).unwrap(),
        [u64::from(IDS) * ROUNDS - deaths; 3]
    );
}

/// A guard's drop writes unchecked, so the write must be in the lock's memory for any member.
#[test]
#[should_panic(expected = "the lock is another pod's")]
fn a_member_of_a_larger_pod_writes_nothing_outside_the_lock_s() {
    use outlive::membership::{Generations, Instance, Level, Member, State, Status};
    use outlive::memory::{Native, Offset, PersistenceDomain};
    use outlive::recovery::{Logs, OwnLog};
    let [small, large] =
        [4096, 1 << 20].map(|size| Native::leaked(size, PersistenceDomain::Flushed));
    let generations = Generations::new(large, Offset::new(0), 4);
    let logs = Logs::new(large, Offset::new(65536), 4);
    let (generation, host, level) = (1, 0, Some(Level::Thread));
    let status = Status::Live;
    let live = State {
        generation,
        host,
        level,
        status,
    };
    // SAFETY: no thread acts as the incarnation that this ends; one acts as the one it begins.
    assert!(unsafe { generations.assume_state(0, State::FREE, live) });
    // SAFETY: this thread alone acts as 0.1, and no thread raises its generation.
    let member =
        unsafe { Member::assume(large, generations, Instance::new(0, 1), logs.at(0), None) };
    OwnLog::open(&member).unwrap();
    let recoverers = outlive::sync::recoverers(logs);
    let lock = outlive::sync::Tatas::new(small, Offset::new(1024));
    let _ = lock.lock(&member, &recoverers);
}
