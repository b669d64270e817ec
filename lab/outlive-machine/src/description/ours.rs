//! Parameters that the paper does not give. The documentation of each gives the reason for its
//! default; a study sweeps the parameters that matter.

use crate::engine::Time;

use super::parameter::choice;
use super::quantity::Bytes;
use super::section::section;

choice! {
    /// Which stores to shared memory are coalesced.
    pub enum Coalescing {
        /// Consecutive stores that write different bytes of one line.
        Lines = "lines",
        /// None.
        Never = "never",
    }
}

choice! {
    /// How the operations of locks, barriers and conditions access memory.
    pub enum Synchronising {
        /// As atomics, loads and stores of their words, which are replicated like others: a thread
        /// that dies while it holds one leaves its word unchanged.
        Replicated = "replicated",
        /// The same without replication: for comparison only, since no node may then fail.
        LeftOut = "left-out",
        /// Not at all: the machine knows which threads must wait, and a waiting thread continues at
        /// the moment another lets it. No node may fail.
        Events = "events",
    }
}

section! {
    /// Of a core. The paper's queues and private caches are those of Intel's Sunny Cove, so the
    /// other values are taken from it too.
    pub struct Core {
        /// Entries of the reorder buffer: 352, as that core has.
        pub reorder_buffer: u32 = 352,
        /// Instructions that enter and that retire in a cycle: 5, as many as that core renames.
        pub width: u32 = 5,
        /// Entries of the store buffer (retired stores): 72. That core keeps a store in the same 72
        /// entries from issue to commit; the paper draws two queues and gives one size, so both
        /// have it. Coalesced stores share one entry.
        pub store_buffer: u32 = 72,
        /// Which stores are coalesced: "lines" (consecutive stores that write different bytes of
        /// one line), as the paper says, or "never", to measure the benefit.
        /// "recxl-proactive-uncoalesced" never coalesces, whatever the value here.
        pub coalescing: Coalescing = Coalescing::Lines,
        /// Misses that an L1 waits for at a time: 12, the line fill buffers of that core.
        pub l1_misses: u32 = 12,
        /// Misses that an L2 waits for at a time: 48, as that core has.
        pub l2_misses: u32 = 48,
        /// While entries are in no more than one N-th of the store buffer (8: in 9 of 72),
        /// "recxl-adaptive" replicates each store as it enters: so few entries will soon be waited
        /// for. With more, there is time for other stores to join. The oldest is always replicated.
        pub eager_part: u32 = 8,
        /// How locks, barriers and conditions access memory: "replicated", "left-out" or "events".
        /// A lock whose word dies with a node would be free or taken for ever, so stores to these
        /// words are replicated like others. The paper's traces have synchronisation as events,
        /// without such stores, and it does not say what those cost in its simulator. With
        /// "left-out" the stores are not replicated. With "events" there are no accesses at all,
        /// and no thread waits for a line to arrive (but a core that has run ahead by a quantum may
        /// let others continue that much early). Both are for comparisons, and such machines cannot
        /// be crashed ("left-out" can where nothing is replicated).
        pub synchronisation: Synchronising = Synchronising::Replicated,
        /// How far a core runs ahead of the rest of the machine at a time: 20 ns, a fifth of the
        /// way to another node. It moves the times of actions by that much, never the order in
        /// which a program may see them.
        pub quantum: Time = Time::from_nanos(20),
    }
}

choice! {
    /// The means by which a machine makes stores survive the death of a node.
    pub enum Protocol {
        /// None: a store is done when it is in the node's caches.
        WriteBack = "wb" | "write-back",
        /// A store is done when persistent memory in a memory node has it; each core has one under
        /// way.
        WriteThrough = "wt" | "write-through",
        /// ReCXL: a store is replicated when its line has come, and done when all replicas have it.
        Baseline = "recxl-baseline",
        /// A store is replicated when it is the oldest, while its line is on the way.
        Parallel = "recxl-parallel",
        /// A store is replicated when the next one cannot join it, or when it is the oldest.
        Proactive = "recxl-proactive",
        /// A store is replicated as soon as it has retired; stores never join.
        Uncoalesced = "recxl-proactive-uncoalesced" | "recxl-uncoalesced",
        /// Proactive, but while its store buffer holds few entries, a store is replicated as soon
        /// as it has retired; and a lock is taken by a store, which is replicated while its line is
        /// on the way. Not the paper's, though it hints at the former.
        Adaptive = "recxl-adaptive",
    }
}

