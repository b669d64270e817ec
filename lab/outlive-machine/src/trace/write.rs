//! Writes traces.

use super::about::MOST_BYTES;
use super::block::{Block, Encoding, Kind, MOST};
use super::event::Bases;
use super::index::{self, Place};
use super::varint::put;
use super::{About, Event, Flaw, TraceError};
use crate::program::Word;
use std::io::Write;

/// The approximate size of a block of events; each thread buffers no more than this in memory.
const BLOCK: usize = 1 << 16;
/// The words in one run of an image.
const RUN: usize = 1 << 13;

/// Writes a trace from beginning to end without seeking, so the output may be a pipe. The output is
/// a trace only once it has been [finished](Self::finish).
///
/// ```
/// use outlive_machine::program::Word;
/// use outlive_machine::trace::{About, Encoding, Event, Trace, TraceWriter};
///
/// let mut writer = TraceWriter::new(Vec::new(), 1, Encoding::Deflate)?;
/// writer.image(Word(0), &[7])?;
/// writer.event(0, Event::Load { word: Word(0), value: Some(7) })?;
/// writer.event(0, Event::Store { word: Word(1), value: 8 })?;
/// let bytes = writer.finish(&About { words: 8, threads: 1, ..About::default() })?;
///
/// let trace = Trace::from_bytes(bytes)?;
/// assert_eq!(trace.events(0).count(), 2);
/// # Ok::<(), outlive_machine::trace::TraceError>(())
/// ```
#[derive(Debug)]
pub struct TraceWriter<W> {
    out: W,
    encoding: Encoding,
    end: u64,
    places: Vec<Place>,
    streams: Vec<Stream>,
}

#[derive(Clone, Debug, Default)]
struct Stream {
    bytes: Vec<u8>,
    events: u32,
    bases: Bases,
}

impl<W: Write> TraceWriter<W> {
    /// Begins a trace of `threads` threads.
    ///
    /// # Errors
    ///
    /// If `out` cannot be written to.
    pub fn new(out: W, threads: u32, encoding: Encoding) -> Result<Self, TraceError> {
        let mut writer = Self {
            out,
            encoding,
            end: 0,
            places: Vec::new(),
            streams: vec![Stream::default(); threads as usize],
        };
        writer.put(&index::start())?;
        Ok(writer)
    }

    /// Writes initial contents of shared memory, from `word` on. Words never written are zero.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn image(&mut self, word: Word, values: &[u64]) -> Result<(), TraceError> {
        for (index, run) in values.chunks(RUN).enumerate() {
            let mut plain = Vec::with_capacity(run.len() * 8 + 20);
            put(&mut plain, word.0 + (index * RUN) as u64);
            put(&mut plain, run.len() as u64);
            plain.extend(run.iter().flat_map(|value| value.to_le_bytes()));
            self.block(Block {
                kind: Kind::Image,
                thread: 0,
                items: 1,
                plain,
            })?;
        }
        Ok(())
    }

    /// Appends an event of a thread.
    ///
    /// # Errors
    ///
    /// If the thread or the event cannot exist, or the event cannot be written.
    pub fn event(&mut self, thread: u32, event: Event) -> Result<(), TraceError> {
        event.check().map_err(TraceError::Unwritable)?;
        let missing = TraceError::Unwritable(Flaw::Field("thread"));
        let stream = self.streams.get_mut(thread as usize).ok_or(missing)?;
        event.encode(&mut stream.bytes, &mut stream.bases);
        stream.events += 1;
        if stream.bytes.len() >= BLOCK {
            self.flush(thread)?;
        }
        Ok(())
    }

    /// Ends the trace. `about` must have all that the events and the image name; this is checked
    /// when the trace is opened.
    ///
    /// # Errors
    ///
    /// If `about` is inconsistent, or the rest cannot be written.
    pub fn finish(mut self, about: &About) -> Result<W, TraceError> {
        about.check().map_err(TraceError::Unwritable)?;
        if about.threads as usize != self.streams.len() {
            return Err(TraceError::Unwritable(Flaw::Field("threads")));
        }
        let threads = about.threads;
        let about = about.encode();
        if about.len() > MOST_BYTES {
            return Err(TraceError::Unwritable(Flaw::Lengthy));
        }
        for thread in 0..threads {
            self.flush(thread)?;
        }
        for part in about.chunks(MOST) {
            self.block(Block {
                kind: Kind::About,
                thread: 0,
                items: 1,
                plain: part.to_vec(),
            })?;
        }
        let end = index::encode(&self.places, self.end);
        self.put(&end)?;
        let offset = self.end;
        self.out.flush().map_err(writing(offset))?;
        Ok(self.out)
    }

    fn flush(&mut self, thread: u32) -> Result<(), TraceError> {
        let stream = std::mem::take(&mut self.streams[thread as usize]);
        if stream.events == 0 {
            return Ok(());
        }
        self.block(Block {
            kind: Kind::Events,
            thread,
            items: stream.events,
            plain: stream.bytes,
        })
    }

    fn block(&mut self, block: Block) -> Result<(), TraceError> {
        let bytes = block.encode(self.encoding)?;
        self.places.push(Place {
            offset: self.end,
            length: bytes.len() as u64,
            kind: block.kind,
            thread: block.thread,
        });
        self.put(&bytes)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), TraceError> {
        self.out.write_all(bytes).map_err(writing(self.end))?;
        self.end += bytes.len() as u64;
        Ok(())
    }
}

fn writing(offset: u64) -> impl Fn(std::io::Error) -> TraceError {
    move |source| TraceError::Io {
        doing: "written",
        offset,
        source,
    }
}
