//! Model checkers of the coherence protocol: they drive the functions of
//! [`protocol`](crate::protocol) in machines without time.
//!
//! * [`Search`] visits every state that a small machine can reach, with any order of messages, and
//!   any accesses, prefetches and evictions at any moment. Contents are [`Freshness`], so that "any
//!   number of stores" has finitely many states.
//! * [`Walk`] takes random steps in a larger machine with real values.
//! * [`Mutant`]s are protocols with one thing removed: a [`Suite`] of searches and walks must
//!   detect them ([`mutants`]).
//! * [`Replicated`] machines add ReCXL's replication; their nodes die and are recovered from:
//!   [`ReplicatedSearch`], [`ReplicatedWalk`], the mutants of their tables and [`Fault`]s
//!   outside the tables ([`ReplicatedSuite`]).
//!
//! They check: a line has one writer or only readers; an access reads or writes the last value of
//! the line; the last value is in a place where the protocol will find it; the directory's record
//! covers all copies; no more messages are under way than the argument allows; and once no core
//! asks for anything more, every order of deliveries leads to quiet.
//!
//! No model-checking library is used, because the last claim is about all paths of deliveries from
//! all states, which needs the whole graph.

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
