//! Leaves untouched pages of shared memory out of a machine's memory.

use super::{About, Event, Trace, TraceError};
use crate::line::LineAddress;
use crate::program::{Barrier, Image, Synchronisation, Word};
use std::collections::BTreeSet;

/// The words of a page.
const PAGE: u64 = 512;

/// The location of the pages that a trace touches in a machine's memory: in the same order, without
/// the pages between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pages {
    /// The first page of each stretch of pages, and its page in the machine, in ascending order.
    stretches: Vec<(u64, u64)>,
    /// The words of the machine's memory.
    words: u64,
}

impl Pages {
    /// All pages, at their own locations.
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

    /// Returns the location of a word that the trace touches.
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

/// The pages that are touched.
#[derive(Debug, Default)]
struct Touched {
    pages: BTreeSet<u64>,
    /// The last page that was touched.
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
    /// Returns the pages that the trace's events, image, locks, conditions and barriers touch.
    /// Reads all of the trace.
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
            // The barrier's flag is in the next line.
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

/// Returns the word of shared memory that an event names.
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
