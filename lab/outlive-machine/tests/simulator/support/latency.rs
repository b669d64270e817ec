//! Latencies as sums of their parts, and runs to compare with them.

use outlive_machine::cluster::{self, Cluster, Statistics, Workload};
use outlive_machine::description::Description;
use outlive_machine::engine::{Clock, Frequency, Time};
use outlive_machine::parts::{Content, Fabric, WireSizes};
use outlive_machine::program::{Image, Op, Script, Synchronisation};

/// The paper's machine with fewer nodes, and a fabric that keeps the order.
pub fn machine(more: &str) -> Description {
    format!("[ours.fabric]\nreorder_bound = \"0 ns\"\n{more}")
        .parse()
        .expect("a machine that can be")
}

pub struct Parts {
    pub ticks: Clock,
    pub small: Time,
    pub line: Time,
    pub word: Time,
    pub l3: Time,
    pub directory: Time,
    pub dram: Time,
    pub pmem: Time,
}

/// The instructions that a core begins in a cycle.
pub const WIDTH: u64 = 5;

impl Parts {
    pub fn new(description: &Description) -> Parts {
        let sizes = WireSizes::new(&description.ours.wire);
        let fabric = Fabric::new(description, 0);
        let way = |content| fabric.unloaded(sizes.bytes(content));
        let ticks = Clock::new(Frequency::from_hertz(2_400_000_000 * WIDTH).unwrap());
        Parts {
            ticks,
            small: way(Content::Nothing),
            line: way(Content::Line),
            word: way(Content::Words(1)),
            l3: ticks.edge(36 * WIDTH),
            directory: description.ours.memory.directory_latency,
            dram: description.cxl.dram_latency,
            pmem: description.cxl.pmem_latency,
        }
    }

    pub fn cycles(&self, count: u64) -> Time {
        self.ticks.edge(count * WIDTH)
    }

    /// Returns the first tick of a core at or after `time`.
    pub fn tick(&self, time: Time) -> Time {
        self.ticks.next_edge(time)
    }

    /// Returns the time for a clean line from its memory.
    pub fn remote(&self) -> Time {
        self.small + self.directory + self.dram + self.line
    }

    /// The time for another node's written line, by way of its memory, which forwards it unread.
    pub fn dirty(&self) -> Time {
        self.small + self.directory + self.small + self.l3 + self.line + self.directory + self.line
    }

    /// The time to invalidate all readers: the last is asked after the others have left the port.
    pub fn invalidate(&self, readers: u64) -> Time {
        let behind = Time::from_picos((16 * (readers - 1) * 25).div_ceil(4));
        // The answers queue at the same port, as far apart as the requests were.
        self.small + self.directory + behind + self.small + self.l3 + self.small + self.directory
    }
}

pub fn run(description: &Description, threads: Vec<Vec<Op>>) -> (Statistics, Vec<Vec<u64>>) {
    let count = threads.len();
    let workload = Workload {
        threads: threads.into_iter().map(Script::dependent).collect(),
        image: Image {
            words: 1 << 18,
            ..Image::default()
        },
        synchronisation: Synchronisation::default(),
    };
    let mut simulation = Cluster::simulation(description, workload, 1).unwrap();
    cluster::run(&mut simulation).unwrap();
    let machine = simulation.machine();
    machine.check().unwrap();
    let results = (0..count)
        .map(|n| machine.thread(n).results().to_vec())
        .collect();
    (machine.statistics(), results)
}

/// Returns the end of a first thread with `ops`, next to other threads with `others`.
pub fn end(description: &Description, ops: &[Op], others: Vec<Vec<Op>>) -> Time {
    let mut threads = vec![ops.to_vec()];
    threads.extend(others);
    run(description, threads).0.cores[0].finished
}

/// Puts threads on nodes of their own: each is followed by three threads without work.
pub fn on_nodes(threads: Vec<Vec<Op>>) -> Vec<Vec<Op>> {
    let mut all = vec![vec![]; 3];
    for thread in threads {
        all.push(thread);
        all.extend([vec![], vec![], vec![]]);
    }
    all
}

/// Returns the time of an operation after a long pause, during which others run.
pub fn after_pause(description: &Description, before: &[Op], op: Op, others: Vec<Vec<Op>>) -> Time {
    let parts = Parts::new(description);
    let mut ops = before.to_vec();
    ops.push(Op::Compute(120_000));
    let idle = end(description, &ops, on_nodes(others.clone()));
    ops.push(op);
    let busy = end(description, &ops, on_nodes(others));
    // The pause ends a cycle after the operation begins.
    busy + parts.cycles(1) - idle
}

pub fn about(took: Time, parts: &Parts, sum: Time) {
    // Beginnings and ends are on the core's ticks.
    let tick = parts.ticks.edge(1);
    let least = sum.saturating_sub(tick);
    assert!(
        took >= least && took <= sum + tick * 2,
        "it took {took}, and its parts are {sum}"
    );
}
