//! A check of a whole structure that trusts none of its contents.
//!
//! Every offset is checked before it is followed, and every walk is bounded by the size of the
//! memory. Damage is reported and not followed further.

use super::directory::{bucket_sort, sort_of};
use super::error::OpenError;
use super::header::{ENTRY_BYTES, Header, Kind};
use super::node::{
    CLAIMED, INLINE, MARK, NEXT, OPENING, SEALED, SORT, VALUE, entry_as_node, target,
};
use crate::heap::Heap;
use core::fmt;
use outlive_memory::{Memory, Offset, Ordering};
use std::collections::{BTreeMap, BTreeSet};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// An impossible state found in a structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The offset of the damage.
    pub at: Offset,
    /// The description of the damage.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.what)
    }
}

/// The blocks of the heap that a structure consists of.
pub type Blocks = Vec<Offset>;

/// The largest number of findings that are kept of one structure: one damaged word can cause
/// hundreds of thousands.
const MAX_FINDINGS: usize = 1000;

/// The results of a check of a structure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The number of entries of the structure.
    pub entries: u64,
    /// The number of removed nodes still in the list; the next member that meets one takes it out.
    pub removed: u64,
    /// The number of open buckets.
    pub buckets: u64,
    /// Every block met: header, pages, nodes, blocks of values.
    pub blocks: Blocks,
    /// The impossible states.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Returns whether the check has found no impossible state.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    pub(super) fn into_blocks(self) -> Blocks {
        self.blocks
    }

    fn find(&mut self, at: Offset, what: impl Into<String>) {
        let what = what.into();
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(Finding { at, what });
        }
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

/// Returns every block of the list or map at `at`. No member may change it during the call.
pub(crate) fn blocks_of<M: Memory>(memory: M, at: Offset) -> Result<Blocks, OpenError> {
    Ok(Header::read(memory, at)?.check().into_blocks())
}

/// The position of an entry that a walk without a pin has found. The bounds were checked, but the
/// bytes there may have been freed and reused since.
struct Found {
    key: (Offset, u64),
    value: (Offset, u64),
}

/// The entries of a structure, as their bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// Keys and values, in the order of the structure.
    pub entries: Vec<(Vec<u8>, Vec<u8>)>,
    /// The impossible states. A concurrent change may look like one.
    pub findings: Vec<Finding>,
}

/// Reads the entries of the list or map at `at` without a pin. Concurrent changes may tear them, so
/// the caller must read twice and compare.
pub(crate) fn snapshot_of<M: Memory>(memory: M, at: Offset) -> Result<Snapshot, OpenError> {
    let bytes = |(at, len): (Offset, u64)| {
        let mut bytes = vec![0; len as usize];
        memory.copy_out(at, &mut bytes);
        bytes
    };
    let mut entries = Vec::new();
    // The entries of a sound structure do not overlap.
    let mut remaining = memory.size();
    let mut report = Report::default();
    Header::read(memory, at)?.check_into(&mut report, |found| {
        let len = found.key.1.saturating_add(found.value.1);
        remaining = remaining.saturating_sub(len);
        if remaining > 0 {
            entries.push((bytes(found.key), bytes(found.value)));
        }
    });
    let findings = report.findings;
    Ok(Snapshot { entries, findings })
}

/// Returns the approximate number of entries of the list or map at `at`.
pub(crate) fn entries_of<M: Memory>(memory: M, at: Offset) -> Result<u64, OpenError> {
    Ok(Header::read(memory, at)?.counted())
}

/// Checks every list and map whose header is in `heap`, and returns the damage found.
pub(crate) fn check_all<M: Memory>(heap: &Heap<M>) -> Vec<Finding> {
    let checked = |at: Offset| match Header::read(heap.memory(), at) {
        Ok(header) => {
            let kind = header.kind.name();
            let mut findings = header.check().findings;
            for finding in &mut findings {
                finding.what += &format!(" (in the {kind} at {at})");
            }
            findings
        }
        Err(error @ OpenError::Sizes { .. }) => {
            let what = error.to_string();
            vec![Finding { at, what }]
        }
        // No header, or one that is being written.
        Err(_) => Vec::new(),
    };
    let blocks = heap.small_blocks(Header::<M>::LEAST_BYTES);
    blocks.flat_map(|(at, _)| checked(at)).collect()
}

impl<M: Memory> Header<M> {
    pub(super) fn check(&self) -> Report {
        let mut report = Report::default();
        self.check_into(&mut report, |_| ());
        report
    }

    /// Checks the structure, and calls `each` with each entry.
    fn check_into(&self, report: &mut Report, each: impl FnMut(Found)) {
        report.blocks.push(self.at);
        let buckets = self.check_directory(report);
        self.check_list(report, &buckets, each);
    }

    /// Loads the word at `at`, if `at` is inside the memory.
    fn word(&self, at: Offset) -> Option<u64> {
        self.memory
            .has_word::<u64>(at)
            .then(|| self.memory.load(at, Ordering::Acquire))
    }