impl Protocol {
    /// Returns whether stores are replicated in logging units, as in every configuration of ReCXL.
    pub const fn replicates(self) -> bool {
        !matches!(self, Self::WriteBack | Self::WriteThrough)
    }
}

section! {
    /// Of the coherence of shared memory.
    pub struct Coherence {
        /// The configuration. The paper has "wb" (write-back), its reference, "wt" (write-through),
        /// "recxl-baseline", "recxl-parallel", "recxl-proactive" and "recxl-proactive-uncoalesced"
        /// (which never coalesces stores). Ours is "recxl-adaptive" (which coalesces only while the
        /// store buffer holds more than a few entries, and takes locks by stores).
        pub protocol: Protocol = Protocol::WriteBack,
        /// Written lines that a node has under way to memory at a time: 48, as many as an L2 waits
        /// for.
        pub write_back_buffer: u32 = 48,
    }
}

section! {
    /// Of the memories.
    pub struct Memories {
        /// Lines that a memory node's DRAM accesses at a time: 128, so that at 45 ns it delivers
        /// 182 GB/s. This is more than its link carries: the paper varies the bandwidth of links
        /// and gives none for memory.
        pub dram_banks: u32 = 128,
        /// Lines that a memory node's persistent memory accesses at a time: 128, so that at 500 ns
        /// it takes 16 GB/s, about as much as six real modules.
        pub pmem_banks: u32 = 128,
        /// Access to a compute node's own DRAM: 45 ns, as in the memory nodes.
        pub local_latency: Time = Time::from_nanos(45),
        /// Lines that a compute node's own DRAM accesses at a time: 32, so that it delivers 45
        /// GB/s, as two channels do.
        pub local_banks: u32 = 32,
        /// Look-up and change of a directory entry: 10 ns, an SRAM access and a few cycles of a
        /// controller at 1 GHz.
        pub directory_latency: Time = Time::from_nanos(10),
        /// Shared memory is interleaved over memory nodes in pieces of this size: 4 KiB, a page.
        pub interleave: Bytes = Bytes::kibi(4),
    }
}

section! {
    /// Of the fabric.
    pub struct Fabric {
        /// The switch's part of a one-way trip; the rest is halved between the two links. 40 ns,
        /// two fifths: it affects queueing, not latency.
        pub switch_latency: Time = Time::from_nanos(40),
        /// The maximum delay of a message, drawn evenly, so that later messages overtake it. 2 ns:
        /// several messages at the paper's bandwidth, and on average 1% of a one-way trip.
        pub reorder_bound: Time = Time::from_nanos(2),
    }
}

section! {
    /// Message sizes on the wire. Requests, acknowledgements and the like consist of a header. A
    /// message with a line adds 64 bytes; one with words of a line adds a mask and 8 bytes for each
    /// word; a validation adds a timestamp, the number of the commit and the epoch. All are rounded
    /// up to slots.
    pub struct Wire {
        /// The unit of a message's size: 16 B, the slot of a CXL flit. "1 B" means no rounding.
        pub slot: Bytes = Bytes(16),
        /// Kind, line address, sender, receiver, requester, and the epoch of a grant or the
        /// sequence of a replication: 116 bits, so 16 B, and CXL puts a request into one slot.
        pub header: Bytes = Bytes(16),
        /// The mask of a line's words: 1 B, a bit for each of 8.
        pub mask: Bytes = Bytes(1),
        /// Logical timestamp of a validation: 4 B, so that it wraps only after any reordering is
        /// over.
        pub timestamp: Bytes = Bytes(4),
        /// Number of a validation's commit among those of its node: 4 B. The paper has none: it
        /// orders commits by timestamps alone. It fits into the slot that the timestamp needs.
        pub commit: Bytes = Bytes(4),
        /// Epoch of the line that a validation is for: 4 B. The paper has none, and this fits into
        /// that slot too.
        pub epoch: Bytes = Bytes(4),
    }
}

