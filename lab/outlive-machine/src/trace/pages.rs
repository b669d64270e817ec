//! Pages of shared memory that nothing in a trace touches: a machine need not have them.

use super::{About, Event, Trace, TraceError};
use crate::line::LineAddress;
use crate::program::{Barrier, Image, Synchronisation, Word};
use std::collections::BTreeSet;

/// Words of a page.
const PAGE: u64 = 512;

/// Where the pages that a trace touches stand in the memory of a machine: in the same order, without what lies between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pages {
    /// The first page of each stretch of pages, and which page that is in the machine, by rising pages.
    stretches: Vec<(u64, u64)>,
    /// Words of the machine's memory.
    words: u64,
}

impl Pages {
    /// All of them, where they are.
    pub fn all(about: &About) -> Self {
        Self {
            stretches: vec![(0, 0)],
            words: about.words,
        }
    }

    fn of(touched: &BTreeSet<u64>) -> Self {
        let mut stretches: Vec<(u64, u64)> = Vec::new();
        for (number, page) in (0..).zip(touched) {
            let goes_on =
                |(first, first_number): &(u64, u64)| page - first == number - first_number;
            if !stretches.last().is_some_and(goes_on) {
                stretches.push((*page, number));
            }
        }
        Self {
            stretches,
            words: touched.len() as u64 * PAGE,
        }
    }

    /// Where a word stands that the trace touches.
    #[inline]
    pub fn word(&self, word: Word) -> Word {
        let page = word.0 / PAGE;
        let after = self.stretches.partition_point(|(first, _)| *first <= page);
        let (first, number) = self.stretches[after - 1];
        Word(word.0 - (first - number) * PAGE)
    }

    pub fn image(&self, image: Image) -> Image {
        let runs = image.runs.into_iter();
        Image {
            words: self.words,
            runs: runs.map(|(word, run)| (self.word(word), run)).collect(),
        }
    }

    pub fn synchronisation(&self, about: &About) -> Synchronisation {
        let all = about.synchronisation();
        let word = |word| self.word(word);
        let barrier = |barrier: Barrier| Barrier {
            counter: word(barrier.counter),
            ..barrier
        };
        Synchronisation {
            locks: all.locks.into_iter().map(word).collect(),
            conditions: all.conditions.into_iter().map(word).collect(),
            barriers: all.barriers.into_iter().map(barrier).collect(),
            ..all
        }
    }
}

/// Which pages are touched.
#[derive(Debug, Default)]
struct Touched {
    pages: BTreeSet<u64>,
    /// The last one.
    last: Option<u64>,
}

impl Touched {
    fn touch(&mut self, word: Word) {
        let page = word.0 / PAGE;
        if self.last != Some(page) {
            self.last = Some(page);
            self.pages.insert(page);
        }
    }
}

impl Trace {
    /// The pages that its events, its image, and its locks, conditions and barriers touch. All of the trace is read for this.
    ///
    /// # Errors
    ///
    /// If anything in the trace is damaged or cannot be read.
    pub(super) fn touched_pages(&self, image: &Image) -> Result<Pages, TraceError> {
        let mut touched = Touched::default();
        let about = self.about();
        let all = about.synchronisation();
        for word in all.locks.iter().chain(&all.conditions) {
            touched.touch(*word);
        }
        for barrier in &all.barriers {
            // Its flag is in the next line.
            let LineAddress(line) = barrier.counter.line();
            touched.touch(barrier.counter);
            touched.touch(Word((line + 1) * Word::PER_LINE));
        }
        for (word, run) in &image.runs {
            for offset in (0..run.len() as u64).step_by(PAGE as usize) {
                touched.touch(word.offset(offset));
            }
            touched.touch(word.offset(run.len() as u64 - 1));
        }
        for event in (0..about.threads).flat_map(|thread| self.events(thread)) {
            if let Some(word) = word_of(&event?) {
                touched.touch(word);
            }
        }
        Ok(Pages::of(&touched.pages))
    }
}

/// Which word of shared memory an event names.
fn word_of(event: &Event) -> Option<Word> {
    match event {
        Event::Load { word, .. }
        | Event::Store { word, .. }
        | Event::StorePart { word, .. }
        | Event::Atomic { word, .. }
        | Event::Acquire(word)
        | Event::Release(word) => Some(*word),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touched_pages_stand_one_behind_another() {
        let pages = Pages::of(&BTreeSet::from([0, 1, 5, 1 << 30, (1 << 30) + 1]));
        assert_eq!(pages.stretches, [(0, 0), (5, 2), (1 << 30, 3)]);
        assert_eq!(pages.words, 5 * PAGE);
        for (page, number) in [(0, 0), (1, 1), (5, 2), (1 << 30, 3), ((1 << 30) + 1, 4)] {
            let word = pages.word(Word(page * PAGE + 17));
            assert_eq!(word, Word(number * PAGE + 17), "page {page}");
        }
    }

    #[test]
    fn with_a_first_page_that_nobody_touches() {
        let pages = Pages::of(&BTreeSet::from([7]));
        assert_eq!(pages.word(Word(7 * PAGE)), Word(0));
    }
}
