//! A pod with a heap, and in it a map and a list, to which two words lead.

#![allow(dead_code)] // each proof and test uses its part of this

use super::pod::{DATA, HeapPod, SIZE, region_behind};
use outlive::heap::{Heap, LocalHeap};
use outlive::membership::{Member, Status};
use outlive::memory::{Memory, Offset, Ordering};
use outlive::recovery::{
    Operation, OperationKind, OwnLog, RecoverError, RecoverOperation, Recovering,
};
use outlive::structures::{self, InsertError, List, Map, Outcome, Report};

const STATE: Offset = Offset::new(SIZE);
/// A slab of each size that a small structure needs, and another.
pub const REGION: u64 = 6 * (32 << 10);
/// The words that lead to the map and to the list.
pub const MAP: Offset = DATA;
pub const LIST: Offset = Offset::new(DATA.raw() + 8);

/// Returns the size of a memory for a region of that size.
pub fn bytes_for<M: Memory>(region: u64) -> u64 {
    region_behind::<M>(region).1.next_multiple_of(4096)
}

pub fn heap<M: Memory>(memory: M) -> Heap<M> {
    Heap::open(memory, STATE).expect("a heap")
}

/// A pod and its heap.
pub type World<M> = HeapPod<M>;

/// Opens the pod, with recoverers that know its heap and the structures in it.
pub fn pod<M: Memory>(memory: M) -> World<M> {
    HeapPod::open(memory, STATE).with(structures::recoverers)
}

/// Creates the heap, and returns its pod.
pub fn create<M: Memory>(memory: M, region: u64) -> World<M> {
    let (at, _) = region_behind::<M>(region);
    HeapPod::create(memory, STATE, at, region).with(structures::recoverers)
}

/// Returns `member`'s heap handle.
pub fn local<'m, M: Memory>(world: &'m World<M>, member: &'m Member<M>) -> LocalHeap<'m, M> {
    world.local(member)
}

pub fn map<M: Memory>(memory: M) -> Map<u64, u64, M> {
    let at = memory.load(MAP, Ordering::Acquire);
    Map::open(memory, Offset::from_raw(at)).expect("a map")
}

pub fn list<M: Memory>(memory: M) -> List<u64, u64, M> {
    let at = memory.load(LIST, Ordering::Acquire);
    List::open(memory, Offset::from_raw(at)).expect("a list")
}

/// The sequence number of the last operation before the one that is cut short.
const BEFORE: Offset = Offset::new(DATA.raw() + 32);

/// The operation during which the victim, number 0, dies. Keys 0 to 3 exist, each with ten times
/// itself; 1 and 3 have had another value before, so their values are in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// Inserts 9 into a map with free space.
    Insert,
    /// Inserts 9, after which the map doubles its buckets.
    InsertAndDouble,
    /// Inserts 9, for which buckets are opened and pages are added.
    InsertAndOpen,
    /// Fails to insert 3.
    InsertInVain,
    /// Removes 2.
    Remove,
    /// Removes 3, which has its value in a block.
    RemoveReplaced,
    /// Replaces the value of 2.
    Replace,
    /// Replaces the value of 3, which is in a block.
    ReplaceAgain,
    /// The same, and before the victim is recovered another member replaces it once more.
    ReplaceAndBeReplaced,
    /// The same with a removal.
    ReplaceAndBeRemoved,
    /// Inserts 9, and before the victim is recovered another member removes it.
    InsertAndBeRemoved,
    /// Compares and exchanges the value of 3.
    Exchange,
    /// Compares the value of 3 in vain.
    ExchangeInVain,
    /// Creates a map.
    Create,
    /// Inserts 9 into the list.
    ListInsert,
    /// Removes 3 from the list.
    ListRemove,
    /// Replaces the value of 3 in the list.
    ListReplace,
    /// Destroys a map with a bucket and pages.
    Destroy,
    /// The same, and before the victim is recovered another member creates a map in its place.
    DestroyAndMakeAnother,
    /// Destroys the list.
    ListDestroy,
    /// Broken: the list leads to the node before it is written.
    LinksFirst,
    /// Broken: as `ReplaceAndBeReplaced`, with a recovery that ignores whether the block was seen.
    ForgetsSeen,
    /// Broken: as `Insert`, with a recovery that takes every insertion for one that did not take
    /// effect.
    ForgetsLinked,
    /// Broken: the blocks of a map are freed one by one, without a descriptor that records it.
    DestroysWithoutNote,
    /// Broken: as `Destroy`, with a recovery that takes every destruction for one that did not take
    /// effect.
    ForgetsTheSeal,
}

use Case::*;

type Entries = Vec<(u64, u64)>;

