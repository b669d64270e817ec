//! Who is alive: instances and their generations, the detectors, the fabric manager, control groups, and
//! the right to write.
//!
//! The table of generations ([`Generations`]) is the only truth about life and death; everything
//! else here exists to keep it true. A death goes through four steps, always in this order: it is
//! *proven* (an obituary, a free presence, a fence), the generation is *raised* (one
//! compare-and-swap), it is *told* to the control groups, and what the dead held is *recovered*.
//! Whoever dies between two of these steps leaves the rest to the next who looks: the table says
//! what has been raised, a group's table says what has been told.

mod admission;
mod agents;
mod death;
mod detector;
mod door;
mod events;
mod fence;
mod group;
mod instance;
mod join;
mod keeper;
mod kill;
mod manager;
mod member;
mod obligations;
mod operator;
mod options;
mod oses;
mod process;
#[doc(hidden)]
pub mod proofs;
mod record;
mod request;
mod role;
#[cfg(test)]
mod scripted;
mod sentinel;
mod settings;
mod shared;
mod state;
mod tables;
mod watch;

pub use death::{BuryPoint, bury, reconcile};
pub use events::GroupEvents;
pub use fence::FenceAgent;
pub use group::{
    AppendPoint, CreateGroupPoint, Credentials, Event, EventKind, GroupError, GroupId, GroupLog,
    Groups, Guard, MemberState, News, Standing, Subscription,
};
pub use instance::{Instance, InstanceId};
pub use join::{JoinError, JoinPoint, LeavePoint};
pub use kill::kill_process;
pub use member::Member;
pub use obligations::{NothingHeld, Obligations};
pub use operator::NotBuried;
pub(crate) use operator::bury_by_word;
pub use options::ProcessOptions;
pub use oses::{OperatingSystems, TooManyBoots};
pub use process::{Process, StillMembers};
pub use record::{Record, Records};
pub use request::NobodyToFence;
pub use role::{Role, TakeRolePoint};
pub use settings::{FenceCommandDigest, Settings};
pub(crate) use shared::Shared;
pub use state::{Generations, Level, State, Status};
pub use tables::{AreaBytes, Extent, Tables};
pub use watch::TakeWatchPoint;
