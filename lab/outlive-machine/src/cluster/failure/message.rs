//! The messages of a recovery: those of the paper's Table I, and those that it omits.

use std::sync::Arc;

use crate::cluster::event::MessageKind;
use crate::line::LineAddress;
use crate::logging::LogEntry;
use crate::parts::Content;
use crate::protocol::NodeSet;

/// A message of a recovery. The switch numbers recoveries by the interrupts that it raises, and a
/// participant of a later recovery ignores messages of an earlier one: when another node dies,
/// recovery begins again, and answers may still be under way.
#[derive(Clone, Debug)]
pub(in crate::cluster) struct Recovery {
    pub number: u32,
    pub says: RecoverySays,
}

/// The parts of RecovEnd. Each is sent only after all have answered the one before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::cluster) enum Ending {
    /// To the memory node that leads rounds of dumps: one more round, in the old groups.
    Save,
    /// From now on, lines belong to groups of the living nodes.
    Regroup,
    /// Cores continue.
    GoOn,
}

#[derive(Clone, Debug)]
pub(in crate::cluster) enum RecoverySays {
    /// MSI, from the switch to a core: these nodes are dead. For each of them, `passed` has the
    /// number of messages that the switch has let pass to each port.
    Msi {
        dead: NodeSet,
        passed: Arc<[Box<[u32]>]>,
    },
    /// Cores must halt, and report the numbers of messages sent and received. Repeated until all
    /// messages are received.
    Interrupt,
    /// The numbers of messages that the port has sent to, and received from, each port.
    InterruptResp {
        sent: Box<[u32]>,
        got: Box<[u32]>,
    },
    /// Stores that have not committed must start over, and entries that are not validated must be
    /// forgotten; memory nodes must no longer wait for dumps of dead nodes.
    Restart {
        dead: NodeSet,
    },
    RestartResp,
    /// To memory nodes: directories must be repaired.
    InitRecov {
        dead: NodeSet,
    },
    InitRecovResp,
    /// Requests the log entries of these lines.
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

    /// Returns its payload, in numbers of 4 bytes: a set of nodes is one number, an address two, a
    /// log entry six.
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
