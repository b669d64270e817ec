//! Transactions on disaggregated memory that recover in milliseconds.
//!
//! A store's data lies in the memory of passive *memory servers*. *Compute servers* reach it by
//! [one-sided verbs](verbs) only, and any server may die at any instruction. The protocols are FORD
//! and Pandora (D. Mahesh, *Tandem* thesis, chapter 4). Built so far: the verbs, and memory and
//! compute [servers] that join, leave, die and are fenced. Tables and transactions follow.
//!
//! ```
//! use outlive_store::servers::{Store, StoreOptions};
//! use outlive_store::verbs::{Batch, Connection, RemoteOffset, block_on};
//!
//! # let path = format!("/dev/shm/outlive-doc-store-{}", std::process::id());
//! Store::create(&path, StoreOptions::new())?;
//! let memory = Store::open(&path)?.serve_memory(1 << 20)?; // in a process of its own
//!
//! let compute = Store::open(&path)?.join_compute()?; // in another process
//! let server = compute.connect(memory.id())?;
//! let mut batch = Batch::new();
//! let was = batch.fetch_add(RemoteOffset::new(0), 5);
//! assert_eq!(block_on(server.post(batch)).finished()?.value(was), 0);
//! # drop((compute, memory));
//! # Store::destroy(&path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The modules, from the bottom up; each uses only those before it: [`verbs`], [`servers`].

pub mod servers;
pub mod verbs;
