//! A walk over all of a structure that believes nothing.
//!
//! Every offset is checked before it is followed, every walk is bounded by the size of the memory, and what is
//! found wrong is reported, not followed further.

use super::directory::{bucket_sort, sort_of};
use super::header::{ENTRY_BYTES, Header, Kind};
use super::node::{
    CLAIMED, INLINE, MARK, NEXT, OPENING, SEALED, SORT, VALUE, entry_as_node, target,
};
use crate::heap::Heap;
use core::fmt;
use outlive_memory::{Memory, Offset, Ordering};
use std::collections::{BTreeMap, BTreeSet};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Something in a structure that cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where it stands.
    pub at: Offset,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.what)
    }
}

/// The blocks of the heap that a structure consists of.
pub type Blocks = Vec<Offset>;

/// What a check of a structure saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// How many entries there are.
    pub entries: u64,
    /// How many removed nodes are still in the list, for the next who comes by to take out.
    pub removed: u64,
    /// How many buckets are open.
    pub buckets: u64,
    /// Every block that was met: header, pages, nodes, blocks of values.
    pub blocks: Blocks,
    /// What cannot be.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    pub(super) fn into_blocks(self) -> Blocks {
        self.blocks
    }

    fn find(&mut self, at: Offset, what: impl Into<String>) {
        let what = what.into();
        self.findings.push(Finding { at, what });
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} entries, {} removed, {} buckets, {} blocks",
            self.entries,
            self.removed,
            self.buckets,
            self.blocks.len()
        )?;
        let mut findings = self.findings.iter();
        findings.try_for_each(|finding| write!(f, "\n  {finding}"))
    }
}

/// Checks every list and map whose header is in `heap`, and returns what is wrong with them.
pub(crate) fn check_all<M: Memory>(heap: &Heap<M>) -> Vec<Finding> {
    let headers = heap.allocated_blocks(Header::<M>::LEAST_BYTES);
    let headers = headers.filter_map(|at| Header::read(heap.memory(), at).ok());
    let named = |header: Header<M>| {
        let (kind, at) = (header.kind.name(), header.at);
        let name = move |finding: Finding| Finding {
            what: format!("{} (in the {kind} at {at})", finding.what),
            ..finding
        };
        header.check().findings.into_iter().map(name)
    };
    headers.flat_map(named).collect()
}

impl<M: Memory> Header<M> {
    pub(super) fn check(&self) -> Report {
        let mut report = Report::default();
        report.blocks.push(self.at);
        let buckets = self.check_directory(&mut report);
        self.check_list(&mut report, &buckets);
        report
    }

    /// A word, if there is one at `at`.
    fn word(&self, at: Offset) -> Option<u64> {
        self.memory
            .has_word::<u64>(at)
            .then(|| self.memory.load(at, Ordering::Acquire))
    }

    /// `bytes` at `raw`, if they are in the memory and aligned, and not the superblock.
    fn block(&self, raw: u64, bytes: u64) -> Option<Offset> {
        let block = Offset::checked(raw, bytes, 8, self.memory.size()).ok()?;
        (raw >= 64).then_some(block)
    }

    /// The buckets whose pages are there: whether they are open, by their place.
    fn check_directory(&self, report: &mut Report) -> BTreeMap<Offset, (u64, bool)> {
        let mut buckets = BTreeMap::from([(self.head(), (0, true))]);
        let limit = self.word(self.buckets_at()).unwrap_or(0);
        if limit > u64::from(self.sizes.most_buckets()) {
            let what =
                format!("the map has 2^{limit} buckets, more than its directory has room for");
            report.find(self.buckets_at(), what);
        }
        if self.kind == Kind::List {
            return buckets;
        }
        let mut pages = BTreeSet::new();
        let mut follow = |report: &mut Report, slot: Offset, of_buckets: bool| -> Option<Offset> {
            let raw = self.word(slot)?;
            if raw == 0 {
                return None;
            }
            let Some(page) = self.block(raw, self.page_bytes(of_buckets)) else {
                report.find(
                    slot,
                    format!("a page of the directory is said to be at {raw:#x}"),
                );
                return None;
            };
            if !pages.insert(page) {
                report.find(
                    slot,
                    format!("the page at {page} is in the directory twice"),
                );
                return None;
            }
            report.blocks.push(page);
            Some(page)
        };
        let links = 1 << self.sizes.page;
        let Some(first) = follow(report, self.directory_at(), false) else {
            return buckets;
        };
        for i in 0..links {
            let Some(second) = follow(report, first + i * 8, false) else {
                continue;
            };
            for j in 0..links {
                let Some(page) = follow(report, second + j * 8, true) else {
                    continue;
                };
                let number = (i << self.sizes.page | j) << self.sizes.leaf;
                for k in 0..1 << self.sizes.leaf {
                    let (bucket, at) = (number + k, page + k * ENTRY_BYTES);
                    let node = entry_as_node(at);
                    if self.word(node + SORT) != Some(bucket_sort(bucket)) {
                        report.find(at, format!("bucket {bucket} is sorted wrongly"));
                    }
                    let next = self.word(at).unwrap_or(0);
                    let open = next != 0 && next & (CLAIMED | OPENING) == 0;
                    if bucket != 0 {
                        buckets.insert(node, (bucket, open));
                    }
                }
            }
        }
        buckets
    }

