//! Instances and generations, detectors, the fabric manager, control groups, the right to write.
//!
//! The table of generations ([`Generations`]) alone decides which members are alive; the rest of
//! this module keeps it true. A death goes through four steps, always in this order: it is *proven*
//! (an obituary, a free presence, a fence), the generation is *raised* (one compare-and-swap), the
//! control groups are *notified*, and the locks, memory and operations of the dead member are
//! *recovered*. If a process dies between two steps, the next one that checks continues: the table
//! shows which generations have been raised, and a group's table the deaths that were reported to
//! it.

mod admission;
mod agents;
mod death;
mod detector;
mod events;
mod fence;
mod group;
mod instance;
mod join;
mod join_lock;
mod kill;
mod manager;
mod member;
mod obligations;
mod operating_systems;
mod operator;
mod options;
mod process;
mod record;
mod recovery_thread;
mod request;
mod role;
#[cfg(test)]
mod scripted;
mod sentinel;
mod settings;
mod shared;
mod state;
#[doc(hidden)]
pub mod steps;
mod tables;
mod unreported;
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
pub use operating_systems::{OperatingSystems, TooManyBoots};
pub use operator::NotBuried;
pub(crate) use operator::{bury_by_word, one_that_beats};
pub use options::ProcessOptions;
pub use process::{Process, StillMembers};
pub use record::{Record, Records};
pub use request::NobodyToFence;
pub use role::{Role, TakeRolePoint};
pub use settings::{FenceCommandDigest, Settings};
pub(crate) use shared::Shared;
pub use state::{Generations, Level, State, Status};
pub use tables::{AreaBytes, Extent, Tables};
pub use watch::TakeWatchPoint;