choice! {
    /// How the replica group of a line is computed from its address.
    pub enum ReplicaHash {
        /// The address times 2⁶⁴ over the golden ratio, its high bits scaled to the groups.
        Multiply = "multiply",
        /// The address modulo the number of groups.
        Modulo = "modulo",
    }
}

choice! {
    /// Whether the node that stores may be one of the N_r that log its store.
    pub enum OwnUnit {
        /// The group of a line logs all stores to it. If the storing node is a member, only the
        /// other members get messages.
        Counts = "counts",
        /// A member of the group is replaced, for its own stores, by the node that follows the
        /// group, if enough nodes live.
        Skipped = "skipped",
    }
}

section! {
    /// Of failures of nodes.
    pub struct Failure {
        /// The silence of a port after which its node counts as failed: 1 us, ten times the way to
        /// another node, so that a link's own retries are over.
        pub detection: Time = Time::from_micros(1),
    }
}

section! {
    /// Of replication.
    pub struct Replication {
        /// How an address chooses its replica group, "multiply" or "modulo": the former, since
        /// strides would make the latter uneven.
        pub replica_hash: ReplicaHash = ReplicaHash::Multiply,
        /// Whether a line's group also logs the stores of its own members ("counts"), or another
        /// node logs them instead ("skipped"). The paper says both: that all updates to a line are
        /// logged in the same N_r nodes, found from its address, which survives N_r - 1 failures
        /// and holds with "counts"; and that updates go to other nodes. The default is "counts", as
        /// by its hash of addresses. This saves a message in N_r of every C stores, where C is the
        /// number of nodes, so the choice matters if N_r is large or nodes are few. With "counts"
        /// N_r of the living nodes log a store, or all if fewer live; with "skipped" N_r other
        /// nodes, or all others: a single one where two live. The last living node logs its stores
        /// itself in both cases. In both cases nothing is lost if fewer than N_r nodes die before a
        /// recovery is over, or all but one where all others log a store: the survivor has then
        /// logged the store, or made it and has the line. With "skipped", the commits that the last
        /// living node made before it was alone may be in its caches only; no other node is left
        /// that could outlive it.
        pub own_unit: OwnUnit = OwnUnit::Counts,
        /// Size of a log entry: 24 B, for requester 2, number of the commit 4, epoch 4, number of
        /// the word 6, value 8.
        pub log_entry: Bytes = Bytes(24),
        /// Entries of a REPL that a logging unit writes into its SRAM in a cycle, and moves from
        /// there to its log: 8, as many as a REPL can have, so that a unit serves a message in each
        /// cycle. The paper gives the unit's clock and an access time, but no width. The words of a
        /// REPL come in one message and share requester and line, so they fit one wide row. At 1 a
        /// unit would take in 12 B of whole lines in a cycle of 2 ns, in which its link brings 320
        /// B, and the entries alone that fill the paper's log between two dumps would keep it busy
        /// for six tenths of the time.
        pub entries_per_cycle: u32 = 8,
        /// Entries of its log that a logging unit reads in a cycle, for a dump or in a recovery: 1,
        /// which is 12 GB per second. The paper has the log read in sequence, and gives no rate.
        /// Reading a full log takes 1.6 ms of the 2.5; entries logged in that time are behind it.
        pub dump_entries_per_cycle: u32 = 1,
        /// The logging units of a replica group divide a dump by ranges of addresses of this size,
        /// assigned round-robin: 4 KiB, a page, so that they have equal shares even if little of
        /// the memory is written.
        pub dump_range: Bytes = Bytes::kibi(4),
    }
}