impl Case {
    pub const SOUND: [Self; 20] = [
        Insert,
        InsertAndDouble,
        InsertAndOpen,
        InsertInVain,
        Remove,
        RemoveReplaced,
        Replace,
        ReplaceAgain,
        ReplaceAndBeReplaced,
        ReplaceAndBeRemoved,
        InsertAndBeRemoved,
        Exchange,
        ExchangeInVain,
        Create,
        ListInsert,
        ListRemove,
        ListReplace,
        Destroy,
        DestroyAndMakeAnother,
        ListDestroy,
    ];

    fn is_of_the_list(self) -> bool {
        matches!(
            self,
            ListInsert | ListRemove | ListReplace | ListDestroy | LinksFirst
        )
    }

    fn destroys(self) -> bool {
        matches!(
            self,
            Destroy | DestroyAndMakeAnother | ListDestroy | DestroysWithoutNote | ForgetsTheSeal
        )
    }

    /// Returns the word that leads to the structure.
    fn cell(self) -> Offset {
        if self.is_of_the_list() { LIST } else { MAP }
    }

    /// Returns the victim's key and its value after another member's operation, if there is one.
    fn other(self) -> Option<(u64, Option<u64>)> {
        match self {
            ReplaceAndBeReplaced | ForgetsSeen => Some((3, Some(78))),
            ReplaceAndBeRemoved => Some((3, None)),
            InsertAndBeRemoved => Some((9, None)),
            _ => None,
        }
    }

    /// Opens the pod with the handlers that the case needs.
    pub fn pod<M: Memory>(self, memory: M) -> World<M> {
        match self {
            ForgetsSeen | ForgetsLinked => HeapPod::open(memory, STATE).with(|recoverers, heap| {
                recoverers
                    .operation(OperationKind::new(0x201), Abandoned)
                    .operation(OperationKind::new(0x203), Unseen { heap })
            }),
            ForgetsTheSeal => HeapPod::open(memory, STATE)
                .with(|recoverers, _| recoverers.operation(OperationKind::new(0x206), Abandoned)),
            _ => pod(memory),
        }
    }

    /// Does everything that precedes the operation.
    pub fn prepare<M: Memory>(self, memory: M) {
        let pod = create(memory, REGION);
        (0..4).for_each(|id| drop(pod.join(id)));
        let victim = pod.act_as(0);
        let heap = local(&pod, &victim);
        let keys = 0..4u64;
        if self == LinksFirst {
            List::<u64, u64, M>::create(&heap, LIST).unwrap();
        } else if self.is_of_the_list() {
            let list = List::<u64, u64, M>::create(&heap, LIST).unwrap();
            for key in keys {
                list.insert(&heap, &key, &(key % 2)).unwrap();
                if key % 2 == 1 {
                    list.replace(&heap, &key, &(key * 10)).unwrap();
                } else {
                    list.compare_exchange(&heap, &key, &0, &(key * 10)).unwrap();
                }
            }
        } else if self != Create {
            let map = match self {
                InsertAndDouble => Map::<u64, u64, M>::create_small(&heap, MAP).unwrap(),
                _ if self.destroys() => Map::<u64, u64, M>::create_small(&heap, MAP).unwrap(),
                _ => Map::<u64, u64, M>::create_roomy(&heap, MAP).unwrap(),
            };
            for key in keys {
                let first = if key % 2 == 1 { 1 } else { key * 10 };
                map.insert(&heap, &key, &first).unwrap();
                if key % 2 == 1 {
                    map.replace(&heap, &key, &(key * 10)).unwrap();
                }
            }
        }
        if self == InsertAndOpen {
            // As if there had been many more entries, and none of their buckets had been opened.
            memory.store(map(memory).offset() + 64, 5u64, Ordering::Relaxed);
        }
        // The blocks retired so far are of no interest.
        heap.reclaim();
        drop(heap);
        let last = pod.logs.of(0).operation().unwrap();
        let before = last.map_or(0, |last| last.sequence);
        memory.store(BEFORE, before, Ordering::Relaxed);
    }

