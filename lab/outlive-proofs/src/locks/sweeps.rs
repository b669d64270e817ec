//! Locks, the mutex, the log and their recovery; and broken variants, which a sweep must find.

use crate::pod::{DATA, LOCK, Pod, SIZE};
use core::time::Duration;
use outlive::membership::{Member, Status};
use outlive::recovery::{
    LogClosePoint, LogOpenPoint, Operation, OperationKind, OwnLog, Progress, RecoverError,
    RecoverOperation, RecoverPoint, Recovering, RedoPoint,
};
use outlive::sync::{
    BareTatas, MutexPoint, PoisonPoint, QueueLock, QueuePoint, RecoverableMutex, Tatas,
    TatasLockPoint, TatasUnlockPoint,
};
use outlive_memory::{Memory, Offset, Ordering};
use outlive_prove::kill::{Crash, Marked, Suite, Sweep};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Adds the sweeps of this file.
pub fn add_to(suite: &mut Suite) {
    for what in What::SOUND {
        suite.add(Killed(what));
    }
    suite.declare::<RedoPoint>().declare::<RecoverPoint>();
    suite.declare::<LogOpenPoint>().declare::<LogClosePoint>();
    suite
        .declare::<TatasLockPoint>()
        .declare::<TatasUnlockPoint>();
    suite.declare::<QueuePoint>().declare::<MutexPoint>();
    suite.declare::<PoisonPoint>();
}

/// Returns the sweeps that must fail, each with a part of the expected message.
pub fn broken() -> Vec<(Box<dyn Sweep>, &'static str)> {
    [
        (Unlisted, "holds the lock"),
        (Early, "half-done"),
        (InPlace, "half-done"),
        (LatePoison, "not poisoned"),
        (LateQueuePoison, "not poisoned"),
    ]
    .map(|(what, message)| -> (Box<dyn Sweep>, _) { (Box::new(Killed(what)), message) })
    .into()
}

const ADD: OperationKind = OperationKind::new(70);

/// Abandons an operation: if the redo log did not complete it, it was not executed.
struct Undo;

impl<M: Memory> RecoverOperation<M> for Undo {
    fn recover(&self, dead: &Recovering<'_, M>, operation: &Operation) -> Result<(), RecoverError> {
        dead.running(operation).abandon(&[]);
        Ok(())
    }
}

fn pod(memory: Marked) -> Pod<Marked> {
    let mut pod = Pod::new(memory);
    pod.recoverers = outlive::sync::recoverers(pod.logs).operation(ADD, Undo);
    pod
}

crate::cases! {
    enum What {
        /// A detectable, logged update under a logged lock.
        LockedUpdate,
        /// The same while a dead instance holds the lock: the victim recovers that one first.
        LockedUpdateAfterADeath,
        /// A queue lock without contention.
        QueuedLock,
        /// A queue lock that a live instance holds until the victim's time is up.
        ImpatientQueuedLock,
        /// A queue lock that a dead instance held.
        QueuedLockAfterADeath,
        /// Two commits of a mutex's value.
        Mutex,
        /// A panic under a bare lock.
        PanickedBareLock,
        /// A panic under a logged lock.
        PanickedLoggedLock,
        /// A panic under a queue lock.
        PanickedQueueLock,
        /// Leaving the pod.
        Close,
        /// Joining it again.
        Open,
    }
    broken {
        /// The lock is taken without its entry.
        Unlisted,
        /// The changes are made before they are committed.
        Early,
        /// The changes are made in place.
        InPlace,
        /// A bare lock is poisoned after its release.
        LatePoison,
        /// A queue lock is poisoned after its release.
        LateQueuePoison,
    }
}

use What::*;

impl What {
    /// Returns the offset of the mark that a panic sets.
    fn poison(self) -> Offset {
        let is_queue = matches!(self, PanickedQueueLock | LateQueuePoison);
        LOCK + if is_queue { 72 } else { 12 }
    }

    /// Returns whether the victim has changed something under such a lock and released it; `None`
    /// for other operations.
    fn has_released(self, pod: &Pod<Marked>) -> Option<bool> {
        let is_held = match self {
            PanickedBareLock | PanickedLoggedLock | LatePoison => {
                BareTatas::new(pod.memory, LOCK).holder().is_some()
            }
            PanickedQueueLock | LateQueuePoison => queue(pod).is_held(pod.logs),
            _ => return None,
        };
        Some(pod.get(0) == 1 && !is_held)
    }
}

/// Number 0 is the victim; 1 and 2 recover; 3 is the other member that the operation needs.
struct Killed(What);

