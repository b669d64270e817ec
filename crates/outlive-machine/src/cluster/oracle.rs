//! A judge of values for tests: each load must get what the last store in coherence order has left.

use super::Cluster;
use super::store_buffer::Entry;
use crate::program::{Image, Thread, Word};

/// What each word holds by the order in which stores were committed, wherever it stands in the machine.
#[derive(Clone, Debug)]
pub(super) struct Oracle {
    words: Vec<u64>,
}

impl Oracle {
    pub fn new(image: &Image) -> Oracle {
        let count = image.words.next_multiple_of(Word::PER_LINE);
        let mut words = vec![0; count as usize];
        for (first, values) in &image.runs {
            words[first.0 as usize..][..values.len()].copy_from_slice(values);
        }
        Oracle { words }
    }

    /// A load has got this value from the node's caches.
    pub fn bound(&self, word: Word, value: u64) {
        let last = self.words[word.0 as usize];
        assert_eq!(value, last, "a load of {word:?} got an old value");
    }
}

impl<T: Thread> Cluster<T> {
    /// A node commits a store: no other may be able to read the line.
    pub(super) fn judge_commit(&mut self, n: usize, entry: &Entry) {
        for (other, node) in self.nodes.iter().enumerate() {
            let agent = node.agent(entry.line);
            assert!(
                other == n || !agent.is_readable(),
                "node {n} writes {}, which node {other} has in {agent:?}",
                entry.line
            );
        }
        if let Some(oracle) = &mut self.oracle {
            for place in (0..8).filter(|place| entry.words & 1 << place != 0) {
                let word = entry.line.0 * Word::PER_LINE + place as u64;
                oracle.words[word as usize] = entry.values[place];
            }
        }
    }

    pub(super) fn check_values(&self) -> Result<(), String> {
        let Some(oracle) = &self.oracle else {
            return Ok(());
        };
        for (number, value) in oracle.words.iter().enumerate() {
            let here = self.word(Word(number as u64));
            if here != *value {
                return Err(format!(
                    "word {number} is {here}, and {value} was stored last"
                ));
            }
        }
        Ok(())
    }
}
