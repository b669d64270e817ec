//! Safe reclamation and its recovery; and broken variants, each of which a sweep must find.

use super::fixture::{
    REGION, bytes_for, create, heap, link, local, move_on, pod as pod_of, put, read, remove,
    retired, take,
};
use crate::pod::{IDS, Pod};
use outlive::heap::{LocalHeap, ReclaimPoint, RetireFromPoint, RetirePoint};
use outlive::membership::Status;
use outlive::recovery::OwnLog;
use outlive_memory::{Memory, Offset, Ordering};
use outlive_prove::kill::{Crash, Marked, Suite, Sweep};

/// Adds the sweeps of this file.
pub fn add_to(suite: &mut Suite) {
    for case in Case::SOUND {
        suite.add(Killed(case));
    }
    suite
        .declare::<RetirePoint>()
        .declare::<RetireFromPoint>()
        .declare::<ReclaimPoint>();
}

/// Returns the sweeps that must fail, each with a part of the expected message.
pub fn broken() -> Vec<(Box<dyn Sweep>, &'static str)> {
    [
        (Case::RetiresTooLate, "has leaked"),
        (Case::FreesFirst, "no allocated block starts there"),
    ]
    .map(|(case, message)| -> (Box<dyn Sweep>, _) { (Box::new(Killed(case)), message) })
    .into()
}

crate::cases! {
    /// The operation during which the victim, number 0, dies. Number 2 lives, and reads the block
    /// that was linked at 2.
    enum Case {
        /// Removes a block, as an operation of a structure.
        Remove,
        /// Retires a block out of a cell of its own.
        RetireFrom,
        /// Frees its retired blocks, all but the one that is read.
        Reclaim,
        /// Frees the blocks that a departed member has left.
        Adopt,
        /// Recovers a dead member that has retired blocks.
        Recover,
        /// Its heap handle ends.
        End,
    }
    broken {
        /// The operation is over before the block is retired.
        RetiresTooLate,
        /// A block is freed, then it is taken off the list.
        FreesFirst,
    }
}

impl Case {
    /// Returns the member that has retired blocks 0 to 2 before the operation.
    fn retirer(self) -> Option<u32> {
        match self {
            Self::Reclaim | Self::End | Self::FreesFirst => Some(0),
            Self::Adopt | Self::Recover => Some(3),
            Self::Remove | Self::RetireFrom | Self::RetiresTooLate => None,
        }
    }
}

/// Ends `id`'s heap handle, and leaves the retired blocks as they are.
fn forsake(pod: &Pod<Marked>, id: u32, way: LocalHeap<'_, Marked>) {
    std::mem::forget(way);
    let keeper = pod.logs.of(id).room() + 0x88;
    pod.memory.store(keeper, 0u64, Ordering::Relaxed);
}

/// Number 0 is the victim; 1 and 2 recover; 3 departed or died before.
struct Killed(Case);

impl Sweep for Killed {
    fn name(&self) -> String {
        format!("reclaim {:?}", self.0)
    }

    fn size(&self) -> u64 {
        bytes_for::<Marked>(REGION)
    }

    fn prepare(&self, memory: Marked) {
        let pod = create(memory, REGION);
        (0..IDS).for_each(|id| drop(pod.join(id)));
        let (reader, maker) = (pod.act_as(2), pod.act_as(self.0.retirer().unwrap_or(1)));
        let made = local(&pod, &maker);
        put(&made, 2, 2);
        let readers = local(&pod, &reader);
        let pin = readers.pin();
        read(&pin, memory, 2).expect("it is linked");
        // Too young to be held back by that reader.
        move_on(memory);
        for index in [0, 1, 3] {
            put(&made, index, index);
        }
        if self.0.retirer().is_some() {
            for index in [1, 2, 0] {
                made.retire(take(memory, index).expect("it is linked"));
            }
        }
        // It goes on reading, in a frame that never continues.
        std::mem::forget(pin);
        std::mem::forget(readers);
        match self.0 {
            // The member leaves without having freed any block, as if all had been read until now.
            Case::Adopt => {
                forsake(&pod, 3, made);
                memory.fetch_add(heap(memory).state() + 136, 1u64, Ordering::Relaxed);
                pod.leave(maker);
            }
            Case::Recover => {
                std::mem::forget(made);
                pod.declare_dead(3);
            }
            // The operation makes a new handle for the victim, and its blocks are not dated yet.
            Case::Reclaim | Case::End | Case::FreesFirst => {
                forsake(&pod, 0, made);
            }
            _ => drop(made),
        }
    }

