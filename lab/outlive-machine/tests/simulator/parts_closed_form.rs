//! Links, fabric and memories against closed forms: an unloaded path takes the sum of its parts, a
//! saturated one delivers exactly its rate, and messages that come at one time are served in the
//! order of their events.

use outlive_machine::cluster::MessageKind;
use outlive_machine::description::{Description, Rate};
use outlive_machine::engine::{EventQueue, Machine, Random, Simulation, Time};
use outlive_machine::line::LineAddress;
use outlive_machine::parts::{Content, Fabric, HEADER_FIELDS, Link, Memory, Port, WireSizes};
use proptest::prelude::*;

/// Returns the time for `bytes` at a rate, rounded up once.
fn serialisation(bytes: u64, rate: u64) -> Time {
    let picos = (u128::from(bytes) * 1_000_000_000_000).div_ceil(u128::from(rate));
    Time::from_picos(picos.try_into().unwrap())
}

fn rate(bytes_per_second: u64) -> Rate {
    Rate::from_bytes_per_second(bytes_per_second).unwrap()
}

/// A paper's machine without reordering.
fn in_order() -> Description {
    let mut description = Description::default();
    description.ours.fabric.reorder_bound = Time::ZERO;
    description
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_saturated_link_delivers_its_rate_without_drift(
        bytes_per_second in prop_oneof![1_000_000..300_000_000_000u64, Just(160_000_000_000), Just(3_000_000_000)],
        flight in 0..200_000u64,
        begin in 0..1_000_000u64,
        sizes in prop::collection::vec(1..300u64, 1..200),
    ) {
        let (flight, begin) = (Time::from_picos(flight), Time::from_picos(begin));
        let mut link = Link::new(rate(bytes_per_second), flight);
        let (mut sent, mut waited, mut last) = (0, Time::ZERO, begin);
        for bytes in sizes {
            let passage = link.send(begin, bytes);
            prop_assert_eq!(passage.starts, last);
            sent += bytes;
            waited += passage.starts - begin;
            last = begin + serialisation(sent, bytes_per_second);
            prop_assert_eq!(passage.leaves, last);
            prop_assert_eq!(passage.arrives, last + flight);
        }
        prop_assert_eq!(link.idle_from(), last);
        prop_assert_eq!(link.counts().bytes, sent);
        prop_assert_eq!(link.counts().waited, waited);
        // After a pause, a new burst begins.
        let later = last + Time::from_picos(1);
        prop_assert_eq!(link.send(later, 80).arrives - later, link.unloaded(80));
        prop_assert_eq!(link.unloaded(80), serialisation(80, bytes_per_second) + flight);
    }

    #[test]
    fn an_idle_link_makes_nobody_wait_and_a_busy_one_is_never_idle(
        bytes_per_second in 1_000_000_000..300_000_000_000u64,
        messages in prop::collection::vec((0..3_000u64, 1..300u64), 1..100),
    ) {
        let mut link = Link::new(rate(bytes_per_second), Time::ZERO);
        let (mut now, mut idle_from, mut burst, mut burst_began) = (Time::ZERO, Time::ZERO, 0, Time::ZERO);
        for (gap, bytes) in messages {
            now += Time::from_picos(gap);
            let passage = link.send(now, bytes);
            prop_assert_eq!(passage.starts, now.max(idle_from));
            // A message that comes before the last one has left joins its burst.
            if now >= idle_from {
                (burst, burst_began) = (0, now);
            }
            burst += bytes;
            prop_assert_eq!(passage.leaves, burst_began + serialisation(burst, bytes_per_second));
            idle_from = passage.leaves;
        }
    }

    #[test]
    fn a_message_is_held_back_within_the_bound(seed: u64, bound in 1..100_000u64, gaps in prop::collection::vec(0..2_000u64, 1..100)) {
        let mut description = in_order();
        let mut strict = Fabric::new(&description, seed);
        description.ours.fabric.reorder_bound = Time::from_picos(bound);
        let mut loose = Fabric::new(&description, seed);
        let mut again = Fabric::new(&description, seed);
        let mut now = Time::ZERO;
        for gap in gaps {
            now += Time::from_picos(gap);
            let exact = strict.forward(now, Port(4), 80);
            let held = loose.forward(now, Port(4), 80);
            prop_assert!((exact..=exact + Time::from_picos(bound)).contains(&held));
            let fork = again.clone().forward(now, Port(4), 80);
            prop_assert_eq!((again.forward(now, Port(4), 80), fork), (held, held));
        }
        // Holding a message back keeps the link from no other message.
        prop_assert_eq!(strict.downlink(Port(4)), loose.downlink(Port(4)));
    }

    #[test]
    fn a_bank_does_one_access_at_a_time(latency in 1..1_000u64, banks in 1..40u32, lines in prop::collection::vec(any::<u64>(), 1..200)) {
        let latency = Time::from_nanos(latency);
        let mut memory = Memory::new(latency, banks);
        let mut served = vec![0; banks as usize];
        for line in lines {
            let line = LineAddress(line);
            served[memory.bank(line)] += 1;
            prop_assert_eq!(memory.access(Time::ZERO, line), latency * served[memory.bank(line)]);
        }
        let waited: u64 = served.iter().map(|&served| served * (served.max(1) - 1) / 2).sum();
        prop_assert_eq!(memory.counts().waited, latency * waited);
    }
}