    fn check_list(&self, report: &mut Report, buckets: &BTreeMap<Offset, (u64, bool)>) {
        let mut met = BTreeSet::new();
        let mut values = BTreeSet::new();
        let (mut node, mut last) = (self.head(), 0);
        loop {
            if !met.insert(node) {
                report.find(node, "the list comes here a second time: it is a ring");
                break;
            }
            let (Some(next), Some(sort)) = (self.word(node + NEXT), self.word(node + SORT)) else {
                report.find(node, "the list leads outside the memory");
                break;
            };
            if sort < last {
                report.find(node, format!("{sort:#018x} stands behind {last:#018x}"));
            }
            last = sort;
            if node == self.tail() {
                if next != 0 {
                    report.find(node, "the list goes on behind its end");
                }
                break;
            }
            match buckets.get(&node) {
                Some(_) => {}
                None if self.kind == Kind::Map && sort & 1 == 0 => {
                    report.find(
                        node,
                        "there is a bucket in the list that the directory lacks",
                    );
                }
                None => self.check_node(report, node, (next, sort), &mut values),
            }
            let raw = next & !(MARK | OPENING);
            // A node or a bucket: of either these two words are there.
            let to = (raw != 0).then(|| target(raw)).filter(|&to| {
                Offset::checked(raw, SORT + 8, 8, self.memory.size()).is_ok() && to.raw() >= 64
            });
            let Some(to) = to else {
                report.find(
                    node + NEXT,
                    format!("the list goes on at {next:#x}, which is nowhere"),
                );
                break;
            };
            node = to;
        }
        for (node, (bucket, open)) in buckets {
            if *open {
                report.buckets += 1;
                if !met.contains(node) {
                    report.find(
                        *node,
                        format!("bucket {bucket} is open and not in the list"),
                    );
                }
            }
        }
    }

    fn check_node(
        &self,
        report: &mut Report,
        node: Offset,
        (next, sort): (u64, u64),
        values: &mut BTreeSet<Offset>,
    ) {
        let memory = self.memory;
        let least = self.form.node_bytes(self.form.key.unwrap_or(0), 0);
        if self.block(node.raw(), least).is_none() {
            return report.find(node, "there is no room for a node here");
        }
        report.blocks.push(node);
        let value: u64 = memory.load(node + VALUE, Ordering::Acquire);
        let (sealed, marked) = (value & SEALED != 0, next & MARK != 0);
        if marked && !sealed {
            report.find(node, "it is marked as removed, and nobody has removed it");
        }
        let (key, inline) = self.form.lengths(memory, node);
        if self
            .block(node.raw(), self.form.node_bytes(key, inline))
            .is_none()
        {
            return report.find(
                node,
                format!("its key has {key} bytes and its value {inline}"),
            );
        }
        if self.kind == Kind::Map {
            let mut bytes = vec![0; key as usize];
            memory.copy_out(self.form.key_at(node), &mut bytes);
            if sort_of(xxh3_64_with_seed(&bytes, self.seed)) != sort {
                report.find(node, format!("its key belongs elsewhere than {sort:#018x}"));
            }
        }
        if sealed {
            report.removed += 1;
            return;
        }
        report.entries += 1;
        if value & INLINE != 0 {
            return;
        }
        let least = self.form.block_bytes(0);
        let whole = self.block(value, least).filter(|&block| {
            let (_, len) = self.form.value(memory, node, value);
            // No sum of it overflows then.
            len <= memory.size()
                && self
                    .block(block.raw(), self.form.block_bytes(len))
                    .is_some()
        });
        match whole {
            None => report.find(
                node + VALUE,
                format!("its value is said to be at {value:#x}"),
            ),
            Some(block) if !values.insert(block) => {
                report.find(
                    node + VALUE,
                    format!("its value at {block} is another's too"),
                );
            }
            Some(block) => report.blocks.push(block),
        }
    }
}
