//! The words of a shared memory that the steps of a child may have written.

use super::child::Registers;
use super::stores::{Reach, Stores};
use super::touched::Touched;
use core::ops::Range;
use core::sync::atomic::AtomicU64;

/// Returns after each step which words of the memory it may have written.
pub(super) struct Watch<'a> {
    stores: &'a mut Stores,
    words: &'a [AtomicU64],
    addresses: Range<u64>,
    touched: Option<Touched>,
    /// The words that the next step may write: before the first look, all of them.
    reach: Reach,
    written: Vec<Range<usize>>,
}

impl<'a> Watch<'a> {
    pub(super) fn over(words: &'a [AtomicU64], stores: &'a mut Stores) -> Self {
        let range = words.as_ptr_range();
        Self {
            stores,
            words,
            addresses: range.start.addr() as u64..range.end.addr() as u64,
            touched: None,
            reach: Reach::Anywhere,
            written: Vec::new(),
        }
    }

    /// Returns the words that `child`, stopped with `registers`, may have written since the last
    /// call.
    pub(super) fn look(
        &mut self,
        child: u32,
        registers: &Registers,
    ) -> impl Iterator<Item = Range<usize>> {
        self.written.clear();
        match self.reach.clone() {
            Reach::Nowhere => {}
            Reach::Words(words) => self.written.push(words),
            Reach::Anywhere => {
                let words = self.words;
                let touched = self
                    .touched
                    .get_or_insert_with(|| Touched::by(child, words));
                self.written.extend(touched.look());
            }
        }
        self.reach = self.stores.next(child, registers, &self.addresses);
        self.written.iter().cloned()
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
    fn no_change_is_made_but_where_the_watch_says() {
        let memory = Lease::of(1 << 20);
        memory.zero();
        let (_lease, control) = Control::lease();
        let mut tracer = Tracer::new("watched".into(), control, 60, 1_000_000);
        let (words, mut stores) = (memory.words(), Stores::new());
        let (mut watch, mut before) = (Watch::over(words, &mut stores), vec![0; words.len()]);
        let (mut changes, mut looked_at) = (0, 0);
        let work = |window: Window| {
            window.begin();
            words[3].fetch_add(1, Ordering::AcqRel);
            words[70_000].store(1, Ordering::Relaxed);
            let _ = words[3].compare_exchange(1, 7, Ordering::AcqRel, Ordering::Relaxed);
            // SAFETY: of the words only these are used without atomics, by this process alone; the
            // pipe is its own, and the data read from it fits.
            unsafe {
                let bytes = words.as_ptr().cast::<u8>().cast_mut();
                bytes.add(8192).write_bytes(0x5a, 1 << 12);
                bytes
                    .add(40_000)
                    .copy_from_nonoverlapping(bytes.add(8192), 3000);
                let mut pipe = [0; 2];
                assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
                assert_eq!(libc::write(pipe[1], bytes.add(8192).cast(), 100), 100);
                assert_eq!(libc::read(pipe[0], bytes.add(100_000).cast(), 100), 100);
            }
        };
        let recorded = tracer.record(work, |pid, registers, _| {
            let written: Vec<_> = watch.look(pid, registers).collect();
            looked_at += written.iter().map(Range::len).sum::<usize>();
            for (index, (word, before)) in words.iter().zip(&mut before).enumerate() {
                let now = word.load(Ordering::Relaxed);
                if now != *before {
                    let is_told = written.iter().any(|range| range.contains(&index));
                    assert!(is_told, "word {index}: {before:#x} has become {now:#x}");
                    *before = now;
                    changes += 1;
                }
            }
        });
        let steps = recorded.unwrap().unwrap().steps();
        println!("{changes} changes in {steps} steps, {looked_at} words looked at");
        assert!(changes >= 3 + (1 << 9) + 375 + 12);
    }
}
