//! The program that counts words.

use super::{Crew, PLAIN, Sizes, Subject, same};
use crate::StudyError;
use crate::children::Launcher;
use crate::cost::Cost;
#[cfg(feature = "lupin")]
use crate::scratch::Directory;
use crate::text::{Text, counting};
use outlive_programs::mapreduce::Counts;
use outlive_run::driver::Outcome;

struct Words {
    text: Text,
    expected: Counts,
    megabytes: usize,
}

pub fn make(sizes: &Sizes) -> Result<Box<dyn Subject>, StudyError> {
    let megabytes = sizes.text;
    let text = Text::of(megabytes * 1_000_000)?;
    let expected = text.count_alone()?.1;
    Ok(Box::new(Words {
        text,
        expected,
        megabytes,
    }))
}

impl Subject for Words {
    fn size(&self) -> String {
        let (megabytes, distinct) = (self.megabytes, self.expected.len());
        format!("{megabytes} MB of text, {distinct} different words (the paper: 1 million)")
    }

    fn plain(&self) -> Result<Cost, StudyError> {
        let (cost, counts) = self.text.count_alone()?;
        same(PLAIN, counts == self.expected)?;
        Ok(cost)
    }

    fn in_pod(&self, launcher: &Launcher, crew: Crew) -> Result<Outcome<()>, StudyError> {
        let count = counting(&self.text.whole, &crew.options());
        crew.run(launcher, &count, &self.expected)
    }

    #[cfg(feature = "lupin")]
    fn for_c(&self, _: &Directory) -> Result<Vec<std::ffi::OsString>, StudyError> {
        Ok(self.text.paths().map(Into::into).collect())
    }

    /// The result is a line for each word, by falling count and then by word.
    #[cfg(feature = "lupin")]
    fn expect(&self, result: &[u8]) -> Result<(), StudyError> {
        let mut expected = Vec::with_capacity(result.len());
        for (word, count) in &self.expected {
            expected.extend_from_slice(word);
            expected.extend_from_slice(format!("\t{count}\n").as_bytes());
        }
        same(super::c::WHO, result == expected)
    }
}
