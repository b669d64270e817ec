//! `store-peers`: transactions of one and of two client processes on our store, beside databases of
//! one machine.
//!
//! The store has the protocol `pandora`, two memory servers and two replicas of each object, on
//! mapped memory. Its peers need the feature `databases`: LMDB and SQLite, which are linked into
//! the clients and whose files are in /dev/shm, and Redis, a server behind a Unix socket. The peers
//! keep one copy, and none of them survives a crash of the machine.
//!
//! Each client executes one transaction at a time, on all stores the same ones in the same order.
//! Only the clients of Redis also send 32 of them together. A client that does not run in a round
//! waits for orders, and stays connected.
//!
//! Where clients and their server share the processors, the rate of transactions depends on how
//! they are scheduled, so the goal for Redis is on the processor time of a transaction: that of all
//! clients and servers.
//!
//! After the rounds, the sum of all balances of each store must be the initial one plus all changes
//! that its transactions made.

#[cfg(feature = "databases")]
mod accounts;
mod client;
#[cfg(feature = "databases")]
mod lmdb;
mod ours;
#[cfg(feature = "databases")]
mod redis;
mod requests;
#[cfg(feature = "databases")]
mod resp;
#[cfg(feature = "databases")]
mod sqlite;
mod subject;

pub use client::Client;
pub use ours::MemoryServer;

use crate::cost::{Cost, Costs, Metric, emulated};
use crate::paired::Comparison;
use crate::row::{Goal, Row};
use crate::statistics::median_estimate;
use crate::{Run, Study, StudyError};
use requests::{Load, Workload};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use subject::Subject;

pub const STUDY: Study = Study {
    name: "store-peers",
    about: "transactions on a store, beside LMDB, SQLite and Redis",
    body: study,
};

/// A store that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Whose {
    Ours,
    Lmdb,
    Sqlite,
    /// With one transaction in each round trip.
    Redis,
    /// With 32 transactions in each round trip.
    RedisPipelined,
}

impl Whose {
    const PEERS: [Self; 4] = [Self::Lmdb, Self::Sqlite, Self::Redis, Self::RedisPipelined];

    const fn name(self) -> &'static str {
        match self {
            Self::Ours => "outlive's store",
            Self::Lmdb => "LMDB (WRITEMAP, NOSYNC)",
            Self::Sqlite => "SQLite (WAL, synchronous=OFF)",
            Self::Redis => "Redis (Lua)",
            Self::RedisPipelined => "Redis (Lua, pipelined by 32)",
        }
    }
}

const RATE: Metric = ("transactions per second", |cost| 1.0 / cost.wall);
const CPU: Metric = ("processor time of a transaction", |cost| cost.cpu * 1e6);

/// The goals of a comparison: for the ratio of the rates, and for that of the processor times.
fn goals(workload: Workload, clients: usize, peer: Whose) -> [Option<Goal>; 2] {
    match (workload, clients, peer) {
        (Workload::Transfers, 1, Whose::Lmdb) => [Some(Goal::ratio_at_least(4.0)), None],
        (Workload::Transfers, 1, Whose::Sqlite) => [Some(Goal::ratio_at_least(40.0)), None],
        (Workload::Transfers, 2, Whose::Lmdb) => [Some(Goal::ratio_at_least(10.0)), None],
        (Workload::Transfers, 2, Whose::RedisPipelined) => [None, Some(Goal::ratio_at_most(0.1))],
        _ => [None, None],
    }
}

