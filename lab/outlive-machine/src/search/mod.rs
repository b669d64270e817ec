//! Judges of a protocol: they drive the very functions of [`protocol`](crate::protocol), in machines without time.
//!
//! * [`Search`] meets every state that a small machine can reach, with any order of messages, and any accesses,
//!   prefetches and evictions at any moment. Contents are [`Freshness`], so that "any number of stores" is finitely
//!   many states.
//! * [`Walk`] goes a random way through a larger machine with real values.
//! * [`Mutant`]s are protocols with something taken out: a [`Suite`] of the two must notice ([`mutants`]).
//!
//! * [`Replicated`] machines are the same with ReCXL's replication, and their nodes die and are recovered from:
//!   [`ReplicatedSearch`], [`ReplicatedWalk`], and [`Fault`]s beside the mutants of their tables ([`ReplicatedSuite`]).
//!
//! What they look for: one writer or readers; what is read or written is the last value of the line; the last value
//! is somewhere where the protocol will find it; the directory's record covers the truth; no more messages are under
//! way than the argument says; and whatever is under way, once no core asks for anything more, every order of
//! deliveries leads to quiet.
//!
//! The search is its own and not that of a library, because its last claim is about all ways from all states, the
//! deliveries alone, which takes the whole graph.

mod check;
mod explore;
mod fingerprint;
mod machine;
mod mutant;
mod payload;
mod random;
mod replicated;
mod step;
mod trace;
mod violation;
mod world;

pub use check::Claims;
pub use explore::{Explored, Search};
pub use mutant::{Kill, Mutant, Mutation, SURVIVORS, Suite, mutants};
pub use payload::{Freshness, Payload};
pub use random::{Walk, Walked};
pub use replicated::{
    Budget, Fault, Happening, LogMessage, Lost, REPLICATED_SURVIVORS, Replicated, ReplicatedMutant,
    ReplicatedRules, ReplicatedSearch, ReplicatedSuite, ReplicatedWalk, ReplicatedWalked, Setup,
    Validation, When, replicated_mutants,
};
pub use trace::{Counterexample, Step};
pub use violation::Violation;
pub use world::{Access, Agent, Choice, Home, Kind, Message, Packet, Rules, Shape, World};
