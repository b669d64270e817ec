//! What is said in a recovery: the messages of the paper's Table I, and those that it leaves out.

use std::sync::Arc;

use crate::cluster::event::MessageKind;
use crate::line::LineAddress;
use crate::logging::LogEntry;
use crate::parts::Content;
use crate::protocol::NodeSet;

/// A message of a recovery. The switch numbers recoveries by the interrupts that it raises, and whoever takes part in a later one
/// ignores what belongs to an earlier one: when another node dies, it is begun again, and answers may still be under way.
#[derive(Clone, Debug)]
pub(in crate::cluster) struct Recovery {
    pub number: u32,
    pub says: RecoverySays,
}

/// The parts of RecovEnd. All have answered to one before the next is said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::cluster) enum Ending {
    /// To the memory node that leads rounds of dumps: one more, in the old groups.
    Save,
    /// Lines belong to groups of the living from now on.
    Regroup,
    /// Cores go on.
    GoOn,
}

#[derive(Clone, Debug)]
pub(in crate::cluster) enum RecoverySays {
    /// MSI, from the switch to a core: these nodes are dead, and of each the switch has let so many messages pass to each port.
    Msi {
        dead: NodeSet,
        passed: Arc<[Box<[u32]>]>,
    },
    /// Cores are to halt, and how much has been sent and got is to be told; said again until all is got.
    Interrupt,
    /// How many messages the port has sent to each other, and got from each.
    InterruptResp {
        sent: Box<[u32]>,
        got: Box<[u32]>,
    },
    /// Stores that have not committed are to start over, and what is not validated is to be forgotten; memory nodes shall
    /// wait for no dump of the dead any more.
    Restart {
        dead: NodeSet,
    },
    RestartResp,
    /// To memory nodes: directories shall be repaired.
    InitRecov {
        dead: NodeSet,
    },
    InitRecovResp,
    /// What do you have of these lines?
    FetchLatestVers {
        lines: Arc<[LineAddress]>,
    },
    FetchLatestVersResp {
        updates: Vec<LogEntry>,
    },
    RecovEnd {
        ending: Ending,
        dead: NodeSet,
    },
    RecovEndResp(Ending),
}

impl RecoverySays {
    pub fn kind(&self) -> MessageKind {
        match self {
            RecoverySays::Msi { .. } => MessageKind::Msi,
            RecoverySays::Interrupt => MessageKind::Interrupt,
            RecoverySays::InterruptResp { .. } => MessageKind::InterruptResp,
            RecoverySays::Restart { .. } => MessageKind::Restart,
            RecoverySays::RestartResp => MessageKind::RestartResp,
            RecoverySays::InitRecov { .. } => MessageKind::InitRecov,
            RecoverySays::InitRecovResp => MessageKind::InitRecovResp,
            RecoverySays::FetchLatestVers { .. } => MessageKind::FetchLatestVers,
            RecoverySays::FetchLatestVersResp { .. } => MessageKind::FetchLatestVersResp,
            RecoverySays::RecovEnd { .. } => MessageKind::RecovEnd,
            RecoverySays::RecovEndResp(_) => MessageKind::RecovEndResp,
        }
    }

    /// What it carries, in numbers of 4 bytes: sets of nodes are one, addresses two, entries of logs six.
    pub fn content(&self) -> Content {
        let numbers = match self {
            RecoverySays::Msi { passed, .. } => {
                1 + passed.iter().map(|row| row.len()).sum::<usize>()
            }
            RecoverySays::InterruptResp { sent, got } => sent.len() + got.len(),
            RecoverySays::Restart { .. } | RecoverySays::InitRecov { .. } => 1,
            RecoverySays::RecovEnd { .. } => 1,
            RecoverySays::FetchLatestVers { lines } => 2 * lines.len(),
            RecoverySays::FetchLatestVersResp { updates } => 6 * updates.len(),
            RecoverySays::Interrupt
            | RecoverySays::RestartResp
            | RecoverySays::InitRecovResp
            | RecoverySays::RecovEndResp(_) => 0,
        };
        match numbers {
            0 => Content::Nothing,
            _ => Content::Numbers(numbers as u32),
        }
    }
}
