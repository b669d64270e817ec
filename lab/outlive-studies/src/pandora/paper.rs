//! The numbers in the text and the table of the thesis's section 4.5, and nothing else.

use super::subject::Kind;

/// The numbers of coordinators of Table 4.1.
pub const COORDINATORS: [u16; 6] = [1, 8, 64, 128, 256, 512];

/// Table 4.1: the latency of log recovery in microseconds, for each number of coordinators.
pub const fn recovery(kind: Kind) -> [f64; 6] {
    match kind {
        Kind::TpcC => [8.0, 22.0, 158.0, 272.0, 563.0, 4951.0],
        Kind::SmallBank => [8.0, 139.0, 232.0, 424.0, 876.0, 5272.0],
        Kind::Tatp => [9.0, 20.0, 131.0, 513.0, 1039.0, 2236.0],
        Kind::Micro => [10.0, 21.0, 119.0, 474.0, 1001.0, 2043.0],
    }
}

/// Section 4.5.1: the latency of recovery with 512 outstanding transactions, in microseconds, in
/// the text beside Table 4.1.
pub const fn recovery_of_512(kind: Kind) -> f64 {
    match kind {
        Kind::TpcC => 5000.0,
        Kind::SmallBank => 5300.0,
        Kind::Tatp => 2200.0,
        Kind::Micro => 2000.0,
    }
}

/// Section 4.5.1: the same of the naive logging scheme. (For SmallBank it is faster than Pandora.)
pub const fn naive_recovery_of_512(kind: Kind) -> f64 {
    match kind {
        Kind::TpcC => 13_000.0,
        Kind::SmallBank => 2_700.0,
        Kind::Tatp => 10_000.0,
        Kind::Micro => 2_500.0,
    }
}

/// Section 4.5.3, on Figure 4.8: the throughput of the microbenchmark after the crash of one of two
/// compute servers whose resources are not reused, to that before.
pub const WITHOUT_REUSE: f64 = 2.0 / 3.0;
/// The time after a failure until the failed coordinators are brought back, in milliseconds.
pub const BROUGHT_BACK: f64 = 10.0;
/// The time of recovery with three replicas of the failure detector, in milliseconds.
pub const REPLICATED: f64 = 20.0;

/// Section 4.5.2, on Figure 4.4: the throughput of the naive scheme to FORD's.
pub const fn naive_throughput(kind: Kind) -> f64 {
    match kind {
        Kind::SmallBank | Kind::Micro => 0.76,
        Kind::TpcC => 0.80,
        Kind::Tatp => 0.91,
    }
}

/// Section 4.5.2: the overheads of the naive scheme in percent, in two sentences.
pub const NAIVE_OVERHEADS: [(&str, f64); 4] = [
    ("the standard benchmarks", 25.0),
    ("SmallBank", 24.0),
    ("TPC-C", 20.0),
    ("TATP", 9.0),
];

/// Section 4.5.1: the time in which the baseline's recovery finds the latches among a million keys,
/// in seconds.
pub const SCAN_OF_A_MILLION: f64 = 5.0;
