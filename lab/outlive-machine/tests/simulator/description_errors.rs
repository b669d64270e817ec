//! Errors in texts that describe no machine: their location, the mistake, and the hint.

use outlive_machine::description::{Description, Protocol};

/// Text, line, column, a part of the message, a part of the hint.
#[rustfmt::skip]
const WRONG: &[(&str, usize, usize, &str, &str)] = &[
    // No TOML.
    ("[system\nx", 1, 8, "this is not TOML", "field = value"),
    ("[l1]\nways = 8\nways = 9", 3, 1, "second time", "once"),
    ("\u{feff}[l1]\nwäys = 1", 2, 2, "this is not TOML", ""),
    // Names.
    ("\n[system]\n  compute_node = 4", 3, 3, "no field `compute_node` in [system]", "did you mean `compute_nodes`?"),
    ("[l1]\nassociativity = 12", 2, 1, "no field `associativity`", "use one of `size`, `ways`, `latency`"),
    ("[system]\nround_trip = \"1 ns\"", 2, 1, "no field `round_trip` in [system]", "it belongs in \
                                                                                    [cxl]"),
    ("[cache]\nways = 1", 1, 2, "no section `cache`", "use one of `system`, `l1`"),
    ("[sytem]\ncompute_nodes = 1", 1, 2, "no section `sytem`", "did you mean `system`?"),
    ("compute_nodes = 1", 1, 1, "no section `compute_nodes`", "belongs in [system]"),
    ("[ours.cores]\n", 1, 7, "no section `ours.cores`", "did you mean `ours.core`?"),
    ("[core]\n", 1, 2, "no section `core`", ""),
    ("l1 = 3", 1, 6, "`l1` is a whole number", "[l1]"),
    ("ours = []", 1, 8, "`ours` is a list", ""),
    ("[[l1]]\nways = 3", 1, 1, "`l1` is a list", "[l1]"),
    // The first mistake of the text is reported, not that of the alphabet.
    ("[system]\nstore_queue = \"a\"\nload_queue = \"b\"", 2, 15, "expected a count, found a \
                                                                  string", "whole number"),
    // Kinds and units.
    ("[system]\ncores_per_node = 4.0", 2, 18, "expected a count, found a fractional number", ""),
    ("[system]\ncores_per_node = -4", 2, 18, "-4 is out of range", "from 0 to 4294967295"),
    ("[system]\ncores_per_node = 99999999999999999999999", 2, 18, "is out of range", ""),
    ("[system]\ncpu_frequency = 2.4", 2, 17, "expected a quantity with a unit, found a fractional \
                                              number", "\"2.4 GHz\""),
    ("[system]\ncpu_frequency = \"2.4\"", 2, 17, "`2.4` has no unit", "`Hz`, `kHz`, `MHz`, `GHz`"),
    ("[system]\ncpu_frequency = \"2.4 ghz\"", 2, 17, "`ghz` is not a unit here", "did you mean `GHz`?"),
    ("[system]\ncpu_frequency = \"2.4 ns\"", 2, 17, "`ns` is not a unit here", "use one of `Hz`"),
    ("[system]\ncpu_frequency = \"0 GHz\"", 2, 17, "a clock of 0 Hz cannot be simulated", "1 Hz to 1 THz"),
    ("[system]\ncpu_frequency = \"1.1 THz\"", 2, 17, "cannot be simulated", ""),
    ("[cxl]\nround_trip = \"200 MHz\"", 2, 14, "`MHz` is not a unit here", "`ps`, `ns`"),
    ("[cxl]\nround_trip = \"fast\"", 2, 14, "`fast` does not begin with a number", "\"200 ns\""),
    ("[cxl]\nround_trip = \"1.2.3 ns\"", 2, 14, "does not begin with a number", ""),
    ("[cxl]\nround_trip = \"0.2 ps\"", 2, 14, "`0.2 ps` is not a whole number of ps", "rounder"),
    ("[cxl]\nround_trip = \"20000000000 s\"", 2, 14, "is too large", ""),
    ("[cxl]\nround_trip = \"340282366920938463463374607431768211455.9 ns\"", 2, 14, "is too large", ""),
    ("[cxl]\nlink_bandwidth = \"160 Gb/s\"", 2, 18, "`Gb/s` is not a unit here", "160 Gb/s are 20 GB/s"),
    ("[cxl]\nlink_bandwidth = \"100 Gbit/s\"", 2, 18, "`Gbit/s` is not a unit here", "100 Gbit/s are 12.5 GB/s"),
    ("[cxl]\nlink_bandwidth = \"160 gB/s\"", 2, 18, "`gB/s` is not a unit here", "did you mean `GB/s`?"),
    ("[cxl]\nlink_bandwidth = \"0 GB/s\"", 2, 18, "a bandwidth of 0 B/s", ""),
    ("[l1]\nlatency = \"5 ns\"", 2, 11, "`ns` is not a unit here", "use one of `cycles`"),
    ("[l1]\nsize = \"0.3 KiB\"", 2, 8, "is not a whole number of B", ""),
    ("[ours.replication]\nreplica_hash = \"md5\"", 2, 16, "\"md5\" is not one of the choices", "use one of \"multiply\", \"modulo\""),
    ("[ours.replication]\nreplica_hash = \"modolu\"", 2, 16, "\"modolu\" is not one", "did you mean \"modulo\"?"),
    ("[ours.coherence]\nprotocol = \"basline\"", 2, 12, "\"basline\" is not one", "did you mean \"baseline\"?"),
    ("[ours.replication]\nreplica_hash = 5", 2, 16, "not one of the choices", ""),
    ("cxl = { dram_latency = \"1 µs\", pmem_latency = 3 }", 1, 47, "expected a quantity with a \
                                                                    unit, found a whole number", "\"200 ns\""),
    // Impossible machines.
    ("[l1]\nways = 0", 2, 8, "a cache cannot have 0 ways", "from 1 to 64"),
    ("[l2]\nsize = \"500000 B\"", 2, 8, "cannot be divided into sets of 8 ways of 64 B", "a multiple of 512 B"),
    ("[l2]\nsize = \"0 B\"", 2, 8, "cannot be divided into sets", ""),
    ("[l2]\nlatency = \"1 cycle\"\nways = 7", 3, 8, "cannot be divided into sets of 7 ways", "a multiple of 448 B"),
    ("[l3]\nsize = \"6 MiB\"", 2, 8, "6144 sets, which is not a power of two", "give 4 MiB or 8 MiB"),
    ("[l3]\nsize = \"2 GiB\"", 2, 8, "too large to be simulated", "1 GiB"),
    ("[local_memory]\nline_size = \"128 B\"", 2, 13, "a line size of 128 B is not supported", "64 B"),
    ("[local_memory]\nsize = \"100 B\"", 2, 8, "not a whole number of lines", "multiple of 64 B"),
    ("[ours.memory]\ninterleave = \"0 B\"", 2, 14, "not a whole number of lines", ""),
    ("[system]\ncompute_nodes = 0", 2, 17, "0 is out of range", "from 1 to 32"),
    ("[system]\ncompute_nodes = 33", 2, 17, "33 is out of range", "from 1 to 32"),
    ("[system]\ncompute_nodes = 1\n[ours.coherence]\nprotocol = \"proactive\"", 2, 17, "3 nodes cannot log a store", "factor of 1 at most"),
    ("[l1]\nlatency = \"20 cycles\"", 2, 11, "l2.latency cannot be 13 cycles, since it includes \
                                              l1.latency, which is 20 cycles", "l2.latency 20 \
                                                                                cycles at least"),
    ("[l2]\nlatency = \"100 cycles\"", 2, 11, "l3.latency cannot be 36 cycles", ""),
    ("[l1]\nlatency = \"0 cycles\"", 2, 11, "a cache cannot have a latency of 0 cycles", "from 1 \
                                                                                          cycle"),
    ("[l3]\nlatency = \"18446744073709551615 cycles\"", 2, 11, "a cache cannot have a latency of", "to 1000000 cycles"),
    ("[cxl]\nround_trip = \"30 ns\"", 2, 14, "ours.core.quantum cannot be 20 ns", "15 ns at most, or a longer cxl.round_trip"),
    ("[cxl]\nround_trip = \"0 ns\"", 2, 14, "ours.core.quantum cannot be 20 ns", "give a \
                                                                                  cxl.round_trip \
                                                                                  above zero"),
    ("[system]\ncompute_nodes = 2\n[ours.coherence]\nprotocol = \"recxl-parallel\"", 2, 17, "3 nodes cannot log a store where there are 2 in all", "factor of 2 at most"),
    ("[logging_unit]\nreplication_factor = 17\n[ours.coherence]\nprotocol = \"recxl-baseline\"", 2, 22, "17 nodes cannot log a store", "16 at most"),
    ("[ours.replication]\nown_unit = \"skipped\"\n[logging_unit]\nreplication_factor = 16\n[ours.coherence]\nprotocol = \"recxl-adaptive\"", 4, 22, "16 other nodes cannot log a store where there are 16 in all (ours.replication.own_unit is \"skipped\")", "15 at most"),
    ("[ours.replication]\nown_unit = \"skipped\"\n[system]\ncompute_nodes = 1\n[ours.coherence]\nprotocol = \"recxl-adaptive\"", 4, 17, "3 other nodes cannot log a store", "compute_nodes 2 at least"),
    ("[logging_unit]\ndump_period = \"0 ms\"", 2, 15, "continuously", ""),
    ("[logging_unit]\nsram_size = \"16 B\"", 2, 13, "16 B is too small for a log entry of 24 B", "24 B at least"),
    ("[ours.replication]\nlog_entry = \"8 B\"", 2, 13, "a log entry cannot have 8 B", "from 16 B"),
    ("[cxl]\nround_trip = \"60 ns\"", 2, 14, "passes the switch twice, and ours.fabric.switch_latency is 40 ns", "switch_latency 30 ns at most"),
    ("[cxl]\ndram_latency = \"18446744 s\"", 2, 16, "a memory cannot have a latency of 18446744 s", "give 1 ms at most"),
    ("[logging_unit]\nsram_latency = \"2 ms\"", 2, 16, "a memory cannot have a latency of 2 ms", "give 1 ms at most"),
    ("[cxl]\nround_trip = \"18446744 s\"", 2, 14, "a round trip of 18446744 s is too long", "give 1 ms at most"),
    ("[ours.fabric]\nswitch_latency = \"101 ns\"", 2, 18, "passes the switch twice", "100 ns at most"),
    ("[cxl]\nround_trip = \"200.001 ns\"", 2, 14, "cannot be divided among four links", "multiple \
                                                                                         of 4 ps"),
    ("[ours.failure]\ndetection = \"0 ns\"", 2, 13, "to detect", "more than zero"),
    ("[ours.failure]\ndetection = \"18446744 s\"", 2, 13, "to detect", "at most 1 s"),
    ("[ours.fabric]\nreorder_bound = \"1 s\"", 2, 17, "a reorder bound of 1 s is too long", "1 ms at most"),
    ("[ours.wire]\nslot = \"0 B\"", 2, 8, "0 B is out of range", "from 1 B"),
    ("[ours.core]\nwidth = 0", 2, 9, "0 is out of range", ""),
    ("[ours.memory]\npmem_banks = 0", 2, 14, "0 is out of range", ""),
];

