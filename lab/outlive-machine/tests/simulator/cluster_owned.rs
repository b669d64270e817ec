//! The contents and owners of shared memory: the directories' view, and data that one node has.

use outlive_machine::cluster::{self, Cluster, OwnedLines, Workload};
use outlive_machine::description::{Description, Protocol};
use outlive_machine::engine::{Random, Simulation};
use outlive_machine::line::LineAddress;
use outlive_machine::program::{Image, Op, Script, Synchronisation, Word};
use outlive_machine::protocol::NodeId;

fn simulation(protocol: Protocol, threads: Vec<Vec<Op>>) -> Simulation<Cluster<Script>> {
    let mut description: Description =
        "[system]\ncompute_nodes = 4\nmemory_nodes = 2\ncores_per_node = 1\n[l3]\nsize = \"64 KiB\""
            .parse()
            .unwrap();
    description.ours.coherence.protocol = protocol;
    let image = Image {
        words: 1024,
        ..Image::default()
    };
    let workload = Workload {
        threads: threads.into_iter().map(Script::new).collect(),
        image,
        synchronisation: Synchronisation::default(),
    };
    Cluster::simulation(&description, workload, 1).unwrap()
}

fn owned(protocol: Protocol, threads: Vec<Vec<Op>>) -> [OwnedLines; 4] {
    let mut simulation = simulation(protocol, threads);
    cluster::run(&mut simulation).unwrap();
    [0, 1, 2, 3].map(|node| simulation.machine().owned_lines(NodeId::new(node)))
}

fn word(line: u64) -> Word {
    Word(line * Word::PER_LINE)
}

fn lines(recorded: u64, dirty: u64) -> OwnedLines {
    OwnedLines { recorded, dirty }
}

#[test]
fn what_a_node_wrote_or_alone_has_read_is_its_own() {
    let first = |more: &[Op]| {
        let stores = (0..3).map(|line| Op::Store(word(line), 1));
        let loads = (10..12).map(|line| Op::Load(word(line)));
        stores.chain(loads).chain(more.iter().copied()).collect()
    };
    for protocol in [Protocol::WriteBack, Protocol::Proactive] {
        let alone = owned(protocol, vec![first(&[])]);
        assert_eq!(alone, [lines(5, 3), lines(0, 0), lines(0, 0), lines(0, 0)]);
        // Later, another node reads one of each kind and writes one.
        let later = [Op::Compute(100_000)];
        let others = [Op::Load(word(0)), Op::Load(word(10)), Op::Store(word(1), 2)];
        let second = later.into_iter().chain(others).collect();
        let shared = owned(protocol, vec![first(&[]), second]);
        assert_eq!(shared, [lines(2, 1), lines(1, 1), lines(0, 0), lines(0, 0)]);
    }
    // Lines that are written through are in memory.
    let through = owned(Protocol::WriteThrough, vec![first(&[])]);
    assert_eq!(through[0].dirty, 0);
    assert_eq!(through[0].recorded, 5);
}

#[test]
fn a_line_is_its_words_whatever_is_under_way() {
    for protocol in Protocol::ALL {
        let thread = |seed| {
            let mut random = Random::new(seed);
            let mut op = || match random.below(3) {
                0 => Op::Load(Word(random.below(64))),
                _ => Op::Store(Word(random.below(64)), random.bits()),
            };
            (0..200).map(|_| op()).collect()
        };
        let mut simulation = simulation(*protocol, (0..4).map(thread).collect());
        let mut different = 0;
        while simulation.step() {
            let machine = simulation.machine();
            for number in 0..8 {
                let line = LineAddress(number);
                let words = (0..8).map(|word| machine.word(Word(number * 8 + word)));
                assert!(words.eq(machine.line(line)), "{protocol:?}, {line}");
                different += u32::from(machine.line(line) != [0; 8]);
            }
        }
        assert!(different > 0);
    }
}