    /// Runs the operation.
    pub fn operate<M: Memory>(self, pod: &World<M>, victim: &Member<M>) {
        let (memory, heap) = (pod.memory, local(pod, victim));
        let heap = &heap;
        match self {
            Insert | InsertAndDouble | InsertAndOpen | InsertAndBeRemoved | ForgetsLinked => {
                map(memory).insert(heap, &9, &90).unwrap();
            }
            InsertInVain => {
                let there = map(memory).insert(heap, &3, &90);
                assert_eq!(there, Err(InsertError::Exists(30)));
            }
            Remove => assert_eq!(map(memory).remove(heap, &2), Some(20)),
            RemoveReplaced => assert_eq!(map(memory).remove(heap, &3), Some(30)),
            Replace => assert_eq!(map(memory).replace(heap, &2, &77), Ok(Some(20))),
            ReplaceAgain | ReplaceAndBeReplaced | ReplaceAndBeRemoved | ForgetsSeen => {
                assert_eq!(map(memory).replace(heap, &3, &77), Ok(Some(30)));
            }
            Exchange => {
                let done = map(memory).compare_exchange(heap, &3, &30, &77);
                assert_eq!(done, Ok(structures::Exchange::Done));
            }
            ExchangeInVain => {
                let refused = map(memory).compare_exchange(heap, &3, &31, &77);
                assert_eq!(refused, Ok(structures::Exchange::Different(30)));
            }
            Create => drop(Map::<u64, u64, M>::create_small(heap, MAP).unwrap()),
            ListInsert => list(memory).insert(heap, &9, &90).unwrap(),
            ListRemove => assert_eq!(list(memory).remove(heap, &3), Some(30)),
            ListReplace => assert_eq!(list(memory).replace(heap, &3, &77), Ok(Some(30))),
            Destroy | DestroyAndMakeAnother | ForgetsTheSeal => {
                let map = map(memory);
                let blocks = map.blocks().len() as u64;
                assert_eq!(map.destroy(heap, MAP), Ok(blocks));
            }
            ListDestroy => {
                // The header, four nodes, and the values, none of which is in its node any more.
                assert_eq!(list(memory).destroy(heap, LIST), Ok(9));
            }
            DestroysWithoutNote => {
                let blocks = map(memory).blocks();
                memory.store(MAP, 0u64, Ordering::Release);
                for block in blocks {
                    memory.store(heap.pending_cell(0), block.raw(), Ordering::Relaxed);
                    heap.free_from(heap.pending_cell(0), 0).unwrap();
                }
            }
            LinksFirst => {
                let (list, node) = (
                    list(memory),
                    heap.allocate_into(64, heap.pending_cell(0)).unwrap(),
                );
                let head = list.offset() + 128;
                let arguments = [list.offset().raw(), node.raw()];
                let running = OwnLog::of(victim).begin(OperationKind::new(0x201), &arguments);
                let tail = memory.exchange(head, node.raw(), Ordering::AcqRel);
                let words = [heap.era(), 0, 0, tail, 9, 1 << 62, 9, 90];
                for (offset, word) in (0..).step_by(8).zip(words) {
                    memory.store(node + offset, word, Ordering::Release);
                }
                memory.store(heap.pending_cell(0), 0u64, Ordering::Release);
                running.finish(&[]);
            }
        }
    }

    /// Acts as survivor `by` of the victim: does the case's other operation, and recovers.
    pub fn recover<M: Memory>(self, pod: &World<M>, by: u32) {
        let member = pod.act_as(by);
        if let Some((key, after)) = self.other()
            && pod.status(0) == Status::Dead
        {
            // Before the recovery, and once.
            let (map, heap) = (map(pod.memory), local(pod, &member));
            if map
                .get(&heap, &key)
                .is_some_and(|value| value == 77 || value == 90)
            {
                match after {
                    Some(value) => drop(map.replace(&heap, &key, &value).unwrap()),
                    None => drop(map.remove(&heap, &key)),
                }
            }
        }
        if self == DestroyAndMakeAnother && pod.status(0) == Status::Dead {
            let heap = local(pod, &member);
            if pod.memory.load::<u64>(MAP, Ordering::Acquire) == 0 {
                Map::<u64, u64, M>::create_small(&heap, MAP).unwrap();
            }
        }
        pod.recoverers.recover_all(&member).unwrap();
    }

    fn expected(self, took_effect: bool, mut entries: Entries) -> Entries {
        let key = match self {
            Remove | Replace => 2,
            Insert | InsertAndDouble | InsertAndOpen | InsertAndBeRemoved | ListInsert
            | LinksFirst | ForgetsLinked => 9,
            _ => 3,
        };
        let value = match self {
            _ if !took_effect || self.destroys() => return entries,
            InsertInVain | ExchangeInVain | Create => return entries,
            _ if self.other().is_some() => self.other().and_then(|(_, value)| value),
            Remove | RemoveReplaced | ListRemove => None,
            _ if key == 9 => Some(90),
            _ => Some(77),
        };
        entries.retain(|entry| entry.0 != key);
        entries.extend(value.map(|value| (key, value)));
        entries.sort_unstable();
        entries
    }

