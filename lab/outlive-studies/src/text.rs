//! The text whose words are counted: the King James Bible, again and again, in two files without names that say the same.

use crate::StudyError;
use crate::cost::Cost;
use outlive_workloads::driver::Options;
use outlive_workloads::input::Inputs;
use outlive_workloads::mapreduce::{Counts, MapReduction};
use outlive_workloads::tokens::Tokens;
use outlive_workloads::wordcount::{WordCount, add_alone, shipped_text, sort};
use rustix::fs::{MemfdFlags, memfd_create};
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

/// Two files without names, which other processes open through this one.
pub struct Text {
    files: [File; 2],
    pub whole: Inputs,
    pub halves: [Inputs; 2],
}

impl Text {
    /// At least `bytes` of text, in whole copies.
    pub fn of(bytes: usize) -> Result<Self, StudyError> {
        let copy = shipped_text();
        // Of less than a copy whole lines, so that a test need not count all of it.
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

    /// Where the files are.
    #[cfg(feature = "lupin")]
    pub fn paths(&self) -> impl Iterator<Item = PathBuf> {
        self.files.iter().map(path)
    }

    /// What the plain program takes, and what it counts.
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

/// The counting of `inputs` by hosts that are as `options` say.
pub fn counting(inputs: &Inputs, options: &Options) -> MapReduction<WordCount> {
    MapReduction::new(WordCount::default(), inputs.clone())
        .workers(options.workers())
        .seed(options.seed)
}

fn path(file: &File) -> PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into()
}
