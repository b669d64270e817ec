//! Traces: recorded runs of real programs, replayed on a simulated machine.
//!
//! A trace has, for each thread, its [events](Event) in program order, the initial
//! [image](Trace::image) of shared memory, and an [about](About) section. The recorder
//! (`docs/recording.md`) or a [`TraceWriter`] makes it; a [`Trace`] reads it one block at a time;
//! [`Trace::threads`] are [`Thread`](crate::program::Thread)s of a machine.
//!
//! # How replays preserve values
//!
//! Stores carry the values that they wrote in the recorded run. So a replay ends with the recorded
//! contents of memory if the stores to each word come in the recorded order, or are replayed as
//! updates for which the order does not matter:
//!
//! * Stores that a lock, a barrier or an atomic orders come in the recorded order if the replay
//!   keeps to it ([`Order::Recorded`]). Each lock and atomic variable has an event count for this
//!   ([`Op::Await`](crate::program::Op::Await)): an operation on it waits until as many operations
//!   on it are done as preceded it in the recorded run.
//! * An atomic is replayed by adding the difference that it made: the sum is the same in any order.
//! * A store to a part of a word carries the mask of the bytes that it wrote, and the whole word as
//!   it was after the store. It is replayed as a store of the whole word. That is right unless two
//!   threads write different parts of one word and nothing orders them; then the later one restores
//!   the old contents of the other's part, as it saw them. [`Parts::Exact`] replays those stores in
//!   another way.
//! * Data races have no order, so their values are undefined.
//!
//! Waits at condition variables are replayed as the order in which the lock was taken: a thread
//! that continued in the recorded run after the lock had been taken N times continues after N
//! acquisitions in the replay. So a signal that comes earlier than in the recorded run is not lost.
//!
//! # The format
//!
//! Version 1. Numbers of fixed length are little-endian. A *varint* has seven bits in each byte,
//! the low ones first; the high bit says that another byte follows; it is as short as possible. A
//! *difference* is a varint `n` for `n / 2` if `n` is even, else `-(n + 1) / 2`. Reserved bytes are
//! zero; a reader refuses other values, and everything that is not described here.
//!
//! ```text
//! bytes   the file
//! 0..8    "OutTrace"
//! 8..12   version, 1
//! 12..16  reserved
//! 16..    blocks, one right after the other
//!         then the index: 16 bytes for each block, in the order of the file
//!         then the footer, 32 bytes, which end the file
//!
//! bytes   a block                                 bytes   an entry of the index
//! 0..4    "TBLK"                                  0..8    where the block is
//! 4       kind: 1 about, 2 image, 3 events        8..12   thread, as in the block
//! 5       contents: 0 as they are, 1 deflated     12      kind, as in the block
//! 6..8    reserved                                13..16  reserved
//! 8..12   thread, from 0; 0 if not of events
//! 12..16  length of the contents as stored        bytes   the footer
//! 16..20  as unpacked; 1 MiB at most              0..8    where the index is
//! 20..24  how many items                          8..16   how many entries it has
//! 24..28  reserved                                16..20  CRC-32 of the index and of bytes 0..16
//! 28..32  CRC-32 of bytes 0..28 and of the        20..24  reserved
//!         contents as stored                      24..32  "ecarTtuO"
//! 32..    contents
//! ```
//!
//! A program that dies while it is recorded writes no footer, and a file without one is refused.
//! All blocks of one kind and thread are read in the order of the file.
//!
//! **About** (one item; unpacked contents of several such blocks are concatenated, 32 MiB at most),
//! all varints: words of shared memory; threads; flags (1: spinning was detected, 2: the region of
//! interest only); number of event counts, and a byte for each, 1 if it must be kept to; number of
//! locks, and for each its word, and the event count of its order plus 1, or 0; number of condition
//! variables, and for each its word; number of barriers, and for each the word of its counter and
//! the number of threads that take part; number of pairs of texts (64 at most), and for each text
//! its length in bytes and UTF-8. The words of locks, condition variables and barriers are at the
//! beginning of lines of 64 bytes, which hold nothing else.
//!
//! **Image**: items are runs of words: the first word, the number of words (varints), their values,
//! 8 bytes each. They ascend. Words that are in no run are zero.
//!
//! **Events**: items are events. The first byte has the kind in its low 5 bits and `x` in its high
//! 3 bits, which are 0 where the table gives them no meaning. `word` is a difference to the
//! previous word in the block (in the events that have one), which is 0 at the beginning of a
//! block; `address` likewise, among private accesses. `value` is `x + 1` bytes, as few as possible,
//! the low ones first; the rest is zero. All others are varints except `mask`, a byte: bit 0 stands
//! for the byte with the lowest address.
//!
//! ```text
//! kind                after it                  what
//!  1 compute          count, if x is 0          so many instructions (8 and more) without access to memory; else x
//!  2 load             word, read if x is 1      a shared word was read
//!  3 store            word, value               a shared word was written
//!  4 store of a part  word, mask, value         some of its bytes were (not none, not all); the value is the whole word's
//!  5 atomic           word, mask, read, written bytes of it were read and written at once; x: 0 exchange, 1 add or
//!                                               subtract, 2 or, 3 and, 4 xor, 5 nand, 6 swapped, 7 not swapped.
//!                                               What was read and written stands at its place in the word
//!  6 fence                                      a full one
//!  7 private load     address                   private data was read
//!  8 private store    address                   private data was written
//!  9 lock             lock, turn                taken, after it had been taken `turn` times
//! 10 unlock           lock                      given back
//! 11 barrier          barrier                   arrived at and left
//! 12 wait begins      condition, lock           the lock was given back
//! 13 wait ends        condition, lock, turn     and taken again
//! 14 signal           condition
//! 15 broadcast        condition
//! 16 acquire          word                      mark, after the access
//! 17 release          word                      mark, before the access
//! 18 await            event count, value        what follows came when it had been advanced so often
//! 19 advance          event count
//! 20 region begins
//! 21 region ends
//! ```

mod about;
mod block;
mod error;
mod event;
mod index;
mod pages;
mod read;
mod replay;
mod survey;
mod varint;
mod write;

pub use about::{About, TracedLock};
pub use block::Encoding;
pub use error::{Flaw, TraceError};
pub use event::{AtomicKind, Event};
pub use read::{Events, Trace};
pub use replay::{Order, Parts, Replay, Replayed, TraceThread};
pub use survey::{Counts, Survey};
pub use write::TraceWriter;

/// The first bytes of a trace.
const MAGIC: [u8; 8] = *b"OutTrace";
/// The format version that is written and read.
const VERSION: u32 = 1;
