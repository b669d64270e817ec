//! The program that archives files.

use super::{Crew, PLAIN, Sizes, Subject, same};
use crate::children::Launcher;
use crate::cost::Cost;
use crate::scratch::Directory;
use crate::{StudyError, hosts};
use outlive_programs::dedup::archive::Archive;
use outlive_programs::dedup::tree::Tree;
use outlive_programs::dedup::{self, Archiving, Summary, Text, pack_alone, verify};
use outlive_programs::wordcount::shipped_text;
use outlive_run::driver::Outcome;
use outlive_run::random::Random;
use std::fs;
use std::io;

/// The compression level: the default of `gzip`.
const LEVEL: u32 = 6;
const FILES: usize = 4;

struct Files {
    /// Its drop removes the files.
    _files: Directory,
    tree: Tree,
    text: Text,
    expected: Vec<u8>,
    summary: Summary,
}

pub fn make(sizes: &Sizes) -> Result<Box<dyn Subject>, StudyError> {
    let files = Directory::new("files")?;
    let bytes = sizes.files * 1_000_000 / FILES;
    let mut mixture = Mixture::new();
    let mut paths = Vec::new();
    for number in 0..FILES {
        let path = files.path(&format!("file {number}"));
        fs::write(&path, mixture.file(bytes)).map_err(StudyError::io("writing files"))?;
        paths.push(path);
    }
    let refused = |error: &dyn std::error::Error| StudyError::void(error.to_string());
    let tree = Tree::find(&paths).map_err(|error| refused(&error))?;
    let text = Text::find(&tree).map_err(|error| refused(&error))?;
    let mut expected = Vec::new();
    let summary = pack_alone(&tree, LEVEL, &mut expected).map_err(|error| refused(&error))?;
    let archive = Archive::open(expected.as_slice()).map_err(|error| refused(&error))?;
    verify::verify(&archive, &tree).map_err(|error| refused(&error))?;
    Ok(Box::new(Files {
        _files: files,
        tree,
        text,
        expected,
        summary,
    }))
}

/// Generates the content of files. Half of it occurred before. A quarter of the new content is
/// noise, the rest is lines of the Bible in any order.
struct Mixture {
    random: Random,
    bible: Vec<u8>,
    /// The content generated so far.
    past: Vec<u8>,
}

impl Mixture {
    fn new() -> Self {
        Self {
            random: Random::new(1),
            bible: shipped_text(),
            past: Vec::new(),
        }
    }

    fn line(&mut self) -> &[u8] {
        let from = self.random.below(self.bible.len() as u64 - 1000) as usize;
        let rest = &self.bible[from..];
        let mut lines = rest.split_inclusive(|byte| *byte == b'\n');
        // The first may be the end of a line.
        lines.nth(1).unwrap_or(rest)
    }

    fn file(&mut self, bytes: usize) -> Vec<u8> {
        let mut file = Vec::with_capacity(bytes);
        while file.len() < bytes {
            let some = 20_000 + self.random.below(200_000) as usize;
            let some = some.min(bytes - file.len());
            let (begin, end) = (file.len(), file.len() + some);
            match self.random.below(8) {
                0 => file.extend((0..some).map(|_| self.random.word() as u8)),
                1..4 => {
                    while file.len() < end {
                        file.extend_from_slice(self.line());
                    }
                }
                _ => {
                    let from = self.random.below(self.past.len() as u64 + 1) as usize;
                    let to = self.past.len().min(from + some);
                    file.extend_from_slice(&self.past[from..to]);
                }
            }
            file.truncate(end);
            self.past.extend_from_slice(&file[begin..]);
        }
        file
    }
}

impl Files {
    fn room(&self) -> Vec<u8> {
        Vec::with_capacity(self.expected.len())
    }
}

impl Subject for Files {
    fn size(&self) -> String {
        let Summary {
            bytes,
            chunks,
            distinct,
            ..
        } = self.summary;
        let megabytes = bytes / 1_000_000;
        format!("{megabytes} MB in {chunks} chunks, {distinct} different")
    }

    fn plain(&self) -> Result<Cost, StudyError> {
        let mut archive = self.room();
        let (cost, packed) = Cost::of(|| pack_alone(&self.tree, LEVEL, &mut archive));
        packed.map_err(|error| StudyError::void(error.to_string()))?;
        same(PLAIN, archive == self.expected)?;
        Ok(cost)
    }

    fn in_pod(&self, launcher: &Launcher, crew: Crew) -> Result<Outcome<()>, StudyError> {
        let (options, mut archive) = (crew.options(), self.room());
        let how = dedup::Options {
            level: LEVEL,
            workers: options.workers(),
            ..dedup::Options::default()
        };
        let begun = Archiving::begin(&self.tree, &self.text, how, &mut archive);
        let archiving = begun.map_err(|error: io::Error| StudyError::void(error.to_string()))?;
        let outcome = hosts::run(launcher, &options, &archiving)?;
        drop(archiving);
        crew.settled(archive == self.expected, outcome.split().1)
    }

    /// Returns the level, the rules by which chunks end, and the files.
    #[cfg(feature = "lupin")]
    fn for_c(&self, files: &Directory) -> Result<Vec<std::ffi::OsString>, StudyError> {
        use outlive_programs::dedup::chunk;
        let sizes = [chunk::MIN, chunk::USUAL, chunk::MAX].map(|size| size as u64);
        let bits = [chunk::WEAK, chunk::STRONG].map(u64::from);
        let words = sizes.iter().chain(&bits).chain(chunk::TABLE);
        let rules: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
        let mut arguments = vec![
            LEVEL.to_string().into(),
            files.write("rules", &rules)?.into(),
        ];
        let sources = self.tree.entries().iter();
        arguments.extend(sources.map(|source| source.path.clone().into()));
        Ok(arguments)
    }

    /// The result must be an archive in our format, of the same files and the same chunks. (Another
    /// library compresses them differently.)
    #[cfg(feature = "lupin")]
    fn expect(&self, result: &[u8]) -> Result<(), StudyError> {
        let wrong =
            |error: &dyn std::error::Error| StudyError::void(format!("{}: {error}", super::c::WHO));
        let archive = Archive::open(result).map_err(|error| wrong(&error))?;
        verify::verify(&archive, &self.tree).map_err(|error| wrong(&error))?;
        same(
            super::c::WHO,
            u64::from(archive.chunks()) == self.summary.distinct,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_something_in_common_and_are_the_same_again() {
        let [first, again] = [(), ()].map(|()| {
            let mut mixture = Mixture::new();
            [mixture.file(3_000_000), mixture.file(3_000_000)]
        });
        assert_eq!(first, again);
        assert!(first.iter().all(|file| file.len() == 3_000_000));
        let files = Directory::new("test-files").unwrap();
        let paths = [files.path("a"), files.path("b")];
        for (path, file) in paths.iter().zip(&first) {
            fs::write(path, file).unwrap();
        }
        let tree = Tree::find(&paths).unwrap();
        let summary = pack_alone(&tree, 1, io::sink()).unwrap();
        let share = summary.distinct as f64 / summary.chunks as f64;
        assert!((0.4..0.8).contains(&share), "{summary:?}");
    }
}
