//! One line for each proof that `--list` names.

/// Explanations of the operations that `outlive-lab prove kill` sweeps, as `name: explanation`.
pub const KILL: &str = include_str!("explained/kill.txt");
/// The same of the scenarios of `outlive-lab prove schedule`.
pub const SCHEDULE: &str = include_str!("explained/schedule.txt");
/// The same of the configurations of `outlive-lab prove machine-crash`.
const CONFIGURATIONS: &str = "\
wb: write-back, which protects nothing
wt: write-through to persistent memory
recxl-baseline: ReCXL, which replicates a store when its line has arrived
recxl-parallel: ReCXL, which replicates the oldest store while its line is being fetched
recxl-proactive: ReCXL, which replicates a store when the next one cannot be coalesced with it
recxl-proactive-uncoalesced: ReCXL, which coalesces no stores
recxl-adaptive: ReCXL, which replicates a store at once while few are pending";

/// The suffixes of names of sweeps and drawn scenarios, whose explanations are listed without them,
/// and the text that each adds to the explanation.
const CONTINUED: [(&str, &str); 3] = [
    (", flushed", ""),
    (", write-back", "; lines are written back explicitly"),
    (", drawn", "; a random sample of executions"),
];

/// Returns the explanation of `name` in `list`; empty if it has none.
pub fn of(list: &str, name: &str) -> String {
    let line = |name: &str| {
        let mut explanations = list.lines().filter_map(|line| line.strip_prefix(name));
        explanations.find_map(|rest| rest.strip_prefix(": "))
    };
    let continued = CONTINUED.iter().find_map(|(end, meaning)| {
        line(name.strip_suffix(end)?).map(|explanation| format!("{explanation}{meaning}"))
    });
    let alone = || line(name).unwrap_or_default().to_owned();
    continued.unwrap_or_else(alone)
}

/// Returns the explanation of a proof of `outlive-lab prove machine-crash`: that of its program,
/// and that of its configuration.
pub fn of_machine(name: &str) -> String {
    let (configuration, rest) = name.split_once(' ').unwrap_or((name, ""));
    let (program, deaths) = rest.split_once(", ").unwrap_or((rest, "one death"));
    let program = match program {
        "drawn" => "random programs".to_owned(),
        kernel => format!("workload {kernel}"),
    };
    format!("{program}, {deaths}: {}", of(CONFIGURATIONS, configuration))
}
