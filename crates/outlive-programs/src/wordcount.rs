//! WordCount: the number of occurrences of each word in a text.

pub mod verify;

use crate::key::Key;
use crate::mapreduce::{MapReduce, OnTasks, tasks};
use crate::tokens::Tokens;
use flate2::read::GzDecoder;
use outlive_run::on_tasks::PoolOf;
use outlive_tasks::{Call, task};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Counts tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WordCount {
    /// The kind of tokens that are counted.
    pub tokens: Tokens,
}

impl OnTasks for WordCount {
    const POOL: PoolOf = PoolOf {
        number: 22,
        name: "wordcount",
    };

    fn number(&self) -> u64 {
        match self.tokens {
            Tokens::Words => 1,
            Tokens::Whitespace => 2,
        }
    }

    fn of(number: u64) -> Option<Self> {
        let tokens = match number {
            1 => Tokens::Words,
            2 => Tokens::Whitespace,
            _ => return None,
        };
        Some(Self { tokens })
    }

    fn phase(phase: u64) -> Call {
        count_phase(phase)
    }

    fn units(phase: u64, from: u64, to: u64) -> Call {
        count_units(phase, from, to)
    }
}

task! {
    /// Begins a phase of a word count.
    pub fn count_phase(context, phase: u64) {
        tasks::phase::<WordCount>(context, phase)
    }

    /// Executes units `from..to` of a phase, or spawns tasks that do.
    pub fn count_units(context, phase: u64, from: u64, to: u64) {
        tasks::units::<WordCount>(context, phase, from..to)
    }
}

impl MapReduce for WordCount {
    #[inline]
    fn divides(&self, byte: u8) -> bool {
        self.tokens.divides(byte)
    }

    fn at_start(&self, first: u8) -> Option<(Vec<u8>, u64)> {
        self.tokens.has_empty_token(first).then(|| (Vec::new(), 1))
    }

    #[inline]
    fn map(&self, text: &[u8], mut emit: impl FnMut(Key<'_>, u64)) {
        self.tokens.each(text, |key| emit(key, 1));
    }
}

/// Returns the text that is counted by default: the King James Bible. `text/SOURCE.md` names its
/// origin.
pub fn shipped_text() -> Vec<u8> {
    let packed = include_bytes!("../text/king-james-bible.txt.gz");
    let mut text = Vec::with_capacity(4_137_850);
    GzDecoder::new(&packed[..])
        .read_to_end(&mut text)
        .expect("the shipped text is whole");
    text
}

/// Sorts counts by descending count, then by word.
pub fn sort(counts: &mut [(Vec<u8>, u64)]) {
    counts.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
}

/// Counts the tokens of the file at `path` with one thread and a standard hash map, as a careful
/// plain program would: the baseline. The file is read in pieces, and a word is looked up before it
/// is copied.
///
/// # Errors
/// If the file cannot be read.
pub fn count_alone(path: &Path, tokens: Tokens) -> io::Result<HashMap<Box<[u8]>, u64>> {
    let mut counts = HashMap::new();
    add_alone(path, tokens, &mut counts)?;
    Ok(counts)
}

/// Counts tokens as [`count_alone`] does, but adds them to `counts`, so that several files can be
/// counted one after the other. (The empty token is counted once, for the last file that has it.)
///
/// # Errors
/// If the file cannot be read.
pub fn add_alone(
    path: &Path,
    tokens: Tokens,
    counts: &mut HashMap<Box<[u8]>, u64>,
) -> io::Result<()> {
    let mut file = File::open(path)?;
    let (mut buffer, mut kept) = (vec![0; 1 << 20], 0);
    let mut at_start = true;
    loop {
        let read = file.read(&mut buffer[kept..])?;
        if at_start && read > 0 && tokens.has_empty_token(buffer[0]) {
            counts.insert(Box::default(), 1);
        }
        at_start = false;
        let filled = kept + read;
        let whole = match read {
            0 => filled,
            _ => buffer[..filled]
                .iter()
                .rposition(|byte| tokens.divides(*byte))
                .map_or(0, |at| at + 1),
        };
        count_plainly(&buffer[..whole], tokens, counts);
        if read == 0 {
            return Ok(());
        }
        buffer.copy_within(whole..filled, 0);
        kept = filled - whole;
        if kept == buffer.len() {
            buffer.resize(buffer.len() * 2, 0);
        }
    }
}

/// Adds the tokens of `text`, except the empty one, to `counts`, with the standard library only: it
/// shares no line with the code that it checks.
pub fn count_plainly(text: &[u8], tokens: Tokens, counts: &mut HashMap<Box<[u8]>, u64>) {
    let mut count = |word: &[u8]| match counts.get_mut(word) {
        Some(count) => *count += 1,
        None => {
            counts.insert(word.into(), 1);
        }
    };
    match tokens {
        Tokens::Whitespace => text
            .split(|byte| matches!(byte, b' ' | b'\t'..=b'\r'))
            .filter(|word| !word.is_empty())
            .for_each(count),
        Tokens::Words if text.is_ascii() => {
            let mut lower = Vec::new();
            text.split(|byte| !byte.is_ascii_alphanumeric())
                .filter(|word| !word.is_empty())
                .for_each(|word| {
                    lower.clear();
                    lower.extend(word.iter().map(u8::to_ascii_lowercase));
                    count(&lower);
                });
        }
        Tokens::Words => {
            let mut lower = String::new();
            for chunk in text.utf8_chunks() {
                // Invalid UTF-8 separates words, and so does the end of a chunk.
                chunk
                    .valid()
                    .split(|character: char| !character.is_alphanumeric())
                    .filter(|word| !word.is_empty())
                    .for_each(|word| {
                        lower.clear();
                        lower.extend(word.chars().flat_map(char::to_lowercase));
                        count(lower.as_bytes());
                    });
            }
        }
    }
}
