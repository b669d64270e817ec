//! The events of a control group.

use super::super::{Instance, Level};
use core::fmt;

/// The kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum EventKind {
    /// A member joined for the first time.
    Joined = 1,
    /// A member joined again, after it had left or died.
    Rejoined = 2,
    /// A member left in good order.
    Left = 3,
    /// A thread died: its generation has been raised.
    ThreadDied = 4,
    /// A process died, all its threads with it.
    ProcessDied = 5,
    /// A host died. The deaths of its processes and threads follow, unless they have been reported.
    HostDied = 6,
    /// Another process has become the fabric manager.
    RoleChanged = 7,
    /// A host is silent and could not be fenced: it may still write, so its generation is not
    /// raised.
    HostSuspected = 8,
}

impl EventKind {
    /// Returns the kind's name in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Joined => "joined",
            Self::Rejoined => "rejoined",
            Self::Left => "left",
            Self::ThreadDied => "thread died",
            Self::ProcessDied => "process died",
            Self::HostDied => "host died",
            Self::RoleChanged => "became the fabric manager",
            Self::HostSuspected => "is suspected",
        }
    }

    /// Returns the kind for the death of a member of `level`.
    pub const fn death_of(level: Level) -> Self {
        match level {
            Level::Host => Self::HostDied,
            Level::Process => Self::ProcessDied,
            Level::Thread => Self::ThreadDied,
        }
    }

    /// Returns whether the event is a death: a generation was raised.
    pub const fn is_death(self) -> bool {
        matches!(self, Self::ThreadDied | Self::ProcessDied | Self::HostDied)
    }
}

/// One event of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    /// The number in the group, from 1 and without gaps.
    pub sequence: u64,
    /// The kind of event.
    pub kind: EventKind,
    /// The incarnation that the event is about.
    pub instance: Instance,
    /// The level of that member.
    pub level: Option<Level>,
    /// For a host's death: whether the host was fenced.
    pub fenced: bool,
}

const FENCED: u8 = 0x80;

/// ```text
/// 127          64 63          16 15    8 7      0
/// |   instance   |   sequence   | kind  |  level |    fenced: the highest bit of the level's byte
/// ```
impl Event {
    /// The highest number that an event can have.
    pub(crate) const LAST: u64 = (1 << 48) - 1;

    pub(crate) fn new(kind: EventKind, instance: Instance, level: Option<Level>) -> Self {
        Self {
            sequence: 0,
            kind,
            instance,
            level,
            fenced: false,
        }
    }

    pub(crate) fn because_fenced(self, fenced: bool) -> Self {
        Self { fenced, ..self }
    }

    pub(crate) fn numbered(self, sequence: u64) -> Self {
        Self { sequence, ..self }
    }

    pub(crate) fn to_word(self) -> u128 {
        let level = self.level.map_or(0, |level| level as u128)
            | if self.fenced { u128::from(FENCED) } else { 0 };
        u128::from(self.instance.to_word()) << 64
            | u128::from(self.sequence) << 16
            | (self.kind as u128) << 8
            | level
    }

    /// Returns the number in a slot's word; 0 for an empty slot.
    pub(crate) fn sequence_of(word: u128) -> u64 {
        word as u64 >> 16
    }

    /// Returns the event in a slot's word; `None` if it is empty or corrupt.
    pub(crate) fn from_word(word: u128) -> Option<Self> {
        let kind = match (word >> 8) as u8 {
            1 => EventKind::Joined,
            2 => EventKind::Rejoined,
            3 => EventKind::Left,
            4 => EventKind::ThreadDied,
            5 => EventKind::ProcessDied,
            6 => EventKind::HostDied,
            7 => EventKind::RoleChanged,
            8 => EventKind::HostSuspected,
            _ => return None,
        };
        let level = Level::from_code(word as u8 & !FENCED)?;
        Some(Self {
            sequence: Self::sequence_of(word),
            kind,
            instance: Instance::from_word((word >> 64) as u64)?,
            level,
            fenced: word as u8 & FENCED != 0,
        })
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = self.level.map_or("member", Level::name);
        match self.kind {
            EventKind::ThreadDied | EventKind::ProcessDied | EventKind::HostDied => {
                let why = if self.fenced { ": fenced" } else { "" };
                write!(f, "{level} {} died{why}", self.instance)
            }
            kind => write!(f, "{level} {} {}", self.instance, kind.name()),
        }
    }
}
