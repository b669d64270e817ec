//! An archive that is written during the run, window after window, in the order of the text.

use super::Summary;
use super::archive::{Catalog, Writer};
use super::extents::Span;
use super::outbox::{Outbox, Sent};
use super::pack::Digest;
use super::tree::{Source, Tree};
use std::io::{self, Write};

/// A chunk as it occurs in the text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Occurrence<'p> {
    /// The number of the chunk.
    pub number: u32,
    /// The digest.
    pub digest: Digest,
    /// The length in bytes.
    pub len: u64,
    /// The stored form, at its first occurrence.
    pub packed: Option<&'p [u8]>,
}

/// An unfinished archive.
pub(super) struct Writing<'t, W> {
    writer: Writer<Outbox<W>>,
    catalog: Catalog,
    /// The entries that are not entered yet.
    sources: std::slice::Iter<'t, Source>,
    file: Option<Entering<'t>>,
    chunks: Vec<u32>,
}

/// The file that is being entered. Its chunks so far are in [`Writing::chunks`].
struct Entering<'t> {
    source: &'t Source,
    /// The bytes left of the current extent.
    left: u64,
    /// The extents after it.
    extents: std::slice::Iter<'t, Span>,
}

impl<'t, W: Write> Writing<'t, W> {
    /// Begins an archive of `tree`.
    pub fn new(tree: &'t Tree, out: W) -> io::Result<Self> {
        let mut writing = Self {
            writer: Writer::new(Outbox::new(out))?,
            catalog: Catalog::default(),
            sources: tree.entries().iter(),
            file: None,
            chunks: Vec::new(),
        };
        writing.next_file();
        Ok(writing)
    }

    /// Enters the sources before the next file with bytes, and begins that file.
    fn next_file(&mut self) {
        for source in self.sources.by_ref() {
            let mut extents = source.extents().iter();
            if let Some(first) = extents.next() {
                self.file = Some(Entering {
                    source,
                    left: first.len,
                    extents,
                });
                return;
            }
            self.catalog.add(source, Vec::new());
        }
    }

    /// Enters the next chunk of the text. `None` if it cannot be the next one: the pod is damaged.
    pub fn chunk(&mut self, it: Occurrence<'_>) -> Option<io::Result<()>> {
        let file = self.file.as_mut()?;
        file.left = file.left.checked_sub(it.len)?;
        let is_new = (1..=super::chunk::MAX as u64)
            .contains(&it.len)
            .then(|| self.catalog.enter_as(it.number, it.digest, it.len as usize))?;
        if is_new? != it.packed.is_some() {
            return None;
        }
        self.chunks.push(it.number);
        if file.left == 0 {
            match file.extents.next() {
                Some(next) => file.left = next.len,
                None => {
                    let chunks = std::mem::take(&mut self.chunks);
                    self.catalog.add(file.source, chunks);
                    self.file = None;
                    self.next_file();
                }
            }
        }
        Some(it.packed.map_or(Ok(()), |packed| self.writer.chunk(packed)))
    }

    /// Sends the buffer on if it is full, for as long as `goes_on` returns true.
    pub fn send(&mut self, goes_on: &dyn Fn() -> bool) -> io::Result<Sent> {
        let outbox = self.writer.out();
        match outbox.is_full() {
            true => outbox.send(goes_on),
            false => Ok(Sent::All),
        }
    }

    /// Ends the archive; `None` if a part of the text has not been entered. The summary is missing
    /// if the run stopped before everything was sent.
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
