//! Transactions on disaggregated memory that recover in milliseconds.
//!
//! A store's data lies in the memory of passive *memory servers*. *Compute servers* reach it by
//! [one-sided verbs](verbs) only, and any server may die at any instruction. The protocol is
//! Pandora on FORD (D. Mahesh, *Tandem* thesis, chapter 4), or one of three
//! [others](protocol::Protocol).
//!
//! [Servers](servers) join, leave, die and are fenced. [Transactions](protocol) on tables are
//! strictly serializable. The logged transactions of a dead compute server are completed or undone,
//! and its latches are stolen or released. After the loss of a memory server, transactions continue
//! on the other replicas, and a restoration fills new ones in place of the lost ones.
//!
//! `docs/store.md` describes stores for users: answers, limits, and the failures that they survive.
//!
//! ```
//! use outlive_store::servers::{Store, StoreOptions};
//! use outlive_store::verbs::block_on;
//!
//! # let path = format!("/dev/shm/outlive-doc-store-{}", std::process::id());
//! Store::create(&path, StoreOptions::new().replicas(1))?;
//! let memory = Store::open(&path)?.serve_memory(1 << 20)?; // in a process of its own
//!
//! let compute = Store::open(&path)?.join_compute()?; // in another process
//! let accounts = compute.table::<i64>("accounts", 1000)?;
//! let mut coordinator = compute.worker()?.coordinator()?;
//! block_on(coordinator.transaction(async |tx| {
//!     tx.put(accounts, 1, &100).await?;
//!     tx.put(accounts, 2, &0).await
//! }))?;
//! let moved = block_on(coordinator.transaction(async |tx| {
//!     let balance = tx.read(accounts, 1).await?.unwrap_or(0);
//!     tx.write(accounts, 1, &(balance - 30)).await?;
//!     tx.update(accounts, 2, |balance| balance + 30).await
//! }))?;
//! assert_eq!(moved.value, Some(0)); // the balance of account 2 before
//! # drop((coordinator, compute, memory));
//! # Store::destroy(&path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The modules, from the bottom up; each uses only those before it: [`verbs`], [`tables`],
//! [`protocol`], [`servers`], [`workloads`].

pub mod protocol;
pub mod servers;
pub mod tables;
pub mod verbs;
pub mod workloads;