/// Messages on a fabric: the smallest machine that uses it as intended.
#[derive(Clone)]
struct Network {
    fabric: Fabric,
    arrived: Vec<(Time, u32)>,
}

#[derive(Clone, Copy)]
enum Event {
    Send(Message),
    AtSwitch(Message),
    AtNode(Message),
}

#[derive(Clone, Copy)]
struct Message {
    name: u32,
    from: Port,
    to: Port,
    bytes: u64,
}

impl Machine for Network {
    type Event = Event;
    fn handle(&mut self, now: Time, event: Event, queue: &mut EventQueue<Event>) {
        match event {
            Event::Send(message) => {
                let at_switch = self.fabric.leave(now, message.from, message.bytes);
                queue.schedule_at(at_switch, Event::AtSwitch(message));
            }
            Event::AtSwitch(message) => {
                let at_node = self.fabric.forward(now, message.to, message.bytes);
                queue.schedule_at(at_node, Event::AtNode(message));
            }
            Event::AtNode(message) => self.arrived.push((now, message.name)),
        }
    }
}

/// Sends `messages` at their times; returns the messages that arrived, in order.
fn carry(
    description: &Description,
    seed: u64,
    messages: &[(Time, Message)],
) -> Simulation<Network> {
    let fabric = Fabric::new(description, seed);
    let mut network = Simulation::new(Network {
        fabric,
        arrived: Vec::new(),
    });
    for &(time, message) in messages {
        network.queue_mut().schedule_at(time, Event::Send(message));
    }
    network.run();
    network
}

#[test]
fn an_unloaded_trip_is_the_sum_of_its_parts() {
    for gigabytes in [160, 80, 40, 20, 7] {
        let mut description = in_order();
        description.cxl.link_bandwidth = rate(gigabytes * 1_000_000_000);
        let sizes = WireSizes::new(&description.ours.wire);
        for content in [
            Content::Nothing,
            Content::Line,
            Content::Words(0xff),
            Content::Words(1),
            Content::Validation,
        ] {
            let bytes = sizes.bytes(content);
            let message = Message {
                name: 0,
                from: Port(2),
                to: Port(20),
                bytes,
            };
            let network = carry(&description, 0, &[(Time::from_nanos(5), message)]);
            let parts = description.cxl.round_trip / 2
                + serialisation(bytes, gigabytes * 1_000_000_000) * 2;
            assert_eq!(
                network.machine().arrived,
                [(Time::from_nanos(5) + parts, 0)]
            );
            assert_eq!(network.machine().fabric.unloaded(bytes), parts);
            assert_eq!(network.handled(), 3);
        }
    }
}

