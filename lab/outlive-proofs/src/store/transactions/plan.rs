//! The plans of runs, and the counts of what has occurred in them.

use super::deaths::Steps;
use outlive_store::protocol::{Policy, Protocol};
use outlive_store::tables::Geometry;

/// The plan of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The protocol.
    pub protocol: Protocol,
    /// Its choices.
    pub policy: Policy,
    /// The number of compute servers that die at random points.
    pub deaths: usize,
    /// The number of connections that break at random points.
    pub breaks: usize,
    /// Whether the first recoverer dies as well, and another one takes over.
    pub recoverer_dies: bool,
    /// Whether the first detector dies, and another one takes over: in half of the runs before its
    /// death, so that both work.
    pub detector_dies: bool,
    /// Whether a memory server is lost at a random point.
    pub memory_dies: bool,
    /// Whether lost replicas are restored. Then a second memory server is lost.
    pub restores: bool,
    /// The number of replicas of each object. There is one memory server more.
    pub replicas: usize,
    /// Broken: workers do not learn of recoveries.
    pub hides_recoveries: bool,
    /// Broken: a connection opens before the server has drained the broken one.
    pub reconnects_early: bool,
    /// Broken: an epoch does not wait for the recovery of dead compute servers.
    pub forgets_dead: bool,
    /// Whether clients drop their workers without [finishing](outlive_store::protocol::Worker).
    pub drops_workers: bool,
    /// Whether a live compute server is suspected at a random point: it is recovered as if it had
    /// died, and continues without its rights.
    pub suspects: bool,
    /// Broken: the suspected server keeps its rights.
    pub keeps_rights: bool,
    /// Whether the process ids of dead compute servers are assigned to new ones, which execute
    /// transactions and may die as well.
    pub recycles: bool,
    /// Broken: a process id is freed although latches still contain it.
    pub skips_scan: bool,
    /// The number of transactions of each coordinator.
    pub transactions: u64,
    /// Whether attempts stall at latches of compute servers under recovery.
    pub stalls: bool,
    /// Whether the keys are in two chains of a full bucket and extra ones that have one key each,
    /// so that deletions remove buckets from them and insertions add some.
    pub chains: bool,
    /// The largest number of accesses of a transaction.
    pub accesses: usize,
    /// The number of keys.
    pub keys: u64,
    /// The percentage of reads among the accesses.
    pub reads: u8,
    /// The percentage of snapshots among the transactions.
    pub snapshots: u8,
}

impl Plan {
    /// A run without deaths.
    pub const CLEAN: Self = Self {
        protocol: Protocol::Pandora,
        policy: Policy::SOUND,
        deaths: 0,
        breaks: 0,
        recoverer_dies: false,
        detector_dies: false,
        memory_dies: false,
        restores: false,
        replicas: 2,
        hides_recoveries: false,
        reconnects_early: false,
        forgets_dead: false,
        drops_workers: false,
        suspects: false,
        keeps_rights: false,
        recycles: false,
        skips_scan: false,
        transactions: 2,
        stalls: false,
        chains: false,
        accesses: 3,
        keys: 4,
        reads: 35,
        snapshots: 0,
    };
    /// A run in which up to two compute servers, a recoverer and a detector die.
    pub const DEATHS: Self = Self {
        deaths: 2,
        recoverer_dies: true,
        detector_dies: true,
        ..Self::CLEAN
    };
    /// A run in which a memory server is lost as well.
    pub const LOSSES: Self = Self {
        memory_dies: true,
        ..Self::DEATHS
    };
    /// A run in which the lost replicas are restored as well, by a restorer that may die, and by
    /// another one. Afterwards, a second memory server is lost.
    pub const RESTORATIONS: Self = Self {
        restores: true,
        ..Self::LOSSES
    };
    /// The same with three replicas. The second server, with primaries or with the copies, is lost
    /// during the restoration.
    pub const RESTORATIONS_OF_THREE: Self = Self {
        replicas: 3,
        ..Self::RESTORATIONS
    };
    /// A run with deaths and transactions of one access, most of which are not validated.
    pub const SINGLE: Self = Self {
        accesses: 1,
        keys: 1,
        reads: 60,
        ..Self::DEATHS
    };
    /// A run in which every third transaction is a snapshot.
    pub const SNAPSHOTS: Self = Self {
        snapshots: 33,
        ..Self::LOSSES
    };

    /// A run whose attempts stall at latches of compute servers under recovery.
    pub const STALLS: Self = Self {
        stalls: true,
        ..Self::LOSSES
    };
    /// A run in which connections break as well.
    pub const BROKEN_CONNECTIONS: Self = Self {
        breaks: 16,
        ..Self::LOSSES
    };
    /// The same with clients that drop their workers while releases of latches are under way.
    pub const DROPPED_WORKERS: Self = Self {
        drops_workers: true,
        ..Self::BROKEN_CONNECTIONS
    };
    /// A run in which a live compute server is suspected as well: its writes arrive while its
    /// latches are stolen, and after that.
    pub const SUSPICIONS: Self = Self {
        suspects: true,
        deaths: 1,
        ..Self::LOSSES
    };
    /// A run in which lost replicas are restored, and connections break, also those of restorers.
    pub const BROKEN_RESTORATIONS: Self = Self {
        breaks: 16,
        ..Self::RESTORATIONS
    };
    /// A run in which chains grow and shrink, with all failures but broken connections.
    pub const CHAINS: Self = Self {
        chains: true,
        reads: 10,
        ..Self::RESTORATIONS
    };
    /// A run in which the process ids of dead compute servers are recycled while others execute
    /// transactions.
    pub const RECYCLED_IDS: Self = Self {
        recycles: true,
        transactions: 4,
        ..Self::LOSSES
    };
    /// The same while lost replicas are restored.
    pub const RECYCLED_RESTORATIONS: Self = Self {
        restores: true,
        ..Self::RECYCLED_IDS
    };
    /// The kinds of sound runs, with their names.
    pub const ALL: [(&str, Self); 15] = [
        ("clean", Self::CLEAN),
        ("deaths", Self::DEATHS),
        ("losses", Self::LOSSES),
        ("single", Self::SINGLE),
        ("stalls", Self::STALLS),
        ("snapshots", Self::SNAPSHOTS),
        ("restorations", Self::RESTORATIONS),
        ("restorations-of-three", Self::RESTORATIONS_OF_THREE),
        ("broken-connections", Self::BROKEN_CONNECTIONS),
        ("dropped-workers", Self::DROPPED_WORKERS),
        ("suspicions", Self::SUSPICIONS),
        ("broken-restorations", Self::BROKEN_RESTORATIONS),
        ("chains", Self::CHAINS),
        ("recycled-ids", Self::RECYCLED_IDS),
        ("recycled-restorations", Self::RECYCLED_RESTORATIONS),
    ];