    /// Checks the pod after all dead members have been recovered.
    pub fn check<M: Memory>(self, pod: &World<M>, returned: bool) -> Result<(), String> {
        let demand = |what: bool, why: String| what.then_some(()).ok_or(why);
        let memory = pod.memory;
        let made = memory.load::<u64>(MAP, Ordering::Acquire) != 0;
        let leads_to: u64 = memory.load(self.cell(), Ordering::Acquire);
        let is_there = leads_to != 0;
        if self.destroys() && is_there {
            let whole = match self.is_of_the_list() {
                true => List::<u64, u64, M>::open(memory, Offset::from_raw(leads_to)).map(drop),
                false => Map::<u64, u64, M>::open(memory, Offset::from_raw(leads_to)).map(drop),
            };
            whole.map_err(|error| error.to_string())?;
        }
        let before: u64 = memory.load(BEFORE, Ordering::Relaxed);
        let last = pod
            .logs
            .of(0)
            .operation()
            .map_err(|error| error.to_string())?;
        let last = last.filter(|last| last.sequence > before);
        if let Some(last) = &last {
            demand(last.is_done(), "the operation is not settled".into())?;
        }
        let outcome = last.as_ref().and_then(Outcome::of);
        let took_effect = outcome.is_some_and(|outcome| outcome.took_effect == Some(true));
        let in_vain = matches!(self, InsertInVain | ExchangeInVain);
        demand(
            took_effect || in_vain || !returned || self == DestroysWithoutNote,
            format!("it returned, and left {outcome:?}"),
        )?;
        let (report, entries) = {
            let member = pod.act_as(3);
            let heap = local(pod, &member);
            if self.destroys() && (took_effect || !is_there) {
                let unasked = !took_effect && self != DestroysWithoutNote;
                demand(!unasked, format!("{outcome:?}, and it is gone"))?;
                match self {
                    DestroyAndMakeAnother if is_there => {
                        let another = map(memory);
                        let entries: Entries = another.iter(&heap).collect();
                        demand(entries.is_empty(), format!("the new one has {entries:?}"))?;
                        (another.check(), Entries::new())
                    }
                    _ => {
                        demand(!is_there, format!("{outcome:?}, and it is there"))?;
                        (Report::default(), Entries::new())
                    }
                }
            } else if self.is_of_the_list() {
                let list = list(memory);
                (list.check(), list.iter(&heap).collect())
            } else if made {
                let map = map(memory);
                (map.check(), map.iter(&heap).collect())
            } else {
                demand(self == Create && !took_effect, "there is no map".into())?;
                (Report::default(), Entries::new())
            }
        };
        demand(report.is_clean(), report.to_string())?;
        let mut entries: Entries = entries;
        entries.sort_unstable();
        let is_gone = self.destroys() && (took_effect || !is_there);
        let all = if matches!(self, Create | LinksFirst) || is_gone {
            0..0
        } else {
            0..4
        };
        let expected = self.expected(took_effect, all.map(|key| (key, key * 10)).collect());
        demand(
            entries == expected,
            format!("{outcome:?} left {entries:?}, not {expected:?}"),
        )?;
        let heap = pod.heap;
        let retired = (0..4).flat_map(|id| heap.retired(pod.logs.of(id)));
        let whole = heap.check_reachable(report.blocks.iter().copied().chain(retired));
        demand(whole.is_clean(), whole.to_string())?;
        match heap.check_members(pod.logs, pod.generations).first() {
            Some(finding) => Err(finding.to_string()),
            None => Ok(()),
        }
    }
}

/// Broken: every operation is taken for one that did not take effect.
struct Abandoned;

impl<M: Memory> RecoverOperation<M> for Abandoned {
    fn recover(&self, dead: &Recovering<'_, M>, operation: &Operation) -> Result<(), RecoverError> {
        dead.running(operation).abandon(&[]);
        Ok(())
    }
}

/// Broken: a replacement is taken for one that took effect only if it still stands.
struct Unseen<M: Memory> {
    heap: Heap<M>,
}

impl<M: Memory> RecoverOperation<M> for Unseen<M> {
    fn recover(&self, dead: &Recovering<'_, M>, operation: &Operation) -> Result<(), RecoverError> {
        let heap = LocalHeap::of_the_dead(self.heap, dead);
        let (memory, [_, node, block, ..]) = (heap.memory(), operation.arguments);
        let value: u64 = memory.load(Offset::from_raw(node) + 40, Ordering::Acquire);
        if value != block {
            dead.running(operation).abandon(&[]);
            return Ok(());
        }
        memory.store(heap.pending_cell(0), 0u64, Ordering::Relaxed);
        let old = Offset::from_raw(operation.note);
        if !heap.is_last_retired(old) {
            heap.retire(old);
        }
        dead.running(operation).finish(&[]);
        Ok(())
    }
}
