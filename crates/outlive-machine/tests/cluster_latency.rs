//! Unloaded paths take the sums of their parts; loaded ones what the narrowest part allows.

use outlive_machine::cluster::{self, Cluster, MessageKind, Statistics, Workload};
use outlive_machine::description::Description;
use outlive_machine::engine::{Clock, Frequency, Time};
use outlive_machine::parts::{Content, Fabric, WireSizes};
use outlive_machine::program::{Image, Op, Script, Synchronisation, Word};

/// The paper's machine with fewer nodes, and a fabric that keeps the order.
fn machine(more: &str) -> Description {
    format!("[ours.fabric]\nreorder_bound = \"0 ns\"\n{more}")
        .parse()
        .expect("a machine that can be")
}

struct Parts {
    ticks: Clock,
    small: Time,
    line: Time,
    word: Time,
    l3: Time,
    directory: Time,
    dram: Time,
    pmem: Time,
}

/// Instructions that a core begins in a cycle.
const WIDTH: u64 = 5;

impl Parts {
    fn new(description: &Description) -> Parts {
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

    fn cycles(&self, count: u64) -> Time {
        self.ticks.edge(count * WIDTH)
    }

    /// The first tick of a core that is not before.
    fn tick(&self, time: Time) -> Time {
        self.ticks.next_edge(time)
    }

    /// A clean line from its memory.
    fn remote(&self) -> Time {
        self.small + self.directory + self.dram + self.line
    }

    /// Somebody's written line, by way of its memory, which sends it on without reading it back.
    fn dirty(&self) -> Time {
        self.small + self.directory + self.small + self.l3 + self.line + self.directory + self.line
    }

    /// Readers are invalidated, all at once: the last is asked after the others have left the port.
    fn invalidate(&self, readers: u64) -> Time {
        let behind = Time::from_picos((16 * (readers - 1) * 25).div_ceil(4));
        // Their answers queue at the same port, as far apart as they were asked.
        self.small + self.directory + behind + self.small + self.l3 + self.small + self.directory
    }
}

fn run(description: &Description, threads: Vec<Vec<Op>>) -> (Statistics, Vec<Vec<u64>>) {
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

/// When the first thread ends that does this, beside others that do that.
fn end(description: &Description, ops: &[Op], others: Vec<Vec<Op>>) -> Time {
    let mut threads = vec![ops.to_vec()];
    threads.extend(others);
    run(description, threads).0.cores[0].finished
}

const WORD: Word = Word(80);

#[test]
fn a_read_takes_the_sum_of_its_way() {
    let description = machine("");
    let parts = Parts::new(&description);
    let miss = parts.tick(parts.l3 + parts.remote());
    assert_eq!(end(&description, &[Op::Load(WORD)], vec![]), miss);
    // 36 cycles, 2 x 100 ns, 16 and 80 bytes over two links each, 10 ns, 45 ns.
    let by_hand = Time::from_picos(15_000 + 200_000 + 2 * 100 + 2 * 500 + 10_000 + 45_000);
    assert_eq!(miss, parts.tick(by_hand));
    // Then it is in the L1.
    let hit = end(&description, &[Op::Load(WORD), Op::Load(WORD)], vec![]);
    about(hit, &parts, miss + parts.cycles(5));
}

#[test]
fn each_level_of_the_caches_takes_its_cycles() {
    let description = machine("");
    let parts = Parts::new(&description);
    let lines =
        |count: u64, stride: u64| (0..count).map(move |n| Op::Load(WORD.offset(n * stride * 8)));
    // Lines 64 apart share a set of the L1 (12 ways): the thirteenth drives the first out, to the L2.
    for (count, stride, cycles) in [(13, 64, 13), (9, 1024, 36)] {
        let mut ops: Vec<Op> = lines(count, stride).collect();
        let before = end(&description, &ops, vec![]);
        ops.push(Op::Load(WORD));
        let after = end(&description, &ops, vec![]);
        about(after, &parts, before + parts.cycles(cycles));
    }
    // Another core of the node has written it.
    let pause = Op::Compute(100_000);
    let other = vec![Op::Store(WORD, 1)];
    let idle = end(&description, &[pause], vec![]);
    let read = end(&description, &[pause, Op::Load(WORD)], vec![other]);
    // The pause retires a cycle after its last instruction began, the load begins with that cycle.
    about(read + parts.cycles(1), &parts, idle + parts.cycles(36 + 13));
}

#[test]
fn private_data_takes_the_way_to_the_nodes_own_memory() {
    let description = machine("");
    let parts = Parts::new(&description);
    let miss = end(&description, &[Op::PrivateLoad(64)], vec![]);
    assert_eq!(
        miss,
        parts.tick(parts.l3 + description.ours.memory.local_latency)
    );
}

/// Threads on nodes of their own: each is followed by three without work.
fn on_nodes(threads: Vec<Vec<Op>>) -> Vec<Vec<Op>> {
    let mut all = vec![vec![]; 3];
    for thread in threads {
        all.push(thread);
        all.extend([vec![], vec![], vec![]]);
    }
    all
}

/// What an operation takes after a long pause, in which others do something.
fn after_pause(description: &Description, before: &[Op], op: Op, others: Vec<Vec<Op>>) -> Time {
    let parts = Parts::new(description);
    let mut ops = before.to_vec();
    ops.push(Op::Compute(120_000));
    let idle = end(description, &ops, on_nodes(others.clone()));
    ops.push(op);
    let busy = end(description, &ops, on_nodes(others));
    // The pause ends a cycle after the operation begins.
    busy + parts.cycles(1) - idle
}

fn about(took: Time, parts: &Parts, sum: Time) {
    // Beginnings and ends are on the core's ticks.
    let tick = parts.ticks.edge(1);
    let least = sum.saturating_sub(tick);
    assert!(
        took >= least && took <= sum + tick * 2,
        "it took {took}, and its parts are {sum}"
    );
}

#[test]
fn a_line_that_another_node_has_written_is_recalled() {
    let description = machine("");
    let parts = Parts::new(&description);
    let owner = vec![Op::Store(WORD, 7)];
    let read = after_pause(&description, &[], Op::Load(WORD), vec![owner.clone()]);
    about(read, &parts, parts.l3 + parts.dirty());
    // A store is committed as soon as its line is there; it asks for it when it begins.
    let write = after_pause(&description, &[], Op::Store(WORD.offset(1), 1), vec![owner]);
    about(write, &parts, parts.l3 + parts.dirty());
}

#[test]
fn a_line_that_others_read_is_taken_from_all_of_them() {
    let description = machine("");
    let parts = Parts::new(&description);
    for readers in 2..=8 {
        let others = (0..readers).map(|_| vec![Op::Load(WORD)]).collect();
        let write = after_pause(&description, &[], Op::Store(WORD, 1), others);
        about(
            write,
            &parts,
            parts.l3 + parts.invalidate(readers) + parts.dram + parts.line,
        );
    }
}

#[test]
fn a_reader_that_writes_gets_leave_without_contents() {
    let description = machine("");
    let parts = Parts::new(&description);
    for readers in 1..=4 {
        let others = (0..readers).map(|_| vec![Op::Load(WORD)]).collect();
        let upgrade = after_pause(&description, &[Op::Load(WORD)], Op::Store(WORD, 1), others);
        about(
            upgrade,
            &parts,
            parts.l3 + parts.invalidate(readers) + parts.small,
        );
    }
}

#[test]
fn a_lone_reader_writes_without_a_message() {
    let description = machine("");
    let (statistics, _) = run(&description, vec![vec![Op::Load(WORD), Op::Store(WORD, 1)]]);
    assert_eq!(statistics.messages.total().messages, 3, "RdS, GrantE, Done");
}

#[test]
fn a_store_is_written_through_to_persistent_memory() {
    let description = machine("[ours.coherence]\nprotocol = \"wt\"");
    let parts = Parts::new(&description);
    let through = parts.word + parts.directory + parts.pmem + parts.small;
    let store = after_pause(&description, &[], Op::Store(WORD, 1), vec![]);
    about(store, &parts, parts.l3 + parts.remote() + through);
    // The next waits for it, though the line is there; words of one line go together.
    let again = after_pause(
        &description,
        &[Op::Store(WORD, 1)],
        Op::Store(WORD, 2),
        vec![],
    );
    // A store retires a cycle after it began, into a buffer that is empty.
    about(again, &parts, parts.cycles(1) + through);
    let stores: Vec<Op> = (0..20)
        .map(|n| Op::Store(WORD.offset(8 * (n % 2)), n))
        .collect();
    let (statistics, _) = run(&description, vec![stores]);
    assert_eq!(
        statistics.messages.of(MessageKind::WriteThrough).messages,
        20
    );
    let total = statistics.finished.unwrap();
    let twenty = through * 20;
    assert!(
        total > twenty && total < twenty + Time::from_nanos(400),
        "{total}"
    );
}

#[test]
fn a_link_carries_what_it_can() {
    // One memory node: all lines go over its link to the switch.
    let description = machine("[system]\nmemory_nodes = 1\n[cxl]\nlink_bandwidth = \"10 GB/s\"");
    let read = |n: u64| Op::Load(Word(n * 8));
    let reads = |c: u64| Script::new((c * 1_000..(c + 1) * 1_000).map(read).collect::<Vec<Op>>());
    let workload = Workload {
        threads: (0..16).map(reads).collect(),
        image: Image {
            words: 1 << 18,
            ..Image::default()
        },
        synchronisation: Synchronisation::default(),
    };
    let mut simulation = Cluster::simulation(&description, workload, 1).unwrap();
    let took = cluster::run(&mut simulation).unwrap();
    let grants = simulation
        .machine()
        .statistics()
        .messages
        .of(MessageKind::GrantE);
    assert_eq!(grants.messages, 16_000);
    // 16,000 lines of 80 bytes at 10 GB/s, and the first one's way.
    let least = Time::from_nanos(16_000 * 80 / 10);
    assert!(took >= least, "{took}");
    assert!(took <= least + Time::from_micros(2), "{took}");
}

#[test]
fn littles_law_holds_in_the_store_buffer() {
    // Stores to lines that are far away, in a machine without prefetches to speak of: the buffer is full, and an
    // entry stays for as long as all before it take.
    let description = machine("[system]\nstore_queue = 1\n[ours.core]\nl1_misses = 1");
    let parts = Parts::new(&description);
    let stores: Vec<Op> = (0..2_000).map(|n| Op::Store(Word(n * 8), n)).collect();
    let (statistics, _) = run(&description, vec![stores]);
    let total = statistics.total();
    assert_eq!((total.commits, total.coalesced), (2_000, 0));
    let service = statistics.finished.unwrap() / 2_000;
    about(service, &parts, parts.l3 + parts.remote());
    // L = lambda W, with L all 72 entries but for the filling and the emptying.
    let stay = parts.ticks.edge(total.buffer_ticks) / 2_000;
    let full = service * 72;
    assert!(
        stay > full * 94 / 100 && stay < full * 101 / 100,
        "{stay} of {full}"
    );
    assert!(total.buffer_full_ticks > 0);
}

#[test]
fn stores_next_to_each_other_are_committed_together() {
    let description = machine("");
    let stores: Vec<Op> = (0..64).map(|n| Op::Store(Word(n), n)).collect();
    let (statistics, _) = run(&description, vec![stores]);
    let total = statistics.total();
    assert_eq!(total.commits + total.coalesced, 64);
    assert_eq!(total.commits, 8, "one for each line");
    // Not if another line is between, nor for the same word again.
    let stores: Vec<Op> = [0, 8, 1, 9, 2, 2]
        .map(|word| Op::Store(Word(word), 1))
        .to_vec();
    assert_eq!(run(&description, vec![stores]).0.total().commits, 6);
}

#[test]
fn misses_overlap_as_far_as_there_is_room_for_them() {
    for room in [1u64, 4, 12] {
        let description = machine(&format!("[ours.core]\nl1_misses = {room}"));
        let parts = Parts::new(&description);
        let reads: Vec<Op> = (0..240).map(|n| Op::Load(Word(n * 8))).collect();
        let workload = Workload {
            threads: vec![Script::new(reads)],
            image: Image {
                words: 1 << 12,
                ..Image::default()
            },
            synchronisation: Synchronisation::default(),
        };
        let mut simulation = Cluster::simulation(&description, workload, 1).unwrap();
        let took = cluster::run(&mut simulation).unwrap();
        let rounds = (parts.l3 + parts.remote()) * (240 / room);
        assert!(
            took >= rounds && took < rounds + rounds / 10,
            "{took} for {rounds}"
        );
    }
}
