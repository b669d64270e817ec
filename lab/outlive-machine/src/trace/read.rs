//! Reads traces, one block at a time.

use super::about::MOST_BYTES;
use super::block::{Block, HEADER, Header, Kind};
use super::event::Bases;
use super::index::{self, Place};
use super::varint::Reader;
use super::{About, Event, Flaw, TraceError};
use crate::program::{Image, Word};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;
use std::sync::Arc;

/// A trace in a file. Opening it reads its about section and its index; events are read when they
/// are needed, about 64 KiB at a time. Clones share the file.
#[derive(Clone, Debug)]
pub struct Trace {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    source: Source,
    length: u64,
    about: About,
    image: Vec<Place>,
    /// The blocks of each thread, in order.
    events: Vec<Vec<Place>>,
}

#[derive(Debug)]
enum Source {
    File(File),
    Bytes(Vec<u8>),
}

impl Source {
    fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>, TraceError> {
        let mut bytes = vec![0; length];
        match self {
            Self::File(file) => file.read_exact_at(&mut bytes, offset),
            Self::Bytes(all) => usize::try_from(offset)
                .ok()
                .and_then(|from| all.get(from..)?.get(..length))
                .map(|part| bytes.copy_from_slice(part))
                .ok_or(io::ErrorKind::UnexpectedEof.into()),
        }
        .map_err(TraceError::reading(offset))?;
        Ok(bytes)
    }
}

impl Trace {
    /// Opens the trace in a file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, is not a trace, or its about section is damaged. Damaged
    /// events are found when they are read, or by [`survey`](Self::survey).
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        // Checked before the file is opened: opening a pipe would wait for a writer.
        let kind = std::fs::metadata(path)
            .map_err(TraceError::Open)?
            .file_type();
        if !kind.is_file() {
            return Err(TraceError::NoFile {
                what: match () {
                    () if kind.is_dir() => "a directory",
                    () if kind.is_fifo() => "a pipe",
                    () => "a device",
                },
            });
        }
        let file = File::open(path).map_err(TraceError::Open)?;
        let length = file.metadata().map_err(TraceError::Open)?.len();
        Self::new(Source::File(file), length)
    }

    /// Opens a trace that is in memory.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, TraceError> {
        let length = bytes.len() as u64;
        Self::new(Source::Bytes(bytes), length)
    }

    fn new(source: Source, length: u64) -> Result<Self, TraceError> {
        let places = index::read(length, |offset, length| source.read(offset, length))?;
        let mut about = Vec::new();
        let about_at = places
            .iter()
            .find(|place| place.kind == Kind::About)
            .copied();
        for place in places.iter().filter(|place| place.kind == Kind::About) {
            about.extend(read_block(&source, *place)?.plain);
            if about.len() > MOST_BYTES {
                return Err(TraceError::damaged(place.offset, Flaw::Lengthy));
            }
        }
        let about_at = about_at.map_or(length, |place| place.offset);
        let about = About::decode(&about).map_err(|flaw| TraceError::damaged(about_at, flaw))?;
        let mut events = vec![Vec::new(); about.threads as usize];
        for place in places.iter().filter(|place| place.kind == Kind::Events) {
            let thread = TraceError::damaged(place.offset, Flaw::Field("thread"));
            events
                .get_mut(place.thread as usize)
                .ok_or(thread)?
                .push(*place);
        }
        let image = places
            .into_iter()
            .filter(|place| place.kind == Kind::Image)
            .collect();
        Ok(Self {
            shared: Arc::new(Shared {
                source,
                length,
                about,
                image,
                events,
            }),
        })
    }

    /// Returns the trace's about section.
    pub fn about(&self) -> &About {
        &self.shared.about
    }

    /// Returns the length of the file.
    pub fn bytes(&self) -> u64 {
        self.shared.length
    }

    /// Returns the initial contents of shared memory. The image takes as much memory as the words
    /// that are recorded in it.
    ///
    /// # Errors
    ///
    /// If that part of the trace is damaged or cannot be read.
    pub fn image(&self) -> Result<Image, TraceError> {
        let mut runs = Vec::new();
        self.each_run(|word, values| runs.push((word, values)))?;
        Ok(Image {
            words: self.about().words,
            runs,
        })
    }

    /// Returns the number of words in the image.
    pub(super) fn image_words(&self) -> Result<u64, TraceError> {
        let mut words = 0;
        self.each_run(|_, values| words += values.len() as u64)?;
        Ok(words)
    }

    fn each_run(&self, mut take: impl FnMut(Word, Vec<u64>)) -> Result<(), TraceError> {
        let mut end = 0;
        for place in &self.shared.image {
            let block = read_block(&self.shared.source, *place)?;
            let damaged = |flaw| TraceError::damaged(place.offset, flaw);
            let mut from = Reader::new(&block.plain);
            for _ in 0..block.items {
                let (word, values) = run(&mut from, end, self.about().words).map_err(damaged)?;
                end = word.0 + values.len() as u64;
                take(word, values);
            }
            if from.remains() > 0 {
                return Err(damaged(Flaw::Surplus { items: block.items }));
            }
        }
        Ok(())
    }

    /// Returns the events of a thread, from the beginning. The iterator ends after the first error,
    /// and is empty if the thread does not exist.
    pub fn events(&self, thread: u32) -> Events {
        Events {
            cursor: Cursor::new(self.clone(), thread),
            over: false,
        }
    }

    fn places(&self, thread: u32) -> &[Place] {
        self.shared
            .events
            .get(thread as usize)
            .map_or(&[], Vec::as_slice)
    }
}

