//! A walk meets a node that is removed and not marked, when the era has moved on and the node
//! behind it is younger than the walk's pin: no freed byte is read. And a list is claimed for
//! destruction right when another member begins an operation on it.

use crate::structures::{LIST, bytes_for, create, local};
use outlive::heap::LocalHeap;
use outlive::memory::{Memory, Native, Offset, Ordering, PersistenceDomain, Word};
use outlive::recovery::{OperationKind, OwnLog};
use outlive::structures::{DestroyError, List};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

type Hook = Box<dyn FnOnce()>;

thread_local! {
    /// The actions of others right before the next marks are set.
    static BEFORE_MARK: RefCell<VecDeque<Hook>> = RefCell::default();
    /// The action of another right after the next compare-and-swap.
    static AFTER_SWAP: RefCell<Option<Hook>> = RefCell::default();
    /// A block that must not be read any more.
    static FREED: Cell<u64> = const { Cell::new(0) };
    static READS: Cell<u32> = const { Cell::new(0) };
}

/// The bytes of a node with key and value of eight bytes each.
const NODE: u64 = 64;
/// The first word of a node that belongs to the list; those before it are the heap's.
const NEXT: u64 = 24;

/// A memory in which others act between two accesses of one.
#[derive(Clone, Copy, Debug)]
struct Hooked(Native);

// SAFETY: size and domain are those of the memory beneath, which never change; accesses are handed
// on to it.
unsafe impl Memory for Hooked {
    fn size(self) -> u64 {
        self.0.size()
    }
    fn domain(self) -> PersistenceDomain {
        self.0.domain()
    }
    fn load<W: Word>(self, at: Offset, order: Ordering) -> W {
        let freed = FREED.get();
        if freed != 0 && (freed + NEXT..freed + NODE).contains(&at.raw()) {
            READS.set(READS.get() + 1);
        }
        self.0.load(at, order)
    }
    fn store<W: Word>(self, at: Offset, value: W, order: Ordering) {
        self.0.store(at, value, order);
    }
    fn exchange<W: Word>(self, at: Offset, value: W, order: Ordering) -> W {
        self.0.exchange(at, value, order)
    }
    fn compare_exchange<W: Word>(
        self,
        at: Offset,
        current: W,
        new: W,
        success: Ordering,
        failure: Ordering,
    ) -> Result<W, W> {
        let done = self.0.compare_exchange(at, current, new, success, failure);
        if done.is_ok()
            && let Some(hook) = AFTER_SWAP.with_borrow_mut(Option::take)
        {
            hook();
        }
        done
    }
    fn fetch_add<W: Word>(self, at: Offset, value: W, order: Ordering) -> W {
        self.0.fetch_add(at, value, order)
    }
    fn fetch_and<W: Word>(self, at: Offset, value: W, order: Ordering) -> W {
        self.0.fetch_and(at, value, order)
    }
    fn fetch_or<W: Word>(self, at: Offset, value: W, order: Ordering) -> W {
        if let Some(hook) = BEFORE_MARK.with_borrow_mut(VecDeque::pop_front) {
            hook();
        }
        self.0.fetch_or(at, value, order)
    }
    fn copy_in(self, at: Offset, from: &[u8]) {
        self.0.copy_in(at, from);
    }
    fn copy_out(self, at: Offset, into: &mut [u8]) {
        self.0.copy_out(at, into);
    }
    fn write_back(self, at: Offset, len: u64) {
        self.0.write_back(at, len);
    }
    fn drain(self) {
        self.0.drain();
    }
    fn fence(self, order: Ordering) {
        self.0.fence(order);
    }
    fn spin_hint(self) {
        self.0.spin_hint();
    }
}

#[test]
fn what_follows_a_frozen_link_is_not_read_after_it_is_freed() {
    let region = 1 << 20;
    let memory = Native::leaked(bytes_for::<Native>(region), PersistenceDomain::Flushed);
    let pod = Box::leak(Box::new(create(Hooked(memory), region)));
    let pod = &*pod;
    let way = |id: u32| -> &'static LocalHeap<'static, Hooked> {
        let member = Box::leak(Box::new(pod.join(id)));
        Box::leak(Box::new(local(pod, member)))
    };
    let (walker, remover, other) = (way(0), way(1), way(2));
    let list = List::<u64, u64, Hooked>::create(other, LIST).unwrap();
    list.insert(other, &10, &1).unwrap();
    list.insert(other, &30, &3).unwrap();
    BEFORE_MARK.with_borrow_mut(|hooks| {
        // 10 is sealed and not yet marked when the walker looks for it.
        hooks.push_back(Box::new(move || {
            assert_eq!(list.get(walker, &10), None);
        }));
        // The walker has read the link of 10, and is about to mark it. The era moves on, and 20 is
        // inserted behind 10.
        hooks.push_back(Box::new(move || {
            for _ in 0..1000 {
                other.era();
            }
            list.insert(other, &20, &2).unwrap();
            // As soon as the walker has taken 10 out, 20 is removed and reclaimed, unless the
            // walker's pin covers it.
            let removes = move || {
                assert_eq!(list.remove(other, &20), Some(2));
                other.reclaim();
                FREED.set(
                    other
                        .allocate_into(NODE, other.pending_cell(5))
                        .unwrap()
                        .raw(),
                );
            };
            AFTER_SWAP.with_borrow_mut(|hook| *hook = Some(Box::new(removes)));
        }));
    });
    assert_eq!(list.remove(remover, &10), Some(1));
    assert_ne!(FREED.get(), 0, "20 was not inserted and removed in time");
    assert_eq!(READS.get(), 0, "a walk read a node after it was freed");
}

#[test]
fn a_destruction_that_meets_a_late_user_is_taken_back() {
    let region = 1 << 20;
    let memory = Native::leaked(bytes_for::<Native>(region), PersistenceDomain::Flushed);
    let pod = &*Box::leak(Box::new(create(Hooked(memory), region)));
    let members = [0, 1].map(|id| &*Box::leak(Box::new(pod.join(id))));
    let heap = local(pod, members[0]);
    let list = List::<u64, u64, Hooked>::create(&heap, LIST).unwrap();
    list.insert(&heap, &10, &1).unwrap();
    // The descriptor of an insertion, as a member that has just begun one leaves it.
    let insertion = OperationKind::new(0x201);
    AFTER_SWAP.with_borrow_mut(|hook| {
        *hook = Some(Box::new(move || {
            // It is neither finished nor abandoned.
            let _begun = OwnLog::of(members[1]).begin(insertion, &[list.offset().raw()]);
        }));
    });
    let by = members[1].instance();
    assert_eq!(list.destroy(&heap, LIST), Err(DestroyError::InUse { by }));
    assert_eq!(list.get(&heap, &10), Some(1));
    OwnLog::of(members[1])
        .begin(OperationKind::new(70), &[])
        .finish(&[]);
    assert_eq!(list.destroy(&heap, LIST), Ok(2), "header and node");
}
