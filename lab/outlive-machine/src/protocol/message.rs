//! What compute nodes and directories say to each other about one line.
//!
//! `D` stands for the line's contents. The timed machine sends real values or a handle to them; a search sends as
//! little as it needs to tell the newest value from others; `()` says nothing but which message it is.

/// From a node to the directory of a line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ToDirectory<D> {
    /// A request: the line, to be read.
    RdS,
    /// A request: the line, to be written. The node has no copy.
    RdX,
    /// A request: leave to write. The node had a copy when it asked; it may lose it before it is served.
    Upgrade,
    /// I have no copy any more (to `Inv`).
    Ack,
    /// The grant has come. The directory serves the line's next request only after this.
    Done,
    /// To `RecallShared`: the line was written here; I keep a copy to read.
    Downgraded(D),
    /// To `RecallShared`: memory is current; I keep a copy to read.
    DowngradedClean,
    /// To a recall: the line was written here; I keep no copy.
    Relinquished(D),
    /// To a recall: I have no copy, and memory (or what I have put under way to it) is current.
    Gone,
    /// A written line that leaves the node's caches. The node keeps it until `PutAck`.
    PutM(D),
}

/// From the directory of a line to a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ToNode<D> {
    /// Give up your copy, which is one to read; answer `Ack`.
    Inv,
    /// Somebody wants to read what you own; keep a copy to read.
    RecallShared,
    /// Somebody wants to write what you own; keep none.
    RecallExclusive,
    /// The line, to be read.
    GrantS(D),
    /// The line; nobody else has it, so it may be written too. Answers `RdS`.
    GrantE(D),
    /// The line; nobody else has it, it was asked for to be written. Answers `RdX` (the paper's RdX_ACK), and an
    /// `Upgrade` whose sender has lost its copy meanwhile.
    GrantM(D),
    /// Your copy is the only one: write. Answers `Upgrade`.
    GrantUpgrade,
    /// What you put is in memory, or was not wanted any more.
    PutAck,
}

impl<D> ToDirectory<D> {
    /// The same message with what `data` makes of its contents, or `None` if that is none.
    pub fn try_map<T>(self, data: impl FnOnce(D) -> Option<T>) -> Option<ToDirectory<T>> {
        Some(match self {
            ToDirectory::RdS => ToDirectory::RdS,
            ToDirectory::RdX => ToDirectory::RdX,
            ToDirectory::Upgrade => ToDirectory::Upgrade,
            ToDirectory::Ack => ToDirectory::Ack,
            ToDirectory::Done => ToDirectory::Done,
            ToDirectory::Downgraded(old) => ToDirectory::Downgraded(data(old)?),
            ToDirectory::DowngradedClean => ToDirectory::DowngradedClean,
            ToDirectory::Relinquished(old) => ToDirectory::Relinquished(data(old)?),
            ToDirectory::Gone => ToDirectory::Gone,
            ToDirectory::PutM(old) => ToDirectory::PutM(data(old)?),
        })
    }

    /// The contents that it carries.
    pub fn data(self) -> Option<D> {
        match self {
            ToDirectory::Downgraded(data)
            | ToDirectory::Relinquished(data)
            | ToDirectory::PutM(data) => Some(data),
            _ => None,
        }
    }

    /// Which message it is, without contents.
    pub fn kind(self) -> ToDirectory<()> {
        self.try_map(|_| Some(())).expect("always something")
    }
}

impl<D> ToNode<D> {
    /// The same message with what `data` makes of its contents.
    pub fn map<T>(self, data: impl FnOnce(D) -> T) -> ToNode<T> {
        match self {
            ToNode::Inv => ToNode::Inv,
            ToNode::RecallShared => ToNode::RecallShared,
            ToNode::RecallExclusive => ToNode::RecallExclusive,
            ToNode::GrantS(old) => ToNode::GrantS(data(old)),
            ToNode::GrantE(old) => ToNode::GrantE(data(old)),
            ToNode::GrantM(old) => ToNode::GrantM(data(old)),
            ToNode::GrantUpgrade => ToNode::GrantUpgrade,
            ToNode::PutAck => ToNode::PutAck,
        }
    }

    /// The contents that it carries.
    pub fn data(self) -> Option<D> {
        match self {
            ToNode::GrantS(data) | ToNode::GrantE(data) | ToNode::GrantM(data) => Some(data),
            _ => None,
        }
    }

    /// Which message it is, without contents.
    pub fn kind(self) -> ToNode<()> {
        self.map(|_| ())
    }
}