fn case(workload: Workload, clients: usize) -> String {
    let processes = if clients == 1 { "process" } else { "processes" };
    format!("{}, {clients} {processes}", workload.name())
}

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    #[cfg(feature = "databases")]
    redis::require()?;
    let launcher = run.launcher().clone();
    for workload in Workload::ALL {
        let keys = match workload {
            Workload::Transfers => run.effort().of(1000, 1_000_000, 1_000_000),
            Workload::SmallBank => run.effort().of(1000, 100_000, 100_000),
        };
        let load = Load { workload, keys };
        run.go_on()?;
        run.begin(&format!("{}: {}", workload.name(), Whose::Ours.name()));
        let mut ours = Subject::start(&launcher, Whose::Ours, load)?;
        if cfg!(feature = "databases") {
            for peer in Whose::PEERS {
                run.go_on()?;
                run.begin(&format!("{}: {}", workload.name(), peer.name()));
                let mut theirs = Subject::start(&launcher, peer, load)?;
                beside(run, workload, &mut ours, (peer, &mut theirs))?;
                theirs.check()?;
            }
        } else {
            alone(run, workload, &mut ours)?;
        }
        ours.check()?;
    }
    run.answer(tigon());
    Ok(())
}

/// The numbers of clients that are measured.
const CLIENTS: [usize; 2] = [1, 2];

/// Returns the length of a round's part, and the number of rounds.
fn sizes(run: &Run<'_>) -> (Duration, usize) {
    let millis = run.effort().of(5, 100, 250);
    let rounds = run.effort().of(2, 9, 31);
    (Duration::from_millis(millis), rounds)
}

/// Measures ours and a peer alternately.
fn beside(
    run: &mut Run<'_>,
    workload: Workload,
    ours: &mut Subject<'_>,
    (peer, theirs): (Whose, &mut Subject<'_>),
) -> Result<(), StudyError> {
    let (length, rounds) = sizes(run);
    for clients in CLIENTS {
        let case = case(workload, clients);
        // The first run of a client finds nothing in its caches.
        ours.run(clients, length)?;
        theirs.run(clients, length)?;
        let measured = format!("{case}, {}", peer.name());
        let costs = Costs::measure(
            run,
            (&measured, rounds),
            || ours.run(clients, length),
            || theirs.run(clients, length),
        )?;
        let goals = goals(workload, clients, peer);
        for (((metric, of), unit), goal) in [(RATE, "/s"), (CPU, "us")].into_iter().zip(goals) {
            let comparison = Comparison {
                case: &case,
                metric,
                unit,
                peer: peer.name(),
                paper: None,
                goal,
            };
            run.answer(comparison.rows(&costs.paired(of)).map(emulated));
        }
    }
    Ok(())
}

/// Measures ours without peers.
fn alone(run: &mut Run<'_>, workload: Workload, ours: &mut Subject<'_>) -> Result<(), StudyError> {
    let (length, rounds) = sizes(run);
    for clients in CLIENTS {
        let case = case(workload, clients);
        run.begin(&case);
        ours.run(clients, length)?;
        let mut costs: Vec<Cost> = Vec::new();
        for _ in 0..rounds {
            run.go_on()?;
            costs.push(ours.run(clients, length)?);
        }
        let rows = [(RATE, "/s"), (CPU, "us")].map(|((metric, of), unit)| {
            let all: Vec<f64> = costs.iter().map(of).collect();
            emulated(Row::new(&case, metric, unit).ours_within(median_estimate(&all)))
        });
        run.answer(rows);
        run.answer(Whose::PEERS.map(|peer| Row {
            peer_name: Some(peer.name().to_owned()),
            how: None,
            ..Row::new(
                format!("{case} (not measured: built without the feature `databases`)"),
                RATE.0,
                "/s",
            )
        }));
    }
    Ok(())
}

/// The published results of Tigon (Y. Huang et al., OSDI 2025), a database whose hosts synchronise
/// by atomic operations on shared CXL memory. They are from another machine and from other
/// workloads, so nothing here is compared with them.
fn tigon() -> [Row; 2] {
    let row = |peer: &str, paper| {
        let case = format!("Tigon on a CXL pod, TPC-C and YCSB, beside {peer}");
        Row::paper_alone(case, "throughput, at most", "times", paper)
    };
    [
        row("two shared-nothing databases with messages over CXL", 2.5),
        row("a database over RDMA", 18.5),
    ]
}