    fn operate(&self, memory: Marked) {
        let pod = pod_of(memory);
        let victim = pod.act_as(0);
        if self.0 == Case::Recover {
            pod.recoverers.recover_all(&victim).unwrap();
            return;
        }
        let own = local(&pod, &victim);
        match self.0 {
            Case::Remove => remove(&own, 0),
            Case::RetireFrom => {
                let block = own.retire_from(link(0)).expect("it is linked");
                assert!(own.is_last_retired(block));
                assert_eq!(own.retire_from(link(0)), None);
            }
            Case::Reclaim | Case::Adopt => {
                own.reclaim();
            }
            Case::RetiresTooLate => {
                let operation =
                    OwnLog::of(&victim).begin(outlive::recovery::OperationKind::new(98), &[0]);
                let block = take(memory, 0).expect("it is linked");
                operation.finish(&[]);
                own.retire(block);
            }
            Case::FreesFirst => {
                let head = pod.logs.of(0).room() + 0x80;
                let first: u64 = memory.load(head, Ordering::Relaxed);
                let block = Offset::from_raw(first);
                let next: u64 = memory.load(block + 16, Ordering::Relaxed);
                memory.store(own.pending_cell(2), first, Ordering::Relaxed);
                own.free_from(own.pending_cell(2), 0).unwrap();
                memory.store(head, next, Ordering::Release);
            }
            Case::End | Case::Recover => {}
        }
        // The handle is dropped here: any kind of operation may be a member's last.
    }

    fn recover(&self, memory: Marked, crash: &Crash) {
        let pod = pod_of(memory);
        for id in [0, 1].into_iter().take(1 + crash.recoverers_lost as usize) {
            if pod.status(id).may_write() {
                pod.declare_dead(id);
            }
        }
        let survivor = pod.act_as(1 + crash.recoverers_lost);
        pod.recoverers.recover_all(&survivor).unwrap();
        if survivor.instance().id == 1 {
            // A live member reclaims for departed ones; number 2 is busy reading.
            local(&pod, &survivor).reclaim();
        }
    }

    fn check(&self, memory: Marked, crash: &Crash) -> Result<(), String> {
        let demand = |what: bool, why: &str| what.then_some(()).ok_or(why.to_owned());
        let (pod, heap) = (pod_of(memory), heap(memory));
        let linked = (0..8).filter_map(|index| {
            let word: u64 = memory.load(link(index), Ordering::Relaxed);
            (word != 0).then(|| Offset::from_raw(word))
        });
        let lists = (0..IDS).flat_map(|id| heap.retired(pod.logs.of(id)));
        let report = heap.check_reachable(linked.chain(lists));
        demand(report.is_clean(), &report.to_string())?;
        if let Some(bad) = heap.check_retired(pod.logs).first() {
            return Err(bad.to_string());
        }
        if let Some(bad) = heap.check_members(pod.logs, pod.generations).first() {
            return Err(bad.to_string());
        }
        let cleared = memory.load::<u64>(link(0), Ordering::Relaxed) == 0;
        if self.0 == Case::RetireFrom && crash.returned {
            demand(cleared, "the cell was not cleared")?;
        }
        if let Some(id) = self.0.retirer() {
            // The block that is read stays, wherever the victim died. The others have been freed.
            let left = retired(&pod, id);
            demand(left > 0, "a block with a reader was freed")?;
            demand(
                left == 1 || crash.recoverers_lost > 0,
                "a block without readers was kept",
            )?;
        }
        for id in 0..IDS {
            let dead = matches!(pod.status(id), Status::Dead);
            demand(!dead, "a member is not recovered")?;
        }
        Ok(())
    }
}
