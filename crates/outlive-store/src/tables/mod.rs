//! Tables: the layout of their objects in memory servers, and the choice of these servers.
//!
//! A table maps 8-byte keys to values of a fixed size. Its keys are hashed to *partitions*. A
//! partition has f + 1 *replicas*, each in another memory server, with the same layout at different
//! offsets. Everything in a partition is an [object](Geometry): a latch word, a version and value
//! words. The index consists of objects as well (the buckets), so that latching, logging, undo and
//! validation treat an insertion like two writes.
//!
//! ```text
//! partition  header | main buckets | extra buckets | 8 slots for each bucket
//! object     latch, version, value words; aligned to 16 bytes
//! header     number of extra buckets that were ever in use, first free one + 1 or 0
//! bucket     next bucket + 1 or 0, bit mask of its slots in use, 8 keys
//! slot       key, words of the value
//! ```
//!
//! A slot does not move, so its address can be cached: the key in the slot confirms it. A version
//! is a counter whose lowest bit tells whether the object exists. It is never set back, also when a
//! slot receives another key. Zeroed memory is an empty table.

mod geometry;
mod object;
mod placement;

pub use geometry::{BUCKET_WORDS, Bucket, Geometry, HEADER_WORDS, Header, KEYS_PER_BUCKET};
pub use object::{LATCH, ObjectId, TransactionId, VALUE, VERSION, Version};
pub use placement::{MAX_REPLICAS, Place, TableLayout, choose};
