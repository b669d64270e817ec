//! The numbers of digests: a hash table in the pod, written by one task at a time.
//!
//! Chunks are numbered in the order in which they first occur. The slots of the table hold numbers,
//! and the digests are stored in the order of their numbers, so a slot leads to a digest. A digest
//! that is not found is put into the first empty slot.
//!
//! **A task that dies in the middle is re-executed**, and finds some of its entries in the table
//! already. But it goes through the same digests in the same order, with the same numbers: a digest
//! that its predecessor inserted has exactly the next number when the task first meets it. So a
//! chunk is new if its number is the next one, whether it was found or inserted. (A digest is
//! written before its slot; if a slot leads to a digest, both were written.)

use super::pack::Digest;
use outlive_tasks::Array;

/// A digest as words.
pub(super) const WORDS: usize = 4;

pub(super) fn to_words(digest: &Digest) -> [u64; WORDS] {
    let (words, _) = digest.as_chunks::<8>();
    core::array::from_fn(|at| u64::from_le_bytes(words[at]))
}

pub(super) fn from_words(words: [u64; WORDS]) -> Digest {
    let mut digest = Digest::default();
    for (bytes, word) in digest.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *bytes = word.to_le_bytes();
    }
    digest
}

/// Returns the digest at place `at` of an array of digests.
pub(super) fn read(digests: Array<u64>, at: usize) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    digests.read(at * WORDS, &mut words);
    words
}

/// The table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    /// Numbers plus one; 0 is an empty slot.
    pub slots: Array<u32>,
    /// The digests, in the order of their numbers.
    pub digests: Array<u64>,
}

impl Numbers {
    /// Returns the number of slots of a table for `chunks` chunks: a third of them stay empty.
    pub fn slots_for(chunks: u64) -> u64 {
        chunks + chunks / 2 + 1
    }

    /// Returns the number of `digest`, and assigns it `next` if it has none. `None` if the table is
    /// full or damaged.
    pub fn number(self, digest: [u64; WORDS], next: u32) -> Option<u32> {
        let slots = self.slots.len();
        // Any part of a digest is as good as a hash.
        let mut slot = ((u128::from(digest[0]) * slots as u128) >> 64) as usize;
        for _ in 0..slots {
            match self.slots.get(slot).checked_sub(1) {
                None if (next as usize + 1) * WORDS > self.digests.len() => return None,
                None => {
                    self.digests.write(next as usize * WORDS, &digest);
                    self.slots.set(slot, next + 1);
                    return Some(next);
                }
                Some(number) if (number as usize + 1) * WORDS > self.digests.len() => return None,
                Some(number) if read(self.digests, number as usize) == digest => {
                    return Some(number);
                }
                Some(_) => {}
            }
            slot = (slot + 1) % slots;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlive::membership::ProcessOptions;
    use outlive::pod::{Pod, PodOptions};
    use outlive_run::random::Random;
    use outlive_tasks::{Options, WorkerPool};

    /// The criterion for a new digest.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum New {
        /// It has the next number.
        Next,
        /// It was not there: a wrong criterion if a predecessor has inserted it.
        NotThere,
    }

    /// Numbers `digests` in a table that had `known` digests before. Returns the numbers, and the
    /// places of new digests.
    fn round(table: Numbers, digests: &[u64], known: u32, new: New) -> (Vec<u32>, Vec<usize>) {
        let (mut numbers, mut fresh) = (Vec::new(), Vec::new());
        for (at, digest) in digests.iter().enumerate() {
            let next = known + fresh.len() as u32;
            // Few different slots, so that they are taken.
            let digest = [(digest % 5) << 61, *digest, 0, 7];
            let slots = (0..table.slots.len()).filter_map(|at| table.slots.get(at).checked_sub(1));
            let is_there = { slots }.any(|at| read(table.digests, at as usize) == digest);
            let Some(number) = table.number(digest, next) else {
                break;
            };
            if number == next && (new == New::Next || !is_there) {
                fresh.push(at);
            }
            numbers.push(number);
        }
        (numbers, fresh)
    }

    #[test]
    fn who_is_cut_short_anywhere_and_done_again_gives_the_same_numbers() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("pod");
        let pod = Pod::create(&path, PodOptions::new().size(32 << 20)).unwrap();
        let process = pod.join(ProcessOptions::on_host(0)).unwrap();
        let member = process.enter(None, "numbers").unwrap();
        let heap = member.heap(&pod).unwrap();
        let pool = WorkerPool::create(&pod, &heap, "numbers", Options::new()).unwrap();
        let mut random = Random::new(7);
        let digests: Vec<u64> = (0..60).map(|_| random.below(30)).collect();
        let (before, window) = digests.split_at(20);
        let mut all = before.to_vec();
        all.sort_unstable();
        all.dedup();
        let known = all.len() as u32;
        all.extend(window);
        all.sort_unstable();
        all.dedup();
        // As large as it has to be.
        let chunks = all.len();
        let slots = Numbers::slots_for(chunks as u64) as usize;
        let mut expected = None;
        let mut noticed = 0;
        for cut in 0..=window.len() {
            let put =
                |name: String, len| pool.put_array(&heap, &name, len, |it| it.fill(0..len, 0));
            // The state that a task leaves if it dies there.
            let begun = |whose: &str| {
                let table = Numbers {
                    slots: put(format!("slots {whose} {cut}"), slots).unwrap(),
                    digests: { pool }
                        .put_array(
                            &heap,
                            &format!("digests {whose} {cut}"),
                            chunks * WORDS,
                            |_| (),
                        )
                        .unwrap(),
                };
                let first = round(table, before, 0, New::Next);
                assert_eq!(first.1.len(), known as usize);
                round(table, &window[..cut], known, New::Next);
                table
            };
            let table = begun("sound");
            let found = round(table, window, known, New::Next);
            let broken = round(begun("broken"), window, known, New::NotThere);
            noticed += usize::from(broken != found);
            assert_eq!(known as usize + found.1.len(), chunks);
            assert_eq!(*expected.get_or_insert_with(|| found.clone()), found);
            // One more does not fit.
            assert_eq!(table.number([0, 99, 0, 7], chunks as u32), None);
        }
        // Every cut after a new digest.
        assert!(noticed > window.len() / 2, "{noticed}");
        drop(heap);
        drop(member);
        process.leave().unwrap();
        Pod::destroy(&path).unwrap();
    }
}
