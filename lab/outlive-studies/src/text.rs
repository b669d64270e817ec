//! The text for the word counts: repeated copies of the King James Bible, in two nameless files
//! with the same content.

use crate::StudyError;
use crate::cost::Cost;
use outlive_programs::mapreduce::{Counts, MapReduction};
use outlive_programs::tokens::Tokens;
use outlive_programs::wordcount::{WordCount, add_alone, shipped_text, sort};
use outlive_run::driver::Options;
use outlive_run::input::Inputs;
use rustix::fs::{MemfdFlags, memfd_create};
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

/// Two files without names, which other processes open through this process.
pub struct Text {
    files: [File; 2],
    pub whole: Inputs,
    pub halves: [Inputs; 2],
}

impl Text {
    /// Writes at least `bytes` of text, in whole copies.
    pub fn of(bytes: usize) -> Result<Self, StudyError> {
        let copy = shipped_text();
        // Less than two copies are whole lines only, so that a test need not count a whole copy.
        let cut = (bytes / 2).min(copy.len());
        let end = copy[..cut].iter().rposition(|byte| *byte == b'\n');
        let copy = &copy[..end.map_or(cut, |at| at + 1)];
        let copies = bytes.div_ceil(2 * copy.len());
        let make = || -> std::io::Result<File> {
            let file = memfd_create("outlive-study-text", MemfdFlags::CLOEXEC)?;
            let mut file = File::from(file);
            for _ in 0..copies {
                file.write_all(copy)?;
            }
            Ok(file)
        };
        let failed = StudyError::io("writing the text to memory");
        let files = make()
            .and_then(|first| Ok([first, make()?]))
            .map_err(failed)?;
        let find = |files: &[File]| {
            let paths: Vec<PathBuf> = files.iter().map(path).collect();
            Inputs::find(&paths).map_err(|error| StudyError::void(error.to_string()))
        };
        Ok(Self {
            whole: find(&files)?,
            halves: [find(&files[..1])?, find(&files[1..])?],
            files,
        })
    }

    /// Returns the paths of the files.
    #[cfg(feature = "lupin")]
    pub fn paths(&self) -> impl Iterator<Item = PathBuf> {
        self.files.iter().map(path)
    }

    /// Counts with the plain program. Returns its cost and the counts.
    pub fn count_alone(&self) -> Result<(Cost, Counts), StudyError> {
        let (cost, counted) = Cost::of(|| {
            let mut counts = HashMap::new();
            let mut files = self.files.iter();
            let added =
                files.try_for_each(|file| add_alone(&path(file), Tokens::default(), &mut counts));
            added.map(|()| counts)
        });
        let counts = counted.map_err(StudyError::io("reading the text"))?;
        let mut counts: Counts = counts
            .into_iter()
            .map(|(word, count)| (word.into_vec(), count))
            .collect();
        sort(&mut counts);
        Ok((cost, counts))
    }
}

/// Returns the job that counts the words of `inputs` with the workers and the seed of `options`.
pub fn counting(inputs: &Inputs, options: &Options) -> MapReduction<WordCount> {
    MapReduction::new(WordCount::default(), inputs.clone())
        .workers(options.workers())
        .seed(options.seed)
}

fn path(file: &File) -> PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into()
}