    /// The sizes of the table.
    pub(super) const fn geometry(&self) -> Geometry {
        // Buckets leave one chain and join another one.
        let (partitions, main, extra) = if self.chains { (1, 2, 4) } else { (2, 1, 1) };
        Geometry {
            value_words: 2,
            partitions,
            main,
            extra,
        }
    }

    /// The plan with another protocol.
    pub const fn of(self, protocol: Protocol) -> Self {
        Self { protocol, ..self }
    }

    /// The plan with another policy.
    pub const fn with(self, policy: Policy) -> Self {
        Self { policy, ..self }
    }
}

/// Counts of what has occurred in runs.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Transactions that were committed.
    pub committed: usize,
    /// Transactions without an answer.
    pub unknown: usize,
    /// Those that were committed, as their clients have found out.
    pub found_committed: usize,
    /// Those that had no effect, as their clients have found out.
    pub found_without_effect: usize,
    /// Attempts that ended with a conflict.
    pub conflicts: u64,
    /// Latches of dead compute servers that were stolen.
    pub stolen: u64,
    /// Logged transactions that were rolled forward.
    pub forward: u64,
    /// Logged transactions that were undone.
    pub back: u64,
    /// Recoveries by the second recoverer, after the death of the first one.
    pub again: u64,
    /// Detectors that died.
    pub detectors_died: u64,
    /// Those of them that died between two of their steps: after they suspected a server, or
    /// recorded a death or a loss.
    pub detectors_died_between: u64,
    /// The steps of second detectors.
    pub detected_again: u64,
    /// Deaths and losses that a detector found already recorded by the other one, while both were
    /// alive.
    pub detected_late: u64,
    /// Memory servers that were lost while transactions ran.
    pub lost: u64,
    /// Restorations that were completed.
    pub restored: u64,
    /// Those of them that a second restorer completed.
    pub restored_again: u64,
    /// Objects that were copied.
    pub copied: u64,
    /// Attempts that a change of the replicas ended.
    pub interrupted: u64,
    /// Accesses that waited for the recovery of a latch's holder.
    pub stalled: u64,
    /// Snapshots that were complete.
    pub snapshots: u64,
    /// Transactions that ended because their live compute server lost its rights.
    pub fenced: u64,
    /// Compute servers that were left with latches, because a worker was dropped.
    pub left_latches: u64,
    /// Process ids of dead compute servers that were assigned again.
    pub recycled: u64,
    /// Stray latches that were released before these ids were assigned again.
    pub released: u64,
    /// Transactions that were committed by the next owners of these ids.
    pub recycled_commits: usize,
    /// Buckets that joined or left a chain, and moves that were undone.
    pub moved: u64,
    /// Words that took effect.
    pub words: u64,
    /// Deaths of compute servers that had posted a batch, by what they posted last.
    pub deaths: Steps,
    /// Batches that were outstanding when their connection broke.
    pub breaks: Steps,
    /// Batches that were outstanding at a memory server when it died.
    pub losses: Steps,
    /// Those of the batches of broken connections whose verbs had all taken effect: only the
    /// answer was lost.
    pub lost_answers: u64,
}

impl Counts {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        self.committed += other.committed;
        self.unknown += other.unknown;
        self.found_committed += other.found_committed;
        self.found_without_effect += other.found_without_effect;
        self.conflicts += other.conflicts;
        self.stolen += other.stolen;
        self.forward += other.forward;
        self.back += other.back;
        self.again += other.again;
        self.detectors_died += other.detectors_died;
        self.detectors_died_between += other.detectors_died_between;
        self.detected_again += other.detected_again;
        self.detected_late += other.detected_late;
        self.lost += other.lost;
        self.restored += other.restored;
        self.restored_again += other.restored_again;
        self.copied += other.copied;
        self.interrupted += other.interrupted;
        self.stalled += other.stalled;
        self.snapshots += other.snapshots;
        self.fenced += other.fenced;
        self.left_latches += other.left_latches;
        self.recycled += other.recycled;
        self.released += other.released;
        self.recycled_commits += other.recycled_commits;
        self.moved += other.moved;
        self.words += other.words;
        self.lost_answers += other.lost_answers;
        for (all, others) in [
            (&mut self.deaths, &other.deaths),
            (&mut self.breaks, &other.breaks),
            (&mut self.losses, &other.losses),
        ] {
            for (step, count) in others {
                *all.entry(*step).or_default() += count;
            }
        }
    }
}