#[test]
fn an_unloaded_remote_read_is_the_sum_of_its_parts() {
    let description = in_order();
    let sizes = WireSizes::new(&description.ours.wire);
    let mut fabric = Fabric::new(&description, 0);
    let mut dram = Memory::new(
        description.cxl.dram_latency,
        description.ours.memory.dram_banks,
    );
    let (node, memory) = (fabric.compute_node(0), fabric.memory_node(0));
    let (request, answer) = (sizes.bytes(Content::Nothing), sizes.bytes(Content::Line));

    let at_switch = fabric.leave(Time::ZERO, node, request);
    let at_memory = fabric.forward(at_switch, memory, request);
    let known = at_memory + description.ours.memory.directory_latency;
    let read = dram.access(known, LineAddress(1));
    let at_switch = fabric.leave(read, memory, answer);
    let done = fabric.forward(at_switch, node, answer);

    // 200 ns on the way, 10 in the directory, 45 in the DRAM; 16 and 80 bytes over two links each
    // at 160 GB/s.
    assert_eq!(
        done,
        Time::from_nanos(255) + Time::from_picos(2 * 100 + 2 * 500)
    );
}

#[test]
fn a_saturated_port_delivers_its_rate_whoever_sends() {
    // 22 GB/s: a byte takes 45 and 5/11 picoseconds.
    let mut description = in_order();
    description.cxl.link_bandwidth = rate(22_000_000_000);
    let all: Vec<_> = (0..1600)
        .map(|name| {
            (
                Time::ZERO,
                Message {
                    name,
                    from: Port(name as u16 % 16),
                    to: Port(16),
                    bytes: 80,
                },
            )
        })
        .collect();
    let network = carry(&description, 0, &all);
    let first = Time::from_nanos(100) + serialisation(80, 22_000_000_000) * 2;
    let (last, _) = *network.machine().arrived.last().unwrap();
    // From the time when the first is at the switch, the port is never idle.
    let head = first - serialisation(80, 22_000_000_000);
    assert_eq!(last, head + serialisation(80 * 1600, 22_000_000_000));
    assert_eq!(network.machine().arrived.len(), 1600);
    let counts = network.machine().fabric.downlink(Port(16));
    assert_eq!((counts.messages, counts.bytes), (1600, 80 * 1600));
    assert_eq!(network.machine().fabric.uplink(Port(3)).bytes, 80 * 100);
}

#[test]
fn what_is_at_the_switch_at_one_time_is_forwarded_in_the_order_of_its_events() {
    // From 16 nodes at one time, in an order that is not that of the ports.
    let order: Vec<u16> = (0..16).map(|at| at * 7 % 16).collect();
    let all: Vec<_> = order
        .iter()
        .map(|&from| {
            (
                Time::ZERO,
                Message {
                    name: u32::from(from),
                    from: Port(from),
                    to: Port(17),
                    bytes: 64,
                },
            )
        })
        .collect();
    let network = carry(&in_order(), 0, &all);
    let arrived: Vec<u16> = network
        .machine()
        .arrived
        .iter()
        .map(|(_, name)| *name as u16)
        .collect();
    assert_eq!(arrived, order);
    let times: Vec<Time> = network
        .machine()
        .arrived
        .iter()
        .map(|(time, _)| *time)
        .collect();
    assert!(
        times
            .windows(2)
            .all(|pair| pair[1] - pair[0] == Time::from_picos(400))
    );
}

/// A thousand messages from one node to another, one each half nanosecond.
fn stream(bound: Time, seed: u64) -> Vec<(Time, u32)> {
    let mut description = in_order();
    description.ours.fabric.reorder_bound = bound;
    let message = |name| Message {
        name,
        from: Port(0),
        to: Port(16),
        bytes: 80,
    };
    let all: Vec<_> = (0..1000)
        .map(|name| (Time::from_picos(500) * u64::from(name), message(name)))
        .collect();
    carry(&description, seed, &all).machine().arrived.clone()
}

