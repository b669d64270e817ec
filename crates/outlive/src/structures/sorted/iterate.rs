//! Iteration over all entries.
//!
//! A walk over a damaged list (one that has a cycle or is not sorted) ends early and logs an error.
//! A list's nodes come in the order of their sorts, and while a pin is held none of them is reused.
//! So a walk that meets a smaller sort, or the same node twice, is on a damaged list.
//!
//! A walk pins the heap for a few entries at a time, and finds its place again by the sort of the
//! last one. So it delays the reclamation of little retired memory, however long it takes.

use super::chain::Ring;
use super::datum::Datum;
use super::header::{Header, Kind};
use super::node::{MARK, NEXT, OPENING, SEALED, SORT, Typed, VALUE, target};
use crate::heap::{LocalHeap, Pinned};
use core::fmt;
use outlive_memory::{Memory, Offset, Ordering};
use std::collections::VecDeque;

/// The number of entries read under one pin.
const AT_ONCE: usize = 64;

/// The entries of a [`Map`](super::Map) or [`List`](super::List).
///
/// Ends early if the list is damaged, and logs an error; `outlive pod check` reports the damage.
///
/// An entry that exists during the whole iteration is returned exactly once; one that is inserted
/// or removed during the iteration may be returned. A key that is removed and inserted again may be
/// returned twice, each time as another entry, or not at all. A returned value is one that the key
/// had at some moment of the iteration.
pub struct Iter<'h, K: Datum + ?Sized, V: Datum + ?Sized, M: Memory> {
    walk: Walk<'h, (K::Owned, V::Owned), M>,
}

impl<'h, K: Datum + ?Sized, V: Datum + ?Sized, M: Memory> Iter<'h, K, V, M> {
    pub(super) fn new(header: Header<M>, heap: &'h LocalHeap<'h, M>) -> Self {
        let read = |memory, node, value| {
            let key = Typed::<K, V>::key(memory, node);
            Some((key, Typed::<K, V>::value(memory, node, value)))
        };
        Self {
            walk: Walk::new(header, heap, read),
        }
    }
}

impl<K: Datum + ?Sized, V: Datum + ?Sized, M: Memory> Iterator for Iter<'_, K, V, M> {
    type Item = (K::Owned, V::Owned);

    fn next(&mut self) -> Option<Self::Item> {
        self.walk.next()
    }
}

impl<K: Datum + ?Sized, V: Datum + ?Sized, M: Memory> fmt::Debug for Iter<'_, K, V, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter")
            .field("ended", &self.walk.ended)
            .finish_non_exhaustive()
    }
}

/// An iterator over the results of `read` for each entry: for its node, and its value word.
pub(super) struct Walk<'h, T, M: Memory> {
    header: Header<M>,
    heap: &'h LocalHeap<'h, M>,
    read: fn(M, Offset, u64) -> Option<T>,
    /// The sort of the last entries read; all entries of this sort have been read.
    last: Option<u64>,
    ready: VecDeque<T>,
    ended: bool,
}

impl<'h, T, M: Memory> Walk<'h, T, M> {
    pub(super) fn new(
        header: Header<M>,
        heap: &'h LocalHeap<'h, M>,
        read: fn(M, Offset, u64) -> Option<T>,
    ) -> Self {
        Self {
            header,
            heap,
            read,
            last: None,
            ready: VecDeque::new(),
            ended: false,
        }
    }

    /// Reads on until enough entries are ready and the run of entries of one sort is over.
    fn read_on(&mut self) {
        let (header, memory) = (self.header, self.header.memory);
        let pin = self.heap.pin();
        // The nodes of the current run that have been read: its walk may begin again.
        let mut run: (Option<u64>, Vec<Offset>) = (self.last, Vec::new());
        let start = match self.last {
            Some(last) => header.start_for(last),
            None => header.head(),
        };
        let (read, ready) = (self.read, &mut self.ready);
        let whole_run = self.last;
        let ended = walk(header, &pin, start, |node, sort| {
            if header.kind == Kind::Map && sort & 1 == 0 {
                return true;
            }
            if whole_run.is_some_and(|last| sort <= last) || run.0.is_some_and(|now| sort < now) {
                return true;
            }
            if run.0 != Some(sort) {
                if ready.len() >= AT_ONCE {
                    return false;
                }
                run = (Some(sort), Vec::new());
            } else if run.1.contains(&node) {
                return true;
            }
            run.1.push(node);
            let value = pin.load(node + VALUE);
            if value & SEALED == 0 {
                ready.extend(read(memory, node, value));
            }
            true
        });
        self.last = run.0;
        self.ended = ended;
    }
}

impl<T, M: Memory> Iterator for Walk<'_, T, M> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        loop {
            if let Some(entry) = self.ready.pop_front() {
                return Some(entry);
            }
            if self.ended {
                return None;
            }
            self.read_on();
        }
    }
}

/// Calls `visit` on the nodes and buckets behind `start` until it returns `false`; begins at
/// `start` again whenever the way back is lost. Returns whether it reached the end or damage.
fn walk<M: Memory>(
    header: Header<M>,
    pin: &Pinned<'_, M>,
    start: Offset,
    mut visit: impl FnMut(Offset, u64) -> bool,
) -> bool {
    let memory = header.memory;
    'walk: loop {
        let mut link = start + NEXT;
        let mut word = pin.load(link);
        let (mut last, mut ring) = (0, Ring::default());
        loop {
            let node = target(word);
            let next = pin.load(node + NEXT);
            if (next & MARK != 0 || next & OPENING == 0) && ring.closes(node) {
                return damaged(header, node, "the list has a cycle");
            }
            if next & MARK != 0 {
                // As in `seek`: the successor of a removed node is not protected until that is out.
                let order = (Ordering::AcqRel, Ordering::Relaxed);
                let after = next & !MARK;
                if memory
                    .compare_exchange(link, word, after, order.0, order.1)
                    .is_err()
                {
                    continue 'walk;
                }
                word = after;
                continue;
            }
            if next & OPENING != 0 {
                super::chain::open(memory, node, next);
                continue;
            }
            if next == 0 {
                return node == header.tail() || damaged(header, node, "the list ends too early");
            }
            let sort: u64 = memory.load(node + SORT, Ordering::Relaxed);
            if sort < last {
                return damaged(header, node, "the list is not sorted");
            }
            last = sort;
            if !visit(node, sort) {
                return false;
            }
            link = node + NEXT;
            word = next;
        }
    }
}

/// Logs the damage, and ends a walk.
#[cold]
fn damaged<M: Memory>(header: Header<M>, node: Offset, what: &str) -> bool {
    let (kind, at) = (header.kind.name(), header.at);
    tracing::error!(
        "the {kind} at {at} is damaged at {node}: {what}; its iteration ends here: run `outlive pod check`"
    );
    true
}
