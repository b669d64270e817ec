//! The parameters below `ours` that a study varies, to show how far its results depend on them.

/// A parameter below `ours` that a result may depend on, and the values that a study sets it to.
///
/// Each value is a line of TOML with the parameter's path, so that it can be appended to a
/// description that has no sections:
///
/// ```
/// use outlive_machine::description::{Description, SWEPT};
///
/// let width = SWEPT.iter().find(|swept| swept.parameter == "ours.replication.entries_per_cycle").unwrap();
/// let machines: Result<Vec<Description>, _> = width.settings().map(|line| line.parse()).collect();
/// let widths: Vec<u32> = machines?.iter().map(|machine| machine.ours.replication.entries_per_cycle).collect();
/// assert_eq!(widths, [1, 2, 4, 8]);
/// # Ok::<(), outlive_machine::description::DescriptionError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swept {
    /// The parameter's path.
    pub parameter: &'static str,
    /// The values to set, as TOML. The default is among them.
    pub values: &'static [&'static str],
}

impl Swept {
    /// Returns, for each value, the line that sets it.
    pub fn settings(&self) -> impl Iterator<Item = String> + '_ {
        let values = self.values.iter();
        values.map(|value| format!("{} = {value}", self.parameter))
    }
}

const fn swept(parameter: &'static str, values: &'static [&'static str]) -> Swept {
    Swept { parameter, values }
}

/// The parameters that a sweep varies, one at a time.
pub const SWEPT: &[Swept] = &[
    swept("ours.core.reorder_buffer", &["176", "352", "704"]),
    swept("ours.core.width", &["4", "5", "8"]),
    swept("ours.core.store_buffer", &["9", "36", "72", "144"]),
    swept("ours.core.eager_part", &["2", "8", "72"]),
    swept("ours.core.coalescing", &["\"lines\"", "\"never\""]),
    swept("ours.core.l1_misses", &["6", "12", "24"]),
    swept("ours.core.l2_misses", &["24", "48", "96"]),
    swept("ours.core.quantum", &["\"5 ns\"", "\"20 ns\"", "\"80 ns\""]),
    swept("ours.coherence.write_back_buffer", &["24", "48", "96"]),
    swept("ours.memory.dram_banks", &["32", "128", "512"]),
    swept("ours.memory.pmem_banks", &["32", "128", "512"]),
    swept("ours.memory.local_latency", &["\"45 ns\"", "\"90 ns\""]),
    swept("ours.memory.local_banks", &["16", "32", "64"]),
    swept(
        "ours.memory.directory_latency",
        &["\"5 ns\"", "\"10 ns\"", "\"20 ns\""],
    ),
    swept(
        "ours.memory.interleave",
        &["\"64 B\"", "\"4 KiB\"", "\"64 KiB\""],
    ),
    swept(
        "ours.fabric.switch_latency",
        &["\"20 ns\"", "\"40 ns\"", "\"80 ns\""],
    ),
    swept(
        "ours.fabric.reorder_bound",
        &["\"0 ns\"", "\"2 ns\"", "\"20 ns\""],
    ),
    swept("ours.wire.slot", &["\"1 B\"", "\"16 B\"", "\"64 B\""]),
    swept("ours.wire.header", &["\"8 B\"", "\"16 B\"", "\"32 B\""]),
    swept("ours.replication.entries_per_cycle", &["1", "2", "4", "8"]),
    swept("ours.replication.dump_entries_per_cycle", &["1", "2", "8"]),
    swept("ours.replication.own_unit", &["\"counts\"", "\"skipped\""]),
    swept(
        "ours.replication.replica_hash",
        &["\"multiply\"", "\"modulo\""],
    ),
    swept(
        "ours.core.synchronisation",
        &["\"replicated\"", "\"left-out\"", "\"events\""],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::description::Description;

    #[test]
    fn each_value_makes_another_machine_and_the_default_is_among_them() {
        for swept in SWEPT {
            let machines: Vec<Description> = swept
                .settings()
                .map(|line| {
                    line.parse()
                        .unwrap_or_else(|error| panic!("{line}: {error}"))
                })
                .collect();
            assert!(
                machines.contains(&Description::default()),
                "{}",
                swept.parameter
            );
            for (n, machine) in machines.iter().enumerate() {
                assert!(!machines[..n].contains(machine), "{}", swept.parameter);
            }
        }
    }
}