fn update(pod: &Pod<Marked>, member: &Member<Marked>, what: What) {
    let log = OwnLog::of(member);
    let operation = log.begin(ADD, &[1]);
    let held = Tatas::new(pod.memory, LOCK)
        .lock(member, &pod.recoverers)
        .unwrap();
    if what == InPlace {
        (0..4).for_each(|word| pod.set(word, pod.get(word) + 1));
        operation.finish(&[]);
        return drop(held);
    }
    let mut redo = held.redo().unwrap();
    // The entry is absent only for a while: the commit itself would notice.
    let entry = pod.logs.at(0) + 0x200;
    let listed = pod.memory.load::<u64>(entry, Ordering::Relaxed);
    if what == Unlisted {
        pod.memory.store(entry, 0u64, Ordering::Relaxed);
    }
    for word in 0..4 {
        let sum = redo.load::<u64>(DATA + word * 8) + 1;
        redo.store(DATA + word * 8, sum).unwrap();
        if what == Early {
            pod.set(word, sum);
        }
    }
    operation.finish_by(&mut redo, &[]).unwrap();
    if what == Unlisted {
        pod.memory.store(entry, listed, Ordering::Relaxed);
    }
    redo.commit();
    drop(held);
}

/// Changes a word under the lock whose guard is `$held`, and panics. (The guards have no trait in
/// common.)
macro_rules! panic_with {
    ($held:expr, $pod:expr) => {
        drop(catch_unwind(AssertUnwindSafe(|| {
            let held = $held.unwrap();
            let _change = held.poison().on_panic();
            $pod.set(0, 1);
            resume_unwind(Box::new(()))
        })))
    };
}

/// The words that record whether the victim has released the lock itself, and that this was
/// checked. It is checked before the first recovery.
const RELEASED: u64 = 2;
const CHECKED: u64 = 3;

fn queue(pod: &Pod<Marked>) -> QueueLock<Marked> {
    QueueLock::new(pod.memory, LOCK)
}

impl Sweep for Killed {
    fn name(&self) -> String {
        format!("sync {:?}", self.0)
    }

    fn size(&self) -> u64 {
        SIZE
    }

    fn prepare(&self, memory: Marked) {
        let pod = pod(memory);
        for id in 0..4 {
            pod.join(id);
        }
        let third = pod.act_as(3);
        match self.0 {
            LockedUpdateAfterADeath => {
                let held = Tatas::new(memory, LOCK)
                    .lock(&third, &pod.recoverers)
                    .unwrap();
                let mut redo = held.redo().unwrap();
                redo.store(DATA, 9u64).unwrap();
                std::mem::forget(redo);
                std::mem::forget(held);
                pod.declare_dead(3);
            }
            ImpatientQueuedLock | QueuedLockAfterADeath => {
                std::mem::forget(queue(&pod).lock(&third, &pod.recoverers).unwrap());
                if self.0 == QueuedLockAfterADeath {
                    pod.declare_dead(3);
                }
            }
            Open => pod.leave(pod.act_as(0)),
            Mutex => drop(RecoverableMutex::create(memory, LOCK, [5u64; 3])),
            _ => {}
        }
    }

    fn operate(&self, memory: Marked) {
        let pod = pod(memory);
        let member = pod.act_as(0);
        match self.0 {
            LockedUpdate | LockedUpdateAfterADeath | Unlisted | InPlace | Early => {
                update(&pod, &member, self.0)
            }
            QueuedLock | QueuedLockAfterADeath => {
                let held = queue(&pod).lock(&member, &pod.recoverers).unwrap();
                pod.set(0, 1);
                drop(held);
            }
            ImpatientQueuedLock => {
                let patience = Duration::from_micros(2);
                let held = queue(&pod)
                    .lock_for(&member, &pod.recoverers, patience)
                    .unwrap();
                assert!(held.is_none());
            }
            Mutex => {
                let mutex = RecoverableMutex::<[u64; 3], _>::at(memory, LOCK);
                let mut value = mutex.lock(&member).unwrap();
                *value = [6; 3];
                value.commit();
                *value = [7; 3];
            }
            PanickedBareLock => panic_with!(BareTatas::new(memory, LOCK).lock(&member), pod),
            PanickedLoggedLock => {
                panic_with!(Tatas::new(memory, LOCK).lock(&member, &pod.recoverers), pod);
            }
            PanickedQueueLock => panic_with!(queue(&pod).lock(&member, &pod.recoverers), pod),
            LatePoison => {
                std::mem::forget(BareTatas::new(memory, LOCK).lock(&member).unwrap());
                pod.set(0, 1);
                memory.store(LOCK, 0u64, Ordering::Release);
                memory.store(self.0.poison(), 1u32, Ordering::Relaxed);
            }
            LateQueuePoison => {
                std::mem::forget(queue(&pod).lock(&member, &pod.recoverers).unwrap());
                pod.set(0, 1);
                let node = pod.logs.of(0).node(0);
                let turn: u64 = memory.load(node, Ordering::Relaxed);
                memory.store(node + 16, turn, Ordering::Release);
                memory.store(self.0.poison(), 1u32, Ordering::Relaxed);
            }
            Close => OwnLog::of(&member).close().unwrap(),
            Open => drop(pod.join(0)),
        }
    }