    /// Returns the place of `bytes` at `raw` if they are aligned, in the memory, and not the
    /// superblock.
    fn block(&self, raw: u64, bytes: u64) -> Option<Offset> {
        let block = Offset::checked(raw, bytes, 8, self.memory.size()).ok()?;
        (raw >= 64).then_some(block)
    }

    /// Returns the buckets on existing pages, by their place, and whether they are open.
    fn check_directory(&self, report: &mut Report) -> BTreeMap<Offset, (u64, bool)> {
        let mut buckets = BTreeMap::from([(self.head(), (0, true))]);
        let limit = self.word(self.buckets_at()).unwrap_or(0);
        if limit > u64::from(self.sizes.most_buckets()) {
            let what = format!("the map has 2^{limit} buckets, more than its directory can hold");
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
                    format!("the directory has a page at {raw:#x}, which is not a valid offset"),
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
                        report.find(at, format!("bucket {bucket} has a wrong sort key"));
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

    fn check_list(
        &self,
        report: &mut Report,
        buckets: &BTreeMap<Offset, (u64, bool)>,
        mut each: impl FnMut(Found),
    ) {
        let mut met = BTreeSet::new();
        let mut values = BTreeSet::new();
        let (mut node, mut last) = (self.head(), 0);
        loop {
            if !met.insert(node) {
                report.find(
                    node,
                    "the list reaches this node a second time: it has a cycle",
                );
                break;
            }
            let (Some(next), Some(sort)) = (self.word(node + NEXT), self.word(node + SORT)) else {
                report.find(node, "the list leads outside the memory");
                break;
            };
            if sort < last {
                report.find(
                    node,
                    format!("the sort key {sort:#018x} follows {last:#018x}, which is larger"),
                );
            }
            last = sort;
            if node == self.tail() {
                if next != 0 {
                    report.find(node, "the list continues after its last node");
                }
                break;
            }
            match buckets.get(&node) {
                Some(_) => {}
                None if self.kind == Kind::Map && sort & 1 == 0 => {
                    report.find(node, "the list has a bucket that is not in the directory");
                }
                None => {
                    if let Some(found) = self.check_node(report, node, (next, sort), &mut values) {
                        each(found);
                    }
                }
            }
            let raw = next & !(MARK | OPENING);
            // A node or a bucket: both have these two words.
            let to = (raw != 0).then(|| target(raw)).filter(|&to| {
                Offset::checked(raw, SORT + 8, 8, self.memory.size()).is_ok() && to.raw() >= 64
            });
            let Some(to) = to else {
                report.find(
                    node + NEXT,
                    format!("the list continues at {next:#x}, which is not a valid offset"),
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
                        format!("bucket {bucket} is open, but not in the list"),
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
    ) -> Option<Found> {
        let memory = self.memory;
        let least = self.form.node_bytes(self.form.key.unwrap_or(0), 0);
        if self.block(node.raw(), least).is_none() {
            report.find(node, "no node can be at this offset");
            return None;
        }
        report.blocks.push(node);
        let value: u64 = memory.load(node + VALUE, Ordering::Acquire);
        let (sealed, marked) = (value & SEALED != 0, next & MARK != 0);
        if marked && !sealed {
            report.find(node, "it is marked as removed, but its value is not sealed");
        }
        let (key, inline) = self.form.lengths(memory, node);
        if self
            .block(node.raw(), self.form.node_bytes(key, inline))
            .is_none()
        {
            report.find(
                node,
                format!("its key of {key} bytes and its value of {inline} do not fit here"),
            );
            return None;
        }
        if self.kind == Kind::Map {
            let mut bytes = vec![0; key as usize];
            memory.copy_out(self.form.key_at(node), &mut bytes);
            if sort_of(xxh3_64_with_seed(&bytes, self.seed)) != sort {
                report.find(
                    node,
                    format!("its key does not belong to its sort key {sort:#018x}"),
                );
            }
        }
        if sealed {
            report.removed += 1;
            return None;
        }
        report.entries += 1;
        let key = (self.form.key_at(node), key);
        if value & INLINE != 0 {
            let value = (self.form.inline_at(node, key.1), inline);
            return Some(Found { key, value });
        }
        let least = self.form.block_bytes(0);
        let whole = self.block(value, least).and_then(|block| {
            let (at, len) = self.form.value(memory, node, value);
            // Then no sum with it overflows.
            let fits = len <= memory.size()
                && self
                    .block(block.raw(), self.form.block_bytes(len))
                    .is_some();
            fits.then_some((block, (at, len)))
        });
        let Some((block, value)) = whole else {
            report.find(
                node + VALUE,
                format!("it has a value at {value:#x}, which is not a valid block"),
            );
            return None;
        };
        match values.insert(block) {
            true => report.blocks.push(block),
            false => report.find(
                node + VALUE,
                format!("its value at {block} is also that of another node"),
            ),
        }
        Some(Found { key, value })
    }
}