#[test]
fn a_protocol_of_the_callers_is_judged_with_the_text() {
    let text = "[system]\ncompute_nodes = 2";
    assert!(text.parse::<Description>().is_ok());
    let error = Description::read(text, Some(Protocol::Proactive)).unwrap_err();
    assert_eq!((error.line, error.column), (2, 17));
    // The protocol in the text does not count then.
    let text = format!("{text}\n[ours.coherence]\nprotocol = \"recxl-proactive\"");
    assert!(text.parse::<Description>().is_err());
    let read = Description::read(&text, Some(Protocol::WriteThrough)).unwrap();
    assert_eq!(read.ours.coherence.protocol, Protocol::WriteThrough);
}

#[test]
fn all_nodes_may_log_a_store_if_the_own_unit_is_one_of_them() {
    let text = "[system]\ncompute_nodes = 3\n[ours.coherence]\nprotocol = \"recxl-adaptive\"";
    assert!(text.parse::<Description>().is_ok());
}

#[test]
fn a_protocol_has_more_names_than_one() {
    for (names, protocol) in [
        (&["wb", "write-back"][..], Protocol::WriteBack),
        (&["wt", "write-through"], Protocol::WriteThrough),
        (&["baseline", "recxl-baseline"], Protocol::Baseline),
        (
            &[
                "uncoalesced",
                "recxl-uncoalesced",
                "proactive-uncoalesced",
                "recxl-proactive-uncoalesced",
            ],
            Protocol::Uncoalesced,
        ),
    ] {
        for name in names {
            let text = format!("[ours.coherence]\nprotocol = \"{name}\"");
            let read: Description = text.parse().unwrap();
            assert_eq!(read.ours.coherence.protocol, protocol, "{name}");
        }
    }
}

#[test]
fn who_does_not_replicate_needs_no_nodes_for_it() {
    for protocol in ["wb", "wt"] {
        let text =
            format!("[system]\ncompute_nodes = 1\n[ours.coherence]\nprotocol = \"{protocol}\"");
        text.parse::<Description>().unwrap();
    }
}

#[test]
fn what_is_wrong_is_told_with_its_place_and_what_would_be_right() {
    for &(text, line, column, what, hint) in WRONG {
        let error = text.parse::<Description>().expect_err(text);
        assert_eq!(
            (error.line, error.column),
            (line, column),
            "{text:?}: {error}"
        );
        assert!(error.what.contains(what), "{text:?}: {error}");
        assert!(
            error.hint.contains(hint) && !error.hint.is_empty(),
            "{text:?}: {error}"
        );
    }
}