#[test]
fn the_fabric_reorders_what_comes_within_its_bound_and_nothing_else() {
    let overtakings = |bound: u64| {
        let arrived = stream(Time::from_picos(bound), 1);
        (0..arrived.len())
            .flat_map(|at| (at + 1..arrived.len()).map(move |later| (at, later)))
            .filter_map(|(at, later)| arrived[at].1.checked_sub(arrived[later].1))
            .collect::<Vec<u32>>()
    };
    assert_eq!(overtakings(0), []);
    assert_eq!(overtakings(499), [], "closer messages there are not");
    let within_two = overtakings(2_000);
    assert!(within_two.len() > 100);
    // At most 2 ns: a message may pass three before it, and the fourth only at a tie, which the
    // order of their events decides.
    assert_eq!(within_two.iter().max(), Some(&3));
    assert!(overtakings(50_000).into_iter().max() > Some(50));
    assert_eq!(
        stream(Time::from_nanos(9), 5),
        stream(Time::from_nanos(9), 5)
    );
    assert_ne!(
        stream(Time::from_nanos(9), 5),
        stream(Time::from_nanos(9), 6)
    );
}

#[test]
fn runs_of_lines_strides_and_pages_use_all_banks() {
    let memory = Memory::new(Time::from_nanos(45), 128);
    // The lines of one memory node of 16: pages of 64 lines, every sixteenth.
    let pages = (0..12_800).map(|at| at / 64 * 64 * 16 + at % 64);
    let patterns: [(&str, Vec<u64>); 4] = [
        ("run", (0..12_800).collect()),
        ("pages", pages.collect()),
        (
            "strides of 64 KiB",
            (0..12_800).map(|at| at * 1024).collect(),
        ),
        ("drawn", {
            let mut random = Random::new(1);
            (0..12_800).map(|_| random.bits() >> 20).collect()
        }),
    ];
    for (name, lines) in patterns {
        let mut uses = [0; 128];
        lines
            .into_iter()
            .for_each(|line| uses[memory.bank(LineAddress(line))] += 1);
        let (least, most) = (uses.iter().min().unwrap(), uses.iter().max().unwrap());
        assert!(
            *least >= 50 && *most <= 200,
            "{name}: from {least} to {most} accesses of a bank, 100 on the mean"
        );
    }
}

#[test]
fn what_every_message_says_fits_into_its_header() {
    let bits: u32 = HEADER_FIELDS.iter().map(|(_, bits)| bits).sum();
    let header = Description::default().ours.wire.header;
    assert_eq!((bits, header.0 * 8), (116, 128));
    let width = |name: &str| {
        let found = HEADER_FIELDS.iter().find(|(field, _)| field.contains(name));
        found.expect("a field of that name").1
    };
    assert!(MessageKind::ALL.len() <= 1 << width("kind"));
    // Compute nodes and memory nodes, 64 of each; 64 cores; lines of 64 bytes in an address of 64
    // bits.
    assert_eq!([width("sender"), width("receiver")], [7, 7]);
    assert_eq!(1 << width("core"), 64);
    assert_eq!(width("line") + 64u32.ilog2(), 64);
    assert_eq!(width("sequence"), u32::BITS);
}

#[test]
fn message_sizes_are_whole_slots() {
    let mut wire = Description::default().ours.wire;
    let contents = [
        (Content::Words(0), 17),
        (Content::Words(0b101), 33),
        (Content::Words(255), 81),
        (Content::Validation, 16 + 4 + 4 + 4),
    ];
    for (content, bytes) in contents {
        assert_eq!(
            WireSizes::new(&wire).bytes(content),
            u64::div_ceil(bytes, 16) * 16
        );
    }
    wire.slot.0 = 1;
    for (content, bytes) in contents {
        assert_eq!(WireSizes::new(&wire).bytes(content), bytes);
    }
}
