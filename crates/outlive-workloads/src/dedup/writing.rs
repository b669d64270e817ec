//! The archive as it is written while it comes: window after window, in the order of the text.

use super::Summary;
use super::archive::{Catalog, Writer};
use super::outbox::{Outbox, Sent};
use super::pack::Digest;
use super::text::Text;
use super::tree::{Content, Source, Tree};
use std::io::{self, Write};

/// A chunk as it occurs in the text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Occurrence<'p> {
    /// The number of the chunk.
    pub number: u32,
    /// Its digest.
    pub digest: Digest,
    /// How many bytes it has.
    pub len: u64,
    /// What is kept of it, where it occurs first.
    pub packed: Option<&'p [u8]>,
}

/// An archive in the making.
pub(super) struct Writing<'t, W> {
    writer: Writer<Outbox<W>>,
    catalog: Catalog,
    /// What is still to be entered, and how long each of the files among it is.
    sources: std::slice::Iter<'t, Source>,
    lens: Vec<u64>,
    /// The file that is being entered, how much of it is still to come, and of which chunks it is so far.
    file: Option<(&'t Source, u64)>,
    chunks: Vec<u32>,
}

impl<'t, W: Write> Writing<'t, W> {
    /// Begins an archive of `tree`, whose files are those of `text`.
    pub fn new(tree: &'t Tree, text: &Text, out: W) -> io::Result<Self> {
        let mut lens: Vec<u64> = text.lens().collect();
        lens.reverse();
        let mut writing = Self {
            writer: Writer::new(Outbox::new(out))?,
            catalog: Catalog::default(),
            sources: tree.entries().iter(),
            lens,
            file: None,
            chunks: Vec::new(),
        };
        writing.next_file();
        Ok(writing)
    }

    /// Enters what comes before the next file with bytes, and turns to that.
    fn next_file(&mut self) {
        for source in self.sources.by_ref() {
            if source.content == Content::File
                && let Some(len) = self.lens.pop()
                && len > 0
            {
                self.file = Some((source, len));
                return;
            }
            self.catalog.add(source, Vec::new());
        }
    }

    /// Enters the next chunk of the text. `None` if this cannot be it: what says so is damaged.
    pub fn chunk(&mut self, it: Occurrence<'_>) -> Option<io::Result<()>> {
        let (source, left) = self.file?;
        let left = left.checked_sub(it.len)?;
        let is_new = (1..=super::chunk::MAX as u64)
            .contains(&it.len)
            .then(|| self.catalog.enter_as(it.number, it.digest, it.len as usize))?;
        if is_new? != it.packed.is_some() {
            return None;
        }
        self.chunks.push(it.number);
        self.file = Some((source, left));
        if left == 0 {
            self.file = None;
            self.catalog.add(source, std::mem::take(&mut self.chunks));
            self.next_file();
        }
        Some(it.packed.map_or(Ok(()), |packed| self.writer.chunk(packed)))
    }

    /// Sends on what was written, if it is enough for that, for as long as the run `goes_on`.
    pub fn send(&mut self, goes_on: &dyn Fn() -> bool) -> io::Result<Sent> {
        let outbox = self.writer.out();
        match outbox.is_full() {
            true => outbox.send(goes_on),
            false => Ok(Sent::All),
        }
    }

    /// Ends the archive; `None` if something of the text has not been entered. Without a summary, the run did not go on until
    /// all was sent.
    pub fn finish(mut self, goes_on: &dyn Fn() -> bool) -> Option<io::Result<Option<Summary>>> {
        if self.file.is_some() {
            return None;
        }
        let summary = self.writer.end(&self.catalog);
        Some(summary.and_then(|summary| {
            let sent = self.writer.out().send(goes_on)?;
            Ok((sent == Sent::All).then_some(summary))
        }))
    }
}
