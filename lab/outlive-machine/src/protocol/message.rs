//! The messages between compute nodes and directories about one line.
//!
//! `D` is the type of the line's contents. The timed machine sends real values or a handle to them;
//! a search sends as little as it needs to tell the newest value from others; `()` is the kind
//! alone.

/// A message from a node to the directory of a line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ToDirectory<D> {
    /// Requests the line, to be read.
    RdS,
    /// Requests the line, to be written. The node has no copy.
    RdX,
    /// Requests permission to write. The node had a copy then; it may lose it before it is served.
    Upgrade,
    /// Answers `Inv`: the node has no copy any more.
    Ack,
    /// The grant has come. The directory serves the line's next request only after this.
    Done,
    /// Answers `RecallShared`: the line was written here; the node keeps a copy to read.
    Downgraded(D),
    /// Answers `RecallShared`: memory is current; the node keeps a copy to read.
    DowngradedClean,
    /// Answers a recall: the line was written here; the node keeps no copy.
    Relinquished(D),
    /// Answers a recall: the node has no copy, and memory (or its write-back under way) is current.
    Gone,
    /// A written line that leaves the node's caches. The node keeps it until `PutAck`.
    PutM(D),
}

/// A message from the directory of a line to a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ToNode<D> {
    /// Give up your copy, which is one to read; answer `Ack`.
    Inv,
    /// Another node wants to read the line that you own; keep a copy to read.
    RecallShared,
    /// Another node wants to write the line that you own; keep no copy.
    RecallExclusive,
    /// The line, to be read.
    GrantS(D),
    /// The line; no other node has it, so it may be written too. Answers `RdS`.
    GrantE(D),
    /// The line, to be written; no other node has it. Answers `RdX` (the paper's RdX_ACK), and an
    /// `Upgrade` whose sender has lost its copy in the meantime.
    GrantM(D),
    /// Your copy is the only one: write. Answers `Upgrade`.
    GrantUpgrade,
    /// The contents that you put back are in memory, or were stale.
    PutAck,
}

impl<D> ToDirectory<D> {
    /// Returns the same message with its contents mapped by `data`; `None` if `data` returns it.
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

    /// Returns its contents.
    pub fn data(self) -> Option<D> {
        match self {
            ToDirectory::Downgraded(data)
            | ToDirectory::Relinquished(data)
            | ToDirectory::PutM(data) => Some(data),
            _ => None,
        }
    }

    /// Returns the message without contents.
    pub fn kind(self) -> ToDirectory<()> {
        self.try_map(|_| Some(()))
            .expect("the function always returns Some")
    }
}

impl<D> ToNode<D> {
    /// Returns the same message with its contents mapped by `data`.
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

    /// Returns its contents.
    pub fn data(self) -> Option<D> {
        match self {
            ToNode::GrantS(data) | ToNode::GrantE(data) | ToNode::GrantM(data) => Some(data),
            _ => None,
        }
    }

    /// Returns the message without contents.
    pub fn kind(self) -> ToNode<()> {
        self.map(|_| ())
    }
}
