//! The machine: its processors, and the time that was stolen from it during a study.

use std::fs;

/// The processor time of the whole machine so far, from `/proc/stat`, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticks {
    /// The time that it was ready to run while the hypervisor ran something else.
    stolen: u64,
    /// All time, idle time included.
    all: u64,
}

impl Ticks {
    /// Reads the ticks so far. Returns `None` where the kernel does not report them.
    pub fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// Parses the first line, which sums up all processors: user, nice, system, idle, waiting,
    /// interrupts, soft interrupts, stolen, and guests' time, which is part of the user's already.
    fn parse(stat: &str) -> Option<Self> {
        let mut words = stat.lines().next()?.split_whitespace();
        if words.next()? != "cpu" {
            return None;
        }
        let ticks: Vec<u64> = words
            .take(8)
            .map(str::parse)
            .collect::<Result<_, _>>()
            .ok()?;
        Some(Self {
            stolen: *ticks.get(7)?,
            all: ticks.iter().sum(),
        })
    }

    /// Returns the part of the machine's time since `earlier` that was stolen, in percent.
    pub fn stolen_since(self, earlier: Self) -> f64 {
        let all = self.all.saturating_sub(earlier.all);
        let stolen = self.stolen.saturating_sub(earlier.stolen);
        if all == 0 {
            return 0.0;
        }
        100.0 * stolen as f64 / all as f64
    }
}

/// Returns the number of processors that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Returns the number of processors and their model, for people.
pub fn description() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or("an unnamed processor", |(_, name)| name.trim());
    format!("{} x {model}", cores())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_the_eighth_number() {
        let first = Ticks::parse("cpu  10 0 10 70 0 0 0 10 0 0\ncpu0 1 1\n").unwrap();
        let second = Ticks::parse("cpu  60 0 10 110 0 0 0 20 50 0\n").unwrap();
        assert_eq!(second.stolen_since(first), 10.0);
        assert_eq!(first.stolen_since(first), 0.0);
        assert_eq!(Ticks::parse("intr 1 2"), None);
        assert_eq!(Ticks::parse("cpu  1 2 3"), None);
    }

    #[test]
    fn this_machine_can_be_asked() {
        assert!(cores() > 0 && !description().is_empty());
        if let Some(now) = Ticks::now() {
            assert!(now.all > 0);
        }
    }
}
