//! Lines that are pinned for stores: their use by the node's other cores afterwards, the time until
//! they are released, and the time until the next store.

use crate::support::latency::{Parts, machine, run};
use outlive_machine::cluster::MessageKind;
use outlive_machine::description::Protocol;
use outlive_machine::engine::Time;
use outlive_machine::program::{Op, Word};

const WORD: Word = Word(8 * 40);

/// The configurations that pin.
fn pinning() -> impl Iterator<Item = Protocol> {
    let all = Protocol::ALL.iter().copied();
    all.filter(|protocol| *protocol != Protocol::WriteBack)
}

fn with(protocol: Protocol, more: &str) -> outlive_machine::description::Description {
    let name = protocol.name();
    machine(&format!("{more}[ours.coherence]\nprotocol = \"{name}\""))
}

/// Instructions that take `nanos`.
fn pause(nanos: u32) -> Op {
    Op::Compute(nanos * 12)
}

#[test]
fn who_reads_a_pinned_line_reads_it_anew_after_the_commit() {
    for protocol in pinning() {
        let description = with(protocol, "");
        let writer = vec![Op::Store(WORD, 1), pause(2_000), Op::Store(WORD, 2)];
        // While the second store waits, and long after it. A store that is written through waits
        // longest.
        let reader = vec![
            pause(2_100),
            Op::Load(WORD),
            pause(2_000),
            Op::Load(WORD),
            Op::Load(WORD),
        ];
        let (statistics, results) = run(&description, vec![writer, reader]);
        assert_eq!(results[1], [1, 2, 2]);
        let reads = &statistics.cores[1];
        assert_eq!(
            (reads.neighbour_hits, reads.l1_hits),
            (2, 1),
            "{protocol:?}"
        );
    }
}

#[test]
fn a_node_whose_cores_all_store_to_a_line_lets_it_go_when_each_has_had_a_turn() {
    // The protocols whose stores wait one after another: the others pin a line for too short a time
    // to keep it.
    for protocol in [
        Protocol::WriteThrough,
        Protocol::Baseline,
        Protocol::Parallel,
    ] {
        let description = with(protocol, "");
        // Stores to the same word are not coalesced.
        let busy: Vec<Op> = (0..150).map(|n| Op::Store(WORD, n)).collect();
        let mut threads = vec![busy; 4];
        // After that has begun, one node requests the line to write it, and another one to read it.
        threads.push(vec![pause(3_000), Op::Store(WORD, 1_000)]);
        threads.extend(vec![vec![]; 3]);
        threads.push(vec![pause(6_000), Op::Load(WORD)]);
        let (statistics, _) = run(&description, threads);
        let [end, store, load] = [0, 4, 8].map(|core| statistics.cores[core].finished);
        let end = (1..4).fold(end, |end, core| end.max(statistics.cores[core].finished));
        // All stores of the four cores in sequence take far more than this.
        assert!(end > Time::from_micros(60), "{protocol:?}: {end}");
        let soon = Time::from_micros(20);
        assert!(store < soon, "{protocol:?}: {store} of {end}");
        assert!(load < soon, "{protocol:?}: {load} of {end}");
        // The line comes back, and no request is forgotten.
        let taken = statistics
            .messages
            .of(MessageKind::RecallExclusive)
            .messages;
        assert!(taken >= 1, "{protocol:?}");
    }
}

#[test]
fn the_next_store_follows_at_once_though_its_core_has_run_ahead() {
    for protocol in [Protocol::WriteThrough, Protocol::Baseline] {
        // A computing core has run ahead by this much, whenever an answer comes.
        let description = with(protocol, "[ours.core]\nquantum = \"90 ns\"\n");
        let parts = Parts::new(&description);
        let lines = (0..11).map(|n| WORD.offset(8 * n));
        let fetch = lines.clone().map(|word| Op::Store(word, 1));
        let stores = |count| lines.clone().take(count).map(|word| Op::Store(word, 2));
        // Returns the end of a thread that stores to `count` lines that it has, and then computes.
        let end = |count: usize, nanos: u32| {
            let ops = fetch.clone().chain([pause(20_000)]).chain(stores(count));
            let ops = ops.chain([pause(nanos)]).collect();
            run(&description, vec![ops]).0.cores[0].finished
        };
        let one = end(1, 100) - end(0, 0);
        let ten = end(11, 1_000) - end(1, 100);
        // Each store begins a cycle after the previous one is committed.
        let sum = (one + parts.cycles(1)) * 10;
        let (least, most) = (one * 10 - Time::from_nanos(10), sum + Time::from_nanos(10));
        assert!(
            ten >= least && ten <= most,
            "{protocol:?}: {ten}, and one takes {one}"
        );
    }
}