    fn recover(&self, memory: Marked, crash: &Crash) {
        let pod = pod(memory);
        if let Some(released) = self.0.has_released(&pod).filter(|_| pod.get(CHECKED) == 0) {
            pod.set(RELEASED, released.into());
            pod.set(CHECKED, 1);
        }
        let lost = crash.recoverers_lost;
        for id in 0..=lost {
            if pod.status(id).may_write() {
                pod.declare_dead(id);
            }
        }
        let member = pod.act_as(1 + lost);
        pod.recoverers.recover_all(&member).unwrap();
        if self.0 == Mutex {
            // The lock's next owner repairs the value that it protects.
            let mutex = RecoverableMutex::<[u64; 3], _>::at(memory, LOCK);
            drop(mutex.lock(&member).unwrap());
        }
    }

    fn check(&self, memory: Marked, crash: &Crash) -> Result<(), String> {
        let pod = pod(memory);
        for id in 0..=crash.recoverers_lost {
            let log = pod.logs.of(id);
            let left = self.0 == Open && pod.status(id) == Status::Left;
            if !left && pod.status(id) != Status::Recovered || log.claimant().is_some() {
                return Err(format!("{id} is not recovered"));
            }
            if log.locks().next().is_some() || log.redo_committed() {
                return Err(format!("something is left in the log of {id}"));
            }
        }
        let words: [u64; 4] = core::array::from_fn(|word| pod.get(word as u64));
        match self.0 {
            LockedUpdate | LockedUpdateAfterADeath | Unlisted | InPlace | Early => {
                if let Some(holder) = Tatas::new(memory, LOCK).holder() {
                    return Err(format!("the dead member {holder} holds the lock"));
                }
                let last = pod
                    .logs
                    .of(0)
                    .inherited()
                    .map_err(|error| error.to_string())?;
                let done = match last.map(|last| last.progress) {
                    Some(Progress::Running) => return Err("unsettled".to_owned()),
                    progress => progress == Some(Progress::Done),
                };
                let whole = words == [u64::from(words[0] == 1); 4];
                let told = done == (words[0] == 1);
                match (whole, told, crash.returned && words[0] != 1) {
                    (false, ..) => Err(format!("half-done: {words:?}")),
                    (_, false, _) => Err(format!("done: {done}, {words:?}")),
                    (.., true) => Err("an update is lost".to_owned()),
                    _ => Ok(()),
                }
            }
            QueuedLock | QueuedLockAfterADeath if queue(&pod).is_held(pod.logs) => {
                Err("a dead member is in the queue".to_owned())
            }
            ImpatientQueuedLock => {
                // The live holder leaves; then no member must remain in the queue.
                let entry = pod.logs.of(3).locks().next();
                let slot = entry.ok_or("the holder's entry is gone")?.slot;
                let node = pod.logs.of(3).node(slot);
                let turn: u64 = memory.load(node, Ordering::Relaxed);
                let done = memory.exchange(node + 16, turn, Ordering::Relaxed);
                let held = queue(&pod).is_held(pod.logs);
                memory.store(node + 16, done, Ordering::Relaxed);
                if held {
                    Err("a dead member is in the queue".to_owned())
                } else {
                    Ok(())
                }
            }
            PanickedBareLock | PanickedLoggedLock | PanickedQueueLock | LatePoison
            | LateQueuePoison => {
                let poisoned_by: u32 = memory.load(self.0.poison(), Ordering::Relaxed);
                match (words[RELEASED as usize] == 1 || crash.returned) && poisoned_by != 1 {
                    false => Ok(()),
                    true => Err(
                        "an owner panicked and released the lock, which is not poisoned".to_owned(),
                    ),
                }
            }
            Mutex => {
                let member = pod.act_as(2);
                let mutex = RecoverableMutex::<[u64; 3], _>::at(memory, LOCK);
                let value = *mutex.lock(&member).map_err(|error| error.to_string())?;
                let least = if crash.returned { 7 } else { 5 };
                let good = value == [value[0]; 3] && (least..=7).contains(&value[0]);
                if good {
                    Ok(())
                } else {
                    Err(format!("{value:?}"))
                }
            }
            _ => Ok(()),
        }
    }
}
