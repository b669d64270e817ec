//! The pages of a shared memory that a child may have written to.
//!
//! Comparing a memory of some megabytes takes far longer than a step. But a forked child has none
//! of the pages of a shared mapping in its page table: the kernel inserts each on the first access,
//! and shows this in `/proc/PID/pagemap` to any process that may inspect the child at all. A page
//! that was never inserted has not been written. A page counts as touched from its first appearance
//! on, and if the pagemap is not readable, all pages do. [At the end](super::cases::Cases::is) the
//! whole memory is compared, to find a change that was overlooked.

use core::ops::Range;
use core::sync::atomic::AtomicU64;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The bit of a page that is in the page table, and that of one that was and is swapped out.
const PRESENT: u64 = 0b11 << 62;

#[derive(Debug)]
pub(super) struct Touched {
    /// `None`: all pages are touched.
    pagemap: Option<File>,
    /// The offset of the memory's first page in it.
    from: u64,
    /// The number of words in the memory, and in a page.
    words: usize,
    page: usize,
    /// The kernel's entry for each page.
    said: Vec<u8>,
    is_touched: Vec<bool>,
    touched: Vec<usize>,
}

impl Touched {
    /// Tracks the pages of `words`, a shared mapping, that the child `pid` touches.
    pub(super) fn by(pid: u32, words: &[AtomicU64]) -> Self {
        // SAFETY: only reads a number that exists.
        let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let page = bytes / 8;
        let pages = words.len().div_ceil(page);
        let is_aligned = words.as_ptr().addr().is_multiple_of(bytes);
        let pagemap = File::open(format!("/proc/{pid}/pagemap"));
        Self {
            pagemap: pagemap.ok().filter(|_| is_aligned),
            from: (words.as_ptr().addr() / bytes * 8) as u64,
            words: words.len(),
            page,
            said: vec![0; pages * 8],
            is_touched: vec![false; pages],
            touched: Vec::new(),
        }
    }

    /// Returns the words that the child may have written so far. The child must be stopped.
    pub(super) fn look(&mut self) -> impl Iterator<Item = Range<usize>> {
        let asked = self.pagemap.as_ref();
        let asked = asked.map(|pagemap| pagemap.read_exact_at(&mut self.said, self.from));
        if !matches!(asked, Some(Ok(()))) {
            self.pagemap = None;
            self.said.fill(u8::MAX);
        }
        let (said, _) = self.said.as_chunks::<8>();
        for (page, said) in said.iter().enumerate() {
            if u64::from_ne_bytes(*said) & PRESENT != 0 && !self.is_touched[page] {
                self.is_touched[page] = true;
                self.touched.push(page);
            }
        }
        let (page, words) = (self.page, self.words);
        let words_of = move |number: &usize| number * page..((number + 1) * page).min(words);
        self.touched.iter().map(words_of)
    }
}

#[cfg(test)]
mod tests {
    use super::super::control::Control;
    use super::super::shared_memory::Lease;
    use super::super::tracer::{Tracer, Window};
    use super::*;
    use core::sync::atomic::Ordering;

    #[test]
    fn what_a_child_has_not_touched_is_not_looked_at() {
        let memory = Lease::of(1 << 20);
        memory.zero();
        let (_lease, control) = Control::lease();
        let mut tracer = Tracer::new("touching".into(), control, 60, 1_000_000);
        let (words, mut touched) = (memory.words(), None);
        let mut looks = Vec::new();
        let work = |window: Window| {
            window.begin();
            words[1000].store(1, Ordering::Relaxed);
            words[100_000].store(1, Ordering::Relaxed);
        };
        let recorded = tracer.record(work, |pid, _, _| {
            let touched = touched.get_or_insert_with(|| Touched::by(pid, words));
            let ranges: Vec<_> = touched.look().collect();
            for word in [1000, 100_000] {
                let is_written = words[word].load(Ordering::Relaxed) == 1;
                assert!(!is_written || ranges.iter().any(|range| range.contains(&word)));
            }
            looks.push(ranges.len());
        });
        recorded.unwrap().unwrap();
        // Others are there only if the kernel has inserted them at the same time.
        println!("{looks:?} of {} pages", words.len() / 512);
        assert!(looks.last().unwrap() >= &2);
        assert!(looks.is_sorted());
    }
}