/// Reads one run of an image, which may begin with word `first` at the earliest.
fn run(from: &mut Reader<'_>, first: u64, words: u64) -> Result<(Word, Vec<u64>), Flaw> {
    let word = from.number()?;
    let length = from.number()?;
    if word < first || length == 0 || word.checked_add(length).is_none_or(|end| end > words) {
        return Err(from.wrong("run"));
    }
    let bytes = usize::try_from(length)
        .ok()
        .and_then(|length| length.checked_mul(8));
    let bytes = from.take(bytes.ok_or(from.wrong("run"))?)?;
    let value = |word: &[u8]| u64::from_le_bytes(word.try_into().expect("eight bytes"));
    from.item += 1;
    Ok((Word(word), bytes.chunks_exact(8).map(value).collect()))
}

fn read_block(source: &Source, place: Place) -> Result<Block, TraceError> {
    let damaged = |flaw| TraceError::damaged(place.offset, flaw);
    let header = source.read(place.offset, HEADER)?;
    let header: [u8; HEADER] = header.try_into().expect("as long as requested");
    let parsed = Header::parse(&header).map_err(damaged)?;
    if (HEADER + parsed.stored) as u64 != place.length {
        return Err(damaged(Flaw::Field("stored bytes")));
    }
    let stored = source.read(place.offset + HEADER as u64, parsed.stored)?;
    let block = parsed.open(&header, stored).map_err(damaged)?;
    if (block.kind, block.thread) != (place.kind, place.thread) {
        return Err(damaged(Flaw::Field("kind or thread")));
    }
    Ok(block)
}

/// A position in the events of a thread. Clones share the block that is being read.
#[derive(Clone, Debug)]
pub(super) struct Cursor {
    trace: Trace,
    thread: u32,
    /// The index of the next block.
    next: usize,
    /// The block that is being read.
    block: Option<Arc<Block>>,
    at: usize,
    item: u32,
    bases: Bases,
}

impl Cursor {
    pub fn new(trace: Trace, thread: u32) -> Self {
        Self {
            trace,
            thread,
            next: 0,
            block: None,
            at: 0,
            item: 0,
            bases: Bases::default(),
        }
    }

    pub fn next(&mut self) -> Result<Option<Event>, TraceError> {
        loop {
            if let Some(block) = &self.block {
                let offset = self.trace.places(self.thread)[self.next - 1].offset;
                if self.item < block.items {
                    let mut from = Reader {
                        bytes: &block.plain,
                        at: self.at,
                        item: self.item,
                    };
                    let event = Event::decode(&mut from, &mut self.bases, self.trace.about())
                        .map_err(|flaw| TraceError::damaged(offset, flaw))?;
                    (self.at, self.item) = (from.at, from.item);
                    return Ok(Some(event));
                }
                if self.at < block.plain.len() {
                    return Err(TraceError::damaged(
                        offset,
                        Flaw::Surplus { items: block.items },
                    ));
                }
            }
            let Some(place) = self.trace.places(self.thread).get(self.next) else {
                return Ok(None);
            };
            self.block = Some(Arc::new(read_block(&self.trace.shared.source, *place)?));
            self.next += 1;
            (self.at, self.item, self.bases) = (0, 0, Bases::default());
        }
    }
}

/// The events of a thread, in order.
#[derive(Clone, Debug)]
pub struct Events {
    cursor: Cursor,
    over: bool,
}

impl Events {
    /// Returns the error `flaw` in the block of the last event.
    pub(super) fn damaged(&self, flaw: Flaw) -> TraceError {
        let Cursor {
            trace,
            thread,
            next,
            ..
        } = &self.cursor;
        let place = next.saturating_sub(1);
        let offset = trace
            .places(*thread)
            .get(place)
            .map_or(0, |place| place.offset);
        TraceError::damaged(offset, flaw)
    }
}

impl Iterator for Events {
    type Item = Result<Event, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let event = self.cursor.next().transpose();
        self.over = !matches!(event, Some(Ok(_)));
        event
    }
}
