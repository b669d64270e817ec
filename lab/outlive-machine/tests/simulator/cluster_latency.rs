//! Unloaded paths take the sums of their parts; loaded ones are limited by the narrowest part.

use crate::support;
use outlive_machine::cluster::{self, Cluster, MessageKind, Workload};
use outlive_machine::engine::Time;
use outlive_machine::program::{Image, Op, Script, Synchronisation, Word};
use outlive_machine::run::mean_miss;

use crate::support::latency::{Parts, about, after_pause, end, machine, run};

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
    let (statistics, _) = run(&description, vec![vec![Op::Load(WORD)]]);
    let mean = mean_miss(&statistics, &description).expect("one");
    assert!(
        mean <= miss && miss < mean + parts.cycles(1),
        "{mean}, {miss}"
    );
    // Then the line is in the L1.
    let hit = end(&description, &[Op::Load(WORD), Op::Load(WORD)], vec![]);
    about(hit, &parts, miss + parts.cycles(5));
}

#[test]
fn each_level_of_the_caches_takes_its_cycles() {
    let description = machine("");
    let parts = Parts::new(&description);
    let lines =
        |count: u64, stride: u64| (0..count).map(move |n| Op::Load(WORD.offset(n * stride * 8)));
    // Lines 64 apart share a set of the L1 (12 ways): the thirteenth evicts the first to the L2.
    for (count, stride, cycles) in [(13, 64, 13), (9, 1024, 36)] {
        let mut ops: Vec<Op> = lines(count, stride).collect();
        let before = end(&description, &ops, vec![]);
        ops.push(Op::Load(WORD));
        let after = end(&description, &ops, vec![]);
        about(after, &parts, before + parts.cycles(cycles));
    }
    // Another core of the node has written the line.
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

#[test]
fn a_line_that_another_node_has_written_is_recalled() {
    let description = machine("");
    let parts = Parts::new(&description);
    let owner = vec![Op::Store(WORD, 7)];
    let read = after_pause(&description, &[], Op::Load(WORD), vec![owner.clone()]);
    about(read, &parts, parts.l3 + parts.dirty());
    // A store is committed as soon as its line is there; it requests the line when it begins.
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
    let through = parts.l3 + parts.word + parts.directory + parts.pmem + parts.small;
    let store = after_pause(&description, &[], Op::Store(WORD, 1), vec![]);
    about(store, &parts, parts.l3 + parts.remote() + through);
    // The next store waits for it, though the line is there; words of one line go together.
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
    // Stores to lines that are far away, in a machine almost without prefetches: the buffer is
    // full, and an entry stays for as long as all before it take.
    let description = machine("[system]\nstore_queue = 1\n[ours.core]\nl1_misses = 1");
    let parts = Parts::new(&description);
    let stores: Vec<Op> = (0..2_000).map(|n| Op::Store(Word(n * 8), n)).collect();
    let (statistics, _) = run(&description, vec![stores]);
    let total = statistics.total();
    assert_eq!((total.commits, total.coalesced), (2_000, 0));
    let service = statistics.finished.unwrap() / 2_000;
    about(service, &parts, parts.l3 + parts.remote());
    // L = lambda W, where L is all 72 entries except while the buffer fills and drains.
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
    // Stores are not coalesced if another line is between, nor for the same word again.
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
        let workload = support::one_thread(reads);
        let mut simulation = Cluster::simulation(&description, workload, 1).unwrap();
        let took = cluster::run(&mut simulation).unwrap();
        let rounds = (parts.l3 + parts.remote()) * (240 / room);
        assert!(
            took >= rounds && took < rounds + rounds / 10,
            "{took} for {rounds}"
        );
    }
}
